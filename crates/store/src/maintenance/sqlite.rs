//! Maintains a SQLite file: VACUUM, checkpoints of the write-ahead log, and copies.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Executor, Row, Sqlite};
use tokio_util::sync::CancellationToken;

use super::{REWRITE_DUE, REWRITE_TIMEOUT_MS, Rewritten};
use crate::Result;
use crate::driver_error::ErrorContext;
use crate::lock_wait::STEP;
use crate::sql::SqlStore;

/// Value of [`REWRITE_DUE`] if only the log remains to be emptied.
const LOG_IS_LEFT: &str = "log";
/// Timeout for readers of the log at the end of a run, in milliseconds.
const CHECKPOINT_TIMEOUT_MS: u32 = 1_000;
/// Divisor for the log's overhead: a 24-byte header per 4 kB page, less than one hundredth.
const LOG_OVERHEAD: u64 = 100;
/// SQLite instructions between two checks for cancellation. Copying a row takes four instructions.
const PROGRESS_INTERVAL: i32 = 1_000;

impl SqlStore<Sqlite> {
    /// See [`Store::rewrite`](crate::Store::rewrite).
    pub async fn rewrite(&self) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the database's file";
        let due = self.meta(REWRITE_DUE).await?;
        // If only the log remains, an earlier run has rewritten the file.
        if due.as_deref() != Some(LOG_IS_LEFT) {
            let (used_pages, page_bytes): (i64, i64) = sqlx::query_as(
                "SELECT page_count - freelist_count, page_size \
                   FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )
            .fetch_one(&self.pool)
            .await
            .context(WHAT)?;
            // VACUUM writes only used pages, so free pages need no space.
            let used_bytes = used_pages.unsigned_abs() * page_bytes.unsigned_abs();
            if let Some(file) = self.file().await?
                && let Some(no_space) = missing_space(&file, used_bytes)
            {
                return Ok(no_space);
            }
            self.vacuum().await?;
            // Keeps the value of a purge that happened in the meantime.
            sqlx::query("UPDATE meta SET value = $1 WHERE key = $2 AND value = $3")
                .bind(LOG_IS_LEFT)
                .bind(REWRITE_DUE)
                .bind(due.as_deref())
                .execute(&self.pool)
                .await
                .context(WHAT)?;
        }
        Ok(if self.checkpoint_within(REWRITE_TIMEOUT_MS).await? {
            Rewritten::Complete
        } else {
            Rewritten::LogInUse
        })
    }

    /// Rewrites the file without free pages.
    async fn vacuum(&self) -> Result<()> {
        const WHAT: &str = "rewrite the database's file";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        // The temporary copy is as large as the file, so it must not be in memory.
        let set = connection.execute("PRAGMA temp_store = FILE").await;
        set.context(WHAT)?;
        let rewritten = connection.execute("VACUUM").await;
        // The connection goes back to the pool even if there was an error.
        let reset = connection.execute("PRAGMA temp_store = MEMORY").await;
        rewritten.and(reset).context(WHAT).map(drop)
    }

    /// See [`Store::checkpoint`](crate::Store::checkpoint).
    pub async fn checkpoint(&self) -> Result<bool> {
        self.checkpoint_within(CHECKPOINT_TIMEOUT_MS).await
    }

    /// Empties the log, after waiting for its readers at most this long. Returns false if a reader prevented that.
    async fn checkpoint_within(&self, timeout_ms: u32) -> Result<bool> {
        const WHAT: &str = "checkpoint the write-ahead log";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        // A permanent reader would delay the end of every run by the usual timeout of minutes.
        let busy_timeout = |ms| AssertSqlSafe(format!("PRAGMA busy_timeout = {ms}"));
        let set = connection.execute(busy_timeout(timeout_ms.into())).await;
        set.context(WHAT)?;
        // Copies as much as possible in any case. `busy` is 1 if a reader prevented the log from being emptied.
        let is_emptied = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| row.try_get::<i64, _>(0))
            .map(|busy| busy == 0);
        // The connection goes back to the pool even if there was an error.
        let reset = connection.execute(busy_timeout(STEP.as_millis())).await;
        let is_emptied = is_emptied.context(WHAT)?;
        reset.context(WHAT)?;
        if is_emptied {
            sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
                .bind(REWRITE_DUE)
                .bind(LOG_IS_LEFT)
                .execute(&mut *connection)
                .await
                .context(WHAT)?;
        }
        Ok(is_emptied)
    }

    /// See [`Store::checkpoint_passive`](crate::Store::checkpoint_passive).
    pub async fn checkpoint_passive(&self) -> Result<()> {
        // PASSIVE does not wait.
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&self.pool)
            .await
            .context("checkpoint the write-ahead log")?;
        Ok(())
    }

    /// See [`Store::backup`](crate::Store::backup).
    pub async fn backup(&self, to: &Path, stop: &CancellationToken) -> Result<()> {
        const WHAT: &str = "copy the database";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        let stop = stop.clone();
        let mut handle = connection.lock_handle().await.context(WHAT)?;
        handle.set_progress_handler(PROGRESS_INTERVAL, move || !stop.is_cancelled());
        drop(handle);
        // A file copy would lack the log. VACUUM INTO writes one snapshot, without free pages that contain remnants of
        // text.
        let copied = sqlx::query("VACUUM INTO $1")
            .bind(to.display().to_string())
            .execute(&mut *connection)
            .await
            .context(WHAT);
        let mut handle = connection.lock_handle().await.context(WHAT)?;
        handle.remove_progress_handler();
        copied.map(drop)
    }

    /// Returns the path of the database; `None` for a database in memory.
    async fn file(&self) -> Result<Option<PathBuf>> {
        let file: String =
            sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'")
                .fetch_one(&self.pool)
                .await
                .context("find the database's file")?;
        Ok(Some(PathBuf::from(file)).filter(|file| !file.as_os_str().is_empty()))
    }

    #[expect(clippy::unused_async, reason = "one interface for both databases")]
    pub async fn may_rewrite(&self) -> Result<bool> {
        Ok(true)
    }
}

/// Returns [`Rewritten::NoSpace`] if the disk lacks space for the write-ahead log, or for the copy in the temporary
/// folder. `None` if there is enough space, or the system does not report it.
fn missing_space(file: &Path, used_bytes: u64) -> Option<Rewritten> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let temporary = temporary_folder();
    let log = used_bytes + used_bytes / LOG_OVERHEAD;
    let device = |path: &Path| path.metadata().ok().map(|metadata| metadata.dev());
    let on_one_device = device(folder) == device(&temporary);
    let needed = if on_one_device { log + used_bytes } else { log };
    let needs = [(folder, needed), (&temporary, used_bytes)];
    needs.into_iter().find_map(|(folder, needed)| {
        let free = free_bytes(folder)?;
        (free < needed).then_some(Rewritten::NoSpace { needed, free })
    })
}

/// Returns the folder for SQLite's temporary files.
fn temporary_folder() -> PathBuf {
    // SQLite tries the folders in this order (https://www.sqlite.org/tempfiles.html).
    ["SQLITE_TMPDIR", "TMPDIR"]
        .into_iter()
        .filter_map(std::env::var_os)
        .chain(["/var/tmp", "/usr/tmp", "/tmp", "."].map(Into::into))
        .map(PathBuf::from)
        .find(|folder| folder.is_dir())
        .unwrap_or_default()
}

/// Returns the free space of a folder's file system; `None` if the system does not report it.
fn free_bytes(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok()?;
    // `f_bavail`, not `f_bfree`, which includes blocks reserved for root.
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}
