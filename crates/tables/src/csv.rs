//! Reads and writes CSV and TSV with a header row.
//!
//! The delimiter is detected from the header row. A row that is not UTF-8, or that has more or fewer values than the
//! header, is returned with a problem, and reading continues.

mod header;
mod quotes;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Cursor, Read};
use std::sync::Arc;

use self::header::{detect_delimiter, header_columns, header_error, io_error, read_header};
pub(super) use self::header::{has_header_row, is_prose};
use self::quotes::QuoteTracker;
pub use self::write::{CsvWriter, cell_text, to_csv, value_text};
use super::bytes::TextReader;
use super::lines::last_row;
use super::{Cell, Row, Rows, TableError, not_utf8};
use topicmill_core::counted;

/// Maximum number of characters of a column name that a problem message shows.
const MAX_NAME_CHARS: usize = 40;

/// The problem reported for a row whose quotes are escaped with a backslash, as Spark and `MySQL` do.
const BARE_QUOTE: &str = "has a quote that is not doubled inside a quoted value, such as `\\\"`: write the file \
     again with `\"\"` (in Spark with option(\"escape\", \"\\\"\"))";

/// The problem reported at the end of a file whose last value is not closed.
const OPEN_QUOTE: &str = "has a quote that is not closed: everything after it became one value";

/// A reader for CSV or TSV rows after the header row.
pub struct Csv {
    reader: csv::Reader<QuoteTracker<Box<dyn Read + Send>>>,
    row: csv::ByteRecord,
    names: Vec<Arc<str>>,
    repeated: Vec<String>,
    /// Indices of the selected columns.
    selected: Vec<usize>,
    delimiter: u8,
    /// Number of lines before the inner reader's input.
    lines_before: u64,
    /// True if the last value read spans several lines.
    is_multiline: bool,
    ended: bool,
}

impl Csv {
    /// Reads the header row. If `delimiter` is `None`, it is detected.
    ///
    /// # Errors
    /// Returns an error if the header row is missing or invalid.
    pub fn new(mut text: TextReader, mut delimiter: Option<u8>) -> Result<Self, TableError> {
        let (mut header, mut lines_before) = read_header(&mut text, delimiter)?;
        // Spreadsheets write `sep=;` before the header row.
        if let [b's', b'e', b'p', b'=', separator] = *header.trim_ascii() {
            delimiter = delimiter.or(Some(separator));
            lines_before += u64::from(header.ends_with(b"\n"));
            let (names, blank_lines) = read_header(&mut text, delimiter)?;
            header = names;
            lines_before += blank_lines;
        }
        // The library reports the start of a row before it skips the `\n` of `\r\n`.
        let next = text.fill_buf().ok().and_then(|chunk| chunk.first());
        if header.ends_with(b"\r") && next == Some(&b'\n') {
            lines_before += 1;
        }
        let delimiter = delimiter.unwrap_or_else(|| detect_delimiter(&header));
        let bytes: Box<dyn Read + Send> = Box::new(Cursor::new(header).chain(text));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            // A row with too many or too few values then becomes a row with a problem, not an error.
            .flexible(true)
            .from_reader(QuoteTracker::new(bytes, delimiter));
        let header = reader
            .byte_headers()
            .map_err(|error| header_error(io_error(error)))?;
        let columns = header_columns(header)?;
        Ok(Self {
            reader,
            row: csv::ByteRecord::new(),
            selected: (0..columns.names.len()).collect(),
            names: columns.names,
            repeated: columns.repeated,
            delimiter,
            lines_before,
            is_multiline: false,
            ended: false,
        })
    }

    /// Returns the delimiter.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    fn line(&self) -> u64 {
        let position = self.row.position();
        self.lines_before + position.map_or(0, csv::Position::line)
    }

    /// Converts the record that has just been read.
    fn row(&mut self) -> Row {
        let mut problem = None;
        let mut cells = Vec::with_capacity(self.selected.len());
        for column in &self.selected {
            let (name, Some(bytes)) = (&self.names[*column], self.row.get(*column)) else {
                continue;
            };
            let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| {
                let byte = error.utf8_error().valid_up_to() + 1;
                let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
                problem.get_or_insert_with(|| not_utf8(&format!(" (`{shown}` at byte {byte})")));
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            });
            cells.push((name.clone(), Cell::Text(text)));
        }
        let (len, expected) = (self.row.len(), self.names.len());
        let end = self.reader.position().byte();
        if self.reader.get_mut().has_bare_quote(end) {
            problem = Some(BARE_QUOTE.to_owned());
        } else if len != expected {
            let values = counted(len as u64, "value");
            problem = Some(format!("has {values}, but the header has {expected}"));
        }
        Row {
            line: self.line(),
            cells,
            problem,
        }
    }
}

impl Rows for Csv {
    fn names(&self) -> Option<&[Arc<str>]> {
        Some(&self.names)
    }

    fn repeated(&self) -> &[String] {
        &self.repeated
    }

    fn select(&mut self, columns: &[usize]) -> Result<(), TableError> {
        self.selected = columns.to_vec();
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let last_line = self.line();
        self.reader.get_mut().next_row();
        match self.reader.read_byte_record(&mut self.row) {
            Ok(true) => {
                let last = self.row.iter().next_back();
                self.is_multiline = last.is_some_and(|value| value.contains(&b'\n'));
                Ok(Some(self.row()))
            }
            Ok(false) => {
                self.ended = true;
                // The library does not report the end of the file inside a quoted value.
                let has_open_quote = self.is_multiline && self.reader.get_ref().is_open();
                Ok(has_open_quote.then(|| Row::broken(last_line, OPEN_QUOTE)))
            }
            Err(error) => {
                self.ended = true;
                let line = self.lines_before + self.reader.position().line();
                last_row(line, io_error(error)).map(Some)
            }
        }
    }
}
