//! A SQLite database file.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Pool, Sqlite, SqliteConnection};

use super::{Bucket, CONNECTIONS, Dialect, Migration, malformed, migrations, open_error, watching};
use crate::driver_error::{
    is_busy, is_damaged, is_refused, known_failure, note_unlocked_read, reads_unlocked,
};
use crate::lock_wait::{LIMIT, NOTICE, STEP, log_holder};
use crate::sql::SqlStore;
use crate::{Access, Result, StoreError, TimeStep};

/// Maximum number of attempts, 20 ms apart, to open a file that other processes are opening at the same time. Each
/// time, one process succeeds.
const OPENING_TRIES: u32 = 500;
/// Busy timeout while a file is being inspected for another program's tables.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Page cache of a writer, in negative KiB.
const CACHE: &str = "-16384";
/// Page cache of a reader, in negative KiB.
pub(crate) const READER_CACHE: &str = "-32768";
/// Number of 4 kB pages in the write-ahead log at which the log is copied into the file.
const LOG_PAGES: &str = "8192";
/// Advice for a URL that the driver cannot parse.
const MALFORMED: &str = "the URL is malformed: parameters after `?` are mode, cache, immutable and vfs; in a name, \
                         write `?` as `%3F`, `#` as `%23` and `%` as `%25`";

impl Dialect for Sqlite {
    const BACKEND: &'static str = "sqlite";
    const MIGRATIONS: &'static [Migration] = migrations::SQLITE;
    const BEGIN_WRITE: &'static str = "BEGIN IMMEDIATE";
    // A SQLite transaction sees the snapshot of its first read.
    const BEGIN_READ: &'static str = "BEGIN";
    const POSTS_IN_ORDER: &'static str = "INDEXED BY things_current";
    const SKIP_LOCKED: &'static str = "";
    const FOR_UPDATE: &'static str = "";
    const LOCK_KEY: &'static str = "";
    const SHARE_POSTS: &'static str = "";
    const LOCK_POSTS: &'static str = "";
    // Logits have foreign keys, so SQLite keeps an undo journal in any case.
    const BULK_LOGITS: bool = false;
    const IN_JSON_ARRAY: &'static str = "(SELECT value FROM json_each($1))";
    const SEARCHED: &'static str = "p.title || char(10) || p.selftext";
    // The format that sqlx uses for times. It sorts as text.
    const NOW: &'static str = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')";
    const HAS_SCHEMA: &'static str =
        "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    // Triggers have their own namespace, and names are case-insensitive.
    const RELATIONS_NAMED: &'static str =
        "SELECT name FROM sqlite_master WHERE type <> 'trigger' AND lower(name)";
    const NAME_TAKEN_ADVICE: &'static str = "name another file";
    const SERVER: &'static str = "SELECT 'SQLite ' || sqlite_version()";
    const BYTES: &'static str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    const INTEGRITY: &'static str = "SELECT integrity_check FROM pragma_integrity_check() WHERE integrity_check <> 'ok' \
         UNION ALL \
         SELECT COUNT(*) || ' rows of ' || \"table\" || ' refer to missing rows of ' || parent \
           FROM pragma_foreign_key_check() GROUP BY \"table\", parent";
    const DEEP_CHECKS: &'static str = "SELECT '' WHERE FALSE";
    const REPAIR_ADVICE: &'static str =
        "first copy the database files elsewhere, then restore a backup (docs/retention.md)";
    const NUMBER_OF_SCORES: &'static str = "json_array_length(s.scores)";
    // Reads only the pages of the smallest index: 20 ms with 1,000,000 posts.
    const ESTIMATE_POSTS: &'static str = "SELECT COUNT(*) FROM things";
    const TOKEN: &'static str = "lower(hex(randomblob(8)))";

    fn file_id(options: &SqliteConnectOptions) -> Option<(u64, u64)> {
        let file = std::fs::metadata(options.get_filename()).ok()?;
        Some((file.dev(), file.ino()))
    }

    fn bucket(column: &str, step: TimeStep) -> Bucket {
        let length = match step {
            TimeStep::Hour => "2026-11-22T13".len(),
            TimeStep::Day => "2026-11-22".len(),
            TimeStep::Month => "2026-11".len(),
        };
        Bucket {
            key: format!("substr({column}, 1, {length})"),
            text: "bucket".to_owned(),
        }
    }

    // Takes the row at a pseudo-random position in each interval of row ids: a fixed position could match a pattern,
    // such as the order of posts on a page. The prime number makes every position possible. The row ids of deleted
    // posts match nothing.
    fn sample_posts(interval: i64) -> String {
        format!(
            "FROM things WHERE rowid IN ( \
               WITH RECURSIVE each(at) AS (SELECT MIN(rowid) FROM things UNION ALL \
                 SELECT at + {interval} FROM each WHERE at + {interval} <= (SELECT MAX(rowid) FROM things)) \
                 SELECT at + at / {interval} * 2147483647 % {interval} FROM each)"
        )
    }

    fn floor(number: &str) -> String {
        format!("CAST({number} AS INTEGER)")
    }

    fn rows_affected(done: &Self::QueryResult) -> u64 {
        done.rows_affected()
    }

    async fn lock_holder(pool: &Pool<Self>, _: Option<i32>) -> Option<String> {
        lock_holder(pool.connect_options().get_filename())
    }

    async fn migrate(pool: &Pool<Self>, migrator: &Migrator) -> Result<(), MigrateError> {
        // sqlx takes no lock on SQLite. Within this transaction, sqlx's transactions become savepoints.
        let mut tx = pool.begin_with(Self::BEGIN_WRITE).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        tx.commit().await?;
        // A file with another program's tables gets a write-ahead log only now that it has topicmill's tables.
        match sqlx::query("PRAGMA journal_mode = WAL").execute(pool).await {
            // Another process is using the file. It sets the same mode, or the next process that opens the file does.
            Err(error) if is_busy(&error) => Ok(()),
            with_wal => Ok(with_wal.map(drop)?),
        }
    }

    async fn open(url: &str, access: Access) -> Result<Pool<Self>> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|_| malformed(url, MALFORMED))?
            .busy_timeout(STEP)
            .foreign_keys(true);
        let path = options.get_filename().to_owned();
        if path.as_os_str().is_empty() {
            // SQLite would create a temporary database and delete it at the end.
            return Err(malformed(url, "it names no file: write `sqlite:PATH`"));
        }
        if has_parameter(url, "immutable=1") || has_parameter(url, "immutable=true") {
            ASKED_UNLOCKED.store(true, Ordering::Relaxed);
        }
        let is_in_memory = url.contains(":memory:") || has_parameter(url, "mode=memory");
        if access == Access::Create && !is_in_memory {
            create_private(&path);
        }
        let hint = open_advice(&path, access);
        // Statements are not logged, because they contain users' text and long lists of parameters.
        let options = with_access(options.disable_statement_logging(), url, access).await;
        let pool = PoolOptions::new()
            .max_connections(CONNECTIONS)
            // On a full disk, SQLite ends the transaction itself. The rollback that follows fails, so sqlx still
            // considers the transaction open, and no other transaction could begin on this connection. Such a
            // connection is closed. sqlx has just pinged the connection, so no rollback is still pending.
            .before_acquire(|connection: &mut SqliteConnection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
            // A caller waits for a connection while other calls are waiting for the write lock, so both timeouts are
            // the same.
            .acquire_timeout(LIMIT);
        let connected = match connect_within_limit(&pool, &options).await? {
            // Even a reader needs files next to the database. If it cannot create them, and there is no log to read,
            // the file is opened as immutable. SQLite would not notice that its cached pages are out of date, so each
            // use opens the file again.
            Err(error)
                if access == Access::ReadOnly
                    && !(is_damaged(&error) || is_busy(&error))
                    && may_be_immutable(&path) =>
            {
                note_unlocked_read();
                pool.after_release(|_, _| Box::pin(async { Ok(false) }))
                    .connect_with(options.immutable(true))
                    .await
            }
            connected => connected,
        };
        connected.map_err(|source| match known_failure(&source) {
            Some(failure) => failure,
            None if is_refused(&source) => StoreError::DiskError(source),
            None => open_error(url, hint, source),
        })
    }
}

/// Returns true if a URL has this parameter, such as `mode=ro`.
fn has_parameter(url: &str, parameter: &str) -> bool {
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    parameters.split('&').any(|known| known == parameter)
}

/// Adds the settings of a reader or a writer.
async fn with_access(
    options: SqliteConnectOptions,
    url: &str,
    access: Access,
) -> SqliteConnectOptions {
    match access {
        // `serve` keeps several connections. A larger cache makes none of its pages faster, since the operating system
        // caches the file.
        Access::ReadOnly => options
            .read_only(true)
            .pragma("query_only", "ON")
            .pragma("cache_size", "-4096"),
        // With `mode=ro`, SQLite would reject a change of the journal mode, so no writer pragmas are set.
        _ if has_parameter(url, "mode=ro") => options.read_only(true),
        Access::Create | Access::Existing | Access::AnySchema => with_wal(options)
            .await
            .create_if_missing(access == Access::Create)
            // Overwrites deleted and updated content with zeros. Every writer does this, because the old text of an
            // edited post remains in free space even before the post is purged.
            .pragma("secure_delete", "ON")
            // A block of an import changes many index pages. The cache keeps them in memory, so that each is written
            // once.
            .pragma("cache_size", CACHE)
            // The undo journal of a statement needs only 4 kB per changed page, which is not worth a file.
            .pragma("temp_store", "MEMORY")
            // A long log, because pages change more than once before the log is copied into the file.
            .pragma("wal_autocheckpoint", LOG_PAGES)
            // With a write-ahead log, NORMAL survives a crash of the program. A power failure may lose the last
            // transactions, but does not corrupt the file. Lost labels are recomputed.
            .synchronous(SqliteSynchronous::Normal),
    }
}

/// Creates a missing file for its owner alone: posts, their authors' hashes and the key of these hashes concern nobody
/// else. SQLite gives the files next to it the same permissions. An error is left to SQLite.
fn create_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    drop(options.write(true).create_new(true).mode(0o600).open(path));
}

/// Switches to a write-ahead log, so that a writer does not block readers, unless the file contains only another
/// program's tables: such a file must remain unchanged if topicmill's tables cannot be added.
async fn with_wal(options: SqliteConnectOptions) -> SqliteConnectOptions {
    if has_foreign_tables(&options).await.unwrap_or(false) {
        options
    } else {
        options.journal_mode(SqliteJournalMode::Wal)
    }
}

/// Returns true if a file has tables, but lacks some of the three tables that every version of topicmill has.
///
/// Queries SQLite instead of reading the file: closing a second handle to the file would drop all of the process's
/// locks (<https://www.sqlite.org/howtocorrupt.html>, section 2.2).
async fn has_foreign_tables(options: &SqliteConnectOptions) -> Result<bool, sqlx::Error> {
    let existing = options.clone().create_if_missing(false);
    let mut connection = existing.busy_timeout(INSPECTION_TIMEOUT).connect().await?;
    let are_foreign = sqlx::query_scalar(
        "SELECT COUNT(*) > 0 AND SUM(name IN ('_sqlx_migrations', 'pair_logits', 'current_target')) < 3 \
           FROM sqlite_master",
    )
    .fetch_one(&mut connection)
    .await;
    connection.close().await?;
    are_foreign
}

/// Returns advice for a file that cannot be opened.
fn open_advice(path: &Path, access: Access) -> &'static str {
    if path.is_dir() {
        "it is a directory; name a file in it"
    } else if access == Access::ReadOnly && path.is_file() && !has_no_wal(path) {
        "its last changes are in the write-ahead log next to it (`-wal`), and without write access to the folder SQLite \
         cannot read them: copy both files to a folder of your own, or add `?immutable=1` to the URL to read it without \
         these changes"
    } else if path.is_file() && access == Access::ReadOnly {
        "you may not read it; check its permissions and those of its folder"
    } else if path.is_file() {
        "you may not write to it or to its folder; check their permissions, and that the disk is not mounted read-only"
    } else if access == Access::Create {
        "check that its folder exists and that you may write there"
    } else {
        "there is no such file, or you may not list its folder; `topicmill db create` creates one"
    }
}

/// Returns who holds a lock on a database file, according to the kernel; `None` if only this process does.
fn lock_holder(path: &Path) -> Option<String> {
    let file = format!("a lock on `{}`", path.display());
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return Some(format!("another program with {file}"));
    };
    // SQLite locks the file and, with a write-ahead log, the shared memory
    // (<https://www.sqlite.org/wal.html#how_to_block_checkpoints_and_readers_from_running>).
    let inodes = ["", "-shm"].map(|end| {
        let found = std::fs::metadata(format!("{}{end}", path.display()));
        found.map_or(0, |found| found.ino()).to_string()
    });
    // A line: number, kind, mode, access, process, device and inode, range. A request that waits has an arrow.
    let holder = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        let (_, inode) = words.get(5)?.rsplit_once(':')?;
        let is_ours = inodes.iter().any(|ours| ours == inode);
        (words[3] == "WRITE" && is_ours).then(|| words[4])
    };
    let mut holders: BTreeSet<&str> = locks.lines().filter_map(holder).collect();
    let me = std::process::id().to_string();
    if holders.remove(me.as_str()) && holders.is_empty() {
        return None;
    }
    let name = |pid: &&str| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    };
    let others: Vec<String> = holders.iter().map(name).collect();
    Some(match others.join(" and ").as_str() {
        "" => format!("another program with {file}"),
        others => format!("{others} with {file}"),
    })
}

/// Opens a file; logs who holds a lock on it after [`NOTICE`], and gives up after [`LIMIT`].
#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
async fn connect_within_limit(
    pool: &PoolOptions<Sqlite>,
    options: &SqliteConnectOptions,
) -> Result<Result<Pool<Sqlite>, sqlx::Error>> {
    const WHAT: &str = "open the database";
    let path = options.get_filename().to_owned();
    let waiting = async {
        tokio::time::sleep(NOTICE).await;
        if let Some(holder) = lock_holder(&path) {
            log_holder(WHAT, &holder);
        }
        tokio::time::sleep(LIMIT.saturating_sub(NOTICE)).await;
    };
    tokio::select! {
        connected = connect_with_retries(pool, options) => Ok(connected),
        () = waiting => Err(StoreError::locked(WHAT, lock_holder(&path))),
    }
}

/// Opens a file that others may be opening for the first time too.
///
/// Changing a new file to a write-ahead log takes a read lock and upgrades it. If two processes do this, SQLite fails
/// one of them immediately, regardless of the busy timeout, to avoid a deadlock
/// (<https://www.sqlite.org/c3ref/busy_handler.html>).
async fn connect_with_retries(
    pool: &PoolOptions<Sqlite>,
    options: &SqliteConnectOptions,
) -> Result<Pool<Sqlite>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_busy(&error) && tries < OPENING_TRIES => tries += 1,
            connected => return connected,
        }
        #[expect(clippy::disallowed_methods, reason = "other processes take real time")]
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns true if the database file exists and has no content in a write-ahead log.
fn has_no_wal(path: &Path) -> bool {
    let log = std::fs::metadata(format!("{}-wal", path.display()));
    path.is_file() && log.map_or(true, |log| log.len() == 0)
}

/// True once the user has asked for reading a file as immutable.
static ASKED_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Returns true if a file may be opened as immutable.
pub(crate) fn may_be_immutable(path: &Path) -> bool {
    ASKED_UNLOCKED.load(Ordering::Relaxed) || has_no_wal(path)
}

impl SqlStore<Sqlite> {
    /// Prepares for a request of a long-lived reader that may not create files next to the database: reads through a
    /// writer's shared memory while there is a log, and the file alone otherwise.
    pub(crate) fn refresh(&self) {
        if reads_unlocked() {
            let options = self.pool.connect_options();
            let is_alone = may_be_immutable(options.get_filename());
            let options = SqliteConnectOptions::clone(&options);
            self.pool.set_connect_options(options.immutable(is_alone));
        }
    }
}

/// Poll interval of a watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Detects writes by other connections, using a SQLite counter.
pub struct FileWatch {
    // SQLite compares the counter per connection, so the watch keeps one connection.
    connection: PoolConnection<Sqlite>,
    version: i64,
    store: SqlStore<Sqlite>,
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
        reason = "other processes write in real time"
    )]
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            self.store.check_same_file()?;
            let version = data_version(&mut self.connection).await?;
            if version != self.version {
                self.version = version;
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
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
        // As SQLite does if the disk becomes full in the middle of a statement.
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

    #[tokio::test]
    async fn a_new_file_is_private_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.db");
        let url = format!("sqlite:{}", file.display());
        <Sqlite as Dialect>::open(&url, Access::Create)
            .await
            .unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn advice_distinguishes_missing_files_from_missing_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        assert!(open_advice(&file, Access::Existing).contains("no such file"));
        std::fs::write(&file, "").unwrap();
        for access in [Access::Existing, Access::AnySchema, Access::Create] {
            assert!(open_advice(&file, access).contains("may not write"));
        }
        assert!(open_advice(&file, Access::ReadOnly).contains("may not read"));
        std::fs::write(folder.path().join("a.db-wal"), "pages").unwrap();
        assert!(open_advice(&file, Access::ReadOnly).contains("immutable=1"));
        assert!(open_advice(folder.path(), Access::Create).contains("directory"));
    }
}
