//! Rows as lines: CSV, NDJSON, or the fullnames alone.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use super::{Column, Format};
use topicmill_core::{ColumnCell, ColumnCells};
use topicmill_store::Batch;
use topicmill_tables::csv::{CsvWriter, cell_text};

/// A file of lines.
pub(super) enum Lines {
    Csv {
        file: Box<CsvWriter<BufWriter<File>>>,
        safe: bool,
    },
    Ndjson {
        file: BufWriter<File>,
        /// What stands before each value: `{"name":`, `,"name":`.
        before: Vec<String>,
    },
    Ids(BufWriter<File>),
}

impl Lines {
    pub fn new(
        mut file: BufWriter<File>,
        format: Format,
        columns: &[Column],
        bom: bool,
        safe: bool,
    ) -> io::Result<Self> {
        Ok(match format {
            Format::Csv => {
                if bom {
                    file.write_all("\u{feff}".as_bytes())?;
                }
                let mut file = CsvWriter::new(file, b',');
                file.write_row(columns.iter().map(|column| &column.name))?;
                Self::Csv {
                    file: Box::new(file),
                    safe,
                }
            }
            Format::Ids => Self::Ids(file),
            _ => {
                let before = columns.iter().enumerate().map(|(i, column)| {
                    let begin = if i == 0 { '{' } else { ',' };
                    format!("{begin}{}:", serde_json::Value::from(column.name.as_str()))
                });
                Self::Ndjson {
                    before: before.collect(),
                    file,
                }
            }
        })
    }

    pub fn add(&mut self, batch: &Batch) -> io::Result<()> {
        let columns = batch.columns.iter();
        let mut columns: Vec<_> = columns.map(ColumnCells::cells).collect();
        for _ in 0..batch.rows {
            let mut row = columns
                .iter_mut()
                .map(|column| column.next().unwrap_or(ColumnCell::Null));
            match self {
                Self::Csv { file, safe } => {
                    file.write_row(row.map(|cell| cell_text(cell, *safe)))?;
                }
                Self::Ndjson { file, before } => {
                    for (before, cell) in before.iter().zip(row) {
                        file.write_all(before.as_bytes())?;
                        serde_json::to_writer(&mut *file, &cell)?;
                    }
                    file.write_all(b"}\n")?;
                }
                Self::Ids(file) => {
                    let name = row.next().unwrap_or(ColumnCell::Null);
                    writeln!(file, "{}", name.text())?;
                }
            }
        }
        Ok(())
    }

    pub fn end(self) -> io::Result<BufWriter<File>> {
        match self {
            Self::Csv { file, .. } => file.finish(),
            Self::Ndjson { file, .. } | Self::Ids(file) => Ok(file),
        }
    }
}
