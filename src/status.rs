//! The state of the pipeline for `status` and for monitors: what is running, the backlog, failures, and what to do
//! next.
//!
//! Reads the store and returns a [`StatusReport`], the [`NextCommand`] to run, and the [`Problem`]s that exceed a
//! monitor's [`Limits`]. Writes nothing.

mod limits;
mod next;
mod topics;

use std::collections::BTreeSet;
use std::path::Path;

use chrono::TimeDelta;
use serde::Serialize;

use crate::pipeline;
use crate::pipeline_file::Pipeline;
use crate::schedule::{OverdueSchedule, has_file_changed};

use topicmill_core::{
    Fitted, LabelSet, MAX_CLOCK_SETBACK, MAX_CLOCK_SKEW, RunStatus, ScheduledRunStatus, SourceKind,
    Timestamp,
};
use topicmill_review::evaluate::Counted;
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{
    ArchiveState, Failure, Gap, LabellingState, LastRun, NewestPost, RunRow, ScheduledRunRow,
    StageRuns, Store, StoreError, UnfinishedRun,
};

pub use self::limits::{Check, Limits, OUTDATED, Problem};
pub use self::next::NextCommand;
pub use self::topics::FailedTopic;

/// Number of latest runs in the JSON output.
const RECENT_RUNS: u32 = 5;
/// Number of runs of `collect` that are searched for failed topics: more than a day of runs every five minutes.
const RECENT_COLLECT_RUNS: u32 = 300;
/// Minimum number of posts for a run to count towards the pace. A smaller run spends most of its time on loading the
/// model.
const MIN_POSTS_FOR_PACE: u32 = 50;
/// Maximum age of a failed scheduled run that is reported; the schedule of an older run may no longer exist.
const FAILED_RUN_AGE: TimeDelta = TimeDelta::days(7);

/// The state of the pipeline.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct StatusReport {
    /// The time of the report.
    pub now: Timestamp,
    /// The backlog under the current model and label set.
    pub backlog: LabellingState,
    /// True if the counts in `backlog` are estimates.
    pub is_estimate: bool,
    /// The times of the newest posts.
    pub newest: NewestPost,
    /// The newest post in the archive; `None` if no run has read it.
    pub archive: Option<ArchiveState>,
    /// The time since which every stored post older than 36 hours has been compared with the archive.
    pub archive_reconciled_at: Option<Timestamp>,
    /// The active runs.
    pub running: Vec<UnfinishedRun>,
    /// The last finished run of each stage.
    pub stages: Vec<LastRun>,
    /// The counts of each stage in the last 24 hours.
    pub last_day: Vec<StageRuns>,
    /// Posts per second of the latest run that labelled enough posts.
    pub posts_per_sec: Option<f64>,
    /// Seconds to label the backlog at that pace; `None` if `classify` without flags would not.
    pub seconds_left: Option<u64>,
    /// Why the pipeline file in the settings cannot be read.
    pub pipeline_error: Option<String>,
    /// Topics that failed in the latest collection.
    pub failed_topics: Vec<FailedTopic>,
    /// The last runs of schedules, if they failed.
    pub failed_scheduled_runs: Vec<ScheduledRunRow>,
    /// Schedules of the pipeline file in the settings that no scheduler runs.
    pub overdue_schedules: Vec<OverdueSchedule>,
    /// True if a scheduler on this host follows earlier schedules of this file.
    pub is_scheduler_outdated: bool,
    /// Reasons why posts are parked.
    pub failures: Vec<Failure>,
    /// Time ranges with missing posts.
    pub gaps: Vec<Gap>,
    /// The latest runs.
    pub runs: Vec<RunRow>,
    /// The quality of the current labels; `None` before the first label.
    pub quality: Option<MeasuredQuality>,
    /// True if the database files may still contain bytes of purged posts.
    pub is_rewrite_due: bool,
    /// True if this database user may rewrite the files.
    #[serde(skip)]
    pub may_rewrite: bool,
    /// True if `classify` without flags labels with the current model and label set, or if there are none yet.
    #[serde(skip)]
    pub labels_current: bool,
}

/// Inputs of a [`StatusReport`] other than the database.
#[derive(Debug, Clone)]
pub struct StatusOptions<'a> {
    /// The time of the report.
    pub now: Timestamp,
    /// The name of this worker.
    pub worker: &'a str,
    /// The number of failures after which a post is parked.
    pub max_attempts: u32,
    /// False if counts of a large database may be estimates.
    pub exact: bool,
    /// The pipeline file in the settings and its path; `None` if there is none, or it cannot be read.
    pub pipeline: Option<(&'a Pipeline, &'a Path)>,
    /// Why the pipeline file in the settings cannot be read.
    pub pipeline_error: Option<String>,
    /// The label set and the name of the model that `classify` uses without flags; `None` if the settings are invalid.
    pub defaults: Option<(&'a LabelSet, &'a str)>,
}

impl StatusReport {
    /// Reads the state of the pipeline.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn read(store: &Store, options: StatusOptions<'_>) -> Result<Self, StoreError> {
        let StatusOptions {
            now, max_attempts, ..
        } = options;
        let time = now.as_datetime();
        // The runs are read before the counts. A run that ends in between is shown as active with its final counts,
        // instead of as finished with posts that are still waiting.
        let (running, runs, stages) = read_runs(store, options.worker).await?;
        let (backlog, is_estimate) = if options.exact {
            let state = store.status().labelling_state(max_attempts, now).await?;
            (state, false)
        } else {
            let estimate = store.status().estimate_labelling(max_attempts, now).await?;
            (estimate.state, estimate.is_estimate)
        };
        let failures = if backlog.parked > 0 {
            store.backlog().failures(max_attempts).await?
        } else {
            Vec::new()
        };
        let posts_per_sec = store.runs().labelling_rate(MIN_POSTS_FOR_PACE).await?;
        let until = (time + MAX_CLOCK_SETBACK).into();
        let mut failed_scheduled_runs = store.schedules().last_scheduled_runs(until).await?;
        let since = Timestamp::from(time - FAILED_RUN_AGE);
        failed_scheduled_runs.retain(|run| {
            run.status == ScheduledRunStatus::Failed && run.finished_at > Some(since)
        });
        let (posts, purging) = (store.posts(), store.purging());
        let latest = (time + MAX_CLOCK_SKEW).into();
        let yesterday = (time - TimeDelta::days(1)).into();
        let outcomes = store.runs().collect_outcomes(RECENT_COLLECT_RUNS).await?;
        let labels_current = is_default_current(store, options.defaults, &backlog).await?;
        let pace = posts_per_sec.filter(|_| labels_current);
        let mut report = Self {
            now,
            seconds_left: pace.and_then(|pace| seconds_to_label(backlog.unlabelled, pace)),
            labels_current,
            pipeline_error: options.pipeline_error,
            backlog,
            is_estimate,
            newest: store.status().newest_post(latest).await?,
            archive: store.runs().archive_state().await?,
            archive_reconciled_at: purging.reconciled_at(SourceKind::ArcticShift).await?,
            running,
            stages,
            last_day: store.runs().runs_since(yesterday).await?,
            posts_per_sec,
            failed_topics: topics::failed(&outcomes),
            failed_scheduled_runs,
            overdue_schedules: Vec::new(),
            is_scheduler_outdated: false,
            failures,
            gaps: posts.gaps().await?,
            runs,
            quality: measured_quality(store, is_estimate).await?,
            is_rewrite_due: purging.is_rewrite_due().await?,
            may_rewrite: purging.may_rewrite().await?,
        };
        if let Some((pipeline, file)) = options.pipeline {
            report.compare_with(pipeline, file, store).await?;
        }
        Ok(report)
    }

    /// Compares the state with the pipeline file in the settings: adds its overdue schedules, notes if a scheduler
    /// follows earlier ones, and ignores failures of schedules and topics that are no longer in it.
    async fn compare_with(
        &mut self,
        pipeline: &Pipeline,
        file: &Path,
        store: &Store,
    ) -> Result<(), StoreError> {
        let entries = &pipeline.schedules;
        self.is_scheduler_outdated = has_file_changed(store, file, entries).await?;
        let mut overdue = Vec::new();
        let mut is_active = false;
        for entry in entries {
            let state = store.schedules().schedule_state(&entry.name, self.now);
            let state = state.await?;
            is_active |= state.running.as_ref().is_some_and(|run| !run.is_expired);
            overdue.extend(OverdueSchedule::find(entry, &state));
        }
        // `schedule run --once` starts other schedules only after its runs have ended. An outdated scheduler follows
        // other due times.
        if !(is_active || self.is_scheduler_outdated) {
            self.overdue_schedules = overdue;
        }
        if !entries.is_empty() {
            let is_known = |name: &str| entries.iter().any(|entry| entry.name == name);
            self.failed_scheduled_runs
                .retain(|run| is_known(&run.schedule));
        }
        let topics = pipeline.topics.iter();
        let read = topics.filter(|topic| !topic.subreddits.is_empty());
        let read: BTreeSet<&str> = read.map(|topic| topic.slug.as_str()).collect();
        if !read.is_empty() {
            self.failed_topics
                .retain(|failed| read.contains(failed.topic.as_str()));
        }
        Ok(())
    }

    /// Number of posts in the backlog that are not parked.
    pub fn waiting(&self) -> i64 {
        (self.backlog.unlabelled - self.backlog.parked).max(0)
    }

    /// Returns the stages whose last run is a problem, unless a run of the stage is active.
    pub fn failed_stages(&self) -> impl Iterator<Item = &LastRun> {
        self.stages
            .iter()
            .filter(|last| last.problem().is_some() && !self.is_running(last.stage))
    }

    /// Returns the time since `time`.
    pub fn since(&self, time: Timestamp) -> TimeDelta {
        self.now.as_datetime() - time.as_datetime()
    }
}

/// Reads the active runs, the latest runs, and the last run of each stage. A crashed run is returned as such, although
/// only the next run that begins records the crash.
async fn read_runs(
    store: &Store,
    worker: &str,
) -> Result<(Vec<UnfinishedRun>, Vec<RunRow>, Vec<LastRun>), StoreError> {
    // A run that ends after this statement is in two of the lists, instead of in none.
    let unfinished = store.runs().unfinished_runs().await?;
    let mut runs = store.runs().recent_runs(None, RECENT_RUNS).await?;
    let mut stages = store.runs().last_runs().await?;
    let mut running = Vec::new();
    for run in unfinished {
        match pipeline::crash_of(&run, worker) {
            Some(why) => {
                mark_crashed(&mut runs, &run, why);
                mark_crashed_stage(&mut stages, &run, why);
            }
            None => running.push(run),
        }
    }
    Ok((running, runs, stages))
}

/// Marks a run as crashed if it is one of the latest runs.
fn mark_crashed(runs: &mut [RunRow], crashed: &UnfinishedRun, why: &str) {
    if let Some(run) = runs.iter_mut().find(|run| run.id == crashed.id) {
        run.status = RunStatus::Crashed;
        run.finished_at = Some(crashed.seen_at);
        run.error = Some(why.to_owned());
    }
}

/// Replaces a stage's last run with a crashed run, unless a later run has ended.
fn mark_crashed_stage(stages: &mut Vec<LastRun>, crashed: &UnfinishedRun, why: &str) {
    let mut last_run = LastRun {
        stage: crashed.stage,
        id: crashed.id,
        status: RunStatus::Crashed,
        finished_at: crashed.seen_at,
        error: Some(why.to_owned()),
        good_at: None,
        idle: 0,
    };
    match stages.iter_mut().find(|last| last.stage == crashed.stage) {
        Some(last) if last.id > last_run.id => {}
        Some(last) => {
            last_run.good_at = last.good_at;
            *last = last_run;
        }
        None => stages.push(last_run),
    }
}

/// Returns true if `classify` without flags labels with the current model and label set, or if there are none yet.
/// Returns false if that is unknown, because the settings or the current label set are invalid.
async fn is_default_current(
    store: &Store,
    defaults: Option<(&LabelSet, &str)>,
    backlog: &LabellingState,
) -> Result<bool, StoreError> {
    let Some(target) = store.labels().current_target().await? else {
        return Ok(true);
    };
    let current = match store.labels().label_set(target.label_set).await {
        Err(StoreError::Corrupt { .. }) => return Ok(false),
        current => current?,
    };
    Ok(defaults.is_some_and(|(set, model)| {
        let version = set.hash();
        // `classify` uses the fit of a label set.
        let is_fit = |fitted: &Fitted| fitted.base == version;
        (version == current.hash() || current.fitted.as_ref().is_some_and(is_fit))
            && backlog.model.as_deref() == Some(model)
    }))
}

/// Returns the seconds to label posts at a pace in posts per second; `None` without posts.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rough estimate"
)]
fn seconds_to_label(posts: i64, pace: f64) -> Option<u64> {
    (posts > 0).then(|| (posts as f64 / pace).ceil() as u64)
}

/// Measures the quality of the current labels and, unless the database is so large that its posts are not counted,
/// estimates their shares. Returns `None` for a damaged label set, because the rest of the status is needed most then.
async fn measured_quality(
    store: &Store,
    is_large: bool,
) -> Result<Option<MeasuredQuality>, StoreError> {
    let counted = if is_large {
        Counted::IfWaves
    } else {
        Counted::All
    };
    match quality::of_current_labels(store, counted).await {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!("the quality of the labels is unknown: {error}");
            Ok(None)
        }
        quality => quality,
    }
}
