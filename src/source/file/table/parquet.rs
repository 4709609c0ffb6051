//! Posts from Parquet.
//!
//! What enters is a file, what leaves a row a post. The reader is a library's, which takes what a file says of itself
//! for granted: so the sizes of its pages are looked at first, and what panics at a broken one is an error here.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{Compression, ConvertedType, LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::Value;

use super::columns::{Column, TableError, find, record, rejected, row_of};
use crate::source::file::row::{FileRow, LONGEST_LINE, Position, Rows};
use crate::tables::ParquetFault;
use crate::tables::parquet::{caught, rows_of};

/// A cell above this is no post's, as a line of NDJSON above it is none.
const LONGEST_CELL: usize = LONGEST_LINE;

/// The rows of a Parquet file; only the columns that are needed are read.
pub struct Parquet {
    rows: RowIter<'static>,
    /// Field of each column that is read, and how many of its whole numbers are a second.
    fields: Vec<(&'static str, i64)>,
    number: u64,
    /// Rows and bytes of the whole file.
    size: (u64, u64),
    read: Arc<AtomicU64>,
    broken: bool,
}

impl Parquet {
    /// Reads what the file says of itself.
    ///
    /// # Errors
    /// When a column is missing, has the name of another one or holds no plain values, and when the file is not Parquet
    /// or is packed in a way that is not read.
    pub fn new(file: File, wanted: &[Column], read: &Arc<AtomicU64>) -> Result<Self, TableError> {
        // The reader of Parquet may panic on a damaged file.
        caught(|| Self::open(file, wanted, read))
            .unwrap_or_else(|panic| Err(ParquetFault::from(panic).into()))
    }

    fn open(file: File, wanted: &[Column], read: &Arc<AtomicU64>) -> Result<Self, TableError> {
        let bytes = file.metadata().map_err(damaged)?.len();
        let pages = file.try_clone().map_err(damaged)?;
        let reader = SerializedFileReader::new(file).map_err(ParquetFault::from)?;
        let about = reader.metadata().file_metadata();
        let rows = u64::try_from(about.num_rows()).unwrap_or(0);
        let schema = about.schema();
        let columns = schema.get_fields();
        let names: Vec<String> = columns.iter().map(|c| c.name().to_owned()).collect();
        let mut found = find(wanted, &names)?;
        // Several fields may be taken from one column, which is then read once.
        found.sort_unstable();
        let mut indices: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        indices.dedup();
        if indices.len() < found.len() {
            let (at, _) = found
                .windows(2)
                .find(|w| w[0].0 == w[1].0)
                .map_or(found[0], |w| w[0]);
            return Err(TableError::NotPlain(names[at].clone()));
        }
        let mut fields = Vec::new();
        for (at, field) in &found {
            let scale = plain_scale(&columns[*at]);
            let scale = scale.ok_or_else(|| TableError::NotPlain(names[*at].clone()))?;
            fields.push((*field, scale));
        }
        check_codecs(reader.metadata(), indices.iter().map(|at| &*names[*at]))?;
        Ok(Self {
            rows: rows_of(&pages, reader, &indices)?,
            fields,
            number: 0,
            size: (rows, bytes),
            read: read.clone(),
            broken: false,
        })
    }
}

fn damaged(error: std::io::Error) -> ParquetFault {
    ParquetError::from(error).into()
}

/// Checks that the columns of these names, which hold plain values, can be unpacked.
fn check_codecs<'a>(
    about: &ParquetMetaData,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), TableError> {
    let packed = |name: &str| {
        let groups = about.row_groups().iter();
        groups
            .flat_map(RowGroupMetaData::columns)
            .filter(|chunk| matches!(chunk.column_path().parts(), [part] if part == name))
            .find_map(|chunk| not_read(chunk.compression()))
    };
    match names.find_map(packed) {
        Some(codec) => Err(TableError::Codec(codec)),
        None => Ok(()),
    }
}

/// The name of a codec that the library is built without, or has none for; `None` for those that are read.
fn not_read(codec: Compression) -> Option<&'static str> {
    match codec {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW
        | Compression::ZSTD(_) => None,
    }
}

/// Why reading ended at a row. The library's own words for a text that is not UTF-8 have its bytes, which are no matter
/// for a log.
fn last_words(error: &ParquetError) -> String {
    match error {
        ParquetError::General(said) if said.contains("BYTE_ARRAY as String") => {
            "a text is not UTF-8, and what follows cannot be read: write the file again in UTF-8"
                .to_owned()
        }
        _ => format!("cannot be read, nor what follows: {error}"),
    }
}

/// How many of a column's whole numbers are a second, 1 where it holds no times; `None` where a cell does not
/// hold one plain value.
fn plain_scale(column: &Type) -> Option<i64> {
    let about = column.get_basic_info();
    let repeated =
        about.has_repetition() && about.repetition() == parquet::basic::Repetition::REPEATED;
    if !column.is_primitive() || repeated {
        return None;
    }
    match (about.converted_type(), about.logical_type_ref()) {
        (ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS | ConvertedType::INTERVAL, _) => {
            None
        }
        // Times in nanoseconds have no older name, and come as plain numbers.
        (ConvertedType::NONE, Some(LogicalType::Timestamp(time))) => Some(match time.unit {
            TimeUnit::MILLIS => 1_000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        }),
        _ => Some(1),
    }
}

/// A cell as JSON has it; times in seconds. `None`: bytes that are no text.
fn cell(value: Field, scale: i64) -> Option<Value> {
    Some(match value {
        Field::Str(text) => text.into(),
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok()?.into(),
        Field::Long(number) => number.div_euclid(scale).into(),
        Field::TimestampMillis(time) => time.div_euclid(1_000).into(),
        Field::TimestampMicros(time) => time.div_euclid(1_000_000).into(),
        Field::Date(days) => (i64::from(days) * 86_400).into(),
        Field::Decimal(_) => Value::String(value.to_string()),
        Field::Bool(flag) => flag.into(),
        Field::Byte(number) => number.into(),
        Field::Short(number) => number.into(),
        Field::Int(number) => number.into(),
        Field::UByte(number) => number.into(),
        Field::UShort(number) => number.into(),
        Field::UInt(number) => number.into(),
        Field::ULong(number) => number.into(),
        Field::Float(number) => number.into(),
        Field::Double(number) => number.into(),
        Field::Float16(number) => number.to_f32().into(),
        _ => Value::Null,
    })
}

impl Rows for Parquet {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.broken {
            return None;
        }
        let rows = &mut self.rows;
        let row = caught(|| rows.next()).unwrap_or_else(|panic| Some(Err(panic)))?;
        self.number += 1;
        let (rows, bytes) = self.size;
        // A guess, because columns are read here and there: as many bytes as rows.
        let read = u128::from(bytes) * u128::from(self.number) / u128::from(rows.max(1));
        self.read.store(
            u64::try_from(read).unwrap_or(bytes).min(bytes),
            Ordering::Relaxed,
        );
        Some(match row {
            Ok(row) => {
                let cells = row.into_columns().into_iter().zip(&self.fields);
                let cells = cells.map(|((_, value), (field, scale))| match cell(value, *scale) {
                    None => Err(format!(
                        "`{field}` is not UTF-8: write the column again as text in UTF-8"
                    )),
                    Some(Value::String(text)) if text.len() > LONGEST_CELL => {
                        let most = LONGEST_CELL >> 20;
                        Err(format!("`{field}` is longer than {most} MiB"))
                    }
                    Some(value) => Ok((*field, value)),
                });
                let values: Result<Vec<_>, String> = cells.collect();
                row_of(self.number, values.and_then(record))
            }
            Err(error) => {
                self.broken = true;
                rejected(self.number, last_words(&error))
            }
        })
    }

    fn position(&self) -> Position {
        Position {
            rows: self.number,
            ..Position::default()
        }
    }

    fn broken(&self) -> bool {
        self.broken
    }
}
