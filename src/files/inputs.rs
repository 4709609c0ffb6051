//! Inputs of `score` behind one face: what is named on the command line goes in, and files that can be listed, told
//! apart and read anywhere come out, wherever they lie.
//!
//! A [`Source`] is a kind of place. [`local`] has those of this machine, [`remote`] those of stores on the network.

pub mod local;
pub mod remote;

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::FilesError;
use crate::tables::OfPlace;

/// Bytes that are read at once where a reader goes through a file: a page's header and what comes behind it.
const READ_AHEAD: usize = 64 << 10;

/// A kind of place that inputs lie in.
pub trait Source: Send + Sync {
    /// Whether a name on the command line is one of its own.
    fn is_mine(&self, named: &str) -> bool;

    /// The files that a name stands for, sorted by [`Input::name`]: a file, the Parquet files in a folder and in the
    /// folders in it, or those that a pattern with `*`, `?`, `[…]` or `**` matches.
    ///
    /// # Errors
    /// Where there is none, or the place cannot be read.
    fn list(&self, named: &str) -> Result<Vec<Input>, FilesError>;
}

/// A file as it was when it was listed.
#[derive(Clone)]
pub struct Input {
    /// Where it is, for people. It holds no secret.
    pub shown: String,
    /// Its name below the folder or the pattern that was named, with `/` between folders: machines that see the same
    /// files under other paths agree on it.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// What is another one as soon as the file has other bytes: a time of change, an `ETag`.
    pub version: String,
    /// How it is opened.
    pub opener: Arc<dyn Opener>,
}

/// Rows of an input that lie behind one another.
#[derive(Clone)]
pub struct Segment {
    /// The input.
    pub input: Input,
    /// Its place among all inputs.
    pub at: usize,
    /// Which of its rows, from 0.
    pub rows: Range<u64>,
    /// Rows of the inputs before it.
    pub before: u64,
}

/// Opens one file.
pub trait Opener: Send + Sync {
    /// Opens it for reads.
    ///
    /// # Errors
    /// [`FilesError::Changed`] where the file is gone or is another one than was listed.
    fn open(&self, input: &Input) -> Result<Arc<dyn ReadAt>, FilesError>;
}

/// An open file.
pub trait ReadAt: Send + Sync {
    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// Those of the place. A [`FilesError`] may stand in the error, and comes out as it is.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Whether the file still is what it was when it was opened. A place that checks this with each read says yes.
    ///
    /// # Errors
    /// As [`ReadAt::read_at`].
    fn unchanged(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Input {
    /// Opens it.
    ///
    /// # Errors
    /// See [`Opener::open`].
    pub fn open(&self) -> Result<Chunks, FilesError> {
        Ok(Chunks {
            size: self.size,
            file: self.opener.open(self)?,
        })
    }
}

/// The bytes of an open file, as the Parquet reader asks for them.
#[derive(Clone)]
pub struct Chunks {
    size: u64,
    file: Arc<dyn ReadAt>,
}

impl Chunks {
    /// See [`ReadAt::unchanged`].
    ///
    /// # Errors
    /// See there.
    pub fn unchanged(&self) -> io::Result<()> {
        self.file.unchanged()
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// See [`ReadAt::read_at`]; a range that ends behind the file is an [`io::ErrorKind::UnexpectedEof`].
    pub fn bytes(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        if at.saturating_add(length as u64) > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        self.file.read_at(at, &mut bytes).map_err(|error| {
            // Marked, so that the readers in between take it for what it is.
            match error.downcast::<FilesError>() {
                Ok(ours) => io::Error::other(OfPlace(Box::new(ours))),
                Err(error) => error,
            }
        })?;
        Ok(bytes)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Chunks {
    type T = Run;

    fn get_read(&self, start: u64) -> Result<Run, ParquetError> {
        Ok(Run {
            chunks: self.clone(),
            next: start,
            held: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.bytes(start, length)?.into())
    }
}

/// A walk through a file from some place on.
pub struct Run {
    chunks: Chunks,
    next: u64,
    held: Bytes,
}

impl Read for Run {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.held.is_empty() {
            let left = self.chunks.size.saturating_sub(self.next);
            let length = usize::try_from(left).map_or(READ_AHEAD, |left| left.min(READ_AHEAD));
            self.held = self.chunks.bytes(self.next, length)?.into();
            self.next += length as u64;
        }
        let n = buffer.len().min(self.held.len());
        buffer[..n].copy_from_slice(&self.held.split_to(n));
        Ok(n)
    }
}

/// The error of an input that cannot be read, or the one that a place put into it.
pub fn read_error(shown: &str, error: io::Error) -> FilesError {
    FilesError::of_table(shown.as_ref(), error.into())
}

/// A pattern of names, in which `*` and `?` stand for what lies within one folder and `**` for folders.
pub struct Pattern(glob::Pattern);

/// Reads a pattern.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    let pattern = glob::Pattern::new(text);
    pattern.map(Pattern).map_err(|error| error.msg.to_owned())
}

impl Pattern {
    /// Whether a name below the pattern's folder matches it.
    pub fn matches(&self, name: &str) -> bool {
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        self.0.matches_with(name, options)
    }
}
