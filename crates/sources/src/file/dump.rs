//! Reads posts and comments from files, for `import`.
//!
//! The input is a file or a pipe. It contains a table or JSON in any layout, such as a saved listing or the lines of a
//! dump. The output is blocks of posts in file order, and the reason for each rejected row. A dump is larger than
//! memory, so it is decompressed, filtered and parsed while it is read, one block at a time. Only zstd's window needs
//! more memory. The file declares the window's size, which is 2 GiB for Reddit's monthly dumps, but only the part in
//! use takes memory.

mod error;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

pub use self::error::FileError;
use self::error::is_window;
use super::FileOptions;
use super::filter::Filter;
use super::json::JsonPosts;
use super::row::{FileRow, Position, PostRows, Record};
use super::table::Posts;
use crate::page::Rejected;
use topicmill_core::hex;
use topicmill_tables::bytes::{self, ByteReader, TextReader};
use topicmill_tables::{TableError, TableFormat, detect_format};

/// Number of bytes hashed for a fingerprint.
const HASHED: u64 = 1 << 20;
/// Maximum number of rows in a block.
const BLOCK_ROWS: usize = 4_000;
/// Number of bytes of text that ends a block early.
const BLOCK_TEXT: usize = 8 << 20;
/// Number of bytes of file data that ends a block early, so that a crashed import loses little progress.
const BLOCK_BYTES: u64 = 64 << 20;

/// The reason why reading a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At the end of the file.
    Complete,
    /// Before the end, where the rest cannot be read.
    Unreadable,
}

/// Rows to store in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Posts that match the filter.
    pub records: Vec<Record>,
    /// Rows that are not posts.
    pub rejected: Vec<Rejected>,
    /// Position after the last row in the block.
    pub position: Position,
    /// Bytes of the file read so far, before decompression.
    pub read: u64,
    /// Number of values so far that are NULL because the file contains `NaN`, `None` or the like.
    pub nulls: u64,
    /// The reason why reading ended; set on the last block.
    pub end: Option<End>,
}

/// The blocks of a file.
pub struct Blocks {
    name: String,
    rows: Box<dyn PostRows>,
    is_layout_logged: bool,
    filter: Filter,
    /// Number of rows that were parsed and then excluded by the filter.
    left_out: u64,
    read: Arc<AtomicU64>,
}

impl Blocks {
    /// Continues from the position of an earlier block of the same file, which was read with the same filter.
    pub fn resume(&mut self, position: Position) {
        self.rows.resume(position);
    }

    /// Returns the next block; after the last one, returns blocks without rows. Logs how the file is read and, at its
    /// end, what is missing from it.
    pub fn next_block(&mut self) -> Block {
        let (mut records, mut rejected) = (Vec::new(), Vec::new());
        let (mut text, start) = (0, self.rows.position().bytes);
        let end = loop {
            match self.rows.next_row() {
                Some(FileRow::Record(record)) if self.filter.matches(&record.post) => {
                    text += record.post.title.len() + record.post.selftext.len();
                    records.push(record);
                }
                Some(FileRow::Record(_)) => self.left_out += 1,
                Some(FileRow::Rejected(row)) => rejected.push(row),
                // Skipping the rows before a resumed position does not change the position. An empty block lets the
                // caller stop.
                Some(FileRow::Skipped) if self.rows.position().bytes == start => break None,
                Some(FileRow::Skipped) => {}
                None if self.rows.broken() => break Some(End::Unreadable),
                None => break Some(End::Complete),
            }
            let bytes = self.rows.position().bytes - start;
            let rows = records.len() + rejected.len();
            if rows >= BLOCK_ROWS || text >= BLOCK_TEXT || bytes >= BLOCK_BYTES {
                break None;
            }
        };
        self.log(end.is_some());
        let mut position = self.rows.position();
        // The JSON reader counts the rows that it skips without parsing; this adds the rows excluded after parsing.
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

    /// Logs once how the file is read and, at its end, what is missing from it.
    fn log(&mut self, is_at_end: bool) {
        if !self.is_layout_logged
            && let Some(layout) = self.rows.layout()
        {
            self.is_layout_logged = true;
            if !layout.is_plain() {
                tracing::info!(file = %self.name, "{layout}");
            }
        }
        if is_at_end && let Some(caveat) = self.rows.caveat() {
            tracing::warn!(file = %self.name, "{caveat}");
        }
    }
}

/// Checks that a file can be read and that its first row or its header is valid for posts, and returns its size in
/// bytes. A pipe can be read only once, so it is not checked.
///
/// # Errors
/// See [`FileError`].
pub fn check(path: &Path, options: &FileOptions) -> Result<u64, FileError> {
    if bytes::is_stdin(path) {
        return Ok(0);
    }
    let metadata = std::fs::metadata(path).map_err(FileError::at(path))?;
    if metadata.is_file() || metadata.is_dir() {
        drop(blocks(path, options)?);
    }
    Ok(metadata.len())
}

/// Returns a file's fingerprint: its size and the hash of its first MiB.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, FileError> {
    let io_error = FileError::at(path);
    let file = File::open(path).map_err(&io_error)?;
    let size = file.metadata().map_err(&io_error)?.len();
    let mut head = Vec::new();
    let read = file.take(HASHED).read_to_end(&mut head);
    read.map_err(io_error)?;
    Ok(format!("{size}-{}", hex(&Sha256::digest(&head)[..16])))
}

/// Returns a file's blocks, which are read on demand.
///
/// # Errors
/// Returns an error if the file cannot be read, or its format cannot contain posts.
pub fn blocks(path: &Path, options: &FileOptions) -> Result<Blocks, FileError> {
    let read = Arc::new(AtomicU64::new(0));
    let unsuitable = |why: String| FileError::unsuitable(path, &why);
    let counted = Counted {
        file: open(path)?,
        read: read.clone(),
    };
    let (format, mut text) = detect_format(path, Box::new(counted), options.format)
        .map_err(|error| match error {
            TableError::Io(error) => FileError::at(path)(error),
            error => unsuitable(error.to_string()),
        })?
        .ok_or_else(|| FileError::empty(path))?;
    let rows: Box<dyn PostRows> = match format {
        TableFormat::Json | TableFormat::Ndjson => {
            if options.is_dump && !options.columns.is_empty() {
                let why = "--map is not for dumps, whose fields have Reddit's names: omit it";
                return Err(unsuitable(why.to_owned()));
            }
            check_start(path, &mut text)?;
            Box::new(JsonPosts::new(text, options))
        }
        TableFormat::Csv | TableFormat::Tsv => {
            let tab = (format == TableFormat::Tsv).then_some(b'\t');
            Box::new(Posts::csv(text, tab, options).map_err(unsuitable)?)
        }
        TableFormat::Parquet => {
            let file = File::open(path).map_err(FileError::at(path))?;
            Box::new(Posts::parquet(file, options, &read).map_err(unsuitable)?)
        }
        TableFormat::Text => {
            let why = "it contains only text, but a post also needs an id, a subreddit and a time: use a table or \
                       NDJSON; for a file of ids add `--format ids`";
            return Err(unsuitable(why.to_owned()));
        }
    };
    Ok(Blocks {
        name: path.display().to_string(),
        rows,
        is_layout_logged: false,
        filter: options.filter.clone(),
        left_out: 0,
        read,
    })
}

/// Counts the bytes read from a file.
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

/// Opens a file that exists and is not empty, or a pipe.
fn open(path: &Path) -> Result<ByteReader, FileError> {
    let io_error = FileError::at(path);
    if let Ok(metadata) = std::fs::metadata(path) {
        if metadata.is_dir() {
            return Err(io_error(io::ErrorKind::IsADirectory.into()));
        }
        // Only regular files are checked because a pipe's length is also 0.
        if metadata.is_file() && metadata.len() == 0 {
            return Err(FileError::empty(path));
        }
    }
    bytes::open(path).map_err(io_error)
}

/// Checks that JSON is not empty and can be decompressed, before anything is stored.
fn check_start(path: &Path, text: &mut TextReader) -> Result<(), FileError> {
    match text.fill_buf() {
        Ok([]) => Err(FileError::empty(path)),
        Err(error) if is_window(&error) => Err(FileError::at(path)(error)),
        // Other errors are reported with their line when the file is read.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::row::LONGEST_CELL;

    /// Returns a file's first block and the blocks that follow.
    fn read(format: Option<TableFormat>, bytes: &[u8]) -> Result<(Block, Blocks), FileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let options = FileOptions {
            format,
            ..FileOptions::default()
        };
        let mut blocks = blocks(&path, &options)?;
        Ok((blocks.next_block(), blocks))
    }

    #[test]
    fn blocks_with_long_texts_end_early_at_the_right_position() {
        let title = "x".repeat(BLOCK_TEXT / 4);
        let line = format!(
            "{{\"id\":\"a\",\"subreddit\":\"s\",\"title\":\"{title}\",\"created_utc\":1700000000}}\n"
        );
        let lines = line.repeat(6);
        let (first, mut blocks) = read(Some(TableFormat::Ndjson), lines.as_bytes()).unwrap();
        assert_eq!((first.records.len(), first.end), (4, None));
        assert_eq!(first.position.bytes, 4 * line.len() as u64);
        let second = blocks.next_block();
        assert_eq!((second.records.len(), second.end), (2, Some(End::Complete)));
        assert_eq!(second.read, lines.len() as u64);
    }

    #[test]
    fn blocks_with_long_cells_end_early() {
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
