//! Waits for locks that others hold, and how a signal ends them.
//!
//! No statement waits for a lock for longer than [`STEP`]. The database then ends it and rolls its transaction back,
//! and the call is done again, unless the token is cancelled that [`Store::open_until`] was given: then it ends with
//! [`StoreError::Stopped`]. So no call is dropped of which nobody knows whether it was done, and a statement that works
//! is left to its end.

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Access, Result, Store, StoreError};

/// Lock timeout of a statement: longer than locks are usually held, and no longer than people wait for a command to
/// end.
pub(super) const STEP: Duration = Duration::from_secs(3);

/// The operation was cancelled by a signal or at the end of a stage's time. Always the root cause of its error chain;
/// see [`is_stop`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it was told to stop")]
pub struct ToldToStop;

/// True if an error only says that a wait was cancelled.
pub fn is_stop(error: &(dyn Error + 'static)) -> bool {
    error.is::<ToldToStop>() || error.source().is_some_and(is_stop)
}

impl Store {
    /// Opens a database for a command that a signal may stop: that ends the opening, too, whatever takes it so long,
    /// and each later wait for a lock.
    ///
    /// # Errors
    /// As [`Store::open`], and [`StoreError::StoppedOpening`].
    pub async fn open_until(url: &str, access: Access, stop: &CancellationToken) -> Result<Self> {
        let store = tokio::select! {
            store = Self::open(url, access) => store?,
            // What it began is rolled back with its connections.
            () = given_up(stop) => return Err(StoreError::StoppedOpening(ToldToStop)),
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
    reason = "whoever sent the signal waits by their own clock"
)]
async fn given_up(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STEP).await;
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor, SqliteConnection};

    use super::*;

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
        // Waits for more than one step, until the lock is free.
        let (kept, freed) = tokio::join!(store.keep("a", "1"), async {
            let now = CancellationToken::new();
            now.cancel();
            given_up(&now).await;
            other.execute("COMMIT").await
        });
        freed.unwrap();
        kept.unwrap();

        other.execute("BEGIN IMMEDIATE").await.unwrap();
        stop.cancel();
        let given_up = store.keep("a", "2").await.unwrap_err();
        assert!(is_stop(&given_up) && given_up.is_transient(), "{given_up}");
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
