//! Maintenance of database files: rewriting them without purged texts, and consistent copies.
//!
//! Deleting a row takes it out of its table. SQLite overwrites the bytes (`secure_delete`), but not the copies that
//! it left in free space when it moved rows from page to page; PostgreSQL overwrites nothing. So a purge notes in
//! `meta` that the files are to be rewritten, and the note goes when they were.

mod postgres;
mod sqlite;

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Result, Store, StoreError};

/// The note that purged texts may linger in free space. Its value is another one after each purge.
pub(super) const REWRITE_DUE: &str = "rewrite_due";
/// Timeout for other sessions at the end of a rewrite.
const REWRITE_PATIENCE_MS: u32 = 10_000;
/// Interval of progress reports of a rewrite.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The result of rewriting the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritten {
    /// Nothing of what was purged is left in them.
    Whole,
    /// The file is rewritten; somebody reads an earlier state, which stays in the log until they are done.
    LogIsRead,
    /// Somebody reads an earlier state of a server's database, in which the rows are that were deleted since. A table
    /// that is rewritten meanwhile has them still.
    EarlierStateIsRead {
        /// The session that does, if the server shows it.
        by: Vec<String>,
    },
    /// A table was not free for as long as anybody may be made to wait.
    TableIsUsed {
        /// The table.
        table: &'static str,
    },
    /// Not begun: there is not enough room.
    NoRoom {
        /// Bytes that it takes beside the file.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
}

impl Rewritten {
    /// Advice if deleted bytes remain.
    pub fn remedy(&self) -> Option<String> {
        const MB: u64 = 1_000_000;
        match self {
            Self::Whole => None,
            Self::EarlierStateIsRead { by } => {
                let by = match by.as_slice() {
                    [] => "a session that your user may not see".to_owned(),
                    some => some.join(", "),
                };
                Some(format!(
                    "{by} reads an earlier state of it; end that, then run `topicmill db vacuum` again"
                ))
            }
            Self::TableIsUsed { table } => Some(format!(
                "another program uses the table {table}; end it, then run `topicmill db vacuum` again"
            )),
            Self::LogIsRead => Some(
                "another program reads an earlier state of it; the next run that ends after it empties the log"
                    .to_owned(),
            ),
            Self::NoRoom { needed, free } => Some(format!(
                "to rewrite it takes {} MB, and {} MB are free; make room, then run `topicmill db vacuum`",
                needed.div_ceil(MB),
                free / MB
            )),
        }
    }
}

/// Hears how many bytes of how many are rewritten.
pub type OnBytes<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

impl Store {
    /// Writes a copy of a SQLite database to a file that is there and empty, as of one moment, whoever else writes.
    /// A server has programs for this. It fails once `stop` is cancelled.
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
