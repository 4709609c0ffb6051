//! A SQLite database file.

mod locks;
mod opening;
mod watch;

use std::os::unix::fs::MetadataExt;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Pool, Sqlite};

use self::locks::lock_holder;
pub(crate) use self::opening::may_be_immutable;
pub use self::watch::FileWatch;
use super::{Bucket, Dialect, Migration, migrations};
use crate::driver_error::is_busy;
use crate::{Access, Result, TimeStep};

/// Page cache of a reader, in negative KiB.
pub(crate) const READER_CACHE: &str = "-32768";

impl Dialect for Sqlite {
    const BACKEND: &'static str = "sqlite";
    const MIGRATIONS: &'static [Migration] = migrations::SQLITE;
    const BEGIN_WRITE: &'static str = "BEGIN IMMEDIATE";
    // A SQLite transaction sees the snapshot of its first read.
    const BEGIN_READ: &'static str = "BEGIN";
    const POSTS_IN_ORDER: &'static str = "INDEXED BY things_current";
    const SKIP_LOCKED: &'static str = "";
    const FOR_UPDATE: &'static str = "";
    const LOCK_KEY: &'static str = "";
    const SHARE_POSTS: &'static str = "";
    const LOCK_POSTS: &'static str = "";
    // Logits have foreign keys, so SQLite keeps an undo journal in any case.
    const BULK_LOGITS: bool = false;
    const IN_JSON_ARRAY: &'static str = "(SELECT value FROM json_each($1))";
    const SEARCHED: &'static str = "p.title || char(10) || p.selftext";
    // The format that sqlx uses for times. It sorts as text.
    const NOW: &'static str = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')";
    const HAS_SCHEMA: &'static str =
        "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    // Triggers have their own namespace, and names are case-insensitive.
    const RELATIONS_NAMED: &'static str =
        "SELECT name FROM sqlite_master WHERE type <> 'trigger' AND lower(name)";
    const NAME_TAKEN_ADVICE: &'static str = "name another file";
    const SERVER: &'static str = "SELECT 'SQLite ' || sqlite_version()";
    const BYTES: &'static str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    const INTEGRITY: &'static str = "SELECT integrity_check FROM pragma_integrity_check() WHERE integrity_check <> 'ok' \
         UNION ALL \
         SELECT COUNT(*) || ' rows of ' || \"table\" || ' refer to missing rows of ' || parent \
           FROM pragma_foreign_key_check() GROUP BY \"table\", parent";
    const DEEP_CHECKS: &'static str = "SELECT '' WHERE FALSE";
    const REPAIR_ADVICE: &'static str =
        "first copy the database files elsewhere, then restore a backup (docs/retention.md)";
    const NUMBER_OF_SCORES: &'static str = "json_array_length(s.scores)";
    // Reads only the pages of the smallest index: 20 ms with 1,000,000 posts.
    const ESTIMATE_POSTS: &'static str = "SELECT COUNT(*) FROM things";
    const TOKEN: &'static str = "lower(hex(randomblob(8)))";

    fn file_id(options: &SqliteConnectOptions) -> Option<(u64, u64)> {
        let file = std::fs::metadata(options.get_filename()).ok()?;
        Some((file.dev(), file.ino()))
    }

    fn bucket(column: &str, step: TimeStep) -> Bucket {
        let length = match step {
            TimeStep::Hour => "2026-11-22T13".len(),
            TimeStep::Day => "2026-11-22".len(),
            TimeStep::Month => "2026-11".len(),
        };
        Bucket {
            key: format!("substr({column}, 1, {length})"),
            text: "bucket".to_owned(),
        }
    }

    // Takes the row at a pseudo-random position in each interval of row ids: a fixed position could match a pattern,
    // such as the order of posts on a page. The prime number makes every position possible. The row ids of deleted
    // posts match nothing.
    fn sample_posts(interval: i64) -> String {
        format!(
            "FROM things WHERE rowid IN ( \
               WITH RECURSIVE each(at) AS (SELECT MIN(rowid) FROM things UNION ALL \
                 SELECT at + {interval} FROM each WHERE at + {interval} <= (SELECT MAX(rowid) FROM things)) \
                 SELECT at + at / {interval} * 2147483647 % {interval} FROM each)"
        )
    }

    fn floor(number: &str) -> String {
        format!("CAST({number} AS INTEGER)")
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    async fn lock_holder(pool: &Pool<Self>, _: Option<i32>) -> Option<String> {
        lock_holder(pool.connect_options().get_filename())
    }

    async fn migrate(pool: &Pool<Self>, migrator: &Migrator) -> Result<(), MigrateError> {
        // sqlx takes no lock on SQLite. Within this transaction, sqlx's transactions become savepoints.
        let mut tx = pool.begin_with(Self::BEGIN_WRITE).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        tx.commit().await?;
        // A file with another program's tables gets a write-ahead log only now that it has topicmill's tables.
        match sqlx::query("PRAGMA journal_mode = WAL").execute(pool).await {
            // Another process is using the file. It sets the same mode, or the next process that opens the file does.
            Err(error) if is_busy(&error) => Ok(()),
            with_wal => Ok(with_wal.map(drop)?),
        }
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        opening::open(url, access).await
    }
}
