//! Classifies errors from both database drivers. Only this module reads their codes.

mod advice;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

pub(super) use self::advice::{advice, connect_advice, interruption_advice, privilege_advice};
use super::{Result, StoreError};

/// The reason why a SQLite file cannot be written.
const READ_ONLY_FILE: &str = "it is read-only; check the permissions of its file and folder";
/// The reason why a PostgreSQL server accepts no writes.
const READ_ONLY_SERVER: &str = "the server only allows reads: it is a standby, or your user or the database has \
    `default_transaction_read_only`; name the primary server, or have its owner reset that setting";

/// True once this process has opened a file as immutable, which SQLite reads without locks.
static READS_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Records that a file was opened as immutable.
pub(crate) fn note_unlocked_read() {
    READS_UNLOCKED.store(true, Ordering::Relaxed);
}

/// Returns true if a page that seems damaged may be one that another process was writing.
pub(crate) fn reads_unlocked() -> bool {
    READS_UNLOCKED.load(Ordering::Relaxed)
}

/// The class of a database error, shared by both databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorClass {
    /// A write to a read-only database.
    ReadOnly,
    /// The disk is full.
    Full,
    /// The file is damaged, or not a database.
    Damaged,
    /// The user lacks a privilege.
    Denied,
    /// The file system rejected a write.
    Refused,
    /// A lock timed out.
    Busy,
    /// A deadlock or a serialization failure.
    Conflict,
    /// A duplicate key.
    Taken,
    /// The database does not exist.
    NoDatabase,
    /// Wrong user or password.
    Login,
    /// The connection limit is reached.
    TooManyConnections,
    /// The server is stopping or starting, or the connection was lost.
    Unavailable,
    /// The server cancelled the statement: by its timeout, or on request.
    Ended,
    /// Anything else.
    Other,
}

fn class(error: &dyn DatabaseError) -> ErrorClass {
    let code = error.code().unwrap_or_default();
    // The driver is checked first, because both return codes as text, and a SQLite code could equal a PostgreSQL code.
    if error.try_downcast_ref::<SqliteError>().is_some() {
        return sqlite_class(code.parse().unwrap_or_default());
    }
    // https://www.postgresql.org/docs/current/errcodes-appendix.html
    match &*code {
        "25006" => ErrorClass::ReadOnly,
        "53100" => ErrorClass::Full,
        "42501" => ErrorClass::Denied,
        "40001" | "40P01" => ErrorClass::Conflict,
        "23505" => ErrorClass::Taken,
        "55P03" => ErrorClass::Busy,
        "3D000" => ErrorClass::NoDatabase,
        "28P01" | "28000" => ErrorClass::Login,
        "53300" => ErrorClass::TooManyConnections,
        "57P01" | "57P02" | "57P03" => ErrorClass::Unavailable,
        "57014" => ErrorClass::Ended,
        code if code.starts_with("08") => ErrorClass::Unavailable,
        _ => ErrorClass::Other,
    }
}

/// Returns the class of a SQLite result code (<https://www.sqlite.org/rescode.html>).
fn sqlite_class(code: u32) -> ErrorClass {
    match code {
        // I/O errors from `write`, `fsync` and `ftruncate`.
        778 | 1034 | 1546 => ErrorClass::Refused,
        // SQLITE_IOERR_SHMSIZE, which SQLite returns instead of FULL if the disk has no space for its shared memory.
        4874 => ErrorClass::Full,
        // Extended codes have the primary code in their low byte.
        _ => match code & 0xff {
            // SQLITE_CONSTRAINT: a duplicate key. It may come from a user's trigger that ignores duplicates, because
            // `INSERT OR FAIL` overrides the conflict clauses of triggers.
            19 => ErrorClass::Taken,
            // In order: SQLITE_BUSY and SQLITE_LOCKED; READONLY; CORRUPT and NOTADB; FULL.
            5 | 6 => ErrorClass::Busy,
            8 => ErrorClass::ReadOnly,
            11 | 26 => ErrorClass::Damaged,
            13 => ErrorClass::Full,
            _ => ErrorClass::Other,
        },
    }
}

fn class_of(error: &sqlx::Error) -> ErrorClass {
    error.as_database_error().map_or(ErrorClass::Other, class)
}

/// Adds the operation to a driver's error and converts errors with a known remedy.
pub(super) trait ErrorContext<T>: Sized {
    fn context(self, what: &'static str) -> Result<T>;
}

impl<T> ErrorContext<T> for Result<T, sqlx::Error> {
    fn context(self, what: &'static str) -> Result<T> {
        self.map_err(|source| match known_failure(&source) {
            Some(failure) => failure,
            None if class_of(&source) == ErrorClass::Refused => StoreError::DiskError(source),
            None => StoreError::Statement {
                what,
                source: without_source_location(source),
            },
        })
    }
}

/// A PostgreSQL error that displays only its message. The driver's display form adds a line number from the server's
/// source code, which looks like a line number in the statement.
#[derive(Debug)]
struct ServerMessage(Box<PgDatabaseError>);

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl Error for ServerMessage {}

impl DatabaseError for ServerMessage {
    fn message(&self) -> &str {
        self.0.message()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(self.0.code()))
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn constraint(&self) -> Option<&str> {
        self.0.constraint()
    }

    fn table(&self) -> Option<&str> {
        self.0.table()
    }

    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}

/// Removes the server's source location from a message.
pub(super) fn without_source_location(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Database(error) => {
            sqlx::Error::Database(match error.try_downcast::<PgDatabaseError>() {
                Ok(error) => Box::new(ServerMessage(error)),
                Err(error) => error,
            })
        }
        error => error,
    }
}

/// Converts an error that the user can fix.
pub(super) fn known_failure(error: &sqlx::Error) -> Option<StoreError> {
    let error = error.as_database_error()?;
    let message = || error.message().to_owned();
    match class(error) {
        ErrorClass::ReadOnly if error.try_downcast_ref::<SqliteError>().is_some() => {
            Some(StoreError::ReadOnly(READ_ONLY_FILE))
        }
        ErrorClass::ReadOnly => Some(StoreError::ReadOnly(READ_ONLY_SERVER)),
        ErrorClass::Full => Some(StoreError::Full),
        ErrorClass::Denied => Some(StoreError::Denied(message())),
        ErrorClass::Damaged if reads_unlocked() => Some(StoreError::Changed),
        ErrorClass::Damaged => Some(StoreError::Damaged {
            what: "the database".to_owned(),
            message: message(),
        }),
        _ => None,
    }
}

/// Returns true if a lock timed out.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::Busy
}

/// Returns true if the file system rejected a write.
pub(super) fn is_refused(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::Refused
}

/// Returns true if the file is no database, or a damaged one.
pub(super) fn is_damaged(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::Damaged
}

/// Returns true if another writer stored the key first.
pub(super) fn is_duplicate_key(error: &StoreError) -> bool {
    matches!(error, StoreError::Statement { source, .. } if class_of(source) == ErrorClass::Taken)
}

/// Returns true if the server has no database with this name.
pub(super) fn is_missing_database(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::NoDatabase
}

/// Returns true for a deadlock or a serialization failure: a retry of the transaction may succeed.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    class_of(error) == ErrorClass::Conflict
}

/// Returns true if the failure is transient.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // A server that is stopping closes a connection that is just being opened. sqlx 0.9.0 reports that as a
        // response with the byte 0 (https://github.com/transact-rs/sqlx/issues/4395).
        sqlx::Error::Protocol(message) => {
            message.starts_with("unexpected response from SSLRequest: 0x00")
        }
        error => matches!(
            class_of(error),
            ErrorClass::Busy | ErrorClass::Conflict | ErrorClass::Unavailable
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_space_for_shared_memory_is_full() {
        for (code, class) in [
            (4874, ErrorClass::Full),
            (13, ErrorClass::Full),
            (778, ErrorClass::Refused),
            // SQLITE_CANTOPEN and SQLITE_READONLY.
            (14, ErrorClass::Other),
            (8, ErrorClass::ReadOnly),
        ] {
            assert_eq!(sqlite_class(code), class, "{code}");
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_a_new_connection_is_retried() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://me@{}/db", server.local_addr().unwrap());
        let closing = async {
            let (mut socket, _) = server.accept().await.unwrap();
            let mut request = [0; 8];
            tokio::io::AsyncReadExt::read_exact(&mut socket, &mut request)
                .await
                .unwrap();
        };
        let connecting = <sqlx::PgConnection as sqlx::Connection>::connect(&url);
        let (connected, ()) = tokio::join!(connecting, closing);
        let error = connected.unwrap_err();
        assert!(is_transient(&error), "{error:?}");
        let other = sqlx::Error::Protocol("unexpected response from SSLRequest: 0x48".into());
        assert!(!is_transient(&other));
    }
}
