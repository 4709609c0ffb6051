//! Waits for a database that is unreachable: a server restart, a broken network, a file that another process locks.
//!
//! A run that ends by itself waits for about two minutes, and then fails. A watcher waits as long as it takes. Both log
//! the outage once, and its end.
//!
//! A network that silently drops a response is worse: the driver would wait for ever, and the heartbeat of the waiting
//! worker would keep its posts leased. So calls while posts are leased have a timeout, and are retried on another
//! connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::worker::Worker;
use topicmill_store::StoreError;

/// Waits between the attempts of one call, each of which may take a while too: long enough for a restart of a
/// server. A watcher repeats the last one.
const WAITS_SECS: [u64; 6] = [1, 2, 4, 8, 15, 30];
/// Timeout of a call while posts are leased: twice the busy timeout of SQLite. The server ends an idle transaction
/// after a minute, so nothing stays locked.
const LONGEST_CALL: Duration = Duration::from_mins(10);
/// Extra time for a call after a signal: enough for a conflict between two transactions.
const AFTER_A_SIGNAL: Duration = Duration::from_secs(3);

/// State of the database connection, shared by all calls of a run.
pub(super) struct Patience<'a> {
    worker: &'a Worker<'a>,
    endless: bool,
    away: AtomicBool,
}

impl<'a> Patience<'a> {
    /// `endless`: that of a watcher.
    pub(super) fn new(worker: &'a Worker<'a>, endless: bool) -> Self {
        let away = AtomicBool::new(false);
        Self {
            worker,
            endless,
            away,
        }
    }

    /// True if the database was unreachable for the last call that ended.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// As [`wait`](Self::wait), and no call takes longer than [`LONGEST_CALL`].
    pub(super) async fn wait_in_hand<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.wait(async || {
            let ended = tokio::time::timeout(LONGEST_CALL, call()).await;
            ended.unwrap_or(Err(StoreError::Away))
        })
        .await
    }

    /// Repeats what the database could not do for a passing reason. Only for calls that may be done twice.
    pub(super) async fn wait<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Worker { clock, stop, .. } = *self.worker;
        let mut ended = call().await;
        let mut waits = WAITS_SECS.into_iter();
        loop {
            let error = match ended {
                // It was told to stop, and it would wait for the same again.
                Err(error @ StoreError::Stopped { .. }) => return Err(error),
                Err(error) if error.is_transient() => error,
                ended => {
                    if self.away.swap(false, Ordering::Relaxed) {
                        tracing::info!("the database answers again");
                    }
                    return ended;
                }
            };
            // `swap`, because all lanes meet the same outage, and one of them is to tell of it.
            if !self.away.swap(true, Ordering::Relaxed) {
                let how_long = if self.endless {
                    "until it does"
                } else {
                    "for a minute or two"
                };
                tracing::warn!("the database does not answer; trying again {how_long}: {error}");
            }
            let last = self.endless.then_some(WAITS_SECS[WAITS_SECS.len() - 1]);
            let Some(wait_secs) = waits.next().or(last) else {
                return Err(error);
            };
            tracing::debug!(wait_secs, "the database does not answer: {error}");
            let again = async {
                clock.sleep(Duration::from_secs(wait_secs)).await;
                call().await
            };
            let stopped = async {
                stop.cancelled().await;
                clock.sleep(AFTER_A_SIGNAL).await;
            };
            ended = tokio::select! {
                ended = again => ended,
                () = stopped => return Err(error),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use topicmill_core::Stage;
    use topicmill_core::clock::{Clock, ManualClock, SharedClock};
    use topicmill_store::{Access, Store};

    #[tokio::test]
    async fn a_call_whose_answer_was_lost_on_the_way_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open(&url, Access::Create).await.unwrap();
        let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
        let now = manual.now().into();
        let run = store
            .runs()
            .begin_run(Stage::Classify, "w", now)
            .await
            .unwrap();
        let clock: SharedClock = manual.clone();
        let worker = Worker {
            store: &store,
            clock: &clock,
            stop: &CancellationToken::new(),
            name: "w",
            run,
        };
        let patience = Patience::new(&worker, false);
        // What nobody answers takes no time here.
        tokio::time::pause();
        let mut calls = 0;
        let answer = patience.wait_in_hand(async || {
            calls += 1;
            if calls == 1 {
                std::future::pending::<()>().await;
            }
            Ok("written")
        });
        assert_eq!(answer.await.unwrap(), "written");
        assert_eq!(calls, 2);
        assert_eq!(manual.sleeps(), [Duration::from_secs(WAITS_SECS[0])]);
        assert!(!patience.is_away());
    }
}
