//! A SQLite file in the place of another one: what `db restore` needs of the database.
//!
//! The file that comes is a copy of its own beside the one that goes, so that whatever happens, one whole database
//! stands under the name. What was purged from the database that goes does not come back with the other one.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection};

use super::dialect::Dialect;
use super::failure::{Doing, is_busy};
use super::{Result, StoreError};

/// How long a restore waits for others to leave the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a file turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// A whole database of topicmill, with its schema version.
    Ours(i64),
    /// A database, but not one of topicmill.
    Foreign,
    /// A damaged one; what SQLite said.
    Damaged(String),
}

/// Looks whether a SQLite file that nobody else uses is a whole database of topicmill.
///
/// # Errors
/// [`StoreError::Newer`] for one of a later version of topicmill, and those of the file system.
pub async fn inspect(file: &Path) -> Result<Inspected> {
    const WHAT: &str = "read the copy";
    let damaged = |error: StoreError| match error {
        StoreError::Damaged { said, .. } => Ok(Inspected::Damaged(said)),
        error => Err(error),
    };
    let mut connection = match open(file).await.doing(WHAT) {
        Ok(connection) => connection,
        Err(error) => return damaged(error),
    };
    let looked = look(&mut connection).await;
    connection.close().await.doing(WHAT)?;
    let inspected = looked.or_else(damaged)?;
    let known = sqlx::Sqlite::migrator().iter().map(|one| one.version).max();
    match (inspected, known) {
        (Inspected::Ours(found), Some(known)) if found > known => Err(StoreError::Newer {
            url: "of the backup".to_owned(),
            found,
            known,
        }),
        (inspected, _) => Ok(inspected),
    }
}

async fn open(file: &Path) -> Result<SqliteConnection, sqlx::Error> {
    SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(PATIENCE)
        .foreign_keys(true)
        .pragma("secure_delete", "ON")
        .disable_statement_logging()
        .connect()
        .await
}

async fn look(connection: &mut SqliteConnection) -> Result<Inspected> {
    const WHAT: &str = "read the copy";
    let tables: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ('posts', 'runs', '_sqlx_migrations')",
    )
    .fetch_one(&mut *connection)
    .await
    .doing(WHAT)?;
    if tables < 3 {
        return Ok(Inspected::Foreign);
    }
    let said: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(5)")
        .fetch_all(&mut *connection)
        .await
        .doing(WHAT)?;
    if said != ["ok"] {
        return Ok(Inspected::Damaged(said.join("; ")));
    }
    let schema =
        sqlx::query_scalar("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success");
    Ok(Inspected::Ours(
        schema.fetch_one(connection).await.doing(WHAT)?,
    ))
}

/// What a file that is to be replaced holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nothing that anybody would miss.
    Nothing,
    /// Posts, labels, runs, or another program's tables.
    Something,
}

/// Takes a file so that nobody else may read or write it until the connection is closed; false where somebody uses it.
async fn alone(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    // Only who is alone with the file may do without its log, which is gone afterwards.
    let mode = "PRAGMA journal_mode = DELETE";
    let mode: String = sqlx::query_scalar(mode).fetch_one(&mut *connection).await?;
    if mode != "delete" {
        return Ok(false);
    }
    // In this mode the lock of the first transaction stays when it ends.
    connection
        .execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")
        .await?;
    // Somebody may have opened the file in between, and given it a log again.
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(connection)
        .await?;
    Ok(mode == "delete")
}

/// A SQLite file that nobody else may use until this is dropped.
#[derive(Debug)]
pub struct Locked(SqliteConnection);

impl Locked {
    /// Folds the log of a database into its file, and takes it for ourselves; `None` where another program uses it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take(file: &Path) -> Result<Option<Self>> {
        const WHAT: &str = "take the database for ourselves";
        let mut connection = open(file).await.doing(WHAT)?;
        // Only who is alone with the file may do without its log, which is gone afterwards.
        match alone(&mut connection).await {
            Ok(true) => Ok(Some(Self(connection))),
            Err(error) if !is_busy(&error) => Err(error).doing(WHAT),
            _ => {
                connection.close().await.doing(WHAT)?;
                Ok(None)
            }
        }
    }

    /// Whether there is anything in it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn holds(&mut self) -> Result<Held> {
        const WHAT: &str = "look what the database holds";
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
        )
        .fetch_all(&mut self.0)
        .await
        .doing(WHAT)?;
        for table in tables {
            if ["meta", "_sqlx_migrations"].contains(&table.as_str()) {
                continue;
            }
            let name = table.replace('"', "\"\"");
            let sql = sqlx::AssertSqlSafe(format!("SELECT EXISTS (SELECT 1 FROM \"{name}\")"));
            let some: bool = sqlx::query_scalar(sql)
                .fetch_one(&mut self.0)
                .await
                .doing(WHAT)?;
            if some {
                return Ok(Held::Something);
            }
        }
        Ok(Held::Nothing)
    }

    /// Takes out of another database what was purged from this one; how many posts.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn purge_from(&mut self, other: &Path) -> Result<u64> {
        const WHAT: &str = "take what was purged out of the copy";
        sqlx::query("ATTACH DATABASE $1 AS copy")
            .bind(other.display().to_string())
            .execute(&mut self.0)
            .await
            .doing(WHAT)?;
        let purged = self.purge_attached().await;
        let detached = sqlx::query("DETACH DATABASE copy")
            .execute(&mut self.0)
            .await
            .doing(WHAT);
        let purged = purged?;
        detached?;
        Ok(purged)
    }

    async fn purge_attached(&mut self) -> Result<u64> {
        const WHAT: &str = "take what was purged out of the copy";
        let tables: i64 = sqlx::query_scalar(
            "SELECT (SELECT COUNT(*) FROM main.sqlite_master WHERE name = 'tombstones') \
                  + (SELECT COUNT(*) FROM copy.sqlite_master WHERE name = 'tombstones')",
        )
        .fetch_one(&mut self.0)
        .await
        .doing(WHAT)?;
        if tables < 2 {
            return Ok(0);
        }
        let vectors: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM copy.sqlite_master WHERE name = 'text_vectors')",
        )
        .fetch_one(&mut self.0)
        .await
        .doing(WHAT)?;
        let mut tx = self.0.begin().await.doing(WHAT)?;
        sqlx::query(
            "INSERT INTO copy.tombstones (fullname, reason, purged_at) \
             SELECT fullname, reason, purged_at FROM main.tombstones WHERE TRUE ON CONFLICT (fullname) DO NOTHING",
        )
        .execute(&mut *tx)
        .await
        .doing(WHAT)?;
        let deleted = sqlx::query(
            "DELETE FROM copy.posts WHERE fullname IN (SELECT fullname FROM main.tombstones)",
        );
        let purged = deleted.execute(&mut *tx).await.doing(WHAT)?.rows_affected();
        if purged > 0 {
            sqlx::query(
                "DELETE FROM copy.pair_logits WHERE text_hash NOT IN (SELECT text_hash FROM copy.posts)",
            )
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
            if vectors {
                // Retention takes vectors, too.
                sqlx::query(
                    "DELETE FROM copy.text_vectors WHERE text_hash NOT IN ( \
                       SELECT text_hash FROM copy.posts WHERE text_purged_at IS NULL)",
                )
                .execute(&mut *tx)
                .await
                .doing(WHAT)?;
            }
            sqlx::query(
                "INSERT INTO copy.meta (key, value) VALUES ('rewrite_due', lower(hex(randomblob(8)))) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(purged)
    }

    /// Lets others in again.
    pub async fn release(self) {
        // Nothing was written in it, so there is nothing that could be lost.
        let _ = self.0.close().await;
    }
}
