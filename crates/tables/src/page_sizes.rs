//! How large the pages of a Parquet file are, before any of them is unpacked.
//!
//! What enters is a file and the columns that will be read, what leaves is an error where unpacking them would take
//! more memory than a table of posts needs: a file of 59 kB can hold a cell of 1.9 GB. A page says how large it is in
//! a header before it, in Thrift's compact form, of which only that is read here. Where a codec does not keep to what
//! the header says, the page is unpacked once into nothing.

use std::fs::File;
use std::io::{self, Read};

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::ParquetFault;

/// The largest page: `DuckDB` writes up to 100 MB, other writers 1 MiB
/// (<https://github.com/duckdb/duckdb>, `MAX_UNCOMPRESSED_PAGE_SIZE`).
const MAX_PAGE_BYTES: u64 = 128 << 20;
/// The largest page and dictionary of each column, summed over all columns: what is in memory at once.
const MAX_PAGES_BYTES: u64 = 512 << 20;
/// A header holds numbers, and the least and the greatest value of its page.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// Structures in structures in a header; the format has 3.
const MAX_DEPTH: u32 = 8;

/// Checks the pages of these columns.
///
/// # Errors
/// [`ParquetFault::TooLarge`], and [`ParquetFault::Damaged`] for a header that is none.
pub fn check(file: &File, about: &ParquetMetaData, columns: &[usize]) -> Result<(), ParquetFault> {
    let mut groups = about.row_groups().iter();
    groups.try_for_each(|group| check_group(file, group, columns))
}

fn check_group(
    file: &File,
    group: &RowGroupMetaData,
    columns: &[usize],
) -> Result<(), ParquetFault> {
    let end = Length::len(file);
    let mut together = 0;
    for column in columns {
        let Some(chunk) = group.columns().get(*column) else {
            return Err(ParquetFault::damaged("a column is not there"));
        };
        let (start, length) = chunk.byte_range();
        // The file's own numbers, which a damaged or hostile file may have anything in.
        let stop = start.saturating_add(length).min(end);
        together += largest_pages(file, start..stop, chunk.compression())?;
    }
    if together > MAX_PAGES_BYTES {
        let mib = together >> 20;
        return Err(ParquetFault::TooLarge {
            what: format!("pages of {mib} MiB would be in memory at once"),
            most: MAX_PAGES_BYTES,
        });
    }
    Ok(())
}

/// Bytes of the largest data page and the largest dictionary of a column, unpacked.
fn largest_pages(
    file: &File,
    place: std::ops::Range<u64>,
    codec: Compression,
) -> Result<u64, ParquetFault> {
    let (mut data, mut dictionary) = (0, 0);
    let mut at = place.start;
    while at < place.end {
        let mut reader = file.get_read(at)?;
        let mut header = Header(reader.by_ref().take(MAX_HEADER_BYTES.min(place.end - at)));
        let room = header.0.limit();
        let page = header.read().map_err(ParquetError::from)?;
        at += room - header.0.limit();
        if page.packed > place.end - at {
            return Err(ParquetFault::damaged("a page ends behind its column"));
        }
        let mut bytes = page.unpacked.max(page.packed);
        if bytes <= MAX_PAGE_BYTES && page.packed > 0 {
            let levels = io::copy(&mut reader.by_ref().take(page.levels), &mut io::sink());
            levels.map_err(ParquetError::from)?;
            let packed = reader.by_ref().take(page.packed);
            bytes = bytes.max(unpacked(codec, packed));
        }
        if bytes > MAX_PAGE_BYTES {
            let size = if bytes == u64::MAX {
                "more than it says".to_owned()
            } else {
                format!("{} MiB", bytes >> 20)
            };
            return Err(ParquetFault::TooLarge {
                what: format!("a page of it holds {size}"),
                most: MAX_PAGE_BYTES,
            });
        }
        let of_its_kind = if page.is_dictionary {
            &mut dictionary
        } else {
            &mut data
        };
        // The reader has one page of each kind of a column in memory at a time, so the largest ones count.
        *of_its_kind = bytes.max(*of_its_kind);
        at += page.packed;
    }
    Ok(data + dictionary)
}

/// Bytes that a page unpacks to where the library does not stop at what the header says; 0 of other codecs.
/// `u64::MAX`: more than may be.
fn unpacked(codec: Compression, packed: impl Read) -> u64 {
    match codec {
        // These two unpack as much as there is, whatever the header says; the other codecs are handed a buffer of its
        // size.
        Compression::GZIP(_) => count(flate2::read::MultiGzDecoder::new(packed)),
        Compression::LZ4 => count(lz4_flex::frame::FrameDecoder::new(packed)),
        _ => 0,
    }
}

fn count(unpacked: impl Read) -> u64 {
    let mut unpacked = unpacked.take(MAX_PAGE_BYTES + 1);
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        match unpacked.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What is damaged is told by whoever reads it; here counts what comes before.
            Ok(0) | Err(_) => break,
            Ok(read) => bytes += read as u64,
        }
    }
    if bytes > MAX_PAGE_BYTES {
        u64::MAX
    } else {
        bytes
    }
}

/// What a header says of its page.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageSize {
    is_dictionary: bool,
    unpacked: u64,
    packed: u64,
    /// How many of them stand at the beginning and are never packed.
    levels: u64,
}

/// A header in Thrift's compact form
/// (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).
struct Header<R>(io::Take<R>);

impl<R: Read> Header<R> {
    /// The struct `PageHeader`: 1 is its kind, 2 and 3 its sizes, 8 what pages of version 2 say, of which 5 and 6 are
    /// sizes, too
    /// (<https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>).
    fn read(&mut self) -> io::Result<PageSize> {
        let mut page = PageSize::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1, 5) => page.is_dictionary = self.number()? == 2,
                (2, 5) => page.unpacked = self.size()?,
                (3, 5) => page.packed = self.size()?,
                (8, 12) => {
                    let mut field = 0;
                    while let Some(kind) = self.field(&mut field)? {
                        match (field, kind) {
                            (5 | 6, 5) => page.levels = page.levels.saturating_add(self.size()?),
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

    /// The kind of the next field of a struct; `None` at its end.
    fn field(&mut self, id: &mut i64) -> io::Result<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        *id = match byte >> 4 {
            0 => self.number()?,
            more => id.saturating_add(i64::from(more)),
        };
        Ok(Some(byte & 15))
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(no_header("a number without an end"))
    }

    /// A number with its sign in the lowest bit.
    fn number(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).expect("one bit less");
        // Thrift's zigzag form: the lowest bit is the sign.
        Ok(if value & 1 == 1 { !half } else { half })
    }

    fn size(&mut self) -> io::Result<u64> {
        let size = self.number()?;
        u64::try_from(size).map_err(|_| no_header("a size below 0"))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(no_header("structures too deep"));
        }
        match kind {
            // True and false are their kind.
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let length = match head >> 4 {
                    15 => self.varint()?,
                    length => u64::from(length),
                };
                for _ in 0..length {
                    match head & 15 {
                        // In a list, unlike in a field, true and false take a byte.
                        1 | 2 => self.byte().map(drop)?,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
                Ok(())
            }
            12 => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            // No header has a map.
            _ => Err(no_header("a field of an unknown kind")),
        }
    }

    fn pass(&mut self, length: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
        if passed == length {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

fn no_header(why: &str) -> io::Error {
    io::Error::other(format!("a page without a header: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn header(bytes: &[u8]) -> io::Result<PageSize> {
        Header(bytes.take(MAX_HEADER_BYTES)).read()
    }

    #[test]
    fn a_header_says_how_large_its_page_is() {
        // A data page of 300 bytes, packed into 20; what else is there is passed over: a checksum, a header of version
        // 1 with a number, and a text.
        let page = [
            0x15, 0, 0x15, 0xd8, 4, 0x15, 40, 0x15, 9, 0x1c, 0x15, 2, 0x18, 3, b'a', b'b', b'c', 0,
            0,
        ];
        let expected = PageSize {
            is_dictionary: false,
            unpacked: 300,
            packed: 20,
            levels: 0,
        };
        assert_eq!(header(&page).unwrap(), expected);
        // In version 2, 3 bytes of definition levels and 4 of repetition levels come first, a flag last.
        let page = [
            0x15, 6, 0x15, 20, 0x15, 20, 0x5c, 0x15, 2, 0x15, 0, 0x15, 2, 0x15, 0, 0x15, 6, 0x15,
            8, 0x12, 0, 0,
        ];
        assert_eq!(header(&page).unwrap().levels, 7);
        let dictionary = [0x15, 4, 0x15, 2, 0x15, 2, 0];
        assert!(header(&dictionary).unwrap().is_dictionary);
    }

    #[test]
    fn a_header_that_is_none_is_refused_without_taking_it_at_its_word() {
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

    #[test]
    fn a_page_that_unpacks_to_more_than_it_says_is_found_out() {
        let nothing = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        for _ in 0..=MAX_PAGE_BYTES >> 20 {
            gzip.write_all(&nothing).unwrap();
            lz4.write_all(&nothing).unwrap();
        }
        let gzip = gzip.finish().unwrap();
        assert!(gzip.len() < 1 << 20);
        assert_eq!(
            unpacked(
                Compression::GZIP(parquet::basic::GzipLevel::default()),
                &gzip[..]
            ),
            u64::MAX
        );
        assert_eq!(
            unpacked(Compression::LZ4, &lz4.finish().unwrap()[..]),
            u64::MAX
        );
        assert_eq!(unpacked(Compression::SNAPPY, &gzip[..]), 0);
    }
}
