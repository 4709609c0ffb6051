//! Writes rows as Parquet, in row groups that use bounded memory.

use std::fs::File;
use std::io::{self, BufWriter};

use super::columns::{DatasetColumn, UNIQUE};
use topicmill_core::ColumnCells;
use topicmill_store::ColumnBatch;
use topicmill_tables::parquet::ParquetWriter;

/// Number of rows in a row group. Readers such as `DuckDB` parallelise over row groups and recommend 100,000 rows or
/// more; this is fewer because the group is in memory twice.
const ROWS_PER_GROUP: usize = 60_000;
/// Number of bytes of text after which a row group is written early.
const BYTES_PER_GROUP: usize = 32 << 20;

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    file: ParquetWriter,
    /// The next row group, as slices for each column.
    columns: Vec<Vec<ColumnCells>>,
    rows: usize,
    bytes: usize,
}

impl ParquetFile {
    pub fn new(to: BufWriter<File>, columns: &[DatasetColumn]) -> io::Result<Self> {
        let kinds = columns.iter().map(|column| (&*column.name, column.kind));
        Ok(Self {
            file: ParquetWriter::new(to, "posts", kinds, &UNIQUE)?,
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
        if self.rows >= ROWS_PER_GROUP || self.bytes >= BYTES_PER_GROUP {
            self.group()?;
        }
        Ok(())
    }

    /// Writes the row group, and frees each column once it is written.
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
