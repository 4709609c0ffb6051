//! Tracks quotes in CSV in the same way as the CSV library: a quote opens only at the start of a value.
//!
//! [`Quoting`] is the state between two bytes. [`QuoteTracker`] wraps the input to the library, to limit the length of
//! rows and to find quotes that are not doubled, which the library accepts without an error.

use std::collections::VecDeque;
use std::io::{self, Read};

/// The longest accepted row. A longer row probably has an unclosed quote.
const MAX_ROW_BYTES: u64 = 32 << 20;

/// The state after a byte of CSV.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Quoting {
    /// Outside a quoted value.
    #[default]
    Unquoted,
    /// Inside a quoted value.
    Quoted,
    /// After a quote inside a quoted value: the first of a pair, or the closing one.
    AfterQuote,
}

impl Quoting {
    /// Returns the state after the next byte. `starts_value` is true if it is the first byte of a value.
    pub(super) fn after(self, byte: u8, starts_value: bool) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::AfterQuote,
            (Self::Quoted, _) | (Self::AfterQuote, b'"') => Self::Quoted,
            (Self::Unquoted, b'"') if starts_value => Self::Quoted,
            (Self::Unquoted | Self::AfterQuote, _) => Self::Unquoted,
        }
    }
}

/// A reader that fails after [`MAX_ROW_BYTES`] without a call to [`Self::next_row`], and records the positions of
/// quotes that should be doubled.
#[derive(Debug)]
pub(super) struct QuoteTracker<R> {
    reader: R,
    delimiter: u8,
    /// Number of bytes that may still be read for the current row.
    left: u64,
    /// Number of bytes read so far.
    bytes_read: u64,
    /// Last byte read.
    last: u8,
    /// The state after the last byte.
    quoting: Quoting,
    /// Offsets after quotes that are not doubled.
    bare: VecDeque<u64>,
}

impl<R> QuoteTracker<R> {
    /// Tracks the quotes of CSV with this delimiter.
    pub(super) fn new(reader: R, delimiter: u8) -> Self {
        Self {
            reader,
            delimiter,
            left: MAX_ROW_BYTES,
            bytes_read: 0,
            last: b'\n',
            quoting: Quoting::Unquoted,
            bare: VecDeque::new(),
        }
    }

    /// Resets the limit for the next row.
    pub(super) fn next_row(&mut self) {
        self.left = MAX_ROW_BYTES;
    }

    /// Updates the state and the positions after a read. Only quotes and the bytes next to them change the state.
    fn track_quotes(&mut self, bytes: &[u8]) {
        let ends_value = |byte: u8| byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        let mut next = 0;
        loop {
            if self.quoting == Quoting::AfterQuote
                && let Some(byte) = bytes.get(next)
            {
                self.quoting = self.quoting.after(*byte, false);
                if self.quoting == Quoting::Quoted {
                    next += 1;
                } else if !ends_value(*byte) && *byte != b' ' {
                    self.bare.push_back(self.bytes_read + next as u64);
                }
            }
            let Some(distance) = memchr::memchr(b'"', &bytes[next..]) else {
                break;
            };
            let quote = next + distance;
            let before = quote.checked_sub(1).map_or(self.last, |index| bytes[index]);
            self.quoting = self.quoting.after(b'"', ends_value(before));
            next = quote + 1;
        }
        self.bytes_read += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Returns true if a quoted value is not closed.
    pub(super) fn is_open(&self) -> bool {
        self.quoting == Quoting::Quoted
    }

    /// Returns true if a quote before the offset `until` is not doubled, and removes such quotes from the record.
    pub(super) fn has_bare_quote(&mut self, until: u64) -> bool {
        let before = self.bare.len();
        self.bare.retain(|at| *at >= until);
        self.bare.len() < before
    }
}

impl<R: Read> Read for QuoteTracker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = format!(
                "a row is longer than {} MiB: is there a quote that is not closed?",
                MAX_ROW_BYTES >> 20
            );
            return Err(io::Error::other(reason));
        }
        let n = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(n as u64);
        self.track_quotes(&buffer[..n]);
        Ok(n)
    }
}
