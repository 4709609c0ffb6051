//! Wraps the input to the CSV library, to limit the length of rows and to find unescaped quotes.

use std::collections::VecDeque;
use std::io::{self, Read};

/// The longest accepted row. A longer row probably has an unclosed quote.
const MAX_ROW_BYTES: u64 = 32 << 20;

/// A reader that fails after [`MAX_ROW_BYTES`] without a call to [`Self::next_row`], and records the positions of
/// quotes that should be doubled.
#[derive(Debug)]
pub(super) struct QuoteTracker<R> {
    reader: R,
    left: u64,
    delimiter: u8,
    /// Number of bytes read so far.
    bytes_read: u64,
    /// Last byte read.
    last: u8,
    /// True inside a quoted value.
    open: bool,
    /// True if the last byte is a quote inside a quoted value: the first of a pair, or the closing one.
    pending: bool,
    /// Offsets after quotes that are not doubled.
    bare: VecDeque<u64>,
}

impl<R> QuoteTracker<R> {
    /// Tracks the quotes of CSV with this delimiter.
    pub(super) fn new(reader: R, delimiter: u8) -> Self {
        Self {
            reader,
            left: MAX_ROW_BYTES,
            delimiter,
            bytes_read: 0,
            last: b'\n',
            open: false,
            pending: false,
            bare: VecDeque::new(),
        }
    }

    /// Resets the limit for the next row.
    pub(super) fn next_row(&mut self) {
        self.left = MAX_ROW_BYTES;
    }

    /// Tracks quotes in the same way as the library, which ends a value at a quote that is not doubled.
    fn track_quotes(&mut self, bytes: &[u8]) {
        let ends = |byte: u8| byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        let mut from = 0;
        loop {
            if self.pending
                && let Some(next) = bytes.get(from)
            {
                self.pending = false;
                self.open = *next == b'"';
                if self.open {
                    from += 1;
                } else if !ends(*next) && *next != b' ' {
                    self.bare.push_back(self.bytes_read + from as u64);
                }
            }
            let Some(at) = memchr::memchr(b'"', &bytes[from..]) else {
                break;
            };
            let before = (from + at).checked_sub(1).map(|at| bytes[at]);
            self.pending = self.open;
            self.open |= ends(before.unwrap_or(self.last));
            from += at + 1;
        }
        self.bytes_read += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Returns true if a quoted value is not closed.
    pub(super) fn is_open(&self) -> bool {
        self.open && !self.pending
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
