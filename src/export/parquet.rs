//! Rows as Parquet, in row groups that fit into memory.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::schema::types::Type;

use super::columns::{Column, UNIQUE};
use topicmill_store::{Batch, ColumnCells, ColumnType, Values};
use topicmill_tables::columnar::{
    ColumnKind, ColumnSlice, ParquetWriter, begin, disk_error, schema_of, write_slices,
};

/// Rows of a row group: readers such as `DuckDB` share a file out to their threads by row groups, and advise 100,000 and
/// more; half of that is in memory twice, being read and being written.
const ROWS_A_GROUP: usize = 60_000;
/// Bytes of text after which a row group ends early; they are in memory until then.
const BYTES_A_GROUP: usize = 32 << 20;

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    file: ParquetWriter,
    width: usize,
    files: usize,
    /// What the next row group will be.
    batches: Vec<Batch>,
    rows: usize,
    bytes: usize,
}

fn in_parquet(kind: ColumnType) -> ColumnKind {
    match kind {
        ColumnType::Text | ColumnType::Hex => ColumnKind::Text,
        ColumnType::Integer => ColumnKind::Integer,
        ColumnType::Number | ColumnType::Numbers(_) => ColumnKind::Number,
        ColumnType::Boolean => ColumnKind::Boolean,
        ColumnType::Time => ColumnKind::Time,
    }
}

impl ParquetFile {
    /// `files` are written at the same time, and share the memory that one has.
    pub fn new(to: BufWriter<File>, columns: &[Column], files: usize) -> io::Result<Self> {
        let begun = || {
            let fields = columns
                .iter()
                .map(|column| schema_of(&column.name, in_parquet(column.kind)))
                .collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder("posts").with_fields(fields);
            begin(to, Arc::new(schema.build()?), None, &UNIQUE)
        };
        Ok(Self {
            file: begun().map_err(disk_error)?,
            width: columns.len(),
            files,
            batches: Vec::new(),
            rows: 0,
            bytes: 0,
        })
    }

    pub fn add(&mut self, batch: Batch) -> io::Result<()> {
        self.rows += batch.rows;
        self.bytes += batch.bytes;
        self.batches.push(batch);
        if self.rows * self.files >= ROWS_A_GROUP || self.bytes * self.files >= BYTES_A_GROUP {
            self.group().map_err(disk_error)?;
        }
        Ok(())
    }

    /// Writes what is gathered; of each column what it held is free again when it is written.
    fn group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for i in 0..self.width {
            let take = |batch: &mut Batch| {
                let none = ColumnCells::texts(std::iter::empty());
                std::mem::replace(&mut batch.columns[i], none)
            };
            let cells: Vec<ColumnCells> = self.batches.iter_mut().map(take).collect();
            write_slices(&mut group, cells.into_iter().map(slice))?;
        }
        group.close()?;
        self.batches.clear();
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    pub fn end(mut self) -> io::Result<BufWriter<File>> {
        if self.rows > 0 {
            self.group().map_err(disk_error)?;
        }
        self.file.into_inner().map_err(disk_error)
    }
}

/// The values as Parquet takes them; texts stay where they are.
fn slice(cells: ColumnCells) -> (ColumnSlice, Vec<i16>) {
    let slice = match cells.values {
        Values::Boolean(values) => ColumnSlice::Boolean(values),
        Values::Integer(values) | Values::Time(values) => ColumnSlice::Integer(values),
        Values::Number(values) => ColumnSlice::Number(values),
        Values::Text(texts) => {
            let all = ByteArray::from(texts.text.into_bytes());
            let mut begin = 0;
            let each = texts.ends.into_iter().map(|end| {
                let text = all.slice(begin, end - begin);
                begin = end;
                text
            });
            ColumnSlice::Text(each.collect())
        }
    };
    (slice, cells.present)
}
