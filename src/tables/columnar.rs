//! Columns of a Parquet file as they are written: values in the type of their column, and which rows have one.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

/// A file that is being written.
pub type ParquetWriter = SerializedFileWriter<BufWriter<File>>;
/// A row group of it.
pub type RowGroup<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// True or false.
    Boolean,
    /// 64-bit integers.
    Integer,
    /// Double precision.
    Number,
    /// UTF-8.
    Text,
    /// Milliseconds since 1970, UTC.
    Time,
}

#[derive(Debug)]
enum Values {
    Boolean(Vec<bool>),
    Integer(Vec<i64>),
    Number(Vec<f64>),
    Text(Vec<ByteArray>),
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue {
    /// None.
    Null,
    /// Of a column of these.
    Boolean(bool),
    /// Of integers, or of times.
    Integer(i64),
    /// Of numbers.
    Number(f64),
    /// Of texts.
    Text(String),
}

/// A column of the row group that is being gathered.
#[derive(Debug)]
pub struct ColumnBuffer {
    name: String,
    kind: ColumnKind,
    values: Values,
    /// 1 for a row that has a value, else 0.
    present: Vec<i16>,
}

impl ColumnBuffer {
    /// An empty column.
    pub fn new(name: String, kind: ColumnKind) -> Self {
        let values = match kind {
            ColumnKind::Boolean => Values::Boolean(Vec::new()),
            ColumnKind::Integer | ColumnKind::Time => Values::Integer(Vec::new()),
            ColumnKind::Number => Values::Number(Vec::new()),
            ColumnKind::Text => Values::Text(Vec::new()),
        };
        Self {
            name,
            kind,
            values,
            present: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it holds.
    pub fn kind(&self) -> ColumnKind {
        self.kind
    }

    /// Adds the value of a row; how many bytes of text it has. A value of another type is none.
    pub fn push(&mut self, value: ColumnValue) -> usize {
        let mut bytes = 0;
        let is_present = match (&mut self.values, value) {
            (Values::Boolean(values), ColumnValue::Boolean(value)) => {
                values.push(value);
                true
            }
            (Values::Integer(values), ColumnValue::Integer(value)) => {
                values.push(value);
                true
            }
            (Values::Number(values), ColumnValue::Number(value)) => {
                values.push(value);
                true
            }
            (Values::Text(values), ColumnValue::Text(text)) => {
                bytes = text.len();
                values.push(ByteArray::from(text.into_bytes()));
                true
            }
            _ => false,
        };
        self.present.push(i16::from(is_present));
        bytes
    }

    /// Takes all values out.
    pub fn clear(&mut self) {
        self.present.clear();
        match &mut self.values {
            Values::Boolean(values) => values.clear(),
            Values::Integer(values) => values.clear(),
            Values::Number(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
    }

    /// How the file describes it.
    ///
    /// # Errors
    /// Where the format knows no such column.
    pub fn schema(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.kind {
            ColumnKind::Boolean => (Physical::BOOLEAN, None),
            ColumnKind::Integer => (Physical::INT64, None),
            ColumnKind::Number => (Physical::DOUBLE, None),
            ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnKind::Time => {
                let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
                (Physical::INT64, Some(time))
            }
        };
        let column = Type::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(Arc::new(column.build()?))
    }

    /// Writes it as the next column of a row group.
    ///
    /// # Errors
    /// Where the file cannot be written, or has no further column.
    pub fn write(&self, group: &mut RowGroup<'_>) -> Result<(), ParquetError> {
        match &self.values {
            Values::Boolean(values) => put::<BoolType>(group, values, &self.present),
            Values::Integer(values) => put::<Int64Type>(group, values, &self.present),
            Values::Number(values) => put::<DoubleType>(group, values, &self.present),
            Values::Text(values) => put::<ByteArrayType>(group, values, &self.present),
        }
    }
}

/// Values of a column without those that are NULL.
#[derive(Debug)]
pub enum ColumnSlice {
    /// True or false.
    Boolean(Vec<bool>),
    /// 64-bit integers, or times in milliseconds since 1970, UTC.
    Integer(Vec<i64>),
    /// Double precision.
    Number(Vec<f64>),
    /// UTF-8.
    Text(Vec<ByteArray>),
}

/// Writes the next column of a row group, slice by slice; with each come the rows: 1 where it has a value, else 0.
///
/// # Errors
/// Where the file cannot be written, or its next column is of another type.
pub fn write_slices(
    group: &mut RowGroup<'_>,
    slices: impl Iterator<Item = (ColumnSlice, Vec<i16>)>,
) -> Result<(), ParquetError> {
    let mut column = next_column(group)?;
    for (slice, present) in slices {
        let present = Some(present.as_slice());
        match slice {
            ColumnSlice::Boolean(values) => column
                .typed::<BoolType>()
                .write_batch(&values, present, None),
            ColumnSlice::Integer(values) => column
                .typed::<Int64Type>()
                .write_batch(&values, present, None),
            ColumnSlice::Number(values) => column
                .typed::<DoubleType>()
                .write_batch(&values, present, None),
            ColumnSlice::Text(values) => column
                .typed::<ByteArrayType>()
                .write_batch(&values, present, None),
        }?;
    }
    column.close()
}

fn next_column<'g>(
    group: &'g mut RowGroup<'_>,
) -> Result<SerializedColumnWriter<'g>, ParquetError> {
    let none = || ParquetError::General("a column too many".to_owned());
    group.next_column()?.ok_or_else(none)
}

fn put<T: DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
    present: &[i16],
) -> Result<(), ParquetError> {
    let mut column = next_column(group)?;
    column
        .typed::<T>()
        .write_batch(values, Some(present), None)?;
    column.close()
}

/// Begins a file of these columns, in which each row group is compressed with zstd. `unique` names columns whose values
/// hardly ever come twice.
///
/// # Errors
/// Where nothing can be written.
pub fn begin(
    to: BufWriter<File>,
    schema: TypePtr,
    about: Option<Vec<KeyValue>>,
    unique: &[&str],
) -> Result<ParquetWriter, ParquetError> {
    let mut properties = WriterProperties::builder()
        // The first level is quick, and a fifth larger than the third at most.
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_created_by(concat!("topicmill ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(about);
    for field in schema.get_fields() {
        // No two scores are the same: a dictionary of them is built for nothing.
        let is_number = field.is_primitive() && field.get_physical_type() == Physical::DOUBLE;
        if is_number || unique.contains(&field.name()) {
            let path = ColumnPath::from(field.name());
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    SerializedFileWriter::new(to, schema, Arc::new(properties.build()))
}

/// What the system said, where it said something: a full disk must be told as one.
pub fn disk_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}
