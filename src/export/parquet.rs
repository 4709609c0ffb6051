//! Rows as Parquet, in row groups that fit into memory.

use std::fs::File;
use std::io::{self, BufWriter};

use super::columns::{DatasetColumn, UNIQUE};
use topicmill_core::ColumnCells;
use topicmill_store::ColumnBatch;
use topicmill_tables::parquet::ParquetWriter;

/// Rows of a row group: readers such as `DuckDB` share a file out to their threads by row groups, and advise 100,000 and
/// more; half of that is in memory twice, being read and being written.
const ROWS_PER_GROUP: usize = 60_000;
/// Bytes of text after which a row group ends early; they are in memory until then.
const BYTES_PER_GROUP: usize = 32 << 20;

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    file: ParquetWriter,
    files: usize,
    /// What the next row group will be: the slices of each column.
    columns: Vec<Vec<ColumnCells>>,
    rows: usize,
    bytes: usize,
}

impl ParquetFile {
    /// `files` are written at the same time, and share the memory that one has.
    pub fn new(to: BufWriter<File>, columns: &[DatasetColumn], files: usize) -> io::Result<Self> {
        let kinds = columns.iter().map(|column| (&*column.name, column.kind));
        Ok(Self {
            file: ParquetWriter::new(to, "posts", kinds, &UNIQUE)?,
            files,
            columns: vec![Vec::new(); columns.len()],
            rows: 0,
            bytes: 0,
        })
    }

    pub fn add(&mut self, batch: ColumnBatch) -> io::Result<()> {
        self.rows += batch.rows;
        self.bytes += batch.bytes;
        for (slices, cells) in self.columns.iter_mut().zip(batch.columns) {
            slices.push(cells);
        }
        if self.rows * self.files >= ROWS_PER_GROUP || self.bytes * self.files >= BYTES_PER_GROUP {
            self.group()?;
        }
        Ok(())
    }

    /// Writes what is gathered; of each column what it held is free again when it is written.
    fn group(&mut self) -> io::Result<()> {
        (self.rows, self.bytes) = (0, 0);
        let columns = self.columns.iter_mut().map(std::mem::take);
        self.file.write_group(columns)
    }

    pub fn end(mut self) -> io::Result<BufWriter<File>> {
        if self.rows > 0 {
            self.group()?;
        }
        self.file.finish()
    }
}
