//! Bounds waits for locks and makes them cancellable.
//!
//! A statement waits for a lock for at most [`STEP`]. Then the database cancels the statement and rolls its transaction
//! back, and the call is repeated. If the token passed to [`Store::open_cancellable`] is cancelled, the call returns
//! [`StoreError::Cancelled`] instead. A cancellation takes effect only after such a rollback, so a call that returns
//! this error has changed nothing, and any other call has ended as usual.

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Access, Result, Store, StoreError};

/// Lock timeout for a statement: longer than locks are usually held, and short enough for someone who is waiting for a
/// command to stop.
pub(super) const STEP: Duration = Duration::from_secs(3);

/// The operation was cancelled by a signal or a stage timeout. Always the root cause of its error chain; see
/// [`is_cancelled`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the command was cancelled")]
pub struct Cancelled;

/// Returns true if the root cause of an error is [`Cancelled`].
pub fn is_cancelled(error: &(dyn Error + 'static)) -> bool {
    error.is::<Cancelled>() || error.source().is_some_and(is_cancelled)
}

impl Store {
    /// Opens a database. Cancelling `stop` cancels the opening, and every later wait for a lock.
    ///
    /// # Errors
    /// As for [`Store::open`], and [`StoreError::OpenCancelled`].
    pub async fn open_cancellable(
        url: &str,
        access: Access,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let store = tokio::select! {
            store = Self::open(url, access) => store?,
            // Dropping the connections rolls back what was begun.
            () = stop_grace_over(stop) => return Err(StoreError::OpenCancelled(Cancelled)),
        };
        let stops = match &store {
            Self::Sqlite(store) => &store.stop,
            Self::Postgres(store) => &store.stop,
        };
        stops.set(stop.clone()).expect("the store was just opened");
        Ok(store)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the sender of the signal waits in real time"
)]
async fn stop_grace_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STEP).await;
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor, SqliteConnection};

    use super::*;

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

    #[tokio::test]
    async fn a_wait_for_another_sqlite_writer_ends_only_when_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let stop = CancellationToken::new();
        let store = Store::open_cancellable(&url, Access::Create, &stop)
            .await
            .unwrap();
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        // Waits longer than one step, until the lock is released.
        let (kept, freed) = tokio::join!(store.set_meta("a", "1"), async {
            let now = CancellationToken::new();
            now.cancel();
            stop_grace_over(&now).await;
            other.execute("COMMIT").await
        });
        freed.unwrap();
        kept.unwrap();

        other.execute("BEGIN IMMEDIATE").await.unwrap();
        stop.cancel();
        let cancelled = store.set_meta("a", "2").await.unwrap_err();
        assert!(
            is_cancelled(&cancelled) && cancelled.is_transient(),
            "{cancelled}"
        );
        other.execute("COMMIT").await.unwrap();
        // A call that need not wait succeeds.
        store.set_meta("b", "3").await.unwrap();
        assert_eq!(store.meta("a").await.unwrap().as_deref(), Some("1"));
        // A checkpoint sets a shorter timeout, and restores the usual one.
        assert!(store.checkpoint().await.unwrap());
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let cancelled = store.set_meta("a", "4").await.unwrap_err();
        assert!(is_cancelled(&cancelled), "{cancelled}");
        drop(other);
        store.close().await.unwrap();
    }
}
