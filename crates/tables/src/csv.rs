//! Rows of CSV and TSV, with a line of names, and into them.
//!
//! What stands between the values is found in the line of names, outside of its quotes. A row that has more or fewer
//! values than there are names is one with a problem; so is one that is not UTF-8, because nobody can say what it
//! meant.

mod header;
mod quotes;
#[cfg(test)]
mod tests;
mod write;

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use self::header::{column_names, detect_delimiter, header_error, io_error, read_header};
pub(super) use self::header::{has_names, is_prose};
use self::quotes::Limited;
pub use self::write::{CsvWriter, cell_text, to_csv, value_text};
use super::bytes::TextReader;
use super::lines::last_row;
use super::{Cell, NOT_UTF8, Row, Rows, TableError};

/// As much of a column's name as a problem shows, in characters.
const MAX_NAME_CHARS: usize = 40;

/// What is wrong with a row of Spark or `MySQL`, which put a backslash in front of a quote.
const BARE_QUOTE: &str = "has a quote within quotes that is not doubled, as in `\\\"`: write the file again with `\"\"` in \
     its place (in Spark with option(\"escape\", \"\\\"\"))";

/// The rows of CSV or TSV; the line of names is none.
pub struct Csv {
    reader: csv::Reader<Limited<Box<dyn Read + Send>>>,
    row: csv::ByteRecord,
    names: Vec<Arc<str>>,
    repeated: Vec<String>,
    /// Places of the columns that are read.
    read: Vec<usize>,
    delimiter: u8,
    /// Line of the first row, less the line that the reader counts.
    lines_before: u64,
    /// Whether the last value so far has several lines.
    is_long: bool,
    ended: bool,
}

impl Csv {
    /// Reads the line of names. `delimiter`: what stands between values, where that is known.
    ///
    /// # Errors
    /// When there is no line of names.
    pub fn new(mut text: TextReader, delimiter: Option<u8>) -> Result<Self, TableError> {
        let (mut header, mut lines_before) = read_header(&mut text)?;
        let mut delimiter = delimiter;
        // Spreadsheets write `sep=;` before the line of names.
        if let [b's', b'e', b'p', b'=', separator] = *header.trim_ascii() {
            delimiter = delimiter.or(Some(separator));
            let before = lines_before + u64::from(header.ends_with(b"\n"));
            let (names, passed) = read_header(&mut text)?;
            (header, lines_before) = (names, before + passed);
        }
        // The reader says where a row begins before it passes over the second half of `\r\n`.
        let next = text.fill_buf().ok().and_then(|chunk| chunk.first());
        if header.ends_with(b"\r") && next == Some(&b'\n') {
            lines_before += 1;
        }
        let delimiter = delimiter.unwrap_or_else(|| detect_delimiter(&header));
        let bytes: Box<dyn Read + Send> = Box::new(Cursor::new(header).chain(text));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            // So that a row with too many or too few values is a row with a problem, and not the end of the table.
            .flexible(true)
            .from_reader(Limited::new(bytes, delimiter));
        let names = reader
            .byte_headers()
            .map_err(|error| header_error(io_error(error)))?;
        let (names, repeated) = column_names(names)?;
        Ok(Self {
            reader,
            row: csv::ByteRecord::new(),
            read: (0..names.len()).collect(),
            names,
            repeated,
            delimiter,
            lines_before,
            is_long: false,
            ended: false,
        })
    }

    /// What stands between the values.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    fn next_record(&mut self) -> Result<bool, io::Error> {
        self.reader.get_mut().next_row();
        let read = self.reader.read_byte_record(&mut self.row);
        read.map_err(io_error)
    }

    /// Whether the file ended within quotes, as far as one can tell: then what follows them became one value.
    fn has_open_quote(&self) -> bool {
        self.is_long && self.reader.get_ref().quotes % 2 == 1
    }

    fn line(&self) -> u64 {
        let position = self.row.position();
        self.lines_before + position.map_or(0, csv::Position::line)
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
        self.read = columns.to_vec();
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let line = self.line();
        match self.next_record() {
            Ok(false) => {
                self.ended = true;
                let problem =
                    "has a quote that is not closed: all that follows it became one value";
                return Ok(self.has_open_quote().then(|| Row::broken(line, problem)));
            }
            Ok(true) => {}
            Err(error) => {
                self.ended = true;
                let line = self.lines_before + self.reader.position().line();
                return last_row(line, error).map(Some);
            }
        }
        self.is_long = self
            .row
            .iter()
            .next_back()
            .is_some_and(|it| it.contains(&b'\n'));
        let mut problem = None;
        let mut cells = Vec::with_capacity(self.read.len());
        for at in &self.read {
            let (name, Some(bytes)) = (&self.names[*at], self.row.get(*at)) else {
                continue;
            };
            let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| {
                let at = error.utf8_error().valid_up_to() + 1;
                let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                let why = NOT_UTF8.replacen("UTF-8", &format!("UTF-8 (`{name}` at byte {at})"), 1);
                problem.get_or_insert(why);
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            });
            cells.push((name.clone(), Cell::Text(text)));
        }
        let (len, expected) = (self.row.len(), self.names.len());
        let end = self.reader.position().byte();
        if self.reader.get_mut().has_bare_quote(end) {
            problem = Some(BARE_QUOTE.to_owned());
        } else if len != expected {
            problem = Some(format!(
                "has {len} value{} where the line of names has {expected}",
                if len == 1 { "" } else { "s" }
            ));
        }
        Ok(Some(Row {
            line: self.line(),
            cells,
            problem,
        }))
    }
}
