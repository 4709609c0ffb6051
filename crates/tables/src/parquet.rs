//! Reads rows from Parquet and writes columns to Parquet.
//!
//! The Parquet library trusts a file's metadata. Page sizes are therefore checked before reading, and panics on damaged
//! files are converted to errors.

mod copy;
mod write;

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

use chrono::{DateTime, NaiveTime};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::Value;

pub use self::copy::ParquetSource;
pub use self::write::ParquetWriter;
use super::{Cell, ParquetFault, Row, Rows, TableError, page_sizes};
use crate::panics::catch;

/// Runs `read` and converts a panic to an error. Of 2,500 files with corrupted bytes, six made the library panic.
fn catch_panic<T>(read: impl FnOnce() -> T) -> Result<T, ParquetError> {
    catch(read).map_err(|panic| ParquetError::General(format!("it is damaged ({panic})")))
}

/// Opens a Parquet reader on a clone of the file handle. The clone shares its position with `file`.
fn reader(file: &File) -> Result<SerializedFileReader<File>, TableError> {
    let clone = file.try_clone()?;
    let reader = catch_panic(|| SerializedFileReader::new(clone));
    reader.unwrap_or_else(Err).map_err(TableError::from_parquet)
}

/// Returns the leaf columns in these top-level fields. A group has several leaf columns.
fn leaves_of(schema: &Type, fields: &[usize]) -> Vec<usize> {
    fn count(field: &Type) -> usize {
        if field.is_primitive() {
            1
        } else {
            field.get_fields().iter().map(|field| count(field)).sum()
        }
    }
    let (mut leaves, mut next) = (Vec::new(), 0);
    for (at, field) in schema.get_fields().iter().enumerate() {
        if fields.contains(&at) {
            leaves.extend(next..next + count(field));
        }
        next += count(field);
    }
    leaves
}

/// Returns the name of an unsupported codec; `None` if the codec is supported.
fn unsupported_codec(codec: Compression) -> Option<&'static str> {
    match codec {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        _ => None,
    }
}

/// A column's kind, for conversions that the library does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellKind {
    Plain,
    /// A list, map or struct.
    Nested,
    /// A timestamp, in UTC or in an unknown time zone.
    Time {
        utc: bool,
        nanos: bool,
    },
}

fn kind_of(column: &Type) -> CellKind {
    let metadata = column.get_basic_info();
    let repeated = metadata.has_repetition() && metadata.repetition() == Repetition::REPEATED;
    if !column.is_primitive() || repeated {
        return CellKind::Nested;
    }
    match metadata.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => CellKind::Time {
            utc: time.is_adjusted_to_u_t_c,
            nanos: time.unit == TimeUnit::NANOS,
        },
        _ => CellKind::Plain,
    }
}

/// A reader for the rows in a Parquet file.
pub struct Parquet {
    file: File,
    /// `None` once columns are selected.
    reader: Option<SerializedFileReader<File>>,
    /// Iterator over the selected columns; `None` until they are selected.
    rows: Option<RowIter<'static>>,
    /// The names of all columns.
    names: Vec<Arc<str>>,
    /// The kinds of all columns.
    kinds: Vec<CellKind>,
    /// The names and kinds of the selected columns.
    selected: Vec<(Arc<str>, CellKind)>,
    /// Number of rows read so far.
    rows_read: u64,
    /// Number of rows according to the metadata.
    count: u64,
}

impl Parquet {
    /// Reads the file's metadata.
    ///
    /// # Errors
    /// Returns an error if the file is not Parquet, or two columns have the same name.
    pub fn new(file: File) -> Result<Self, TableError> {
        let reader = reader(&file)?;
        let metadata = reader.metadata().file_metadata();
        let columns = metadata.schema().get_fields();
        // The library looks up columns by name. If two columns had the same name, it would read the last one twice.
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !seen.insert(column.name())) {
            return Err(TableError::DuplicateColumn(twice.name().to_owned()));
        }
        Ok(Self {
            names: columns.iter().map(|column| column.name().into()).collect(),
            kinds: columns.iter().map(|column| kind_of(column)).collect(),
            count: u64::try_from(metadata.num_rows()).unwrap_or(0),
            file,
            reader: Some(reader),
            rows: None,
            selected: Vec::new(),
            rows_read: 0,
        })
    }

    /// Returns the number of rows according to the metadata.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the indices of the columns that contain lists, maps or structs.
    pub fn nested(&self) -> Vec<usize> {
        (0..self.kinds.len())
            .filter(|column| self.kinds[*column] == CellKind::Nested)
            .collect()
    }
}

impl Rows for Parquet {
    fn names(&self) -> Option<&[Arc<str>]> {
        Some(&self.names)
    }

    fn select(&mut self, columns: &[usize]) -> Result<(), TableError> {
        let reader = self.reader.take().expect("columns are selected once");
        let metadata = reader.metadata();
        let descriptor = metadata.file_metadata().schema_descr_ptr();
        let schema = descriptor.root_schema();
        // The library returns columns in file order.
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        let leaves = leaves_of(schema, &columns);
        let groups = metadata.row_groups().iter();
        let mut chunks =
            groups.flat_map(|group| leaves.iter().filter_map(|leaf| group.columns().get(*leaf)));
        // The library would report an unsupported codec only at the first row, and would call it damage.
        if let Some(codec) = chunks.find_map(|chunk| unsupported_codec(chunk.compression())) {
            return Err(TableError::UnsupportedCodec(codec));
        }
        self.selected = columns
            .iter()
            .map(|column| (self.names[*column].clone(), self.kinds[*column]))
            .collect();
        let rows = catch_panic(|| -> Result<_, ParquetFault> {
            page_sizes::check(&self.file, reader.metadata(), &leaves)?;
            let fields = columns
                .iter()
                .map(|column| schema.get_fields()[*column].clone());
            let projection = Type::group_type_builder(schema.name())
                .with_fields(fields.collect())
                .build()?;
            Ok(RowIter::from_file_into(Box::new(reader)).project(Some(projection))?)
        });
        self.rows = Some(rows.unwrap_or_else(|panic| Err(panic.into()))?);
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.rows.is_none() {
            let all: Vec<usize> = (0..self.names.len()).collect();
            self.select(&all)?;
        }
        let Self { rows, selected, .. } = self;
        // The library panics on some values.
        let next = catch_panic(|| {
            let row = rows.as_mut()?.next()?;
            Some(row.map(|row| {
                let values = row.into_columns().into_iter().zip(&*selected);
                values
                    .map(|((_, value), (name, kind))| (name.clone(), cell(value, *kind)))
                    .collect()
            }))
        });
        let Some(cells) = next.unwrap_or_else(|panic| Some(Err(panic))) else {
            return Ok(None);
        };
        let cells = cells.map_err(|error| row_error(error, self.rows_read))?;
        self.rows_read += 1;
        Ok(Some(Row {
            line: self.rows_read,
            cells,
            problem: None,
        }))
    }
}

/// Returns the error for the row after the first `rows` rows. The library's message may quote content from the file, so
/// it is replaced.
fn row_error(error: ParquetError, rows: u64) -> TableError {
    let problem = match &error {
        ParquetError::General(message) if message.contains("BYTE_ARRAY as String") => {
            "a string is not UTF-8, or the file is damaged,"
        }
        _ => "it is damaged",
    };
    if let TableError::Io(error) = TableError::from_parquet(error) {
        return error.into();
    }
    let message = format!("{problem} after row {rows}");
    ParquetFault::from(ParquetError::General(message)).into()
}

/// Converts a value to a cell. Dates, times and decimals become text.
fn cell(value: Field, kind: CellKind) -> Cell {
    match value {
        Field::Null => Cell::Null,
        Field::Str(text) => Cell::Text(text),
        Field::Bytes(bytes) if std::str::from_utf8(bytes.data()).is_err() => {
            Cell::Bytes(bytes.data().to_vec())
        }
        Field::Float(number) if number.is_finite() => Cell::Json(short_float(number)),
        Field::Float16(number) if number.is_finite() => Cell::Json(short_float(number.to_f32())),
        Field::Long(nanos) if matches!(kind, CellKind::Time { nanos: true, .. }) => {
            time_cell(Some(DateTime::from_timestamp_nanos(nanos)), kind)
        }
        Field::TimestampMillis(millis) => time_cell(DateTime::from_timestamp_millis(millis), kind),
        Field::TimestampMicros(micros) => time_cell(DateTime::from_timestamp_micros(micros), kind),
        other => match json(&other) {
            Value::Null => Cell::Null,
            Value::String(text) => Cell::Text(text),
            value => Cell::Json(value.to_string()),
        },
    }
}

/// Formats a float with as few digits as possible.
fn short_float(number: f32) -> String {
    topicmill_core::to_json(&number)
}

/// Formats a timestamp as ISO 8601, with `Z` unless the column is declared as local time.
fn time_cell(at: Option<DateTime<chrono::Utc>>, kind: CellKind) -> Cell {
    let zone = match kind {
        CellKind::Time { utc: false, .. } => "",
        _ => "Z",
    };
    at.map_or(Cell::Null, |at| {
        Cell::Text(format!("{}{zone}", at.format("%Y-%m-%dT%H:%M:%S%.f")))
    })
}

/// Converts a value to JSON, including lists, maps and structs.
fn json(value: &Field) -> Value {
    match value {
        Field::Null => Value::Null,
        Field::Bool(flag) => (*flag).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float16(number) => number.to_f32().into(),
        Field::Float(number) => (*number).into(),
        Field::Double(number) => (*number).into(),
        // The library formats a whole number as `5.`.
        Field::Decimal(_) => value.to_string().trim_end_matches('.').into(),
        Field::Str(text) => text.clone().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => topicmill_core::hex(bytes.data()).into(),
        },
        Field::Date(days) => date(*days),
        Field::TimeMillis(millis) => time_of_day(i64::from(*millis) * 1_000),
        Field::TimeMicros(micros) => time_of_day(*micros),
        Field::TimestampMillis(_) | Field::TimestampMicros(_) => {
            cell(value.clone(), CellKind::Plain).text().into()
        }
        Field::Group(row) => row
            .get_column_iter()
            .map(|(name, value)| (name.clone(), json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::MapInternal(map) => map
            .entries()
            .iter()
            .map(|(key, value)| (key_of(key), json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

fn key_of(key: &Field) -> String {
    match json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn date(days: i32) -> Value {
    DateTime::from_timestamp(i64::from(days) * 86_400, 0)
        .map(|day| day.format("%Y-%m-%d").to_string())
        .into()
}

fn time_of_day(micros: i64) -> Value {
    let time = || {
        let secs = u32::try_from(micros.div_euclid(1_000_000)).ok()?;
        let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1_000).ok()?;
        NaiveTime::from_num_seconds_from_midnight_opt(secs, nanos)
    };
    time()
        .map(|time| time.format("%H:%M:%S%.f").to_string())
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_field_selects_all_its_leaf_columns() {
        let schema = "message m { required int32 a; optional group b { required int32 x; \
            optional group c { required int32 y; required int32 z; } } required int32 d; }";
        let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
        assert_eq!(leaves_of(&schema, &[1]), [1, 2, 3]);
        assert_eq!(leaves_of(&schema, &[0, 2]), [0, 4]);
    }
}
