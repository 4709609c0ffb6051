//! What keeps a database's files in order: nothing of purged texts left in them, and a copy that is whole.
//!
//! Deleting a row takes it out of its table. SQLite overwrites the bytes (`secure_delete`), but not the copies that
//! it left in free space when it moved rows from page to page; PostgreSQL overwrites nothing. So a purge notes in
//! `meta` that the files are to be rewritten, and the note goes when they were.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite};

use super::failure::{Doing, is_lock_timeout};
use super::sql::{SqlStore, TABLES};
use super::{Result, StoreError};

/// The note that purged texts may linger in free space. Its value is another one after each purge, and
/// [`LOG_IS_LEFT`] where only the log is still to be emptied.
pub(super) const REWRITE_DUE: &str = "rewrite_due";
const LOG_IS_LEFT: &str = "log";
/// The note of the migration that ended it: PostgreSQL's statistics have texts of posts, or had.
const STATISTICS_DUE: &str = "statistics_due";

/// How long the end of a run waits for readers of the log.
const FOLD_PATIENCE_MS: u32 = 1_000;
/// And the end of a rewrite.
const REWRITE_PATIENCE_MS: u32 = 10_000;
/// How often a rewrite looks how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The log holds each page with a header of 24 bytes: less than a hundredth of a page of 4 kB.
const LOG_OVERHEAD: u64 = 100;

/// How rewriting the files ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritten {
    /// Nothing of what was purged is left in them.
    Whole,
    /// The file is rewritten; somebody reads an earlier state, which stays in the log until they are done.
    LogIsRead,
    /// Somebody reads an earlier state of a server's database, in which the rows are that were deleted since. A table
    /// that is rewritten meanwhile has them still.
    EarlierStateIsRead {
        /// Whoever does, as far as the server shows it to us.
        by: Vec<String>,
    },
    /// A table was not free for as long as anybody may be made to wait.
    TableIsUsed {
        /// The table.
        table: &'static str,
    },
    /// The tables are rewritten; the server's statistics, which had texts before schema 11, are not.
    StatisticsAreLeft,
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
            Self::StatisticsAreLeft => Some(
                "the server's statistics have texts of posts from before the upgrade; have the owner of the database, \
                 on servers before version 18 a superuser, run `topicmill db vacuum` once"
                    .to_owned(),
            ),
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

    /// See [`super::Store::fold`].
    pub async fn fold(&self) -> Result<bool> {
        self.fold_within(FOLD_PATIENCE_MS).await
    }

    async fn fold_within(&self, patience_ms: u32) -> Result<bool> {
        const WHAT: &str = "fold the log into the database's file";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        // With the usual patience of minutes, a reader that stays would keep every run from ending.
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
        // Set back before any error is returned: the connection goes back to the pool.
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
        // PASSIVE waits for nobody.
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&self.pool)
            .await
            .doing("fold the log into the database's file")?;
        Ok(())
    }

    /// See [`super::Store::backup`].
    pub async fn backup(&self, to: &Path) -> Result<()> {
        const WHAT: &str = "copy the database";
        // A copy of the file would miss the log. This one is of one moment, and has no free pages with remains of
        // texts.
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

/// The table that shows whether somebody reads an earlier state, because it is small.
const SMALL: &str = "meta";
/// VACUUM FREEZE sets `relfrozenxid` to the oldest transaction that anybody reads or writes in: rows that were deleted
/// after it are still there (<https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND>).
/// Whoever it is, a session, a prepared transaction or a replica, and whether we may see it, makes no difference.
const READS_EARLIER: &str =
    "SELECT age(relfrozenxid) > age($2::text::xid) FROM pg_class WHERE oid = $1::regclass";
/// Whoever reads as of a transaction before this one, or writes in one, in another database too.
const READERS: &str = "\
SELECT 'process ' || pid FROM pg_stat_activity \
 WHERE pid <> pg_backend_pid() AND (age(backend_xid) > age($1::text::xid) \
        OR ((datname = current_database() OR backend_type = 'walsender') \
            AND age(backend_xmin) > age($1::text::xid))) \
 UNION ALL \
SELECT 'prepared transaction ' || quote_literal(gid) FROM pg_prepared_xacts \
 WHERE age(transaction) > age($1::text::xid) \
 UNION ALL \
SELECT 'replication slot ' || slot_name FROM pg_replication_slots \
 WHERE GREATEST(age(xmin), age(catalog_xmin)) > age($1::text::xid)";
/// Whether texts are in the statistics of posts.
const TEXTS_IN_STATISTICS: &str = "\
SELECT attname::text FROM pg_stats WHERE schemaname = current_schema() AND tablename = 'posts' \
   AND attname IN ('title', 'selftext', 'url', 'permalink', 'author', 'flair')";
/// Whether the user may rewrite a table of the server's own.
const MAY_REWRITE_CATALOG: &str = "\
SELECT pg_has_role(datdba, 'USAGE') OR EXISTS ( \
         SELECT 1 FROM pg_roles WHERE rolname = 'pg_maintain' AND pg_has_role(oid, 'USAGE')) \
  FROM pg_database WHERE datname = current_database()";

impl SqlStore<Postgres> {
    /// See [`super::Store::rewrite`].
    pub async fn rewrite(&self, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the tables";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        // Whoever comes behind us waits for as long as we do.
        let patience = format!("SET lock_timeout = {REWRITE_PATIENCE_MS}");
        let set = connection.execute(sqlx::AssertSqlSafe(patience)).await;
        set.doing(WHAT)?;
        let rewritten = Self::rewrite_by(&mut connection, progress).await;
        // Before any error is returned: the connection goes back to the pool.
        let reset = connection.execute("RESET lock_timeout").await;
        let rewritten = rewritten?;
        reset.doing(WHAT)?;
        Ok(rewritten)
    }

    async fn rewrite_by(connection: &mut PgConnection, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the tables";
        let due = Self::note(connection, REWRITE_DUE).await?;
        // The server would pass over a table of somebody else's, and say so to nobody.
        let others: Option<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE oid = 'posts'::regclass AND NOT pg_has_role(relowner, 'USAGE')",
        )
        .fetch_optional(&mut *connection)
        .await
        .doing(WHAT)?;
        if let Some(table) = others {
            let said = format!("only the owner of table {table} may rewrite it");
            return Err(StoreError::Denied(said));
        }
        // Rather than rewrite everything for nothing.
        let now = match Self::read_by_nobody(connection).await? {
            Ok(now) => now,
            Err(why) => return Ok(why),
        };
        let mut sizes = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let size: i64 = sqlx::query_scalar("SELECT pg_total_relation_size($1::regclass)")
                .bind(table)
                .fetch_one(&mut *connection)
                .await
                .doing(WHAT)?;
            sizes.push((table, size.unsigned_abs()));
        }
        let all = sizes.iter().map(|(_, size)| size).sum();
        let mut done = 0;
        for (table, size) in sizes {
            progress(done, all);
            // FULL writes the table anew, FREEZE makes `relfrozenxid` tell what it could not leave out, and ANALYZE
            // counts again what the planner goes by.
            let how = "FULL, FREEZE, ANALYZE";
            if let Some(why) = Self::vacuum(connection, how, table, &now).await? {
                return Ok(why);
            }
            done += size;
        }
        progress(all, all);
        if let Some(why) = Self::clear_statistics(connection).await? {
            return Ok(why);
        }
        sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
            .bind(REWRITE_DUE)
            .bind(due)
            .execute(&mut *connection)
            .await
            .doing(WHAT)?;
        Ok(Rewritten::Whole)
    }

    async fn note(connection: &mut PgConnection, key: &str) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT value FROM meta WHERE key = $1")
            .bind(key)
            .fetch_optional(connection)
            .await
            .doing("look what is to be rewritten")
    }

    /// A transaction later than all that was deleted until now, once nobody reads a state before it; or who does after
    /// the time that whoever reads but for a moment takes.
    async fn read_by_nobody(connection: &mut PgConnection) -> Result<Result<String, Rewritten>> {
        // This takes a new number, which is higher than that of each deletion that was committed before.
        let now: String = sqlx::query_scalar("SELECT pg_current_xact_id()::xid::text")
            .fetch_one(&mut *connection)
            .await
            .doing("look whether anybody reads an earlier state")?;
        let mut waited = Duration::ZERO;
        while let Some(why) = Self::vacuum(connection, "FULL, FREEZE", SMALL, &now).await? {
            let waits_on = waited < Duration::from_millis(REWRITE_PATIENCE_MS.into());
            if !waits_on || !matches!(why, Rewritten::EarlierStateIsRead { .. }) {
                return Ok(Err(why));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "another session's work does not go by our clock"
            )]
            tokio::time::sleep(LOOK_EVERY).await;
            // Naps are counted, because no file but `clock.rs` may read the time.
            waited += LOOK_EVERY;
        }
        Ok(Ok(now))
    }

    /// Vacuums a table; says why rows that were deleted before the transaction `now` are in it still, if they are.
    async fn vacuum(
        connection: &mut PgConnection,
        how: &str,
        table: &'static str,
        now: &str,
    ) -> Result<Option<Rewritten>> {
        const WHAT: &str = "rewrite the tables";
        let vacuum = sqlx::AssertSqlSafe(format!("VACUUM ({how}) {table}"));
        match sqlx::raw_sql(vacuum).execute(&mut *connection).await {
            Err(error) if is_lock_timeout(&error) => {
                return Ok(Some(Rewritten::TableIsUsed { table }));
            }
            ended => {
                ended.doing(WHAT)?;
            }
        }
        let reads_earlier: bool = sqlx::query_scalar(READS_EARLIER)
            .bind(table)
            .bind(now)
            .fetch_one(&mut *connection)
            .await
            .doing(WHAT)?;
        if !reads_earlier {
            return Ok(None);
        }
        let by = sqlx::query_scalar(READERS)
            .bind(now)
            .fetch_all(connection)
            .await
            .doing("look who reads an earlier state")?;
        Ok(Some(Rewritten::EarlierStateIsRead { by }))
    }

    /// Clears the statistics of texts that were made before schema 11; since then none are.
    async fn clear_statistics(connection: &mut PgConnection) -> Result<Option<Rewritten>> {
        const WHAT: &str = "clear the statistics of texts";
        let Some(due) = Self::note(connection, STATISTICS_DUE).await? else {
            return Ok(None);
        };
        let columns: Vec<String> = sqlx::query_scalar(TEXTS_IN_STATISTICS)
            .fetch_all(&mut *connection)
            .await
            .doing(WHAT)?;
        let (may, superuser, version): (bool, bool, i32) =
            sqlx::query_as(sqlx::AssertSqlSafe(format!(
                "SELECT ({MAY_REWRITE_CATALOG}), current_setting('is_superuser') = 'on', \
                    current_setting('server_version_num')::int"
            )))
            .fetch_one(&mut *connection)
            .await
            .doing(WHAT)?;
        // pg_clear_attribute_stats came with version 18.
        if !may || !(columns.is_empty() || superuser || version >= 180_000) {
            return Ok(Some(Rewritten::StatisticsAreLeft));
        }
        for column in columns {
            let clear = if superuser {
                "DELETE FROM pg_catalog.pg_statistic s USING pg_catalog.pg_attribute a \
                  WHERE a.attrelid = 'posts'::regclass AND a.attname = $1 \
                    AND s.starelid = a.attrelid AND s.staattnum = a.attnum"
            } else {
                "SELECT pg_clear_attribute_stats(current_schema()::text, 'posts', $1, FALSE)"
            };
            let cleared = sqlx::query(clear).bind(column).execute(&mut *connection);
            cleared.await.doing(WHAT)?;
        }
        let now = match Self::read_by_nobody(connection).await? {
            Ok(now) => now,
            Err(why) => return Ok(Some(why)),
        };
        // The deleted rows of the statistics lie in this table's file, as those of posts lie in theirs.
        let table = "pg_catalog.pg_statistic";
        if let Some(why) = Self::vacuum(connection, "FULL, FREEZE", table, &now).await? {
            return Ok(Some(why));
        }
        sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
            .bind(STATISTICS_DUE)
            .bind(due)
            .execute(&mut *connection)
            .await
            .doing(WHAT)?;
        Ok(None)
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
