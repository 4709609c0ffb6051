//! All statements, each written once for both databases.
//!
//! One impl block serves SQLite and PostgreSQL: both support `$1` parameters, `ON CONFLICT … DO UPDATE` and
//! `RETURNING`. The differences are in [`Dialect`]. This file contains the code that the statements share. `opening.rs`
//! opens databases. The statements are in one file per concern.

/// Returns a function that decodes a row into a struct, with the listed fields in the order of the columns. A function
/// in parentheses converts the value of its field.
macro_rules! row_as {
    ($kind:ident: $($field:ident $(($convert:path))?),+ $(; $other:ident = $value:expr)*) => {
        |row: DB::Row| -> Result<$kind, sqlx::Error> {
            let mut columns = 0..;
            $(
                let $field = row.try_get(columns.next().expect("the range is endless"))?;
                $(let $field = $convert($field);)?
            )+
            Ok($kind { $($field,)+ $($other: $value,)* })
        }
    };
}

mod backlog;
mod browse;
mod claims;
mod costs;
mod dropping;
mod frame;
mod gaps;
mod gold;
mod keywords;
mod labelling;
mod leases;
mod lookups;
mod meta;
mod models;
mod opening;
mod post_rows;
mod posts;
mod purging;
mod quotas;
mod reconciling;
mod report;
mod retention;
mod runs;
mod schedules;
mod status;
mod stored_posts;
mod text_rule;
mod tombstones;
mod vectors;
mod versions;
mod watermarks;

use std::sync::Arc;

use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    AssertSqlSafe, Encode, Executor, Pool, QueryBuilder, Row, SqlSafeStr, Transaction, Type,
};

pub(super) use self::opening::TABLES;
use self::post_rows::json_array;
pub(super) use self::text_rule::TEXTS;
use super::dialect::Dialect;
pub(super) use super::driver_error::ErrorContext;
use super::lock_wait::LockWaits;
use super::{Info, Result, StoreError};
use topicmill_core::{Fullname, Post, SourceKind, TextHash, Timestamp};

/// Fullnames per statement, well below SQLite's limit of 32,766 parameters and PostgreSQL's of 65,535.
const POSTS_A_STATEMENT: usize = 500;
/// Rows per INSERT of at most 13 columns, and values per `IN` list.
const ROWS_A_STATEMENT: usize = 2_000;

/// A database, with its connection pool.
#[derive(Debug)]
pub struct SqlStore<DB: Dialect> {
    pub(super) pool: Pool<DB>,
    url: String,
    /// Device and inode of the opened file, for SQLite.
    pub(super) file: Option<(u64, u64)>,
    /// True to use the times that callers pass instead of the database's clock.
    pub(super) uses_caller_time: bool,
    /// True to store a comment with the title of its post.
    pub(super) reads_titles: bool,
    pub(super) waits: Arc<LockWaits>,
}

// A derived implementation would require `DB: Clone`.
impl<DB: Dialect> Clone for SqlStore<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            url: self.url.clone(),
            file: self.file,
            uses_caller_time: self.uses_caller_time,
            reads_titles: self.reads_titles,
            waits: Arc::clone(&self.waits),
        }
    }
}

/// Returns true if a post comes from a file or an archive, but its stored version comes from Reddit itself.
fn yields_to_stored(post: &Post, known_from: &str) -> bool {
    !post.source.is_live() && known_from.parse().is_ok_and(SourceKind::is_live)
}

fn at(time: Timestamp) -> DateTime<Utc> {
    time.as_datetime()
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn from_json<T>(Json(value): Json<T>) -> T {
    value
}

/// Pushes the values and the closing parenthesis of an `IN (` that was just pushed.
fn push_list<'q, DB, T>(query: &mut QueryBuilder<DB>, values: impl IntoIterator<Item = T>)
where
    DB: Dialect,
    T: Encode<'q, DB> + Type<DB> + 'q,
{
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value);
    }
    query.push(")");
}

/// A transaction that owns its connection.
type Tx<DB> = Transaction<'static, DB>;

impl<DB: Dialect> SqlStore<DB> {
    /// Runs a statement that ends with `fullname IN` on these posts. Returns the number of changed rows.
    async fn change_posts(
        tx: &mut Tx<DB>,
        statement: &str,
        posts: impl Iterator<Item = &str>,
        what: &'static str,
    ) -> Result<u64> {
        let sql = format!("{statement} {}", DB::IN_JSON_ARRAY);
        sqlx::query::<DB>(AssertSqlSafe(sql))
            .bind(json_array(posts))
            .execute(&mut **tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .context(what)
    }

    /// Selects strings of these posts, with a statement that ends with `IN`.
    async fn select_posts(
        tx: &mut Tx<DB>,
        statement: &str,
        posts: impl Iterator<Item = &str>,
        what: &'static str,
    ) -> Result<Vec<String>> {
        let sql = format!("{statement} {}", DB::IN_JSON_ARRAY);
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(sql))
            .bind(json_array(posts))
            .fetch_all(&mut **tx)
            .await
            .context(what)
    }

    /// Runs a query that ends with `IN (` on chunks of these keys, and returns the rows of all chunks.
    async fn rows_in<'k, T>(
        &self,
        select: &str,
        keys: Vec<T>,
        what: &'static str,
    ) -> Result<Vec<DB::Row>>
    where
        T: Encode<'k, DB> + Type<DB> + Copy + 'k,
    {
        let mut rows = Vec::new();
        for keys in keys.chunks(ROWS_A_STATEMENT) {
            let mut query = QueryBuilder::<DB>::new(select);
            push_list(&mut query, keys.iter().copied());
            let chunk = query.build().fetch_all(&self.pool).await;
            rows.extend(chunk.context(what)?);
        }
        Ok(rows)
    }

    /// Decodes a post's fullname in the column `first`, and the hash of its text in the next one.
    fn fullname_and_hash(row: &DB::Row, first: usize) -> Result<(Fullname, TextHash)> {
        const WHAT: &str = "read the hash of a text";
        let fullname: Fullname = row.try_get(first).context(WHAT)?;
        let hash: Vec<u8> = row.try_get(first + 1).context(WHAT)?;
        match TextHash::try_from(hash.as_slice()) {
            Ok(hash) => Ok((fullname, hash)),
            Err(_) => Err(StoreError::Corrupt {
                table: "things",
                row: fullname.to_string(),
                detail: "`text_hash` does not have 16 bytes".into(),
            }),
        }
    }

    pub async fn info(&self) -> Result<Info> {
        const WHAT: &str = "describe the database";
        let server = sqlx::query_scalar::<DB, _>(DB::SERVER);
        let server = server.fetch_one(&self.pool).await.context(WHAT)?;
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            rows.push((table.to_owned(), self.number(count, WHAT).await?));
        }
        Ok(Info {
            backend: DB::BACKEND,
            url: self.url.clone(),
            server,
            schema: self.schema().await?,
            latest: Self::latest(),
            bytes: self.number(DB::BYTES, WHAT).await?,
            rows,
        })
    }

    pub(super) async fn number(&self, sql: impl SqlSafeStr, what: &'static str) -> Result<i64> {
        let number = sqlx::query_scalar::<DB, _>(sql);
        number.fetch_one(&self.pool).await.context(what)
    }

    /// Returns the time for leases and quotas. This is the time of the database's clock, because the clocks of machines
    /// differ, or `now` if the database has none.
    async fn database_time<'c>(
        &self,
        executor: impl Executor<'c, Database = DB>,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>> {
        let time = match DB::TIME {
            Some(time) if !self.uses_caller_time => time,
            _ => return Ok(now),
        };
        let time = sqlx::query_scalar::<DB, _>(time).fetch_one(executor);
        time.await.context("read the server's clock")
    }

    async fn begin(&self) -> Result<Tx<DB>> {
        let begun = self.pool.begin_with(DB::BEGIN_WRITE).await;
        begun.context("begin a transaction")
    }
}
