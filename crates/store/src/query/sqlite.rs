//! Runs queries on SQLite, each on its own read-only connection.
//!
//! Writes are prevented in four ways: the file is opened for reading, `query_only` is on, an authorizer rejects all
//! actions except reading when a statement is compiled, and a statement that SQLite does not consider read-only is not
//! run. `sqlx` exposes neither the authorizer nor the end of a statement, so this connection uses `rusqlite`, with the
//! same SQLite library.

mod connection;

use std::borrow::Cow;
use std::path::Path;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, Error, ErrorCode, Row, Statement};
use serde_json::Value;
use sqlx::Sqlite;
use tokio_util::sync::CancellationToken;
use topicmill_core::{ColumnCell, ColumnKind};

use self::connection::{is_damaged, open_restricted};
use super::batch_builder::{BatchBuilder, millis};
use super::columns::{BatchSender, ColumnQuery, ColumnStatement};
use super::{
    Part, PartBuilder, PartSender, QueryEnd, QueryRequest, Result, SqlStore, StoreError, check,
    names, query_error,
};
use crate::driver_error::reads_unlocked;

impl SqlStore<Sqlite> {
    /// See [`crate::Store::run_query`].
    pub async fn run_query(&self, request: QueryRequest, into: PartSender) -> Result<QueryEnd> {
        let stop = request.stop.clone();
        let run = move |path: &Path| run_statement(path, &request, &into);
        self.on_thread(stop, run).await
    }

    /// See [`crate::Store::read_columns`].
    pub async fn read_columns(&self, reading: ColumnQuery, into: BatchSender) -> Result<QueryEnd> {
        let stop = reading.stop.clone();
        let read = move |path: &Path| read_columns(path, &reading, &into);
        self.on_thread(stop, read).await
    }

    async fn on_thread(
        &self,
        stop: CancellationToken,
        work: impl FnOnce(&Path) -> Result<QueryEnd> + Send + 'static,
    ) -> Result<QueryEnd> {
        let path = self.pool.connect_options().get_filename().to_owned();
        tokio::select! {
            ended = tokio::task::spawn_blocking(move || work(&path)) => {
                // Checked first: without its file, a query fails with an error of its own.
                self.check_same_file()?;
                ended.unwrap_or_else(|error| Err(query_error(error)))
            }
            // The thread ends soon. This call does not wait for it, because one instruction may be slow.
            () = stop.cancelled() => Ok(QueryEnd::Cancelled),
        }
    }
}

/// Runs the user's statement and sends its rows in parts.
fn run_statement(path: &Path, request: &QueryRequest, into: &PartSender) -> Result<QueryEnd> {
    check(&request.sql)?;
    let connection = open_restricted(path, &request.stop)?;
    // The restrictions are set before the statement is compiled, because that is when the authorizer runs.
    let mut statement = compile(&connection, &request.sql)?;
    match send_parts(&mut statement, request, into) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(QueryEnd::Cancelled)
        }
        ended => ended.map_err(|error| statement_error(&error)),
    }
}

/// Runs a statement and sends its rows as columns.
fn read_columns(path: &Path, reading: &ColumnQuery, into: &BatchSender) -> Result<QueryEnd> {
    check(&reading.statement.sql)?;
    let connection = open_restricted(path, &reading.stop)?;
    let mut compiled = compile(&connection, &reading.statement.sql)?;
    send_batches(&mut compiled, &reading.statement, into)
}

/// Sends the rows of a statement as columns, batch by batch.
fn send_batches(
    compiled: &mut Statement<'_>,
    statement: &ColumnStatement,
    into: &BatchSender,
) -> Result<QueryEnd> {
    let mut builder = BatchBuilder::new(statement);
    let mut rows = compiled.raw_query();
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                return Ok(QueryEnd::Cancelled);
            }
            Err(error) => return Err(statement_error(&error)),
        };
        let value = |i| row.get_ref(i).map_err(|error| statement_error(&error));
        for (i, kind) in statement.kinds.iter().enumerate() {
            put_value(&mut builder, *kind, value(i)?)?;
        }
        if statement.list > 0 {
            match value(statement.kinds.len())? {
                ValueRef::Null => builder.put_packed(ColumnCell::Null),
                ValueRef::Text(bytes) => builder.put_packed(ColumnCell::Text(&text(bytes))),
                value => return Err(builder.wrong(&value.data_type().to_string())),
            }
        }
        if let Some(batch) = builder.end_row()
            && into.blocking_send(batch).is_err()
        {
            return Ok(QueryEnd::Cancelled);
        }
    }
    // A batch is sent even without rows.
    let sent = into.blocking_send(builder.rest());
    Ok(if sent.is_ok() {
        QueryEnd::Complete
    } else {
        QueryEnd::Cancelled
    })
}

/// Adds a value to the column of this type.
fn put_value(builder: &mut BatchBuilder<'_>, kind: ColumnKind, value: ValueRef<'_>) -> Result<()> {
    match (kind, value) {
        (_, ValueRef::Null) => builder.put(ColumnCell::Null),
        (ColumnKind::Text, ValueRef::Text(bytes)) => builder.put(ColumnCell::Text(&text(bytes))),
        (ColumnKind::Time, ValueRef::Text(bytes)) => match millis(&text(bytes)) {
            Some(millis) => builder.put(ColumnCell::Time(millis)),
            None => Err(builder.wrong("not a time")),
        },
        (ColumnKind::Hex, ValueRef::Blob(bytes)) => builder.put_hex(bytes),
        (ColumnKind::Vector, ValueRef::Blob(bytes)) => builder.put_vector(bytes),
        (ColumnKind::Boolean, ValueRef::Integer(n)) => builder.put(ColumnCell::Boolean(n != 0)),
        (ColumnKind::Integer, ValueRef::Integer(n)) => builder.put(ColumnCell::Integer(n)),
        (ColumnKind::Number, ValueRef::Real(n)) => builder.put(ColumnCell::Number(n)),
        (ColumnKind::Number, ValueRef::Integer(n)) => builder.put(ColumnCell::Number(n as f64)),
        (_, value) => Err(builder.wrong(&value.data_type().to_string())),
    }
}

/// Decodes text. Tries a strict conversion first: it nearly always succeeds and takes half the time of a lossy one.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Compiles the statement; an error if another statement follows, or if it writes.
fn compile<'c>(connection: &'c Connection, sql: &str) -> Result<Statement<'c>> {
    let mut statements = Batch::new(connection, sql);
    let mut next = || statements.next().map_err(|error| statement_error(&error));
    let statement = next()?.ok_or_else(|| query_error("there is no statement"))?;
    if next()?.is_some() {
        return Err(query_error("pass one statement at a time"));
    }
    if !statement.readonly() {
        return Err(query_error(ONLY_READS));
    }
    Ok(statement)
}

/// The message for a statement that the authorizer or a flag rejected.
const ONLY_READS: &str = "`sql` only reads, but this statement writes or opens another file; \
                     use SELECT, VALUES, WITH, EXPLAIN, or a PRAGMA that reads";

/// Converts an error of SQLite; a message for the user replaces that of a rejected statement.
fn statement_error(error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        _ if is_damaged(error) && reads_unlocked() => StoreError::Changed,
        Some(ErrorCode::DatabaseBusy) => StoreError::locked("run the query", None),
        Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly) => match error {
            Error::SqliteFailure(_, Some(text)) if text.starts_with("access to ") => {
                query_error(text)
            }
            _ => query_error(ONLY_READS),
        },
        _ => match error {
            Error::SqliteFailure(_, Some(text)) => query_error(text),
            _ => query_error(error),
        },
    }
}

/// Sends the columns, then the rows, part by part.
fn send_parts(
    statement: &mut Statement<'_>,
    request: &QueryRequest,
    into: &PartSender,
) -> rusqlite::Result<QueryEnd> {
    let columns = names(statement.column_names().into_iter());
    let width = columns.len();
    if into.blocking_send(Part::Columns(columns)).is_err() {
        return Ok(QueryEnd::Cancelled);
    }
    let mut builder = PartBuilder::default();
    let mut rows = statement.raw_query();
    let mut n = 0;
    let ended = loop {
        let Some(row) = rows.next()? else {
            break QueryEnd::Complete;
        };
        if request.limit.is_some_and(|limit| n >= limit) {
            break QueryEnd::Truncated;
        }
        n += 1;
        let part = builder.add(values(row, width)?);
        if part.is_some_and(|part| into.blocking_send(part).is_err()) {
            return Ok(QueryEnd::Cancelled);
        }
    };
    // A dropped receiver is not an error here.
    drop(into.blocking_send(builder.rest()));
    Ok(ended)
}

/// Converts a row to JSON values.
fn values(row: &Row<'_>, width: usize) -> rusqlite::Result<Vec<Value>> {
    let value = |i| {
        Ok(match row.get_ref(i)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(n) => Value::from(n),
            ValueRef::Real(n) => Value::from(n),
            ValueRef::Text(bytes) => Value::from(String::from_utf8_lossy(bytes)),
            ValueRef::Blob(bytes) => Value::from(topicmill_core::hex(bytes)),
        })
    };
    (0..width).map(value).collect()
}
