//! Bytes of CSV on their way to the library that reads it: bounded, and with an eye on the quotes.

use std::collections::VecDeque;
use std::io::{self, Read};

/// A row of a table above this is none, but a quote that nobody closed.
const MAX_ROW_BYTES: u64 = 32 << 20;

/// Reads no more than `left` bytes until it is told how many again, and finds quotes that should have been doubled.
#[derive(Debug)]
pub(super) struct Limited<R> {
    reader: R,
    left: u64,
    /// Quotes so far.
    pub(super) quotes: u64,
    delimiter: u8,
    /// Bytes so far, and the last of them.
    passed: u64,
    last: u8,
    /// Whether a value in quotes is open.
    open: bool,
    /// Whether the last byte so far is a quote in it: of two, or the one that closes it.
    pending: bool,
    /// Places of quotes within such a value that are not doubled.
    bare: VecDeque<u64>,
}

impl<R> Limited<R> {
    /// Reads from `reader` as much as a row may have.
    pub(super) fn new(reader: R, delimiter: u8) -> Self {
        Self {
            reader,
            left: MAX_ROW_BYTES,
            quotes: 0,
            delimiter,
            passed: 0,
            last: b'\n',
            open: false,
            pending: false,
            bare: VecDeque::new(),
        }
    }

    /// Lets another row be read.
    pub(super) fn next_row(&mut self) {
        self.left = MAX_ROW_BYTES;
    }

    /// Follows the quotes as the library does, which takes one that is not doubled for the end of its value.
    fn follow(&mut self, bytes: &[u8]) {
        let ends = |byte: u8| byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        let mut from = 0;
        loop {
            if let Some(next) = bytes.get(from).filter(|_| self.pending) {
                self.pending = false;
                self.open = *next == b'"';
                if self.open {
                    from += 1;
                } else if !ends(*next) && *next != b' ' {
                    self.bare.push_back(self.passed + from as u64);
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
        self.passed += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Whether a quote in front of this place is not doubled; it is forgotten then.
    pub(super) fn has_bare_quote(&mut self, until: u64) -> bool {
        let before = self.bare.len();
        self.bare.retain(|at| *at >= until);
        self.bare.len() < before
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = format!(
                "a row is longer than {} MiB: a quote that is not closed?",
                MAX_ROW_BYTES >> 20
            );
            return Err(io::Error::other(reason));
        }
        let n = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(n as u64);
        // The library does not say whether a quote was open at the end of the file; an odd number of them does.
        self.quotes += memchr::memchr_iter(b'"', &buffer[..n]).count() as u64;
        self.follow(&buffer[..n]);
        Ok(n)
    }
}
