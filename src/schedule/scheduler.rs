//! The scheduler: plans due runs, claims them under a lease, executes them concurrently, and sleeps until the next one.
//!
//! Any number of schedulers may run on any number of machines. Each step is one conditional statement on shared rows,
//! so each run is executed once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::plan::{self, Decided};
use super::scheduled_run::{self, RunnerContext, StageEnd, StageOrder};
use super::{Event, EventKind};
use topicmill_core::clock::SharedClock;
use topicmill_core::{ScheduledRunStatus, Timestamp};
use topicmill_store::has_worker_exited;
use topicmill_store::{
    CRASHED_TOO_OFTEN, SchedulePlan, ScheduleState, ScheduledRunClaimant, Store, StoreError,
};

/// Maximum sleep, and so the longest delay until a changed file, a crashed process or a changed clock is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(10);
/// Minimum sleep, so that a small difference between clocks does not cause a busy loop.
const MIN_SLEEP: Duration = Duration::from_millis(200);
/// The `expect` message for the lock of `OwnRuns`.
const NO_PANIC: &str = "no holder of this lock panics";
/// Maximum number of processes that may crash while executing the same run.
const MAX_CRASHES: u32 = 5;

/// Executes the schedules of a pipeline file.
#[derive(Debug)]
pub struct Scheduler {
    context: RunnerContext,
    worker: String,
    followed: Vec<FollowedSchedule>,
    own_runs: OwnRuns,
    /// Offset of the database's clock from this machine's clock.
    skew: TimeDelta,
    /// Runs that were due at most this long before their schedule was first followed are also executed.
    grace: TimeDelta,
}

/// A schedule, and when this process began to follow it, by the database's clock.
#[derive(Debug)]
struct FollowedSchedule {
    entry: Entry,
    since: Option<Timestamp>,
    clock_warned: bool,
}

/// Runs in this process. Their leases may expire, for example when the machine sleeps, although no process crashed.
#[derive(Debug, Clone, Default)]
struct OwnRuns(Arc<Mutex<BTreeSet<i64>>>);

impl OwnRuns {
    fn contains(&self, run: i64) -> bool {
        self.0.lock().expect(NO_PANIC).contains(&run)
    }

    /// Adds a run until the returned guard is dropped.
    fn take(&self, run: i64) -> OwnRun {
        self.0.lock().expect(NO_PANIC).insert(run);
        OwnRun(self.clone(), run)
    }
}

struct OwnRun(OwnRuns, i64);

impl Drop for OwnRun {
    fn drop(&mut self) {
        self.0.0.lock().expect(NO_PANIC).remove(&self.1);
    }
}

/// Active runs: the name of the schedule, and the status that the run ended with.
type Running<'a> = FuturesUnordered<LocalBoxFuture<'a, (String, Option<ScheduledRunStatus>)>>;

impl Scheduler {
    /// Creates a scheduler without schedules. `worker`: see [`topicmill_store::worker_name`].
    pub fn new(store: Store, clock: SharedClock, worker: String, lease: Duration) -> Self {
        Self {
            context: RunnerContext {
                store,
                clock,
                lease,
            },
            worker,
            followed: Vec::new(),
            own_runs: OwnRuns::default(),
            skew: TimeDelta::zero(),
            grace: TimeDelta::zero(),
        }
    }

    /// Also executes a run that was due shortly before its schedule was first followed. This is for a process that an
    /// external scheduler starts at the due time.
    #[must_use]
    pub fn started_when_due(mut self) -> Self {
        self.grace = plan::ON_TIME;
        self
    }

    /// Replaces the followed schedules. Active runs continue to their end.
    pub fn follow(&mut self, entries: Vec<Entry>) {
        let mut before: BTreeMap<String, FollowedSchedule> = std::mem::take(&mut self.followed)
            .into_iter()
            .map(|followed| (followed.entry.name.clone(), followed))
            .collect();
        let followed = entries.into_iter().map(|entry| {
            let known = before.remove(&entry.name);
            let known = known.filter(|known| known.entry.timetable == entry.timetable);
            FollowedSchedule {
                since: known.as_ref().and_then(|known| known.since),
                clock_warned: known.is_some_and(|known| known.clock_warned),
                entry,
            }
        });
        self.followed = followed.collect();
    }

    /// Executes everything that is due and returns when nothing is left: each schedule that ran, with the status of the
    /// run.
    ///
    /// # Errors
    /// Errors of the store before a run is claimed.
    pub async fn run_due(
        &mut self,
        stop: &CancellationToken,
        work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
        on_event: &dyn Fn(&Event<'_>),
    ) -> Result<Vec<(String, Option<ScheduledRunStatus>)>, StoreError> {
        let mut running = Running::new();
        let mut ended = Vec::new();
        loop {
            self.start(&mut running, stop, work, on_event).await?;
            match running.next().await {
                Some(end) => ended.push(end),
                None => return Ok(ended),
            }
        }
    }

    /// Executes due runs until cancelled, then waits for active runs to end. Calls `reload` at intervals to get changed
    /// schedules.
    ///
    /// # Errors
    /// Errors of the store at the start; later errors are retried indefinitely.
    pub async fn run_until_stopped(
        &mut self,
        stop: &CancellationToken,
        mut reload: impl FnMut() -> Option<Vec<Entry>>,
        work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
        on_event: &dyn Fn(&Event<'_>),
    ) -> Result<(), StoreError> {
        let mut running = Running::new();
        self.start(&mut running, stop, work, on_event).await?;
        let mut is_away = false;
        let clock = self.context.clock.clone();
        while !stop.is_cancelled() {
            tokio::select! {
                () = clock.sleep(self.wait()) => {}
                _ = running.next(), if !running.is_empty() => {}
                () = stop.cancelled() => break,
            }
            if let Some(entries) = reload() {
                self.follow(entries);
            }
            match self.start(&mut running, stop, work, on_event).await {
                Ok(()) if is_away => {
                    is_away = false;
                    tracing::info!("the database responds again");
                }
                Ok(()) => {}
                Err(error) if is_away => tracing::debug!("the database is not responding: {error}"),
                Err(error) => {
                    is_away = true;
                    tracing::warn!("no scheduled run starts until the database responds: {error}");
                }
            }
        }
        while running.next().await.is_some() {}
        Ok(())
    }

    /// Returns the time until something may be due.
    fn wait(&self) -> Duration {
        let now = self.context.clock.now() + self.skew;
        let waits = self.followed.iter();
        waits
            .map(|followed| plan::wait(&followed.entry, now, MAX_SLEEP))
            .min()
            .unwrap_or(MAX_SLEEP)
            .max(MIN_SLEEP)
    }

    /// Plans each schedule, and starts its next run if there is one.
    async fn start<'a, W: AsyncFn(StageOrder<'_>) -> StageEnd>(
        &mut self,
        running: &mut Running<'a>,
        stop: &'a CancellationToken,
        work: &'a W,
        on_event: &'a dyn Fn(&Event<'_>),
    ) -> Result<(), StoreError> {
        for place in 0..self.followed.len() {
            if stop.is_cancelled() {
                break;
            }
            let state = self.plan(place, on_event).await?;
            let entry = &self.followed[place].entry;
            if let Some(held) = state.running.as_ref().filter(|held| !held.is_expired) {
                if !has_worker_exited(&held.worker, &self.worker) {
                    continue;
                }
                tracing::info!(
                    schedule = %entry.name, worker = %held.worker,
                    "reclaiming the run of a crashed process"
                );
                self.context
                    .store
                    .schedules()
                    .expire_scheduled_run(held.lease)
                    .await?;
            }
            let held = state.running.as_ref().map(|held| held.lease.id);
            let is_ours = held.is_some_and(|run| self.own_runs.contains(run));
            if is_ours || state.running.is_none() && state.waiting == 0 {
                continue;
            }
            let now = self.context.clock.now().into();
            let store = &self.context.store;
            // Only a run with an expired lease can have crashed. `held` is checked first, because the call writes.
            if held.is_some()
                && let Some((run, due_at)) = store
                    .schedules()
                    .fail_crashing_scheduled_run(&entry.name, MAX_CRASHES, now)
                    .await?
            {
                on_event(&Event {
                    schedule: &entry.name,
                    due_at,
                    kind: EventKind::Ended {
                        id: run,
                        status: ScheduledRunStatus::Failed,
                        took: Duration::ZERO,
                        error: Some(CRASHED_TOO_OFTEN),
                    },
                });
                let ended = (entry.name.clone(), Some(ScheduledRunStatus::Failed));
                running.push(Box::pin(std::future::ready(ended)));
            }
            let claimant = ScheduledRunClaimant {
                worker: &self.worker,
                lease: self.context.lease,
            };
            if let Some(taken) = store
                .schedules()
                .claim_scheduled_run(&entry.name, &claimant, now)
                .await?
            {
                let (context, entry) = (self.context.clone(), entry.clone());
                let held = self.own_runs.take(taken.lease.id);
                running.push(Box::pin(async move {
                    let _held = held;
                    let ended =
                        scheduled_run::run(context, &entry, taken, stop, work, on_event).await;
                    (entry.name, ended)
                }));
            }
        }
        Ok(())
    }

    /// Writes the due runs of a schedule and returns its state.
    async fn plan(
        &mut self,
        place: usize,
        on_event: &dyn Fn(&Event<'_>),
    ) -> Result<ScheduleState, StoreError> {
        loop {
            let FollowedSchedule {
                entry,
                since,
                clock_warned,
            } = &mut self.followed[place];
            let own = self.context.clock.now();
            let state = self
                .context
                .store
                .schedules()
                .schedule_state(&entry.name, own.into())
                .await?;
            let now = state.now.as_datetime();
            self.skew = now - Timestamp::from(own).as_datetime();
            let since = *since.get_or_insert_with(|| (now - self.grace).into());
            let ahead = state.planned.as_ref().map(|planned| planned.until);
            // A plan farther ahead is reported below.
            let ahead = ahead.filter(|until| {
                *until > state.now && !plan::is_from_wrong_clock(*until, state.now)
            });
            if let Some(until) = ahead.filter(|_| !*clock_warned) {
                *clock_warned = true;
                tracing::warn!(
                    schedule = %entry.name,
                    "the clock was set back: runs due until {} UTC are already planned and do not run twice",
                    until.as_datetime().format("%Y-%m-%d %H:%M")
                );
            }
            if ahead.is_none() {
                *clock_warned = false;
            }
            let Some(decided) = plan::decide(entry, &state, since) else {
                return Ok(state);
            };
            let plan = SchedulePlan {
                name: &entry.name,
                cron: entry.timetable.line(),
                timezone: entry.timetable.zone().name(),
                from: decided.from,
                until: decided.until,
                runs: &decided.runs,
            };
            // On false, another process was faster, and the loop reads the state again.
            if self
                .context
                .store
                .schedules()
                .plan_scheduled_runs(&plan)
                .await?
            {
                emit_decided(entry, &state, &decided, on_event);
            }
        }
    }
}

fn emit_decided(
    entry: &Entry,
    state: &ScheduleState,
    decided: &Decided,
    on_event: &dyn Fn(&Event<'_>),
) {
    let schedule = entry.name.as_str();
    if decided.clock_was_wrong {
        tracing::warn!(
            schedule,
            "the schedule was planned more than a day ahead by a wrong clock: it starts again from now"
        );
    }
    let other = state
        .planned
        .as_ref()
        .filter(|planned| !plan::has_same_line(planned, entry));
    if let Some(planned) = other {
        tracing::info!(
            schedule, before = %format!("{} {}", planned.cron, planned.timezone), now = %entry.timetable,
            "the cron line has changed; if two schedulers run, give them the same pipeline file"
        );
    }
    for run in &decided.runs {
        let due_at = run.due_at;
        if let Some((runs, since)) = run.missed {
            let kind = EventKind::Missed(runs, since);
            on_event(&Event {
                schedule,
                due_at,
                kind,
            });
        }
        if run.status == ScheduledRunStatus::Skipped {
            let kind = EventKind::Skipped(run.error.as_deref().unwrap_or_default());
            on_event(&Event {
                schedule,
                due_at,
                kind,
            });
        }
    }
}
