//! Heartbeats of runs: each run writes one at intervals, so that a crashed run can be recognised.

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Context;
use topicmill_store::{RunId, StoreError, UnfinishedRun};

/// The interval of heartbeats. On SQLite each heartbeat also wakes a `classify --watch`, which polls once a minute
/// anyway.
pub(super) const INTERVAL: Duration = Duration::from_mins(1);
/// Time for a stopped run to record its end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Writes heartbeats of a run until dropped.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes measure heartbeats in real time, not by this run's clock"
)]
pub(super) async fn send_heartbeats(context: &Context, run: RunId) -> Infallible {
    loop {
        tokio::time::sleep(context.heartbeat).await;
        if let Err(error) = context.store.runs().record_heartbeat(run).await {
            // This is no warning, because a run counts as crashed only after ten missed heartbeats.
            tracing::debug!("a heartbeat was not recorded: {error}");
        }
        // With the WAL checkpointed, a copy of the SQLite file alone contains most of the run.
        if let Err(error) = context.store.checkpoint_passive().await {
            tracing::debug!("the WAL was not checkpointed: {error}");
        }
    }
}

/// Resolves after `stop` is cancelled and the time to record the end of the run is over.
#[expect(
    clippy::disallowed_methods,
    reason = "the sender of the signal waits in real time"
)]
pub(super) async fn stop_grace_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_GRACE).await;
}

/// Returns why a run crashed that is still recorded as running; `None` if it may be active. `worker` is the name of
/// this process.
pub fn crash_of(run: &UnfinishedRun, worker: &str) -> Option<&'static str> {
    if topicmill_store::has_worker_exited(&run.worker, worker) {
        Some("its process was killed")
    } else if !run.is_alive() {
        Some("it stopped sending heartbeats")
    } else {
        None
    }
}

/// Records crashed runs.
pub(super) async fn record_crashed_runs(context: &Context) -> Result<(), StoreError> {
    let runs = context.store.runs();
    for run in runs.unfinished_runs().await? {
        if let Some(why) = crash_of(&run, &context.worker) {
            tracing::info!(run = run.id.0, worker = %run.worker, "an earlier run crashed: {why}");
            runs.mark_crashed(run.id, why).await?;
        }
    }
    Ok(())
}
