//! Upkeep of a file of SQLite: VACUUM, the log that is folded back into the file, and copies of the file.

use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Executor, Row, Sqlite};
use tokio_util::sync::CancellationToken;

use super::super::Result;
use super::super::failure::Doing;
use super::super::sql::SqlStore;
use super::super::waiting::STEP;
use super::{LOOK_EVERY, OnBytes, REWRITE_DUE, REWRITE_PATIENCE_MS, Rewritten};

/// The value of the note where only the log is still to be emptied.
const LOG_IS_LEFT: &str = "log";
/// Timeout for readers of the write-ahead log at the end of a run.
const FOLD_PATIENCE_MS: u32 = 1_000;
/// The log holds each page with a header of 24 bytes: less than a hundredth of a page of 4 kB.
const LOG_OVERHEAD: u64 = 100;
/// Instructions of SQLite between two looks at whether to stop. A row takes four of them, so these are some hundred
/// rows.
const STEPS: i32 = 1_000;

impl SqlStore<Sqlite> {
    /// See [`Store::rewrite`](super::super::Store::rewrite).
    pub async fn rewrite(&self, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the database's file";
        let due = self.rewrite_due().await?;
        // Where only the log is left, the file was rewritten by an earlier run, and need not be again.
        if due.as_deref() != Some(LOG_IS_LEFT) {
            let pages: (i64, i64) = sqlx::query_as(
                "SELECT page_count - freelist_count, page_size \
                   FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )
            .fetch_one(&self.pool)
            .await
            .doing(WHAT)?;
            // VACUUM writes only pages in use, so free pages need no room.
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
        // With a write-ahead log, VACUUM writes the new file there first: the length of the log shows how far it is.
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
        // Set back before any error is returned: the connection goes back to the pool.
        let back = connection.execute("PRAGMA temp_store = MEMORY").await;
        done?;
        back.doing(WHAT)?;
        progress(live, live);
        Ok(())
    }

    /// See [`Store::fold`](super::super::Store::fold).
    pub async fn fold(&self) -> Result<bool> {
        self.fold_within(FOLD_PATIENCE_MS).await
    }

    async fn fold_within(&self, patience_ms: u32) -> Result<bool> {
        const WHAT: &str = "fold the log into the database's file";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        // With the usual patience of minutes, a reader that stays would keep every run from ending.
        let patience = |ms| AssertSqlSafe(format!("PRAGMA busy_timeout = {ms}"));
        let set = connection.execute(patience(patience_ms.into())).await;
        set.doing(WHAT)?;
        // It folds what it can in any case; `busy` is 1 where a reader keeps it from emptying the log.
        let folded = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| row.try_get::<i64, _>(0))
            .map(|busy| busy == 0);
        // Set back before any error is returned: the connection goes back to the pool.
        let reset = connection.execute(patience(STEP.as_millis())).await;
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

    /// See [`Store::fold_a_little`](super::super::Store::fold_a_little).
    pub async fn fold_a_little(&self) -> Result<()> {
        // PASSIVE waits for nobody.
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&self.pool)
            .await
            .doing("fold the log into the database's file")?;
        Ok(())
    }

    /// See [`Store::backup`](super::super::Store::backup).
    pub async fn backup(&self, to: &Path, stop: &CancellationToken) -> Result<()> {
        const WHAT: &str = "copy the database";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let stop = stop.clone();
        connection
            .lock_handle()
            .await
            .doing(WHAT)?
            .set_progress_handler(STEPS, move || !stop.is_cancelled());
        // A copy of the file would miss the log. This one is of one moment, and has no free pages with remains of
        // texts.
        let copied = sqlx::query("VACUUM INTO $1")
            .bind(to.display().to_string())
            .execute(&mut *connection)
            .await
            .doing(WHAT);
        connection
            .lock_handle()
            .await
            .doing(WHAT)?
            .remove_progress_handler();
        copied.map(drop)
    }

    /// Path of the database; `None` for one in memory.
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

    /// See [`Store::is_rewrite_due`](super::super::Store::is_rewrite_due).
    pub async fn is_rewrite_due(&self) -> Result<bool> {
        Ok(self.rewrite_due().await?.is_some())
    }
}

/// Returns the space that a rewrite needs and the space that is free, if that is too little: for the write-ahead log
/// and for the copy in the temporary folder. `None` also if the system does not report free space.
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

/// Folder of SQLite's temporary files.
fn temporary_folder() -> PathBuf {
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter();
    let named = named.filter_map(std::env::var_os).map(PathBuf::from);
    // SQLite's own order (https://www.sqlite.org/tempfiles.html).
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
    // `f_bavail`, not `f_bfree`: what the system holds back for root is not ours.
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
