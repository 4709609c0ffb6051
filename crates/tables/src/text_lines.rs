//! Reads plain text, one row per line.

use std::sync::Arc;

use super::bytes::TextReader;
use super::lines::{MAX_LINE_BYTES, last_row, read_line};
use super::{Cell, Row, Rows, TableError, not_utf8};

/// A reader that returns each line as a row with a `text` cell. Blank lines are skipped.
pub struct TextLines {
    text: TextReader,
    buffer: Vec<u8>,
    names: [Arc<str>; 1],
    line: u64,
    ended: bool,
}

impl TextLines {
    /// Creates a reader for UTF-8 lines.
    pub fn new(text: TextReader) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            names: ["text".into()],
            line: 0,
            ended: false,
        }
    }
}

impl Rows for TextLines {
    fn names(&self) -> Option<&[Arc<str>]> {
        Some(&self.names)
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        while !self.ended {
            self.line += 1;
            let length = match read_line(&mut self.text, &mut self.buffer, MAX_LINE_BYTES) {
                Ok(length) => length,
                Err(error) => {
                    self.ended = true;
                    return last_row(self.line, error).map(Some);
                }
            };
            self.ended = length == 0;
            if length > MAX_LINE_BYTES {
                let problem = format!("is longer than {} MiB", MAX_LINE_BYTES >> 20);
                return Ok(Some(Row::broken(self.line, problem)));
            }
            let line = self.buffer.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let Ok(text) = std::str::from_utf8(line) else {
                return Ok(Some(Row::broken(self.line, not_utf8(""))));
            };
            return Ok(Some(Row {
                line: self.line,
                cells: vec![(self.names[0].clone(), Cell::Text(text.to_owned()))],
                problem: None,
            }));
        }
        Ok(None)
    }
}
