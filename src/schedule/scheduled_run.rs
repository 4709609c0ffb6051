//! Executes one scheduled run under its lease: its stages one after another, heartbeats alongside, and the record of
//! its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::{Event, EventKind};
use topicmill_core::clock::SharedClock;
use topicmill_core::{CatchUp, ScheduledRunStatus, format_duration};
use topicmill_store::{ClaimedScheduledRun, ScheduledRunEnd, ScheduledRunLease, Store, StoreError};

/// Time for a cancelled stage to stop before it is abandoned.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout for a renewal; a third of the lease if that is shorter.
const RENEW_TIMEOUT: Duration = Duration::from_mins(1);
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
    /// The schedule.
    pub schedule: &'a str,
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

/// Renews the lease of a scheduled run until dropped.
struct Heartbeat {
    beats: tokio::task::JoinHandle<()>,
    lost: Arc<AtomicBool>,
}

impl Heartbeat {
    fn start(context: &RunnerContext, lease: ScheduledRunLease, halt: CancellationToken) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        let beats = tokio::spawn(beat(context.clone(), lease, halt, lost.clone()));
        Self { beats, lost }
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "other processes measure leases in real time, not by this run's clock"
)]
async fn beat(
    context: RunnerContext,
    lease: ScheduledRunLease,
    halt: CancellationToken,
    lost: Arc<AtomicBool>,
) {
    let mut wait = context.lease / 3;
    loop {
        tokio::time::sleep(wait).await;
        let now = context.clock.now().into();
        let renewed = context
            .store
            .schedules()
            .renew_scheduled_run(lease, context.lease, now);
        // The response may be lost in the network.
        let renewed = tokio::time::timeout(RENEW_TIMEOUT.min(context.lease / 3), renewed).await;
        wait = context.lease / 3;
        match renewed.unwrap_or(Err(StoreError::NotResponding)) {
            Ok(true) => {}
            Ok(false) => {
                lost.store(true, Ordering::SeqCst);
                return halt.cancel();
            }
            Err(error) => {
                tracing::warn!(
                    id = lease.id,
                    "the lease of a scheduled run was not renewed: {error}"
                );
                wait = context.lease / 12;
            }
        }
    }
}

/// Runs the stages of a claimed scheduled run, starting after the last one that ended.
pub(super) async fn run(
    context: RunnerContext,
    entry: &Entry,
    taken: ClaimedScheduledRun,
    stop: &CancellationToken,
    work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
    on_event: &dyn Fn(&Event<'_>),
) -> Option<ScheduledRunStatus> {
    let clock = &context.clock;
    let begun = clock.elapsed();
    let (schedule, due_at) = (entry.name.as_str(), taken.due_at);
    let late = (taken.started_at.as_datetime() - due_at.as_datetime()).to_std();
    let emit = |kind| {
        on_event(&Event {
            schedule,
            due_at,
            kind,
        });
    };
    emit(EventKind::Started {
        late: late.unwrap_or_default(),
        crashes: taken.crashes,
    });
    let halt = stop.child_token();
    let heartbeat = Heartbeat::start(&context, taken.lease, halt.clone());
    let mut outcomes = taken.outcomes.clone();
    let ended = stages(&context, entry, &taken, &halt, work, &mut outcomes).await;
    let mut end = match ended {
        StagesEnd::Finished => summary(outcomes),
        StagesEnd::TimedOut(stage) => ScheduledRunEnd {
            status: ScheduledRunStatus::Failed,
            outcomes,
            error: Some(format!(
                "it exceeded its timeout of {} and was stopped in `{stage}`",
                format_duration(
                    entry
                        .timeout
                        .and_then(|it| TimeDelta::from_std(it).ok())
                        .unwrap_or_default()
                )
            )),
        },
        StagesEnd::Cancelled => ScheduledRunEnd {
            status: match entry.catch_up {
                CatchUp::None => ScheduledRunStatus::Stopped,
                CatchUp::One | CatchUp::All => ScheduledRunStatus::Waiting,
            },
            outcomes,
            error: Some("a signal stopped it".to_owned()),
        },
    };
    if end.status == ScheduledRunStatus::Waiting {
        end.error = None;
    }
    let is_ours = !heartbeat.is_lost() && record(&context, taken.lease, &end, stop).await;
    drop(heartbeat);
    if !is_ours {
        emit(EventKind::Lost);
        return None;
    }
    emit(EventKind::Ended {
        id: taken.lease.id,
        status: end.status,
        took: clock.elapsed().saturating_sub(begun),
        error: end.error.as_deref(),
    });
    Some(end.status)
}

/// The reason why the stages ended.
enum StagesEnd {
    /// All stages that should run have run.
    Finished,
    /// A signal arrived, or another process reclaimed the run.
    Cancelled,
    /// The run exceeded its timeout in this stage.
    TimedOut(String),
}

async fn stages(
    context: &RunnerContext,
    entry: &Entry,
    taken: &ClaimedScheduledRun,
    halt: &CancellationToken,
    work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
    outcomes: &mut Vec<Value>,
) -> StagesEnd {
    let clock = &context.clock;
    let is_over = AtomicBool::new(false);
    let deadline = async {
        let Some(timeout) = entry.timeout else {
            return std::future::pending().await;
        };
        clock.sleep(timeout).await;
        is_over.store(true, Ordering::SeqCst);
        halt.cancel();
        clock.sleep(STOP_TIMEOUT).await;
    };
    let mut deadline = std::pin::pin!(deadline);
    for words in entry.stages.iter().skip(outcomes.len()) {
        let stage = words.join(" ");
        if halt.is_cancelled() {
            return stop_reason(&is_over, stage);
        }
        let begun = clock.elapsed();
        let order = StageOrder {
            schedule: &entry.name,
            scheduled_run: taken.lease.id,
            words,
            stop: halt,
        };
        let end = tokio::select! {
            biased;
            end = work(order) => Some(end),
            () = &mut deadline => None,
        };
        let Some(end) = end.filter(|_| !halt.is_cancelled()) else {
            return stop_reason(&is_over, stage);
        };
        let took = clock.elapsed().saturating_sub(begun);
        outcomes.push(json!({
            "stage": stage, "status": end.status, "exit": end.exit, "secs": took.as_secs(), "error": end.error,
        }));
        if end.skips_rest {
            return StagesEnd::Finished;
        }
        // A process that reclaims the run continues after this stage. If this write fails, that process repeats the
        // stage.
        if let Err(error) = context
            .store
            .schedules()
            .record_stages(taken.lease, outcomes)
            .await
        {
            tracing::warn!(schedule = %entry.name, "the end of a stage was not recorded: {error}");
        }
    }
    StagesEnd::Finished
}

fn stop_reason(is_over: &AtomicBool, stage: String) -> StagesEnd {
    if is_over.load(Ordering::SeqCst) {
        StagesEnd::TimedOut(stage)
    } else {
        StagesEnd::Cancelled
    }
}

/// Combines the results of the stages.
fn summary(outcomes: Vec<Value>) -> ScheduledRunEnd {
    let is = |outcome: &Value, status: ScheduledRunStatus| outcome["status"] == json!(status);
    let any = |status| outcomes.iter().any(|outcome| is(outcome, status));
    let status = if any(ScheduledRunStatus::Failed) {
        ScheduledRunStatus::Failed
    } else if any(ScheduledRunStatus::Partial) {
        ScheduledRunStatus::Partial
    } else {
        ScheduledRunStatus::Done
    };
    let error_of = |outcome: &Value| {
        let error = outcome["error"].as_str()?;
        Some(format!("`{}`: {error}", outcome["stage"].as_str()?))
    };
    let errors: Vec<String> = outcomes.iter().filter_map(error_of).collect();
    ScheduledRunEnd {
        status,
        error: Some(errors.join("; ")).filter(|text| !text.is_empty()),
        outcomes,
    }
}

/// Records the end, with retries while the database is unavailable. Returns false if another process reclaimed the run.
async fn record(
    context: &RunnerContext,
    lease: ScheduledRunLease,
    end: &ScheduledRunEnd,
    stop: &CancellationToken,
) -> bool {
    let mut waits = RETRY_WAITS_SECS.into_iter();
    loop {
        let now = context.clock.now().into();
        let error: StoreError = match context
            .store
            .schedules()
            .finish_scheduled_run(lease, end, now)
            .await
        {
            Ok(is_ours) => return is_ours,
            Err(error) => error,
        };
        let wait = waits
            .next()
            .filter(|wait| *wait <= 2 || !stop.is_cancelled());
        let Some(wait) = wait else {
            tracing::error!(
                id = lease.id,
                "the end of a scheduled run was not recorded, so it will run again: {error}"
            );
            return false;
        };
        tracing::warn!("the end of a scheduled run was not recorded, retrying: {error}");
        context.clock.sleep(Duration::from_secs(wait)).await;
    }
}
