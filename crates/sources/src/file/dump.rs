//! Posts from files, for `import`.
//!
//! The input is a file or a pipe: JSON in any layout, such as a saved listing or the lines of a dump, or a table. The
//! output is blocks of posts in the order of the file, and the reason for each row that is rejected. A dump is larger
//! than memory: it is decompressed, filtered and parsed as it is read, one block at a time. Only the window of zstd
//! comes on top, as large as the dump was packed with: Reddit's monthly dumps declare 2 GiB, of which only the used
//! part takes memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::page::Rejected;
use crate::post::Fields;

use super::filter::Filter;
use super::json::JsonPosts;
use super::row::{FileRow, Position, PostRows, Record};
use super::table::{Column, Given, Posts};
use topicmill_core::hex;
use topicmill_tables::bytes::{self, ByteReader, TextReader};
use topicmill_tables::{TableError, TableFormat, detect_format};

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
#[error("{0}")]
pub struct DumpError(String);

impl DumpError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| {
            Self(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no file `{path}`: check the path"),
                io::ErrorKind::IsADirectory => format!(
                    "`{path}` is a directory: give the files in it, such as `{path}/*.ndjson`"
                ),
                io::ErrorKind::UnexpectedEof => {
                    format!("`{path}` breaks off at its start: fetch it again")
                }
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
    DumpError(format!(
        "`{path}` is empty: check that it was written to its end"
    ))
}

/// True if zstd could not allocate its window. Its crate gives errors as words only.
fn is_window(error: &io::Error) -> bool {
    error.to_string().contains("Allocation error")
}

/// Options for reading files.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Their format. `None`: as their bytes and endings say.
    pub format: Option<TableFormat>,
    /// True for dumps of all of Reddit: these are read once, and a crashed import resumes in the middle.
    pub is_dump: bool,
    /// The filter for their posts.
    pub filter: Filter,
    /// The columns of a table for each field.
    pub columns: Vec<Column>,
    /// Values for fields that a post lacks.
    pub given: Vec<Given>,
}

impl Reading {
    /// True if an import of this file resumes where an earlier one stopped. A pipe cannot be recognised.
    pub fn is_resumed(&self, path: &Path) -> bool {
        self.is_dump && path.is_file()
    }
}

/// The end of reading a file.
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
    /// The number of values so far that are NULL because the file has `NaN`, `None` or the like.
    pub nulls: u64,
    /// Set on the last one.
    pub end: Option<End>,
}

/// The blocks of a file.
pub struct Blocks {
    rows: Box<dyn PostRows>,
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

/// Checks that a file can be read and holds what it should, as far as its first row tells; its size in bytes. A pipe is
/// left alone, because it can be read only once.
///
/// # Errors
/// See [`DumpError`].
pub fn check(path: &Path, reading: &Reading) -> Result<u64, DumpError> {
    if bytes::is_stdin(path) {
        return Ok(0);
    }
    let about = std::fs::metadata(path).map_err(DumpError::of(path))?;
    if about.is_file() || about.is_dir() {
        drop(blocks(path, reading)?);
    }
    Ok(about.len())
}

/// Fingerprint that recognises a file: its size and the hash of its first MiB.
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

/// The blocks of a file, read as they are asked for.
///
/// # Errors
/// When the file cannot be read, or is of no format that has posts.
pub fn blocks(path: &Path, reading: &Reading) -> Result<Blocks, DumpError> {
    let read = Arc::new(AtomicU64::new(0));
    let (filter, given) = (&reading.filter, &reading.given);
    let name = path.display();
    let wrong = |why| DumpError(format!("`{name}`: {why}"));
    let counted = Counted {
        file: open(path)?,
        read: read.clone(),
    };
    let recognised =
        detect_format(path, Box::new(counted), reading.format).map_err(|error| match error {
            TableError::Io(error) => DumpError::of(path)(error),
            error => wrong(error.to_string()),
        });
    let (format, mut text) = recognised?.ok_or_else(|| empty(path))?;
    let rows: Box<dyn PostRows> = match format {
        TableFormat::Json | TableFormat::Ndjson => {
            if !reading.columns.is_empty() {
                let name = format.name();
                return Err(wrong(format!(
                    "--map is for tables, and this is {name}: leave it out"
                )));
            }
            check_first_row(path, &mut text, reading.is_dump)?;
            Box::new(JsonPosts::new(text, filter.clone(), given.clone()))
        }
        TableFormat::Csv | TableFormat::Tsv => {
            let tab = (format == TableFormat::Tsv).then_some(b'\t');
            Box::new(Posts::csv(text, tab, &reading.columns, given).map_err(wrong)?)
        }
        TableFormat::Parquet => {
            let file = File::open(path).map_err(DumpError::of(path))?;
            Box::new(Posts::parquet(file, &reading.columns, given, &read).map_err(wrong)?)
        }
        TableFormat::Text => {
            let why = "it has texts alone, and a post has an id, a subreddit and a time, too: give a table or NDJSON; \
                       for a file of ids add `--format ids`";
            return Err(wrong(why.to_owned()));
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
struct Counted {
    file: ByteReader,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Opens a file that is there and not empty, or a pipe.
fn open(path: &Path) -> Result<ByteReader, DumpError> {
    let io_error = DumpError::of(path);
    let about = std::fs::metadata(path).ok();
    if about.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Err(io_error(io::ErrorKind::IsADirectory.into()));
    }
    // Only of a plain file: the length of a pipe is 0 as well.
    if about.is_some_and(|about| about.is_file() && about.len() == 0) {
        return Err(empty(path));
    }
    bytes::open(path).map_err(io_error)
}

/// Looks at the first row of JSON: what is wrong with all of a file is told before anything is stored.
fn check_first_row(path: &Path, text: &mut TextReader, is_dump: bool) -> Result<(), DumpError> {
    let first = match text.fill_buf() {
        Ok([]) => return Err(empty(path)),
        Ok(chunk) => chunk
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default(),
        Err(error) if is_window(&error) => return Err(DumpError::of(path)(error)),
        // What else is wrong is told with its place by whoever reads on.
        Err(_) => return Ok(()),
    };
    match serde_json::from_slice::<Fields>(first) {
        Ok(row) if is_dump && row.is_comment() => Err(DumpError(format!(
            "`{}` holds comments, not posts: take the file of submissions (RS_…) instead",
            path.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::row::LONGEST_CELL;

    /// The first block of a file, and those behind it.
    fn read(format: Option<TableFormat>, bytes: &[u8]) -> Result<(Block, Blocks), DumpError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let reading = Reading {
            format,
            ..Reading::default()
        };
        let mut blocks = blocks(&path, &reading)?;
        Ok((blocks.next_block(), blocks))
    }

    #[test]
    fn blocks_end_early_where_texts_are_long_and_say_where_they_end() {
        let title = "x".repeat(BLOCK_TEXT / 4);
        let line = format!(
            "{{\"id\":\"a\",\"subreddit\":\"s\",\"title\":\"{title}\",\"created_utc\":1700000000}}\n"
        );
        let lines = line.repeat(6);
        let (first, mut blocks) = read(Some(TableFormat::Ndjson), lines.as_bytes()).unwrap();
        assert_eq!((first.records.len(), first.end), (4, None));
        assert_eq!(first.position.bytes, 4 * line.len() as u64);
        let second = blocks.next_block();
        assert_eq!((second.records.len(), second.end), (2, Some(End::Whole)));
        assert_eq!(second.read, lines.len() as u64);
    }

    #[test]
    fn blocks_of_tables_end_early_where_cells_are_long() {
        let url = "x".repeat(LONGEST_CELL - 1);
        let table = format!(
            "id,title,subreddit,created_utc,url\n{}",
            format!("a,b,c,1700000000,{url}\n").repeat(5)
        );
        let (first, mut blocks) = read(Some(TableFormat::Csv), table.as_bytes()).unwrap();
        assert_eq!((first.records.len(), first.end), (4, None));
        assert_eq!(blocks.next_block().records.len(), 1);
    }
}
