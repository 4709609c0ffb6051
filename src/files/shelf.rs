//! A folder that the shards of `score` go to, behind one face: files that are there as a whole or not at all, and a hold
//! on each shard, so that two processes do not write one.
//!
//! [`local`] has those of this machine, [`remote`] those of stores on the network.

pub mod local;
pub mod remote;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FilesError;
use super::inputs::Input;
use crate::placing::Standing;

/// A folder that shards go to. Names are below it, with `/` between folders.
pub trait Shelf: Send + Sync {
    /// Where a file is, for people. It holds no secret.
    fn shown(&self, name: &str) -> String;

    /// The name of an input that lies in this folder itself, and in no folder in it.
    fn inside(&self, input: &Input) -> Option<String>;

    /// Names and sizes of the files whose names begin with `prefix`, those in folders below it too; none where there
    /// is no such folder yet.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, FilesError>;

    /// A small file; `None` where there is none.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError>;

    /// Writes a small file whole. `false`: there was one of this name, and it was to stay.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn put(&self, name: &str, content: &[u8], standing: Standing) -> Result<bool, FilesError>;

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// Where it is there and cannot be removed.
    fn remove(&self, name: &str) -> Result<(), FilesError>;

    /// Takes a shard, until what comes back is dropped or the process ends. `journal` is the name of its journal.
    ///
    /// # Errors
    /// Where the journal cannot be read or written.
    fn hold(&self, journal: &str, who: &Holder) -> Result<Taken, FilesError>;
}

/// What comes of taking a shard.
pub enum Taken {
    /// It is ours.
    Ours(Box<dyn Hold>),
    /// Another process has it; who that is where it could be read.
    Theirs(Option<Holder>),
}

/// A shard that is taken.
///
/// Its journal is a file of lines that grows while the shard is scored, and what an interrupted run is continued from.
pub trait Hold: Send {
    /// The journal, on this machine, with what earlier holders left in it. Whoever holds the shard appends to it.
    fn journal(&self) -> &Path;

    /// Says that the journal's first `bytes` bytes are whole lines, written and handed to the system. A place that
    /// survives this machine copies them from time to time, and at once with `last`.
    ///
    /// # Errors
    /// Where that fails, or the hold was lost.
    fn keep(&mut self, bytes: u64, last: bool) -> Result<(), FilesError>;

    /// An empty file on this machine to write the output to; what an earlier run left of it is gone.
    ///
    /// # Errors
    /// Where there can be none.
    fn draft(&mut self, name: &str) -> Result<PathBuf, FilesError>;

    /// Gives the draft, which is whole, its name.
    ///
    /// # Errors
    /// Where that fails, or the hold was lost. The draft stays.
    fn place(&mut self, draft: &Path, name: &str) -> Result<(), FilesError>;

    /// Writes the manifest, a small file, whole, and replaces one of this name.
    ///
    /// # Errors
    /// Where that fails, or the hold was lost.
    fn seal(&mut self, name: &str, content: &[u8]) -> Result<(), FilesError>;

    /// Removes the journal: the shard is whole.
    ///
    /// # Errors
    /// Where that fails.
    fn finish(self: Box<Self>) -> Result<(), FilesError>;
}

/// Who has a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub process: u32,
    /// Since when, as ISO 8601 writes it, in UTC.
    pub since: String,
}
