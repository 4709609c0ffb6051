//! Checks the uncompressed size of Parquet pages before they are read, to bound memory.
//!
//! A 59 kB Parquet file can contain a 1.9 GB cell. [`check`] takes a file and the columns to read, and returns an error
//! if reading the columns would need too much memory. The sizes come from the page headers. For codecs whose decoder
//! ignores the size in the header, the page is decompressed once and discarded.

mod header;

use std::fs::File;
use std::io::{self, Read};

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use self::header::{Header, MAX_HEADER_BYTES};
use super::ParquetFault;

/// The largest page in bytes: `DuckDB` writes up to 100 MB, and other writers up to 1 MiB
/// (<https://github.com/duckdb/duckdb>, `MAX_UNCOMPRESSED_PAGE_SIZE`).
const MAX_PAGE_BYTES: u64 = 128 << 20;
/// Maximum number of bytes in memory at once: the largest page and dictionary in each column, summed over all columns.
const MAX_PAGES_BYTES: u64 = 512 << 20;

/// Checks the pages in these columns.
///
/// # Errors
/// Returns [`ParquetFault::TooLarge`], or [`ParquetFault::Damaged`] for an invalid header.
pub fn check(
    file: &File,
    metadata: &ParquetMetaData,
    columns: &[usize],
) -> Result<(), ParquetFault> {
    let mut groups = metadata.row_groups().iter();
    groups.try_for_each(|group| check_group(file, group, columns))
}

fn check_group(
    file: &File,
    group: &RowGroupMetaData,
    columns: &[usize],
) -> Result<(), ParquetFault> {
    let end = Length::len(file);
    let mut total = 0;
    for column in columns {
        let Some(chunk) = group.columns().get(*column) else {
            return Err(ParquetFault::damaged("a column is missing"));
        };
        let (start, length) = chunk.byte_range();
        // A damaged or hostile file may have any numbers here.
        let stop = start.saturating_add(length).min(end);
        total += largest_pages(file, start..stop, chunk.compression())?;
    }
    if total > MAX_PAGES_BYTES {
        let mib = total >> 20;
        return Err(ParquetFault::TooLarge {
            what: format!("pages of {mib} MiB would be in memory at once"),
            limit: MAX_PAGES_BYTES,
        });
    }
    Ok(())
}

/// Returns the uncompressed size of a column's largest data page plus its largest dictionary, in bytes.
fn largest_pages(
    file: &File,
    range: std::ops::Range<u64>,
    codec: Compression,
) -> Result<u64, ParquetFault> {
    let (mut data, mut dictionary) = (0, 0);
    let mut at = range.start;
    while at < range.end {
        let mut reader = file.get_read(at)?;
        let mut header = Header(reader.by_ref().take(MAX_HEADER_BYTES.min(range.end - at)));
        let limit = header.0.limit();
        let page = header.read().map_err(ParquetError::from)?;
        at += limit - header.0.limit();
        if page.compressed > range.end - at {
            return Err(ParquetFault::damaged("a page ends after its column"));
        }
        let too_large = |size: &str| ParquetFault::TooLarge {
            what: format!("a page holds {size}"),
            limit: MAX_PAGE_BYTES,
        };
        let mut bytes = page.uncompressed.max(page.compressed);
        if bytes > MAX_PAGE_BYTES {
            return Err(too_large(&format!("{} MiB", bytes >> 20)));
        }
        if page.compressed > 0 {
            let levels = io::copy(&mut reader.by_ref().take(page.levels), &mut io::sink());
            levels.map_err(ParquetError::from)?;
            let compressed = reader.by_ref().take(page.compressed);
            let size = decompressed_size(codec, compressed);
            bytes = bytes.max(size.ok_or_else(|| too_large("more than its header says"))?);
        }
        let largest = if page.is_dictionary {
            &mut dictionary
        } else {
            &mut data
        };
        // The library holds one data page and one dictionary of a column at a time.
        *largest = bytes.max(*largest);
        at += page.compressed;
    }
    Ok(data + dictionary)
}

/// Returns the uncompressed size of a page in bytes for codecs that ignore the size in the header, and 0 for other
/// codecs. `None` if it exceeds the limit.
fn decompressed_size(codec: Compression, compressed: impl Read) -> Option<u64> {
    match codec {
        // These two codecs ignore the size in the header; the others get a buffer of that size.
        Compression::GZIP(_) => count(flate2::read::MultiGzDecoder::new(compressed)),
        Compression::LZ4 => count(lz4_flex::frame::FrameDecoder::new(compressed)),
        _ => Some(0),
    }
}

/// Counts bytes up to the limit; `None` if there are more.
fn count(decompressed: impl Read) -> Option<u64> {
    let mut decompressed = decompressed.take(MAX_PAGE_BYTES + 1);
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        match decompressed.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The library reports damage when it reads the page.
            Ok(0) | Err(_) => break,
            Ok(read) => bytes += read as u64,
        }
    }
    (bytes <= MAX_PAGE_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_larger_than_their_header_are_detected() {
        let nothing = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        for _ in 0..=MAX_PAGE_BYTES >> 20 {
            gzip.write_all(&nothing).unwrap();
            lz4.write_all(&nothing).unwrap();
        }
        let (gzip, lz4) = (gzip.finish().unwrap(), lz4.finish().unwrap());
        assert!(gzip.len() < 1 << 20);
        let codec = Compression::GZIP(parquet::basic::GzipLevel::default());
        assert_eq!(decompressed_size(codec, &gzip[..]), None);
        assert_eq!(decompressed_size(Compression::LZ4, &lz4[..]), None);
        assert_eq!(decompressed_size(Compression::SNAPPY, &gzip[..]), Some(0));
    }
}
