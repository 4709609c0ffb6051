//! Decodes UTF-16 to UTF-8 while reading.

use std::io::{self, Read};

/// Number of bytes decoded at once. Any number far above a code unit's would do.
const CHUNK_BYTES: usize = 1 << 15;

/// Reads a UTF-16 code unit in some byte order.
pub(super) type CodeUnit = fn([u8; 2]) -> u16;

/// A reader that decodes UTF-16 to UTF-8. An unpaired surrogate, or half a code unit at the end, becomes U+FFFD.
pub(super) struct Utf16<R> {
    reader: R,
    unit: CodeUnit,
    /// First byte of an incomplete code unit.
    odd: Vec<u8>,
    /// High surrogate whose low surrogate has not been read yet.
    high: Option<u16>,
    /// Decoded text.
    ready: Vec<u8>,
    /// Number of bytes of `ready` that have been returned.
    at: usize,
}

impl<R: Read> Utf16<R> {
    /// Decodes what `reader` returns, in the byte order of `unit`.
    pub(super) fn new(reader: R, unit: CodeUnit) -> Self {
        Self {
            reader,
            unit,
            odd: Vec::new(),
            high: None,
            ready: Vec::new(),
            at: 0,
        }
    }

    /// Decodes the next bytes; returns false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = vec![0; CHUNK_BYTES];
        let n = self.reader.read(&mut bytes)?;
        let ended = n == 0;
        let mut pending = std::mem::take(&mut self.odd);
        pending.extend_from_slice(&bytes[..n]);
        let (pairs, rest) = pending.as_chunks::<2>();
        let mut units: Vec<u16> = self.high.take().into_iter().collect();
        units.extend(pairs.iter().map(|pair| (self.unit)(*pair)));
        if ended {
            // Half a code unit is decoded as an unpaired surrogate.
            units.extend(rest.first().map(|_| 0xdc00));
        } else {
            self.odd = rest.to_vec();
            self.high = units.pop_if(|last| matches!(last, 0xd800..=0xdbff));
        }
        let text: String = char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        (self.ready, self.at) = (text.into_bytes(), 0);
        Ok(!(ended && self.ready.is_empty()))
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Loops because the bytes read may not complete a character.
        while self.at == self.ready.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let n = buffer.len().min(self.ready.len() - self.at);
        buffer[..n].copy_from_slice(&self.ready[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}
