//! A database on a PostgreSQL server.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgListener, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Pool, Postgres};

use super::super::bulk::Insert;
use super::super::failure::{connect_hint, is_missing_database};
use super::super::sockets::set_options;
use super::super::waiting::STEP;
use super::super::{Access, Result, Step, StoreError};
use super::{CONNECTIONS, Dialect, File, malformed, migrations, open_error, pooler, watching};
use topicmill_core::redact_url;

/// Timeout of opening.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// No transaction of ours waits for anything but the server. One that stands still is of a process that was
/// stopped, or of a machine that is gone, and must not hold its locks against everybody else. And the views
/// join all posts at once: in memory, by plans that are not worth compiling. A hash table of a million labels would fit
/// into twice that memory, but two indexes that are read side by side need half of its time: 0.8 s instead of 1.4 s of
/// one processor for `topic_daily`, so a hash table gets no more memory than a sort. The rest decides how values are
/// read and written; a server, a database and a user may have other defaults.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '60s'; SET work_mem = '64MB'; \
    SET hash_mem_multiplier = 1; SET jit = off; \
    SET standard_conforming_strings = on; SET bytea_output = hex; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = postgres; \
    SET TimeZone = 'UTC'; SET extra_float_digits = 2; \
    SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off";

/// Processes that start together migrate one after the other. The bytes of "topicmig".
const LOCK_SCHEMA: &str = "SELECT pg_advisory_xact_lock(8389209302837815655)";
/// On relations, and on columns of them: the statement, the relation, and the column or nothing.
const GRANTS: &str = "\
SELECT format('GRANT %s ON %I TO %s%s', a.privilege_type, c.relname, \
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), c.relname::text, NULL \
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner \
 UNION \
SELECT format('GRANT %s (%I) ON %I TO %s%s', a.privilege_type, t.attname, c.relname, \
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), c.relname::text, t.attname::text \
  FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped \
 CROSS JOIN LATERAL aclexplode(t.attacl) a \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner";
/// True if a relation has a column.
const HAS_COLUMN: &str = "\
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid \
                WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relname = $1 AND t.attname = $2 \
                  AND NOT t.attisdropped)";
/// Parameters of a URL that sqlx 0.9 takes for PostgreSQL (`options/parse.rs`); others it leaves aside.
const PARAMETERS: &str = "sslmode, ssl-mode, sslrootcert, ssl-root-cert, ssl-ca, sslcert, ssl-cert, sslkey, ssl-key, \
    statement-cache-capacity, host, hostaddr, port, dbname, user, password, application_name, \
    options";

/// True if a URL of PostgreSQL has a parameter that the driver does not accept.
fn has_unknown_parameter(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| {
        url.query_pairs().any(|(name, _)| {
            !PARAMETERS.split(", ").any(|known| known == name) && !name.starts_with("options[")
        })
    })
}

impl Dialect for Postgres {
    const BACKEND: &'static str = "postgres";
    const MIGRATIONS: &'static [File] = migrations::POSTGRES;
    // READ COMMITTED, the default, and not a stricter level: a statement behind a lock must see what the former holder
    // of the lock committed.
    const BEGIN_WRITE: &'static str = "BEGIN";
    const BEGIN_LABELS: &'static str = "BEGIN; SET LOCAL enable_seqscan = off";
    const BEGIN_READ: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    const POSTS_IN_ORDER: &'static str = "";
    const SKIP_LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    const FOR_UPDATE: &'static str = "FOR UPDATE";
    const HOLD: &'static str = "FOR KEY SHARE";
    // EXCLUSIVE is the weakest mode that a `SELECT … FOR UPDATE` of the table waits for. Those who only read pass.
    const LOCK_TOMBSTONES: Option<&'static str> = Some("LOCK TABLE tombstones IN EXCLUSIVE MODE");
    // `FOR KEY SHARE` would let an UPDATE of the text pass.
    const HOLD_POSTS: &'static str = "FOR SHARE OF p";
    // Plain FOR UPDATE would also stop inserts of rows that refer to these posts by a foreign key.
    const LOCK_POSTS: &'static str = "FOR NO KEY UPDATE";
    // Any number will do that nothing else locks in this database: the bytes of "topicmil".
    const LOCK_EDITS: Option<&'static str> =
        Some("SELECT pg_advisory_xact_lock(8389209302837815660)");
    const LOGITS_APART: bool = true;
    const AMONG: &'static str = "(SELECT json_array_elements_text($1::json))";
    const COUNT_BACKLOG: Option<&'static str> = Some("ANALYZE backlog");
    const NOW: &'static str = "CURRENT_TIMESTAMP";
    // Other schemas of the same database may have a topicmill, or another program that uses sqlx.
    const HAS_SCHEMA: &'static str = "SELECT COUNT(*) FROM pg_tables WHERE tablename = '_sqlx_migrations' AND schemaname = current_schema()";
    // Tables, views, sequences and indexes share their names.
    const NAMED: &'static str = "SELECT relname::text FROM pg_class \
         WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname";
    const ELSEWHERE: &'static str = "name another database, or make a schema of its own (`CREATE SCHEMA topicmill`) and \
         name it in the URL (`?options[search_path]=topicmill`)";
    // NULL where `search_path` names no schema that is there, and none that the user may use.
    const HAS_PLACE: Option<&'static str> = Some("SELECT COUNT(current_schema())");
    const IS_UTF8: Option<&'static str> =
        Some("SELECT CAST(current_setting('server_encoding') = 'UTF8' AS INTEGER)::bigint");
    const SERVER: &'static str = "SELECT 'PostgreSQL ' || current_setting('server_version')";
    const BYTES: &'static str = "SELECT pg_database_size(current_database())";
    // What the server keeps for its planner, unless the table is small or was never counted.
    const ABOUT_POSTS: &'static str = "SELECT CASE WHEN c.reltuples > 200000 THEN c.reltuples::bigint \
         ELSE (SELECT COUNT(*) FROM posts) END FROM pg_class c WHERE c.oid = 'posts'::regclass";
    // Whole pages, of which the server knows how many there are: a place in a page is empty after an edit, and how many
    // posts a page has is known only since the last ANALYZE. Posts of one page came together and tell less than others
    // would, hence twice as many.
    const EACH_NTH_POST: &'static str =
        "FROM posts TABLESAMPLE SYSTEM (LEAST(100, 200.0 / $3)) REPEATABLE (1)";
    const TOKEN: &'static str = "gen_random_uuid()::text";
    // Not CURRENT_TIMESTAMP: that is the begin of the transaction, which may have waited for a lock since.
    const TIME: Option<&'static str> = Some("SELECT clock_timestamp()");
    const MOST_STEPS: u64 = u64::MAX;

    fn bucket(step: Step) -> (&'static str, &'static str) {
        match step {
            Step::Hour => (
                "date_trunc('hour', p.created_at AT TIME ZONE 'UTC')",
                "to_char(bucket, 'YYYY-MM-DD\"T\"HH24')",
            ),
            Step::Day => (
                "date_trunc('day', p.created_at AT TIME ZONE 'UTC')",
                "to_char(bucket, 'YYYY-MM-DD')",
            ),
            Step::Month => (
                "date_trunc('month', p.created_at AT TIME ZONE 'UTC')",
                "to_char(bucket, 'YYYY-MM')",
            ),
        }
    }

    fn floor(number: &str) -> String {
        format!("CAST(FLOOR({number}) AS BIGINT)")
    }

    async fn insert_returning(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        insert.into_postgres(connection).await
    }

    async fn insert_new(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<(), sqlx::Error> {
        insert.copied_to_postgres(connection).await
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    async fn migrate(pool: &Pool<Self>, migrator: &Migrator) -> Result<(), MigrateError> {
        // All or nothing, one process after the other: sqlx's own lock is given back before this commits.
        let mut tx = pool.begin().await?;
        tx.execute(LOCK_SCHEMA).await?;
        // A migration may drop a view and make it anew. The owner's grants on it would be lost in silence.
        let before = grants(&mut tx).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        let after = grants(&mut tx).await?;
        for (lost, relation, column) in before.difference(&after) {
            // A column that was renamed has its rights still, under its new name.
            if let Some(column) = column {
                let there = sqlx::query_scalar(HAS_COLUMN).bind(relation).bind(column);
                if !there.fetch_one(&mut *tx).await? {
                    continue;
                }
            }
            tx.execute(AssertSqlSafe(lost.clone())).await?;
        }
        Ok(tx.commit().await?)
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        // The driver's own warning tells the value, and telemetry does not let it through.
        if has_unknown_parameter(url) {
            tracing::warn!(
                "the database URL has a parameter that is not known and does nothing; these are: {}",
                PARAMETERS
            );
        }
        let options = read(url)?
            // So that whoever looks at the server's sessions sees whose they are.
            .application_name("topicmill")
            .disable_statement_logging();
        let mut options = options;
        let mut session = format!("{SESSION}; {}", lock_timeout(STEP));
        let mut first = options.connect().await;
        let is_pooled = match &mut first {
            Ok(connection) => pooler::is_between(connection).await,
            Err(error) => pooler::has_refused(error),
        };
        if is_pooled {
            drop(first);
            let (bare, set) = pooler::apart(url);
            options = read(&bare)?
                .application_name("topicmill")
                .disable_statement_logging()
                .extra_float_digits(None);
            session.push_str(&set);
            first = options.connect().await;
            if let Ok(connection) = &mut first {
                let mode = pooler::check(connection, &options, &session).await;
                let is_ours = mode.map_err(open_error(url, "the server refused a setting"))?;
                if !is_ours {
                    return Err(StoreError::Pooler(redact_url(url)));
                }
            }
        }
        if access == Access::ReadOnly {
            session.push_str("; SET default_transaction_read_only = on");
        }
        let port = options.get_port();
        let pool = PoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(move |connection: &mut PgConnection, _| {
                let session = AssertSqlSafe(session.clone());
                Box::pin(async move {
                    set_options(port);
                    connection.execute(session).await.map(drop)
                })
            });
        // A failed first connection is repeated by the pool until its time is up; one direct attempt tells at once.
        match first {
            Ok(connection) => drop(sqlx::Connection::close(connection).await),
            Err(error) if access == Access::Create && is_missing_database(&error) => {
                let created = create(&options).await;
                // Another process may have made it in between.
                if let Err(error) = created
                    && options.connect().await.is_err()
                {
                    return Err(open_error(url, "it does not exist and may not be created")(
                        error,
                    ));
                }
            }
            Err(error) => {
                let hint = connect_hint(&error);
                return Err(open_error(url, hint)(error));
            }
        }
        pool.connect_with(options)
            .await
            .map_err(open_error(url, "it answered once and then no more"))
    }
}

/// Has statements of a session end that wait longer for a lock.
pub(crate) fn lock_timeout(most: Duration) -> String {
    format!("SET lock_timeout = {}", most.as_millis())
}

/// Converts a URL to the driver's options.
fn read(url: &str) -> Result<PgConnectOptions> {
    let mut whole = url.to_owned();
    // The driver would look for a name with brackets, and for that in the file of passwords. A parameter counts more.
    if let Some(host) = url::Url::parse(url)
        .ok()
        .as_ref()
        .and_then(url::Url::host_str)
        && let Some(host) = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
    {
        whole.push(if url.contains('?') { '&' } else { '?' });
        whole.push_str("host=");
        whole.push_str(host);
    }
    PgConnectOptions::from_str(&whole).map_err(|error| malformed(url, why(&error))(error))
}

/// Describes a URL that cannot be parsed, without the driver's message, which quotes values.
fn why(error: &sqlx::Error) -> &'static str {
    let said = error.to_string();
    if said.contains("ssl_mode") {
        "its `sslmode` is none of disable, allow, prefer, require, verify-ca, verify-full"
    } else if said.contains("port number") {
        "its port is no number from 1 to 65535, or the password has a `/`, `#` or `?` that is not escaped"
    } else if said.contains("empty host") {
        "name the host between `@` and `/`; an IPv6 address stands in brackets, as in `postgres://user:password@[::1]/database`"
    } else {
        "the URL is not well formed; escape special characters of the password"
    }
}

/// Makes the database that the options name, for texts of every language.
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
    // What an administrator has put into the template is taken over where it can be.
    let terms = if is_utf8 {
        ""
    } else {
        "ENCODING 'UTF8' TEMPLATE template0"
    };
    let create = format!("CREATE DATABASE \"{}\" {terms}", name.replace('"', "\"\""));
    connection.execute(AssertSqlSafe(create)).await?;
    sqlx::Connection::close(connection).await
}

/// A statement that lets a role do something, the relation, and the column where it is about one.
type Grant = (String, String, Option<String>);

/// Returns the grants of other users on the tables and views, as statements. PostgreSQL forgets them when a migration
/// recreates a view.
async fn grants(connection: &mut PgConnection) -> Result<BTreeSet<Grant>, sqlx::Error> {
    let grants: Vec<Grant> = sqlx::query_as(GRANTS).fetch_all(connection).await?;
    Ok(grants.into_iter().collect())
}

/// Hears the notice that a trigger on `posts` gives.
pub struct Listener(PgListener);

impl Listener {
    pub(crate) async fn new(pool: &Pool<Postgres>) -> Result<Self> {
        let mut listener = PgListener::connect_with(pool).await.map_err(watching)?;
        listener.listen("topicmill_posts").await.map_err(watching)?;
        Ok(Self(listener))
    }

    pub(crate) async fn changed(&mut self) -> Result<()> {
        // Nothing heard because the connection broke off means that something may have been missed.
        self.0.try_recv().await.map_err(watching)?;
        // What was said meanwhile is the same news.
        while self.0.next_buffered().is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_a_host_without_its_brackets() {
        for (url, host) in [
            ("postgres://me:pw@[::1]:5433/posts", "::1"),
            ("postgres://me:pw@host.example/posts", "host.example"),
        ] {
            assert_eq!(read(url).unwrap().get_host(), host);
        }
    }
}
