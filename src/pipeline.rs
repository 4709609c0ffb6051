//! The stages of the pipeline, each run recorded.
//!
//! The stages are called here and nowhere else, so that `collect`, `run`, `demo` and whoever schedules them
//! record the same things in the same way.

mod life;
mod quota;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::classify::{self, BacklogError, LabelStep};
use crate::collect::{self, CollectError, ImportPlan, Imported, Pace, RefillPlan, Refilled, Sink};
use crate::metrics::Metrics;
use crate::notify::{Ended, Notify};
use crate::purge::{self, PurgeError};
use crate::telemetry;
use topicmill_core::clock::SharedClock;
use topicmill_core::record::Labelled;
use topicmill_core::{
    Authors, FailureKind, Outcome, Rejections, RunStatus, Stage, Topic, TopicReport,
};

use crate::worker::Worker;
use topicmill_score::{LabelSet, Models, hex};
use topicmill_sources::file::dump::{self, DumpError, Reading};
use topicmill_sources::page::Source;
use topicmill_sources::reddit::Reddit;
use topicmill_store::{ImportState, RunId, Store, StoreError, is_stop};

pub use self::life::dead;

/// The key under which the database has the version of the program whose run began last.
pub const WRITTEN_BY: &str = "written_by";

/// What a run did, for its record, for `--run-json` and for the exit code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecord {
    /// Key in `runs`.
    pub id: RunId,
    /// The stage.
    pub stage: Stage,
    /// How it ended.
    pub status: RunStatus,
    /// What it counted.
    pub counts: Value,
    /// One entry a topic; empty for stages without topics.
    pub outcomes: Value,
    /// What ended it, if an error.
    pub error: Option<String>,
}

/// What every stage is given.
#[derive(Debug)]
pub struct Context {
    /// The database.
    pub store: Store,
    /// For dates and waits.
    pub clock: SharedClock,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
    /// Who works: see [`classify::worker_name`].
    pub worker: String,
    /// How often a run shows that it lives.
    pub beat: Duration,
    /// The slot of a schedule that its runs belong to.
    pub slot: Option<i64>,
    /// What its stages count, for monitors.
    pub metrics: Arc<Metrics>,
    /// Starts the program of `[notify]`.
    pub notify: Arc<Notify>,
    records: Mutex<Vec<RunRecord>>,
}

/// Hears how many more are done.
pub type OnProgress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// What a stage tells of its work for the record: status, counts, and one entry a topic.
type Told = (RunStatus, Value, Value);

fn done_if(whole: bool) -> RunStatus {
    if whole {
        RunStatus::Done
    } else {
        RunStatus::Partial
    }
}

/// What is to be imported.
#[derive(Debug, Clone, Copy)]
pub struct ImportOrder<'a> {
    /// The files.
    pub files: &'a [PathBuf],
    /// What they hold and what of it is wanted.
    pub reading: &'a Reading,
    /// Topics that records belong to.
    pub topics: &'a [Topic],
    /// Whether the topic that a record names by its label becomes its slug.
    pub map_topics: bool,
    /// Whether names of authors are stored as they are.
    pub store_author: bool,
    /// Whether what was imported is read again from the start.
    pub again: bool,
}

/// Why an import ended early.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file.
    #[error(transparent)]
    Dump(#[from] DumpError),
}

impl ImportError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Dump(_) => FailureKind::Usage,
        }
    }
}

impl Context {
    /// Nothing is recorded yet.
    pub fn new(store: Store, clock: SharedClock, stop: CancellationToken, worker: String) -> Self {
        let records = Mutex::default();
        Self {
            store,
            clock,
            stop,
            worker,
            beat: life::BEAT,
            slot: None,
            metrics: Arc::default(),
            notify: Arc::default(),
            records,
        }
    }

    /// The runs recorded so far, those that failed included.
    pub fn records(&self) -> Vec<RunRecord> {
        self.lock_records().clone()
    }

    fn lock_records(&self) -> MutexGuard<'_, Vec<RunRecord>> {
        self.records.lock().expect("no holder of this lock panics")
    }

    /// Runs a stage between the two writes that record it. `work` adds to its report as it goes, so that a
    /// run that fails half-way, or panics, is recorded with the half that it did.
    async fn recorded<T: Default, E: std::error::Error + From<StoreError> + 'static>(
        &self,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), E>,
        tell: impl FnOnce(&T) -> Told,
    ) -> Result<(T, RunStatus), E> {
        // Before the run is recorded, so that what `status` shows is right from here on.
        life::bury(self).await?;
        // For `db info`. A role may lack the right to it, and works all the same.
        match self.store.keep(WRITTEN_BY, crate::VERSION).await {
            Err(error) if is_stop(&error) => return Err(error.into()),
            Err(error) => {
                tracing::debug!("the version of this program was not noted: {error}");
            }
            Ok(()) => {}
        }
        let now = self.clock.now().into();
        let id = self.store.begin_run(stage, &self.worker, now).await?;
        if let Some(slot) = self.slot {
            self.store.link_run(id, slot).await?;
        }
        let run = self.recorded_as(id, stage, work, tell);
        let span = tracing::trace_span!(target: "otel", "run", stage = stage.as_str(), run = id.0);
        telemetry::in_run(id.0, run.instrument(span)).await
    }

    /// The run of a stage that has begun.
    async fn recorded_as<T: Default, E: std::error::Error + From<StoreError> + 'static>(
        &self,
        id: RunId,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), E>,
        tell: impl FnOnce(&T) -> Told,
    ) -> Result<(T, RunStatus), E> {
        let now = || self.clock.now().into();
        let mut report = T::default();
        // What it leaves half-done in memory is only looked at for its counts.
        // A run that panics must not stay `running` for ever, so its end is recorded first, and the panic goes on
        // below.
        let work = AssertUnwindSafe(work(id, &mut report)).catch_unwind();
        let ended = tokio::select! {
            ended = work => ended,
            // Beside the work, and dropped with it: a run that ended shows no more signs of life.
            never = life::show(self, id) => match never {},
        };
        let (status, counts, outcomes) = tell(&report);
        let error = match &ended {
            Ok(ended) => ended.as_ref().err().map(ToString::to_string),
            Err(_) => Some("a bug of topicmill ended it, see the log".to_owned()),
        };
        let was_stopped = matches!(&ended, Ok(Err(error)) if is_stop(error));
        let status = match error {
            Some(_) if was_stopped => RunStatus::Stopped,
            Some(_) => RunStatus::Failed,
            None if self.stop.is_cancelled() => RunStatus::Stopped,
            None => status,
        };
        let written = tokio::select! {
            written = self.store.finish_run(id, status, &counts, &outcomes, error.as_deref(), now()) => written,
            () = life::last_word(&self.stop) => Err(StoreError::Away),
        };
        // Whoever copies the file of a SQLite database gets what this run wrote.
        match self.store.fold().await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                "another program reads an earlier state of the database, so that its file alone lacks what this run \
                 wrote last: copy it with `topicmill db backup`"
            ),
            Err(error) => {
                tracing::debug!("the database's log was not folded into its file: {error}");
            }
        }
        self.metrics.ran(stage, status, &counts);
        self.tell(&Ended {
            what: stage.as_str(),
            run: id.0,
            status,
            counts: &counts,
            error: error.as_deref(),
            worker: &self.worker,
        })
        .await;
        self.lock_records().push(RunRecord {
            id,
            stage,
            status,
            counts,
            outcomes,
            error,
        });
        // What ended the run matters more than that its end could not be written.
        ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        match written {
            // Whoever stopped it waits for no database; the next run records that this one ended.
            Err(error) if self.stop.is_cancelled() && error.is_passing() => {
                tracing::warn!(run = id.0, "the end of the run is not recorded: {error}");
            }
            written => written?,
        }
        Ok((report, status))
    }

    /// Tells people how a run ended, where they want to know it. Whoever stopped the run does not wait for that.
    async fn tell(&self, ended: &Ended<'_>) {
        tokio::select! {
            () = self.notify.ended(&self.store, ended, self.clock.now()) => {}
            () = life::last_word(&self.stop) => {}
        }
    }

    async fn sink(&self, run: RunId, store_author: bool) -> Result<Sink<'_>, StoreError> {
        let authors = if store_author {
            Authors::Stored
        } else {
            Authors::Hashed(self.store.author_key().await?)
        };
        let worker = self.worker(run);
        Ok(Sink { worker, authors })
    }

    fn worker(&self, run: RunId) -> Worker<'_> {
        Worker {
            store: &self.store,
            clock: &self.clock,
            stop: &self.stop,
            name: &self.worker,
            run,
        }
    }

    /// Collects topics from Reddit or an archive of it.
    ///
    /// # Errors
    /// Those of the store, and what every topic would meet; what the source refuses of one topic is in its report.
    pub async fn collect(
        &self,
        source: &dyn Source,
        topics: &[Topic],
        pace: Pace,
        store_author: bool,
        progress: OnProgress<'_>,
    ) -> Result<(Vec<TopicReport>, RunStatus), CollectError> {
        quota::share(source, &self.store, &self.clock);
        self.metrics.follow(source.kind(), source.http().meter());
        let work = async |run, reports: &mut Vec<TopicReport>| {
            let sink = self.sink(run, store_author).await?;
            collect::collect(&sink, source, topics, pace, progress, reports).await
        };
        self.recorded(Stage::Collect, work, |reports| {
            let all_read = reports.len() == topics.len()
                && reports.iter().all(|report| report.outcome == Outcome::Ok);
            let sum = |of: fn(&TopicReport) -> u64| reports.iter().map(of).sum::<u64>();
            let mut rejected = Rejections::default();
            let mut by_outcome: BTreeMap<&str, u64> = BTreeMap::new();
            for report in reports {
                rejected.extend(&report.rejected);
                *by_outcome.entry(report.outcome.as_str()).or_default() += 1;
            }
            let counts = json!({
                "topics": topics.len(), "by_outcome": by_outcome, "pages": sum(|r| r.pages), "posts": sum(|r| r.posts),
                "new": sum(|r| r.new), "changed": sum(|r| r.changed), "edited": sum(|r| r.edited),
                "tombstoned": sum(|r| r.tombstoned), "rejected": rejected.total(), "rejected_for": rejected,
                source.kind().about().section: source.counts(),
            });
            (done_if(all_read), counts, json!(reports))
        })
        .await
    }

    /// Stores the records of files.
    ///
    /// A dump goes on where an earlier run left off, and is not read again once its end was reached, unless
    /// `order.again` says so.
    ///
    /// # Errors
    /// Those of the store, and of a file that cannot be opened; records that cannot be read are counted.
    pub async fn import(
        &self,
        order: &ImportOrder<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(Imported, RunStatus), ImportError> {
        let work = async |run, total: &mut Imported| {
            let sink = self.sink(run, order.store_author).await?;
            for path in order.files {
                if self.stop.is_cancelled() {
                    break;
                }
                let name = path.display().to_string();
                let blocks = dump::blocks(path, order.reading)?;
                let state = self.import_state(path, order, run).await?;
                if let Some(date) = state.as_ref().and_then(|state| state.finished_at) {
                    let posts = state.map_or(0, |state| state.posts);
                    tracing::info!(
                        file = %name, posts, "imported on {} already; --again reads it again",
                        date.as_datetime().format("%Y-%m-%d")
                    );
                    continue;
                }
                if let Some(state) = state.as_ref().filter(|state| state.byte_offset > 0) {
                    tracing::info!(
                        file = %name, rows = state.rows, posts = state.posts,
                        "goes on where an earlier run left off; a packed file is unpacked up to there again"
                    );
                }
                let mut done = Imported::default();
                let plan = ImportPlan {
                    name: &name,
                    topics: order.topics,
                    map_topics: order.map_topics,
                    left_out: state.as_ref().map_or(0, |state| state.left_out),
                    state,
                    progress,
                };
                let ended = collect::import(&sink, blocks, plan, &mut done).await;
                let told = match ended {
                    Ok(Some(_)) => "imported",
                    Ok(None) | Err(_) => "stopped before the end of the file",
                };
                tracing::info!(
                    file = %name, posts = done.posts, new = done.new, changed = done.changed,
                    edited = Some(done.edited).filter(|n| *n > 0),
                    topics_mapped = Some(done.topics_mapped).filter(|_| order.map_topics),
                    tombstoned = Some(done.tombstoned).filter(|n| *n > 0),
                    left_out = done.left_out, rejected = done.rejected.total(), "{told}"
                );
                total.add(&done);
                // After `total.add`: what was imported until the error counts.
                ended?;
            }
            Ok::<_, ImportError>(())
        };
        self.recorded(Stage::Import, work, |done: &Imported| {
            let rejected = done.rejected.total();
            let counts = json!({
                "posts": done.posts, "new": done.new, "changed": done.changed, "edited": done.edited,
                "topics_mapped": done.topics_mapped, "tombstoned": done.tombstoned, "left_out": done.left_out,
                "rejected": rejected, "rejected_for": done.rejected,
            });
            (done_if(rejected == 0), counts, json!([]))
        })
        .await
    }

    /// How far a file was imported before, or the beginning; `None` for files that are always read whole.
    async fn import_state(
        &self,
        path: &Path,
        order: &ImportOrder<'_>,
        run: RunId,
    ) -> Result<Option<ImportState>, ImportError> {
        if !order.reading.is_resumed(path) {
            return Ok(None);
        }
        // Whatever changes which rows are stored, or how, makes it another import.
        let topics = order.topics.iter();
        let topics = topics.map(|topic| (&topic.slug, &topic.label, &topic.subreddits));
        let topics: Vec<_> = topics.collect();
        let filter = order.reading.filter.describe();
        let mut selection = json!([filter, topics, order.store_author]);
        let given = order
            .reading
            .given
            .iter()
            .map(|given| (given.field, &given.value));
        let given: Vec<_> = given.collect();
        if let (Some(selection), false) = (selection.as_array_mut(), given.is_empty()) {
            selection.push(json!(given));
        }
        let selection = selection.to_string();
        let state = ImportState {
            file: dump::fingerprint(path)?,
            selection: hex(&Sha256::digest(selection)[..16]),
            name: path.display().to_string(),
            byte_offset: 0,
            rows: 0,
            left_out: 0,
            posts: 0,
            rejected: 0,
            run,
            updated_at: self.clock.now().into(),
            finished_at: None,
        };
        if order.again {
            return Ok(Some(state));
        }
        let earlier = self.store.import_state(&state.file, &state.selection);
        Ok(Some(earlier.await?.unwrap_or(state)))
    }

    /// Labels what is not labelled yet.
    ///
    /// # Errors
    /// Those of the store and of the model.
    pub async fn classify(
        &self,
        models: Vec<Models>,
        set: &LabelSet,
        options: &classify::Options,
        progress: classify::OnLabelStep<'_>,
    ) -> Result<(Labelled, RunStatus), BacklogError> {
        let work = async |run, done: &mut Labelled| {
            let worker = self.worker(run);
            let heard = |step| match step {
                LabelStep::Counted(new) => self.metrics.labelled(&new),
                LabelStep::Gpus(now) => self.metrics.gpus(now),
                step => progress(step),
            };
            classify::label(&worker, models, set, options, &heard, done).await
        };
        self.recorded(Stage::Classify, work, |done: &Labelled| {
            let whole = done.failed == 0 && done.set_aside == 0;
            (done_if(whole), json!(done), json!([]))
        })
        .await
    }

    /// Purges what is gone on Reddit, named, or too old. Only a plan that asks Reddit needs the client.
    ///
    /// # Errors
    /// Those of the store and of Reddit; what was purged until then is, and is in the record.
    pub async fn purge(
        &self,
        plan: &purge::PurgePlan,
        reddit: Option<&Reddit>,
        progress: purge::OnPurgeStep<'_>,
    ) -> Result<(purge::Report, RunStatus), PurgeError> {
        if let Some(reddit) = reddit {
            quota::share(reddit, &self.store, &self.clock);
            self.metrics.follow(reddit.kind(), reddit.http().meter());
        }
        let work = async |run, report: &mut purge::Report| {
            let worker = self.worker(run);
            purge::purge(&worker, plan, reddit, progress, report).await
        };
        self.recorded(Stage::Purge, work, |report: &purge::Report| {
            // Who asked for the file to be left, or has a server, knows that bytes linger.
            let whole =
                !report.lingers || plan.leave_file || matches!(self.store, Store::Postgres(_));
            let mut counts = json!(report);
            counts["reddit"] = json!(reddit.map(Source::counts));
            (done_if(report.unclear == 0 && whole), counts, json!([]))
        })
        .await
    }

    /// Fills posts again that somebody named by their ids alone.
    ///
    /// # Errors
    /// Those of the store, and what Reddit refuses.
    pub async fn refill(
        &self,
        plan: &RefillPlan<'_>,
        reddit: &Reddit,
        store_author: bool,
    ) -> Result<(Refilled, RunStatus), CollectError> {
        quota::share(reddit, &self.store, &self.clock);
        self.metrics.follow(reddit.kind(), reddit.http().meter());
        let work = async |run, done: &mut Refilled| {
            let sink = self.sink(run, store_author).await?;
            collect::refill(&sink, reddit, plan, done).await
        };
        self.recorded(Stage::Import, work, |done: &Refilled| {
            let whole = done.unclear == 0 && done.rejected.total() == 0;
            let mut counts = json!(done);
            // As the counts of every other import.
            counts["rejected"] = json!(done.rejected.total());
            counts["rejected_for"] = json!(done.rejected);
            counts[reddit.kind().about().section] = reddit.counts();
            (done_if(whole), counts, json!([]))
        })
        .await
    }
}
