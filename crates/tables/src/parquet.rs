//! Reads rows from Parquet and writes columns to Parquet.
//!
//! The Parquet library trusts a file's metadata. Page sizes are therefore checked before reading, and panics on damaged
//! files are converted to errors.

mod cells;
mod copy;
mod write;

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use self::cells::{CellKind, cell, kind_of};
pub use self::copy::ParquetSource;
pub use self::write::ParquetWriter;
use super::{ParquetFault, Row, Rows, TableError, page_sizes};
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
            let field = |column: &usize| schema.get_fields()[*column].clone();
            let projection = Type::group_type_builder(schema.name())
                .with_fields(columns.iter().map(field).collect())
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
