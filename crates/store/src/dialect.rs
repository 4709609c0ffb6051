//! The differences between the two databases (`sqlite.rs`, `postgres.rs`): opening, locking and migrating. Statements
//! are shared.

mod migrations;
mod pooler;
mod postgres;
mod sqlite;

use serde_json::Value;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Type};

pub use migrations::File;
pub(super) use migrations::of as migrator_of;
pub use postgres::Listener;
pub(super) use postgres::lock_timeout;
pub use sqlite::FileWatch;
pub(super) use sqlite::{BUSY_TIMEOUT, READER_CACHE, is_settled};

use super::bulk::Insert;
use super::failure::plain;
use super::{Access, Result, Step, StoreError};
use topicmill_core::{Timestamp, redact_url};

/// Of one process, at most.
const CONNECTIONS: u32 = 8;

/// A type with bounds that a supertrait carries: the compiler takes for granted what a supertrait says of an associated
/// type, and not what it says of other types than `Self`.
pub trait Same<T> {
    /// `T`.
    type Is;
}

impl<T, S> Same<T> for S {
    type Is = T;
}

/// As a supertrait, `Implies<T, Is: Bound>` is `T: Bound` wherever the trait is.
pub trait Implies<T>: Same<T, Is = T> {}

impl<T, S> Implies<T> for S {}

/// A value that statements take, alone or as an `Option`.
pub trait Taken<DB: Database>: for<'q> Encode<'q, DB> + Type<DB> {}

impl<DB: Database, T: for<'q> Encode<'q, DB> + Type<DB>> Taken<DB> for T {}

/// A value that statements take and rows hold.
pub trait Held<DB: Database>: Taken<DB> + for<'r> Decode<'r, DB> {}

impl<DB: Database, T: Taken<DB> + for<'r> Decode<'r, DB>> Held<DB> for T {}

/// A database that the statements of `sql/` run on.
pub trait Dialect:
    Database<Arguments: IntoArguments<Self>>
    + for<'c> Implies<&'c mut Self::Connection, Is: Executor<'c, Database = Self>>
    + Implies<usize, Is: ColumnIndex<Self::Row>>
    + Implies<bool, Is: Held<Self>>
    + Implies<i64, Is: Held<Self>>
    + Implies<f32, Is: Held<Self>>
    + Implies<f64, Is: Held<Self>>
    + Implies<String, Is: Held<Self>>
    + Implies<Vec<u8>, Is: Held<Self>>
    + Implies<DateTime<Utc>, Is: Held<Self>>
    + Implies<Timestamp, Is: Held<Self>>
    + Implies<Json<Value>, Is: Held<Self>>
    + Implies<Json<Vec<Value>>, Is: Held<Self>>
    + Implies<Option<i64>, Is: Taken<Self>>
    + Implies<Option<f32>, Is: Taken<Self>>
    + Implies<Option<f64>, Is: Taken<Self>>
    + Implies<Option<String>, Is: Taken<Self>>
    + Implies<Option<DateTime<Utc>>, Is: Taken<Self>>
    + Implies<Option<Timestamp>, Is: Taken<Self>>
    + Implies<Option<Json<Value>>, Is: Taken<Self>>
    + for<'q> Implies<&'q str, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Option<&'q str>, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<&'q [u8], Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Json<&'q Value>, Is: Encode<'q, Self> + Type<Self>>
    + for<'q> Implies<Json<&'q [Value]>, Is: Encode<'q, Self> + Type<Self>>
{
    /// Its name in messages and JSON.
    const BACKEND: &'static str;
    /// The migrations of this database.
    const MIGRATIONS: &'static [File];
    /// Begins a transaction that will write. A SQLite transaction that reads first and writes later fails
    /// when another process wrote in between, so it takes the write lock at once.
    const BEGIN_WRITE: &'static str;
    /// The same, of one that stores labels. PostgreSQL plans the checks of foreign keys once a connection: where it
    /// takes
    /// `classifications` for empty, as it does until its statistics have seen a first label set, it would read all of
    /// that table for each row of `packed_scores` (100,000 rows took 12.3 s instead of 2.8 s).
    const BEGIN_LABELS: &'static str = Self::BEGIN_WRITE;
    /// Begins a transaction that only reads, and sees the database as of one moment.
    const BEGIN_READ: &'static str;
    /// Behind `posts p`: that it is read by the index that has all of a post but its texts, in the order of the names,
    /// which is that of the labels; and not by date, post after post.
    const POSTS_IN_ORDER: &'static str;
    /// Locks the rows of a SELECT and passes over those that others have locked.
    const SKIP_LOCKED: &'static str;
    /// Locks the rows of a SELECT until the transaction ends.
    const FOR_UPDATE: &'static str;
    /// Keeps the rows of a SELECT from being deleted until the transaction ends.
    const HOLD: &'static str;
    /// Keeps every other transaction from storing posts until this one ends: each reads `tombstones` for
    /// update before it does.
    const LOCK_TOMBSTONES: Option<&'static str>;
    /// Keeps the posts that a SELECT names `p` from being purged, and their texts from being taken or edited, until
    /// the transaction ends; passes over those that just were purged.
    const HOLD_POSTS: &'static str;
    /// Locks the posts of a SELECT as an UPDATE of them does. Whoever changes posts locks them in the order of
    /// their names first: each other, and those that hold posts, wait for them and never in a circle.
    const LOCK_POSTS: &'static str;
    /// Lets one transaction at a time look whether a text that was edited away is any other post's.
    const LOCK_EDITS: Option<&'static str>;
    /// True if new logits are inserted by [`insert_new`](Self::insert_new), too; another worker may have stored them
    /// meanwhile.
    const LOGITS_APART: bool;
    /// What `IN` compares with: the texts of a JSON array, which is the statement's only parameter. However
    /// many they are, the statement stays the same.
    const AMONG: &'static str;
    /// Tells the planner how much there is in the backlog, after much was put there at once. By what it knew
    /// before, the table was empty, and it would read all of it for each post of a claim.
    const COUNT_BACKLOG: Option<&'static str>;
    /// The database's own time.
    const NOW: &'static str;
    /// One row if the table of applied migrations exists.
    const HAS_SCHEMA: &'static str;
    /// Query for any relation with a given name, up to `WHERE` and the name: no table of ours can have that name then.
    const NAMED: &'static str;
    /// Advice if a name of ours is taken by a relation of somebody else.
    const ELSEWHERE: &'static str;
    /// Query for whether a schema for tables exists (1 or 0); `None` if there always is one.
    const HAS_PLACE: Option<&'static str> = None;
    /// Query for whether the database is UTF-8 (1 or 0); `None` if every one is.
    const IS_UTF8: Option<&'static str> = None;
    /// Query for the version of the server.
    const SERVER: &'static str;
    /// A value that no call before gave.
    const TOKEN: &'static str;
    /// Query for the approximate number of posts, at a nearly constant cost.
    const ABOUT_POSTS: &'static str;
    /// One of every `$3` posts, or some more: no post is likelier than another, and they are the same when one looks
    /// again.
    const EACH_NTH_POST: &'static str;
    /// Bytes on disk.
    const BYTES: &'static str;
    /// After how many [steps](super::waiting::STEP) a wait for a lock is an error.
    const MOST_STEPS: u64;
    /// Query for the time of the database's clock, if it has one.
    const TIME: Option<&'static str>;

    /// Returns the grouping key of a time step, made of `p.created_at`, and its text, made of that key as `bucket`.
    fn bucket(step: Step) -> (&'static str, &'static str);
    /// The whole number that a positive number begins with.
    fn floor(number: &str) -> String;
    /// Inserts rows in their order, and returns what `on_conflict` says with `RETURNING`.
    fn insert_returning(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;
    /// Inserts rows in their order.
    fn insert(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        async { Self::insert_returning(connection, insert).await.map(drop) }
    }
    /// Inserts rows whose keys were not there a moment ago, in their order. Where another writer stored one since, it
    /// is an error, `is_taken`, or a row of `on_conflict`.
    fn insert_new(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Rows that a statement changed.
    fn rows_affected(done: &Self::QueryResult) -> u64;
    /// Applies migrations; processes that start together do it once.
    fn migrate(
        pool: &Pool<Self>,
        migrator: &Migrator,
    ) -> impl Future<Output = Result<(), MigrateError>> + Send;
    /// Opens the database, making it if `access` says so.
    fn open(url: &str, access: Access) -> impl Future<Output = Result<Pool<Self>>> + Send;
}

/// The kind of database of a URL.
pub enum Backend {
    Sqlite,
    Postgres,
}

/// Reads the scheme of a URL.
pub fn backend(url: &str) -> Result<Backend> {
    match url.split_once(':') {
        Some(("sqlite", _)) => Ok(Backend::Sqlite),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Backend::Postgres),
        _ => Err(StoreError::Url(redact_url(url))),
    }
}

/// Describes a bad URL without the driver's message, which quotes values that may be secrets.
fn malformed(url: &str, hint: &str) -> impl FnOnce(sqlx::Error) -> StoreError {
    let (url, hint) = (redact_url(url), hint.to_owned());
    move |_| {
        let source = sqlx::Error::Configuration("it cannot be read".into());
        StoreError::Open { url, hint, source }
    }
}

fn open_error(url: &str, hint: impl Into<String>) -> impl FnOnce(sqlx::Error) -> StoreError {
    let (url, hint) = (redact_url(url), hint.into());
    move |source| StoreError::Open {
        url,
        hint,
        source: plain(source),
    }
}

fn watching(source: sqlx::Error) -> StoreError {
    let what = "watch for new posts";
    StoreError::Statement {
        what,
        source: plain(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_known_database_is_refused() {
        assert!(backend("mysql://host/db").is_err());
        assert!(backend("topicmill.db").is_err());
        assert!(backend("postgres:db").is_err());
    }
}
