//! All statements, each written once for both databases.
//!
//! One impl block serves SQLite and PostgreSQL: both support `$1` parameters, `ON CONFLICT … DO UPDATE` and
//! `RETURNING`. The differences are in [`Dialect`]. This file opens databases and contains the code that the statements
//! share. The statements are in one file per concern.

/// Returns a function that decodes a row into a struct, with the listed fields in the order of the columns.
macro_rules! row_as {
    ($kind:ident: $($field:ident),+ $(; $other:ident = $value:expr)*) => {
        |row: DB::Row| -> Result<$kind, sqlx::Error> {
            let mut columns = 0..;
            $(let $field = row.try_get(columns.next().expect("the range is endless"))?;)+
            Ok($kind { $($field,)+ $($other: $value,)* })
        }
    };
}

mod backlog;
mod browse;
mod claims;
mod dropping;
mod gaps;
mod gold;
mod keywords;
mod labelling;
mod leases;
mod models;
mod post_rows;
mod posts;
mod predictions;
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

use std::cmp::Ordering;
use std::sync::Arc;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, Encode, Pool, QueryBuilder, Row, Transaction, Type};

use self::post_rows::json_array;
pub(super) use self::text_rule::TEXTS;
use super::dialect::{Dialect, File, migrator_from};
pub(super) use super::driver_error::ErrorContext;
use super::lock_wait::{LockWaits, repeat};
use super::{Access, Info, Result, StoreError};
use topicmill_core::{Fullname, Post, SourceKind, TextHash, Timestamp, redact_url};

/// Fullnames per statement, well below SQLite's limit of 32,766 parameters and PostgreSQL's of 65,535.
const POSTS_A_STATEMENT: usize = 500;
/// Rows per INSERT of at most 13 columns, and values per `IN` list.
const ROWS_A_STATEMENT: usize = 2_000;

/// The tables, each after the tables that it refers to.
pub(super) const TABLES: [&str; 24] = [
    "scheduled_runs",
    "runs",
    "things",
    "sightings",
    "watermarks",
    "gaps",
    "topic_keywords",
    "imports",
    "tombstones",
    "quotas",
    "models",
    "label_sets",
    "labels",
    "current_target",
    "hypotheses",
    "pair_logits",
    "text_vectors",
    "label_vectors",
    "classifications",
    "packed_scores",
    "gold",
    "cross_fitted",
    "leases",
    "backlog",
];

/// Other relations in the schema: views, and internal tables.
const OTHER_RELATIONS: [&str; 14] = [
    "posts",
    "comments",
    "labeled_things",
    "labeled_comments",
    "labeled_posts",
    "uncertain_posts",
    "post_scores",
    "topic_agreement",
    "topic_daily",
    "labeled_posts_all",
    "post_scores_all",
    "label_scores",
    "meta",
    "_sqlx_migrations",
];

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

/// Returns true if the error is a missing privilege.
fn is_forbidden(error: &StoreError) -> bool {
    matches!(error, StoreError::Denied(_))
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

impl<DB: Dialect> SqlStore<DB> {
    /// Runs a statement that ends with `fullname IN` on these posts. Returns the number of changed rows.
    async fn change_posts(
        tx: &mut Transaction<'static, DB>,
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
        tx: &mut Transaction<'static, DB>,
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

    /// Decodes the hash of a post's text.
    pub(super) fn text_hash(row: &DB::Row, column: usize, fullname: &Fullname) -> Result<TextHash> {
        let hash: Vec<u8> = row.try_get(column).context("read the hash of a text")?;
        TextHash::try_from(hash.as_slice()).map_err(|_| StoreError::Corrupt {
            table: "things",
            row: fullname.to_string(),
            detail: "`text_hash` does not have 16 bytes".into(),
        })
    }

    pub(super) async fn open(url: &str, access: Access, more: &[File]) -> Result<Self> {
        Self::try_open(url, access, more)
            .await
            .map_err(|error| match error {
                StoreError::Damaged { message, .. } => StoreError::Damaged {
                    what: format!("the database `{}`", redact_url(url)),
                    message,
                },
                error => error,
            })
    }

    async fn try_open(url: &str, access: Access, more: &[File]) -> Result<Self> {
        let migrator = migrator_from(DB::MIGRATIONS.iter().chain(more).copied());
        // Read before the file is opened, so that a file that is replaced in between is noticed.
        let options = url.parse::<<DB::Connection as Connection>::Options>().ok();
        let file = options.and_then(|options| DB::file_id(&options));
        let pool = DB::open(url, access).await?;
        let store = Self {
            // A new file exists only now.
            file: file.or_else(|| DB::file_id(&pool.connect_options())),
            pool,
            url: redact_url(url),
            uses_caller_time: false,
            reads_titles: false,
            waits: Arc::default(),
        };
        if access == Access::AnySchema {
            return Ok(store);
        }
        let found = match repeat!(store, store.schema()) {
            // A user who may read only the views has all the privileges that queries need.
            Err(error) if access == Access::ReadOnly && is_forbidden(&error) => return Ok(store),
            found => found?,
        };
        if found == 0
            && let Some(has_place) = DB::HAS_CURRENT_SCHEMA
            && store.number(has_place, "check the search path").await? == 0
        {
            return Err(StoreError::NoSchema(store.url));
        }
        if found > 0 && store.is_earlier_build(&migrator).await? {
            return Err(StoreError::EarlierBuild(store.url));
        }
        let versions = migrator.iter().map(|migration| migration.version);
        let known = versions.max().unwrap_or(0);
        if found >= known || access != Access::Create {
            store.check_schema(found, known)?;
            return Ok(store);
        }
        if found > 0 {
            tracing::warn!(
                from = found, to = known, url = %store.url,
                "upgrading the database to the schema of this version; earlier versions can no longer use it"
            );
        } else {
            if let Some(is_utf8) = DB::IS_UTF8
                && store
                    .number(is_utf8, "read the encoding of the database")
                    .await?
                    == 0
            {
                return Err(StoreError::Encoding(store.url));
            }
            store.check_names_free().await?;
        }
        store.migrate(&migrator).await?;
        if found > 0 {
            tracing::warn!(schema = known, "upgraded the database");
        }
        Ok(store)
    }

    /// Checks that the database has the latest schema.
    fn check_schema(&self, found: i64, known: i64) -> Result<()> {
        match found.cmp(&known) {
            Ordering::Equal => Ok(()),
            Ordering::Less if found == 0 => Err(StoreError::NoTables(self.url.clone())),
            Ordering::Less => Err(StoreError::NotMigrated(self.url.clone())),
            Ordering::Greater => Err(StoreError::Newer {
                url: self.url.clone(),
                found,
                known,
            }),
        }
    }

    /// Checks that no relation of another program has the name of one of topicmill's relations.
    async fn check_names_free(&self) -> Result<()> {
        let ours: Vec<String> = TABLES
            .iter()
            .chain(&OTHER_RELATIONS)
            .map(|name| format!("'{name}'"))
            .collect();
        let first = format!(
            "{} IN ({}) ORDER BY 1 LIMIT 1",
            DB::RELATIONS_NAMED,
            ours.join(", ")
        );
        let found = sqlx::query_scalar::<DB, String>(AssertSqlSafe(first))
            .fetch_optional(&self.pool)
            .await
            .context("check the names of relations")?;
        let Some(name) = found else {
            return Ok(());
        };
        // Another process may have created topicmill's relations in between.
        if self.schema().await? > 0 {
            return Ok(());
        }
        Err(StoreError::NameTaken {
            url: self.url.clone(),
            name,
            advice: DB::NAME_TAKEN_ADVICE,
        })
    }

    /// Returns the latest schema version of this program.
    pub(super) fn latest() -> i64 {
        DB::MIGRATIONS.last().map_or(0, |(version, ..)| *version)
    }

    /// Returns true if the first migration of the database differs from this program's.
    async fn is_earlier_build(&self, migrator: &Migrator) -> Result<bool> {
        let first = migrator.iter().next().expect("a migration exists");
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM _sqlx_migrations WHERE version = 1 AND checksum <> $1",
        )
        .bind(&first.checksum[..])
        .fetch_one(&self.pool)
        .await
        .map(|rows| rows > 0)
        .context("read the schema version")
    }

    /// Returns the schema version of the database; 0 if it has none.
    pub(super) async fn schema(&self) -> Result<i64> {
        const WHAT: &str = "read the schema version";
        if self.number(DB::HAS_SCHEMA, WHAT).await? == 0 {
            return Ok(0);
        }
        self.number(
            "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success",
            WHAT,
        )
        .await
    }

    async fn migrate(&self, migrator: &Migrator) -> Result<()> {
        repeat!(self, async {
            match DB::migrate(&self.pool, migrator).await {
                Err(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => {
                    Err(source).context("migrate the database")
                }
                ended => ended.map_err(StoreError::Migrate),
            }
        })
    }

    /// Returns who holds the lock that a statement of this process is waiting for, if that is known.
    pub(super) async fn lock_holder(&self) -> Option<String> {
        DB::lock_holder(&self.pool, None).await
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.pool.close().await;
        self.check_same_file()
    }

    /// Checks that the database's name still refers to the opened file: SQLite keeps writing to a file that was moved
    /// or deleted.
    pub(super) fn check_same_file(&self) -> Result<()> {
        // A database in memory has no file.
        if self.file.is_none() || DB::file_id(&self.pool.connect_options()) == self.file {
            return Ok(());
        }
        Err(StoreError::Replaced(self.url.clone()))
    }

    pub async fn info(&self) -> Result<Info> {
        const WHAT: &str = "describe the database";
        let server = sqlx::query_scalar::<DB, _>(DB::SERVER)
            .fetch_one(&self.pool)
            .await
            .context(WHAT)?;
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let count = sqlx::query_scalar::<DB, _>(sql).fetch_one(&self.pool).await;
            rows.push((table.to_owned(), count.context(WHAT)?));
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

    async fn number(&self, sql: &'static str, what: &'static str) -> Result<i64> {
        sqlx::query_scalar::<DB, _>(sql)
            .fetch_one(&self.pool)
            .await
            .context(what)
    }

    /// Returns the time for leases and quotas. This is the time of the database's clock, because the clocks of machines
    /// differ, or `now` if the database has none.
    async fn database_time(
        &self,
        connection: &mut DB::Connection,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>> {
        let time = match DB::TIME {
            Some(time) if !self.uses_caller_time => time,
            _ => return Ok(now),
        };
        sqlx::query_scalar::<DB, _>(time)
            .fetch_one(connection)
            .await
            .context("read the server's clock")
    }

    /// Stores a new, unique value under a key in `meta`.
    async fn set_unique_meta(
        tx: &mut Transaction<'static, DB>,
        key: &str,
    ) -> Result<(), sqlx::Error> {
        let note = format!(
            "INSERT INTO meta (key, value) VALUES ($1, {}) \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            DB::TOKEN
        );
        sqlx::query::<DB>(AssertSqlSafe(note))
            .bind(key)
            .execute(&mut **tx)
            .await
            .map(drop)
    }

    async fn begin(&self) -> Result<Transaction<'static, DB>> {
        self.pool
            .begin_with(DB::BEGIN_WRITE)
            .await
            .context("begin a transaction")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sqlx::Sqlite;

    use super::*;

    #[tokio::test]
    async fn the_lists_of_relations_match_the_schema() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let store = SqlStore::<Sqlite>::open(&url, Access::Create, &[])
            .await
            .unwrap();
        let found: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
        )
        .fetch_all(&store.pool)
        .await
        .unwrap();
        let known = TABLES.into_iter().chain(OTHER_RELATIONS);
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(BTreeSet::from_iter(found), known);
    }
}
