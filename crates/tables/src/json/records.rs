//! Reads records of JSON one after another, however they are laid out.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Members, Nesting, looks_like_json, too_long};
use crate::bytes::TextReader;
use crate::lines::{MAX_LINE_BYTES, fill_buffer, last_row, read_line};
use crate::{Row, Rows, TableError};

/// After so many bytes without a record that is wanted, the caller gets control.
const QUIET_BYTES: u64 = 16 << 20;

/// What reading on came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonItem {
    /// A record, which is in the buffer.
    Record,
    /// More than can be held; it was passed over.
    TooLong,
    /// Nothing that is wanted for quite a while; reading goes on.
    Yield,
    /// The end of the file.
    End,
}

/// How far JSON was read: totals from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonPosition {
    /// Bytes of text.
    pub bytes: u64,
    /// Lines, blank ones too.
    pub lines: u64,
    /// Lines that were not wanted.
    pub left_out: u64,
}

/// The records of JSON, however they are laid out; one of them is held at a time.
pub struct JsonRecords {
    text: TextReader,
    buffer: Vec<u8>,
    at: JsonPosition,
    /// Where the record in the buffer begins.
    begun: JsonPosition,
    /// Whether the records are the elements of an array; `None` before the first byte.
    is_array: Option<bool>,
    /// The array's end was read.
    closed: bool,
    ended: bool,
    /// Bytes that an earlier reading has dealt with.
    skip: u64,
    resumed: Option<JsonPosition>,
    /// Records that the one in the buffer wraps and that are not read yet.
    inner: VecDeque<Box<RawValue>>,
}

impl JsonRecords {
    /// Reads JSON in UTF-8.
    pub fn new(text: TextReader) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            at: JsonPosition::default(),
            begun: JsonPosition::default(),
            is_array: None,
            closed: false,
            ended: false,
            skip: 0,
            resumed: None,
            inner: VecDeque::new(),
        }
    }

    /// The record that was read last.
    pub fn record(&self) -> &[u8] {
        &self.buffer
    }

    /// The line on which it begins.
    pub fn line(&self) -> u64 {
        self.begun.lines + 1
    }

    /// How far this is: as long as records are left of those that one wraps, in front of that one.
    pub fn position(&self) -> JsonPosition {
        if self.inner.is_empty() {
            self.at
        } else {
            self.begun
        }
    }

    /// Goes on from a place that a reading of the same text was at; called before the first record.
    pub fn resume(&mut self, place: JsonPosition) {
        self.resumed = Some(place);
    }

    /// Whether the records are the elements of an array.
    pub fn is_array(&self) -> bool {
        self.is_array == Some(true)
    }

    /// Takes the records that the last one wraps, to hand them out first.
    pub fn push_inner(&mut self, inner: VecDeque<Box<RawValue>>) {
        self.inner = inner;
    }

    /// The next of the records that were wrapped.
    pub fn next_inner(&mut self) -> Option<Box<RawValue>> {
        self.inner.pop_front()
    }

    /// Reads the next record that may be wanted. Lines that are not are passed over where they lie, without being copied,
    /// parsed or looked at for their encoding: of a dump these are nearly all.
    ///
    /// # Errors
    /// When the text cannot be read, and when it ends within an array or has more behind it.
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
            self.begun = self.at;
            match self.next_line()? {
                0 => return Ok(JsonItem::End),
                length if length > MAX_LINE_BYTES => return Ok(JsonItem::TooLong),
                _ if self.buffer.trim_ascii().is_empty() => continue,
                _ => {}
            }
            if self.read_on()? {
                return Ok(JsonItem::TooLong);
            }
            if wanted(&self.buffer) {
                return Ok(JsonItem::Record);
            }
            self.at.left_out += self.at.lines - self.begun.lines;
        }
    }

    /// Whether this is an array. White space before it is passed over, and so is its bracket.
    fn find_layout(&mut self) -> io::Result<bool> {
        loop {
            let chunk = fill_buffer(&mut self.text)?;
            let blank = chunk.len() - chunk.trim_ascii_start().len();
            let (is_blank, is_array) = (
                blank == chunk.len(),
                looks_like_json(&chunk[blank..]) && chunk[blank] == b'[',
            );
            // The white space of a line of an object stays, as it counts for a column of an error.
            let passed = if is_array {
                blank + 1
            } else if is_blank {
                blank
            } else {
                0
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

    /// Passes over what an earlier reading has dealt with: a text that is unpacked has no place to jump to. Returns how
    /// much there was.
    fn skip_some(&mut self) -> io::Result<u64> {
        let mut passed = 0;
        while passed < QUIET_BYTES && self.skip > 0 {
            let chunk = fill_buffer(&mut self.text)?;
            let skipped = chunk
                .len()
                .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            // The file is shorter than it was.
            if skipped == 0 {
                return Ok(0);
            }
            self.text.consume(skipped);
            self.skip -= skipped as u64;
            passed += skipped as u64;
        }
        Ok(passed)
    }

    /// Passes over whole lines that are not wanted; true if that was so much that the caller should get control.
    fn skip_unwanted(&mut self, wanted: &impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        let mut quiet = 0;
        while quiet < QUIET_BYTES {
            let chunk = fill_buffer(&mut self.text)?;
            let mut passed = 0;
            let mut is_wanted = false;
            for newline in memchr::memchr_iter(b'\n', chunk) {
                let line = &chunk[passed..newline];
                // Part of an object over several lines is no line to judge by.
                let is_object =
                    line.first() == Some(&b'{') && matches!(line.last(), Some(b'}' | b'\r'));
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
            quiet += passed as u64;
            // A line that may be wanted, or no whole line in the buffer: `read` takes over.
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

    /// Reads the other lines of an object that does not end on its first one; whether it is too long. A line that breaks
    /// off is none: the next object begins behind it.
    fn read_on(&mut self) -> io::Result<bool> {
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
            // Within an object stands a name: this is the next record.
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

    /// The next byte; `None` at the end.
    fn byte(&mut self) -> io::Result<Option<u8>> {
        let next = fill_buffer(&mut self.text)?.first().copied();
        if next.is_some() {
            self.text.consume(1);
            self.at.bytes += 1;
            self.at.lines += u64::from(next == Some(b'\n'));
        }
        Ok(next)
    }

    /// Reads what stands behind the array, which is nothing.
    fn end(&mut self) -> io::Result<JsonItem> {
        loop {
            self.begun = self.at;
            match self.byte()? {
                None => return Ok(JsonItem::End),
                Some(blank) if blank.is_ascii_whitespace() => {}
                Some(_) => {
                    let more =
                        "more stands behind the array: a file is one array, or an object a line";
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
        self.begun = self.at;
        let (mut nesting, mut whole) = (Nesting::default(), true);
        loop {
            let Some(byte) = self.byte()? else {
                // An array that is not closed may end with a whole element; the next call finds nothing more.
                let is_whole = nesting.open.is_empty() && !nesting.in_text;
                if is_whole && !self.buffer.is_empty() {
                    return Ok(if whole {
                        JsonItem::Record
                    } else {
                        JsonItem::TooLong
                    });
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            // A text of JSON has no line end: its quote is missing, and the next element may be sound.
            let is_torn = nesting.in_text && byte == b'\n';
            if is_torn || nesting.push(byte) {
                self.closed = byte == b']';
                // `[]`, and the comma that some leave behind the last element.
                if self.closed && self.buffer.is_empty() {
                    return self.end();
                }
                return Ok(if whole {
                    JsonItem::Record
                } else {
                    JsonItem::TooLong
                });
            }
            if self.buffer.is_empty() && byte.is_ascii_whitespace() {
                self.begun = self.at;
                continue;
            }
            whole &= self.buffer.len() < MAX_LINE_BYTES;
            if whole {
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
