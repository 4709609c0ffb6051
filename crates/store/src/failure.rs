//! Classifies errors of both databases: the one place that reads the drivers' codes.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

use super::{Result, StoreError};

/// The class of a database error, shared by both databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Written to where one may only read.
    ReadOnly,
    /// No room left.
    Full,
    /// The file is no database, or a damaged one.
    Damaged,
    /// The user lacks a right.
    Denied,
    /// The disk did not take what was written.
    Refused,
    /// A lock did not come within the time that was set for it.
    Busy,
    /// Ended for the sake of another transaction.
    Conflict,
    /// A key that another writer has stored.
    Taken,
    /// There is no such database.
    NoDatabase,
    /// User or password.
    Login,
    /// No connection left.
    TooManyConnections,
    /// The server stops, starts, or lost the connection.
    Unavailable,
    /// The server ended the statement: its time was up, or somebody asked for it.
    Ended,
    /// Anything else.
    Other,
}

fn meaning(error: &dyn DatabaseError) -> Meaning {
    let code = error.code().unwrap_or_default();
    // Both drivers give codes as texts, and SQLite's numbers would be looked for among PostgreSQL's.
    if error.try_downcast_ref::<SqliteError>().is_some() {
        return of_sqlite(code.parse().unwrap_or_default());
    }
    // https://www.postgresql.org/docs/current/errcodes-appendix.html
    match &*code {
        "25006" => Meaning::ReadOnly,
        "53100" => Meaning::Full,
        "42501" => Meaning::Denied,
        "40001" | "40P01" => Meaning::Conflict,
        "23505" => Meaning::Taken,
        "55P03" => Meaning::Busy,
        "3D000" => Meaning::NoDatabase,
        "28P01" | "28000" => Meaning::Login,
        "53300" => Meaning::TooManyConnections,
        "57P01" | "57P02" | "57P03" => Meaning::Unavailable,
        "57014" => Meaning::Ended,
        code if code.starts_with("08") => Meaning::Unavailable,
        _ => Meaning::Other,
    }
}

/// The meaning of a result code of SQLite (<https://www.sqlite.org/rescode.html>).
fn of_sqlite(code: u32) -> Meaning {
    match code {
        // I/O errors of `write`, `fsync` and `ftruncate`.
        778 | 1034 | 1546 => Meaning::Refused,
        // SQLITE_IOERR_SHMSIZE: where the disk has no room for its shared memory, SQLite says no more than that.
        4874 => Meaning::Full,
        // Extended codes carry the primary one in their low byte.
        _ => match code & 0xff {
            // SQLITE_CONSTRAINT: a key that is there, or one that a trigger of the user's would have passed over.
            19 => Meaning::Taken,
            // SQLITE_BUSY and SQLITE_LOCKED; READONLY; CORRUPT and NOTADB; FULL.
            5 | 6 => Meaning::Busy,
            8 => Meaning::ReadOnly,
            11 | 26 => Meaning::Damaged,
            13 => Meaning::Full,
            _ => Meaning::Other,
        },
    }
}

fn meaning_of(error: &sqlx::Error) -> Meaning {
    error.as_database_error().map_or(Meaning::Other, meaning)
}

/// Says what was being done when a statement failed, and recognises the failures that have a remedy.
pub(super) trait Doing<T>: Sized {
    fn doing(self, what: &'static str) -> Result<T>;

    /// The same of what comes back with nothing that is needed.
    fn done(self, what: &'static str) -> Result<()> {
        self.doing(what).map(drop)
    }
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| match known_failure(&source) {
            Some(failure) => failure,
            None if meaning_of(&source) == Meaning::Refused => StoreError::Refused(source),
            None => StoreError::Statement {
                what,
                source: plain(source),
            },
        })
    }
}

/// Returns PostgreSQL's message alone: the driver appends a line of the server's source code, which reads like a line
/// of the statement.
#[derive(Debug)]
struct Plain(Box<PgDatabaseError>);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl Error for Plain {}

impl DatabaseError for Plain {
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

/// An error of either database as people are told it.
pub(super) fn plain(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Database(said) => {
            sqlx::Error::Database(match said.try_downcast::<PgDatabaseError>() {
                Ok(said) => Box::new(Plain(said)),
                Err(said) => said,
            })
        }
        error => error,
    }
}

/// The failures that a user can mend.
pub(super) fn known_failure(error: &sqlx::Error) -> Option<StoreError> {
    let error = error.as_database_error()?;
    let said = || error.message().to_owned();
    match meaning(error) {
        Meaning::ReadOnly if error.try_downcast_ref::<SqliteError>().is_some() => {
            Some(StoreError::ReadOnly(READ_ONLY_FILE))
        }
        Meaning::ReadOnly => Some(StoreError::ReadOnly(READ_ONLY_SERVER)),
        Meaning::Full => Some(StoreError::Full),
        Meaning::Denied => Some(StoreError::Denied(said())),
        Meaning::Damaged => Some(StoreError::Damaged {
            what: "the database".to_owned(),
            said: said(),
        }),
        _ => None,
    }
}

/// True if a lock timed out.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    meaning_of(error) == Meaning::Busy
}

/// True if another writer stored the key first.
pub(super) fn is_taken(error: &StoreError) -> bool {
    matches!(error, StoreError::Statement { source, .. } if meaning_of(source) == Meaning::Taken)
}

/// True if the server has no database of this name.
pub(super) fn is_missing_database(error: &sqlx::Error) -> bool {
    meaning_of(error) == Meaning::NoDatabase
}

/// True for a deadlock or a serialization failure: the transaction may succeed if it is retried.
fn is_conflict(error: &StoreError) -> bool {
    matches!(error, StoreError::Statement { source, .. } if meaning_of(source) == Meaning::Conflict)
}

/// Counts how often a transaction was done again that the database ended for the sake of another one.
#[derive(Default)]
pub(super) struct Attempts(u32);

impl Attempts {
    /// Transactions that are tried before a conflict with other writers is an error.
    const MOST: u32 = 5;

    /// Returns true if the transaction that failed with this error should be retried.
    pub(super) fn again(&mut self, error: &StoreError) -> bool {
        self.0 += 1;
        // Without a pause: the repetition waits for the locks of the transaction that was preferred.
        let again = self.0 < Self::MOST && is_conflict(error);
        if again {
            tracing::debug!(
                attempt = self.0,
                "doing again what met another writer: {error}"
            );
        }
        again
    }
}

/// True if the failure is transient.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // A server that stops closes a connection that is just being made: no byte came, which sqlx 0.9.0 tells as
        // the byte 0 (https://github.com/transact-rs/sqlx/issues/4395).
        sqlx::Error::Protocol(said) => {
            said.starts_with("unexpected response from SSLRequest: 0x00")
        }
        error => matches!(
            meaning_of(error),
            Meaning::Busy | Meaning::Conflict | Meaning::Unavailable
        ),
    }
}

const READ_ONLY_FILE: &str = "it is read-only; check the permissions of its file and folder";
const READ_ONLY_SERVER: &str = "the server lets it be read only: it is a standby, or your user or the database has \
    `default_transaction_read_only`; name the primary server, or have its owner reset that";

/// Advice if a user lacks a privilege.
pub(super) fn right_advice(said: &str) -> &'static str {
    if said.contains("for schema ") {
        "have its owner run `GRANT CREATE, USAGE ON SCHEMA public TO your_user`, or use a database of your own"
    } else if said.contains("owner of ") {
        "run the command as that user, or as one who is a member of it"
    } else {
        "have its owner give your user the right: packaging/postgresql/roles.sql has roles for those who collect, label \
         and read"
    }
}

/// Advice if the server cancelled a valid query, or the connection broke.
pub(super) fn unanswered(error: &sqlx::Error) -> Option<&'static str> {
    match meaning_of(error) {
        Meaning::Ended => Some(
            "; the server ended it: give it more time (`statement_timeout` of the user or the database), or ask for less",
        ),
        Meaning::Conflict => None,
        _ if matches!(error, sqlx::Error::PoolTimedOut) => Some(NO_CONNECTION),
        _ => is_transient(error).then_some(LOST),
    }
}

/// Advice for a statement that failed; empty if there is none.
pub(super) fn advice(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Io(_) => LOST,
        sqlx::Error::PoolTimedOut => NO_CONNECTION,
        error if meaning_of(error) == Meaning::Unavailable => LOST,
        _ => "",
    }
}

/// Each stage continues from what it has stored, and each transaction is whole or was never there.
const LOST: &str = "; the connection to the server is lost: check that the server runs; the command may be run again";

const NO_CONNECTION: &str = "; no connection came in time: check that the server runs, and that it has connections left \
    (`max_connections`, `CONNECTION LIMIT` of the user or the database)";

/// Advice if a server accepts no connections.
pub(super) fn connect_hint(error: &sqlx::Error) -> &'static str {
    match meaning_of(error) {
        Meaning::NoDatabase => "it does not exist; `topicmill db create` makes it",
        Meaning::Login => "the server refused the user or the password",
        Meaning::TooManyConnections => "the server has no connection left; try again later",
        _ if error.as_database_error().is_some() => "the server refused",
        _ => "is the server running, and are host and port right?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_told_with_what_to_do() {
        let what = "store posts";
        let told = |source| StoreError::Statement { what, source }.to_string();
        let lost = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(told(lost).ends_with("may be run again"));
        assert!(told(sqlx::Error::RowNotFound).ends_with(&sqlx::Error::RowNotFound.to_string()));
    }

    #[test]
    fn no_room_for_the_shared_memory_is_a_full_disk() {
        for (code, meaning) in [
            (4874, Meaning::Full),
            (13, Meaning::Full),
            (778, Meaning::Refused),
            // What may not be opened, or written to.
            (14, Meaning::Other),
            (8, Meaning::ReadOnly),
        ] {
            assert_eq!(of_sqlite(code), meaning, "{code}");
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_while_one_connects_is_tried_again() {
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
