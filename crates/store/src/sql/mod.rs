//! Every statement, once, for both databases.
//!
//! One impl block serves SQLite and PostgreSQL: both take `$1` parameters, `ON CONFLICT … DO UPDATE` and
//! `RETURNING`; what differs is a constant of [`Dialect`]. Here stand opening and what the statements share;
//! they themselves are one file a concern: `runs`, `posts`, `arriving`, `refusing`, `read_so_far`, `known`, `gaps`,
//! `gold`, `purging`,
//! `retention`, `reconciling`, `quotas`, `slots`, `models`, `vectors`, `versions`, `predictions`, `unlabelled`,
//! `thinning`, `dropping`, `work`, `claiming`, `labelling`,
//! `outlook`, `browsing`, `report`.

/// A function that reads a row into a struct whose fields are named in the order of the columns.
macro_rules! row_as {
    ($kind:ident: $($field:ident),+ $(; $other:ident = $value:expr)*) => {
        |row: DB::Row| -> Result<$kind, sqlx::Error> {
            let mut columns = 0..;
            $(let $field = row.try_get(columns.next().expect("numbers do not end"))?;)+
            Ok($kind { $($field,)+ $($other: $value,)* })
        }
    };
}

/// Makes a call again that the database ended for the sake of another transaction.
macro_rules! again {
    ($call:expr) => {{
        let mut attempts = super::super::failure::Attempts::default();
        loop {
            match $call.await {
                Err(error) if attempts.again(&error) => {}
                done => return done,
            }
        }
    }};
}

mod arriving;
mod browsing;
mod claiming;
mod dropping;
mod gaps;
mod gold;
mod known;
mod labelling;
mod models;
mod outlook;
mod posts;
mod predictions;
mod purging;
mod quotas;
mod read_so_far;
mod reconciling;
mod refusing;
mod rehashing;
mod report;
mod retention;
mod runs;
mod slots;
mod thinning;
mod unlabelled;
mod vectors;
mod versions;
mod work;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Encode, Pool, QueryBuilder, Transaction, Type};
use tokio_util::sync::CancellationToken;

use super::dialect::{Dialect, File, migrator_of};
pub(super) use super::failure::Doing;
use super::failure::is_busy;
use super::waiting::ToldToStop;
use super::{Access, Info, Result, StoreError};
use topicmill_core::{Post, SourceKind, Timestamp, redact_url};

/// Names of one statement, well under SQLite's 32,766 and PostgreSQL's 65,535 parameters.
const POSTS_A_STATEMENT: usize = 500;
/// Rows of one INSERT of short rows (at most 13 columns).
const ROWS_A_STATEMENT: usize = 2_000;

pub(super) const TABLES: [&str; 24] = [
    "gaps",
    "posts",
    "sightings",
    "runs",
    "run_days",
    "watermarks",
    "imports",
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
    "leases",
    "backlog",
    "tombstones",
    "quotas",
    "schedules",
    "scheduled_runs",
];

/// Other names of the schema: the views, the table of facts, and the table of migrations.
const OTHER_NAMES: [&str; 10] = [
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

/// A database behind a pool of connections.
#[derive(Debug)]
pub struct SqlStore<DB: Dialect> {
    pub(super) pool: Pool<DB>,
    url: String,
    /// Device and number of the file that was opened, for SQLite.
    pub(super) file: Option<(u64, u64)>,
    /// True if times that callers pass are used instead of the database's clock.
    pub(super) on_given_time: bool,
    /// Cancels its waits for locks.
    pub(super) stop: Arc<OnceLock<CancellationToken>>,
}

// By hand: what is derived would ask for a `DB` that can be cloned.
impl<DB: Dialect> Clone for SqlStore<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            url: self.url.clone(),
            file: self.file,
            on_given_time: self.on_given_time,
            stop: Arc::clone(&self.stop),
        }
    }
}

/// True if the database user lacks a privilege on what a statement reads.
fn is_forbidden(error: &StoreError) -> bool {
    matches!(error, StoreError::Denied(_))
}

/// True if a post comes from a file or an archive and is known from Reddit itself.
fn is_older(post: &Post, known_from: &str) -> bool {
    !post.source.is_live() && known_from.parse().is_ok_and(SourceKind::is_live)
}

fn at(time: Timestamp) -> DateTime<Utc> {
    time.as_datetime()
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The values of an `IN (` that was just pushed, and its end.
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
    pub(super) async fn open(url: &str, access: Access, more: &[File]) -> Result<Self> {
        let opened = Self::try_open(url, access, more).await;
        opened.map_err(|error| match error {
            StoreError::Damaged { said, .. } => StoreError::Damaged {
                what: format!("the database `{}`", redact_url(url)),
                said,
            },
            other => other,
        })
    }

    async fn try_open(url: &str, access: Access, more: &[File]) -> Result<Self> {
        let migrator = migrator_of(DB::MIGRATIONS.iter().chain(more).copied());
        let store = Self {
            pool: DB::open(url, access).await?,
            file: None,
            url: redact_url(url),
            on_given_time: false,
            stop: Arc::default(),
        };
        if access == Access::AnySchema {
            return Ok(store);
        }
        let found = match store.schema().await {
            // A user with the right to read the views has what a query takes.
            Err(error) if access == Access::ReadOnly && is_forbidden(&error) => return Ok(store),
            found => found?,
        };
        if found == 0
            && let Some(has_place) = DB::HAS_PLACE
            && store.number(has_place, "look where the tables are").await? == 0
        {
            return Err(StoreError::NoSchema(store.url));
        }
        if found > 0 && store.is_of_an_earlier_build(&migrator).await? {
            return Err(StoreError::EarlierBuild(store.url));
        }
        let known = migrator.iter().map(|one| one.version).max().unwrap_or(0);
        match (found.cmp(&known), access) {
            (std::cmp::Ordering::Greater, _) => Err(StoreError::Newer {
                url: store.url,
                found,
                known,
            }),
            (std::cmp::Ordering::Equal, _) => Ok(store),
            (std::cmp::Ordering::Less, Access::Create) => {
                if found > 0 {
                    tracing::warn!(
                        from = found, to = known, url = %store.url,
                        "upgrading the database to the schema of this version; earlier versions cannot use it any more"
                    );
                }
                if found == 0
                    && let Some(is_utf8) = DB::IS_UTF8
                    && store
                        .number(is_utf8, "read the encoding of the database")
                        .await?
                        == 0
                {
                    return Err(StoreError::Encoding(store.url));
                }
                if found == 0 {
                    store.refuse_occupied().await?;
                }
                store.migrate(&migrator).await?;
                if found > 0 {
                    tracing::warn!(schema = known, "the database is upgraded");
                }
                Ok(store)
            }
            (std::cmp::Ordering::Less, _) => Err(StoreError::NotMigrated(store.url)),
        }
    }

    /// An error where somebody else's tables, or what they made besides, have the names of ours.
    async fn refuse_occupied(&self) -> Result<()> {
        let ours: Vec<String> = TABLES
            .iter()
            .chain(&OTHER_NAMES)
            .map(|name| format!("'{name}'"))
            .collect();
        let ours = ours.join(", ");
        let first = format!("{} IN ({ours}) ORDER BY 1 LIMIT 1", DB::NAMED);
        let found = sqlx::query_scalar::<DB, String>(AssertSqlSafe(first))
            .fetch_optional(&self.pool)
            .await
            .doing("look what the database holds")?;
        let Some(name) = found else {
            return Ok(());
        };
        // Another process may have made ours in between.
        if self.schema().await? > 0 {
            return Ok(());
        }
        Err(StoreError::Occupied {
            url: self.url.clone(),
            name,
            elsewhere: DB::ELSEWHERE,
        })
    }

    /// Latest schema version that this program has.
    pub(super) fn latest() -> i64 {
        DB::MIGRATIONS.last().map_or(0, |(version, ..)| *version)
    }

    /// Returns true if the database has another first schema than this program.
    async fn is_of_an_earlier_build(&self, migrator: &Migrator) -> Result<bool> {
        let first = migrator.iter().next().expect("there is a schema");
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM _sqlx_migrations WHERE version = 1 AND checksum <> $1",
        )
        .bind(&first.checksum[..])
        .fetch_one(&self.pool)
        .await
        .map(|rows| rows > 0)
        .doing("read the schema version")
    }

    /// Schema version of the database; 0 if it has none.
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
        let mut steps = 0;
        loop {
            let ended = match DB::migrate(&self.pool, migrator).await {
                Err(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => {
                    Err(source).doing("migrate the database")
                }
                ended => ended.map_err(StoreError::Migrate),
            };
            if let ControlFlow::Break(ended) = self.wait_on(ended, &mut steps) {
                return ended;
            }
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.pool.close().await;
        Ok(())
    }

    pub async fn info(&self) -> Result<Info> {
        const WHAT: &str = "read what database this is";
        let server = sqlx::query_scalar::<DB, _>(DB::SERVER)
            .fetch_one(&self.pool)
            .await
            .doing(WHAT)?;
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let count = sqlx::query_scalar::<DB, _>(sql).fetch_one(&self.pool).await;
            rows.push((table.to_owned(), count.doing(WHAT)?));
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
            .doing(what)
    }

    /// The time by which claims live and expire, and quotas are counted: the database's, because clocks of machines
    /// differ, or `now` where it has none.
    async fn shared_time(
        &self,
        connection: &mut DB::Connection,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>> {
        let Some(time) = DB::TIME.filter(|_| !self.on_given_time) else {
            return Ok(now);
        };
        sqlx::query_scalar::<DB, _>(time)
            .fetch_one(connection)
            .await
            .doing("read the server's clock")
    }

    /// Writes a value under a key of `meta` that never stood there before.
    async fn note_anew(tx: &mut Transaction<'static, DB>, key: &str) -> Result<(), sqlx::Error> {
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

    /// Continues after a call that met a lock, of which `steps` are counted; breaks with how the call ended.
    pub(super) fn wait_on<T>(&self, ended: Result<T>, steps: &mut u64) -> ControlFlow<Result<T>> {
        let what = match &ended {
            Err(StoreError::Statement { what, source }) if is_busy(source) => *what,
            _ => return ControlFlow::Break(ended),
        };
        *steps += 1;
        if self.stop.get().is_some_and(CancellationToken::is_cancelled) {
            let source = ToldToStop;
            return ControlFlow::Break(Err(StoreError::Stopped { what, source }));
        }
        if *steps < DB::MOST_STEPS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(ended)
        }
    }

    async fn begin(&self) -> Result<Transaction<'static, DB>> {
        self.pool
            .begin_with(DB::BEGIN_WRITE)
            .await
            .doing("begin a transaction")
    }

    /// Begins a transaction that stores labels.
    async fn begin_labels(&self) -> Result<Transaction<'static, DB>> {
        self.pool
            .begin_with(DB::BEGIN_LABELS)
            .await
            .doing("begin a transaction")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sqlx::Sqlite;

    use super::*;

    #[tokio::test]
    async fn the_names_of_the_schema_are_those_that_a_database_has() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let store = SqlStore::<Sqlite>::open(&url, Access::Create, &[])
            .await
            .unwrap();
        let there: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
        )
        .fetch_all(&store.pool)
        .await
        .unwrap();
        let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
        let known: BTreeSet<&str> = TABLES.into_iter().chain(OTHER_NAMES).collect();
        assert_eq!(there, known);
    }
}
