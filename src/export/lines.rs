//! Rows as lines: CSV, NDJSON, or the fullnames alone.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use chrono::SecondsFormat;
use serde_json::{Map, Number, Value};

use super::columns::Column;
use super::destination::Format;
use super::row::Cell;
use crate::domain::spreadsheet_safe;

/// A file of lines.
pub(super) enum Lines {
    Csv {
        file: Box<csv::Writer<BufWriter<File>>>,
        safe: bool,
    },
    Ndjson {
        file: BufWriter<File>,
        names: Vec<String>,
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
        let names = columns.iter().map(|column| column.name.clone());
        Ok(match format {
            Format::Csv => {
                if bom {
                    file.write_all("\u{feff}".as_bytes())?;
                }
                let mut file = csv::Writer::from_writer(file);
                file.write_record(names)?;
                Self::Csv {
                    file: Box::new(file),
                    safe,
                }
            }
            Format::Ids => Self::Ids(file),
            _ => Self::Ndjson {
                file,
                names: names.collect(),
            },
        })
    }

    pub fn add(&mut self, row: &[Cell]) -> io::Result<()> {
        match self {
            Self::Csv { file, safe } => {
                for cell in row {
                    let text = text(cell);
                    match cell {
                        Cell::Text(_) if *safe => {
                            file.write_field(spreadsheet_safe(&text).as_bytes())
                        }
                        _ => file.write_field(text),
                    }?;
                }
                Ok(file.write_record(None::<&[u8]>)?)
            }
            Self::Ndjson { file, names } => {
                let values = names.iter().cloned().zip(row.iter().map(value));
                serde_json::to_writer(&mut *file, &values.collect::<Map<_, _>>())?;
                file.write_all(b"\n")
            }
            Self::Ids(file) => writeln!(file, "{}", text(&row[0])),
        }
    }

    pub fn end(self) -> io::Result<BufWriter<File>> {
        match self {
            Self::Csv { file, .. } => file.into_inner().map_err(csv::IntoInnerError::into_error),
            Self::Ndjson { file, .. } | Self::Ids(file) => Ok(file),
        }
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Integer(number) => number.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Boolean(is) => is.to_string(),
        Cell::Time(time) => time.to_rfc3339_opts(SecondsFormat::Secs, true),
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::from(*number),
        Cell::Number(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Cell::Boolean(is) => Value::from(*is),
        Cell::Text(_) | Cell::Time(_) => Value::from(text(cell)),
    }
}
