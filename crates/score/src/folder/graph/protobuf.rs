//! Reads the wire format of protobuf from a file: keys, numbers and texts
//! (<https://protobuf.dev/programming-guides/encoding/>). Nothing is trusted: a length may exceed the file.

use std::fs::File;
use std::io::{self, BufReader, Read};

/// Size limit for a text or a key-value entry; most systems limit paths to 4,096 bytes.
pub(super) const MAX_TEXT: u64 = 64 << 10;

// Wire types.
pub(super) const VARINT: u64 = 0;
pub(super) const FIXED_64: u64 = 1;
pub(super) const LENGTH_DELIMITED: u64 = 2;
pub(super) const FIXED_32: u64 = 5;

/// Number and wire type of a field.
pub(super) struct Key {
    pub field: u64,
    pub wire_type: u64,
}

/// The bytes of a file, read in order.
pub(super) struct ProtobufInput {
    input: BufReader<File>,
    /// Number of bytes read so far.
    pub position: u64,
}

impl ProtobufInput {
    pub fn new(file: File) -> Self {
        let (input, position) = (BufReader::new(file), 0);
        Self { input, position }
    }

    /// Reads a text of this length.
    pub fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > MAX_TEXT {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        self.input.read_exact(&mut bytes)?;
        self.position += length;
        Ok(bytes)
    }

    /// Skips bytes of a message that ends at `end`.
    pub fn skip(&mut self, bytes: u64, end: u64) -> io::Result<()> {
        if bytes > end.saturating_sub(self.position) {
            return Err(damaged());
        }
        self.position += bytes;
        let offset = i64::try_from(bytes).map_err(|_| damaged())?;
        self.input.seek_relative(offset)
    }

    /// Reads a field's number and wire type. A key longer than 32 bits is an error: other parsers truncate it and could
    /// then read a field that is skipped here.
    pub fn key(&mut self) -> io::Result<Key> {
        let key = self.varint()?;
        let (field, wire_type) = (key >> 3, key & 7);
        if u32::try_from(key).is_err() || field == 0 {
            return Err(damaged());
        }
        Ok(Key { field, wire_type })
    }

    /// Reads a number: seven bits a byte, lowest first.
    pub fn varint(&mut self) -> io::Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte).map_err(|_| damaged())?;
            self.position += 1;
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged())
    }
}

/// Returns the error for a file that is not a graph, or only a part of one.
pub(super) fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file is truncated, or is not an ONNX graph",
    )
}
