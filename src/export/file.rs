//! Writes rows to one file: CSV, NDJSON, fullnames only, or Parquet.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use super::parquet::ParquetFile;
use super::{DatasetColumn, DatasetFormat, Destination};
use topicmill_core::{ColumnCell, ColumnCells};
use topicmill_store::ColumnBatch;
use topicmill_tables::csv::{CsvWriter, cell_text};

/// Size of the write buffer in bytes. Any size far above a row's would do.
const BUFFER_BYTES: usize = 1 << 20;

/// An open data file.
pub(super) struct DatasetFile(Layout);

/// The order in which values are written.
enum Layout {
    Rows(RowFile),
    Parquet(Box<ParquetFile>),
}

impl DatasetFile {
    /// Creates a writer in the format of `to`, and writes what precedes the first row. The files of a folder, which has
    /// no format, are Parquet.
    pub fn new(file: File, columns: &[DatasetColumn], to: &Destination) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let rows = match to.format {
            None | Some(DatasetFormat::Parquet) => {
                let file = ParquetFile::new(file, columns)?;
                return Ok(Self(Layout::Parquet(Box::new(file))));
            }
            Some(DatasetFormat::Csv) => {
                if to.bom {
                    file.write_all("\u{feff}".as_bytes())?;
                }
                let mut file = Box::new(CsvWriter::new(file, b','));
                file.write_row(columns.iter().map(|column| &column.name))?;
                let safe = to.safe_csv;
                RowFile::Csv { file, safe }
            }
            Some(DatasetFormat::Ids) => RowFile::Ids(file),
            Some(DatasetFormat::Ndjson) => {
                let prefixes = columns.iter().enumerate().map(|(index, column)| {
                    let begin = if index == 0 { '{' } else { ',' };
                    format!("{begin}{}:", serde_json::Value::from(column.name.as_str()))
                });
                let before = prefixes.collect();
                RowFile::Ndjson { file, before }
            }
        };
        Ok(Self(Layout::Rows(rows)))
    }

    /// Adds the rows of a batch. A Parquet file buffers them until a row group is full.
    pub fn add(&mut self, batch: ColumnBatch) -> io::Result<()> {
        match &mut self.0 {
            Layout::Parquet(file) => file.add(batch),
            Layout::Rows(file) => {
                let mut columns: Vec<_> = batch.columns.iter().map(ColumnCells::cells).collect();
                for _ in 0..batch.rows {
                    let row = columns.iter_mut().map(Iterator::next);
                    let row = row.map(|cell| cell.expect("a column has a cell for each row"));
                    file.write_row(row)?;
                }
                Ok(())
            }
        }
    }

    /// Flushes and syncs the file.
    pub fn end(self) -> io::Result<()> {
        let file = match self.0 {
            Layout::Rows(file) => file.finish()?,
            Layout::Parquet(file) => file.end()?,
        };
        file.into_inner()?.sync_all()
    }
}

/// A file that is written row by row.
enum RowFile {
    Csv {
        file: Box<CsvWriter<BufWriter<File>>>,
        /// See [`Destination::safe_csv`].
        safe: bool,
    },
    Ndjson {
        file: BufWriter<File>,
        /// The text before each value: `{"name":` for the first, `,"name":` for the others.
        before: Vec<String>,
    },
    Ids(BufWriter<File>),
}

impl RowFile {
    fn write_row<'c>(&mut self, mut row: impl Iterator<Item = ColumnCell<'c>>) -> io::Result<()> {
        match self {
            Self::Csv { file, safe } => file.write_row(row.map(|cell| cell_text(cell, *safe))),
            Self::Ndjson { file, before } => {
                for (before, cell) in before.iter().zip(row) {
                    file.write_all(before.as_bytes())?;
                    serde_json::to_writer(&mut *file, &cell)?;
                }
                file.write_all(b"}\n")
            }
            Self::Ids(file) => {
                let name = row.next().expect("the fullname is the first column");
                writeln!(file, "{}", name.text())
            }
        }
    }

    fn finish(self) -> io::Result<BufWriter<File>> {
        match self {
            Self::Csv { file, .. } => file.finish(),
            Self::Ndjson { file, .. } | Self::Ids(file) => Ok(file),
        }
    }
}
