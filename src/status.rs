//! How it stands: is it running, is it behind, what failed, what to do.
//!
//! What enters is the store. What leaves is an [`StatusReport`] for the screen and for programs, the one thing that is to be
//! done next, and for a monitor what is too old. Nothing is written.

mod limits;
mod next;
mod topics;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::pipeline;
use topicmill_core::{MAX_CLOCK_SETBACK, MAX_CLOCK_SKEW, RunStatus, Stage, Timestamp};
use topicmill_store::{
    Beside, Failure, Gap, LabelledBeside, LabellingState, LastRun, Newest, RunRow, SlotRow,
    StageRuns, Store, StoreError,
};

pub use self::limits::{Limits, Problem};
pub(crate) use self::next::short_hash;
use self::next::use_command;
pub use self::next::{ConfiguredDefaults, NextCommand};
pub use self::topics::FailedTopic;

/// The latest runs, for programs.
const RECENT_RUNS: u32 = 5;
/// Runs of `collect` that are looked back upon for topics that failed.
const RECENT_COLLECT_RUNS: u32 = 100;
/// A run that labelled fewer posts says little of the pace: most of its time is loading the model.
const MIN_POSTS_FOR_PACE: u32 = 50;
/// A slot that failed longer ago is no news: its schedule may be gone from the pipeline file.
const FAILED_RUN_AGE: TimeDelta = TimeDelta::days(7);

/// How it stands.
#[derive(Debug, Serialize)]
pub struct StatusReport {
    /// When this was looked at.
    pub now: Timestamp,
    /// The labelling under the current model and label set.
    pub backlog: LabellingState,
    /// Whether the numbers of `backlog` are estimates.
    pub is_estimate: bool,
    /// The newest posts.
    pub newest: Newest,
    /// Runs under way.
    pub running: Vec<ActiveRun>,
    /// How each stage ended last.
    pub stages: Vec<LastRun>,
    /// What each stage did in the last 24 hours.
    pub last_day: Vec<StageRuns>,
    /// Posts a second of the latest run that labelled some.
    pub posts_per_sec: Option<f64>,
    /// How long the backlog takes at that pace.
    pub seconds_left: Option<u64>,
    /// Topics whose latest reading failed.
    pub failed_topics: Vec<FailedTopic>,
    /// Schedules whose latest run failed.
    pub failed_slots: Vec<FailedScheduledRun>,
    /// Why posts were set aside.
    pub failures: Vec<Failure>,
    /// Label sets that posts wait for beside the current one.
    pub beside: Vec<Beside>,
    /// The labels beside the current ones that the newest waiting posts have, if each of them has one.
    pub labelled_beside: Option<LabelledBeside>,
    /// Times of which posts are missing.
    pub gaps: Vec<Gap>,
    /// The latest runs.
    pub runs: Vec<RunRow>,
    /// Whether bytes of purged posts may be in the database's files still.
    pub is_rewrite_due: bool,
    /// What `classify` labels with where no flag says more, as far as whoever asks knows it.
    #[serde(skip)]
    pub defaults: ConfiguredDefaults,
}

/// A schedule of which the latest slot failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedScheduledRun {
    /// The schedule.
    pub schedule: String,
    /// When the slot was due.
    pub due_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What went wrong.
    pub error: Option<String>,
}

impl From<SlotRow> for FailedScheduledRun {
    fn from(slot: SlotRow) -> Self {
        Self {
            schedule: slot.schedule,
            due_at: slot.due_at,
            finished_at: slot.finished_at,
            error: slot.error,
        }
    }
}

/// A run that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveRun {
    /// Its key.
    pub id: i64,
    /// The stage.
    pub stage: Stage,
    /// Host and process.
    pub worker: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it last showed that it lives.
    pub seen_at: Timestamp,
}

impl StatusReport {
    /// Looks. `me` is this process among workers; posts that failed `max_attempts` times are set aside.
    /// `exact` counts where a large database would be estimated.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        store: &Store,
        max_attempts: u32,
        now: DateTime<Utc>,
        me: &str,
        exact: bool,
    ) -> Result<Self, StoreError> {
        let (backlog, is_estimate) = if exact {
            (
                store.outlook().standing(max_attempts, now.into()).await?,
                false,
            )
        } else {
            let about = store.outlook().about(max_attempts, now.into()).await?;
            (about.standing, about.is_estimate)
        };
        let mut runs = store.runs().recent_runs(None, RECENT_RUNS).await?;
        let mut stages = store.runs().last_runs().await?;
        let mut running = Vec::new();
        let dead = pipeline::crashed_runs(store, me).await?;
        for run in store.runs().running().await? {
            // Recorded by the next run that begins; this one only reads.
            if let Some((_, why)) = dead.iter().find(|(dead, _)| dead.id == run.id) {
                mark_crashed(&mut runs, run.id.0, run.seen_at, why);
                if let Some(row) = store.runs().run(run.id).await? {
                    mark_crashed_stage(&mut stages, &row, run.seen_at, why);
                }
            } else if let Some(row) = store.runs().run(run.id).await? {
                running.push(ActiveRun {
                    id: row.id,
                    stage: row.stage,
                    worker: run.worker,
                    started_at: row.started_at,
                    seen_at: run.seen_at,
                });
            }
        }
        let failures = if backlog.set_aside > 0 {
            store.backlog().failures(max_attempts).await?
        } else {
            Vec::new()
        };
        let posts_per_sec = store.runs().pace(MIN_POSTS_FOR_PACE).await?;
        let labelled_beside = if backlog.unlabelled > 0 {
            store.outlook().labelled_beside().await?
        } else {
            None
        };
        let (since, until) = (now - FAILED_RUN_AGE, now + MAX_CLOCK_SETBACK);
        let failed = store
            .schedules()
            .failed_slots(since.into(), until.into())
            .await?;
        Ok(Self {
            now: now.into(),
            seconds_left: posts_per_sec.and_then(|pace| seconds(backlog.unlabelled, pace)),
            backlog,
            is_estimate,
            newest: store
                .outlook()
                .newest((now + MAX_CLOCK_SKEW).into())
                .await?,
            running,
            stages,
            last_day: store
                .runs()
                .runs_since((now - TimeDelta::days(1)).into())
                .await?,
            posts_per_sec,
            failed_topics: topics::failed(&store.runs().outcomes(RECENT_COLLECT_RUNS).await?),
            failed_slots: failed.into_iter().map(FailedScheduledRun::from).collect(),
            failures,
            beside: store.outlook().beside().await?,
            labelled_beside,
            gaps: store.posts().gaps().await?,
            runs,
            is_rewrite_due: store.purging().is_rewrite_due().await?,
            defaults: ConfiguredDefaults::default(),
        })
    }

    /// Posts that wait for a label and are not set aside.
    pub fn waiting(&self) -> i64 {
        (self.backlog.unlabelled - self.backlog.set_aside).max(0)
    }

    /// Whether a run of a stage is under way.
    pub fn is_running(&self, stage: Stage) -> bool {
        self.running.iter().any(|run| run.stage == stage)
    }

    /// Stages whose last run failed or crashed, unless one of the stage is under way.
    pub fn failed_stages(&self) -> impl Iterator<Item = &LastRun> {
        let bad = self.stages.iter().filter(|last| last.is_bad());
        bad.filter(|last| !self.is_running(last.stage))
    }

    /// How long ago something was.
    pub fn since(&self, time: Timestamp) -> TimeDelta {
        self.now.as_datetime() - time.as_datetime()
    }
}

fn mark_crashed(runs: &mut [RunRow], id: i64, seen_at: Timestamp, why: &str) {
    if let Some(run) = runs.iter_mut().find(|run| run.id == id) {
        run.status = RunStatus::Died;
        run.finished_at = Some(seen_at);
        run.error = Some(why.to_owned());
    }
}

/// A run that crashed is the last of its stage, unless a later one ended.
fn mark_crashed_stage(stages: &mut Vec<LastRun>, row: &RunRow, seen_at: Timestamp, why: &str) {
    let crashed = LastRun {
        stage: row.stage,
        id: row.id,
        status: RunStatus::Died,
        finished_at: seen_at,
        error: Some(why.to_owned()),
        good_at: None,
    };
    match stages.iter_mut().find(|last| last.stage == row.stage) {
        Some(last) if last.id > row.id => {}
        Some(last) => {
            let good_at = last.good_at;
            *last = LastRun { good_at, ..crashed };
        }
        None => stages.push(crashed),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a time that nobody takes for exact"
)]
fn seconds(posts: i64, pace: f64) -> Option<u64> {
    (posts > 0).then(|| (posts as f64 / pace).ceil() as u64)
}
