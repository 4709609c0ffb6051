//! Reads columns: runs a statement in a snapshot, and decodes the server's binary form.

use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row, TypeInfo, ValueRef};
use topicmill_core::{ColumnCell, ColumnKind};

use super::{declare, incomplete_error, statement_error};
use crate::query::batch_builder::BatchBuilder;
use crate::query::columns::{BatchSender, ColumnQuery, ColumnStatement};
use crate::query::{QueryEnd, Result, check, query_error};

/// Begins a transaction that reads one snapshot. The statement of a [`ColumnQuery`] returns all its rows in key order.
/// The planner expects few rows from joins on two equal columns, and would therefore sort a million rows, or read every
/// post in three processes, instead of following the keys. Sorting takes almost four times as long. Without statistics
/// about new labels, it would read all of them for each post.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_sort = off; \
     SET LOCAL enable_nestloop = off; SET LOCAL max_parallel_workers_per_gather = 0";

/// Runs a statement in a transaction of its own.
pub async fn read(
    connection: &mut PgConnection,
    reading: &ColumnQuery,
    into: &BatchSender,
) -> Result<QueryEnd> {
    let failed = |error| statement_error(&error);
    connection.execute(BEGIN_READING).await.map_err(failed)?;
    let statement = &reading.statement;
    let sql = &statement.sql;
    check(sql)?;
    declare(connection, sql)
        .await
        .map_err(|error| incomplete_error(sql, &error))?;
    // The cursor has verified that this is one statement that reads. For why it is closed unused, see `run_query`.
    let closed = connection.execute("CLOSE topicmill").await;
    closed.map_err(failed)?;
    let mut builder = BatchBuilder::new(statement);
    // The extended protocol returns values in binary form.
    let sql = AssertSqlSafe(sql.clone());
    let mut rows = sqlx::query(sql).persistent(false).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await.map_err(failed)? {
        put_row(&mut builder, statement, &row)?;
        if let Some(batch) = builder.end_row()
            && into.send(batch).await.is_err()
        {
            return Ok(QueryEnd::Cancelled);
        }
    }
    // A batch is sent even without rows.
    let sent = into.send(builder.rest()).await;
    Ok(match sent {
        Ok(()) => QueryEnd::Complete,
        Err(_) => QueryEnd::Cancelled,
    })
}

/// Adds the values of a row in binary form.
fn put_row(builder: &mut BatchBuilder<'_>, statement: &ColumnStatement, row: &PgRow) -> Result<()> {
    for (i, kind) in statement.kinds.iter().enumerate() {
        let raw = row
            .try_get_raw(i)
            .map_err(|error| statement_error(&error))?;
        if raw.is_null() {
            builder.put(ColumnCell::Null)?;
            continue;
        }
        let bytes = raw.as_bytes().map_err(query_error)?;
        let type_info = raw.type_info();
        match (kind, type_info.name(), <[u8; 8]>::try_from(bytes)) {
            (ColumnKind::Text, "TEXT" | "VARCHAR" | "NAME", _) => {
                builder.put(ColumnCell::Text(&String::from_utf8_lossy(bytes)))
            }
            (ColumnKind::Hex, "BYTEA", _) => builder.put_hex(bytes),
            (ColumnKind::Vector, "BYTEA", _) => builder.put_vector(bytes),
            (ColumnKind::Boolean, "BOOL", _) => builder.put(ColumnCell::Boolean(bytes != [0_u8])),
            (ColumnKind::Integer, "INT8", Ok(bytes)) => {
                builder.put(ColumnCell::Integer(i64::from_be_bytes(bytes)))
            }
            (ColumnKind::Number, "FLOAT8", Ok(bytes)) => {
                builder.put(ColumnCell::Number(f64::from_be_bytes(bytes)))
            }
            (ColumnKind::Time, "TIMESTAMPTZ", Ok(bytes)) => {
                let micros = i64::from_be_bytes(bytes);
                // `div_euclid` rounds times before 2000 down, as for SQLite.
                builder.put(ColumnCell::Time(micros.div_euclid(1_000) + MILLIS_OF_2000))
            }
            (_, name, _) => Err(builder.wrong(name)),
        }?;
    }
    if statement.list == 0 {
        return Ok(());
    }
    let raw = row.try_get_raw(statement.kinds.len());
    let raw = raw.map_err(|error| statement_error(&error))?;
    match raw.type_info().name() {
        _ if raw.is_null() => builder.put_numbers(std::iter::empty()),
        "FLOAT8[]" => builder.put_numbers(numbers(raw.as_bytes().map_err(query_error)?)),
        name => Err(builder.wrong(name)),
    }
}

/// Milliseconds from the Unix epoch to 2000, the server's epoch.
const MILLIS_OF_2000: i64 = 946_684_800_000;

/// Parses an array in the server's binary form: number of dimensions, null flag and type; length and first index; then
/// each element after its length (PostgreSQL, `array_send`).
fn numbers(bytes: &[u8]) -> impl Iterator<Item = Option<f64>> {
    // Three numbers of 4 bytes, then 2 × 4 bytes for the dimension; each element has 4 bytes of length and 8 of value.
    let elements = bytes.get(20..).unwrap_or_default().chunks(12);
    elements.map(|element| {
        let (length, number) = element.split_first_chunk::<4>()?;
        let number = <[u8; 8]>::try_from(number).ok()?;
        (i32::from_be_bytes(*length) == 8).then(|| f64::from_be_bytes(number))
    })
}
