//! What happens to slots, told to those who look: the log, monitors and people.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::classify::worker_name;
use crate::cli::setup::Setup;
use crate::domain::{RunStatus, SlotStatus, Timestamp};
use crate::metrics::Metrics;
use crate::notify;
use crate::schedule::{Event, Span};
use crate::store::Store;

/// A slot that starts later than this is told as late.
const LATE: Duration = Duration::from_mins(1);

/// Everything that happens to slots comes by here.
pub struct Telling {
    metrics: Arc<Metrics>,
    to_people: mpsc::UnboundedSender<EndedSlot>,
    /// A message takes seconds, which no slot waits for.
    messenger: JoinHandle<()>,
}

/// A slot whose end people may want to hear of.
struct EndedSlot {
    slot: i64,
    schedule: String,
    status: RunStatus,
    error: Option<String>,
}

impl Telling {
    pub fn begin(setup: &Setup, store: &Store) -> Self {
        let (to_people, mut ended) = mpsc::unbounded_channel::<EndedSlot>();
        let (store, clock, notify) = (store.clone(), setup.clock.clone(), setup.notify.clone());
        let messenger = tokio::spawn(async move {
            let worker = worker_name();
            while let Some(slot) = ended.recv().await {
                let what = format!("schedule {}", slot.schedule);
                let ended = notify::Ended {
                    what: &what,
                    run: slot.slot,
                    is_slot: true,
                    status: slot.status,
                    counts: &Value::Null,
                    error: slot.error.as_deref(),
                    worker: &worker,
                };
                notify.ended(&store, &ended, clock.now()).await;
            }
        });
        Self {
            metrics: setup.metrics.clone(),
            to_people,
            messenger,
        }
    }

    pub fn happened(&self, event: &Event<'_>) {
        log(event);
        match *event {
            Event::Missed {
                schedule, slots, ..
            } => self.metrics.slots(schedule, "missed", slots),
            Event::Skipped { schedule, .. } => self.metrics.slots(schedule, "skipped", 1),
            Event::Started { schedule, late, .. } => self.metrics.slot_began(schedule, late),
            Event::Ended {
                slot,
                schedule,
                status,
                error,
                ..
            } => {
                self.metrics.slots(schedule, status.as_str(), 1);
                let status = match status {
                    SlotStatus::Failed => RunStatus::Failed,
                    SlotStatus::Done => RunStatus::Done,
                    SlotStatus::Partial => RunStatus::Partial,
                    _ => return,
                };
                // The receiver lives until `end`.
                let _ = self.to_people.send(EndedSlot {
                    slot,
                    schedule: schedule.to_owned(),
                    status,
                    error: error.map(str::to_owned),
                });
            }
            Event::Lost { .. } => {}
        }
    }

    /// Returns when everything was told.
    pub async fn end(self) {
        drop(self.to_people);
        // It ends by itself, and a panic in it was printed.
        let _ = self.messenger.await;
    }
}

fn log(event: &Event<'_>) {
    let utc = |time: Timestamp| time.as_datetime().format("%Y-%m-%d %H:%M UTC");
    match *event {
        Event::Missed {
            schedule,
            slots,
            since,
            ..
        } => {
            tracing::warn!(schedule, slots, since = %utc(since), "slots were missed: no scheduler ran");
        }
        Event::Skipped {
            schedule,
            due_at,
            why,
        } => tracing::warn!(schedule, slot = %utc(due_at), "a slot is skipped: {why}"),
        Event::Started {
            schedule,
            due_at,
            late,
            deaths,
        } => {
            let late = Some(late).filter(|late| *late > LATE);
            let late = late.map(|late| Span(late).to_string());
            let deaths = Some(deaths).filter(|deaths| *deaths > 0);
            tracing::info!(schedule, slot = %utc(due_at), late, deaths, "a slot starts");
        }
        Event::Ended {
            schedule,
            due_at,
            status,
            took,
            error,
            ..
        } => {
            let (slot, secs) = (utc(due_at), took.as_secs());
            match (status, error) {
                (SlotStatus::Failed, error) => {
                    let error = error.unwrap_or_default();
                    tracing::error!(schedule, %slot, secs, "a slot failed: {error}");
                }
                (SlotStatus::Waiting, _) => {
                    tracing::info!(schedule, %slot, secs, "a slot was stopped, and goes on when a scheduler runs again");
                }
                (status, None) => tracing::info!(schedule, %slot, secs, %status, "a slot ended"),
                (status, Some(error)) => {
                    tracing::warn!(schedule, %slot, secs, %status, "a slot ended: {error}");
                }
            }
        }
        Event::Lost { schedule, due_at } => {
            tracing::warn!(schedule, slot = %utc(due_at), "the slot is another process's now, or its end could not be recorded");
        }
    }
}
