//! Executes one scheduled run under its lease: its stages one after another, heartbeats alongside, and the record of
//! its end.

use std::time::Duration;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::ScheduleEntry;
use super::decide::utc;
use topicmill_core::clock::SharedClock;
use topicmill_core::{ScheduledRunStatus, format_setting};
use topicmill_store::{ClaimedScheduledRun, ScheduledRunEnd, ScheduledRunLease, Store, StoreError};

/// Time for a cancelled stage to stop before it is abandoned.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Waits between attempts to record the end, in seconds.
const RETRY_WAITS_SECS: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// The result of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageEnd {
    /// [`ScheduledRunStatus::Done`], [`ScheduledRunStatus::Partial`] or [`ScheduledRunStatus::Failed`].
    pub status: ScheduledRunStatus,
    /// The exit code that the command would have had.
    pub exit: u8,
    /// The error.
    pub error: Option<String>,
    /// True if the remaining stages are skipped, because the database failed.
    pub skips_rest: bool,
}

/// A stage to run.
#[derive(Debug, Clone, Copy)]
pub struct StageOrder<'a> {
    /// The key of the scheduled run, for run records.
    pub scheduled_run: i64,
    /// The words of the command line.
    pub words: &'a [String],
    /// Cancelled by a signal, by the timeout, or because another process reclaimed the run.
    pub stop: &'a CancellationToken,
}

/// The handles that a scheduled run gets from its scheduler.
#[derive(Debug, Clone)]
pub(super) struct RunnerContext {
    pub store: Store,
    pub clock: SharedClock,
    pub lease: Duration,
}

/// Renews the lease of a scheduled run. If another process has reclaimed the run, cancels `lost` and `halt`, and ends.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes measure leases in real time, not by this run's clock"
)]
async fn renew(
    context: RunnerContext,
    lease: ScheduledRunLease,
    lost: CancellationToken,
    halt: CancellationToken,
) {
    let mut wait = context.lease / 3;
    loop {
        tokio::time::sleep(wait).await;
        let (schedules, now) = (context.store.schedules(), context.clock.now().into());
        let renewed = schedules.renew_scheduled_run(lease, context.lease, now);
        // The response may be lost in the network.
        let renewed = tokio::time::timeout(context.lease / 3, renewed).await;
        wait = context.lease / 3;
        match renewed.unwrap_or(Err(StoreError::NotResponding)) {
            Ok(true) => {}
            Ok(false) => {
                lost.cancel();
                return halt.cancel();
            }
            Err(error) => {
                let id = lease.id;
                tracing::warn!(id, "the lease of a scheduled run was not renewed: {error}");
                wait = context.lease / 12;
            }
        }
    }
}

/// Runs the stages of a claimed scheduled run, starting after the last one that ended. Returns its status; `None` if a
/// signal interrupted it, another process has reclaimed it, or its end could not be recorded.
pub(super) async fn run(
    context: RunnerContext,
    entry: &ScheduleEntry,
    claimed: ClaimedScheduledRun,
    stop: &CancellationToken,
    work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
) -> Option<ScheduledRunStatus> {
    let (schedule, lease) = (entry.name.as_str(), claimed.lease);
    let due = utc(claimed.due_at);
    let late = claimed.started_at.as_datetime() - claimed.due_at.as_datetime();
    tracing::info!(
        schedule,
        due,
        late_secs = late.num_seconds(),
        "a scheduled run starts"
    );
    let (halt, lost) = (stop.child_token(), CancellationToken::new());
    let renewals = renew(context.clone(), lease, lost.clone(), halt.clone());
    let _renewals = AbortOnDropHandle::new(tokio::spawn(renewals));
    let mut outcomes = claimed.outcomes.clone();
    let ended = run_stages(&context, entry, &claimed, &halt, work, &mut outcomes).await;
    if lost.is_cancelled() {
        tracing::warn!(
            schedule,
            due,
            "another process has reclaimed a scheduled run"
        );
        return None;
    }
    let end = match ended {
        Ok(()) => summary(outcomes),
        Err(Halted::TimedOut(stage)) => {
            let timeout = TimeDelta::from_std(entry.timeout.unwrap_or_default());
            ScheduledRunEnd {
                status: ScheduledRunStatus::Failed,
                outcomes,
                error: Some(format!(
                    "it exceeded its timeout of {} and was stopped in `{stage}`",
                    format_setting(timeout.unwrap_or_default())
                )),
            }
        }
        Err(Halted::Cancelled) => {
            let (schedules, now) = (context.store.schedules(), context.clock.now().into());
            let released = schedules.renew_scheduled_run(lease, Duration::ZERO, now);
            if let Err(error) = released.await {
                tracing::warn!(
                    schedule,
                    due,
                    "the lease of a scheduled run was not released: {error}"
                );
            }
            tracing::info!(
                schedule,
                due,
                "a scheduled run was stopped, and continues when a scheduler runs again"
            );
            return None;
        }
    };
    record(&context, lease, &end, stop).await?;
    match (end.status, end.error) {
        (ScheduledRunStatus::Failed, Some(error)) => {
            tracing::error!(schedule, due, "a scheduled run failed: {error}");
        }
        (status, Some(error)) => {
            tracing::warn!(schedule, due, %status, "a scheduled run ended: {error}");
        }
        (status, None) => tracing::info!(schedule, due, %status, "a scheduled run ended"),
    }
    Some(end.status)
}

/// The reason why the stages ended early.
enum Halted {
    /// A signal arrived, or another process reclaimed the run.
    Cancelled,
    /// The run exceeded its timeout in this stage.
    TimedOut(String),
}

async fn run_stages(
    context: &RunnerContext,
    entry: &ScheduleEntry,
    claimed: &ClaimedScheduledRun,
    halt: &CancellationToken,
    work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
    outcomes: &mut Vec<Value>,
) -> Result<(), Halted> {
    let (clock, timed_out) = (&context.clock, CancellationToken::new());
    // At the timeout, cancels the stage; resolves if the stage does not stop either.
    let deadline = async {
        match entry.timeout {
            Some(timeout) => clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
        timed_out.cancel();
        halt.cancel();
        clock.sleep(STOP_TIMEOUT).await;
    };
    let halted = |stage| {
        if timed_out.is_cancelled() {
            Halted::TimedOut(stage)
        } else {
            Halted::Cancelled
        }
    };
    let mut deadline = std::pin::pin!(deadline);
    for words in entry.stages.iter().skip(outcomes.len()) {
        let stage = words.join(" ");
        if halt.is_cancelled() {
            return Err(halted(stage));
        }
        let begun = clock.elapsed();
        let order = StageOrder {
            scheduled_run: claimed.lease.id,
            words,
            stop: halt,
        };
        let end = tokio::select! {
            biased;
            end = work(order) => end,
            () = &mut deadline => return Err(halted(stage)),
        };
        if halt.is_cancelled() {
            return Err(halted(stage));
        }
        let took = clock.elapsed().saturating_sub(begun);
        outcomes.push(json!(StageOutcome {
            stage,
            status: end.status,
            exit: end.exit,
            secs: took.as_secs(),
            error: end.error,
        }));
        if end.skips_rest {
            return Ok(());
        }
        // A process that reclaims the run continues after this stage. If this write fails, that process repeats the
        // stage.
        let schedules = context.store.schedules();
        if let Err(error) = schedules.record_stages(claimed.lease, outcomes).await {
            tracing::warn!(schedule = %entry.name, "the end of a stage was not recorded: {error}");
        }
    }
    Ok(())
}

/// The result of a stage, as it is stored.
#[derive(Serialize, Deserialize)]
struct StageOutcome {
    stage: String,
    status: ScheduledRunStatus,
    #[serde(default)]
    exit: u8,
    #[serde(default)]
    secs: u64,
    error: Option<String>,
}

/// Combines the results of the stages.
fn summary(outcomes: Vec<Value>) -> ScheduledRunEnd {
    // A stage of another version may be stored with other fields.
    let stages = outcomes.iter().map(StageOutcome::deserialize);
    let stages: Vec<StageOutcome> = stages.filter_map(Result::ok).collect();
    // The statuses of a stage are declared from best to worst.
    let worst = stages.iter().map(|stage| stage.status).max();
    let error_of =
        |stage: &StageOutcome| Some(format!("`{}`: {}", stage.stage, stage.error.as_ref()?));
    let errors: Vec<String> = stages.iter().filter_map(error_of).collect();
    ScheduledRunEnd {
        status: worst.unwrap_or(ScheduledRunStatus::Done),
        error: (!errors.is_empty()).then(|| errors.join("; ")),
        outcomes,
    }
}

/// Records the end, with retries while the database is unavailable. Returns `None` if another process has reclaimed the
/// run, or the end could not be recorded.
async fn record(
    context: &RunnerContext,
    lease: ScheduledRunLease,
    end: &ScheduledRunEnd,
    stop: &CancellationToken,
) -> Option<()> {
    let mut waits = RETRY_WAITS_SECS.into_iter();
    loop {
        let (schedules, now) = (context.store.schedules(), context.clock.now().into());
        match schedules.finish_scheduled_run(lease, end, now).await {
            Ok(is_ours) => return is_ours.then_some(()),
            Err(error) => tracing::warn!("the end of a scheduled run was not recorded: {error}"),
        }
        let wait = waits
            .next()
            .filter(|wait| *wait <= 2 || !stop.is_cancelled());
        context.clock.sleep(Duration::from_secs(wait?)).await;
    }
}
