//! The scheduler: starts due runs under a lease, executes them concurrently, and sleeps until the next one.
//!
//! Any number of schedulers may run on any number of machines. Each step is one conditional statement on shared rows,
//! so each run is executed once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::ScheduleEntry;
use super::decide::{Decision, decide, utc};
use super::scheduled_run::{self, RunnerContext, StageEnd, StageOrder};
use topicmill_core::ScheduledRunStatus;
use topicmill_core::clock::SharedClock;
use topicmill_store::{
    ClaimedScheduledRun, ScheduledRunClaimant, ScheduledRunEnd, Store, StoreError,
    has_worker_exited,
};

/// Maximum sleep, and so the longest delay until a crashed process or a changed clock is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(10);
/// Minimum sleep, so that a small difference between clocks does not cause a busy loop.
const MIN_SLEEP: Duration = Duration::from_millis(200);

/// Executes the schedules of a pipeline file.
#[derive(Debug)]
pub struct Scheduler {
    context: RunnerContext,
    worker: String,
    entries: Vec<ScheduleEntry>,
    /// The schedules with a run in this process. Its lease may expire, for example when the machine sleeps, although
    /// no process crashed.
    active: BTreeSet<String>,
}

/// The numbers of scheduled runs that ended in a process.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// All runs.
    pub runs: usize,
    /// Scheduled runs that failed or were partial.
    pub failed: usize,
}

/// A scheduled run that this process no longer executes.
struct EndedRun {
    schedule: String,
    /// The status that it ended with; `None` if a signal interrupted it, another process has reclaimed it,
    /// or its end could not be recorded.
    status: Option<ScheduledRunStatus>,
}

/// Active runs.
type Running<'a> = FuturesUnordered<LocalBoxFuture<'a, EndedRun>>;

impl Scheduler {
    /// Creates a scheduler. `worker`: see [`topicmill_store::worker_name`].
    pub fn new(
        store: Store,
        clock: SharedClock,
        worker: String,
        lease: Duration,
        entries: Vec<ScheduleEntry>,
    ) -> Self {
        Self {
            context: RunnerContext {
                store,
                clock,
                lease,
            },
            worker,
            entries,
            active: BTreeSet::new(),
        }
    }

    /// Executes due runs until `stop` is cancelled, then waits for active runs to end. If `once`, ends when nothing is
    /// due or active.
    ///
    /// # Errors
    /// Errors of the store at the start, and at the end if `once`; other errors are retried indefinitely.
    pub async fn run(
        &mut self,
        once: bool,
        stop: &CancellationToken,
        work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
    ) -> Result<Ended, StoreError> {
        let clock = self.context.clock.clone();
        let mut running = Running::new();
        let mut ended = Ended::default();
        let mut is_down = false;
        self.start(&mut running, stop, work).await?;
        while !(stop.is_cancelled() || once && running.is_empty()) {
            let wait = self.wait();
            tokio::select! {
                () = async { clock.sleep(wait).await }, if !once => {}
                Some(run) = running.next() => self.end(&run, &mut ended),
                () = stop.cancelled() => break,
            }
            match self.start(&mut running, stop, work).await {
                Ok(()) if is_down => {
                    is_down = false;
                    tracing::info!("the database responds again");
                }
                Ok(()) => {}
                Err(error) if once && running.is_empty() => return Err(error),
                Err(error) if is_down => tracing::debug!("the database is not responding: {error}"),
                Err(error) => {
                    is_down = true;
                    tracing::warn!("no scheduled run starts until the database responds: {error}");
                }
            }
        }
        while let Some(run) = running.next().await {
            self.end(&run, &mut ended);
        }
        Ok(ended)
    }

    /// Counts a run that has ended.
    fn end(&mut self, run: &EndedRun, ended: &mut Ended) {
        self.active.remove(&run.schedule);
        ended.runs += 1;
        let failed = [ScheduledRunStatus::Failed, ScheduledRunStatus::Partial];
        ended.failed += usize::from(run.status.is_some_and(|status| failed.contains(&status)));
    }

    /// Returns the time until something may be due, by this machine's clock.
    fn wait(&self) -> Duration {
        let now = self.context.clock.now();
        let due = |entry: &ScheduleEntry| entry.timetable.after(now);
        let next = self.entries.iter().filter_map(due).min();
        next.and_then(|next| (next - now).to_std().ok())
            .map_or(MAX_SLEEP, |wait| wait.clamp(MIN_SLEEP, MAX_SLEEP))
    }

    /// Starts the runs that are due.
    async fn start<'a, W: AsyncFn(StageOrder<'_>) -> StageEnd>(
        &mut self,
        running: &mut Running<'a>,
        stop: &'a CancellationToken,
        work: &'a W,
    ) -> Result<(), StoreError> {
        for entry in self.entries.clone() {
            if stop.is_cancelled() {
                break;
            }
            let Some(claimed) = self.claim(&entry).await? else {
                continue;
            };
            self.active.insert(entry.name.clone());
            let context = self.context.clone();
            running.push(Box::pin(async move {
                let status = scheduled_run::run(context, &entry, claimed, stop, work).await;
                let schedule = entry.name;
                EndedRun { schedule, status }
            }));
        }
        Ok(())
    }

    /// Claims the run of a schedule that is due, or that a process has left.
    async fn claim(
        &self,
        entry: &ScheduleEntry,
    ) -> Result<Option<ClaimedScheduledRun>, StoreError> {
        let (name, schedules) = (entry.name.as_str(), self.context.store.schedules());
        let now = self.context.clock.now().into();
        let state = schedules.schedule_state(name, now).await?;
        let claimant = ScheduledRunClaimant {
            worker: &self.worker,
            lease: self.context.lease,
        };
        let lost = state.running.as_ref().filter(|run| {
            !self.active.contains(name)
                && (run.is_expired || has_worker_exited(&run.worker, &self.worker))
        });
        match decide(entry, &state, lost) {
            Decision::Wait => Ok(None),
            Decision::Start(due) => {
                let started = schedules.start_scheduled_run(name, due, &claimant, now);
                started.await
            }
            Decision::Skip(due, why) => {
                if schedules.skip_scheduled_run(name, due, &why).await? {
                    tracing::warn!(
                        schedule = name,
                        due = utc(due),
                        "a scheduled run is skipped: {why}"
                    );
                }
                Ok(None)
            }
            Decision::Resume(lost) => {
                tracing::info!(
                    schedule = name,
                    due = utc(lost.due_at),
                    "resuming the scheduled run of another process"
                );
                schedules.reclaim_scheduled_run(lost, &claimant, now).await
            }
            Decision::Replace(lost, due) => {
                let why = "its process ended, and no scheduler resumed it before the next due time";
                tracing::warn!(
                    schedule = name,
                    due = utc(lost.due_at),
                    "a scheduled run is abandoned: {why}"
                );
                let end = ScheduledRunEnd {
                    status: ScheduledRunStatus::Stopped,
                    outcomes: lost.outcomes.clone(),
                    error: Some(why.to_owned()),
                };
                let finished = schedules.finish_scheduled_run(lost.lease, &end, now);
                finished.await?;
                let started = schedules.start_scheduled_run(name, due, &claimant, now);
                started.await
            }
        }
    }
}
