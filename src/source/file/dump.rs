//! Posts from files, for `import`.
//!
//! What enters is a file: a saved listing, a table, or one post a line, as dumps have it, packed with zstd.
//! What leaves are blocks of posts in the order of the file, and for each row that holds none the reason why.
//! A dump is larger than memory and older than most of its rules: it is unpacked, filtered and parsed as it
//! is read, and what is held is one block. Only zstd's window comes on top, as large as the dump was packed
//! with: the months of Reddit say 2 GiB, which is address space at first, and memory as far as it is filled.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::domain::SourceKind;
use crate::source::listing::{ListingError, parse_listing};
use crate::source::page::{ListingPage, Rejected};
use crate::source::post::Fields;

use super::filter::Filter;
use super::lines::Lines;
use super::row::{FileRow, LONGEST_LINE, Position, Record, Rows};
use super::table::columns::{Column, TableError};
use super::table::csv::Csv;
use super::table::parquet::Parquet;
use crate::tables::bytes;
use topicmill_score::hex;

/// A saved listing above this is none: Reddit's own are a few megabytes at most.
const LARGEST_LISTING: u64 = 256 << 20;
/// Bytes that are hashed to know a file again.
const HASHED: u64 = 1 << 20;
/// Log2 of the largest window that zstd has: 2 GiB, with which the months of Reddit are packed.
const LARGEST_WINDOW: u32 = 31;
/// Records of a block.
const BLOCK_ROWS: usize = 4_000;
/// Bytes of text after which a block ends early.
const BLOCK_TEXT: usize = 8 << 20;
/// Bytes of the file after which a block ends early, so that an import which dies keeps its place.
const BLOCK_BYTES: u64 = 64 << 20;

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// No such file.
    #[error("there is no file `{0}`: check the path")]
    Missing(PathBuf),
    /// A directory.
    #[error("`{0}` is a directory: give the files in it, such as `{0}/*.ndjson`")]
    Directory(PathBuf),
    /// Nothing in it.
    #[error("`{0}` is empty: check that it was written to its end")]
    Empty(PathBuf),
    /// Compressed.
    #[error("`{path}` is compressed: {hint}")]
    Compressed {
        /// The file.
        path: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// Comments.
    #[error("`{0}` holds comments, not posts: take the file of submissions (RS_…) instead")]
    Comments(PathBuf),
    /// zstd could not get its window.
    #[error(
        "`{path}` is packed with a window of up to 2 GiB, for which there is no address space: raise the limit \
         (`ulimit -v unlimited`) or unpack the file elsewhere with `zstd -d --long=31`"
    )]
    Window {
        /// The file.
        path: PathBuf,
        /// What zstd said.
        source: io::Error,
    },
    /// Larger than any listing.
    #[error("`{0}` is larger than any listing: try `--format ndjson`")]
    TooLarge(PathBuf),
    /// A listing in another encoding.
    #[error(
        "`{0}` is not UTF-8: convert the file, with `iconv -f WINDOWS-1252 -t UTF-8` for example"
    )]
    NotUtf8(PathBuf),
    /// Not a listing.
    #[error(
        "`{path}` is not a saved listing: try `--format ndjson` for a file with one post a line"
    )]
    Listing {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ListingError,
    },
    /// Not a table of posts.
    #[error("`{path}`: {source}")]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TableError,
    },
    /// Any other failure of the file system.
    #[error("`{path}` cannot be read: check its permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

impl DumpError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path.clone()),
            io::ErrorKind::IsADirectory => Self::Directory(path.clone()),
            _ => Self::Io {
                path: path.clone(),
                source,
            },
        }
    }
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// One saved listing, as the API answers it, or a comments page.
    Listing,
    /// One post a line.
    Ndjson,
    /// The same, of all of Reddit: packed with zstd or not, read once.
    Dump,
    /// A table with a line of names.
    Csv,
    /// A table.
    Parquet,
}

impl FileFormat {
    /// Whether files of this format are so large that an import which died goes on in the middle.
    pub fn is_resumed(self) -> bool {
        self == Self::Dump
    }
}

/// How files are read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What they hold.
    pub format: FileFormat,
    /// What is wanted of it.
    pub filter: Filter,
    /// Which column of a table holds which field.
    pub columns: Vec<Column>,
}

/// How the reading of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At its end.
    Whole,
    /// Before it: what follows cannot be read.
    Broken,
}

/// Rows that are stored together.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Posts that are wanted.
    pub records: Vec<Record>,
    /// Rows that are none.
    pub rejected: Vec<Rejected>,
    /// Behind its last row.
    pub position: Position,
    /// Bytes of the file, as it lies on the disk, read so far.
    pub read: u64,
    /// Set on the last one.
    pub end: Option<End>,
}

/// The blocks of a file.
pub struct Blocks {
    rows: Box<dyn Rows>,
    filter: Filter,
    /// Rows that were parsed before they were left out.
    left_out: u64,
    read: Arc<AtomicU64>,
}

impl Blocks {
    /// Goes on from a position that a block of the same file, read with the same filter, had.
    pub fn resume(&mut self, position: Position) {
        self.rows.resume(position);
    }

    /// The next block; the one after the last has no rows either.
    pub fn next_block(&mut self) -> Block {
        let (mut records, mut rejected) = (Vec::new(), Vec::new());
        let (mut text, start) = (0, self.rows.position().bytes);
        let end = loop {
            match self.rows.next_row() {
                Some(FileRow::Record(record)) if self.filter.takes(&record.post) => {
                    text += record.post.title.len() + record.post.selftext.len();
                    records.push(record);
                }
                Some(FileRow::Record(_)) => self.left_out += 1,
                Some(FileRow::Rejected(row)) => rejected.push(row),
                // While an earlier reading is made up for, the position stands still.
                Some(FileRow::Quiet) if self.rows.position().bytes == start => break None,
                Some(FileRow::Quiet) => {}
                None if self.rows.broken() => break Some(End::Broken),
                None => break Some(End::Whole),
            }
            let bytes = self.rows.position().bytes - start;
            let rows = records.len() + rejected.len();
            if rows >= BLOCK_ROWS || text >= BLOCK_TEXT || bytes >= BLOCK_BYTES {
                break None;
            }
        };
        let mut position = self.rows.position();
        // The reader of lines counts what it passed over unparsed; this adds what was parsed and then left out.
        position.left_out += self.left_out;
        Block {
            records,
            rejected,
            position,
            read: self.read.load(Ordering::Relaxed),
            end,
        }
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks")
            .field("position", &self.rows.position())
            .finish_non_exhaustive()
    }
}

/// Checks that a file can be read and holds what it should, as far as its first row tells; its size in bytes.
///
/// # Errors
/// See [`DumpError`].
pub fn check(path: &Path, reading: &Reading) -> Result<u64, DumpError> {
    drop(blocks(path, reading)?);
    let io_error = DumpError::of(path);
    Ok(std::fs::metadata(path).map_err(io_error)?.len())
}

/// What a file is known again by: its size and the hash of its first MiB.
///
/// # Errors
/// When it cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, DumpError> {
    let io_error = DumpError::of(path);
    let file = File::open(path).map_err(&io_error)?;
    let size = file.metadata().map_err(&io_error)?.len();
    let mut head = Vec::new();
    file.take(HASHED)
        .read_to_end(&mut head)
        .map_err(&io_error)?;
    Ok(format!("{size}-{}", hex(&Sha256::digest(&head)[..16])))
}

/// The blocks of a file, read as they are asked for; of a listing at once, as it is one document.
///
/// # Errors
/// When the file cannot be read, or is not of this format.
pub fn blocks(path: &Path, reading: &Reading) -> Result<Blocks, DumpError> {
    let read = Arc::new(AtomicU64::new(0));
    let filter = &reading.filter;
    let table_error = |source| DumpError::Table {
        path: path.to_owned(),
        source,
    };
    let rows: Box<dyn Rows> = match reading.format {
        FileFormat::Listing => Box::new(Children::new(read_listing(path)?)),
        FileFormat::Ndjson => Box::new(Lines::new(open(path, &read)?, filter.clone())),
        FileFormat::Dump => {
            // Before the rows are opened: nothing may be stored of a file of comments.
            check_first_row(path)?;
            Box::new(Lines::new(unpacked(path, &read)?, filter.clone()))
        }
        FileFormat::Csv => {
            let rows = Csv::new(open(path, &read)?, &reading.columns);
            Box::new(rows.map_err(table_error)?)
        }
        FileFormat::Parquet => {
            let file = probe(path)?;
            let rows = Parquet::new(file, &reading.columns, &read);
            Box::new(rows.map_err(table_error)?)
        }
    };
    Ok(Blocks {
        rows,
        filter: filter.clone(),
        left_out: 0,
        read,
    })
}

/// Counts what is read of a file.
#[derive(Debug)]
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Opens a file that is there and not empty.
fn probe(path: &Path) -> Result<File, DumpError> {
    let io_error = DumpError::of(path);
    let file = File::open(path).map_err(&io_error)?;
    let about = file.metadata().map_err(&io_error)?;
    if about.is_dir() {
        return Err(DumpError::Directory(path.to_owned()));
    }
    // Only of a plain file: the length of a pipe is 0 as well.
    if about.is_file() && about.len() == 0 {
        return Err(DumpError::Empty(path.to_owned()));
    }
    Ok(file)
}

/// How a file is packed or encoded, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Utf16,
    Zstd,
    Gzip,
}

fn packed(path: &Path, read: &Arc<AtomicU64>) -> Result<(Packing, BufReader<Counted>), DumpError> {
    let file = probe(path)?;
    let counted = Counted {
        file,
        read: read.clone(),
    };
    let mut reader = BufReader::with_capacity(1 << 18, counted);
    let packing = match reader.fill_buf().map_err(DumpError::of(path))? {
        [] => return Err(DumpError::Empty(path.to_owned())),
        // A frame, or a note before the first one.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
        [0x1f, 0x8b, ..] => Packing::Gzip,
        // With its mark, or two characters of ASCII, as `tables::bytes` decodes it.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Packing::Utf16,
        [a, 0, b, 0, ..] | [0, a, 0, b, ..] if *a != 0 && *b != 0 => Packing::Utf16,
        _ => Packing::Plain,
    };
    Ok((packing, reader))
}

/// Opens a file that is not packed.
fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>, DumpError> {
    let (packing, reader) = packed(path, read)?;
    plain(path, packing, reader)
}

/// What a file holds that is not packed; UTF-16, which spreadsheets and shells of Windows write, as UTF-8.
fn plain(
    path: &Path,
    packing: Packing,
    reader: BufReader<Counted>,
) -> Result<Box<dyn BufRead + Send>, DumpError> {
    let hint = match packing {
        Packing::Plain => return Ok(Box::new(reader)),
        Packing::Utf16 => return bytes::text(Box::new(reader)).map_err(DumpError::of(path)),
        Packing::Zstd => {
            "give it with `--format dump`, or unpack it first with `zstd -d --long=31`"
        }
        Packing::Gzip => "unpack it first with `gzip -d`",
    };
    Err(DumpError::Compressed {
        path: path.to_owned(),
        hint,
    })
}

/// Opens a file that may be packed with zstd.
fn unpacked(path: &Path, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>, DumpError> {
    let (packing, reader) = packed(path, read)?;
    if packing != Packing::Zstd {
        return plain(path, packing, reader);
    }
    let io_error = DumpError::of(path);
    let mut decoder = zstd::Decoder::with_buffer(reader).map_err(&io_error)?;
    // zstd refuses windows over 128 MiB unless it is told otherwise.
    decoder.window_log_max(LARGEST_WINDOW).map_err(&io_error)?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, decoder)))
}

/// Looks at the first row of a dump: what is wrong with all of a file is told before anything is stored.
fn check_first_row(path: &Path) -> Result<(), DumpError> {
    let reader = unpacked(path, &Arc::default())?;
    let mut first = Vec::new();
    let read = reader
        .take(LONGEST_LINE as u64)
        .read_until(b'\n', &mut first);
    match read {
        Ok(0) => return Err(DumpError::Empty(path.to_owned())),
        // zstd's crate gives its errors as words only.
        Err(source) if source.to_string().contains("Allocation error") => {
            return Err(DumpError::Window {
                path: path.to_owned(),
                source,
            });
        }
        // What else is wrong is told with its place by whoever reads on.
        Ok(_) | Err(_) => {}
    }
    match serde_json::from_slice::<Fields>(&first) {
        Ok(row) if row.is_comment() => Err(DumpError::Comments(path.to_owned())),
        _ => Ok(()),
    }
}

/// Reads a file that holds one listing as the API answers it, or a comments page.
///
/// # Errors
/// When the file cannot be read, or is no listing.
fn read_listing(path: &Path) -> Result<ListingPage, DumpError> {
    let mut bytes = Vec::new();
    let read = open(path, &Arc::default())?
        .take(LARGEST_LISTING + 1)
        .read_to_end(&mut bytes)
        .map_err(DumpError::of(path))?;
    if read as u64 > LARGEST_LISTING {
        return Err(DumpError::TooLarge(path.to_owned()));
    }
    // `parse_listing` replaces what is not UTF-8, for answers of Reddit. A file can still be converted.
    if std::str::from_utf8(&bytes).is_err() {
        return Err(DumpError::NotUtf8(path.to_owned()));
    }
    parse_listing(&bytes, SourceKind::Import).map_err(|source| DumpError::Listing {
        path: path.to_owned(),
        source,
    })
}

/// The children of a listing that is in memory.
struct Children {
    rows: std::vec::IntoIter<FileRow>,
    read: u64,
}

impl Children {
    fn new(page: ListingPage) -> Self {
        let posts = page
            .posts
            .into_iter()
            .map(|post| FileRow::Record(Record { post, topic: None }));
        let rejected = page.rejected.into_iter().map(FileRow::Rejected);
        let rows: Vec<_> = posts.chain(rejected).collect();
        Self {
            rows: rows.into_iter(),
            read: 0,
        }
    }
}

impl Rows for Children {
    fn next_row(&mut self) -> Option<FileRow> {
        self.read += 1;
        self.rows.next()
    }

    fn position(&self) -> Position {
        Position {
            rows: self.read,
            ..Position::default()
        }
    }
}

#[cfg(test)]
mod tests;
