//! Heartbeats of runs: each run writes one at intervals, so that a crashed run can be recognised.

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Context;
use topicmill_store::{RunId, Store, StoreError, UnfinishedRun};

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
            // Not a warning, because a run counts as crashed only after ten missed heartbeats.
            tracing::debug!("a heartbeat was not recorded: {error}");
        }
        // Checkpoints the WAL, so that a copy of the SQLite file alone contains most of the run.
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

/// Returns the crashed runs that are still recorded as running, each with the reason.
///
/// # Errors
/// Errors of the store.
pub async fn crashed_runs(
    store: &Store,
    me: &str,
) -> Result<Vec<(UnfinishedRun, &'static str)>, StoreError> {
    let runs = store.runs().unfinished_runs().await?.into_iter();
    let crashed = runs.filter_map(|run| {
        let why = if topicmill_store::has_worker_exited(&run.worker, me) {
            "its process was killed"
        } else if !run.is_alive() {
            "it stopped sending heartbeats"
        } else {
            return None;
        };
        Some((run, why))
    });
    Ok(crashed.collect())
}

/// Records crashed runs.
pub(super) async fn record_crashed_runs(context: &Context) -> Result<(), StoreError> {
    let store = &context.store;
    for (run, why) in crashed_runs(store, &context.worker).await? {
        tracing::info!(run = run.id.0, worker = %run.worker, "an earlier run crashed: {why}");
        store.runs().mark_crashed(run.id, why).await?;
    }
    Ok(())
}
