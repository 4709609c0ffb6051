//! Why the store could not do what it was asked for.

use super::failure;
use super::waiting::ToldToStop;
use topicmill_core::FailureKind;

/// Why the store could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL names no database that topicmill knows.
    #[error(
        "`{0}` is no database URL: use `sqlite:PATH` or `postgres://user:password@host/database`; in a PATH, write `?` as \
         `%3F`, `#` as `%23` and `%` as `%25`"
    )]
    Url(String),
    /// The database cannot be reached or opened.
    #[error("open the database `{url}`: {hint}")]
    Open {
        /// Without its password.
        url: String,
        /// Advice for the user.
        hint: String,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// Made by a later version of topicmill.
    #[error(
        "the database `{url}` has schema version {found}, this program knows {known}: update topicmill, or use another database"
    )]
    Newer {
        /// Without its password.
        url: String,
        /// Version found.
        found: i64,
        /// Latest version this program has.
        known: i64,
    },
    /// Made by an earlier build, whose schema was another one.
    #[error(
        "the database `{0}` was made by an earlier build of topicmill, and this one cannot read it: with that build, write \
         its posts (`export`), its gold labels (`labels gold export`) and its tombstones (`sql \"SELECT fullname, reason \
         FROM tombstones\" --format csv`) to files; with this one, begin a new database with `purge --ids` of the \
         tombstones, so that nothing purged comes back, then `import` the posts and `labels gold import` the gold labels"
    )]
    EarlierBuild(String),
    /// The file is not what it should be.
    #[error(
        "read {what}: its file is damaged, or is no SQLite database ({said}); `sqlite3 FILE 'PRAGMA integrity_check'` \
         tells more; restore a backup, or name another file"
    )]
    Damaged {
        /// The database, with its URL where that is known.
        what: String,
        /// The error of SQLite.
        said: String,
    },
    /// There is no schema yet, or an old one.
    #[error(
        "the database `{0}` has no tables of topicmill, or old ones: run `topicmill db migrate`"
    )]
    NotMigrated(String),
    /// A migration failed.
    #[error("migrate the database: {0}")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The database may only be read.
    #[error("write to the database: {0}")]
    ReadOnly(&'static str),
    /// The database's user lacks a right.
    #[error("use the database: {0}; {advice}", advice = failure::right_advice(.0))]
    Denied(String),
    /// The server cannot keep every text.
    #[error(
        "make the tables in `{0}`: the database is not made for UTF8, so it does not hold every text of Reddit; make \
         another one (`CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0`), and name that"
    )]
    Encoding(String),
    /// Names of tables lead nowhere.
    #[error(
        "use the database `{0}`: its `search_path` names no schema that is there and that your user may use; make the \
         schema (`CREATE SCHEMA name`), or name another one in the URL (`?options[search_path]=public`) or for your user \
         (`ALTER ROLE user SET search_path = public`)"
    )]
    NoSchema(String),
    /// A pooler whose connections have no session of their own.
    #[error(
        "open the database `{0}`: the pooler before it (PgBouncer's `pool_mode = transaction` or `statement`) gives every \
         transaction another session of the server, and topicmill needs one for each connection; set `pool_mode = session` \
         for this database or user, or name the pooler's port for sessions or the server itself in the URL (docs/postgres.md)"
    )]
    Pooler(String),
    /// A relation that topicmill did not create has the name of one of its tables or views.
    #[error(
        "make the tables in `{url}`: something that is not topicmill's is called `{name}` already; {elsewhere}"
    )]
    Occupied {
        /// Without its password.
        url: String,
        /// Their common property.
        name: String,
        /// Advice for the user.
        elsewhere: &'static str,
    },
    /// No room left.
    #[error("write to the database: its disk is full; free some space and run the command again")]
    Full,
    /// The file system refuses to write, for another reason than a full disk.
    #[error(
        "write to the database: its disk refused; check its health, your quota and the limit on a file's size \
         (`ulimit -f`), and run the command again"
    )]
    Refused(#[source] sqlx::Error),
    /// A statement failed.
    #[error("{what}: {source}{}", failure::advice(.source))]
    Statement {
        /// The operation.
        what: &'static str,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// A statement was cancelled by a signal or a timeout while it waited for a lock; it is rolled back.
    #[error(
        "{what}: it was told to stop while it waited for a lock that another session or program holds; this step changed \
         nothing, and the command may be run again"
    )]
    Stopped {
        /// The operation.
        what: &'static str,
        /// Identifies the cancellation in a chain of errors.
        #[source]
        source: ToldToStop,
    },
    /// Opening or upgrading a database was cancelled; its changes are rolled back.
    #[error(
        "open the database: it was stopped before the database was open; the command may be run again"
    )]
    StoppedOpening(#[source] ToldToStop),
    /// It took longer than anybody waits.
    #[error("the database does not answer")]
    Away,
    /// The lists were never read.
    #[error("lists cannot be made: {0}")]
    Unread(String),
    /// Only SQLite is copied to PostgreSQL.
    #[error(
        "copy the database: FROM has to be a SQLite database and TO one of PostgreSQL; docs/retention.md says how a database \
         is backed up and restored"
    )]
    NotSqliteToPostgres,
    /// Somebody would miss what is there.
    #[error(
        "copy into the database: its table `{0}` has rows already, and nothing was copied; name an empty database"
    )]
    NotEmpty(String),
    /// A table holds what the other kind of database does not.
    #[error("copy the table `{table}`: {detail}; nothing was copied")]
    Foreign {
        /// The table.
        table: String,
        /// The obstacle.
        detail: String,
    },
    /// The copy is not what was copied.
    #[error(
        "copy the table `{table}`: {sent} rows were copied, and {there} rows came out, or others than went in; nothing was \
         kept of it; please report it"
    )]
    Uneven {
        /// The table.
        table: String,
        /// Rows that were read.
        sent: u64,
        /// Rows that arrived.
        there: u64,
    },
    /// A row does not hold what topicmill writes.
    #[error("read {table} row `{row}`: {detail}")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Key of the row.
        row: String,
        /// The problem.
        detail: String,
    },
    /// The user of the server may do what no transaction forbids.
    #[error(
        "answer a query as {who}, who may read and write the server's files or run programs there, whatever a query is \
         held to: connect as a user who may only read (`GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader`), or \
         pass `--allow-superuser`"
    )]
    Powerful {
        /// The user, by the role that gives the power.
        who: String,
    },
    /// A query given by the user failed.
    #[error("{0}")]
    Query(String),
    /// The server did not answer a query to its end, for no fault of the query.
    #[error("run the query: {said}{advice}")]
    Unanswered {
        /// The driver's error.
        said: String,
        /// Advice for the user.
        advice: &'static str,
        /// True if the same query may succeed a little later.
        is_transient: bool,
    },
}

impl StoreError {
    /// The kind of this error, which decides the exit code.
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
            Self::Powerful { .. } => FailureKind::Policy,
            Self::Open { .. }
            | Self::Newer { .. }
            | Self::EarlierBuild(_)
            | Self::Damaged { .. }
            | Self::NotMigrated(_)
            | Self::Migrate(_)
            | Self::ReadOnly(_)
            | Self::Denied(_)
            | Self::Encoding(_)
            | Self::NoSchema(_)
            | Self::Pooler(_)
            | Self::Occupied { .. }
            | Self::Full
            | Self::Refused(_)
            | Self::Statement { .. }
            | Self::Stopped { .. }
            | Self::StoppedOpening(_)
            | Self::Away
            | Self::Unread(_)
            | Self::Foreign { .. }
            | Self::Uneven { .. }
            | Self::Corrupt { .. }
            | Self::Unanswered { .. } => FailureKind::Database,
        }
    }

    /// True if the same call may succeed a little later: the connection broke, the server restarts, or there was a
    /// deadlock between two transactions.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Statement { source, .. } => failure::is_transient(source),
            Self::Unanswered { is_transient, .. } => *is_transient,
            Self::Away | Self::Stopped { .. } | Self::StoppedOpening(_) => true,
            _ => false,
        }
    }
}
