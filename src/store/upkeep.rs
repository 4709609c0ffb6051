//! What keeps a database's files in order: nothing of purged texts left in them, and a copy that is whole.
//!
//! Deleting a row takes it out of its table. SQLite overwrites the bytes (`secure_delete`), but not the copies that
//! it left in free space when it moved rows from page to page; PostgreSQL overwrites nothing. So a purge notes in
//! `meta` that the files are to be rewritten, and the note goes when they were.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Executor, Postgres, Row, Sqlite};

use super::sql::{Doing, SqlStore, TABLES};
use super::{Result, StoreError};

/// The note that purged texts may linger in free space. Its value is another one after each purge, and
/// [`LOG_IS_LEFT`] where only the log is still to be emptied.
pub(super) const REWRITE_DUE: &str = "rewrite_due";
const LOG_IS_LEFT: &str = "log";

/// How long the end of a run waits for readers of the log.
const FOLD_PATIENCE_MS: u32 = 1_000;
/// And the end of a rewrite.
const REWRITE_PATIENCE_MS: u32 = 10_000;
/// How often a rewrite looks how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The log holds each page with a header of 24 bytes: less than a hundredth of a page of 4 kB.
const LOG_OVERHEAD: u64 = 100;

/// How rewriting the files ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewritten {
    /// Nothing of what was purged is left in them.
    Whole,
    /// The file is rewritten; somebody reads an earlier state, which stays in the log until they are done.
    LogIsRead,
    /// Not begun: there is not enough room.
    NoRoom {
        /// Bytes that it takes beside the file.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
}

impl Rewritten {
    /// What to do where bytes linger still.
    pub fn remedy(self) -> Option<String> {
        const MB: u64 = 1_000_000;
        match self {
            Self::Whole => None,
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

impl SqlStore<Sqlite> {
    /// See [`super::Store::rewrite`].
    pub async fn rewrite(&self, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the database's file";
        let due = self.rewrite_due().await?;
        if due.as_deref() != Some(LOG_IS_LEFT) {
            let pages: (i64, i64) = sqlx::query_as(
                "SELECT page_count - freelist_count, page_size \
                   FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )
            .fetch_one(&self.pool)
            .await
            .doing(WHAT)?;
            let live = pages.0.unsigned_abs() * pages.1.unsigned_abs();
            if let Some(file) = self.file().await?
                && let Some((needed, free)) = lacking(&file, live)
            {
                return Ok(Rewritten::NoRoom { needed, free });
            }
            self.vacuum(live, progress).await?;
            // A purge that came meanwhile has noted another value.
            sqlx::query("UPDATE meta SET value = $1 WHERE key = $2 AND value = $3")
                .bind(LOG_IS_LEFT)
                .bind(REWRITE_DUE)
                .bind(due.as_deref())
                .execute(&self.pool)
                .await
                .doing(WHAT)?;
        }
        Ok(if self.fold_within(REWRITE_PATIENCE_MS).await? {
            Rewritten::Whole
        } else {
            Rewritten::LogIsRead
        })
    }

    async fn vacuum(&self, live: u64, progress: OnBytes<'_>) -> Result<()> {
        const WHAT: &str = "rewrite the database's file";
        let log = self.file().await?.map(|file| with_suffix(&file, "-wal"));
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        // The copy that is made of the rows is as large as the file: not in memory.
        connection
            .execute("PRAGMA temp_store = FILE")
            .await
            .doing(WHAT)?;
        let vacuum = connection.execute("VACUUM");
        let watch = async {
            loop {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "another thread's work does not go by our clock"
                )]
                tokio::time::sleep(LOOK_EVERY).await;
                let written = log.as_deref().and_then(|log| log.metadata().ok());
                progress(written.map_or(0, |log| log.len().min(live)), live);
            }
        };
        let done = tokio::select! {
            done = vacuum => done.doing(WHAT),
            () = watch => unreachable!("it never ends"),
        };
        let back = connection.execute("PRAGMA temp_store = MEMORY").await;
        done?;
        back.doing(WHAT)?;
        progress(live, live);
        Ok(())
    }

    /// See [`super::Store::fold`].
    pub async fn fold(&self) -> Result<bool> {
        self.fold_within(FOLD_PATIENCE_MS).await
    }

    async fn fold_within(&self, patience_ms: u32) -> Result<bool> {
        const WHAT: &str = "fold the log into the database's file";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let before: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
            .fetch_one(&mut *connection)
            .await
            .doing(WHAT)?;
        let patience = |ms: i64| sqlx::AssertSqlSafe(format!("PRAGMA busy_timeout = {ms}"));
        sqlx::raw_sql(patience(patience_ms.into()))
            .execute(&mut *connection)
            .await
            .doing(WHAT)?;
        // It folds what it can in any case; `busy` is 1 where a reader keeps it from emptying the log.
        let folded = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| row.try_get::<i64, _>(0))
            .map(|busy| busy == 0);
        let reset = sqlx::raw_sql(patience(before))
            .execute(&mut *connection)
            .await;
        let folded = folded.doing(WHAT)?;
        reset.doing(WHAT)?;
        if folded {
            sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
                .bind(REWRITE_DUE)
                .bind(LOG_IS_LEFT)
                .execute(&mut *connection)
                .await
                .doing(WHAT)?;
        }
        Ok(folded)
    }

    /// See [`super::Store::fold_a_little`].
    pub async fn fold_a_little(&self) -> Result<()> {
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&self.pool)
            .await
            .doing("fold the log into the database's file")?;
        Ok(())
    }

    /// See [`super::Store::backup`].
    pub async fn backup(&self, to: &Path) -> Result<()> {
        const WHAT: &str = "copy the database";
        sqlx::query("VACUUM INTO $1")
            .bind(to.display().to_string())
            .execute(&self.pool)
            .await
            .doing(WHAT)?;
        Ok(())
    }

    /// Where the database is; `None` for one in memory.
    async fn file(&self) -> Result<Option<PathBuf>> {
        let file: String =
            sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'")
                .fetch_one(&self.pool)
                .await
                .doing("find the database's file")?;
        Ok(Some(PathBuf::from(file)).filter(|file| !file.as_os_str().is_empty()))
    }

    async fn rewrite_due(&self) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT value FROM meta WHERE key = $1")
            .bind(REWRITE_DUE)
            .fetch_optional(&self.pool)
            .await
            .doing("look whether the files are to be rewritten")
    }

    /// See [`super::Store::is_rewrite_due`].
    pub async fn is_rewrite_due(&self) -> Result<bool> {
        Ok(self.rewrite_due().await?.is_some())
    }
}

impl SqlStore<Postgres> {
    /// See [`super::Store::rewrite`].
    pub async fn rewrite(&self, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the tables";
        let due: Option<String> = sqlx::query_scalar("SELECT value FROM meta WHERE key = $1")
            .bind(REWRITE_DUE)
            .fetch_optional(&self.pool)
            .await
            .doing(WHAT)?;
        // The server would pass over a table of somebody else's, and say so to nobody.
        let others: Option<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE oid = 'posts'::regclass AND NOT pg_has_role(relowner, 'USAGE')",
        )
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        if let Some(table) = others {
            let said = format!("only the owner of table {table} may rewrite it");
            return Err(StoreError::Denied(said));
        }
        let mut sizes = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let size: i64 = sqlx::query_scalar("SELECT pg_total_relation_size($1::regclass)")
                .bind(table)
                .fetch_one(&self.pool)
                .await
                .doing(WHAT)?;
            sizes.push((table, size.unsigned_abs()));
        }
        let all = sizes.iter().map(|(_, size)| size).sum();
        let mut done = 0;
        for (table, size) in sizes {
            progress(done, all);
            let vacuum = sqlx::AssertSqlSafe(format!("VACUUM (FULL, ANALYZE) {table}"));
            sqlx::raw_sql(vacuum)
                .execute(&self.pool)
                .await
                .doing(WHAT)?;
            done += size;
        }
        progress(all, all);
        sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
            .bind(REWRITE_DUE)
            .bind(due)
            .execute(&self.pool)
            .await
            .doing(WHAT)?;
        Ok(Rewritten::Whole)
    }

    /// See [`super::Store::fold`].
    #[expect(clippy::unused_async, reason = "one face for both databases")]
    pub async fn fold(&self) -> Result<bool> {
        Ok(true)
    }

    /// See [`super::Store::fold_a_little`].
    #[expect(clippy::unused_async, reason = "one face for both databases")]
    pub async fn fold_a_little(&self) -> Result<()> {
        Ok(())
    }

    /// See [`super::Store::backup`].
    #[expect(clippy::unused_async, reason = "one face for both databases")]
    pub async fn backup(&self, _: &Path) -> Result<()> {
        Err(StoreError::NoFile)
    }

    /// See [`super::Store::is_rewrite_due`].
    pub async fn is_rewrite_due(&self) -> Result<bool> {
        let due = sqlx::query("SELECT 1 FROM meta WHERE key = $1")
            .bind(REWRITE_DUE)
            .fetch_optional(&self.pool)
            .await
            .doing("look whether the tables are to be rewritten")?;
        Ok(due.is_some())
    }
}

/// What a rewrite needs and what is free, where that is too little: for the log beside the file, and for the copy
/// in the folder of temporary files. `None` also where the system does not tell.
fn lacking(file: &Path, live: u64) -> Option<(u64, u64)> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let temporary = temporary_folder();
    let log = live + live / LOG_OVERHEAD;
    let shared = is_same_device(folder, &temporary);
    let needed = if shared { log + live } else { log };
    let wanting = [(folder, needed), (&temporary, live)];
    wanting.into_iter().find_map(|(place, needed)| {
        let free = free_bytes(place)?;
        (free < needed).then_some((needed, free))
    })
}

/// Where SQLite puts temporary files.
fn temporary_folder() -> PathBuf {
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter();
    let named = named.filter_map(std::env::var_os).map(PathBuf::from);
    let usual = ["/var/tmp", "/usr/tmp", "/tmp", "."];
    named
        .chain(usual.into_iter().map(PathBuf::from))
        .find(|folder| folder.is_dir())
        .unwrap_or_default()
}

#[cfg(unix)]
fn is_same_device(one: &Path, two: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
    device(one) == device(two)
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
