//! Columns of values into Parquet, a row group at a time.

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
use topicmill_core::{ColumnCells, ColumnKind, ColumnTexts, ColumnValues};

/// A row group that is being written.
pub(super) type RowGroup<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

/// A Parquet file that is being written. A disk that is full is told by the system's error.
pub struct ParquetWriter {
    pub(super) file: SerializedFileWriter<BufWriter<File>>,
}

impl ParquetWriter {
    /// Begins a file of these columns, whose rows may lack a value. `root` names its schema, `unique` columns whose values
    /// hardly ever come twice.
    ///
    /// # Errors
    /// Where nothing can be written.
    pub fn new<'c>(
        to: BufWriter<File>,
        root: &str,
        columns: impl Iterator<Item = (&'c str, ColumnKind)>,
        unique: &[&str],
    ) -> io::Result<Self> {
        let fields = columns.map(|(name, kind)| field(name, kind));
        let fields = fields.collect::<Result<_, _>>();
        fields
            .and_then(|fields| Self::begin(to, root, fields, None, unique))
            .map_err(disk_error)
    }

    /// Begins a file in which each row group is compressed with zstd.
    pub(super) fn begin(
        to: BufWriter<File>,
        root: &str,
        fields: Vec<TypePtr>,
        about: Option<Vec<KeyValue>>,
        unique: &[&str],
    ) -> Result<Self, ParquetError> {
        let mut properties = WriterProperties::builder()
            // The first level is quick, and a fifth larger than the third at most.
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_created_by(concat!("topicmill ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(about);
        for field in &fields {
            // No two scores are the same: a dictionary of them is built for nothing.
            let is_number = field.is_primitive() && field.get_physical_type() == Physical::DOUBLE;
            if is_number || unique.contains(&field.name()) {
                let path = ColumnPath::from(field.name());
                properties = properties.set_column_dictionary_enabled(path, false);
            }
        }
        let schema = Type::group_type_builder(root).with_fields(fields).build()?;
        let properties = Arc::new(properties.build());
        let file = SerializedFileWriter::new(to, Arc::new(schema), properties)?;
        Ok(Self { file })
    }

    /// Writes a row group: of each column its rows in slices.
    ///
    /// # Errors
    /// Where the file cannot be written, or a column is of another kind.
    pub fn write_group<C: IntoIterator<Item = ColumnCells>>(
        &mut self,
        columns: impl Iterator<Item = C>,
    ) -> io::Result<()> {
        let written = || {
            let mut group = self.file.next_row_group()?;
            for slices in columns {
                write_column(&mut group, slices)?;
            }
            group.close().map(drop)
        };
        written().map_err(disk_error)
    }

    /// Writes the end of the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(self) -> io::Result<BufWriter<File>> {
        self.file.into_inner().map_err(disk_error)
    }
}

/// How a file describes a column.
pub(super) fn field(name: &str, kind: ColumnKind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
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

/// Writes the next column of a row group, slice by slice.
pub(super) fn write_column(
    group: &mut RowGroup<'_>,
    slices: impl IntoIterator<Item = ColumnCells>,
) -> Result<(), ParquetError> {
    fn put<T: DataType>(
        column: &mut SerializedColumnWriter<'_>,
        values: &[T::T],
        present: &[i16],
    ) -> Result<usize, ParquetError> {
        column.typed::<T>().write_batch(values, Some(present), None)
    }
    let none = || ParquetError::General("a column too many".to_owned());
    let mut column = group.next_column()?.ok_or_else(none)?;
    let to = &mut column;
    for ColumnCells { values, present } in slices {
        match values {
            ColumnValues::Boolean(values) => put::<BoolType>(to, &values, &present),
            ColumnValues::Integer(values) | ColumnValues::Time(values) => {
                put::<Int64Type>(to, &values, &present)
            }
            ColumnValues::Number(values) => put::<DoubleType>(to, &values, &present),
            ColumnValues::Text(texts) => put::<ByteArrayType>(to, &arrays(texts), &present),
        }?;
    }
    column.close()
}

/// Texts as the library takes them; they stay where they are.
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

/// What the system said, where it said something.
pub(super) fn disk_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}
