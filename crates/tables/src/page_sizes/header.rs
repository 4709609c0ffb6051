//! Reads the sizes in the header of a Parquet page, in Thrift's compact protocol.

use std::io::{self, Read};

/// The longest page header, which contains numbers and the page's minimum and maximum.
pub(super) const MAX_HEADER_BYTES: u64 = 1 << 20;
/// The deepest nesting of structs in a header; the format needs 3 levels.
const MAX_DEPTH: u32 = 8;
/// The page type of dictionaries.
const DICTIONARY_PAGE: i64 = 2;

/// Types of fields in Thrift's compact protocol. Numbers up to 64 bits have the types from `I16` to `I64`.
mod thrift {
    pub const STOP: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const STRUCT: u8 = 12;
}

/// The sizes in a page header, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageSize {
    pub is_dictionary: bool,
    pub uncompressed: u64,
    pub compressed: u64,
    /// Number of bytes of levels at the start of the page; levels are never compressed.
    pub levels: u64,
}

/// A reader for a page header in Thrift's compact protocol
/// (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).
pub(super) struct Header<R>(pub io::Take<R>);

impl<R: Read> Header<R> {
    /// Reads the `PageHeader` struct: field 1 is the page type, 2 and 3 are sizes, and 8 is the header of version 2,
    /// whose fields 5 and 6 are sizes of levels
    /// (<https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>).
    pub fn read(&mut self) -> io::Result<PageSize> {
        let mut page = PageSize::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1, thrift::I32) => page.is_dictionary = self.number()? == DICTIONARY_PAGE,
                (2, thrift::I32) => page.uncompressed = self.size()?,
                (3, thrift::I32) => page.compressed = self.size()?,
                (8, thrift::STRUCT) => {
                    let mut field = 0;
                    while let Some(kind) = self.field(&mut field)? {
                        match (field, kind) {
                            (5 | 6, thrift::I32) => {
                                page.levels = page.levels.saturating_add(self.size()?);
                            }
                            _ => self.skip(kind, 1)?,
                        }
                    }
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(page)
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// Reads the type of a struct's next field; returns `None` at the end of the struct.
    fn field(&mut self, id: &mut i64) -> io::Result<Option<u8>> {
        let byte = self.byte()?;
        if byte == thrift::STOP {
            return Ok(None);
        }
        *id = match byte >> 4 {
            0 => self.number()?,
            more => id.saturating_add(i64::from(more)),
        };
        Ok(Some(byte & 15))
    }

    /// Reads a number of seven bits per byte, the lowest first.
    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(invalid_header("an unterminated number"))
    }

    /// Reads a zigzag number, whose lowest bit is the sign.
    fn number(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).expect("63 bits fit into an i64");
        Ok(if value & 1 == 1 { !half } else { half })
    }

    /// Reads a number that must not be negative.
    fn size(&mut self) -> io::Result<u64> {
        let size = self.number()?;
        u64::try_from(size).map_err(|_| invalid_header("a negative size"))
    }

    /// Skips the value of a field. `depth` is the number of structs and lists around it, besides the
    /// header itself.
    fn skip(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(invalid_header("structs nested too deeply"));
        }
        match kind {
            // The type itself encodes true or false, so there is no value to skip.
            thrift::TRUE | thrift::FALSE => Ok(()),
            thrift::BYTE => self.byte().map(drop),
            thrift::I16 | thrift::I32 | thrift::I64 => self.varint().map(drop),
            thrift::DOUBLE => self.skip_bytes(8),
            thrift::BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            thrift::LIST | thrift::SET => {
                let head = self.byte()?;
                let length = match head >> 4 {
                    15 => self.varint()?,
                    length => u64::from(length),
                };
                for _ in 0..length {
                    match head & 15 {
                        // In a list, unlike in a field, a Boolean takes a byte.
                        thrift::TRUE | thrift::FALSE => self.byte().map(drop)?,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
                Ok(())
            }
            thrift::STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            // Page headers contain no maps.
            _ => Err(invalid_header("a field of an unknown type")),
        }
    }

    fn skip_bytes(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
        if skipped == length {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

fn invalid_header(why: &str) -> io::Error {
    io::Error::other(format!("invalid page header: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: &[u8]) -> io::Result<PageSize> {
        Header(bytes.take(MAX_HEADER_BYTES)).read()
    }

    #[test]
    fn page_sizes_are_read_from_headers() {
        // This is a data page of 300 bytes, compressed to 20. A checksum, a version 1 header with a number, and a
        // string are skipped.
        let page = [
            0x15, 0, 0x15, 0xd8, 4, 0x15, 40, 0x15, 9, 0x1c, 0x15, 2, 0x18, 3, b'a', b'b', b'c', 0,
            0,
        ];
        let expected = PageSize {
            is_dictionary: false,
            uncompressed: 300,
            compressed: 20,
            levels: 0,
        };
        assert_eq!(header(&page).unwrap(), expected);
        // Version 2 has 3 bytes of definition levels, 4 of repetition levels, and a flag.
        let page = [
            0x15, 6, 0x15, 20, 0x15, 20, 0x5c, 0x15, 2, 0x15, 0, 0x15, 2, 0x15, 0, 0x15, 6, 0x15,
            8, 0x12, 0, 0,
        ];
        assert_eq!(header(&page).unwrap().levels, 7);
        let dictionary = [0x15, 4, 0x15, 2, 0x15, 2, 0];
        assert!(header(&dictionary).unwrap().is_dictionary);
    }

    #[test]
    fn invalid_headers_are_rejected_within_bounds() {
        let deep = [0x1c; 100];
        let endless_number = [
            0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ];
        let long_text = [0x18, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3];
        let long_list = [0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let below_zero = [0x15, 0, 0x15, 1];
        for bad in [
            &[][..],
            &deep,
            &endless_number,
            &long_text,
            &long_list,
            &below_zero,
            b"PAR1",
        ] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
