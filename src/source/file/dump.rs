//! Posts from files, for `import`.
//!
//! What enters is a file: a saved listing, a table, or one post a line, as dumps have it, packed with zstd.
//! What leaves are blocks of posts in the order of the file, and for each row that holds none the reason why.
//! A dump is larger than memory and older than most of its rules: it is unpacked, filtered and parsed as it
//! is read, and what is held is one block. Only zstd's window comes on top, as large as the dump was packed
//! with: the months of Reddit say 2 GiB, which is address space at first, and memory as far as it is filled.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::domain::SourceKind;
use crate::source::listing::{ListingError, parse_listing};
use crate::source::page::{ListingPage, Rejected};
use crate::source::post::Fields;

use super::filter::Filter;
use super::lines::Lines;
use super::row::{FileRow, LONGEST_LINE, Position, Record, Rows, not_utf8};
use super::table::{Column, Posts};
use crate::tables::bytes;
use topicmill_score::hex;

/// A saved listing above this is none: Reddit's own are a few megabytes at most.
const LARGEST_LISTING: u64 = 32 << 20;
/// Bytes that are hashed to know a file again.
const HASHED: u64 = 1 << 20;
/// Records of a block.
const BLOCK_ROWS: usize = 4_000;
/// Bytes of text after which a block ends early.
const BLOCK_TEXT: usize = 8 << 20;
/// Bytes of the file after which a block ends early, so that an import which dies keeps its place.
const BLOCK_BYTES: u64 = 64 << 20;

/// Why a file could not be read at all, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
pub struct DumpError {
    told: String,
    source: Option<ListingError>,
}

impl DumpError {
    fn new(told: String) -> Self {
        Self { told, source: None }
    }

    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| {
            Self::new(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no file `{path}`: check the path"),
                io::ErrorKind::IsADirectory => format!(
                    "`{path}` is a directory: give the files in it, such as `{path}/*.ndjson`"
                ),
                _ if is_window(&error) => format!(
                    "`{path}` is packed with a window of up to 2 GiB, for which there is no address space: raise the \
                     limit (`ulimit -v unlimited`) or unpack the file elsewhere with `zstd -d --long=31`"
                ),
                _ => {
                    format!("`{path}` cannot be read: {error}; check the file and its permissions")
                }
            })
        }
    }
}

/// The error of a file with nothing in it.
fn empty(path: &Path) -> DumpError {
    let path = path.display();
    DumpError::new(format!(
        "`{path}` is empty: check that it was written to its end"
    ))
}

/// Whether zstd could not get its window. Its crate gives errors as words only.
fn is_window(error: &io::Error) -> bool {
    error.to_string().contains("Allocation error")
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
    /// How many values of the file so far are NULL because it has `NaN`, `None` or the like in their place.
    pub nulls: u64,
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
            nulls: self.rows.nulls(),
            end,
        }
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
    let table_error = |why| DumpError::new(format!("`{}`: {why}", path.display()));
    let rows: Box<dyn Rows> = match reading.format {
        FileFormat::Listing => Box::new(Children::new(read_listing(path)?)),
        FileFormat::Ndjson => Box::new(Lines::new(open(path, &read)?, filter.clone())),
        FileFormat::Dump => {
            // Before the rows are opened: nothing may be stored of a file of comments.
            check_first_row(path)?;
            Box::new(Lines::new(unpacked(path, &read)?, filter.clone()))
        }
        FileFormat::Csv => {
            let rows = Posts::csv(open(path, &read)?, &reading.columns);
            Box::new(rows.map_err(table_error)?)
        }
        FileFormat::Parquet => {
            let rows = Posts::parquet(probe(path)?, &reading.columns, &read);
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
        return Err(io_error(io::ErrorKind::IsADirectory.into()));
    }
    // Only of a plain file: the length of a pipe is 0 as well.
    if about.is_file() && about.len() == 0 {
        return Err(empty(path));
    }
    Ok(file)
}

/// Opens a file that is no dump.
fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>, DumpError> {
    let mut head = [0; 4];
    let is_packed = probe(path)?.read_exact(&mut head).is_ok() && bytes::is_zstd(&head);
    if is_packed {
        // Without the filter of dumps, a month of all Reddit would be stored.
        let path = path.display();
        let told = format!("`{path}` is packed with zstd: give it with `--format dump`");
        return Err(DumpError::new(told));
    }
    unpacked(path, read)
}

/// The text of a file, as UTF-8.
fn unpacked(path: &Path, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>, DumpError> {
    let counted = Counted {
        file: probe(path)?,
        read: read.clone(),
    };
    bytes::text(Box::new(counted)).map_err(DumpError::of(path))
}

/// Looks at the first row of a dump: what is wrong with all of a file is told before anything is stored.
fn check_first_row(path: &Path) -> Result<(), DumpError> {
    let reader = unpacked(path, &Arc::default())?;
    let mut first = Vec::new();
    let read = reader
        .take(LONGEST_LINE as u64)
        .read_until(b'\n', &mut first);
    match read {
        Ok(0) => return Err(empty(path)),
        Err(error) if is_window(&error) => return Err(DumpError::of(path)(error)),
        // What else is wrong is told with its place by whoever reads on.
        Ok(_) | Err(_) => {}
    }
    match serde_json::from_slice::<Fields>(&first) {
        Ok(row) if row.is_comment() => Err(DumpError::new(format!(
            "`{}` holds comments, not posts: take the file of submissions (RS_…) instead",
            path.display()
        ))),
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
    let name = path.display();
    if read as u64 > LARGEST_LISTING {
        let told = format!("`{name}` is larger than any listing: try `--format ndjson`");
        return Err(DumpError::new(told));
    }
    // `parse_listing` replaces what is not UTF-8, for answers of Reddit. A file can still be converted.
    if std::str::from_utf8(&bytes).is_err() {
        return Err(DumpError::new(not_utf8(&format!("`{name}`"))));
    }
    parse_listing(&bytes, SourceKind::Import).map_err(|source| DumpError {
        told: format!(
            "`{name}` is not a saved listing: try `--format ndjson` for a file with one post a line"
        ),
        source: Some(source),
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

    fn nulls(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first block of a file, and those behind it.
    fn read(format: FileFormat, bytes: &[u8]) -> Result<(Block, Blocks), DumpError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let reading = Reading {
            format,
            filter: Filter::default(),
            columns: Vec::new(),
        };
        let mut blocks = blocks(&path, &reading)?;
        Ok((blocks.next_block(), blocks))
    }

    #[test]
    fn what_is_no_listing_says_what_to_do() {
        for (bytes, told) in [
            (&b""[..], "is empty"),
            (b"{\"id\":\"a\"}", "--format ndjson"),
            (b"{\"kind\":\"caf\xe9\"}", "is not UTF-8"),
            (b"\x28\xb5\x2f\xfd....", "--format dump"),
        ] {
            let error = read(FileFormat::Listing, bytes).err().unwrap().to_string();
            assert!(error.contains(told), "{error}");
        }
        let listing = br#"{"kind":"Listing","data":{"after":null,"children":[]}}"#;
        let (block, _) = read(FileFormat::Listing, listing).unwrap();
        assert_eq!(block.end, Some(End::Whole));
    }

    #[test]
    fn blocks_end_early_where_texts_are_long_and_say_where_they_end() {
        let title = "x".repeat(BLOCK_TEXT / 4);
        let line = format!(
            "{{\"id\":\"a\",\"subreddit\":\"s\",\"title\":\"{title}\",\"created_utc\":1700000000}}\n"
        );
        let lines = line.repeat(6);
        let (first, mut blocks) = read(FileFormat::Dump, lines.as_bytes()).unwrap();
        assert_eq!((first.records.len(), first.end), (4, None));
        assert_eq!(first.position.bytes, 4 * line.len() as u64);
        let second = blocks.next_block();
        assert_eq!((second.records.len(), second.end), (2, Some(End::Whole)));
        assert_eq!(second.read, lines.len() as u64);
    }

    #[test]
    fn blocks_of_tables_end_early_where_cells_are_long() {
        let url = "x".repeat(LONGEST_LINE - 1);
        let table = format!(
            "id,title,subreddit,created_utc,url\n{}",
            format!("a,b,c,1700000000,{url}\n").repeat(5)
        );
        let (first, mut blocks) = read(FileFormat::Csv, table.as_bytes()).unwrap();
        assert_eq!((first.records.len(), first.end), (4, None));
        assert_eq!(blocks.next_block().records.len(), 1);
    }
}
