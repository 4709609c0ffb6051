//! One slot from the moment it is taken to its end: its stages one after another, a sign of life beside them, and a
//! word about how it ended.

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
use topicmill_store::{SlotEnd, SlotLease, Store, StoreError, TakenSlot};

/// How long a stage that was told to stop may take to do so, before it is left where it is.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a renewal of the claim may take, where a third of the claim is longer.
const RENEW_TIMEOUT: Duration = Duration::from_mins(1);
/// Waits between the attempts to record an end.
const RETRY_WAITS_SECS: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageEnd {
    /// [`ScheduledRunStatus::Done`], [`ScheduledRunStatus::Partial`] or [`ScheduledRunStatus::Failed`].
    pub status: ScheduledRunStatus,
    /// EventKind the command would have exited with.
    pub exit: u8,
    /// EventKind went wrong.
    pub error: Option<String>,
    /// Whether the stages behind it need not be tried, because the database failed.
    pub skips_rest: bool,
}

/// A stage to run.
#[derive(Debug, Clone, Copy)]
pub struct StageOrder<'a> {
    /// The schedule.
    pub schedule: &'a str,
    /// Key of the slot, for the records of runs.
    pub scheduled_run: i64,
    /// The command line.
    pub words: &'a [String],
    /// Cancelled when it is to stop: by a signal, by the timeout, or because another process took the slot over.
    pub stop: &'a CancellationToken,
}

/// EventKind a slot needs of its scheduler.
#[derive(Debug, Clone)]
pub(super) struct RunnerContext {
    pub store: Store,
    pub clock: SharedClock,
    pub lease: Duration,
}

/// Shows that a slot is worked on, until it is dropped.
struct Heartbeat {
    beats: tokio::task::JoinHandle<()>,
    lost: Arc<AtomicBool>,
}

impl Heartbeat {
    fn start(context: &RunnerContext, lease: SlotLease, halt: CancellationToken) -> Self {
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
    reason = "others judge a life by the time that passes for them, and not by this slot's clock"
)]
async fn beat(
    context: RunnerContext,
    lease: SlotLease,
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
            .renew_slot(lease, context.lease, now);
        // The network may lose the answer.
        let renewed = tokio::time::timeout(RENEW_TIMEOUT.min(context.lease / 3), renewed).await;
        wait = context.lease / 3;
        match renewed.unwrap_or(Err(StoreError::Away)) {
            Ok(true) => {}
            Ok(false) => {
                lost.store(true, Ordering::SeqCst);
                return halt.cancel();
            }
            Err(error) => {
                tracing::warn!(slot = lease.slot, "a slot was not renewed: {error}");
                wait = context.lease / 12;
            }
        }
    }
}

/// Runs the stages of a slot that was taken, from the first that has not ended yet.
pub(super) async fn run(
    context: RunnerContext,
    entry: &Entry,
    taken: TakenSlot,
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
        deaths: taken.deaths,
    });
    let halt = stop.child_token();
    let heartbeat = Heartbeat::start(&context, taken.lease, halt.clone());
    let mut outcomes = taken.outcomes.clone();
    let ended = stages(&context, entry, &taken, &halt, work, &mut outcomes).await;
    let mut end = match ended {
        StagesEnd::Finished => summary(outcomes),
        StagesEnd::TimedOut(stage) => SlotEnd {
            status: ScheduledRunStatus::Failed,
            outcomes,
            error: Some(format!(
                "it took longer than its timeout of {}, and was stopped in `{stage}`",
                format_duration(
                    entry
                        .timeout
                        .and_then(|it| TimeDelta::from_std(it).ok())
                        .unwrap_or_default()
                )
            )),
        },
        StagesEnd::Cancelled => SlotEnd {
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
        id: taken.lease.slot,
        status: end.status,
        took: clock.elapsed().saturating_sub(begun),
        error: end.error.as_deref(),
    });
    Some(end.status)
}

/// Why the stages of a slot came to an end.
enum StagesEnd {
    /// All were tried that are to be tried.
    Finished,
    /// A signal came, or another process took the slot.
    Cancelled,
    /// In this stage.
    TimedOut(String),
}

async fn stages(
    context: &RunnerContext,
    entry: &Entry,
    taken: &TakenSlot,
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
            scheduled_run: taken.lease.slot,
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
        // Whoever takes the slot over goes on behind this stage. If that cannot be written, it does the stage again.
        if let Err(error) = context
            .store
            .schedules()
            .note_stages(taken.lease, outcomes)
            .await
        {
            tracing::warn!(schedule = %entry.name, "the end of a stage is not recorded: {error}");
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

/// How a slot ended whose stages ended so.
fn summary(outcomes: Vec<Value>) -> SlotEnd {
    let is = |outcome: &Value, status: ScheduledRunStatus| outcome["status"] == json!(status);
    let any = |status| outcomes.iter().any(|outcome| is(outcome, status));
    let status = if any(ScheduledRunStatus::Failed) {
        ScheduledRunStatus::Failed
    } else if any(ScheduledRunStatus::Partial) {
        ScheduledRunStatus::Partial
    } else {
        ScheduledRunStatus::Done
    };
    let said = |outcome: &Value| {
        let error = outcome["error"].as_str()?;
        Some(format!("`{}`: {error}", outcome["stage"].as_str()?))
    };
    let errors: Vec<String> = outcomes.iter().filter_map(said).collect();
    SlotEnd {
        status,
        error: Some(errors.join("; ")).filter(|text| !text.is_empty()),
        outcomes,
    }
}

/// Records an end, however long the database takes to come back; false if another process took the slot over.
async fn record(
    context: &RunnerContext,
    lease: SlotLease,
    end: &SlotEnd,
    stop: &CancellationToken,
) -> bool {
    let mut waits = RETRY_WAITS_SECS.into_iter();
    loop {
        let now = context.clock.now().into();
        let error: StoreError = match context.store.schedules().end_slot(lease, end, now).await {
            Ok(is_ours) => return is_ours,
            Err(error) => error,
        };
        let wait = waits
            .next()
            .filter(|wait| *wait <= 2 || !stop.is_cancelled());
        let Some(wait) = wait else {
            tracing::error!(
                slot = lease.slot,
                "the end of a slot is not recorded, so that it will be run again: {error}"
            );
            return false;
        };
        tracing::warn!("the end of a slot is not recorded yet, trying again: {error}");
        context.clock.sleep(Duration::from_secs(wait)).await;
    }
}
