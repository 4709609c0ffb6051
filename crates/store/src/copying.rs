//! Copies a SQLite database into a PostgreSQL database, as one snapshot.
//!
//! The source may be in use. The target must be empty; every row keeps its key. One transaction writes the target, so
//! an interrupted copy leaves it empty, and the same command starts over. SQLite returns each value as PostgreSQL's
//! text form, and the rows are sent in small pieces, to bound memory. At the end, the rows of both databases are
//! counted.

use futures_util::TryStreamExt;
use serde::Serialize;
use sqlx::postgres::PgPool;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, PgConnection, Row, SqliteConnection};

use super::driver_error::{ErrorContext, is_busy};
use super::maintenance::REWRITE_DUE;
use super::sql::TABLES;
use super::{Result, Store, StoreError};

const WHAT_READ: &str = "read the database to copy";
const WHAT_WRITE: &str = "write the copy";
/// Bytes per message to the server.
const BYTES_AT_ONCE: usize = 256 * 1024;
/// Rows per COPY. The number is bounded because the server queues a foreign key check for each row in memory until the
/// COPY ends.
const ROWS_A_COPY: u64 = 100_000;
/// Query for the columns of a table with their types. The database computes generated columns itself.
const COLUMNS: &str = "SELECT column_name::text, data_type::text FROM information_schema.columns \
     WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position";
/// Query for the tables with an identity column, with its sequence.
const SEQUENCES: &str = "SELECT c.relname::text, pg_get_serial_sequence(quote_ident(c.relname), a.attname) \
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
      WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND a.attidentity <> ''";

/// A copied table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopiedTable {
    /// The table's name.
    pub table: &'static str,
    /// Number of rows copied.
    pub rows: u64,
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

async fn to_postgres(
    from: &SqlitePool,
    to: &PgPool,
    progress: OnCopied<'_>,
) -> Result<Vec<CopiedTable>> {
    let mut reading = from.begin_with("BEGIN").await.context(WHAT_READ)?;
    let mut writing = to.begin().await.context(WHAT_WRITE)?;
    let lock = format!(
        "LOCK TABLE meta, {} IN ACCESS EXCLUSIVE MODE",
        TABLES.join(", ")
    );
    match run(&mut writing, lock).await {
        // This is not repeated: another copy into this database would leave nothing to do.
        Err(StoreError::Statement { what, source }) if is_busy(&source) => {
            return Err(StoreError::locked(what, None));
        }
        locked => locked?,
    }
    for table in TABLES {
        if count(&mut writing, table).await? > 0 {
            return Err(StoreError::NotEmpty(table.to_owned()));
        }
    }
    // The planner considers the growing tables empty, so it would read a whole table for each foreign key check.
    run(&mut writing, "SET LOCAL enable_seqscan = off".to_owned()).await?;
    run(&mut writing, "DELETE FROM meta".to_owned()).await?;
    let mut copied = Vec::with_capacity(1 + TABLES.len());
    for table in ["meta"].into_iter().chain(TABLES) {
        let sent = send(&mut reading, &mut writing, table, progress).await?;
        let there = count(&mut writing, table).await?;
        if sent != there {
            let table = table.to_owned();
            return Err(StoreError::CopyMismatch { table, sent, there });
        }
        copied.push(CopiedTable { table, rows: sent });
    }
    copy_sequences(&mut reading, &mut writing).await?;
    writing.commit().await.context(WHAT_WRITE)?;
    // This updates the planner's statistics, as autovacuum would do later. Only our tables are named because the server
    // warns about tables that others own.
    let analyze = AssertSqlSafe(format!("ANALYZE {}", TABLES.join(", ")));
    if let Err(error) = sqlx::query(analyze).execute(to).await {
        tracing::debug!("cannot analyse the copied tables: {error}");
    }
    Ok(copied)
}

async fn run(connection: &mut PgConnection, sql: String) -> Result<()> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    done.context(WHAT_WRITE).map(drop)
}

async fn count(connection: &mut PgConnection, table: &str) -> Result<u64> {
    let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    let rows = sqlx::query_scalar(count).fetch_one(connection).await;
    rows.map(i64::unsigned_abs).context(WHAT_WRITE)
}

/// Copies the last used keys: a key may be a fencing token, so it must not be assigned again.
async fn copy_sequences(reading: &mut SqliteConnection, writing: &mut PgConnection) -> Result<()> {
    let sequences = sqlx::query_as(SEQUENCES).fetch_all(&mut *writing);
    let sequences: Vec<(String, String)> = sequences.await.context(WHAT_WRITE)?;
    for (table, sequence) in sequences {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = $1 AND seq > 0")
                .bind(table)
                .fetch_optional(&mut *reading)
                .await
                .context(WHAT_READ)?;
        if let Some(last) = last {
            sqlx::query("SELECT setval($1::regclass, $2)")
                .bind(sequence)
                .bind(last)
                .execute(&mut *writing)
                .await
                .context(WHAT_WRITE)?;
        }
    }
    Ok(())
}

/// Copies the rows of a table. Returns how many.
async fn send(
    reading: &mut SqliteConnection,
    writing: &mut PgConnection,
    table: &'static str,
    on_copied: OnCopied<'_>,
) -> Result<u64> {
    on_copied(table, 0);
    let columns: Vec<(String, String)> = sqlx::query_as(COLUMNS)
        .bind(table)
        .fetch_all(&mut *writing)
        .await
        .context(WHAT_WRITE)?;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let values = columns.iter().map(|(name, kind)| as_text(name, kind));
    let values: Vec<String> = values.collect();
    let condition = match table {
        // A pending rewrite is not copied: it applies only to the source database's own files.
        "meta" => format!(" WHERE key <> '{REWRITE_DUE}'"),
        _ => String::new(),
    };
    let select = format!("SELECT {} FROM {table}{condition}", values.join(", "));
    let copy = format!("COPY {table} ({}) FROM STDIN", names.join(", "));
    let mut rows = sqlx::query(AssertSqlSafe(select)).fetch(reading);
    let mut sent = 0;
    loop {
        let mut copying = writing.copy_in_raw(&copy).await.context(WHAT_WRITE)?;
        let mut lines = Vec::with_capacity(2 * BYTES_AT_ONCE);
        let filled = async {
            while let Some(row) = rows.try_next().await.context(WHAT_READ)? {
                push_row(&mut lines, table, &names, &row)?;
                sent += 1;
                if lines.len() >= BYTES_AT_ONCE {
                    copying.send(&lines[..]).await.context(WHAT_WRITE)?;
                    lines.clear();
                    on_copied(table, sent);
                }
                if sent.is_multiple_of(ROWS_A_COPY) {
                    break;
                }
            }
            copying.send(&lines[..]).await.context(WHAT_WRITE)
        };
        if let Err(error) = filled.await {
            // An error from the abort is ignored: the caller reports the first error.
            let _ = copying.abort("the copy was not finished").await;
            return Err(error);
        }
        let rows_in_copy = copying.finish().await.context(WHAT_WRITE)?;
        if rows_in_copy < ROWS_A_COPY {
            return Ok(sent);
        }
    }
}

/// Returns SQL that converts a SQLite value to the text form of a PostgreSQL type.
fn as_text(name: &str, kind: &str) -> String {
    match kind {
        // 17 digits identify a number.
        "double precision" | "real" => {
            format!("IIF({name} IS NULL, NULL, printf('%!.17g', {name}))")
        }
        "bytea" => format!("IIF({name} IS NULL, NULL, '\\x' || hex({name}))"),
        // A JSON array.
        "ARRAY" => format!("replace(replace({name}, '[', '{{'), ']', '}}')"),
        _ => format!("CAST({name} AS TEXT)"),
    }
}

/// Writes a row in COPY's text format (<https://www.postgresql.org/docs/current/sql-copy.html>).
fn push_row(lines: &mut Vec<u8>, table: &str, names: &[&str], row: &SqliteRow) -> Result<()> {
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            lines.push(b'\t');
        }
        let Some(text) = row.try_get::<Option<&str>, _>(at).context(WHAT_READ)? else {
            lines.extend(b"\\N");
            continue;
        };
        for byte in text.bytes() {
            match byte {
                0 => {
                    return Err(StoreError::NotCopyable {
                        table: table.to_owned(),
                        detail: format!(
                            "its `{name}` column contains NUL, which PostgreSQL cannot store"
                        ),
                    });
                }
                b'\\' => lines.extend(b"\\\\"),
                b'\n' => lines.extend(b"\\n"),
                b'\r' => lines.extend(b"\\r"),
                b'\t' => lines.extend(b"\\t"),
                byte => lines.push(byte),
            }
        }
    }
    lines.push(b'\n');
    Ok(())
}
