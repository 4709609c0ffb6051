//! A database on a PostgreSQL server.

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Pool, Postgres};

use super::postgres_url::{check_parameters, driver_options, has_unescaped_password};
use super::{Bucket, CONNECTIONS, Dialect, Migration, migrations, open_error, pooler, watching};
use crate::driver_error::{connect_advice, is_missing_database};
use crate::lock_wait::STEP;
use crate::{Access, Result, StoreError, TimeStep};
use topicmill_core::redact_url;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Settings for every session. Transactions never wait for anything but the server, so an idle transaction belongs to a
/// stopped process or a dead machine, and must not keep its locks.
///
/// The views join all posts in memory. JIT compilation of their plans costs more than it saves. With the default
/// `hash_mem_multiplier` of 2, the planner would hash a million labels, but merging two indexes takes little more than
/// half the CPU time for `topic_daily`.
///
/// The other settings fix how values are read and written, because the server, the database and the user may have
/// different defaults.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '60s'; SET work_mem = '64MB'; \
    SET hash_mem_multiplier = 1; SET jit = off; \
    SET standard_conforming_strings = on; SET bytea_output = hex; SET DateStyle = 'ISO, MDY'; \
    SET IntervalStyle = postgres; \
    SET TimeZone = 'UTC'; SET extra_float_digits = 2; \
    SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off";

/// Query for the sessions that block the session `$1`, or any of this user's sessions that wait for a lock. The server
/// hides the program and the times of other users' sessions. Process 0 is a prepared transaction.
const LOCK_HOLDERS: &str = "\
SELECT DISTINCT 'process ' || blocking.pid || COALESCE(' (' || concat_ws(', ', b.usename, \
           NULLIF(b.application_name, ''), b.state, 'since ' || date_trunc('second', b.xact_start)::text) || ')', '') \
  FROM pg_stat_activity w \
 CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocking (pid) \
  LEFT JOIN pg_stat_activity b ON b.pid = blocking.pid \
 WHERE CASE WHEN $1::int IS NOT NULL THEN w.pid = $1 ELSE w.wait_event_type = 'Lock' \
           AND w.datname = current_database() AND w.usename = session_user AND w.application_name = 'topicmill' END";

/// Serialises migrations by processes that start together. The key is the bytes of "topicmig".
const LOCK_SCHEMA: &str = "SELECT pg_advisory_xact_lock(8389209302837815655)";
/// The advice if a missing database cannot be created.
const NOT_CREATED: &str = "it does not exist and may not be created; let a user with CREATEDB run \
    `CREATE DATABASE name OWNER you`";

impl Dialect for Postgres {
    const BACKEND: &'static str = "postgres";
    const MIGRATIONS: &'static [Migration] = migrations::POSTGRES;
    // READ COMMITTED, the default, and not a stricter level: a statement that waited for a lock must see what the
    // previous holder committed.
    const BEGIN_WRITE: &'static str = "BEGIN";
    const BEGIN_LABELS: &'static str = "BEGIN; SET LOCAL enable_seqscan = off";
    // The transaction reads all posts of a time range. Without statistics about new labels, the planner would expect a
    // few, and read all of them again for each post.
    const BEGIN_READ: &'static str =
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_nestloop = off";
    const POSTS_IN_ORDER: &'static str = "";
    const SKIP_LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    const FOR_UPDATE: &'static str = "FOR UPDATE";
    const LOCK_KEY: &'static str = "FOR KEY SHARE";
    // EXCLUSIVE is the weakest mode that conflicts with `SELECT … FOR UPDATE`. Readers are not blocked.
    const LOCK_TOMBSTONES: Option<&'static str> = Some("LOCK TABLE tombstones IN EXCLUSIVE MODE");
    // `FOR KEY SHARE` would allow an UPDATE of the text.
    const SHARE_POSTS: &'static str = "FOR SHARE OF p";
    // Plain FOR UPDATE would also block inserts that refer to these posts through a foreign key.
    const LOCK_POSTS: &'static str = "FOR NO KEY UPDATE";
    // The key is arbitrary, but unique in this database: the bytes of "topicmil".
    const LOCK_EDITS: Option<&'static str> =
        Some("SELECT pg_advisory_xact_lock(8389209302837815660)");
    const BULK_LOGITS: bool = true;
    const IN_JSON_ARRAY: &'static str = "(SELECT json_array_elements_text($1::json))";
    const ANALYZE_BACKLOG: Option<&'static str> = Some("SELECT topicmill_analyze('backlog')");
    const SEARCHED: &'static str = "lower((p.title || chr(10) || p.selftext) COLLATE \"C\")";
    const NOW: &'static str = "CURRENT_TIMESTAMP";
    // Other schemas in the database may belong to another topicmill installation, or to a different program that uses
    // sqlx.
    const HAS_SCHEMA: &'static str = "SELECT COUNT(*) FROM pg_tables WHERE tablename = '_sqlx_migrations' \
                                      AND schemaname = current_schema()";
    // Tables, views, sequences and indexes share one namespace.
    const RELATIONS_NAMED: &'static str = "SELECT relname::text FROM pg_class \
         WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname";
    const NAME_TAKEN_ADVICE: &'static str = "name another database, or create a schema for topicmill (`CREATE SCHEMA \
                                             topicmill`) and name it in the URL (`?options=-csearch_path%3Dtopicmill`)";
    // `current_schema()` is NULL if `search_path` names no schema that exists and that the user may use.
    const HAS_CURRENT_SCHEMA: Option<&'static str> = Some("SELECT COUNT(current_schema())");
    const IS_UTF8: Option<&'static str> =
        Some("SELECT CAST(current_setting('server_encoding') = 'UTF8' AS INTEGER)::bigint");
    const SERVER: &'static str = "SELECT 'PostgreSQL ' || current_setting('server_version')";
    const BYTES: &'static str = "SELECT pg_database_size(current_database())";
    // Invalid or disabled parts, and the pages that failed their checksum when the server read them.
    const INTEGRITY: &'static str = "SELECT 'the index ' || c.relname || ' is invalid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND NOT (i.indisvalid AND i.indisready) \
         UNION ALL \
         SELECT 'the constraint ' || conname || ' is not validated' FROM pg_constraint \
         WHERE connamespace = quote_ident(current_schema())::regnamespace AND NOT convalidated \
         UNION ALL \
         SELECT 'the trigger ' || tgname || ' is disabled' FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND t.tgenabled = 'D' \
         UNION ALL \
         SELECT checksum_failures || ' pages were read that fail their checksum' FROM pg_stat_database \
         WHERE datname = current_database() AND checksum_failures > 0";
    // B-trees, if the extension `amcheck` is installed.
    const DEEP_CHECKS: &'static str = "SELECT 'SELECT ' || quote_ident(n.nspname) || $$.bt_index_check(c.oid) \
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam \
          WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND m.amname = 'btree' AND i.indisvalid$$ \
           FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'";
    const REPAIR_ADVICE: &'static str = "have the owner of the tables run REINDEX, VALIDATE CONSTRAINT or ENABLE \
                                         TRIGGER for them, or restore a backup (docs/retention.md)";
    const NUMBER_OF_SCORES: &'static str = "cardinality(s.scores)";
    // The planner's estimate, unless the table is small or was never analysed.
    const ESTIMATE_POSTS: &'static str = "SELECT CASE WHEN c.reltuples > 200000 THEN c.reltuples::bigint \
         ELSE (SELECT COUNT(*) FROM things) END FROM pg_class c WHERE c.oid = 'things'::regclass";
    const TOKEN: &'static str = "gen_random_uuid()::text";
    // CURRENT_TIMESTAMP is the start of the transaction, which may have waited for a lock since.
    const TIME: Option<&'static str> = Some("SELECT clock_timestamp()");

    fn bucket(column: &str, step: TimeStep) -> Bucket {
        let (unit, format) = match step {
            TimeStep::Hour => ("hour", "YYYY-MM-DD\"T\"HH24"),
            TimeStep::Day => ("day", "YYYY-MM-DD"),
            TimeStep::Month => ("month", "YYYY-MM"),
        };
        Bucket {
            key: format!("date_trunc('{unit}', {column} AT TIME ZONE 'UTC')"),
            text: format!("to_char(bucket, '{format}')"),
        }
    }

    // Samples whole pages, because the server knows the number of pages. It could not sample single rows: the place of
    // a row may be empty after an edit, and the number of rows per page is known only as of the last ANALYZE. Posts on
    // one page were stored together and represent all posts less well than random posts, so twice as many are read.
    fn sample_posts(interval: i64) -> String {
        format!("FROM things TABLESAMPLE SYSTEM (LEAST(100, 200.0 / {interval})) REPEATABLE (1)")
    }

    fn floor(number: &str) -> String {
        format!("CAST(FLOOR({number}) AS BIGINT)")
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    async fn lock_holder(pool: &Pool<Self>, backend: Option<i32>) -> Option<String> {
        let holders: Vec<String> = sqlx::query_scalar(LOCK_HOLDERS)
            .bind(backend)
            .fetch_all(pool)
            .await
            .ok()?;
        (!holders.is_empty()).then(|| holders.join(" and "))
    }

    async fn migrate(pool: &Pool<Self>, migrator: &Migrator) -> Result<(), MigrateError> {
        // One transaction with its own lock, because sqlx would release its lock before the commit.
        let mut tx = pool.begin().await?;
        tx.execute(LOCK_SCHEMA).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        Ok(tx.commit().await?)
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        check_parameters(url)?;
        let mut options = driver_options(url)?;
        let mut session = format!("{SESSION}; {}", lock_timeout(STEP));
        let mut first = options.connect().await;
        let is_pooled = match &mut first {
            Ok(connection) => pooler::is_pooled_connection(connection).await,
            Err(error) => pooler::rejects_parameters(error),
        };
        if is_pooled {
            drop(first);
            let bare = pooler::without_options(url);
            options = driver_options(&bare)?.extra_float_digits(None);
            session.push_str(&pooler::set_options(url));
            first = options.connect().await;
            if let Ok(connection) = &mut first {
                let is_own = pooler::has_own_sessions(connection, &options, &session).await;
                let hint = "the server rejected a setting";
                if !is_own.map_err(|error| open_error(url, hint, error))? {
                    return Err(StoreError::Pooler(redact_url(url)));
                }
            }
        }
        if access == Access::ReadOnly {
            session.push_str("; SET default_transaction_read_only = on");
        }
        // The pool would retry a failed connection until its timeout; a direct attempt reports the error at once.
        match first {
            Ok(connection) => drop(sqlx::Connection::close(connection).await),
            Err(error) if access == Access::Create && is_missing_database(&error) => {
                let created = create(&options).await;
                // Another process may have created it in between.
                if let Err(error) = created
                    && options.connect().await.is_err()
                {
                    return Err(open_error(url, NOT_CREATED, error));
                }
            }
            Err(error) => return Err(connect_error(url, error)),
        }
        let pool = PoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(move |connection: &mut PgConnection, _| {
                let session = AssertSqlSafe(session.clone());
                Box::pin(async move { connection.execute(session).await.map(drop) })
            });
        let hint = "the server accepted one connection, but not the next";
        pool.connect_with(options)
            .await
            .map_err(|error| open_error(url, hint, error))
    }
}

/// Returns the error for a failed connection, with advice.
fn connect_error(url: &str, error: sqlx::Error) -> StoreError {
    let mut hint = connect_advice(&error).to_owned();
    if has_unescaped_password(url) {
        hint.push_str(
            "; in the password, write `@` as `%40`, `#` as `%23`, `/` as `%2F` and `?` as `%3F`",
        );
    }
    open_error(url, &hint, error)
}

/// Returns a statement that sets the lock timeout of a session.
pub(crate) fn lock_timeout(most: Duration) -> String {
    format!("SET lock_timeout = {}", most.as_millis())
}

/// Creates the database that the options name, as UTF-8.
async fn create(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let name = options.get_database().unwrap_or(options.get_username());
    let from = if name == "postgres" {
        "template1"
    } else {
        "postgres"
    };
    let mut connection = options.clone().database(from).connect().await?;
    let is_utf8: bool = sqlx::query_scalar("SELECT current_setting('server_encoding') = 'UTF8'")
        .fetch_one(&mut connection)
        .await?;
    // Keeps the default template if its encoding is UTF-8, because an administrator may have customised it.
    let terms = if is_utf8 {
        ""
    } else {
        "ENCODING 'UTF8' TEMPLATE template0"
    };
    let create = format!("CREATE DATABASE \"{}\" {terms}", name.replace('"', "\"\""));
    connection.execute(AssertSqlSafe(create)).await?;
    sqlx::Connection::close(connection).await
}

/// Waits for notifications from the trigger on `posts`.
pub struct Listener(PgListener);

impl Listener {
    pub(crate) async fn new(pool: &Pool<Postgres>) -> Result<Self> {
        let mut listener = PgListener::connect_with(pool).await.map_err(watching)?;
        listener.listen("topicmill_posts").await.map_err(watching)?;
        Ok(Self(listener))
    }

    pub(crate) async fn changed(&mut self) -> Result<()> {
        // `None` means that the connection was lost, so a notification may have been missed.
        self.0.try_recv().await.map_err(watching)?;
        // Further notifications carry no additional information.
        while self.0.next_buffered().is_some() {}
        Ok(())
    }
}
