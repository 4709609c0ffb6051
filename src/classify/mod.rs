//! Labels the posts that have no label yet. In: a store, models and a label set. Out: labels with their scores, and the
//! logits or vectors that they were computed from.
//!
//! Each engine has its own lane (`lane`): claim, tokenise, score, write. The database sees no difference between lanes
//! of one process and processes on several machines. A post is written when its last pair is computed, under the lease
//! of its window; a heartbeat (`leases`) renews the leases. The store rejects a write whose lease is lost. The
//! rejection is counted, and the posts are left to the worker that has since claimed them.

mod claim_sizes;
mod current;
mod engine_timer;
mod lane;
mod leases;
mod measure;
mod retry;
mod stored_vectors;
mod tally;
mod targets;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::claim_sizes::ClaimSizes;
pub use self::current::{MakeCurrent, check_no_label_is_lost};
use self::leases::LiveLeases;
pub use self::measure::dry_run;
use self::retry::Retry;
use self::tally::Tally;
use self::targets::Targets;
pub use self::targets::model_row;
use crate::pipeline_file;
use crate::run::{Run, StageError};
use topicmill_core::LabelSet;
use topicmill_core::record::{ClassifyCounts, LabelAgreement, RunSettings};
use topicmill_review::compare::Moves;
use topicmill_score::Models;
use topicmill_store::{BacklogCounts, Store, StoreError, Target, Watch, is_cancelled};

/// Interval at which a watcher (a run with `--watch`) polls the backlog, because the lease of a crashed worker expires
/// without a notification.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of consecutive rounds without a result while posts are claimable. After that, the run ends, because
/// the worker that should release the posts is stalled.
const MAX_IDLE_ROUNDS: u32 = 2;
/// After a poll, a watcher rests for this multiple of the poll's duration, because polling reads a large part of the
/// database.
const REST_FACTOR: u32 = 10;

/// Options for labelling the backlog.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time after which a lease without a heartbeat expires.
    pub lease: Duration,
    /// A post is parked once it has failed this many times, or has crashed its worker this many times while claimed
    /// alone.
    pub max_attempts: u32,
    /// Stops after this many posts.
    pub limit: Option<u64>,
    /// Retries parked posts.
    pub retry_failed: bool,
    /// Waits for new posts instead of ending when the backlog is empty.
    pub watch: bool,
    /// The file that the label set comes from, and its content then. A watcher stops when it has another valid content.
    pub pipeline_file: Option<(PathBuf, Vec<u8>)>,
    /// Decides whether the model and the label set become the current ones.
    pub make_current: MakeCurrent,
    /// Settings for the run record.
    pub settings: RunSettings,
}

/// A progress event of labelling.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelStep {
    /// Number of posts that will have been labelled when nothing is left to claim.
    Expect(u64),
    /// Number of posts written since the last such event.
    Done(u64),
    /// Counts since the last such event. Their sum is in the run record.
    Counted(Box<ClassifyCounts>),
    /// A watcher stops for this reason: its label set is out of date.
    Outdated(&'static str),
}

/// Progress callback.
pub type OnLabelStep<'a> = &'a (dyn Fn(LabelStep) + Send + Sync);

/// Labels a store's backlog with a model and a label set, and makes them current if `options` says so.
///
/// `models` are copies of one model, and each gets a lane. `done` is updated as labels are written.
///
/// # Errors
/// See [`StageError`]. Posts that were scored before the error are written, and the others are released.
///
/// # Panics
/// If `models` is empty.
pub async fn label(
    run: &Run<'_>,
    mut models: Vec<Models>,
    set: &LabelSet,
    options: &Options,
    progress: OnLabelStep<'_>,
    done: &mut ClassifyCounts,
) -> Result<(), StageError> {
    let store = run.store;
    store.posts().apply_text_rule().await?;
    done.settings = RunSettings {
        text_rule: *topicmill_core::reddit::TEXT_RULE,
        model: models[0].name(),
        batch_tokens: models[0].large.batch_tokens(),
        ..options.settings.clone()
    };
    let targets = Targets::new(run, &mut models[0], set).await?;
    let target = targets.target;
    let mut work = Labelling {
        current: None,
        run: *run,
        options,
        progress,
        retry: Retry::new(*run, options.watch),
        halt: run.stop.child_token(),
        sizes: ClaimSizes::new(&models, &targets, options.limit),
        targets: Arc::new(targets),
        leases: LiveLeases::default(),
        suspects: Arc::new(Semaphore::new(1)),
    };
    if let Models { large, small: None } = &models[0] {
        work.label_without_text(&large.folder().kind, set, done)
            .await?;
    }
    // Before the engine labels any post: readers of the views see one label set that grows, never a mixture of two.
    current::set_current(store, target, options.make_current).await?;
    work.current = store.labels().current_target().await?;
    // Before the backlog is counted, so that a killed process's posts count as claimable.
    leases::reclaim_from_crashed(store, run.worker).await?;
    if options.retry_failed {
        let backlog = store.backlog();
        backlog.retry_failed(target, options.max_attempts).await?;
    }
    // Before the first poll, so that no post that arrives after it is missed.
    let mut watch = if options.watch {
        Some(store.watch().await?)
    } else {
        None
    };
    let ended = work.rounds(models, &mut watch, done).await;
    if work.retry.is_unreachable() {
        // Each of the following calls would wait for the database again.
        return work.end_without_database(ended);
    }
    // Before `ended?`, so that other workers need not wait for the leases to expire after an error.
    release_leases(store, &work.leases).await;
    ended?;
    let left = work.count().await?;
    let ran_to_the_end = work.sizes.left.load(Ordering::Relaxed) > 0 && !run.stop.is_cancelled();
    // Posts that remained claimable to the end belong to a stalled worker.
    let unclaimed = if ran_to_the_end { left.claimable } else { 0 };
    (done.held_elsewhere, done.parked) = (left.claimed + unclaimed, left.parked);
    if let Some(large) = work.targets.large_target
        && !run.stop.is_cancelled()
    {
        done.without_shortlist = compare_labels(store, large, target).await;
    }
    Ok(())
}

/// Releases the posts that are claimed but not scored.
async fn release_leases(store: &Store, leases: &LiveLeases) {
    for lease in leases.all() {
        if let Err(error) = store.backlog().release(lease).await {
            tracing::warn!(
                lease = lease.0,
                "claimed posts remain claimed until the lease expires: {error}"
            );
            // The other releases would wait for the same database.
            if is_cancelled(&error) {
                return;
            }
        }
    }
}

/// Compares the labels under two targets; `None` if that fails.
async fn compare_labels(store: &Store, from: Target, to: Target) -> Option<LabelAgreement> {
    match store.labels().compare_labels(from, to).await {
        Ok(counts) => {
            let moves = Moves::from_iter(counts);
            Some(LabelAgreement {
                posts: moves.posts(),
                same: moves.same(),
            })
        }
        // All labels are stored, so a failed comparison does not fail the run.
        Err(error) => {
            tracing::warn!(
                "the labels could not be compared with the labels of the large model alone: {error}"
            );
            None
        }
    }
}

/// A run of this stage: what its lanes share.
struct Labelling<'a> {
    run: Run<'a>,
    /// The current target when the run began.
    current: Option<Target>,
    options: &'a Options,
    progress: OnLabelStep<'a>,
    retry: Retry<'a>,
    /// Cancelled by a signal, or when one lane fails.
    halt: CancellationToken,
    targets: Arc<Targets>,
    sizes: ClaimSizes,
    leases: LiveLeases,
    /// One permit: a process claims at most one window of suspects (posts whose workers crashed), so that its next
    /// crash can be attributed to that window.
    suspects: Arc<Semaphore>,
}

impl Labelling<'_> {
    /// Ends a run whose database is unreachable.
    fn end_without_database(&self, ended: Result<(), StageError>) -> Result<(), StageError> {
        if !self.leases.all().is_empty() {
            tracing::warn!("claimed posts remain claimed until their leases expire");
        }
        match ended {
            // A stopped run does not wait for the database. The unwritten posts are scored again after their leases
            // expire.
            Err(StageError::Store(error))
                if self.run.stop.is_cancelled() && error.is_transient() =>
            {
                tracing::warn!("the last scores were not stored: {error}");
                Ok(())
            }
            ended => ended,
        }
    }

    /// Labels posts from stored vectors, then the rest in rounds with the engines, until every post has a label, or,
    /// for a watcher, until a signal.
    async fn rounds(
        &self,
        mut models: Vec<Models>,
        watch: &mut Option<Watch>,
        done: &mut ClassifyCounts,
    ) -> Result<(), StageError> {
        let Run { clock, stop, .. } = self.run;
        // With a small model, each text first needs a shortlist, which the large model's vectors cannot provide.
        if models[0].small.is_none() {
            self.label_from_vectors(done).await?;
        }
        // Consecutive rounds without a result.
        let mut idle_rounds = 0;
        loop {
            let began = clock.elapsed();
            let poll = match self.poll().await {
                Ok(poll) => poll,
                // No post is claimed, so nothing is lost.
                Err(error) if error.is_transient() && stop.is_cancelled() => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            // Decided after a poll: posts may have arrived during the last round, or the backlog may have been deleted.
            let claimable = poll.backlog.claimable;
            if watch.is_none() && (claimable == 0 || idle_rounds == MAX_IDLE_ROUNDS) {
                return Ok(());
            }
            let before = count_results(done);
            self.sizes.waiting.store(claimable, Ordering::Relaxed);
            (self.progress)(LabelStep::Expect(done.posts + claimable));
            let round;
            (models, round) = self.round(models, done).await;
            let is_idle = count_results(done) == before;
            idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
            done.seconds += clock.elapsed().saturating_sub(began).as_secs_f64();
            done.posts_per_sec = rate(done.posts, done.seconds);
            let enough = self.sizes.left.load(Ordering::Relaxed) == 0;
            if round.is_err() || enough || stop.is_cancelled() {
                return round;
            }
            if let Some(watch) = watch {
                let rest = poll.insert_time * REST_FACTOR;
                wait_for_posts(&self.run, &self.retry, watch, rest).await?;
                if stop.is_cancelled() {
                    return Ok(());
                }
            }
            if let Some(reason) = self.outdated().await? {
                (self.progress)(LabelStep::Outdated(reason));
                return Ok(());
            }
        }
    }

    /// Returns why the label set of this run is out of date, if it is.
    async fn outdated(&self) -> Result<Option<&'static str>, StoreError> {
        if let Some((path, content)) = &self.options.pipeline_file
            && pipeline_file::has_changed(path, content)
        {
            return Ok(Some("the pipeline file has changed"));
        }
        let labels = self.run.store.labels();
        let read_current = async || labels.current_target().await;
        let current = self.retry.run(read_current).await?;
        let is_expected = current == self.current || current == Some(self.targets.target);
        let is_outdated = current.is_some() && !is_expected;
        Ok(is_outdated.then_some("another label set became the current one"))
    }

    /// Adds unlabelled posts to the backlog and counts it.
    async fn poll(&self) -> Result<Poll, StoreError> {
        let Run { store, clock, .. } = self.run;
        let mut insert_time = Duration::ZERO;
        let enqueue = async || {
            let began = clock.elapsed();
            let added = store.backlog().enqueue_missing(self.targets.target).await;
            insert_time = clock.elapsed().saturating_sub(began);
            added
        };
        self.retry.run(enqueue).await?;
        let backlog = self.count().await?;
        Ok(Poll {
            backlog,
            insert_time,
        })
    }

    /// Counts the backlog.
    async fn count(&self) -> Result<BacklogCounts, StoreError> {
        let Run { store, clock, .. } = self.run;
        let (target, most) = (self.targets.target, self.options.max_attempts);
        let now = clock.now().into();
        let count = async || store.backlog().count_backlog(target, most, now).await;
        self.retry.run(count).await
    }

    /// Runs a lane for each model until nothing is left to claim. Returns the first error.
    async fn round(
        &self,
        models: Vec<Models>,
        done: &mut ClassifyCounts,
    ) -> (Vec<Models>, Result<(), StageError>) {
        let lanes = models.into_iter().map(async |models| {
            let mut counts = Tally::new(self.progress);
            let ended = self.lane(models, &mut counts).await;
            counts.report();
            let counts = counts.into_sum();
            // The other lanes finish their claimed posts and then end, so that the error is reported soon.
            if ended.is_err() {
                self.halt.cancel();
            }
            (counts, ended)
        });
        let lease = self.options.lease;
        let lanes = tokio::select! {
            lanes = join_all(lanes) => lanes,
            // Runs concurrently with the lanes and is dropped with them, so that no abandoned lease is renewed.
            never = leases::heartbeat(&self.run, &self.retry, lease, &self.leases) => match never {},
        };
        let (mut models, mut outcome) = (Vec::new(), Ok(()));
        for (counts, ended) in lanes {
            done.add(&counts);
            match ended {
                Ok(of_lane) => {
                    // Lower than at the start if the device ran out of memory.
                    let tokens = &mut done.settings.batch_tokens;
                    *tokens = of_lane.large.batch_tokens().min(*tokens);
                    models.push(of_lane);
                }
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(_) => {}
            }
        }
        (models, outcome)
    }
}

/// The result of a poll.
struct Poll {
    backlog: BacklogCounts,
    /// Duration of the insert of unlabelled posts into the backlog.
    insert_time: Duration,
}

/// Rests, then waits until there may be posts to label, or until a signal.
async fn wait_for_posts(
    run: &Run<'_>,
    retry: &Retry<'_>,
    watch: &mut Watch,
    rest: Duration,
) -> Result<(), StoreError> {
    let Run { clock, stop, .. } = *run;
    let changed = async {
        clock.sleep(rest).await;
        tokio::select! {
            changed = retry.run(async || watch.changed().await) => changed,
            () = clock.sleep(POLL_INTERVAL) => Ok(()),
        }
    };
    tokio::select! {
        changed = changed => changed,
        () = stop.cancelled() => Ok(()),
    }
}

/// Runs blocking work on another thread.
fn blocking<T: Send + 'static, E: Into<StageError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> impl Future<Output = Result<T, StageError>> {
    // Starts now, not when the future is first polled.
    let thread = tokio::task::spawn_blocking(work);
    async {
        match thread.await {
            Ok(done) => done.map_err(Into::into),
            Err(error) => Err(StageError::Thread(error.to_string())),
        }
    }
}

/// Counts the posts that a run has dealt with so far.
fn count_results(done: &ClassifyCounts) -> u64 {
    done.posts + done.failed + done.refused
}

/// Returns posts per second; 0 without a measured time.
fn rate(posts: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        posts as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
