//! Questions to SQLite, on a connection of their own that can do nothing but read.
//!
//! Four locks, each SQLite's own: the file is opened for reading, `query_only` is on, an authorizer sees every
//! action of a statement while it is compiled and refuses all but reading, and a statement that SQLite does not
//! call read-only is not run. `sqlx` hands out neither the authorizer nor the end of a statement, so this
//! connection is one of `rusqlite`, on the same library.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, Error, ErrorCode, OpenFlags, Row, Statement, ffi};
use serde_json::Value;
use sqlx::Sqlite;
use tokio_util::sync::CancellationToken;
use topicmill_core::{ColumnCell, ColumnKind};

use super::super::dialect;
use super::columns::{Batches, ColumnReading, ReadStatement};
use super::gathering::{Gathering, millis};
use super::{
    Answered, Inquiry, Packing, Part, Parts, Result, SqlStore, StoreError, Table, check, names,
    refusal, weight, whole,
};

/// The longest value, in bytes, where rows have no bound: SQLite's own is a gigabyte, and a statement may hold several.
const LONGEST: i32 = 256 * 1024 * 1024;
/// Columns of a row that has a bound, at most, and what part of it one value may take: together sixteen times the
/// bound, which SQLite may hold before a row is seen.
const WIDEST: i32 = 256;
const PARTS_OF_A_ROW: usize = 16;
/// Instructions of SQLite between two looks at whether to stop: well under a millisecond.
const LOOK_EVERY: i32 = 20_000;
/// PRAGMAs that tell and change nothing, whatever their argument.
const TELLING: &str = "\
    application_id collation_list compile_options data_version database_list encoding \
    foreign_key_check foreign_key_list freelist_count function_list index_info index_list \
    index_xinfo integrity_check module_list page_count page_size pragma_list quick_check \
    schema_version table_info table_list table_xinfo user_version";
/// Pragmas among them that set something if they have a value.
const SETTING: &str = "application_id encoding page_size schema_version user_version";

impl SqlStore<Sqlite> {
    /// See [`crate::Store::ask`].
    pub async fn ask(&self, inquiry: Inquiry, into: Parts) -> Result<Answered> {
        let path = self.pool.connect_options().get_filename().to_owned();
        let stop = inquiry.stop.clone();
        let answering = tokio::task::spawn_blocking(move || answer(&path, &inquiry, &into));
        tokio::select! {
            asked = answering => asked.unwrap_or_else(|error| Err(refusal(error))),
            // It ends by itself, soon; nobody waits for a single instruction that takes long.
            () = stop.cancelled() => Ok(Answered::Stopped),
        }
    }

    /// See [`crate::Store::read`].
    pub async fn read(&self, reading: ColumnReading, into: Batches) -> Result<Answered> {
        let path = self.pool.connect_options().get_filename().to_owned();
        let stop = reading.stop.clone();
        let answering = tokio::task::spawn_blocking(move || read(&path, &reading, &into));
        tokio::select! {
            read = answering => read.unwrap_or_else(|error| Err(refusal(error))),
            () = stop.cancelled() => Ok(Answered::Stopped),
        }
    }

    /// See [`crate::Store::query`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        whole(sql, async |inquiry, into| self.ask(inquiry, into).await).await
    }
}

fn answer(path: &Path, inquiry: &Inquiry, into: &Parts) -> Result<Answered> {
    check(&inquiry.sql)?;
    let connection = open(path).map_err(|error| refused(&error))?;
    lock(&connection, &inquiry.stop, inquiry.longest).map_err(|error| refused(&error))?;
    // The locks are on before this compiles the statement: the authorizer works while SQLite compiles.
    let mut statement = the_only_one(&connection, &inquiry.sql)?;
    match rows(&mut statement, inquiry, into) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(Answered::Stopped)
        }
        ended => ended.map_err(|error| refused(&error)),
    }
}

fn read(path: &Path, reading: &ColumnReading, into: &Batches) -> Result<Answered> {
    let connection = open(path).map_err(|error| refused(&error))?;
    // One transaction, so that all statements see the same rows. Behind the locks it could not be begun.
    let begun = connection.execute_batch("BEGIN");
    begun.map_err(|error| refused(&error))?;
    lock(&connection, &reading.stop, None).map_err(|error| refused(&error))?;
    for (i, asked) in reading.statements.iter().enumerate() {
        check(&asked.sql)?;
        let mut statement = the_only_one(&connection, &asked.sql)?;
        match gather(&mut statement, Gathering::new(i, asked), asked, into)? {
            Answered::Whole => {}
            ended => return Ok(ended),
        }
    }
    Ok(Answered::Whole)
}

fn gather(
    statement: &mut Statement<'_>,
    mut gathering: Gathering<'_>,
    asked: &ReadStatement,
    into: &Batches,
) -> Result<Answered> {
    let mut rows = statement.raw_query();
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                return Ok(Answered::Stopped);
            }
            Err(error) => return Err(refused(&error)),
        };
        let value = |i| row.get_ref(i).map_err(|error| refused(&error));
        for (i, kind) in asked.kinds.iter().enumerate() {
            put(&mut gathering, *kind, value(i)?)?;
        }
        if asked.list > 0 {
            match value(asked.kinds.len())? {
                ValueRef::Null => gathering.put_packed(ColumnCell::Null),
                ValueRef::Text(bytes) => gathering.put_packed(ColumnCell::Text(&text(bytes))),
                value => return Err(gathering.wrong(&value.data_type().to_string())),
            }
        }
        if let Some(batch) = gathering.end_row()
            && into.blocking_send(batch).is_err()
        {
            return Ok(Answered::Stopped);
        }
    }
    // An answer without rows is one, too.
    let sent = into.blocking_send(gathering.rest());
    Ok(if sent.is_ok() {
        Answered::Whole
    } else {
        Answered::Stopped
    })
}

fn put(gathering: &mut Gathering<'_>, kind: ColumnKind, value: ValueRef<'_>) -> Result<()> {
    match (kind, value) {
        (_, ValueRef::Null) => gathering.put(ColumnCell::Null),
        (ColumnKind::Text, ValueRef::Text(bytes)) => gathering.put(ColumnCell::Text(&text(bytes))),
        (ColumnKind::Time, ValueRef::Text(bytes)) => match millis(&text(bytes)) {
            Some(millis) => gathering.put(ColumnCell::Time(millis)),
            None => Err(gathering.wrong("no time")),
        },
        (ColumnKind::Hex, ValueRef::Blob(bytes)) => gathering.put_hex(bytes),
        (ColumnKind::Vector, ValueRef::Blob(bytes)) => gathering.put_vector(bytes),
        (ColumnKind::Boolean, ValueRef::Integer(n)) => gathering.put(ColumnCell::Boolean(n != 0)),
        (ColumnKind::Integer, ValueRef::Integer(n)) => gathering.put(ColumnCell::Integer(n)),
        (ColumnKind::Number, ValueRef::Real(n)) => gathering.put(ColumnCell::Number(n)),
        #[expect(
            clippy::cast_precision_loss,
            reason = "SQLite stores 1.0 as 1 and gives it back so"
        )]
        (ColumnKind::Number, ValueRef::Integer(n)) => gathering.put(ColumnCell::Number(n as f64)),
        (_, value) => Err(gathering.wrong(&value.data_type().to_string())),
    }
}

/// Bytes as text. Nearly all are text, which a check finds out in half the time that a mending takes.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Opens the file for reading. Even a reader keeps notes beside it; where it may not, and no log waits to be
/// read, the file is taken as it is.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    // One thread has this connection to itself, so SQLite need not lock it.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(readable);
    if opened.is_err() && dialect::is_settled(path) {
        let uri = PathBuf::from(format!("file:{}?immutable=1", escaped(path)));
        return Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
            .and_then(readable);
    }
    opened
}

fn readable(connection: Connection) -> rusqlite::Result<Connection> {
    // SQLite opens a file when it first reads it: only this shows whether it can be read.
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// A path as a URI has it.
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes
        .map(|byte| match byte {
            b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn lock(
    connection: &Connection,
    stop: &CancellationToken,
    longest: Option<usize>,
) -> rusqlite::Result<()> {
    let longest_value = longest.and_then(|bytes| i32::try_from(bytes / PARTS_OF_A_ROW).ok());
    let longest_value = longest_value.map_or(LONGEST, |bytes| bytes.min(LONGEST));
    if longest.is_some() {
        connection.set_limit(Limit::SQLITE_LIMIT_COLUMN, WIDEST)?;
    }
    connection.busy_timeout(dialect::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", dialect::READER_CACHE)?;
    connection.pragma_update(None, "query_only", "ON")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // `query_only` does not stop ATTACH, which would open any other file of the user.
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest_value)?;
    let stop = stop.clone();
    connection.progress_handler(LOOK_EVERY, Some(move || stop.is_cancelled()))?;
    // Last: it would refuse the settings above.
    connection.authorizer(Some(allowed))
}

fn allowed(context: AuthContext<'_>) -> Authorization {
    let reads = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        // Both run code that a statement names: `load_extension` from a file, `fts3_tokenizer` at an address.
        AuthAction::Function { function_name } => !["load_extension", "fts3_tokenizer"]
            .iter()
            .any(|name| function_name.eq_ignore_ascii_case(name)),
        AuthAction::Pragma {
            pragma_name,
            pragma_value,
        } => {
            let name = pragma_name.to_ascii_lowercase();
            let is_in = |names: &str| names.split(' ').any(|known| known == name);
            is_in(TELLING) && !(pragma_value.is_some() && is_in(SETTING))
        }
        _ => false,
    };
    if reads {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Compiles the statement; SQLite tells whether another one follows, and whether it writes.
fn the_only_one<'c>(connection: &'c Connection, sql: &str) -> Result<Statement<'c>> {
    let mut statements = Batch::new(connection, sql);
    let mut next = || statements.next().map_err(|error| refused(&error));
    let statement = next()?.ok_or_else(|| refusal("there is no statement in it"))?;
    if next()?.is_some() {
        return Err(refusal("give one statement at a time"));
    }
    if !statement.readonly() {
        return Err(refusal(READS));
    }
    Ok(statement)
}

/// Describes a rejection by SQLite's authorizer or by our flags.
const READS: &str = "`sql` only reads, and this writes, or opens another file; \
                     give it SELECT, VALUES, WITH, EXPLAIN, or a PRAGMA that tells";

fn refused(error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly) => refusal(READS),
        _ => match error {
            Error::SqliteFailure(_, Some(text)) => refusal(text),
            _ => refusal(error),
        },
    }
}

fn rows(
    statement: &mut Statement<'_>,
    inquiry: &Inquiry,
    into: &Parts,
) -> rusqlite::Result<Answered> {
    let columns = names(statement.column_names().into_iter());
    let width = columns.len();
    if into.blocking_send(Part::Columns(columns)).is_err() {
        return Ok(Answered::Stopped);
    }
    let mut packing = Packing::default();
    let mut rows = statement.raw_query();
    let mut n = 0;
    let ended = loop {
        let Some(row) = rows.next()? else {
            break Answered::Whole;
        };
        if inquiry.limit.is_some_and(|limit| n >= limit) {
            break Answered::Cut;
        }
        n += 1;
        let values = values(row, width)?;
        if inquiry
            .longest
            .is_some_and(|longest| values.iter().map(weight).sum::<usize>() > longest)
        {
            return Err(too_long());
        }
        let part = packing.add(values);
        if part.is_some_and(|part| into.blocking_send(part).is_err()) {
            return Ok(Answered::Stopped);
        }
    };
    // Whoever does not listen any more has all that was asked for.
    drop(into.blocking_send(packing.rest()));
    Ok(ended)
}

fn too_long() -> Error {
    let text = "a row of the answer is too long for a page; ask for fewer columns, or for parts of them with substr()";
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), Some(text.to_owned()))
}

fn values(row: &Row<'_>, width: usize) -> rusqlite::Result<Vec<Value>> {
    let value = |i| {
        Ok(match row.get_ref(i)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(n) => Value::from(n),
            ValueRef::Real(n) => Value::from(n),
            ValueRef::Text(bytes) => Value::from(String::from_utf8_lossy(bytes)),
            ValueRef::Blob(bytes) => Value::from(topicmill_score::hex(bytes)),
        })
    };
    (0..width).map(value).collect()
}
