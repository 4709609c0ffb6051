//! Prints tables and JSON to stdout; `errors.rs` prints errors to stderr.
//!
//! Control characters in untrusted text are replaced in human-readable output and escaped in JSON. CSV is unchanged,
//! except on a terminal. For log lines, `telemetry` does the same.

mod errors;
mod tables;

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use self::errors::{print_bug, print_err, print_error};
pub use self::tables::{aligned_table, wrapped_table};
use super::{CliError, terminal};
use crate::telemetry::sanitize;
pub use topicmill_pages::display::{counted, thousands};
use topicmill_store::Table;
use topicmill_tables::csv::to_csv;

/// Rows per table: column widths are computed for this many rows at a time.
const ROWS_PER_TABLE: usize = 1_000;
/// Bytes of text per table, approximately.
const BYTES_PER_TABLE: usize = 8 * 1024 * 1024;

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Aligned columns
    #[default]
    Table,
    /// Comma-separated values, with a header line
    Csv,
    /// One array of objects
    Json,
    /// One object on each line
    Ndjson,
}

/// The format of what `--dry-run` prints.
#[derive(Debug, Clone, Default, Args)]
pub struct DryRunFormat {
    /// Set the output format of --dry-run
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value_t,
        requires = "dry_run"
    )]
    pub format: OutputFormat,
}

/// Prints text to stdout, without control characters.
pub fn print(text: &str) -> Result<(), CliError> {
    write(&sanitize::lines(text))
}

/// Writes JSON to stdout: on one line for NDJSON, else indented.
pub fn print_json(value: &Value, format: OutputFormat) -> Result<(), CliError> {
    let text = match format {
        OutputFormat::Ndjson => format!("{value}\n"),
        _ => format!("{value:#}\n"),
    };
    write(&sanitize::json(&text))
}

/// Makes a table of rows, each a JSON array of cells.
pub fn table<'c>(
    columns: impl IntoIterator<Item = &'c str>,
    rows: impl IntoIterator<Item = Value>,
) -> Table {
    let into_cells = |row| match row {
        Value::Array(cells) => cells,
        cell => vec![cell],
    };
    Table {
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows: rows.into_iter().map(into_cells).collect(),
    }
}

/// Makes a table of objects with these columns, separated by commas, even if there are no rows.
pub fn table_from_objects(columns: &str, rows: &[Value]) -> Table {
    let columns: Vec<&str> = columns.split(", ").collect();
    let row = |row: &Value| columns.iter().map(|column| row[*column].clone()).collect();
    table(columns.iter().copied(), rows.iter().map(row))
}

/// Makes a table of names and values; `what` is the heading of the names.
pub fn key_value_table<W: Into<Value>>(
    what: &str,
    rows: impl IntoIterator<Item = (W, Value)>,
) -> Table {
    let row = |(name, value): (W, Value)| Value::Array(vec![name.into(), value]);
    table([what, "value"], rows.into_iter().map(row))
}

/// Prints a table; columns that do not fit the terminal are truncated.
pub fn print_table(table: &Table, format: OutputFormat) -> Result<(), CliError> {
    let text = render(table, format)?;
    match format {
        OutputFormat::Csv if io::stdout().is_terminal() => print(&text),
        _ => write(&text),
    }
}

/// Prints a table with long text wrapped instead of truncated.
pub fn print_wrapped_table(table: &Table, format: OutputFormat) -> Result<(), CliError> {
    match format {
        OutputFormat::Table => write(&wrapped_table(table)),
        _ => print_table(table, format),
    }
}

/// The result of a command: sections with a heading and a table, and the same data as one JSON object for programs.
pub struct Printout {
    pub json: Value,
    /// The index of the section that is printed as CSV.
    csv_section: usize,
    sections: Vec<(String, Table)>,
}

impl Printout {
    pub fn new(json: Value) -> Self {
        Self {
            json,
            csv_section: 0,
            sections: Vec::new(),
        }
    }

    /// Adds a section; the heading or the table may be empty.
    #[must_use]
    pub fn with(mut self, heading: &str, table: Table) -> Self {
        self.add(heading, table);
        self
    }

    pub fn add(&mut self, heading: &str, table: Table) {
        self.sections.push((heading.to_owned(), table));
    }

    /// Adds a section without a table.
    pub fn add_note(&mut self, note: &str) {
        self.add(note, table([], []));
    }

    /// Adds the section that is printed as CSV.
    pub fn add_csv(&mut self, heading: &str, table: Table) {
        self.csv_section = self.sections.len();
        self.add(heading, table);
    }

    pub fn print(&self, format: OutputFormat) -> Result<(), CliError> {
        match format {
            OutputFormat::Json | OutputFormat::Ndjson => return print_json(&self.json, format),
            OutputFormat::Csv => return print_table(&self.sections[self.csv_section].1, format),
            OutputFormat::Table => {}
        }
        let sections = self.sections.iter().map(|(heading, table)| {
            let mut text = String::new();
            if !heading.is_empty() {
                text += &terminal::wrap(heading);
            }
            if !table.rows.is_empty() {
                text += &if tables::has_intervals(table) {
                    wrapped_table(table)
                } else {
                    aligned_table(table)
                };
            }
            text
        });
        print(&sections.collect::<Vec<_>>().join("\n"))
    }
}

/// Writes to stdout unchanged.
pub fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(stdout_error)
}

/// Returns the error for a failed write to stdout.
pub fn stdout_error(source: io::Error) -> CliError {
    if source.kind() == io::ErrorKind::BrokenPipe {
        return CliError::ClosedPipe;
    }
    CliError::writing("stdout".as_ref())(source)
}

fn render(table: &Table, format: OutputFormat) -> Result<String, CliError> {
    if format == OutputFormat::Table {
        return Ok(aligned_table(table));
    }
    let mut rendered = String::new();
    let rows = std::iter::once(table.rows.clone());
    let emitted = emit_rows(&table.columns, rows, format, false, |text| {
        rendered.push_str(text);
        Ok(())
    });
    emitted.map(|()| rendered).map_err(stdout_error)
}

/// Formats rows part by part as they arrive, and passes the text of each part to `emit`. `safe_csv`: see [`to_csv`].
pub fn emit_rows(
    columns: &[String],
    parts: impl Iterator<Item = Vec<Vec<Value>>>,
    format: OutputFormat,
    safe_csv: bool,
    mut emit: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    match format {
        OutputFormat::Table => emit_tables(columns, parts, emit),
        OutputFormat::Csv => {
            let header = columns.iter().cloned().map(Value::from).collect();
            let mut parts = std::iter::once(vec![header]).chain(parts);
            parts.try_for_each(|rows| emit(&to_csv(&rows, safe_csv)))
        }
        OutputFormat::Json => {
            let mut is_empty = true;
            for row in parts.flatten() {
                emit(if is_empty { "[\n  " } else { ",\n  " })?;
                is_empty = false;
                // Line breaks in strings are escaped, so each line break here starts an indented line.
                let object = serde_json::to_string_pretty(&RowObject(columns, &row))?;
                emit(&sanitize::json(&object.replace('\n', "\n  ")))?;
            }
            emit(if is_empty { "[]\n" } else { "\n]\n" })
        }
        OutputFormat::Ndjson => parts.flatten().try_for_each(|row| {
            let object = serde_json::to_string(&RowObject(columns, &row))?;
            emit(&sanitize::json(&object))?;
            emit("\n")
        }),
    }
}

/// Formats rows as a series of tables, each with its own column widths.
fn emit_tables(
    columns: &[String],
    parts: impl Iterator<Item = Vec<Vec<Value>>>,
    mut emit: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let mut table = Table {
        columns: columns.to_vec(),
        rows: Vec::new(),
    };
    let (mut bytes, mut separator) = (0, "");
    for rows in parts {
        let texts = rows.iter().flatten().filter_map(Value::as_str);
        bytes += texts.map(str::len).sum::<usize>();
        table.rows.extend(rows);
        if table.rows.len() >= ROWS_PER_TABLE || bytes >= BYTES_PER_TABLE {
            emit(separator)?;
            emit(&aligned_table(&table))?;
            table.rows.clear();
            (bytes, separator) = (0, "\n");
        }
    }
    // An empty last table is skipped, unless it is the only one.
    if !separator.is_empty() && table.rows.is_empty() {
        return Ok(());
    }
    emit(separator)?;
    emit(&aligned_table(&table))
}

/// The columns and the cells of a row, serialized as an object.
struct RowObject<'r>(&'r [String], &'r [Value]);

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(self.1))
    }
}

/// Returns a word of a command line, quoted for a shell if necessary.
pub fn shell_word(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Into::into)
}
