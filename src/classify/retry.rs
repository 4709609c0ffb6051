//! Retries calls while the database is unreachable: a server restart, a broken network, a file locked by another
//! process.
//!
//! A normal run waits a minute in all between its attempts, and then fails; a watcher retries forever. Both log the
//! start and the end of an outage once.
//!
//! If the network silently drops a response, the driver would wait forever, and the worker's heartbeat would keep its
//! posts leased. So calls that are made while posts are leased have a timeout and are retried on a different
//! connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::run::Run;
use topicmill_store::StoreError;

/// Waits between the attempts of one call, in seconds: long enough for a server restart. A watcher repeats the last
/// wait.
const BACKOFF_SECS: [u64; 6] = [1, 2, 4, 8, 15, 30];
/// Timeout for a call while posts are leased: twice SQLite's busy timeout. The server ends an idle transaction after a
/// minute, so nothing remains locked.
const CALL_TIMEOUT: Duration = Duration::from_mins(10);
/// Extra time for a call after a signal: enough to wait until a conflicting transaction ends.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Retries database calls; shared by all calls of a run.
pub(super) struct Retry<'a> {
    run: Run<'a>,
    forever: bool,
    unreachable: AtomicBool,
}

impl<'a> Retry<'a> {
    /// Creates the retry policy of a run. A watcher retries `forever`.
    pub(super) fn new(run: Run<'a>, forever: bool) -> Self {
        let unreachable = AtomicBool::new(false);
        Self {
            run,
            forever,
            unreachable,
        }
    }

    /// Returns true if the last call found the database unreachable.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Like [`run`](Self::run), with a timeout of [`CALL_TIMEOUT`] for each attempt.
    pub(super) async fn run_with_timeout<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run(async || {
            let ended = tokio::time::timeout(CALL_TIMEOUT, call()).await;
            ended.unwrap_or(Err(StoreError::NotResponding))
        })
        .await
    }

    /// Makes a call and repeats it after transient errors. The call must be idempotent.
    pub(super) async fn run<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Run { clock, stop, .. } = self.run;
        let mut ended = call().await;
        let mut waits = BACKOFF_SECS.into_iter();
        loop {
            let error = match ended {
                // The run was stopped while it waited, so it must not wait again.
                Err(error @ StoreError::Cancelled { .. }) => return Err(error),
                // It has waited long enough.
                Err(error @ StoreError::Locked { .. }) if !self.forever => return Err(error),
                Err(error) if error.is_transient() => error,
                ended => {
                    if self.unreachable.swap(false, Ordering::Relaxed) {
                        tracing::info!("the database responds again");
                    }
                    return ended;
                }
            };
            // `swap`, because all lanes see the same outage and only one of them logs it.
            if !self.unreachable.swap(true, Ordering::Relaxed) {
                let duration = if self.forever {
                    "until it does"
                } else {
                    "for a minute or two"
                };
                tracing::warn!("the database is not responding; retrying {duration}: {error}");
            }
            let last = self.forever.then_some(BACKOFF_SECS[BACKOFF_SECS.len() - 1]);
            let Some(wait_secs) = waits.next().or(last) else {
                return Err(error);
            };
            tracing::debug!(wait_secs, "the database is not responding: {error}");
            let again = async {
                clock.sleep(Duration::from_secs(wait_secs)).await;
                call().await
            };
            let stopped = async {
                stop.cancelled().await;
                clock.sleep(STOP_GRACE).await;
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
    async fn a_call_whose_response_was_lost_is_retried() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open(&url, Access::Create).await.unwrap();
        let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
        let now = manual.now().into();
        let run = store.runs().begin_run(Stage::Classify, "w", now).await;
        let run = run.unwrap();
        let clock: SharedClock = manual.clone();
        let run = Run {
            store: &store,
            clock: &clock,
            stop: &CancellationToken::new(),
            worker: "w",
            id: run,
        };
        let retry = Retry::new(run, false);
        // With paused time, timeouts expire immediately.
        tokio::time::pause();
        let mut calls = 0;
        let answer = retry.run_with_timeout(async || {
            calls += 1;
            if calls == 1 {
                std::future::pending::<()>().await;
            }
            Ok("written")
        });
        assert_eq!(answer.await.unwrap(), "written");
        assert_eq!(calls, 2);
        assert_eq!(manual.sleeps(), [Duration::from_secs(BACKOFF_SECS[0])]);
        assert!(!retry.is_unreachable());
    }
}
