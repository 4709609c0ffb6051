//! Errors of the store.

use super::driver_error;
use super::lock_wait::Cancelled;
use topicmill_core::FailureKind;

/// An error from the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL does not name a supported database.
    #[error(
        "`{0}` is not a database URL: use `sqlite:PATH` or `postgres://user:password@host/database`, without quotes; \
         in a PATH, write `?` as `%3F`, `#` as `%23` and `%` as `%25`"
    )]
    Url(String),
    /// The database cannot be opened.
    #[error("cannot open the database `{url}`: {hint}")]
    Open {
        /// URL without its password.
        url: String,
        /// Advice for the user.
        hint: String,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// The database's file is not the one that was opened.
    #[error(
        "the file of the database `{0}` was moved, deleted or replaced since this command began, and what the command \
         wrote may be lost: start it again"
    )]
    Replaced(String),
    /// The database was created by a later version of topicmill.
    #[error(
        "the database `{url}` has schema version {found}, but this program supports only versions up to {known}: \
         update topicmill, or use a different database"
    )]
    Newer {
        /// URL without its password.
        url: String,
        /// Version found.
        found: i64,
        /// Latest version that this program supports.
        known: i64,
    },
    /// The database was created by an earlier build with a different schema.
    #[error(
        "the database `{0}` was created by an earlier build of topicmill, and this build cannot read it: with the \
         earlier build, write its posts (`export`), gold labels (`labels gold export`) and tombstones (`sql \"SELECT \
         fullname, reason FROM tombstones\" --format csv`) to files; with this build, create a database, run `purge \
         --ids` with the tombstones, so that purged posts do not return, then `import` the posts and `labels gold \
         import` the gold labels"
    )]
    EarlierBuild(String),
    /// The database file is damaged, or is not a SQLite database.
    #[error(
        "cannot read {what}: its file is damaged, or is not a SQLite database ({message}); `sqlite3 FILE 'PRAGMA \
         integrity_check'` shows details; restore a backup, or name another file"
    )]
    Damaged {
        /// The database, with its URL if known.
        what: String,
        /// SQLite's message.
        message: String,
    },
    /// A file without locks changed while it was read.
    #[error(
        "cannot read the database: another process changed its file in the meantime, and you may not write to its \
         folder, which SQLite needs for locks; run the command again (if it always fails, the file is damaged)"
    )]
    Changed,
    /// The database has no schema yet.
    #[error("the database `{0}` has no topicmill tables: run `topicmill db create`")]
    NoTables(String),
    /// The database has an old schema.
    #[error("the database `{0}` has outdated topicmill tables: run `topicmill db migrate`")]
    NotMigrated(String),
    /// A migration failed.
    #[error("cannot migrate the database: {0}")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The database is read-only. The field states the reason, with advice.
    #[error("cannot write to the database: {0}")]
    ReadOnly(&'static str),
    /// The database user lacks a privilege.
    #[error("cannot use the database: {0}; {advice}", advice = driver_error::privilege_advice(.0))]
    Denied(String),
    /// The database is not UTF-8, so it cannot store every post.
    #[error(
        "cannot create the tables in `{0}`: the encoding of the database is not UTF8, so it cannot store every post; \
         create another one (`CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0`), and use its URL"
    )]
    Encoding(String),
    /// The search path contains no usable schema.
    #[error(
        "cannot use the database `{0}`: its `search_path` names no schema that exists and that your user may use; \
         create the schema (`CREATE SCHEMA name`), grant your user USAGE on it, or name a different one in the URL \
         (`?options=-csearch_path%3Dname`) or for your user (`ALTER ROLE user SET search_path = name`)"
    )]
    NoSchema(String),
    /// A pooler assigns server sessions per transaction, not per connection.
    #[error(
        "cannot open the database `{0}`: a pooler (PgBouncer with `pool_mode = transaction` or `statement`) may run \
         each transaction in a different server session, and topicmill needs one session per connection; set \
         `pool_mode = session` for this database or user, or use the pooler's session port or the server itself in the \
         URL (docs/postgres.md)"
    )]
    Pooler(String),
    /// Another program's relation has the name of one of topicmill's tables or views.
    #[error(
        "cannot create the tables in `{url}`: a relation named `{name}` already exists and was not created by \
         topicmill; {advice}"
    )]
    NameTaken {
        /// URL without its password.
        url: String,
        /// Name of the relation.
        name: String,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The disk is full.
    #[error(
        "cannot write to the database: the disk is full; free some space, then run the command again"
    )]
    Full,
    /// The file system rejected a write, but is not full.
    #[error(
        "cannot write to the database: the file system rejected it; check the disk, your quota and the file size limit \
         (`ulimit -f`), then run the command again"
    )]
    DiskError(#[source] sqlx::Error),
    /// A statement failed.
    #[error("cannot {what}: {source}{}", driver_error::advice(.source))]
    Statement {
        /// The operation.
        what: &'static str,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// Another session or program held a lock for too long.
    #[error(
        "cannot {what}: {holder} has locked the database; this step changed nothing: end that program, or wait for it, \
         then run the command again"
    )]
    Locked {
        /// The operation.
        what: &'static str,
        /// Who holds the lock.
        holder: String,
    },
    /// A statement was cancelled by a signal or a timeout while it waited for a lock; its transaction was rolled back.
    #[error(
        "cannot {what}: cancelled while waiting for a lock that another session or program holds; this step changed \
         nothing, so the command can be run again"
    )]
    Cancelled {
        /// The operation.
        what: &'static str,
        /// Root cause, which identifies a cancellation.
        #[source]
        source: Cancelled,
    },
    /// Opening or upgrading the database was cancelled; its changes were rolled back.
    #[error(
        "cannot open the database: cancelled before the database was open; run the command again"
    )]
    OpenCancelled(#[source] Cancelled),
    /// The database did not respond in time.
    #[error(
        "the database does not respond; check that it is running, and that no other session holds a lock on its \
         tables, then run the command again"
    )]
    NotResponding,
    /// Databases are copied only from SQLite to PostgreSQL.
    #[error(
        "cannot copy the database: FROM has to be a SQLite database and TO a PostgreSQL database; docs/retention.md \
         explains backups"
    )]
    NotSqliteToPostgres,
    /// The target of a copy is not empty.
    #[error(
        "cannot copy into the database: its table `{0}` has rows already, so nothing was copied; name an empty database"
    )]
    NotEmpty(String),
    /// A table contains a value that the target database cannot store.
    #[error("cannot copy the table `{table}`: {detail}; nothing was copied")]
    NotCopyable {
        /// The table.
        table: String,
        /// The reason.
        detail: String,
    },
    /// The copied rows differ from their source.
    #[error(
        "cannot copy the table `{table}`: {sent} rows were sent, but the copy has {there} rows, or different values, \
         so it was rolled back; please report this bug"
    )]
    CopyMismatch {
        /// The table.
        table: String,
        /// Rows read from the source.
        sent: u64,
        /// Rows in the copy.
        there: u64,
    },
    /// A row contains a value that topicmill does not write.
    #[error("cannot read {table} row `{row}`: {detail}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The key of the row.
        row: String,
        /// The problem.
        detail: String,
    },
    /// The database user has privileges that a read-only transaction does not restrict.
    #[error(
        "cannot run a query as {who}: even in a read-only transaction, this user may read and write the server's files \
         or run programs there; connect as a user who may only read (`GRANT SELECT ON ALL TABLES IN SCHEMA public TO \
         reader`), or pass `--allow-superuser`"
    )]
    Superuser {
        /// Describes the user and the role.
        who: String,
    },
    /// A user's query failed.
    #[error("{0}")]
    Query(String),
    /// The server did not complete a query, through no fault of the query.
    #[error("cannot run the query: {message}{advice}")]
    QueryInterrupted {
        /// The driver's error.
        message: String,
        /// Advice for the user.
        advice: &'static str,
        /// True if a retry may succeed.
        is_transient: bool,
    },
}

impl StoreError {
    pub(super) fn locked(what: &'static str, holder: Option<String>) -> Self {
        let holder = holder.unwrap_or_else(|| "another session or program".to_owned());
        Self::Locked { what, holder }
    }

    /// Returns the kind of the error, which determines the exit code.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Url(_)
            | Self::Open {
                source: sqlx::Error::Configuration(_),
                ..
            }
            | Self::Query(_)
            | Self::NotSqliteToPostgres
            | Self::NotEmpty(_) => FailureKind::Usage,
            Self::Locked { .. } => FailureKind::Temporary,
            _ => FailureKind::Database,
        }
    }

    /// Returns true if a retry may succeed: the connection was lost, the server is restarting, the wait was cancelled,
    /// or two transactions were in a deadlock.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Statement { source, .. } => driver_error::is_transient(source),
            Self::QueryInterrupted { is_transient, .. } => *is_transient,
            Self::NotResponding
            | Self::Changed
            | Self::Locked { .. }
            | Self::Cancelled { .. }
            | Self::OpenCancelled(_) => true,
            _ => false,
        }
    }
}
