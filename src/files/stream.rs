//! Lines of JSON into text: NDJSON, a JSON array, CSV, TSV, as they come.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use super::journal::is_left_out;
use super::output::Shape;
use super::{FilesError, write_error};
use crate::tables::Format;
use crate::tables::json::Members;

/// The lines of a file but those of rows that are left out.
pub(super) fn kept_lines_of(
    path: &Path,
) -> Result<impl Iterator<Item = io::Result<String>>, FilesError> {
    let is_kept = |line: &io::Result<String>| !line.as_ref().is_ok_and(|line| is_left_out(line));
    Ok(lines_of(path)?.filter(is_kept))
}

/// The lines of a file.
pub(super) fn lines_of(
    path: &Path,
) -> Result<impl Iterator<Item = io::Result<String>>, FilesError> {
    let file = File::open(path).map_err(write_error(path))?;
    Ok(BufReader::with_capacity(1 << 18, file).lines())
}

/// The members of a line that this program wrote.
pub(super) fn members(line: &str) -> io::Result<Members> {
    serde_json::from_str(line).map_err(io::Error::from)
}

/// Rows on their way into a file or a pipe, as text.
pub(super) struct Stream<W: Write> {
    to: Sink<W>,
    rows: u64,
}

enum Sink<W: Write> {
    Lines(W),
    Array(W),
    Table {
        writer: Box<csv::Writer<W>>,
        places: HashMap<String, usize>,
        /// The values of a row, used again for each.
        values: Vec<String>,
    },
}

impl<W: Write> Stream<W> {
    /// `names` is asked where the format has a line of names.
    pub(super) fn new(
        mut to: W,
        shape: &Shape,
        names: impl FnOnce() -> Result<Vec<String>, FilesError>,
    ) -> Result<Self, FilesError> {
        let failed = write_error(Path::new("OUTPUT"));
        let to = match shape.format {
            Format::Ndjson => Sink::Lines(to),
            Format::Json => {
                to.write_all(b"[").map_err(failed)?;
                Sink::Array(to)
            }
            _ => {
                let mut writer = csv::WriterBuilder::new()
                    .delimiter(shape.delimiter)
                    .from_writer(to);
                let names = names()?;
                let written = writer.write_record(&names);
                written.map_err(|error| failed(from_csv(error)))?;
                let values = vec![String::new(); names.len()];
                let places = names.into_iter().enumerate().map(|(at, name)| (name, at));
                Sink::Table {
                    writer: Box::new(writer),
                    places: places.collect(),
                    values,
                }
            }
        };
        Ok(Self { to, rows: 0 })
    }

    /// Writes a row.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        self.rows += 1;
        match &mut self.to {
            Sink::Lines(to) => writeln!(to, "{line}"),
            Sink::Array(to) => {
                let before = if self.rows == 1 { "\n" } else { ",\n" };
                write!(to, "{before}{line}")
            }
            Sink::Table {
                writer,
                places,
                values,
            } => {
                values.iter_mut().for_each(String::clear);
                for (name, value) in members(line)?.0 {
                    // A later row may have members that the line of names does not have.
                    if let Some(place) = places.get(&name) {
                        values[*place] = plain(value.get());
                    }
                }
                writer.write_record(&*values).map_err(from_csv)
            }
        }
    }

    /// Hands what was written on.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            Sink::Lines(to) | Sink::Array(to) => to.flush(),
            Sink::Table { writer, .. } => writer.flush(),
        }
    }

    /// Ends the output.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if let Sink::Array(to) = &mut self.to {
            to.write_all(b"\n]\n")?;
        }
        self.flush()
    }
}

/// A value as a table of text has it: a text without its quotes, nothing for null, all else as JSON.
pub(super) fn plain(json: &str) -> String {
    if json == "null" {
        return String::new();
    }
    let text = json.starts_with('"').then(|| serde_json::from_str(json));
    match text {
        Some(Ok(text)) => text,
        _ => json.to_owned(),
    }
}

fn from_csv(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
