//! A database in a file of SQLite.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Pool, Sqlite, SqliteConnection};

use super::super::bulk::{Insert, Keys};
use super::super::failure::{is_busy, known_failure};
use super::super::sql::SqlStore;
use super::super::waiting::STEP;
use super::super::{Access, Result, Step, StoreError};
use super::{CONNECTIONS, Dialect, File, malformed, migrations, open_error, watching};

/// Busy timeout: as long as rewriting a large file may take.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_mins(5);
/// Attempts to open a file that others are opening, 20 ms apart; one of them succeeds each time.
const OPENING_TRIES: u32 = 500;
/// Timeout for the writer when a file is inspected.
const LOOKING: Duration = Duration::from_secs(1);
/// Memory of a writer of SQLite for pages, in KiB below zero.
const CACHE: &str = "-16384";
/// And of a reader.
pub(crate) const READER_CACHE: &str = "-32768";
/// Pages of SQLite's write-ahead log, of 4 kB, before it is folded back into the file.
const LOG_PAGES: &str = "8192";

impl Dialect for Sqlite {
    const BACKEND: &'static str = "sqlite";
    const MIGRATIONS: &'static [File] = migrations::SQLITE;
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
    // They have foreign keys, for which SQLite notes what a statement would have to undo in any case.
    const LOGITS_APART: bool = false;
    const AMONG: &'static str = "(SELECT value FROM json_each($1))";
    const COUNT_BACKLOG: Option<&'static str> = None; // Its plans do not depend on what it knows.
    // The form in which sqlx writes times, so that it reads them back, and so that they sort as texts.
    const NOW: &'static str = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')";
    const HAS_SCHEMA: &'static str =
        "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    // Names of triggers are apart from those of tables, and capital letters do not count.
    const NAMED: &'static str =
        "SELECT name FROM sqlite_master WHERE type <> 'trigger' AND lower(name)";
    const ELSEWHERE: &'static str = "name another file";
    const SERVER: &'static str = "SELECT 'SQLite ' || sqlite_version()";
    const BYTES: &'static str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    // By the pages of the smallest index, of which no row is read: 20 ms at 1,000,000 posts.
    const ABOUT_POSTS: &'static str = "SELECT COUNT(*) FROM posts";
    // Not each time the first of `$3` rows: what comes in turns, such as the posts of a page, would be all in the
    // sample or not at all. The prime reaches every place. Where a post was deleted, none is found.
    const EACH_NTH_POST: &'static str = "FROM posts WHERE rowid IN ( \
           WITH RECURSIVE each(at) AS (SELECT MIN(rowid) FROM posts UNION ALL \
             SELECT at + $3 FROM each WHERE at + $3 <= (SELECT MAX(rowid) FROM posts)) SELECT at + at / $3 * 2147483647 % $3 FROM each)";
    const TOKEN: &'static str = "lower(hex(randomblob(8)))";
    // All who use the file share the machine's clock.
    const TIME: Option<&'static str> = None;
    const MOST_STEPS: u64 = BUSY_TIMEOUT.as_secs() / STEP.as_secs();

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

    async fn insert_returning(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        insert.into_sqlite(connection, Keys::MayBeThere).await
    }

    async fn insert_new(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> Result<(), sqlx::Error> {
        let inserted = insert.into_sqlite(connection, Keys::AreNew).await;
        inserted.map(drop)
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    async fn migrate(pool: &Pool<Self>, migrator: &Migrator) -> Result<(), MigrateError> {
        // sqlx takes no lock on SQLite; inside one transaction its own become savepoints.
        let mut tx = pool.begin_with(Self::BEGIN_WRITE).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        tx.commit().await?;
        // A file with tables of others is opened as it is, until ours are in it.
        match sqlx::query("PRAGMA journal_mode = WAL").execute(pool).await {
            // Whoever uses it just now wants the same, or the next one to open it does it.
            Err(error) if is_busy(&error) => Ok(()),
            switched => Ok(switched.map(drop)?),
        }
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(malformed(
                url,
                "the URL is not well formed: behind `?` it takes mode, cache, immutable and vfs; in a name, write `?` as \
                 `%3F`, `#` as `%23` and `%` as `%25`",
            ))?
            .busy_timeout(STEP)
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
            Access::Create | Access::Existing | Access::AnySchema => switched(options)
                .await
                .create_if_missing(access == Access::Create)
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
            // A full disk ends a transaction in SQLite itself. The rollback that follows fails, so sqlx goes on
            // counting that transaction, and no other one could begin on the connection. It was pinged just before, so
            // what was sent to it is done.
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

/// Has readers go on while one writes, as they do on a server: the file gets a write-ahead log. Not yet one that holds
/// only tables of others, which is left as it is where ours may not go into it.
async fn switched(options: SqliteConnectOptions) -> SqliteConnectOptions {
    if holds_others(&options).await.unwrap_or(false) {
        options
    } else {
        options.journal_mode(SqliteJournalMode::Wal)
    }
}

/// True if a file has tables, but not those that each version of ours has.
///
/// SQLite itself is asked: the system drops all locks of a process on a file that it opens and closes besides
/// (<https://www.sqlite.org/howtocorrupt.html>, section 2.2).
async fn holds_others(options: &SqliteConnectOptions) -> Result<bool, sqlx::Error> {
    let alone = options.clone().create_if_missing(false);
    let mut connection = alone.busy_timeout(LOOKING).connect().await?;
    let others = "SELECT COUNT(*) > 0 AND SUM(name IN ('_sqlx_migrations', 'pair_logits', 'current_target')) < 3 \
                    FROM sqlite_master";
    let others = sqlx::query_scalar(others).fetch_one(&mut connection).await;
    connection.close().await?;
    others
}

/// Advice for a file that cannot be opened.
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

/// True if the database file exists and has no unmerged write-ahead log.
pub(crate) fn is_settled(path: &Path) -> bool {
    let log = std::fs::metadata(format!("{}-wal", path.display()));
    path.is_file() && log.map_or(true, |log| log.len() == 0)
}

/// Interval at which a watcher polls a file for writes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sees by a counter of SQLite's that another connection wrote to the file.
pub struct FileWatch {
    // SQLite compares the counter with what this connection saw last, so the watcher holds on to one connection.
    connection: PoolConnection<Sqlite>,
    version: i64,
    store: SqlStore<Sqlite>,
}

impl SqlStore<Sqlite> {
    /// Device and number of the file that has the database's name now.
    pub(crate) fn file_there(&self) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let options = self.pool.connect_options();
        let found = std::fs::metadata(options.get_filename()).ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Checks that the database's name still means the file that was opened: SQLite would go on in a deleted one.
    pub(crate) fn same_file(&self) -> Result<()> {
        // A database in memory has no file.
        if self.file.is_none() || self.file_there() == self.file {
            return Ok(());
        }
        Err(StoreError::Open {
            url: self.shown_url().to_owned(),
            hint:
                "its file is gone or was replaced since this command began; start the command again"
                    .to_owned(),
            source: sqlx::Error::Io(std::io::ErrorKind::NotFound.into()),
        })
    }
}

impl FileWatch {
    pub(crate) async fn new(store: &SqlStore<Sqlite>) -> Result<Self> {
        let mut connection = store.pool.acquire().await.map_err(watching)?;
        let version = data_version(&mut connection).await?;
        Ok(Self {
            connection,
            version,
            store: store.clone(),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "what another process writes does not come by our clock"
    )]
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            self.store.same_file()?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
