//! What is done while the database is away: a server that restarts, a network that breaks, a file that another
//! process locks for long.
//!
//! A run that comes to an end by itself waits for about a minute or two, and then fails. A watcher waits anyway,
//! so no outage is too long for it. Both tell that the database is away, once, and when it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::LabelWorker;
use crate::store::StoreError;

/// Waits between the attempts of one call, each of which may take a while too: long enough for a restart of a
/// server. A watcher repeats the last one.
const WAITS_SECS: [u64; 6] = [1, 2, 4, 8, 15, 30];
/// How much longer a call may take once a signal came: enough for a conflict between two transactions.
const AFTER_A_SIGNAL: Duration = Duration::from_secs(3);

/// What all calls of a run know of the database being away.
pub(super) struct Patience<'a> {
    worker: &'a LabelWorker<'a>,
    endless: bool,
    away: AtomicBool,
}

impl<'a> Patience<'a> {
    /// `endless`: that of a watcher.
    pub(super) fn new(worker: &'a LabelWorker<'a>, endless: bool) -> Self {
        let away = AtomicBool::new(false);
        Self {
            worker,
            endless,
            away,
        }
    }

    /// Whether the last call that ended found the database away.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Repeats what the database could not do for a passing reason. Only for calls that may be done twice.
    pub(super) async fn wait<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let LabelWorker { clock, stop, .. } = *self.worker;
        let mut ended = call().await;
        let mut waits = WAITS_SECS.into_iter();
        loop {
            let error = match ended {
                Err(error) if error.is_passing() => error,
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
