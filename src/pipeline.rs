//! Runs the stages of the pipeline and records each run.
//!
//! All commands and schedules call the stages through [`Context`], so that their records are alike.

mod heartbeat;
mod import;
mod quota;
mod recording;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use self::heartbeat::crash_of;
pub use self::import::ImportOrder;
use self::recording::StageResult;
pub use self::recording::{RunRecord, WRITTEN_BY};
use crate::classify::{self, LabelStep};
use crate::collect::{self, ReadOptions, RefillPlan};
use crate::metrics::Metrics;
use crate::purge;
use crate::run::{Run, StageError};
use crate::telemetry;
use topicmill_core::clock::SharedClock;
use topicmill_core::record::{
    ClassifyCounts, CollectCounts, ImportCounts, PurgeCounts, RunCounts, Traffic,
};
use topicmill_core::{
    AuthorPolicy, LabelSet, Outcome, RunStatus, SECOND_READING, Stage, Timestamp, Topic,
    TopicReport,
};
use topicmill_score::Models;
use topicmill_sources::Source;
use topicmill_sources::source::Paging;
use topicmill_store::{Due, RunId, Store, StoreError};

/// The context in which stages run.
#[derive(Debug)]
pub struct Context {
    /// The database.
    pub store: Store,
    /// The clock for dates and waits.
    pub clock: SharedClock,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
    /// The name of this worker; see [`topicmill_store::worker_name`].
    pub worker: String,
    /// The interval of a run's heartbeats.
    pub heartbeat: Duration,
    /// The scheduled run that the runs belong to.
    pub scheduled_run: Option<i64>,
    /// The counters for monitors.
    pub metrics: Arc<Metrics>,
    records: Mutex<Vec<RunRecord>>,
}

/// Progress callback: receives the number of newly finished items.
pub type OnProgress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// Warns if the rows that a run read from an archive say nothing about deletions.
fn warn_without_reports(source: Option<&dyn Source>) {
    if let Some(Paging::Archive(archive)) = source.map(Source::paging)
        && let Some(rows) = archive.unreported()
    {
        tracing::warn!(
            rows,
            "the archive reported no deletions: no post older than 36 hours has `_meta`, so use `purge --retention`"
        );
    }
}

/// Age of a post when the archive has certainly read it a second time. Runs read back at least as far, by default.
const SECOND_READING_DONE: TimeDelta = TimeDelta::hours(48);

/// Records that all stored posts have been compared with the archive's second reading, which is its last, if they have.
/// The archive reads some posts later than after 36 hours, and a run has only compared these if they are older.
async fn note_second_readings(run: &Run<'_>, source: &dyn Source) -> Result<(), StoreError> {
    if !matches!(source.paging(), Paging::Archive(_)) {
        return Ok(());
    }
    let now = run.now().as_datetime();
    let due = Due {
        source: source.kind(),
        before: Timestamp::EPOCH,
        created_before: (now - SECOND_READING_DONE).into(),
    };
    let as_of = (now - (SECOND_READING_DONE - SECOND_READING)).into();
    run.store.purging().note_reconciled(due, as_of).await?;
    Ok(())
}

/// Returns a source's traffic, for a run's counts.
fn traffic_of(source: &dyn Source) -> BTreeMap<String, Traffic> {
    let section = source.kind().traits().section;
    BTreeMap::from([(section.to_owned(), source.traffic())])
}

impl Context {
    /// Creates a context without recorded runs.
    pub fn new(store: Store, clock: SharedClock, stop: CancellationToken, worker: String) -> Self {
        Self {
            store,
            clock,
            stop,
            worker,
            heartbeat: heartbeat::INTERVAL,
            scheduled_run: None,
            metrics: Arc::default(),
            records: Mutex::default(),
        }
    }

    /// Returns the runs recorded so far, including failed ones.
    pub fn records(&self) -> Vec<RunRecord> {
        self.lock_records().clone()
    }

    /// Calls `log`, whose lines summarise the last recorded run and therefore carry its id.
    pub fn log_summary(&self, log: impl FnOnce()) {
        let last = self.lock_records().last().map(|record| record.id.0);
        match last {
            Some(id) => telemetry::log_for_run(id, log),
            None => log(),
        }
    }

    fn lock_records(&self) -> MutexGuard<'_, Vec<RunRecord>> {
        self.records.lock().expect("no holder of this lock panics")
    }

    async fn author_policy(&self, store_author: bool) -> Result<AuthorPolicy, StoreError> {
        Ok(if store_author {
            AuthorPolicy::Stored
        } else {
            AuthorPolicy::Hashed(self.store.posts().author_key().await?)
        })
    }

    fn run(&self, id: RunId) -> Run<'_> {
        Run {
            store: &self.store,
            clock: &self.clock,
            stop: &self.stop,
            worker: &self.worker,
            id,
        }
    }

    /// Collects posts of topics from Reddit or an archive.
    ///
    /// # Errors
    /// Errors of the store, and errors that affect every topic. A topic rejected by the source is in its report.
    pub async fn collect(
        &self,
        source: &dyn Source,
        topics: &[Topic],
        options: ReadOptions,
        store_author: bool,
        progress: OnProgress<'_>,
    ) -> Result<(Vec<TopicReport>, RunStatus), StageError> {
        quota::share(source, &self.store, &self.clock);
        let archive_newest = OnceLock::new();
        let work = async |run, reports: &mut Vec<TopicReport>| {
            let (run, authors) = (self.run(run), self.author_policy(store_author).await?);
            collect::record_keywords(&run, topics).await?;
            let ended =
                collect::collect(&run, source, topics, &authors, options, progress, reports).await;
            if reports.iter().any(|report| report.stored.purged > 0) {
                purge::rewrite_after_reports(&run).await;
            }
            ended?;
            warn_without_reports(Some(source));
            note_second_readings(&run, source).await?;
            // An archive that has failed every topic is not asked again. One that has no posts may be behind.
            let has_answered = |outcome| matches!(outcome, Outcome::Ok | Outcome::Empty);
            if reports.iter().any(|report| has_answered(report.outcome))
                && let Some(newest) = collect::archive_newest(&run, source).await
            {
                archive_newest.get_or_init(|| newest);
            }
            Ok(())
        };
        self.recorded(Stage::Collect, work, |reports| {
            let all_read = reports.len() == topics.len()
                && reports.iter().all(|report| report.outcome == Outcome::Ok);
            let counts = CollectCounts {
                topics: topics.len() as u64,
                archive_newest_at: archive_newest.get().copied(),
                traffic: traffic_of(source),
                ..CollectCounts::sum(reports)
            };
            let counts = RunCounts::Collect(Box::new(counts));
            let mut result = StageResult::new(all_read, counts);
            result.outcomes = json!(reports);
            result
        })
        .await
    }

    /// Labels the backlog.
    ///
    /// # Errors
    /// Errors of the store and of the model.
    pub async fn classify(
        &self,
        models: Vec<Models>,
        set: &LabelSet,
        options: &classify::Options,
        progress: classify::OnLabelStep<'_>,
    ) -> Result<(ClassifyCounts, RunStatus), StageError> {
        let work = async |run, done: &mut ClassifyCounts| {
            let run = self.run(run);
            let on_step = |step| match step {
                LabelStep::Counted(new) => self.metrics.add_labelled(&new),
                step => progress(step),
            };
            classify::label(&run, models, set, options, &on_step, done).await
        };
        self.recorded(Stage::Classify, work, |done: &mut ClassifyCounts| {
            let is_complete = done.failed == 0 && done.parked == 0;
            let counts = RunCounts::Classify(Box::new(done.clone()));
            StageResult::new(is_complete, counts)
        })
        .await
    }

    /// Purges posts that were deleted on Reddit, that are named, or whose retention has expired. `source` is needed
    /// only for a plan that checks posts.
    ///
    /// # Errors
    /// Errors of the store and of Reddit. Posts purged before the error remain purged and are counted in the record.
    pub async fn purge(
        &self,
        plan: &purge::PurgePlan,
        source: Option<&dyn Source>,
        progress: purge::OnChecked<'_>,
    ) -> Result<(PurgeCounts, RunStatus), StageError> {
        if let Some(source) = source {
            quota::share(source, &self.store, &self.clock);
        }
        let work = async |run, report: &mut PurgeCounts| {
            let run = self.run(run);
            purge::purge(&run, plan, source, progress, report).await?;
            warn_without_reports(source);
            Ok(())
        };
        self.recorded(Stage::Purge, work, |report: &mut PurgeCounts| {
            // With `leave_file`, or on a server, remaining bytes are expected.
            let is_erased =
                !report.lingers || plan.leave_file || matches!(self.store, Store::Postgres(_));
            if let Some(source) = source {
                report.traffic = traffic_of(source);
            }
            let counts = RunCounts::Purge(Box::new(report.clone()));
            StageResult::new(report.unclear == 0 && is_erased, counts)
        })
        .await
    }

    /// Fetches posts that are known only by their ids.
    ///
    /// # Errors
    /// Errors of the store and of the source.
    pub async fn refill(
        &self,
        plan: &RefillPlan<'_>,
        source: &dyn Source,
        store_author: bool,
    ) -> Result<(ImportCounts, RunStatus), StageError> {
        quota::share(source, &self.store, &self.clock);
        let work = async |run, done: &mut ImportCounts| {
            let authors = self.author_policy(store_author).await?;
            let run = self.run(run);
            let ended = collect::refill(&run, &authors, source, plan, done).await;
            if done.stored.purged > 0 {
                purge::rewrite_after_reports(&run).await;
            }
            ended
        };
        self.recorded(Stage::Import, work, |done: &mut ImportCounts| {
            let is_complete = done.unclear == 0 && done.rejected.total() == 0;
            done.traffic = traffic_of(source);
            let counts = RunCounts::Import(Box::new(done.clone()));
            StageResult::new(is_complete, counts)
        })
        .await
    }
}
