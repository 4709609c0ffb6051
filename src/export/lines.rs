//! Rows as lines: CSV, NDJSON, or the fullnames alone.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use chrono::{DateTime, SecondsFormat};

use super::{Column, Format};
use topicmill_core::spreadsheet_safe;
use topicmill_store::{Batch, Cell, ColumnCells};

/// A file of lines.
pub(super) enum Lines {
    Csv {
        file: Box<csv::Writer<BufWriter<File>>>,
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
                let mut file = csv::Writer::from_writer(file);
                file.write_record(columns.iter().map(|column| &column.name))?;
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
                .map(|column| column.next().unwrap_or(Cell::Null));
            match self {
                Self::Csv { file, safe } => {
                    for cell in row {
                        match cell {
                            Cell::Text(text) if *safe => {
                                file.write_field(spreadsheet_safe(text).as_bytes())
                            }
                            cell => file.write_field(text(cell).as_bytes()),
                        }?;
                    }
                    file.write_record(None::<&[u8]>)?;
                }
                Self::Ndjson { file, before } => {
                    for (before, cell) in before.iter().zip(row) {
                        file.write_all(before.as_bytes())?;
                        json(file, cell)?;
                    }
                    file.write_all(b"}\n")?;
                }
                Self::Ids(file) => {
                    let name = row.next().unwrap_or(Cell::Null);
                    writeln!(file, "{}", text(name))?;
                }
            }
        }
        Ok(())
    }

    pub fn end(self) -> io::Result<BufWriter<File>> {
        match self {
            Self::Csv { file, .. } => file.into_inner().map_err(csv::IntoInnerError::into_error),
            Self::Ndjson { file, .. } | Self::Ids(file) => Ok(file),
        }
    }
}

fn text(cell: Cell<'_>) -> Cow<'_, str> {
    match cell {
        Cell::Null => Cow::Borrowed(""),
        Cell::Text(text) => Cow::Borrowed(text),
        Cell::Integer(number) => Cow::Owned(number.to_string()),
        Cell::Number(number) => Cow::Owned(number.to_string()),
        Cell::Boolean(is) => Cow::Borrowed(if is { "true" } else { "false" }),
        Cell::Time(millis) => Cow::Owned(time(millis)),
    }
}

fn time(millis: i64) -> String {
    let time = DateTime::from_timestamp_millis(millis).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn json(to: &mut impl Write, cell: Cell<'_>) -> io::Result<()> {
    Ok(match cell {
        Cell::Null => serde_json::to_writer(to, &()),
        Cell::Text(text) => serde_json::to_writer(to, text),
        Cell::Integer(number) => serde_json::to_writer(to, &number),
        // What is no number is null.
        Cell::Number(number) => serde_json::to_writer(to, &number),
        Cell::Boolean(is) => serde_json::to_writer(to, &is),
        Cell::Time(millis) => serde_json::to_writer(to, &time(millis)),
    }?)
}
