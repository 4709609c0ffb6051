//! Reads JSON records one at a time, in all supported layouts.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Members, Nesting, looks_like_json, too_long};
use crate::bytes::TextReader;
use crate::lines::{MAX_LINE_BYTES, fill_buffer, last_row, read_line};
use crate::{Row, Rows, TableError};

/// Number of bytes of unwanted records to skip before returning [`JsonItem::Yield`] to the caller.
const YIELD_BYTES: u64 = 16 << 20;

/// The result of reading the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonItem {
    /// A record, which [`JsonRecords::record`] returns.
    Record,
    /// A record that was too long and has been skipped.
    TooLong,
    /// No wanted record was found in the last megabytes. Call again to continue.
    Yield,
    /// The end of the file.
    End,
}

/// A position in JSON text, as totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonPosition {
    /// Number of bytes of text.
    pub bytes: u64,
    /// Number of lines, including blank ones.
    pub lines: u64,
    /// Number of unwanted lines.
    pub left_out: u64,
}

/// A streaming reader for JSON records that keeps only one record in memory.
pub struct JsonRecords {
    text: TextReader,
    buffer: Vec<u8>,
    at: JsonPosition,
    /// Start of the record in the buffer.
    record_start: JsonPosition,
    /// True if the records are elements of an array; `None` before the first byte.
    is_array: Option<bool>,
    /// True once the end of the array has been read.
    closed: bool,
    ended: bool,
    /// Number of bytes still to be skipped because an earlier run has processed them.
    skip: u64,
    resumed: Option<JsonPosition>,
    /// Unread records wrapped by the record in the buffer.
    inner: VecDeque<Box<RawValue>>,
}

impl JsonRecords {
    /// Creates a reader for UTF-8 JSON.
    pub fn new(text: TextReader) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            at: JsonPosition::default(),
            record_start: JsonPosition::default(),
            is_array: None,
            closed: false,
            ended: false,
            skip: 0,
            resumed: None,
            inner: VecDeque::new(),
        }
    }

    /// Returns the bytes of the last record.
    pub fn record(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the number of the last record's first line.
    pub fn line(&self) -> u64 {
        self.record_start.lines + 1
    }

    /// Returns the position to resume from. While wrapped records are unread, this is the start of the wrapping record.
    pub fn position(&self) -> JsonPosition {
        if self.inner.is_empty() {
            self.at
        } else {
            self.record_start
        }
    }

    /// Resumes from a position in the same text. Must be called before the first read.
    pub fn resume(&mut self, place: JsonPosition) {
        self.resumed = Some(place);
    }

    /// Returns true if the records are elements of an array.
    pub fn is_array(&self) -> bool {
        self.is_array == Some(true)
    }

    /// Queues records that the last record wraps; [`Self::next_inner`] returns them.
    pub fn push_inner(&mut self, inner: VecDeque<Box<RawValue>>) {
        self.inner.extend(inner);
    }

    /// Returns the next wrapped record.
    pub fn next_inner(&mut self) -> Option<Box<RawValue>> {
        self.inner.pop_front()
    }

    /// Reads the next record that `wanted` accepts. Other lines make up most of a dump, so they are skipped without
    /// being copied, decoded or parsed.
    ///
    /// # Errors
    /// Returns an error if the text cannot be read, ends within an array, or continues after it.
    pub fn read(&mut self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<JsonItem> {
        if self.is_array.is_none() {
            self.is_array = Some(self.find_layout()?);
            if let Some(place) = self.resumed {
                self.skip = place.bytes.saturating_sub(self.at.bytes);
                self.at = place;
            }
        }
        while self.skip > 0 {
            match self.skip_some()? {
                0 => return Ok(JsonItem::End),
                _ if self.skip > 0 => return Ok(JsonItem::Yield),
                _ => {}
            }
        }
        if self.is_array() {
            return self.element();
        }
        loop {
            if self.skip_unwanted(&wanted)? {
                return Ok(JsonItem::Yield);
            }
            self.record_start = self.at;
            match self.next_line()? {
                0 => return Ok(JsonItem::End),
                length if length > MAX_LINE_BYTES => return Ok(JsonItem::TooLong),
                _ if self.buffer.trim_ascii().is_empty() => continue,
                _ => {}
            }
            if self.read_object_lines()? {
                return Ok(JsonItem::TooLong);
            }
            if wanted(&self.buffer) {
                return Ok(JsonItem::Record);
            }
            self.at.left_out += self.at.lines - self.record_start.lines;
        }
    }

    /// Returns true for an array, and skips leading white space and the opening bracket.
    fn find_layout(&mut self) -> io::Result<bool> {
        loop {
            let chunk = fill_buffer(&mut self.text)?;
            let blank = chunk.len() - chunk.trim_ascii_start().len();
            let is_blank = blank == chunk.len();
            let is_array = looks_like_json(&chunk[blank..]) && chunk[blank] == b'[';
            // White space before an object is kept because error columns count it.
            let passed = match (is_array, is_blank) {
                (true, _) => blank + 1,
                (false, true) => blank,
                (false, false) => 0,
            };
            self.at.lines += memchr::memchr_iter(b'\n', &chunk[..passed]).count() as u64;
            self.at.bytes += passed as u64;
            let ended = chunk.is_empty();
            self.text.consume(passed);
            if ended || !is_blank {
                return Ok(is_array);
            }
        }
    }

    /// Skips bytes that an earlier run has processed, and returns their number. Decompressed text cannot seek, so the
    /// bytes are read and discarded.
    fn skip_some(&mut self) -> io::Result<u64> {
        let mut passed = 0;
        while passed < YIELD_BYTES && self.skip > 0 {
            let chunk = fill_buffer(&mut self.text)?;
            let skipped = chunk
                .len()
                .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            // The file is shorter than in the earlier run.
            if skipped == 0 {
                return Ok(0);
            }
            // The earlier run may have read the whole array.
            if let Some(last) = chunk[..skipped].trim_ascii_end().last() {
                self.closed = self.is_array == Some(true) && *last == b']';
            }
            self.text.consume(skipped);
            self.skip -= skipped as u64;
            passed += skipped as u64;
        }
        Ok(passed)
    }

    /// Skips unwanted lines; returns true after [`YIELD_BYTES`].
    fn skip_unwanted(&mut self, wanted: &impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        let mut skipped = 0;
        while skipped < YIELD_BYTES {
            let chunk = fill_buffer(&mut self.text)?;
            let mut passed = 0;
            let mut is_wanted = false;
            for newline in memchr::memchr_iter(b'\n', chunk) {
                let line = &chunk[passed..newline];
                // A line of a multi-line object cannot be filtered alone.
                let is_object = line.starts_with(b"{") && line.trim_ascii_end().ends_with(b"}");
                if !is_object || wanted(line) {
                    is_wanted = true;
                    break;
                }
                passed = newline + 1;
                self.at.lines += 1;
                self.at.left_out += 1;
            }
            self.text.consume(passed);
            self.at.bytes += passed as u64;
            skipped += passed as u64;
            // `read` handles a wanted line, or a line that exceeds the buffer.
            if is_wanted || passed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next_line(&mut self) -> io::Result<usize> {
        let length = read_line(&mut self.text, &mut self.buffer, MAX_LINE_BYTES)?;
        self.at.lines += u64::from(length > 0);
        self.at.bytes += length as u64;
        Ok(length)
    }

    /// Reads the remaining lines of a multi-line object; returns true if the object is too long. A truncated object
    /// ends where the next object starts.
    fn read_object_lines(&mut self) -> io::Result<bool> {
        let first = self.buffer.trim_ascii();
        if !first.starts_with(b"{") || !matches!(first.last(), Some(b'{' | b'[' | b',' | b':')) {
            return Ok(false);
        }
        let mut nesting = Nesting::default();
        for byte in &self.buffer {
            nesting.push(*byte);
        }
        let mut line = Vec::new();
        while let Some(innermost) = nesting.open.last() {
            // An object cannot contain `{` in place of a name, so the next record starts here.
            if *innermost == b'{' && fill_buffer(&mut self.text)?.starts_with(b"{\"") {
                break;
            }
            let length = read_line(&mut self.text, &mut line, MAX_LINE_BYTES)?;
            if length == 0 {
                break;
            }
            self.at.lines += 1;
            self.at.bytes += length as u64;
            if length + self.buffer.len() > MAX_LINE_BYTES {
                return Ok(true);
            }
            for byte in &line {
                nesting.push(*byte);
            }
            self.buffer.append(&mut line);
        }
        Ok(false)
    }

    /// Reads the next byte; `None` at the end.
    fn byte(&mut self) -> io::Result<Option<u8>> {
        let next = fill_buffer(&mut self.text)?.first().copied();
        if next.is_some() {
            self.text.consume(1);
            self.at.bytes += 1;
            self.at.lines += u64::from(next == Some(b'\n'));
        }
        Ok(next)
    }

    /// Reads to the end of the file. After the array, only white space may follow.
    fn end(&mut self) -> io::Result<JsonItem> {
        loop {
            self.record_start = self.at;
            match self.byte()? {
                None => return Ok(JsonItem::End),
                Some(blank) if blank.is_ascii_whitespace() => {}
                Some(_) => {
                    let more = "data follows the array: write one array, or one object per line";
                    return Err(io::Error::other(more));
                }
            }
        }
    }

    /// Reads the next element of the array into the buffer.
    fn element(&mut self) -> io::Result<JsonItem> {
        if self.closed {
            return self.end();
        }
        self.buffer.clear();
        self.record_start = self.at;
        let (mut nesting, mut element) = (Nesting::default(), JsonItem::Record);
        loop {
            let Some(byte) = self.byte()? else {
                // An unclosed array may end with a complete element. The next call reports the truncation.
                if nesting.open.is_empty() && !nesting.in_text && !self.buffer.is_empty() {
                    return Ok(element);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            // JSON strings cannot contain raw line breaks, so a quote is missing. The next element may be valid.
            let is_unterminated = nesting.in_text && byte == b'\n';
            if is_unterminated || nesting.push(byte) {
                self.closed = byte == b']';
                // The array is empty or has a trailing comma.
                if self.closed && self.buffer.is_empty() {
                    return self.end();
                }
                return Ok(element);
            }
            if self.buffer.is_empty() && byte.is_ascii_whitespace() {
                self.record_start = self.at;
                continue;
            }
            if self.buffer.len() >= MAX_LINE_BYTES {
                element = JsonItem::TooLong;
            } else {
                self.buffer.push(byte);
            }
        }
    }
}

impl Rows for JsonRecords {
    fn names(&self) -> Option<&[Arc<str>]> {
        None
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        loop {
            if let Some(inner) = self.inner.pop_front() {
                let members = Members::parse(inner.get().as_bytes());
                return Ok(Some(row(self.line(), members)));
            }
            if self.ended {
                return Ok(None);
            }
            let members = match self.read(|_| true) {
                Err(error) => {
                    self.ended = true;
                    return last_row(self.at.lines + 1, error).map(Some);
                }
                Ok(JsonItem::End) => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(JsonItem::Yield) => continue,
                Ok(JsonItem::TooLong) => Err(too_long()),
                Ok(JsonItem::Record) => Members::parse(&self.buffer),
            };
            match members.as_ref().ok().and_then(Members::wrapped) {
                Some(inner) => self.inner = inner,
                None => return Ok(Some(row(self.line(), members))),
            }
        }
    }
}

fn row(line: u64, members: Result<Members, String>) -> Row {
    match members {
        Err(problem) => Row::broken(line, problem),
        Ok(members) => Row {
            line,
            cells: members.into_cells(),
            problem: None,
        },
    }
}
