//! Reads and writes tables: CSV, TSV, NDJSON, JSON arrays, Parquet and lines of text.
//!
//! [`open`] detects the format and compression of a file or pipe, in UTF-8 or UTF-16, and streams [rows](Row) of named
//! cells, so that memory use does not depend on the table's size. The crate does not interpret cells; its callers turn
//! rows into posts or texts. For output, [columns](topicmill_core::ColumnCells) become Parquet, and rows become CSV.
//!
//! An input [`Cell`] keeps a value as written in the file, with all digits. An output
//! [`ColumnCell`](topicmill_core::ColumnCell) has the type of its column.

pub mod bytes;
pub mod csv;
mod error;
mod format;
pub mod json;
mod lines;
mod page_sizes;
pub mod panics;
pub mod parquet;
mod text_lines;
mod unsupported;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use serde_json::value::RawValue;

use self::csv::Csv;
pub use self::error::{ParquetFault, TableError};
pub use self::format::{Compression, TableFormat, detect_format};
use self::json::JsonRecords;
use self::parquet::Parquet;
use self::text_lines::TextLines;

/// A cell in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// No value.
    Null,
    /// A string.
    Text(String),
    /// A JSON value on one line, which may be a JSON string.
    Json(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
}

impl Cell {
    /// Appends the value to `out` as JSON; bytes become a string of hexadecimal digits.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Text(text) => out.push_str(&json::quoted(text)),
            Self::Json(json) => out.push_str(json),
            Self::Bytes(bytes) => out.push_str(&json::quoted(&topicmill_core::hex(bytes))),
        }
    }

    /// Converts a raw JSON value to a cell.
    pub fn from_raw_json(raw: &RawValue) -> Self {
        match raw.get() {
            "null" => Self::Null,
            json => Self::Json(json::on_one_line(json)),
        }
    }

    /// Returns the text; `None` for other values, and for text that is not valid Unicode.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null | Self::Bytes(_) => None,
            Self::Text(text) => Some(text.clone()),
            Self::Json(json) => serde_json::from_str(json).ok(),
        }
    }
}

/// A row in a table.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Number of the row's first line, or of the row itself if the format is not line-based; both count from 1.
    pub line: u64,
    /// Cells in order, each with its column name. If there is a problem, these are only the readable cells.
    pub cells: Vec<(Arc<str>, Cell)>,
    /// User-facing description of what is malformed; it does not quote the row.
    pub problem: Option<String>,
}

impl Row {
    /// Returns the cell in a column.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find_map(|(column, cell)| (**column == *name).then_some(cell))
    }

    /// Returns true if all cells are blank, as in the rows that spreadsheets append to a table.
    pub fn is_blank(&self) -> bool {
        let is_blank = |cell: &Cell| match cell {
            Cell::Null => true,
            Cell::Text(text) => text.trim().is_empty(),
            Cell::Json(json) => json == "\"\"",
            Cell::Bytes(_) => false,
        };
        self.problem.is_none() && self.cells.iter().all(|(_, cell)| is_blank(cell))
    }

    fn broken(line: u64, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: Some(problem.into()),
            cells: Vec::new(),
        }
    }
}

/// Reads the rows in a table in order.
pub trait Rows: Send {
    /// Returns the column names if the format stores them before the rows.
    fn names(&self) -> Option<&[Arc<str>]>;

    /// Returns the names that several columns in the file share. [`Rows::names`] renames all but the first.
    fn repeated(&self) -> &[String] {
        &[]
    }

    /// Selects columns by their indices in [`Rows::names`], before the first row is read. By default, and if there are
    /// no names, all columns are read.
    ///
    /// # Errors
    /// Returns an error if these columns cannot be read.
    fn select(&mut self, _columns: &[usize]) -> Result<(), TableError> {
        Ok(())
    }

    /// Returns the next row; `None` at the end, and after a row whose problem makes the rest unreadable.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn next_row(&mut self) -> Result<Option<Row>, TableError>;
}

/// An open table.
pub struct OpenTable {
    /// Reader for the rows.
    pub rows: Box<dyn Rows>,
    /// Detected format.
    pub format: TableFormat,
    /// Delimiter for CSV and TSV.
    pub delimiter: Option<u8>,
}

/// Returns the problem of a row that is not UTF-8. `place`, which may be empty, says where. The encoding is not guessed
/// because a wrong guess would corrupt the text.
pub(crate) fn not_utf8(place: &str) -> String {
    format!(
        "is not UTF-8{place}: convert the file, for example with `iconv -f WINDOWS-1252 -t UTF-8`"
    )
}

/// Opens a table, or stdin for `-`; returns `None` if it is empty, except that empty JSON is a table without rows.
///
/// If `format` is `None`, it is detected from the file name and the first bytes.
///
/// # Errors
/// See [`TableError`].
pub fn open(path: &Path, format: Option<TableFormat>) -> Result<Option<OpenTable>, TableError> {
    let Some((format, text)) = detect_format(path, bytes::open(path)?, format)? else {
        return Ok(None);
    };
    let mut delimiter = None;
    let rows: Box<dyn Rows> = match format {
        TableFormat::Json | TableFormat::Ndjson => Box::new(JsonRecords::new(text)),
        TableFormat::Csv | TableFormat::Tsv => {
            let tab = (format == TableFormat::Tsv).then_some(b'\t');
            let rows = Csv::new(text, tab)?;
            delimiter = Some(rows.delimiter());
            Box::new(rows)
        }
        TableFormat::Parquet => Box::new(Parquet::new(File::open(path)?)?),
        TableFormat::Text => Box::new(TextLines::new(text)),
    };
    Ok(Some(OpenTable {
        rows,
        format,
        delimiter,
    }))
}
