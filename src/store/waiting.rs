//! Waits for locks that others hold, and how a signal ends them.
//!
//! A statement waits for a lock for minutes in SQLite, and for ever in PostgreSQL. Whoever stops the program does not wait so
//! long: once the token is cancelled that [`Store::give_up_after`] was given, a wait of more than [`PATIENCE`] ends with
//! [`StoreError::Stopped`]. The database itself ends the statement, and its transaction is rolled back. So no call is dropped
//! of which nobody knows whether it was done, and a statement that works is left to its end.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rusqlite::ffi;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor, SqliteConnection};
use tokio_util::sync::CancellationToken;

use super::failure::{is_given_up, is_passing, plain};
use super::{Access, Result, Store, StoreError};

/// How long a statement of SQLite waits for another writer before it gives up: as long as it may take to rewrite a large file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a wait may take once a signal came: longer than others hold a lock as a rule, and no longer than people wait.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pauses of SQLite between two tries, in milliseconds; the last one comes again and again (`sqliteDefaultBusyCallback`).
const PAUSES_MS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];
/// How long it takes to ask again where PostgreSQL did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How often PostgreSQL is asked who waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A statement that waits in more looks than this, one behind the other, has waited for [`PATIENCE`].
const LOOKS: u32 = 6;
/// Sessions that are remembered. A process has a few at once, and later ones take the place of those that ended.
const MOST_SESSIONS: usize = 1_000;
/// What of our sessions waits for a lock: the session, as `Waits::add` heard of it, and when its statement began.
const WAITING: &str = "\
SELECT pid || ' ' || backend_start || ' ' || COALESCE(query_start, backend_start) FROM pg_stat_activity \
 WHERE wait_event_type = 'Lock' AND pid || ' ' || backend_start = ANY($1)";
/// Ends statements that wait still.
const CANCEL: &str = "\
SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
 WHERE wait_event_type = 'Lock' AND pid || ' ' || backend_start || ' ' || COALESCE(query_start, backend_start) = ANY($1)";

/// A signal came, or the time of a schedule's stage was up. It stands at the end of a chain of errors, whatever these are called.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it was told to stop")]
pub struct ToldToStop;

/// Whether an error says no more than that a wait was told to stop.
pub fn is_stop(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<ToldToStop>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// What the connections to a database have in common where they wait.
#[derive(Debug, Default)]
pub struct Waits {
    stop: OnceLock<CancellationToken>,
    /// Whether a wait was ended because of it.
    gave_up: AtomicBool,
    /// Sessions on a server: the number of the process and when it began, because numbers come again.
    sessions: Mutex<Vec<String>>,
    /// Cancelled when nobody uses the database any more.
    over: CancellationToken,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Waits {
    /// A session began.
    pub(super) fn add(&self, session: String) {
        let mut sessions = self.sessions.lock().expect("no holder of this lock panics");
        if sessions.len() == MOST_SESSIONS {
            sessions.remove(0);
        }
        sessions.push(session);
    }

    fn sessions(&self) -> Vec<String> {
        let sessions = self.sessions.lock().expect("no holder of this lock panics");
        sessions.clone()
    }

    /// Tells what a wait that was given up ended as such.
    pub(super) fn judge<T>(&self, ended: Result<T>) -> Result<T> {
        let error = match ended {
            Err(error) if self.gave_up.load(Ordering::Relaxed) => error,
            ended => return ended,
        };
        let what = match &error {
            StoreError::Statement { what, source } if is_given_up(source) => Some(*what),
            // It was ended, as that above. Where the connection broke, it passes.
            StoreError::Unanswered {
                is_passing: false, ..
            } => Some("run the query"),
            _ => None,
        };
        Err(match what {
            Some(what) => StoreError::Stopped {
                what,
                source: ToldToStop,
            },
            None => error,
        })
    }

    /// Lets a connection to SQLite wait as this module says.
    pub(super) async fn attend(
        self: &Arc<Self>,
        connection: &mut SqliteConnection,
    ) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        // Never taken back: SQLite does not tell when a connection ends, and all connections share these few bytes.
        let waits = Arc::into_raw(Arc::clone(self)).cast_mut().cast::<c_void>();
        #[expect(
            unsafe_code,
            reason = "sqlx has no name for the function of SQLite that is called at each lock"
        )]
        // SAFETY: the connection is open, and nobody else uses it while it is locked; `wait` may be called from any thread,
        // and what `waits` points to is never freed.
        let installed = unsafe {
            ffi::sqlite3_busy_handler(handle.as_raw_handle().as_ptr(), Some(wait), waits)
        };
        debug_assert_eq!(installed, ffi::SQLITE_OK, "SQLite takes every handler");
        Ok(())
    }
}

/// Called by SQLite when it meets a lock, with how often it met the same one before; 0 ends the wait.
extern "C" fn wait(waits: *mut c_void, times: c_int) -> c_int {
    #[expect(
        unsafe_code,
        reason = "SQLite hands back what it was given as a bare address"
    )]
    // SAFETY: it is what `attend` gave: a `Waits` that is never freed, and that is only read from here on.
    let waits = unsafe { &*waits.cast_const().cast::<Waits>() };
    let (pause, waited) = pause_after(usize::try_from(times).unwrap_or(usize::MAX));
    if waited >= BUSY_TIMEOUT {
        return 0;
    }
    let stop = waits.stop.get();
    if waited >= PATIENCE && stop.is_some_and(CancellationToken::is_cancelled) {
        waits.gave_up.store(true, Ordering::Relaxed);
        return 0;
    }
    std::thread::sleep(pause);
    1
}

/// How long to wait before the next try, and how long it was waited before this one.
fn pause_after(tries: usize) -> (Duration, Duration) {
    let last = PAUSES_MS[PAUSES_MS.len() - 1];
    let next = PAUSES_MS.get(tries).copied().unwrap_or(last);
    let first: u64 = PAUSES_MS.iter().take(tries).sum();
    let others = (tries.saturating_sub(PAUSES_MS.len()) as u64).saturating_mul(last);
    (
        Duration::from_millis(next),
        Duration::from_millis(first.saturating_add(others)),
    )
}

impl Store {
    /// Opens a database for a command that a signal may stop: that ends the opening, too, whatever takes it so long.
    ///
    /// # Errors
    /// Those of [`Store::open`], and [`StoreError::StoppedOpening`].
    pub async fn open_until(url: &str, access: Access, stop: &CancellationToken) -> Result<Self> {
        let store = tokio::select! {
            store = Self::open(url, access) => store?,
            // What it began is rolled back with its connections.
            () = given_up(stop) => return Err(StoreError::StoppedOpening(ToldToStop)),
        };
        store.give_up_after(stop);
        Ok(store)
    }

    /// From now on, a statement that waits for somebody else's lock ends with [`StoreError::Stopped`] a few seconds after
    /// `stop` is cancelled. The first token that is given counts.
    pub fn give_up_after(&self, stop: &CancellationToken) {
        let waits = match self {
            Self::Sqlite(store) => &store.waits,
            Self::Postgres(store) => &store.waits,
        };
        if waits.stop.set(stop.clone()).is_err() {
            return;
        }
        if let Self::Postgres(store) = self {
            let options = store.pool.connect_options();
            let (stop, over) = (stop.clone(), waits.over.clone());
            tokio::spawn(end_waits(options, Arc::downgrade(waits), stop, over));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever sent the signal waits by their own clock"
)]
async fn given_up(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(PATIENCE).await;
}

/// Ends the waits of sessions on a server from the signal on, as long as there are any.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever sent the signal waits by their own clock"
)]
async fn end_waits(
    options: Arc<PgConnectOptions>,
    waits: Weak<Waits>,
    stop: CancellationToken,
    over: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = over.cancelled() => return,
    }
    let mut is_told = false;
    while !over.is_cancelled() {
        if let Err(error) = look(&options, &waits).await {
            // Where the server is gone, nobody waits for its locks.
            if is_told || is_passing(&error) {
                tracing::debug!("who waits for a lock cannot be seen: {}", plain(error));
            } else {
                is_told = true;
                tracing::warn!(
                    "who waits for a lock cannot be seen, so a second signal ends a command that waits for one: {}",
                    plain(error)
                );
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever sent the signal waits by their own clock"
)]
async fn look(options: &PgConnectOptions, waits: &Weak<Waits>) -> Result<(), sqlx::Error> {
    // Not one of the pool's: these may all be waiting.
    let mut connection = options.connect().await?;
    // The server shows sessions of a user to that user.
    connection.execute("SET ROLE NONE").await?;
    let mut looks: HashMap<String, u32> = HashMap::new();
    while let Some(waits) = waits.upgrade() {
        let waiting: Vec<String> = sqlx::query_scalar(WAITING)
            .bind(waits.sessions())
            .fetch_all(&mut connection)
            .await?;
        looks = waiting
            .into_iter()
            .map(|statement| {
                let before = looks.get(&statement).copied().unwrap_or_default();
                (statement, before + 1)
            })
            .collect();
        let long = looks.iter().filter(|(_, looks)| **looks > LOOKS);
        let long: Vec<String> = long.map(|(statement, _)| statement.clone()).collect();
        if !long.is_empty() {
            // Before the statement ends, whose error is then told as what it is.
            let gave_up = waits.gave_up.swap(true, Ordering::Relaxed);
            let ended: Result<Vec<bool>, _> = sqlx::query_scalar(CANCEL)
                .bind(long)
                .fetch_all(&mut connection)
                .await;
            if !matches!(&ended, Ok(ended) if ended.contains(&true)) {
                waits.gave_up.store(gave_up, Ordering::Relaxed);
            }
            ended?;
        }
        drop(waits);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    #[test]
    fn pauses_grow_and_are_summed_up() {
        let of = |tries| {
            let (next, waited) = pause_after(tries);
            (next.as_millis(), waited.as_millis())
        };
        assert_eq!(of(0), (1, 0));
        assert_eq!(of(3), (10, 8));
        assert_eq!(of(11), (100, 228));
        assert_eq!(of(12), (100, 328));
        assert_eq!(of(112), (100, 10_328));
        assert!(pause_after(usize::MAX).1 > BUSY_TIMEOUT);
    }

    #[test]
    fn a_stop_is_seen_through_the_errors_around_it() {
        let stopped = StoreError::Stopped {
            what: "store posts",
            source: ToldToStop,
        };
        assert!(is_stop(&stopped) && stopped.is_passing());
        assert!(!is_stop(&StoreError::Away));
    }

    #[test]
    fn of_queries_without_an_answer_only_those_that_were_ended_were_told_to_stop() {
        let waits = Waits::default();
        let judged = |is_passing| {
            let error = StoreError::Unanswered {
                said: "the end".to_owned(),
                advice: "",
                is_passing,
            };
            is_stop(&waits.judge::<()>(Err(error)).unwrap_err())
        };
        assert!(!judged(false));
        waits.gave_up.store(true, Ordering::Relaxed);
        assert!(judged(false));
        assert!(!judged(true));
    }

    #[tokio::test]
    async fn the_opening_of_a_database_that_never_answers_ends_without_a_word_of_locks() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://me@{}/db", server.local_addr().unwrap());
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped = Store::open_until(&url, Access::Existing, &stop).await;
        let stopped = stopped.unwrap_err();
        assert!(is_stop(&stopped), "{stopped}");
        let said = stopped.to_string();
        assert!(said.contains("before the database was open"), "{said}");
        assert!(!said.contains("lock"), "{said}");
    }

    #[tokio::test]
    async fn a_wait_for_another_writer_of_sqlite_ends_after_a_signal_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let stop = CancellationToken::new();
        let store = Store::open_until(&url, Access::Create, &stop)
            .await
            .unwrap();
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        // Waits, until the lock is free.
        let (kept, freed) = tokio::join!(store.keep("a", "1"), async {
            tokio::task::yield_now().await;
            other.execute("COMMIT").await
        });
        freed.unwrap();
        kept.unwrap();

        other.execute("BEGIN IMMEDIATE").await.unwrap();
        stop.cancel();
        let given_up = store.keep("a", "2").await.unwrap_err();
        assert!(is_stop(&given_up), "{given_up}");
        other.execute("COMMIT").await.unwrap();
        // What waits for nobody is done.
        store.keep("b", "3").await.unwrap();
        assert_eq!(store.kept("a").await.unwrap().as_deref(), Some("1"));
        // The end of a run waits less for those who read, and the connection then waits as before.
        assert!(store.fold().await.unwrap());
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let given_up = store.keep("a", "4").await.unwrap_err();
        assert!(is_stop(&given_up), "{given_up}");
        drop(other);
        store.close().await.unwrap();
    }
}
