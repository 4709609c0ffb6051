//! What goes to stdout: tables and JSON. And errors, in one form, to stderr.
//!
//! Here, and in `telemetry` for log lines, what others wrote is made harmless to a terminal: in text for people
//! always, in JSON by escapes that mean the same. CSV is exact, unless a terminal takes it.

mod tables;

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use self::tables::{aligned_table, with_bars, wrapped_table};
use super::{CliError, terminal};
use crate::telemetry::{self, LogFormat, harmless};
pub use topicmill_pages::look::whole as thousands;
use topicmill_store::Table;
use topicmill_tables::csv::to_csv;

/// Rows of a table that are laid out together.
const ROWS_PER_TABLE: usize = 1_000;
/// And bytes of texts, about.
const BYTES_PER_TABLE: usize = 8 * 1024 * 1024;

/// How a table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Aligned columns, for people
    #[default]
    Table,
    /// Comma-separated values, with a header line
    Csv,
    /// One array of table_from_objects
    Json,
    /// One object on each line
    Ndjson,
}

pub fn print(text: &str) -> Result<(), CliError> {
    write(&harmless::lines(text))
}

/// Writes JSON to stdout, over several lines or on one.
pub fn print_json(value: &Value, format: OutputFormat) -> Result<(), CliError> {
    let text = match format {
        OutputFormat::Ndjson => format!("{value}\n"),
        _ => format!("{value:#}\n"),
    };
    write(&harmless::json(&text))
}

/// A table of rows, each a list of its cells.
pub fn table<'c>(
    columns: impl IntoIterator<Item = &'c str>,
    rows: impl IntoIterator<Item = Value>,
) -> Table {
    let cells = |row| match row {
        Value::Array(cells) => cells,
        cell => vec![cell],
    };
    Table {
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows: rows.into_iter().map(cells).collect(),
    }
}

/// A table of table_from_objects: columns from the fields of the first one.
pub fn table_from_objects(rows: &[Value]) -> Table {
    let first = rows.first().and_then(Value::as_object);
    let columns: Vec<&str> =
        first.map_or(Vec::new(), |row| row.keys().map(String::as_str).collect());
    table_with_columns(&columns, rows)
}

/// A table of table_from_objects with these fields, which has its columns where there are no rows, too.
pub fn table_with_columns(columns: &[&str], rows: &[Value]) -> Table {
    let row = |row: &Value| columns.iter().map(|column| row[*column].clone()).collect();
    table(columns.iter().copied(), rows.iter().map(row))
}

/// A table of things and their values.
pub fn key_value_table<W: Into<Value>>(
    what: &str,
    rows: impl IntoIterator<Item = (W, Value)>,
) -> Table {
    let rows = rows.into_iter();
    table(
        [what, "value"],
        rows.map(|(what, value)| [what.into(), value].into_iter().collect()),
    )
}

pub fn print_table(table: &Table, format: OutputFormat) -> Result<(), CliError> {
    let text = render(table, format)?;
    match format {
        OutputFormat::Csv if io::stdout().is_terminal() => print(&text),
        _ => write(&text),
    }
}

/// Prints a table whose texts are to be read to their ends.
pub fn print_wrapped_table(table: &Table, format: OutputFormat) -> Result<(), CliError> {
    match format {
        OutputFormat::Table => write(&wrapped_table(table)),
        _ => print_table(table, format),
    }
}

/// What a command has found: parts with a heading for people, one object for programs.
pub struct Printout {
    pub json: Value,
    /// The part that is printed as CSV.
    csv_part: usize,
    parts: Vec<(String, Table)>,
}

impl Printout {
    pub fn new(json: Value) -> Self {
        Self {
            json,
            csv_part: 0,
            parts: Vec::new(),
        }
    }

    /// With one part more; either of it may be empty.
    #[must_use]
    pub fn with(mut self, heading: &str, table: Table) -> Self {
        self.add(heading, table);
        self
    }

    pub fn add(&mut self, heading: &str, table: Table) {
        self.parts.push((heading.to_owned(), table));
    }

    /// Adds a part that is printed as CSV.
    pub fn add_csv(&mut self, heading: &str, table: Table) {
        self.csv_part = self.parts.len();
        self.add(heading, table);
    }

    pub fn print(&self, format: OutputFormat) -> Result<(), CliError> {
        match format {
            OutputFormat::Json | OutputFormat::Ndjson => return print_json(&self.json, format),
            OutputFormat::Csv => return print_table(&self.parts[self.csv_part].1, format),
            OutputFormat::Table => {}
        }
        let parts = self.parts.iter().map(|(heading, table)| {
            let mut text = String::new();
            if !heading.is_empty() {
                text += &wrap(heading);
            }
            if !table.rows.is_empty() {
                text += &aligned_table(table);
            }
            text
        });
        print(&parts.collect::<Vec<_>>().join("\n"))
    }
}

/// Writes to stdout as it is. Whoever reads may stop reading: `topicmill sql … | head` is no error.
pub fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(stdout_error),
    }
}

/// Stdout does not take what is written.
pub fn stdout_error(source: io::Error) -> CliError {
    CliError::writing("stdout".as_ref())(source)
}

pub fn render(table: &Table, format: OutputFormat) -> Result<String, CliError> {
    let mut all = String::new();
    let rows = std::iter::once(table.rows.clone());
    match format {
        OutputFormat::Table => all = aligned_table(table),
        _ => print_rows(&table.columns, rows, format, false, |text| {
            all.push_str(text);
            Ok(())
        })
        .map_err(stdout_error)?,
    }
    Ok(all)
}

/// Prints rows in a format as they come, a part of them at a time; `to` takes the text. `safe_csv`: see [`to_csv`].
pub fn print_rows(
    columns: &[String],
    parts: impl Iterator<Item = Vec<Vec<Value>>>,
    format: OutputFormat,
    safe_csv: bool,
    mut to: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    match format {
        OutputFormat::Table => print_tables(columns, parts, to),
        OutputFormat::Csv => {
            let header = columns.iter().cloned().map(Value::from).collect();
            let mut parts = std::iter::once(vec![header]).chain(parts);
            parts.try_for_each(|rows| to(&to_csv(&rows, safe_csv)))
        }
        OutputFormat::Json => {
            let mut before = "[\n  ";
            for row in parts.flatten() {
                // A line break is none of a string's, so each begins a line.
                let object = serde_json::to_string_pretty(&Object(columns, &row))?;
                to(before)?;
                to(&harmless::json(&object.replace('\n', "\n  ")))?;
                before = ",\n  ";
            }
            to(if before == ",\n  " { "\n]\n" } else { "[]\n" })
        }
        OutputFormat::Ndjson => parts.flatten().try_for_each(|row| {
            let object = serde_json::to_string(&Object(columns, &row))?;
            to(&harmless::json(&object))?;
            to("\n")
        }),
    }
}

/// A table for people after the other: the columns of the next one may be wider.
fn print_tables(
    columns: &[String],
    parts: impl Iterator<Item = Vec<Vec<Value>>>,
    mut to: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let mut table = Table {
        columns: columns.to_vec(),
        rows: Vec::new(),
    };
    let (mut bytes, mut before) = (0, "");
    for rows in parts {
        let texts = rows.iter().flatten().filter_map(Value::as_str);
        bytes += texts.map(str::len).sum::<usize>();
        table.rows.extend(rows);
        if table.rows.len() >= ROWS_PER_TABLE || bytes >= BYTES_PER_TABLE {
            to(before)?;
            to(&aligned_table(&table))?;
            table.rows.clear();
            (bytes, before) = (0, "\n");
        }
    }
    // The last table was just full. An empty one is shown only where there is no other.
    if !before.is_empty() && table.rows.is_empty() {
        return Ok(());
    }
    to(before)?;
    to(&aligned_table(&table))
}

struct Object<'r>(&'r [String], &'r [Value]);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(self.1))
    }
}

/// A text in lines of 80 columns, or as many as the terminal has where they are fewer.
pub fn wrap(text: &str) -> String {
    wrap_to(
        text,
        terminal::width().map_or(terminal::DEFAULT_WIDTH, |width| {
            width.min(terminal::DEFAULT_WIDTH)
        }),
    )
}

/// A text in lines of this many columns.
pub fn wrap_to(text: &str, width: usize) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = terminal::columns(word);
        if column > 0 && column + 1 + length > width {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines.push('\n');
    lines
}

/// One sentence on stderr after a panic has printed its place.
#[expect(clippy::print_stderr, reason = "logging may not have been started")]
pub fn print_bug() {
    eprintln!(
        "error: topicmill has a bug, told above; what it had stored stays stored: please report it with these lines"
    );
}

/// One sentence on stderr, and what caused it where the sentence does not say so already. A log collector gets
/// them as a log line.
#[expect(clippy::print_stderr, reason = "logging may not have been started")]
pub fn print_error(error: &CliError, format: LogFormat) {
    let message = error.to_string();
    let mut causes = Vec::new();
    let mut printed = message.clone();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !printed.contains(&text) {
            printed.push_str(&text);
            causes.push(text);
        }
        cause = next.source();
    }
    if format == LogFormat::Json {
        return telemetry::fatal(&message, &causes);
    }
    eprintln!("error: {}", harmless::lines(&message));
    for text in causes {
        eprintln!("  caused by: {}", harmless::lines(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words() {
        let text = format!("{} {} ende", "a".repeat(40), "b".repeat(39));
        let lines = format!("{} {}\nende\n", "a".repeat(40), "b".repeat(39));
        assert_eq!(wrap(&text), lines);
        assert_eq!(wrap("one  word\n"), "one word\n");
    }
}
