//! Copies columns between Parquet files without decoding them, and appends new columns. All types are preserved,
//! including lists and structs.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::FileReader;
use parquet::schema::types::{ColumnDescPtr, Type, TypePtr};
use topicmill_core::{ColumnCells, ColumnKind};

use super::write::{ParquetWriter, disk_error, field, write_column};
use super::{catch_panic, reader};
use crate::TableError;

/// A Parquet file to copy columns from.
pub struct ParquetSource {
    file: File,
    metadata: ParquetMetaData,
}

impl ParquetSource {
    /// Reads the file's metadata.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not Parquet.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let file = File::open(path)?;
        let metadata = reader(&file)?.metadata().clone();
        Ok(Self { file, metadata })
    }

    fn fields(&self) -> &[TypePtr] {
        self.metadata.file_metadata().schema().get_fields()
    }

    /// Returns the column names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields().iter().map(|field| field.name())
    }

    /// Returns true if both files have the same columns.
    pub fn has_same_schema(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }

    /// Returns the number of rows in each row group, from the metadata.
    pub fn group_rows(&self) -> impl Iterator<Item = i64> {
        let groups = self.metadata.row_groups().iter();
        groups.map(RowGroupMetaData::num_rows)
    }

    /// Returns the key-value metadata that remains valid in a copy. Drops Arrow's schema, which lacks the added
    /// columns, and pandas' metadata if a column is renamed.
    fn copied_metadata(&self, is_renamed: bool) -> Option<Vec<KeyValue>> {
        let all = self.metadata.file_metadata().key_value_metadata()?;
        let is_wrong = |key: &str| key == "ARROW:schema" || (is_renamed && key == "pandas");
        let kept = all.iter().filter(|entry| !is_wrong(&entry.key));
        Some(kept.cloned().collect())
    }
}

impl ParquetWriter {
    /// Creates a file with the columns from `source`, renamed by `renamed`, followed by the `added` columns.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn with_source<'c>(
        to: BufWriter<File>,
        source: &ParquetSource,
        renamed: impl Fn(&str) -> String,
        added: impl Iterator<Item = (&'c str, ColumnKind)>,
    ) -> io::Result<Self> {
        let begin = || {
            let (mut fields, mut is_renamed) = (Vec::new(), false);
            for field in source.fields() {
                let name = renamed(field.name());
                is_renamed |= name != field.name();
                fields.push(rename_field(field, &name)?);
            }
            for (name, kind) in added {
                fields.push(field(name, kind)?);
            }
            let root = source.metadata.file_metadata().schema().name();
            Self::begin(to, root, fields, source.copied_metadata(is_renamed), &[])
        };
        begin().map_err(disk_error)
    }

    /// Copies a row group from `source` and writes the values of the added columns.
    ///
    /// # Errors
    /// Returns an error if the group cannot be copied, or the file cannot be written.
    pub fn copy_group(
        &mut self,
        source: &ParquetSource,
        group: usize,
        added: impl Iterator<Item = ColumnCells>,
    ) -> io::Result<()> {
        let copy = || {
            let group = source.metadata.row_group(group);
            let columns: Vec<ColumnDescPtr> = self.file.schema_descr().columns().to_vec();
            let mut out = self.file.next_row_group()?;
            for (chunk, column) in group.columns().iter().zip(columns) {
                let closed = copied_chunk(chunk, column, group.num_rows())?;
                catch_panic(|| out.append_column(&source.file, closed)).unwrap_or_else(Err)?;
            }
            for cells in added {
                write_column(&mut out, [cells])?;
            }
            out.close().map(drop)
        };
        copy().map_err(disk_error)
    }
}

/// Returns the field, renamed to `name`.
fn rename_field(field: &TypePtr, name: &str) -> Result<TypePtr, ParquetError> {
    if field.name() == name {
        return Ok(field.clone());
    }
    let metadata = field.get_basic_info();
    let id = metadata.has_id().then(|| metadata.id());
    let logical = metadata.logical_type_ref().cloned();
    let renamed = if let Type::PrimitiveType {
        physical_type,
        type_length,
        scale,
        precision,
        ..
    } = &**field
    {
        Type::primitive_type_builder(name, *physical_type)
            .with_repetition(metadata.repetition())
            .with_converted_type(metadata.converted_type())
            .with_logical_type(logical)
            .with_length(*type_length)
            .with_precision(*precision)
            .with_scale(*scale)
            .with_id(id)
            .build()?
    } else {
        Type::group_type_builder(name)
            .with_repetition(metadata.repetition())
            .with_converted_type(metadata.converted_type())
            .with_logical_type(logical)
            .with_fields(field.get_fields().to_vec())
            .with_id(id)
            .build()?
    };
    Ok(Arc::new(renamed))
}

/// Describes a copied column chunk as the library describes a column it has just written.
fn copied_chunk(
    chunk: &ColumnChunkMetaData,
    column: ColumnDescPtr,
    rows: i64,
) -> Result<ColumnCloseResult, ParquetError> {
    let mut metadata = ColumnChunkMetaData::builder(column)
        .set_compression_codec(chunk.compression_codec())
        .set_encodings_mask(*chunk.encodings_mask())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_num_values(chunk.num_values())
        .set_data_page_offset(chunk.data_page_offset())
        .set_dictionary_page_offset(chunk.dictionary_page_offset());
    if let Some(statistics) = chunk.statistics() {
        metadata = metadata.set_statistics(statistics.clone());
    }
    Ok(ColumnCloseResult {
        bytes_written: u64::try_from(chunk.compressed_size()).unwrap_or(0),
        rows_written: u64::try_from(rows).unwrap_or(0),
        metadata: metadata.build()?,
        bloom_filter: None,
        // These are left out because their offsets refer to the source file, and both are optional.
        column_index: None,
        offset_index: None,
    })
}
