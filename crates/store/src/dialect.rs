//! The differences between the two databases (`sqlite.rs`, `postgres.rs`): opening, locking, migrating, and SQL
//! fragments. Statements are shared.

mod migrations;
mod pooler;
mod postgres;
mod postgres_url;
mod sqlite;

use serde_json::Value;
use sqlx::database::HasStatementCache;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    ColumnIndex, Connection, Database, Decode, Encode, Executor, IntoArguments, Pool, Type,
};

pub use migrations::Migration;
pub(super) use migrations::migrator as migrator_from;
pub use postgres::Listener;
pub(super) use postgres::lock_timeout;
pub use sqlite::FileWatch;
pub(super) use sqlite::{READER_CACHE, may_be_immutable};

use super::bulk::BulkInsert;
use super::driver_error::without_source_location;
use super::{Access, Result, StoreError, TimeStep};
use topicmill_core::{Timestamp, redact_url};

/// Maximum number of connections per process.
const CONNECTIONS: u32 = 8;

/// Helper of [`Implies`]. A bound `DB: Dialect` implies the bounds that `Dialect` puts on associated types of its
/// supertraits, but would not imply bounds on other types in a `where` clause: with `where i64: Cell<Self>` in
/// `Dialect`, each `impl<DB: Dialect>` would be an error unless it repeats `where i64: Cell<DB>`.
pub trait Same<T> {
    /// `T`.
    type Is;
}

impl<T, S> Same<T> for S {
    type Is = T;
}

/// As a supertrait, `Implies<T, Is: Bound>` implies `T: Bound` wherever the trait is required.
pub trait Implies<T>: Same<T, Is = T> {}

impl<T, S> Implies<T> for S {}

/// A type that can be bound to a statement, alone or as an `Option`.
pub trait Bind<DB: Database>: for<'q> Encode<'q, DB> + Type<DB> {}

impl<DB: Database, T: for<'q> Encode<'q, DB> + Type<DB>> Bind<DB> for T {}

/// A type that can be bound to a statement and read from a row.
pub trait Cell<DB: Database>: Bind<DB> + for<'r> Decode<'r, DB> {}

impl<DB: Database, T: Bind<DB> + for<'r> Decode<'r, DB>> Cell<DB> for T {}

/// A database that the statements in `sql/` run on.
///
/// A fragment of SQL names the rows of its statement as all statements do: `p` for `things`, `s` for `packed_scores`.
/// Its documentation names its parameters.
pub trait Dialect:
    Database<Arguments: IntoArguments<Self>>
    + BulkInsert
    + HasStatementCache
    + for<'c> Implies<&'c mut Self::Connection, Is: Executor<'c, Database = Self>>
    + Implies<usize, Is: ColumnIndex<Self::Row>>
    + Implies<bool, Is: Cell<Self>>
    + Implies<i64, Is: Cell<Self>>
    + Implies<f32, Is: Cell<Self>>
    + Implies<f64, Is: Cell<Self>>
    + Implies<String, Is: Cell<Self>>
    + Implies<Vec<u8>, Is: Cell<Self>>
    + Implies<DateTime<Utc>, Is: Cell<Self>>
    + Implies<Timestamp, Is: Cell<Self>>
    + Implies<Json<Value>, Is: Cell<Self>>
    + Implies<Json<Vec<Value>>, Is: Cell<Self>>
    + Implies<Option<i64>, Is: Bind<Self>>
    + Implies<Option<f32>, Is: Bind<Self>>
    + Implies<Option<f64>, Is: Bind<Self>>
    + Implies<Option<String>, Is: Bind<Self>>
    + Implies<Option<DateTime<Utc>>, Is: Bind<Self>>
    + Implies<Option<Timestamp>, Is: Bind<Self>>
    + Implies<Option<Json<Value>>, Is: Bind<Self>>
    + for<'q> Implies<&'q str, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Option<&'q str>, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<&'q [u8], Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Json<&'q Value>, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Json<&'q [Value]>, Is: Encode<'q, Self> + Type<Self>>
{
    // Names and schema.

    /// Name in messages and JSON.
    const BACKEND: &'static str;
    /// The migrations for this database.
    const MIGRATIONS: &'static [Migration];
    /// Query that returns 1 if the table of applied migrations exists, otherwise 0.
    const HAS_SCHEMA: &'static str;
    /// Query for the number of current schemas (0 or 1); `None` if there is always one.
    const HAS_CURRENT_SCHEMA: Option<&'static str> = None;
    /// Query for whether the database is UTF-8 (0 or 1); `None` if it always is.
    const IS_UTF8: Option<&'static str> = None;
    /// Start of a query for relations whose names conflict with new tables. The caller appends the condition on the
    /// name.
    const RELATIONS_NAMED: &'static str;
    /// Advice if another program's relation has the name of one of topicmill's relations.
    const NAME_TAKEN_ADVICE: &'static str;

    // Transactions and locks.

    /// Begins a transaction that writes. On SQLite, the transaction takes the write lock at once: one that reads first
    /// and writes later fails if another process wrote in between.
    const BEGIN_WRITE: &'static str;
    /// Begins a transaction that stores labels. PostgreSQL plans foreign key checks once per connection. Until its
    /// statistics include the first labels, it would consider `classifications` empty and read the whole table for each
    /// row of `packed_scores`, which takes four times as long.
    const BEGIN_LABELS: &'static str = Self::BEGIN_WRITE;
    /// Begins a read-only transaction with one snapshot.
    const BEGIN_READ: &'static str;
    /// Locks the rows of a SELECT until the transaction ends.
    const FOR_UPDATE: &'static str;
    /// Locks the rows of a SELECT and skips rows that others have locked.
    const SKIP_LOCKED: &'static str;
    /// Prevents the rows of a SELECT from being deleted until the transaction ends.
    const LOCK_KEY: &'static str;
    /// Blocks all other transactions that store posts until this one ends. The lock conflicts with the
    /// `SELECT … FOR UPDATE` on `tombstones` that each of them runs first.
    const LOCK_TOMBSTONES: Option<&'static str> = None;
    /// Locks the posts of a SELECT as an UPDATE does. Every writer locks posts in order of fullname first, to avoid
    /// deadlocks with other writers and with share locks.
    const LOCK_POSTS: &'static str;
    /// Prevents the posts that a SELECT names `p` from being purged or edited until the transaction ends; skips posts
    /// that were just purged.
    const SHARE_POSTS: &'static str;
    /// Serialises transactions that edit posts, because each checks whether another post still has the old text.
    const LOCK_EDITS: Option<&'static str> = None;

    // Parts of statements about posts and labels.

    /// SQL after `posts p` that selects an index with all columns except the text, ordered by fullname like the labels.
    /// With the date index, SQLite would look up each post separately.
    const POSTS_IN_ORDER: &'static str;
    /// The right side of `IN`: the strings in the JSON array `$1`. With one parameter, the statement does not depend on
    /// the length of the array.
    const IN_JSON_ARRAY: &'static str;
    /// The title and body of a post `p` for the left side of LIKE, with a pattern whose ASCII letters are small.
    const SEARCHED: &'static str;
    /// Expression for the number of scores in a row `s` of `packed_scores`.
    const NUMBER_OF_SCORES: &'static str;
    /// True if many logits are inserted as new rows, which fails if another worker has stored one of them in the
    /// meantime.
    const BULK_LOGITS: bool;
    /// Updates the planner's statistics for the backlog after many inserts. With the statistics of an empty table, the
    /// planner would read the whole backlog for each post in a claim.
    const ANALYZE_BACKLOG: Option<&'static str> = None;

    // Time and unique values.

    /// Expression for the database's time.
    const NOW: &'static str;
    /// Query for the time of the database's clock, which all processes share; `None` if the database has no clock.
    const TIME: Option<&'static str> = None;
    /// Expression for a unique value.
    const TOKEN: &'static str;

    // Descriptions and checks of the database.

    /// Query for the server version.
    const SERVER: &'static str;
    /// Query for the size on disk in bytes.
    const BYTES: &'static str;
    /// Query for the approximate number of posts, at a nearly constant cost.
    const ESTIMATE_POSTS: &'static str;
    /// Query for the problems that the database's own checks find.
    const INTEGRITY: &'static str;
    /// Query for the statements that check further, and fail if they find a problem.
    const DEEP_CHECKS: &'static str;
    /// Advice about a damaged database.
    const REPAIR_ADVICE: &'static str;

    /// Returns the SQL that groups posts by the time step of a column.
    fn bucket(column: &str, step: TimeStep) -> Bucket;
    /// Returns a FROM clause that selects about one in `interval` posts. Each post is equally likely, and each query
    /// selects the same posts.
    fn sample_posts(interval: i64) -> String;
    /// Returns the SQL that rounds a positive number down.
    fn floor(number: &str) -> String;
    /// Returns the number of rows that a statement changed.
    fn rows_affected(done: &Self::QueryResult) -> u64;
    /// Returns the device and inode of the file that now has the database's name; `None` if there is no such file.
    fn file_id(_options: &<Self::Connection as Connection>::Options) -> Option<(u64, u64)> {
        None
    }
    /// Returns who holds the lock that a statement of this process is waiting for, or, on PostgreSQL, the statement of
    /// the session `backend`; `None` if there is nobody but this process.
    fn lock_holder(
        pool: &Pool<Self>,
        backend: Option<i32>,
    ) -> impl Future<Output = Option<String>> + Send;
    /// Applies migrations. If several processes start together, only one applies them.
    fn migrate(
        pool: &Pool<Self>,
        migrator: &Migrator,
    ) -> impl Future<Output = Result<(), MigrateError>> + Send;
    /// Opens the database; creates it if `access` allows that.
    fn open(url: &str, access: Access) -> impl Future<Output = Result<Pool<Self>>> + Send;
}

/// SQL expressions for groups of posts.
pub struct Bucket {
    /// The grouping key of a post.
    pub key: String,
    /// The text of a group, computed from the key as `bucket`.
    pub text: String,
}

/// The kind of database that a URL names.
pub enum Backend {
    Sqlite,
    Postgres,
}

/// Returns the kind of database that a URL's scheme names.
pub fn backend(url: &str) -> Result<Backend> {
    match url.split_once(':') {
        Some(("sqlite", _)) => Ok(Backend::Sqlite),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Backend::Postgres),
        _ => Err(StoreError::Url(redact_url(url))),
    }
}

/// Returns the error for a bad URL, without the driver's message, which quotes values that may be secrets.
fn malformed(url: &str, hint: &str) -> StoreError {
    let source = sqlx::Error::Configuration("the URL cannot be parsed".into());
    open_error(url, hint, source)
}

/// Returns the error for a database that cannot be opened.
fn open_error(url: &str, hint: &str, source: sqlx::Error) -> StoreError {
    StoreError::Open {
        url: redact_url(url),
        hint: hint.to_owned(),
        source: without_source_location(source),
    }
}

fn watching(source: sqlx::Error) -> StoreError {
    let what = "watch for new posts";
    StoreError::Statement {
        what,
        source: without_source_location(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_unsupported_databases_are_rejected() {
        assert!(backend("mysql://host/db").is_err());
        assert!(backend("topicmill.db").is_err());
        assert!(backend("postgres:db").is_err());
    }
}
