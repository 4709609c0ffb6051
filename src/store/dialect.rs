//! What differs between the two databases: how one is opened, locked and migrated. Statements are shared.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateDatabase, MigrateError, Migrator};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Database, Executor, PgConnection, Pool, Postgres,
    Sqlite, SqliteConnection,
};

use super::bulk::{Insert, Keys};
use super::failure::{connect_hint, is_busy, is_missing_database, known_failure};
use super::undelayed::send_at_once;
use super::{Access, Result, Step, StoreError};
use crate::domain::redact_url;

/// How long a writer waits for another one before it gives up: as long as it may take to rewrite a large file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_mins(5);
/// How long opening may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECTIONS: u32 = 8;
/// How often a file is opened while others open it too, 20 ms apart; one of them gets on each time.
const OPENING_TRIES: u32 = 500;
/// Memory of a writer of SQLite for pages, in KiB below zero.
const CACHE: &str = "-16384";
/// And of a reader.
pub(super) const READER_CACHE: &str = "-32768";
/// Pages of SQLite's write-ahead log, of 4 kB, before it is folded back into the file.
const LOG_PAGES: &str = "8192";
/// No transaction of ours waits for anything but the server. One that stands still is of a process that was
/// stopped, or of a machine that is gone, and must not hold its locks against everybody else. And the views
/// join all posts at once: in memory, by plans that are not worth compiling. A hash table of a million labels would fit into
/// twice that memory, but two indexes that are read side by side need half of its time: 0.8 s instead of 1.4 s of one
/// processor for `topic_daily`, so a hash table gets no more memory than a sort.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '60s'; SET work_mem = '64MB'; \
    SET hash_mem_multiplier = 1; SET jit = off";

/// Processes that start together migrate one after the other. The bytes of "topicmig".
const LOCK_SCHEMA: &str = "SELECT pg_advisory_xact_lock(8389209302837815655)";
/// On relations, and on columns of them: the statement, the relation, and the column or nothing.
const GRANTS: &str = "\
SELECT format('GRANT %s ON %I TO %s%s', a.privilege_type, c.relname, \
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), c.relname::text, NULL \
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a \
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner \
 UNION \
SELECT format('GRANT %s (%I) ON %I TO %s%s', a.privilege_type, t.attname, c.relname, \
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), c.relname::text, t.attname::text \
  FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped \
 CROSS JOIN LATERAL aclexplode(t.attacl) a \
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner";
/// Whether a relation has a column.
const HAS_COLUMN: &str = "\
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid \
                WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = $1 AND t.attname = $2 \
                  AND NOT t.attisdropped)";
/// Parameters of a URL that sqlx 0.9 takes for PostgreSQL (`options/parse.rs`); others it leaves aside.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// A database that the statements of `sql.rs` run on.
pub trait Dialect: Database {
    /// Its name in messages and JSON.
    const BACKEND: &'static str;
    /// Begins a transaction that will write. A SQLite transaction that reads first and writes later fails
    /// when another process wrote in between, so it takes the write lock at once.
    const BEGIN_WRITE: &'static str;
    /// The same, of one that stores labels. PostgreSQL plans the checks of foreign keys once a connection: where it takes
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
    /// From how many new rows on they are inserted by [`insert_new`](Self::insert_new), apart from those that are known.
    const MANY_NEW: usize;
    /// Whether that is so of logits, too, which another worker may have stored meanwhile.
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
    /// What the server calls itself.
    const SERVER: &'static str;
    /// A value that no call before gave.
    const TOKEN: &'static str;
    /// How many posts there are, at a cost that does not grow with them, or hardly.
    const ABOUT_POSTS: &'static str;
    /// Bytes on disk.
    const BYTES: &'static str;
    /// What time it is for everybody who uses the database, where it has a clock of its own.
    const TIME: Option<&'static str>;

    /// What the times of a step have in common, made of `p.created_at`, and its text, made of that as `bucket`.
    fn bucket(step: Step) -> (&'static str, &'static str);
    /// The whole number that a positive number begins with.
    fn floor(number: &str) -> String;
    /// Inserts rows in their order.
    fn insert(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Inserts rows whose keys were not there a moment ago, in their order. Where another writer stored one since, it is an
    /// error, `is_taken`, or a row of `on_conflict`.
    fn insert_new(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Rows that a statement changed.
    fn rows_affected(done: &Self::QueryResult) -> u64;
    /// The migrations of this database.
    fn migrator() -> &'static Migrator;
    /// Applies them; processes that start together do it once.
    fn migrate(pool: &Pool<Self>) -> impl Future<Output = Result<(), MigrateError>> + Send;
    /// Opens the database, making it if `access` says so.
    fn open(url: &str, access: Access) -> impl Future<Output = Result<Pool<Self>>> + Send;
}

/// Which database a URL means.
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

/// What is wrong with a URL, without what the driver says: it quotes values, which may be secrets.
fn malformed(url: &str, hint: &str) -> impl FnOnce(sqlx::Error) -> StoreError {
    let (url, hint) = (redact_url(url), hint.to_owned());
    move |_| {
        let source = sqlx::Error::Configuration("it cannot be read".into());
        StoreError::Open { url, hint, source }
    }
}

/// Whether a URL of PostgreSQL has a parameter that the driver does not take.
fn has_unknown_parameter(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| {
        url.query_pairs()
            .any(|(name, _)| !PARAMETERS.contains(&&*name) && !name.starts_with("options["))
    })
}

fn open_error(url: &str, hint: impl Into<String>) -> impl FnOnce(sqlx::Error) -> StoreError {
    let (url, hint) = (redact_url(url), hint.into());
    move |source| StoreError::Open { url, hint, source }
}

impl Dialect for Sqlite {
    const BACKEND: &'static str = "sqlite";
    const BEGIN_WRITE: &'static str = "BEGIN IMMEDIATE";
    // A transaction of SQLite sees the state of its first read until it ends.
    const BEGIN_READ: &'static str = "BEGIN";
    const POSTS_IN_ORDER: &'static str = "INDEXED BY posts_current";
    const SKIP_LOCKED: &'static str = "";
    const FOR_UPDATE: &'static str = "";
    const HOLD: &'static str = "";
    // `BEGIN IMMEDIATE` has no other writer beside it.
    const LOCK_TOMBSTONES: Option<&'static str> = None;
    const HOLD_POSTS: &'static str = "";
    const LOCK_POSTS: &'static str = "";
    const LOCK_EDITS: Option<&'static str> = None;
    // As in PostgreSQL: a page of a listing stays one statement.
    const MANY_NEW: usize = 200;
    // They have foreign keys, for which SQLite notes what a statement would have to undo in any case.
    const LOGITS_APART: bool = false;
    const AMONG: &'static str = "(SELECT value FROM json_each($1))";
    const COUNT_BACKLOG: Option<&'static str> = None; // Its plans do not depend on what it knows.
    // The form in which sqlx writes times, so that it reads them back, and so that they sort as texts.
    const NOW: &'static str = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')";
    const HAS_SCHEMA: &'static str =
        "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    const SERVER: &'static str = "SELECT 'SQLite ' || sqlite_version()";
    const BYTES: &'static str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    // By the pages of the smallest index, of which no row is read: 20 ms at 1,000,000 posts.
    const ABOUT_POSTS: &'static str = "SELECT COUNT(*) FROM posts";
    const TOKEN: &'static str = "lower(hex(randomblob(8)))";
    // All who use the file share the machine's clock.
    const TIME: Option<&'static str> = None;

    fn bucket(step: Step) -> (&'static str, &'static str) {
        let key = match step {
            Step::Hour => "substr(p.created_at, 1, 13)",
            Step::Day => "substr(p.created_at, 1, 10)",
            Step::Month => "substr(p.created_at, 1, 7)",
        };
        (key, "bucket")
    }

    fn floor(number: &str) -> String {
        format!("CAST({number} AS INTEGER)")
    }

    async fn insert(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<(), sqlx::Error> {
        insert.into_sqlite(connection, Keys::MayBeThere).await
    }

    async fn insert_new(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<(), sqlx::Error> {
        insert.into_sqlite(connection, Keys::AreNew).await
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");
        &MIGRATOR
    }

    async fn migrate(pool: &Pool<Self>) -> Result<(), MigrateError> {
        // sqlx takes no lock on SQLite; inside one transaction its own become savepoints.
        let mut tx = pool.begin_with(Self::BEGIN_WRITE).await?;
        Self::migrator().run_direct(None, &mut *tx, false).await?;
        Ok(tx.commit().await?)
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(malformed(
                url,
                "the URL is not well formed: behind `?` it takes mode, cache, immutable and vfs; in a name, write `?` as \
                 `%3F`, `#` as `%23` and `%` as `%25`",
            ))?
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true);
        let path = options.get_filename().to_owned();
        let hint = unopened(&path, access).to_owned();
        // Statements hold what users write, and their lists of parameters are long.
        let options = options.disable_statement_logging();
        let options = match access {
            // A view reads pages of all tables.
            Access::ReadOnly => options
                .read_only(true)
                .pragma("query_only", "ON")
                .pragma("cache_size", READER_CACHE),
            // A user who asks for reading gets no pragma of a writer: SQLite would refuse the switch to a log.
            _ if url.contains("mode=ro") => options.read_only(true),
            Access::Create | Access::Existing | Access::AnySchema => options
                .create_if_missing(access == Access::Create)
                // Readers go on while one writes, as they do on a server.
                .journal_mode(SqliteJournalMode::Wal)
                // What is deleted, or overwritten by a later version, is overwritten with zeros in the file.
                // Every writer does it: a text that was edited here lies in free space before its post is purged.
                .pragma("secure_delete", "ON")
                // A block of an import changes most leaves of the index of hashes: in memory, and written once,
                // instead of out and in again with each statement.
                .pragma("cache_size", CACHE)
                // What a statement would have to undo: 4 kB a page that it changes, which is not worth a file.
                .pragma("temp_store", "MEMORY")
                // Pages change more than once before the log is folded back into the file.
                .pragma("wal_autocheckpoint", LOG_PAGES)
                // With a write-ahead log NORMAL survives a crash of the program; a power cut may lose the
                // last transactions, never the file. Lost labels are computed again.
                .synchronous(SqliteSynchronous::Normal),
        };
        let pool = PoolOptions::new()
            .max_connections(CONNECTIONS)
            // A full disk ends a transaction in SQLite itself. The rollback that follows fails, so sqlx goes on counting
            // that transaction, and no other one could begin on the connection. It was pinged just before, so what
            // was sent to it is done.
            .before_acquire(|connection: &mut SqliteConnection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
            // Who waits for a connection waits for calls that wait for the lock, so it is as patient as they are.
            .acquire_timeout(BUSY_TIMEOUT);
        let connected = match connect_in_turn(&pool, &options).await {
            // Even a reader keeps notes beside the file; where it may not, and no log waits to be read, the
            // file can be taken as it is.
            Err(_) if access == Access::ReadOnly && is_settled(&path) => {
                pool.connect_with(options.immutable(true)).await
            }
            connected => connected,
        };
        connected.map_err(|source| match known_failure(&source) {
            Some(failure) => failure,
            None => open_error(url, hint)(source),
        })
    }
}

/// What to do about a file that cannot be opened.
fn unopened(path: &Path, access: Access) -> &'static str {
    if path.is_dir() {
        "that is a directory; name a file in it"
    } else if path.is_file() && access == Access::ReadOnly {
        "you may not read it; check its permissions and those of its folder"
    } else if path.is_file() {
        "you may not write to it or to its folder; check their permissions, and that the disk is not mounted read-only"
    } else if access == Access::Create {
        "check that its folder exists and that you may write there"
    } else {
        "there is no such file, or you may not look into its folder; `topicmill db create` makes one"
    }
}

/// Opens a file that others may be opening for the first time too.
///
/// The switch of a new file to a write-ahead log takes a read lock and raises it: where two do so, SQLite lets one
/// fail at once and does not wait for it, whatever the busy timeout says, since both would wait for ever
/// (<https://www.sqlite.org/c3ref/busy_handler.html>).
async fn connect_in_turn(
    pool: &PoolOptions<Sqlite>,
    options: &SqliteConnectOptions,
) -> Result<Pool<Sqlite>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_busy(&error) && tries < OPENING_TRIES => tries += 1,
            connected => return connected,
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a real wait for another process; no clock of a test may skip it"
        )]
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a database file is there and nobody has written what is not in it yet.
pub(super) fn is_settled(path: &Path) -> bool {
    let log = std::fs::metadata(format!("{}-wal", path.display()));
    path.is_file() && log.map_or(true, |log| log.len() == 0)
}

impl Dialect for Postgres {
    const BACKEND: &'static str = "postgres";
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
    // A page of a listing has at most 100 posts, and stays one statement; blocks of files have thousands.
    const MANY_NEW: usize = 200;
    const LOGITS_APART: bool = true;
    const AMONG: &'static str = "(SELECT json_array_elements_text($1::json))";
    const COUNT_BACKLOG: Option<&'static str> = Some("ANALYZE backlog");
    const NOW: &'static str = "CURRENT_TIMESTAMP";
    // Other schemas of the same database may have a topicmill, or another program that uses sqlx.
    const HAS_SCHEMA: &'static str = "SELECT COUNT(*) FROM pg_tables WHERE tablename = '_sqlx_migrations' AND schemaname = current_schema()";
    const SERVER: &'static str = "SELECT 'PostgreSQL ' || current_setting('server_version')";
    const BYTES: &'static str = "SELECT pg_database_size(current_database())";
    // What the server keeps for its planner, unless the table is small or was never counted.
    const ABOUT_POSTS: &'static str = "SELECT CASE WHEN c.reltuples > 200000 THEN c.reltuples::bigint \
         ELSE (SELECT COUNT(*) FROM posts) END FROM pg_class c WHERE c.oid = 'posts'::regclass";
    const TOKEN: &'static str = "gen_random_uuid()::text";
    // Not CURRENT_TIMESTAMP: that is the begin of the transaction, which may have waited for a lock since.
    const TIME: Option<&'static str> = Some("SELECT clock_timestamp()");

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

    async fn insert(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<(), sqlx::Error> {
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

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("migrations/postgres");
        &MIGRATOR
    }

    async fn migrate(pool: &Pool<Self>) -> Result<(), MigrateError> {
        // All or nothing, one process after the other: sqlx's own lock is given back before this commits.
        let mut tx = pool.begin().await?;
        tx.execute(LOCK_SCHEMA).await?;
        // A migration may drop a view and make it anew. The owner's grants on it would be lost in silence.
        let before = grants(&mut tx).await?;
        Self::migrator().run_direct(None, &mut *tx, false).await?;
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
                PARAMETERS.join(", ")
            );
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(malformed(
                url,
                "the URL is not well formed; escape special characters of the password",
            ))?
            // So that whoever looks at the server's sessions sees whose they are.
            .application_name("topicmill")
            .disable_statement_logging();
        let port = options.get_port();
        let pool = PoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(move |connection: &mut PgConnection, _| {
                Box::pin(async move {
                    send_at_once(port);
                    connection.execute(SESSION).await.map(drop)
                })
            });
        // A failed first connection is repeated by the pool until its time is up; one direct attempt tells at once.
        match options.connect().await {
            Ok(connection) => drop(sqlx::Connection::close(connection).await),
            Err(error) if access == Access::Create && is_missing_database(&error) => {
                let created = Self::create_database(url).await;
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
        let options = match access {
            Access::ReadOnly => options.options([("default_transaction_read_only", "on")]),
            Access::Create | Access::Existing | Access::AnySchema => options,
        };
        pool.connect_with(options)
            .await
            .map_err(open_error(url, "it answered once and then no more"))
    }
}

/// A statement that lets a role do something, the relation, and the column where it is about one.
pub(super) type Grant = (String, String, Option<String>);

/// What others than their owners may do with the tables and views, as statements that let them. Where a migration
/// makes a view anew, the database forgets it.
pub(super) async fn grants(connection: &mut PgConnection) -> Result<BTreeSet<Grant>, sqlx::Error> {
    let grants: Vec<Grant> = sqlx::query_as(GRANTS).fetch_all(connection).await?;
    Ok(grants.into_iter().collect())
}

/// How often a watcher looks whether a file was written to.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sees by a counter of SQLite's that another connection wrote to the file.
pub struct FileWatch {
    // SQLite compares the counter with what this connection saw last, so the watcher holds on to one connection.
    connection: PoolConnection<Sqlite>,
    version: i64,
}

impl FileWatch {
    pub(super) async fn new(pool: &Pool<Sqlite>) -> Result<Self> {
        let mut connection = pool.acquire().await.map_err(watching)?;
        let version = data_version(&mut connection).await?;
        Ok(Self {
            connection,
            version,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "what another process writes does not come by our clock"
    )]
    pub(super) async fn changed(&mut self) -> Result<()> {
        loop {
            let version = data_version(&mut self.connection).await?;
            if version != self.version {
                self.version = version;
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn data_version(connection: &mut PoolConnection<Sqlite>) -> Result<i64> {
    sqlx::query_scalar("PRAGMA data_version")
        .fetch_one(&mut **connection)
        .await
        .map_err(watching)
}

/// Hears the notice that a trigger on `posts` gives.
pub struct Listener(PgListener);

impl Listener {
    pub(super) async fn new(pool: &Pool<Postgres>) -> Result<Self> {
        let mut listener = PgListener::connect_with(pool).await.map_err(watching)?;
        listener.listen("topicmill_posts").await.map_err(watching)?;
        Ok(Self(listener))
    }

    pub(super) async fn changed(&mut self) -> Result<()> {
        // Nothing heard because the connection broke off means that something may have been missed.
        self.0.try_recv().await.map_err(watching)?;
        // What was said meanwhile is the same news.
        while self.0.next_buffered().is_some() {}
        Ok(())
    }
}

fn watching(source: sqlx::Error) -> StoreError {
    let what = "watch for new posts";
    StoreError::Statement { what, source }
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

    #[tokio::test]
    async fn a_transaction_begins_after_sqlite_has_ended_one_itself() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let pool = <Sqlite as Dialect>::open(&url, Access::Create)
            .await
            .unwrap();
        let mut tx = pool.begin_with(Sqlite::BEGIN_WRITE).await.unwrap();
        // What SQLite does where the disk is full in the middle of a statement.
        sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
        drop(tx);
        while pool.num_idle() == 0 {
            tokio::task::yield_now().await;
        }
        let mut tx = pool.begin_with(Sqlite::BEGIN_WRITE).await.unwrap();
        sqlx::raw_sql("CREATE TABLE one (row INTEGER)")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_not_called_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        assert!(unopened(&file, Access::Existing).contains("no such file"));
        std::fs::write(&file, "").unwrap();
        for access in [Access::Existing, Access::AnySchema, Access::Create] {
            assert!(unopened(&file, access).contains("may not write"));
        }
        assert!(unopened(&file, Access::ReadOnly).contains("may not read"));
        assert!(unopened(folder.path(), Access::Create).contains("directory"));
    }
}
