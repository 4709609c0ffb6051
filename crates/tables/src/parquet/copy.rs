//! Columns of a Parquet file into another one as they are stored, packed and encoded, with new columns behind them: so
//! every type stays what it is, lists and structures too.

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

/// A Parquet file whose columns are copied.
pub struct ParquetSource {
    file: File,
    about: ParquetMetaData,
}

impl ParquetSource {
    /// Reads what the file says of itself.
    ///
    /// # Errors
    /// When it cannot be read, or is not Parquet.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let file = File::open(path)?;
        let about = reader(&file)?.metadata().clone();
        Ok(Self { file, about })
    }

    fn fields(&self) -> &[TypePtr] {
        self.about.file_metadata().schema().get_fields()
    }

    /// The names of its columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields().iter().map(|field| field.name())
    }

    /// Whether another file has the same columns.
    pub fn has_same_schema(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }

    /// How many rows each of its row groups says it has.
    pub fn group_rows(&self) -> impl Iterator<Item = i64> {
        self.about
            .row_groups()
            .iter()
            .map(RowGroupMetaData::num_rows)
    }

    /// What it says of itself, without what would be wrong of a copy: arrow's list of all columns, which lacks the new
    /// ones and which readers would believe, and what pandas finds again by names, where one has another name now.
    fn copied_metadata(&self, is_renamed: bool) -> Option<Vec<KeyValue>> {
        let all = self.about.file_metadata().key_value_metadata()?;
        let is_wrong = |key: &str| key == "ARROW:schema" || (is_renamed && key == "pandas");
        let kept = all.iter().filter(|entry| !is_wrong(&entry.key));
        Some(kept.cloned().collect())
    }
}

impl ParquetWriter {
    /// Begins a file of the columns of `source`, each under the name that `renamed` returns, and of `added` behind them.
    ///
    /// # Errors
    /// Where nothing can be written.
    pub fn with_source<'c>(
        to: BufWriter<File>,
        source: &ParquetSource,
        renamed: impl Fn(&str) -> String,
        added: impl Iterator<Item = (&'c str, ColumnKind)>,
    ) -> io::Result<Self> {
        let begun = || {
            let (mut fields, mut is_renamed) = (Vec::new(), false);
            for field in source.fields() {
                let name = renamed(field.name());
                is_renamed |= name != field.name();
                fields.push(rename_field(field, &name)?);
            }
            for (name, kind) in added {
                fields.push(field(name, kind)?);
            }
            let root = source.about.file_metadata().schema().name();
            Self::begin(to, root, fields, source.copied_metadata(is_renamed), &[])
        };
        begun().map_err(disk_error)
    }

    /// Copies a row group of `source`, and writes the rows of the added columns.
    ///
    /// # Errors
    /// Where the group cannot be copied, or the file not written.
    pub fn copy_group(
        &mut self,
        source: &ParquetSource,
        group: usize,
        added: impl Iterator<Item = ColumnCells>,
    ) -> io::Result<()> {
        let copied = || {
            let group = source.about.row_group(group);
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
        copied().map_err(disk_error)
    }
}

/// A field under a name.
fn rename_field(field: &TypePtr, name: &str) -> Result<TypePtr, ParquetError> {
    if field.name() == name {
        return Ok(field.clone());
    }
    let about = field.get_basic_info();
    let id = about.has_id().then(|| about.id());
    let logical = about.logical_type_ref().cloned();
    let renamed = if let Type::PrimitiveType {
        physical_type,
        type_length,
        scale,
        precision,
        ..
    } = &**field
    {
        Type::primitive_type_builder(name, *physical_type)
            .with_repetition(about.repetition())
            .with_converted_type(about.converted_type())
            .with_logical_type(logical)
            .with_length(*type_length)
            .with_precision(*precision)
            .with_scale(*scale)
            .with_id(id)
            .build()?
    } else {
        Type::group_type_builder(name)
            .with_repetition(about.repetition())
            .with_converted_type(about.converted_type())
            .with_logical_type(logical)
            .with_fields(field.get_fields().to_vec())
            .with_id(id)
            .build()?
    };
    Ok(Arc::new(renamed))
}

/// A column of an input as if it had just been written, under the name that it gets.
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
        // Their places are those in the old file. Both are optional.
        column_index: None,
        offset_index: None,
    })
}
