//! Writes columns to Parquet, one row group at a time.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use topicmill_core::{ColumnCells, ColumnKind, ColumnTexts, ColumnValues, ColumnVectors};

/// A row group that is being written.
pub(super) type RowGroup<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

/// A Parquet file writer. A full disk is reported as the operating system's error.
pub struct ParquetWriter {
    pub(super) file: SerializedFileWriter<BufWriter<File>>,
}

impl ParquetWriter {
    /// Creates a file with these nullable columns. `root` is the name of the schema. Columns in `unique` get no
    /// dictionary because their values rarely repeat.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn new<'c>(
        to: BufWriter<File>,
        root: &str,
        columns: impl Iterator<Item = (&'c str, ColumnKind)>,
        unique: &[&str],
    ) -> io::Result<Self> {
        columns
            .map(|(name, kind)| field(name, kind))
            .collect::<Result<_, _>>()
            .and_then(|fields| Self::begin(to, root, fields, None, unique))
            .map_err(disk_error)
    }

    /// Creates a file with zstd compression.
    pub(super) fn begin(
        to: BufWriter<File>,
        root: &str,
        fields: Vec<TypePtr>,
        metadata: Option<Vec<KeyValue>>,
        unique: &[&str],
    ) -> Result<Self, ParquetError> {
        let mut properties = WriterProperties::builder()
            // Level 1 is fast, and files are at most a fifth larger than with level 3.
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_created_by(concat!("topicmill ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(metadata);
        for field in &fields {
            let is_number = field.is_primitive() && field.get_physical_type() == Physical::DOUBLE;
            let path = if field.is_group() {
                let path = [field.name(), LIST, ELEMENT].map(str::to_owned);
                ColumnPath::new(path.to_vec())
            } else if is_number || unique.contains(&field.name()) {
                ColumnPath::from(field.name())
            } else {
                continue;
            };
            // Scores and the numbers of vectors rarely repeat, so a dictionary would be useless.
            properties = properties.set_column_dictionary_enabled(path, false);
        }
        let schema = Type::group_type_builder(root).with_fields(fields).build()?;
        let properties = Arc::new(properties.build());
        let file = SerializedFileWriter::new(to, Arc::new(schema), properties)?;
        Ok(Self { file })
    }

    /// Writes a row group from the slices of each column.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or a column has the wrong kind.
    pub fn write_group<C: IntoIterator<Item = ColumnCells>>(
        &mut self,
        columns: impl Iterator<Item = C>,
    ) -> io::Result<()> {
        let write = || {
            let mut group = self.file.next_row_group()?;
            for slices in columns {
                write_column(&mut group, slices)?;
            }
            group.close().map(drop)
        };
        write().map_err(disk_error)
    }

    /// Writes the footer and returns the inner writer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(self) -> io::Result<BufWriter<File>> {
        self.file.into_inner().map_err(disk_error)
    }
}

/// Returns the schema for a nullable column.
pub(super) fn field(name: &str, kind: ColumnKind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        ColumnKind::Vector => return vector_field(name),
        ColumnKind::Boolean => (Physical::BOOLEAN, None),
        ColumnKind::Integer => (Physical::INT64, None),
        ColumnKind::Number => (Physical::DOUBLE, None),
        ColumnKind::Text | ColumnKind::Hex => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
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

/// Names of a list's levels; see "Lists" in Parquet's specification of logical types.
const LIST: &str = "list";
const ELEMENT: &str = "element";

/// Returns the schema for a nullable column of vectors, each a list of 32-bit floating-point numbers.
fn vector_field(name: &str) -> Result<TypePtr, ParquetError> {
    let element = Type::primitive_type_builder(ELEMENT, Physical::FLOAT)
        .with_repetition(Repetition::REQUIRED)
        .build()?;
    let list = Type::group_type_builder(LIST)
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let column = Type::group_type_builder(name)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(list)])
        .build()?;
    Ok(Arc::new(column))
}

/// Writes the next column of a row group, slice by slice.
pub(super) fn write_column(
    group: &mut RowGroup<'_>,
    slices: impl IntoIterator<Item = ColumnCells>,
) -> Result<(), ParquetError> {
    fn write_batch<T: DataType>(
        column: &mut SerializedColumnWriter<'_>,
        values: &[T::T],
        present: &[i16],
    ) -> Result<usize, ParquetError> {
        column.typed::<T>().write_batch(values, Some(present), None)
    }
    let too_many = || ParquetError::General("too many columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(too_many)?;
    let to = &mut column;
    for ColumnCells { values, present } in slices {
        match values {
            ColumnValues::Boolean(values) => write_batch::<BoolType>(to, &values, &present),
            ColumnValues::Integer(values) | ColumnValues::Time(values) => {
                write_batch::<Int64Type>(to, &values, &present)
            }
            ColumnValues::Number(values) => write_batch::<DoubleType>(to, &values, &present),
            ColumnValues::Text(texts) => write_batch::<ByteArrayType>(to, &arrays(texts), &present),
            ColumnValues::Vector(vectors) => write_vectors(to, &vectors, &present),
        }?;
    }
    column.close()
}

/// Writes vectors. Definition level 0 is a NULL, 1 an empty vector, 2 a number; a repetition level of 1 continues a
/// vector.
fn write_vectors(
    column: &mut SerializedColumnWriter<'_>,
    vectors: &ColumnVectors,
    present: &[i16],
) -> Result<usize, ParquetError> {
    let levels = vectors.numbers.len() + present.len();
    let mut defined = Vec::with_capacity(levels);
    let mut repeated = Vec::with_capacity(levels);
    let (mut ends, mut begin) = (vectors.ends.iter(), 0);
    for is_present in present {
        let end = if *is_present == 0 { None } else { ends.next() };
        let numbers = end.map_or(0, |end| end - begin);
        begin += numbers;
        repeated.push(0);
        if numbers == 0 {
            defined.push(i16::from(end.is_some()));
            continue;
        }
        defined.extend(std::iter::repeat_n(2, numbers));
        repeated.extend(std::iter::repeat_n(1, numbers - 1));
    }
    let column = column.typed::<FloatType>();
    column.write_batch(&vectors.numbers, Some(&defined), Some(&repeated))
}

/// Converts strings for the library without copying them.
fn arrays(texts: ColumnTexts) -> Vec<ByteArray> {
    let all = ByteArray::from(texts.text.into_bytes());
    let mut begin = 0;
    let slice = |end| {
        let text = all.slice(begin, end - begin);
        begin = end;
        text
    };
    texts.ends.into_iter().map(slice).collect()
}

/// Converts an error from the library. I/O errors are unwrapped.
pub(super) fn disk_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}
