//! Opens connections on which statements can only read.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use tokio_util::sync::CancellationToken;

use super::statement_error;
use crate::driver_error::note_unlocked_read;
use crate::lock_wait::LIMIT;
use crate::{Result, dialect};

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

/// Opens the file for a statement that may only read.
pub(super) fn open_restricted(path: &Path, stop: &CancellationToken) -> Result<Connection> {
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

/// Checks that a file can be read.
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

/// Returns true if a column may contain the key that hides the names of purged authors.
fn is_secret(table: &str, column: &str) -> bool {
    // `sqlite_dbpage` would show the page of the key.
    let is_value = table.eq_ignore_ascii_case("meta") && column.eq_ignore_ascii_case("value");
    is_value || table.eq_ignore_ascii_case("sqlite_dbpage")
}

/// Returns true if the file is not a SQLite database, or not a whole one.
pub(super) fn is_damaged(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}
