//! Bounds waits for locks and makes them cancellable, and repeats transactions that conflict with others.
//!
//! A statement waits for a lock for at most [`STEP`]. Then the database cancels the statement and rolls its transaction
//! back, and the call is repeated. After [`NOTICE`], the holder of the lock is logged, and after [`LIMIT`], the call
//! returns [`StoreError::Locked`]. If the token passed to [`Store::open_cancellable`] is cancelled, the call returns
//! [`StoreError::Cancelled`] instead. A cancellation takes effect only after such a rollback, so a call that returns
//! this error has changed nothing, and any other call has ended as usual.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::driver_error::{is_busy, is_conflict};
use super::{Result, StoreError};

/// Lock timeout for a statement: longer than locks are usually held, and short enough for someone who is waiting for a
/// command to stop.
pub(super) const STEP: Duration = Duration::from_millis(2_500);
/// Time until a waiting call logs the holder of the lock.
pub(super) const NOTICE: Duration = Duration::from_secs(5);
/// Maximum wait for a lock: as long as a rewrite of a large database may take.
pub(super) const LIMIT: Duration = Duration::from_mins(5);
/// Number of steps until [`LIMIT`].
const MAX_STEPS: u32 = 120;
/// Time until a repeated statement waits for its lock again.
const BLOCKED_AGAIN: Duration = Duration::from_millis(200);

/// Maximum number of attempts of a call whose transaction is rolled back by a deadlock or a serialization failure.
const MAX_CONFLICTS: u32 = 5;

/// Makes a call, and repeats it while it times out on a lock or conflicts with another writer. Returns the result of
/// the last attempt.
macro_rules! repeat {
    ($store:expr, $call:expr) => {{
        let mut wait = $crate::lock_wait::LockWait::default();
        loop {
            let attempt = $store.waits.attempt(&mut wait, $call, $store.lock_holder());
            let ended = attempt.await;
            if let ::std::ops::ControlFlow::Break(ended) = $store.waits.wait_on(ended, &mut wait) {
                break ended;
            }
        }
    }};
}
pub(super) use repeat;

/// The wait of a call for a lock.
#[derive(Debug, Default)]
pub(super) struct LockWait {
    /// Attempts that timed out.
    steps: u32,
    /// Attempts that conflicted with another writer.
    conflicts: u32,
    /// The operation.
    what: &'static str,
    /// Holder of the lock, once known.
    holder: Option<String>,
}

/// Logs who holds a lock that a call is waiting for.
pub(super) fn log_holder(what: &str, holder: &str) {
    let minutes = LIMIT.as_secs() / 60;
    tracing::warn!(
        "waiting to {what}: {holder} holds a lock; this command gives up after {minutes} minutes"
    );
}

/// The waits for locks of all calls to a store.
#[derive(Debug)]
pub(super) struct LockWaits {
    /// Cancels waits.
    pub stop: OnceLock<CancellationToken>,
    /// True once a wait is logged, until the lock is released.
    is_logged: AtomicBool,
    /// Maximum number of steps in a wait.
    max_steps: u32,
}

impl Default for LockWaits {
    fn default() -> Self {
        Self {
            stop: OnceLock::new(),
            is_logged: AtomicBool::new(false),
            max_steps: MAX_STEPS,
        }
    }
}

impl LockWaits {
    /// Makes an attempt of a call. If earlier attempts timed out on a lock, logs who holds it, according to `holder`.
    #[expect(clippy::disallowed_methods, reason = "other processes take real time")]
    pub(super) async fn attempt<T>(
        &self,
        wait: &mut LockWait,
        call: impl Future<Output = T>,
        holder: impl Future<Output = Option<String>>,
    ) -> T {
        // The heap holds it, because calls are nested deeply, and each level would hold a copy.
        let mut call = Box::pin(call);
        if STEP * wait.steps < NOTICE || wait.holder.is_some() {
            return call.await;
        }
        // The holder can be found only while a statement is waiting.
        let searching = async {
            tokio::time::sleep(BLOCKED_AGAIN).await;
            holder.await
        };
        tokio::select! {
            ended = &mut call => return ended,
            holder = searching => wait.holder = holder,
        }
        if let Some(holder) = &wait.holder
            && !self.is_logged.swap(true, Ordering::Relaxed)
        {
            log_holder(wait.what, holder);
        }
        call.await
    }

    /// Continues if a call timed out on a lock, or conflicted with another writer, and should be repeated. Otherwise
    /// breaks with the result of the call.
    pub(super) fn wait_on<T>(
        &self,
        ended: Result<T>,
        wait: &mut LockWait,
    ) -> ControlFlow<Result<T>> {
        let what = match &ended {
            Err(StoreError::Statement { what, source }) if is_busy(source) => *what,
            Err(StoreError::Statement { source, .. })
                if is_conflict(source) && wait.conflicts + 1 < MAX_CONFLICTS =>
            {
                // No backoff is needed: the repetition waits for the locks of the transaction that won.
                tracing::debug!("a transaction conflicted with another one: {source}");
                wait.conflicts += 1;
                return ControlFlow::Continue(());
            }
            _ => {
                if wait.holder.is_some() && self.is_logged.swap(false, Ordering::Relaxed) {
                    tracing::info!("the lock was released");
                }
                return ControlFlow::Break(ended);
            }
        };
        wait.steps += 1;
        wait.what = what;
        if self.stop.get().is_some_and(CancellationToken::is_cancelled) {
            let source = Cancelled;
            return ControlFlow::Break(Err(StoreError::Cancelled { what, source }));
        }
        if wait.steps < self.max_steps {
            return ControlFlow::Continue(());
        }
        let holder = wait.holder.take();
        ControlFlow::Break(Err(StoreError::locked(what, holder)))
    }
}

/// The operation was cancelled by a signal or a stage timeout. Always the root cause of its error chain; see
/// [`is_cancelled`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the command was cancelled")]
pub struct Cancelled;

/// Returns true if the root cause of an error is [`Cancelled`].
pub fn is_cancelled(error: &(dyn Error + 'static)) -> bool {
    error.is::<Cancelled>() || error.source().is_some_and(is_cancelled)
}

/// Waits for the cancellation, then for another step.
#[expect(
    clippy::disallowed_methods,
    reason = "the sender of the signal waits in real time"
)]
pub(super) async fn stop_grace_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STEP).await;
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor, SqliteConnection};

    use std::sync::Arc;

    use super::*;
    use crate::{Access, Store};

    #[tokio::test]
    async fn opening_an_unresponsive_database_is_cancelled_without_mentioning_locks() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://me@{}/db", server.local_addr().unwrap());
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped = Store::open_cancellable(&url, Access::Existing, &stop).await;
        let stopped = stopped.unwrap_err();
        assert!(is_cancelled(&stopped), "{stopped}");
        let message = stopped.to_string();
        assert!(
            message.contains("before the database was open"),
            "{message}"
        );
        assert!(!message.contains("lock"), "{message}");
    }

    fn database() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        (folder, url)
    }

    /// Returns a connection that holds the write lock.
    async fn writer(url: &str) -> SqliteConnection {
        let mut writer = SqliteConnection::connect(url).await.unwrap();
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        writer
    }

    #[tokio::test]
    async fn a_wait_of_more_than_one_step_ends_with_the_lock() {
        let (_folder, url) = database();
        let stop = CancellationToken::new();
        let store = Store::open_cancellable(&url, Access::Create, &stop).await;
        let store = store.unwrap();
        let mut other = writer(&url).await;
        let (kept, freed) = tokio::join!(store.set_meta("a", "1"), async {
            let now = CancellationToken::new();
            now.cancel();
            stop_grace_over(&now).await;
            other.execute("COMMIT").await
        });
        freed.unwrap();
        kept.unwrap();
        assert_eq!(store.meta("a").await.unwrap().as_deref(), Some("1"));
    }

    #[tokio::test]
    async fn only_calls_that_wait_are_cancelled_and_they_change_nothing() {
        let (_folder, url) = database();
        let stop = CancellationToken::new();
        let store = Store::open_cancellable(&url, Access::Create, &stop).await;
        let store = store.unwrap();
        let mut other = writer(&url).await;
        stop.cancel();
        let cancelled = store.set_meta("a", "2").await.unwrap_err();
        assert!(is_cancelled(&cancelled), "{cancelled}");
        assert!(cancelled.is_transient(), "{cancelled}");
        other.execute("COMMIT").await.unwrap();
        store.set_meta("b", "3").await.unwrap();
        assert_eq!(store.meta("a").await.unwrap(), None);
        // A checkpoint sets a shorter timeout, and restores the usual one.
        assert!(store.checkpoint().await.unwrap());
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let cancelled = store.set_meta("a", "4").await.unwrap_err();
        assert!(is_cancelled(&cancelled), "{cancelled}");
    }

    #[tokio::test]
    async fn without_a_signal_a_wait_ends_at_the_limit() {
        let (_folder, url) = database();
        let mut store = Store::open(&url, Access::Create).await.unwrap();
        let Store::Sqlite(limited) = &mut store else {
            panic!("{store:?}");
        };
        limited.waits = Arc::new(LockWaits {
            max_steps: 2,
            ..LockWaits::default()
        });
        let _other = writer(&url).await;
        let locked = store.set_meta("a", "5").await.unwrap_err();
        assert!(matches!(locked, StoreError::Locked { .. }), "{locked}");
        assert_eq!(locked.kind(), topicmill_core::FailureKind::Temporary);
    }
}
