//! Maintains database files: rewrites them without purged text, and makes consistent copies.
//!
//! Deleting a row does not erase its bytes. SQLite overwrites them (`secure_delete`), but not the copies that it left
//! in free space when it moved rows between pages; PostgreSQL overwrites nothing. Therefore a purge records in `meta`
//! that the files must be rewritten, and a rewrite removes that record.

mod postgres;
mod sqlite;

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Result, Store, StoreError};

/// Key in `meta` that exists while purged text may linger in free space. Each purge stores a new value.
pub(super) const REWRITE_DUE: &str = "rewrite_due";
/// Key in `meta` that exists once retention has kept the vectors of deleted texts.
pub(super) const VECTORS_KEPT: &str = "vectors_kept";
/// Timeout for waiting for other sessions, in milliseconds.
const REWRITE_TIMEOUT_MS: u32 = 10_000;
/// Interval of polls for other sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The result of rewriting the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritten {
    /// The files contain nothing that was purged.
    Complete,
    /// The file is rewritten, but a reader is still using an old snapshot, so the write-ahead log could not be emptied.
    LogInUse,
    /// A session on the server is using an old snapshot that includes deleted rows. The server keeps these rows even in
    /// rewritten tables.
    OldSnapshotInUse {
        /// The sessions, if the server shows them.
        by: Vec<String>,
    },
    /// Another session used a table until the timeout.
    TableLocked {
        /// The table.
        table: &'static str,
    },
    /// Not started, because the disk has too little space.
    NoSpace {
        /// Bytes needed in addition to the file.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
}

impl Rewritten {
    /// Returns advice if deleted bytes may remain.
    pub fn remedy(&self) -> Option<String> {
        const MB: u64 = 1_000_000;
        match self {
            Self::Complete => None,
            Self::OldSnapshotInUse { by } => {
                let (by, is) = match by.as_slice() {
                    [] => ("a session that your user cannot see".to_owned(), "is"),
                    [one] => (one.clone(), "is"),
                    several => (several.join(", "), "are"),
                };
                Some(format!(
                    "{by} {is} still using an old snapshot; end it, then run `topicmill db vacuum` again"
                ))
            }
            Self::TableLocked { table } => Some(format!(
                "another program is using the table `{table}`; end it, then run `topicmill db vacuum` again"
            )),
            Self::LogInUse => Some(
                "another program is still using an old snapshot; once it has ended, the next run empties the log"
                    .to_owned(),
            ),
            Self::NoSpace { needed, free } => Some(format!(
                "a rewrite needs {} MB, but only {} MB are free; free some space, then run `topicmill db vacuum`",
                needed.div_ceil(MB),
                free / MB
            )),
        }
    }
}

impl Store {
    /// Writes a consistent copy of a SQLite database to an existing empty file, while others may write to the database.
    /// Fails once `stop` is cancelled. Servers have their own backup programs.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn backup(&self, to: &Path, stop: &CancellationToken) -> Result<()> {
        match self {
            Self::Sqlite(store) => store.backup(to, stop).await,
            Self::Postgres(_) => Err(StoreError::NotSqliteToPostgres),
        }
    }
}
