//! Whether a run lives: each one shows it now and then, so that others can tell one that was killed.

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Context;
use crate::notify::EndedWork;
use topicmill_core::RunStatus;
use topicmill_core::record::RunCounts;
use topicmill_store::{RunId, Running, Store, StoreError};

/// How often a run shows that it lives. On SQLite a watcher looks for new posts whenever another connection wrote,
/// which it does once a minute anyway.
pub(super) const INTERVAL: Duration = Duration::from_mins(1);
/// A run that showed no life for this long is taken for dead: ten beats were missed.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Runs of earlier versions show none; one that began this long ago is taken for dead.
const TIMEOUT_WITHOUT_HEARTBEATS: Duration = Duration::from_hours(24);
/// How long a stopped run waits for its end to be recorded.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Shows that a run lives, until it is dropped.
#[expect(
    clippy::disallowed_methods,
    reason = "others judge a life by the time that passes for them, and not by this run's clock"
)]
pub(super) async fn send_heartbeats(context: &Context, run: RunId) -> Infallible {
    loop {
        tokio::time::sleep(context.heartbeat).await;
        if let Err(error) = context.store.runs().beat(run).await {
            // Nine more may be missed.
            tracing::debug!("a sign of life was not recorded: {error}");
        }
        // Whoever copies the file of a SQLite database while this runs gets most of what it wrote.
        if let Err(error) = context.store.fold_a_little().await {
            tracing::debug!("the database's log was not folded into its file: {error}");
        }
    }
}

/// Ends when a run was stopped and its end should have been recorded.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever sent the signal waits by their own clock"
)]
pub(super) async fn stop_grace_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_GRACE).await;
}

/// The runs that died without a word, and what their record should say.
///
/// # Errors
/// Those of the store.
pub async fn crashed_runs(
    store: &Store,
    me: &str,
) -> Result<Vec<(Running, &'static str)>, StoreError> {
    let runs = store.runs().running().await?.into_iter();
    let crashed = runs.filter_map(|run| {
        // Earlier versions recorded no signs of life, so a run without any may well be alive.
        let timeout = if run.beats {
            TIMEOUT
        } else {
            TIMEOUT_WITHOUT_HEARTBEATS
        };
        let why = if topicmill_store::died(&run.worker, me) {
            "its process was killed"
        } else if run.silent > timeout {
            "it showed no sign of life any more"
        } else {
            return None;
        };
        Some((run, why))
    });
    Ok(crashed.collect())
}

/// Records the deaths of runs that died without a word.
pub(super) async fn record_crashed_runs(context: &Context) -> Result<(), StoreError> {
    let store = &context.store;
    for (run, why) in crashed_runs(store, &context.worker).await? {
        tracing::info!(run = run.id.0, worker = %run.worker, "an earlier run died: {why}");
        store.runs().note_death(run.id, why).await?;
        if let Some(row) = store.runs().run(run.id).await? {
            context
                .notify_ended(&EndedWork {
                    what: row.stage.as_str(),
                    run: row.id,
                    status: RunStatus::Died,
                    counts: &RunCounts::read(row.stage, &row.counts),
                    error: Some(why),
                    worker: &run.worker,
                })
                .await;
        }
    }
    Ok(())
}
