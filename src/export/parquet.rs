//! Rows as Parquet, by the format's own column writers.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::columns::{Column, Kind};
use super::row::Cell;

/// Rows of a row group: what readers such as `DuckDB` take at a time.
const ROWS_A_GROUP: usize = 100_000;
/// Bytes of text after which a row group ends early; they are in memory until then.
const BYTES_A_GROUP: usize = 48 << 20;

/// The values of a column, and which rows have one.
enum Values {
    Text(Vec<ByteArray>),
    Integer(Vec<i64>),
    Number(Vec<f64>),
    Boolean(Vec<bool>),
}

struct Buffer {
    values: Values,
    /// 1 for a row that has a value, else 0.
    present: Vec<i16>,
}

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    file: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Buffer>,
    rows: usize,
    bytes: usize,
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        // A full disk must be told as one.
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (Physical::INT64, None),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
        Kind::Time => (
            Physical::INT64,
            Some(LogicalType::timestamp(true, TimeUnit::MILLIS)),
        ),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()?;
    Ok(Arc::new(field))
}

impl ParquetFile {
    pub fn new(file: BufWriter<File>, columns: &[Column]) -> io::Result<Self> {
        let schema = || {
            let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder("posts")
                .with_fields(fields)
                .build()?;
            // The first level is quick, and a fifth larger than the third at most.
            let level = ZstdLevel::try_new(1)?;
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(level))
                .set_created_by(concat!("topicmill ", env!("CARGO_PKG_VERSION")).to_owned())
                .build();
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
        };
        let buffer = |column: &Column| Buffer {
            values: match column.kind {
                Kind::Text => Values::Text(Vec::new()),
                Kind::Integer | Kind::Time => Values::Integer(Vec::new()),
                Kind::Number => Values::Number(Vec::new()),
                Kind::Boolean => Values::Boolean(Vec::new()),
            },
            present: Vec::new(),
        };
        Ok(Self {
            file: schema().map_err(failed)?,
            columns: columns.iter().map(buffer).collect(),
            rows: 0,
            bytes: 0,
        })
    }

    pub fn add(&mut self, row: Vec<Cell>) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            column.present.push(i16::from(cell != Cell::Null));
            match (&mut column.values, cell) {
                (_, Cell::Null) => {}
                (Values::Text(values), Cell::Text(text)) => {
                    self.bytes += text.len();
                    values.push(ByteArray::from(text.into_bytes()));
                }
                (Values::Integer(values), Cell::Integer(number)) => values.push(number),
                (Values::Integer(values), Cell::Time(time)) => values.push(time.timestamp_millis()),
                (Values::Number(values), Cell::Number(number)) => values.push(number),
                (Values::Boolean(values), Cell::Boolean(is)) => values.push(is),
                _ => unreachable!("a cell has the type of its column"),
            }
        }
        self.rows += 1;
        if self.rows >= ROWS_A_GROUP || self.bytes >= BYTES_A_GROUP {
            self.group().map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what is gathered.
    fn group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let present = &column.present;
            match &mut column.values {
                Values::Text(values) => put::<ByteArrayType>(&mut group, values, present),
                Values::Integer(values) => put::<Int64Type>(&mut group, values, present),
                Values::Number(values) => put::<DoubleType>(&mut group, values, present),
                Values::Boolean(values) => put::<BoolType>(&mut group, values, present),
            }?;
            column.present.clear();
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    pub fn end(mut self) -> io::Result<BufWriter<File>> {
        if self.rows > 0 {
            self.group().map_err(failed)?;
        }
        self.file.into_inner().map_err(failed)
    }
}

/// Writes a column of a row group, and empties its values.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &mut Vec<T::T>,
    present: &[i16],
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .expect("as many columns as in the schema");
    column
        .typed::<T>()
        .write_batch(values, Some(present), None)?;
    values.clear();
    column.close()
}
