//! Columns of a Parquet file as they are written: values in the type of their column, and which rows have one.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
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

/// How a file describes a column, whose rows may lack a value.
///
/// # Errors
/// Where the format knows no such column.
pub fn schema_of(name: &str, kind: ColumnKind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        ColumnKind::Boolean => (Physical::BOOLEAN, None),
        ColumnKind::Integer => (Physical::INT64, None),
        ColumnKind::Number => (Physical::DOUBLE, None),
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Time => {
            let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
            (Physical::INT64, Some(time))
        }
    };
    let column = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    Ok(Arc::new(column.build()?))
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
pub fn write_slices<S: Borrow<ColumnSlice>, P: AsRef<[i16]>>(
    group: &mut RowGroup<'_>,
    slices: impl Iterator<Item = (S, P)>,
) -> Result<(), ParquetError> {
    let none = || ParquetError::General("a column too many".to_owned());
    let mut column = group.next_column()?.ok_or_else(none)?;
    for (slice, present) in slices {
        let present = Some(present.as_ref());
        match slice.borrow() {
            ColumnSlice::Boolean(values) => column
                .typed::<BoolType>()
                .write_batch(values, present, None),
            ColumnSlice::Integer(values) => column
                .typed::<Int64Type>()
                .write_batch(values, present, None),
            ColumnSlice::Number(values) => column
                .typed::<DoubleType>()
                .write_batch(values, present, None),
            ColumnSlice::Text(values) => column
                .typed::<ByteArrayType>()
                .write_batch(values, present, None),
        }?;
    }
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
