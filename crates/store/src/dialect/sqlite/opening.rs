//! Opens database files: as a writer, as a reader, or as immutable for a reader that may not create files next to them.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Pool, Sqlite, SqliteConnection};

use super::locks::lock_holder;
use crate::dialect::{CONNECTIONS, malformed, open_error};
use crate::driver_error::{
    is_busy, is_damaged, is_refused, known_failure, note_unlocked_read, reads_unlocked,
};
use crate::lock_wait::{LIMIT, NOTICE, STEP, log_holder};
use crate::sql::SqlStore;
use crate::{Access, Result, StoreError};

/// Maximum number of attempts, 20 ms apart, to open a file that other processes are opening at the same time. Each
/// time, one process succeeds.
const OPENING_TRIES: u32 = 500;
/// Busy timeout while a file is being inspected for another program's tables.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Page cache of a writer, in negative KiB.
const CACHE: &str = "-16384";
/// Number of 4 kB pages in the write-ahead log at which the log is copied into the file.
const LOG_PAGES: &str = "8192";
/// Advice for a URL that the driver cannot parse.
const MALFORMED: &str = "the URL is malformed: parameters after `?` are mode, cache, immutable and vfs; in a name, \
                         write `?` as `%3F`, `#` as `%23` and `%` as `%25`";

/// True once the user has asked for reading a file as immutable.
static ASKED_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Opens a database file, as [`Dialect::open`](crate::dialect::Dialect::open) describes.
pub(super) async fn open(url: &str, access: Access) -> Result<Pool<Sqlite>> {
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
    let pool = pool_options();
    let connected = match connect_within_limit(&pool, &options).await? {
        // Even a reader needs files next to the database. If it cannot create them, and there is no log to read, the
        // file is opened as immutable. SQLite would not notice that its cached pages are out of date, so each use opens
        // the file again.
        Err(error)
            if access == Access::ReadOnly
                && !(is_damaged(&error) || is_busy(&error))
                && may_be_immutable(&path) =>
        {
            note_unlocked_read();
            let pool = pool.after_release(|_, _| Box::pin(async { Ok(false) }));
            pool.connect_with(options.immutable(true)).await
        }
        connected => connected,
    };
    connected.map_err(|source| match known_failure(&source) {
        Some(failure) => failure,
        None if is_refused(&source) => StoreError::DiskError(source),
        None => open_error(url, hint, source),
    })
}

/// Returns the settings of a pool of connections.
fn pool_options() -> PoolOptions<Sqlite> {
    PoolOptions::new()
        .max_connections(CONNECTIONS)
        // On a full disk, SQLite ends the transaction itself. The rollback that follows fails, so sqlx still considers
        // the transaction open, and no other transaction could begin on this connection. Such a connection is closed.
        // sqlx has just pinged the connection, so no rollback is still pending.
        .before_acquire(|connection: &mut SqliteConnection, _| {
            let is_free = !connection.is_in_transaction();
            Box::pin(async move { Ok(is_free) })
        })
        // A caller waits for a connection while other calls are waiting for the write lock, so both timeouts are the
        // same.
        .acquire_timeout(LIMIT)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::dialect::Dialect;

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
