//! Copies a SQLite database into a PostgreSQL database, as one snapshot.
//!
//! The source may be in use. The target must be empty; every row keeps its key. One transaction writes the target, so
//! an interrupted copy leaves it empty, and the same command starts over. Rows are copied in order and in small
//! batches, to bound memory. At the end, digests of the source and the target are compared.

mod cells;
mod shape;

use futures_util::TryStreamExt;
use serde::Serialize;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};

use self::cells::{Digest, SqlValue, cells, push_cells};
use self::shape::{TableShape, identities, shapes};
use super::driver_error::ErrorContext;
use super::{Result, Store, StoreError};

const WHAT_READ: &str = "read the database to copy";
const WHAT_WRITE: &str = "write the copy";
/// Bytes per message to the server.
const BYTES_AT_ONCE: usize = 256 * 1024;
/// Rows per COPY. The number is bounded because the server queues a foreign key check for each row in memory until the
/// COPY ends.
const ROWS_A_COPY: u64 = 100_000;

/// A copied table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopiedTable {
    /// The table's name.
    pub table: String,
    /// Number of rows copied.
    pub rows: u64,
    /// Digest of the rows, the same in the source and the target.
    pub digest: String,
}

/// Progress callback, which receives the table and the number of rows copied so far.
pub type OnCopied<'a> = &'a (dyn Fn(&str, u64) + Send + Sync);

impl Store {
    /// Copies everything from a SQLite database to a migrated but empty PostgreSQL database.
    ///
    /// # Errors
    /// Returns [`StoreError::NotEmpty`], [`StoreError::NotSqliteToPostgres`], and errors from both databases. After an
    /// error, the target is unchanged.
    pub async fn copy_to(&self, to: &Self, progress: OnCopied<'_>) -> Result<Vec<CopiedTable>> {
        match (self, to) {
            (Self::Sqlite(from), Self::Postgres(to)) => {
                to_postgres(&from.pool, &to.pool, progress).await
            }
            _ => Err(StoreError::NotSqliteToPostgres),
        }
    }
}

/// Progress of copying one table.
struct Progress<'a> {
    on_copied: OnCopied<'a>,
    table: &'a str,
    digest: Digest,
}

impl Progress<'_> {
    fn row(&mut self, shape: &TableShape, row: &[SqlValue]) {
        self.digest.add(shape, row);
        if self.digest.rows.is_multiple_of(10_000) {
            (self.on_copied)(self.table, self.digest.rows);
        }
    }
}

async fn to_postgres(
    from: &SqlitePool,
    to: &PgPool,
    progress: OnCopied<'_>,
) -> Result<Vec<CopiedTable>> {
    let mut reading = from.begin_with("BEGIN").await.context(WHAT_READ)?;
    let mut writing = to.begin().await.context(WHAT_WRITE)?;
    let shapes = shapes(&mut writing).await?;
    for shape in &shapes {
        let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", shape.quoted());
        run_postgres(&mut writing, lock).await?;
    }
    for shape in shapes.iter().filter(|shape| !shape.is_seeded()) {
        let some = AssertSqlSafe(format!("SELECT EXISTS (SELECT 1 FROM {})", shape.quoted()));
        let some: bool = sqlx::query_scalar(some)
            .fetch_one(&mut *writing)
            .await
            .context(WHAT_WRITE)?;
        if some {
            return Err(StoreError::NotEmpty(shape.name.clone()));
        }
    }
    // The planner considers the growing tables empty, so it would read a whole table for each foreign key check.
    run_postgres(&mut writing, "SET LOCAL enable_seqscan = off".to_owned()).await?;
    run_postgres(&mut writing, "DELETE FROM meta".to_owned()).await?;
    let mut sent = Vec::with_capacity(shapes.len());
    for shape in &shapes {
        sent.push(send(&mut reading, &mut writing, shape, progress).await?);
    }
    for identity in identities(&mut writing).await? {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = $1")
                .bind(&identity.table)
                .fetch_optional(&mut *reading)
                .await
                .context(WHAT_READ)?;
        if let Some(last) = last.filter(|last| *last > 0) {
            sqlx::query("SELECT setval($1::regclass, $2)")
                .bind(&identity.sequence)
                .bind(last)
                .execute(&mut *writing)
                .await
                .context(WHAT_WRITE)?;
        }
    }
    drop(reading);
    run_postgres(&mut writing, "SET LOCAL enable_seqscan = on".to_owned()).await?;
    let mut done = Vec::with_capacity(shapes.len());
    for (shape, sent) in shapes.iter().zip(sent) {
        let mut digest = Digest::default();
        let sql = AssertSqlSafe(shape.select_postgres());
        let mut rows = sqlx::query(sql).fetch(&mut *writing);
        while let Some(row) = rows.try_next().await.context(WHAT_WRITE)? {
            digest.add(shape, &cells(&row, shape).context(WHAT_WRITE)?);
        }
        done.push(compared(shape, &sent, &digest)?);
    }
    writing.commit().await.context(WHAT_WRITE)?;
    // This updates the planner's statistics, as autovacuum would do later. Only our tables are named because the server
    // warns about tables that others own.
    let names: Vec<String> = shapes.iter().map(TableShape::quoted).collect();
    let analyze = AssertSqlSafe(format!("ANALYZE {}", names.join(", ")));
    if let Err(error) = sqlx::query(analyze).execute(to).await {
        tracing::debug!("cannot analyse the copied tables: {error}");
    }
    Ok(done)
}

async fn run_postgres(connection: &mut PgConnection, sql: String) -> Result<()> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    done.context(WHAT_WRITE).map(drop)
}

/// Copies the rows in a SQLite table as COPY lines.
async fn send(
    reading: &mut SqliteConnection,
    writing: &mut PgConnection,
    shape: &TableShape,
    on_copied: OnCopied<'_>,
) -> Result<Digest> {
    let mut progress = Progress {
        on_copied,
        table: &shape.name,
        digest: Digest::default(),
    };
    on_copied(&shape.name, 0);
    let mut rows = sqlx::query(AssertSqlSafe(shape.select_sqlite())).fetch(reading);
    let copy = format!("COPY {} ({}) FROM STDIN", shape.quoted(), shape.names());
    let mut lines = Vec::with_capacity(2 * BYTES_AT_ONCE);
    let mut more = true;
    while more {
        let mut copying = writing.copy_in_raw(&copy).await.context(WHAT_WRITE)?;
        let mut in_copy = 0;
        let failed = loop {
            if in_copy == ROWS_A_COPY {
                break None;
            }
            let row = match rows.try_next().await {
                Ok(Some(row)) => row,
                Ok(None) => {
                    more = false;
                    break None;
                }
                Err(error) => break Some(Err(error).context(WHAT_READ)),
            };
            let pushed = cells(&row, shape).context(WHAT_READ).and_then(|row| {
                progress.row(shape, &row);
                push_cells(&mut lines, shape, &row)
            });
            if let Err(error) = pushed {
                break Some(Err(error));
            }
            in_copy += 1;
            if lines.len() >= BYTES_AT_ONCE {
                if let Err(error) = copying.send(&lines[..]).await {
                    break Some(Err(error).context(WHAT_WRITE));
                }
                lines.clear();
            }
        };
        if let Some(failed) = failed {
            // An error from the abort is ignored: the caller reports the first error.
            let _ = copying.abort("the copy was not finished").await;
            return failed;
        }
        copying.send(&lines[..]).await.context(WHAT_WRITE)?;
        lines.clear();
        copying.finish().await.context(WHAT_WRITE)?;
    }
    Ok(progress.digest)
}

fn compared(shape: &TableShape, sent: &Digest, there: &Digest) -> Result<CopiedTable> {
    if sent == there {
        return Ok(CopiedTable {
            table: shape.name.clone(),
            rows: sent.rows,
            digest: format!("{:032x}", sent.sum),
        });
    }
    Err(StoreError::CopyMismatch {
        table: shape.name.clone(),
        sent: sent.rows,
        there: there.rows,
    })
}
