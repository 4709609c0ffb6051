//! Runs queries on SQLite, each on its own read-only connection.
//!
//! Writes are prevented in four ways: the file is opened for reading, `query_only` is on, an authorizer rejects all
//! actions except reading when a statement is compiled, and a statement that SQLite does not consider read-only is not
//! run. `sqlx` exposes neither the authorizer nor the end of a statement, so this connection uses `rusqlite`, with the
//! same SQLite library.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, Error, ErrorCode, OpenFlags, Row, Statement};
use serde_json::Value;
use sqlx::Sqlite;
use tokio_util::sync::CancellationToken;
use topicmill_core::{ColumnCell, ColumnKind};

use super::batch_builder::{BatchBuilder, millis};
use super::columns::{BatchSender, ColumnQuery, ColumnStatement};
use super::{
    Part, PartBuilder, PartSender, QueryEnd, QueryRequest, Result, SqlStore, StoreError, check,
    names, query_error,
};
use crate::dialect;
use crate::driver_error::{note_unlocked_read, reads_unlocked};
use crate::lock_wait::LIMIT;

/// Maximum size of a value in bytes. SQLite's own limit is a gigabyte, and a statement may hold several values.
const MAX_VALUE_BYTES: i32 = 256 * 1024 * 1024;
/// SQLite instructions between two checks for cancellation: well under a millisecond.
const PROGRESS_INTERVAL: i32 = 20_000;
/// Pragmas that read. A pragma in [`SETTABLE_PRAGMAS`] reads only if it has no value; the others read with any
/// argument.
const READ_PRAGMAS: &str = "\
    application_id collation_list compile_options data_version database_list encoding \
    foreign_key_check foreign_key_list freelist_count function_list index_info index_list \
    index_xinfo integrity_check module_list page_count page_size pragma_list quick_check \
    schema_version table_info table_list table_xinfo user_version";
/// The pragmas in [`READ_PRAGMAS`] that write if they have a value.
const SETTABLE_PRAGMAS: &str = "application_id encoding page_size schema_version user_version";

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

/// Opens the file for a statement that may only read.
fn open_restricted(path: &Path, stop: &CancellationToken) -> Result<Connection> {
    open(path)
        .and_then(|connection| restrict(&connection, stop).map(|()| connection))
        .map_err(|error| statement_error(&error))
}

/// Opens the file for reading. Even a reader needs files next to the database. If it cannot create them, and there is
/// no log to read, the file is opened as immutable.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    // A single thread uses this connection, so it needs no mutex.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(readable);
    if let Err(error) = &opened
        && !is_damaged(error)
        && dialect::may_be_immutable(path)
    {
        note_unlocked_read();
        let uri = PathBuf::from(format!("file:{}?immutable=1", escaped(path)));
        return Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
            .and_then(readable);
    }
    opened
}

fn readable(connection: Connection) -> rusqlite::Result<Connection> {
    // SQLite opens a file at the first read, so only a read shows whether the file is readable.
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Encodes a path for a URI.
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes
        .map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"/.-_".contains(byte) => {
                char::from(*byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Rejects everything but reading, and makes `stop` cancel a statement.
fn restrict(connection: &Connection, stop: &CancellationToken) -> rusqlite::Result<()> {
    connection.busy_timeout(LIMIT)?;
    connection.pragma_update(None, "cache_size", dialect::READER_CACHE)?;
    connection.pragma_update(None, "query_only", "ON")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // `query_only` does not prevent ATTACH, which could open any of the user's other files.
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    let stop = stop.clone();
    connection.progress_handler(PROGRESS_INTERVAL, Some(move || stop.is_cancelled()))?;
    // Last, because the authorizer would reject the settings above.
    connection.authorizer(Some(authorize))
}

/// Allows an action of a statement if it only reads.
fn authorize(context: AuthContext<'_>) -> Authorization {
    let reads = match context.action {
        // The key that hides the names of purged authors. `sqlite_dbpage` would show its page.
        AuthAction::Read {
            table_name,
            column_name,
        } if is_secret(table_name, column_name) => false,
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        // Both run code: `load_extension` from a file, `fts3_tokenizer` at an address.
        AuthAction::Function { function_name } => !["load_extension", "fts3_tokenizer"]
            .iter()
            .any(|name| function_name.eq_ignore_ascii_case(name)),
        AuthAction::Pragma {
            pragma_name,
            pragma_value,
        } => {
            let name = pragma_name.to_ascii_lowercase();
            let is_in = |names: &str| names.split(' ').any(|known| known == name);
            is_in(READ_PRAGMAS) && !(pragma_value.is_some() && is_in(SETTABLE_PRAGMAS))
        }
        _ => false,
    };
    if reads {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

fn is_secret(table: &str, column: &str) -> bool {
    let is_value = table.eq_ignore_ascii_case("meta") && column.eq_ignore_ascii_case("value");
    is_value || table.eq_ignore_ascii_case("sqlite_dbpage")
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

fn is_damaged(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

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
