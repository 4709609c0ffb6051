//! Labels what a store has not labelled yet: claim, tokenise, score, write.
//!
//! Each engine has a lane of its own (`lane`): to the database it makes no difference whether several lanes
//! run in one process or in processes of several machines. Posts are written as their last pair arrives, under
//! the lease of their window; a heartbeat (`leases`) keeps live leases alive. A write that finds its lease gone
//! is refused by the store, counted, and left to whoever holds the posts now.

mod ahead;
mod by_vector;
mod current;
mod lane;
mod leases;
mod patience;
mod tally;
mod targets;
mod watched;

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use topicmill_score::text::TokenizeError;
use topicmill_score::{LabelSet, LabelerError, Models};

pub use self::ahead::{dry_run, tune};
pub use self::current::MakeCurrent;
use self::lane::Shared;
use self::leases::LiveLeases;
use self::patience::Patience;
use self::tally::Tally;
pub use self::targets::model_row;
use crate::gpu::{GpuWatch, Sampler};
use crate::worker::Worker;
use topicmill_core::FailureKind;
use topicmill_core::record::{ClassifyCounts, GpuSample, LabelAgreement, RunSettings};
use topicmill_review::compare::Moves;
use topicmill_store::{Store, StoreError, Target, Waiting, Watch, is_stop};

/// Claims of a worker that died elsewhere come free without a sign; a watcher looks for them this often.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// A run ends after this many rounds in a row in which it wrote nothing, though posts could be claimed: whoever
/// was to take them back stands still.
const MOST_FRUITLESS: u32 = 2;
/// Looking for new posts reads much; a watcher rests this many times as long as it looked.
const REST: u32 = 10;

/// Why labelling ended early.
#[derive(Debug, thiserror::Error)]
pub enum BacklogError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model or the device.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// A thread of ours died.
    #[error("the scoring thread ended without a word: {0}")]
    Thread(String),
}

impl BacklogError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Labeler(error) => FailureKind::from_model_error(error.is_usage()),
            Self::Tokenize(_) | Self::Thread(_) => FailureKind::Model,
        }
    }
}

/// Options for labelling the backlog.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time after which a lease without a heartbeat expires.
    pub lease: Duration,
    /// A post that failed this often, or killed its worker this often while it was alone, is left alone.
    pub max_attempts: u32,
    /// Stop after this many posts.
    pub limit: Option<u64>,
    /// Try again what failed too often.
    pub retry_failed: bool,
    /// When nothing is left, wait for new posts instead of ending.
    pub watch: bool,
    /// Decides whether the model and the label set become the current ones.
    pub make_current: MakeCurrent,
    /// Kept in the run's record.
    pub settings: RunSettings,
    /// The GPUs of the engines.
    pub gpus: GpuWatch,
}

/// A progress event of labelling.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelStep {
    /// This many posts will have been labelled once nothing can be claimed any more.
    Expect(u64),
    /// This many more are written.
    Done(u64),
    /// The state of the GPUs, in one line.
    Gpu(String),
    /// The same one by one; of none, when nothing is computed for a while.
    Gpus(Vec<GpuSample>),
    /// Counts since the last such event. Their sum is the run's record.
    Counted(Box<ClassifyCounts>),
}

/// Progress callback.
pub type OnLabelStep<'a> = &'a (dyn Fn(LabelStep) + Send + Sync);

/// Labels the backlog of a store under a model and a label set, and makes them the current ones where `options`
/// say so. Each of `models` works by itself, and all are the same. `done` is added to as labels are written.
///
/// # Errors
/// See [`BacklogError`]. What was scored until then is written, and the rest given back.
///
/// # Panics
/// Without a model.
pub async fn label(
    worker: &Worker<'_>,
    mut models: Vec<Models>,
    set: &LabelSet,
    options: &Options,
    progress: OnLabelStep<'_>,
    done: &mut ClassifyCounts,
) -> Result<(), BacklogError> {
    let store = worker.store;
    store.posts().apply_text_rule().await?;
    record_settings(&models[0], options, done);
    let mut sampler = options.gpus.sampler();
    let shared = Shared::new(worker, &mut models, set, options, progress).await?;
    // Before the first label: a reader of the views sees the new label set grow, and never a mixture of two.
    current::settle(store, shared.target, options.make_current).await?;
    // Before the posts are counted, so that those of a process that was killed are among the claimable ones.
    leases::return_abandoned(store, worker.name).await?;
    if options.retry_failed {
        store
            .backlog()
            .retry_failed(shared.target, options.max_attempts)
            .await?;
    }
    // Before the first look, so that what comes after it is heard of.
    let mut watch = if options.watch {
        Some(store.watch().await?)
    } else {
        None
    };
    let ended = shared.work(models, &mut watch, &mut sampler, done).await;
    if shared.patience.is_away() {
        // Each of the calls that follow would wait for it again.
        return shared.leave(ended);
    }
    // Before `ended?`: also after an error, others need not wait for the leases to expire.
    give_back(store, &shared.leases).await;
    ended?;
    shared.count_left(done).await?;
    if let Some(whole) = shared.alone
        && !worker.stop.is_cancelled()
    {
        done.without_shortlist = alike(store, whole, shared.target).await;
    }
    current::remind(store, shared.target, options.make_current).await;
    Ok(())
}

/// Records what the run was given.
fn record_settings(models: &Models, options: &Options, done: &mut ClassifyCounts) {
    done.settings = RunSettings {
        text_rule: *topicmill_score::reddit::TEXT_RULE,
        model: models.identity().0,
        batch_tokens: models.large.batch_tokens(),
        ..options.settings.clone()
    };
    done.gpu_note = options.gpus.note().map(str::to_owned);
}

/// Gives back what is claimed and was not scored.
async fn give_back(store: &Store, leases: &LiveLeases) {
    for lease in leases.all() {
        if let Err(error) = store.backlog().release(lease).await {
            tracing::warn!(
                lease = lease.0,
                "claimed posts stay claimed until the lease expires: {error}"
            );
            // Each of the others would wait for the same.
            if is_stop(&error) {
                return;
            }
        }
    }
}

/// Compares the labels under two targets; `None` if that fails.
async fn alike(store: &Store, from: Target, to: Target) -> Option<LabelAgreement> {
    match store.labels().compare(from, to).await {
        Ok(counts) => {
            let moves = Moves::from_iter(counts);
            Some(LabelAgreement {
                posts: moves.posts(),
                same: moves.same(),
            })
        }
        // Every label is stored; this is only told beside them.
        Err(error) => {
            tracing::warn!(
                "how the labels compare with those of the large model alone is not known: {error}"
            );
            None
        }
    }
}

impl Shared<'_> {
    /// Labels what stored vectors say, and then round after round what the engines compute.
    async fn work(
        &self,
        models: Vec<Models>,
        watch: &mut Option<Watch>,
        sampler: &mut Sampler,
        done: &mut ClassifyCounts,
    ) -> Result<(), BacklogError> {
        // What is done with a text takes the small model. Vectors of the large one alone do not say it.
        if models[0].small.is_none() {
            self.label_stored(done).await?;
        }
        self.rounds(models, watch, sampler, done).await
    }

    /// Ends a run whose database is away.
    fn leave(&self, ended: Result<(), BacklogError>) -> Result<(), BacklogError> {
        if !self.leases.all().is_empty() {
            tracing::warn!("claimed posts stay claimed until their leases expire");
        }
        match ended {
            // Whoever stopped it waits for no database: what is not written is scored again once its lease expires.
            Err(BacklogError::Store(error))
                if self.worker.stop.is_cancelled() && error.is_transient() =>
            {
                tracing::warn!("what was scored last is not stored: {error}");
                Ok(())
            }
            ended => ended,
        }
    }

    /// Counts what is left in the backlog at the end of a run.
    async fn count_left(&self, done: &mut ClassifyCounts) -> Result<(), StoreError> {
        let waiting = self.count().await?;
        let to_its_end = self.left.load(Ordering::Relaxed) > 0 && !self.worker.stop.is_cancelled();
        // What can be claimed and was not is in the hands of somebody who stands still.
        let unclaimed = if to_its_end { waiting.claimable } else { 0 };
        (done.held_elsewhere, done.set_aside) = (waiting.held + unclaimed, waiting.set_aside);
        Ok(())
    }

    /// Runs rounds until nothing has no label any more; for a watcher, until a signal comes.
    async fn rounds(
        &self,
        mut models: Vec<Models>,
        watch: &mut Option<Watch>,
        sampler: &mut Sampler,
        done: &mut ClassifyCounts,
    ) -> Result<(), BacklogError> {
        let Worker { clock, stop, .. } = *self.worker;
        // Rounds in a row in which nothing came of any post.
        let mut fruitless = 0;
        loop {
            let began = clock.elapsed();
            let (waiting, looked) = match self.look().await {
                Ok(found) => found,
                // Nothing is in hand.
                Err(error) if error.is_transient() && stop.is_cancelled() => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            // Before the end one looks again: posts may have come meanwhile, or the backlog may have been lost.
            if watch.is_none() && (waiting.claimable == 0 || fruitless == MOST_FRUITLESS) {
                return Ok(());
            }
            let before = done.posts + done.failed + done.refused;
            self.waiting.store(waiting.claimable, Ordering::Relaxed);
            (self.progress)(LabelStep::Expect(done.posts + waiting.claimable));
            let round;
            (models, round) = self.round(models, sampler, done).await;
            let same = done.posts + done.failed + done.refused == before;
            fruitless = if same { fruitless + 1 } else { 0 };
            done.gpu = sampler.figures();
            done.seconds += clock.elapsed().saturating_sub(began).as_secs_f64();
            done.posts_per_sec = rate(done.posts, done.seconds);
            let enough = self.left.load(Ordering::Relaxed) == 0;
            if round.is_err() || enough || stop.is_cancelled() {
                return round;
            }
            if let Some(watch) = watch
                && wait_for_posts(self.worker, &self.patience, watch, looked * REST).await?
            {
                return Ok(());
            }
        }
    }

    /// Puts into the backlog what has no label yet, and counts it; with how long the putting took.
    async fn look(&self) -> Result<(Waiting, Duration), StoreError> {
        let Worker { store, clock, .. } = *self.worker;
        let mut looked = Duration::ZERO;
        let enqueue = async || {
            let began = clock.elapsed();
            let added = store.backlog().enqueue_missing(self.target).await;
            looked = clock.elapsed().saturating_sub(began);
            added
        };
        self.patience.wait(enqueue).await?;
        Ok((self.count().await?, looked))
    }

    /// Counts the backlog.
    async fn count(&self) -> Result<Waiting, StoreError> {
        let Worker { store, clock, .. } = *self.worker;
        let (now, most) = (clock.now().into(), self.options.max_attempts);
        let count = async || store.backlog().waiting(self.target, most, now).await;
        self.patience.wait(count).await
    }

    /// Runs a lane for each of the models until nothing can be claimed any more. Of several errors the first counts.
    async fn round(
        &self,
        models: Vec<Models>,
        sampler: &mut Sampler,
        done: &mut ClassifyCounts,
    ) -> (Vec<Models>, Result<(), BacklogError>) {
        let lanes = models.into_iter().map(async |models| {
            let mut of_lane = Tally::new(self.progress);
            let ended = self.lane(models, &mut of_lane).await;
            of_lane.tell();
            let of_lane = of_lane.into_sum();
            // The other lanes end with what they have in hand, so that the error is told soon.
            if ended.is_err() {
                self.halt.cancel();
            }
            (of_lane, ended)
        });
        let lease = self.options.lease;
        let heard = |line, gpus| {
            (self.progress)(LabelStep::Gpu(line));
            (self.progress)(LabelStep::Gpus(gpus));
        };
        let lanes = tokio::select! {
            lanes = join_all(lanes) => lanes,
            // Polled beside the lanes and dropped with them: no beat goes on for a lease that nobody works under.
            never = leases::heartbeat(self.worker, &self.patience, lease, &self.leases) => match never {},
            never = sampler.sample(self.worker.clock, heard) => match never {},
        };
        (self.progress)(LabelStep::Gpus(Vec::new()));
        let (mut models, mut outcome) = (Vec::new(), Ok(()));
        for (of_lane, ended) in lanes {
            done.add(&of_lane);
            match ended {
                Ok(one) => {
                    // Fewer than at first where the memory ran out.
                    let tokens = &mut done.settings.batch_tokens;
                    *tokens = one.large.batch_tokens().min(*tokens);
                    models.push(one);
                }
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(_) => {}
            }
        }
        (models, outcome)
    }
}

/// Waits until there may be posts to label, resting for a while first; true if a signal came instead.
async fn wait_for_posts(
    worker: &Worker<'_>,
    patience: &Patience<'_>,
    watch: &mut Watch,
    rest: Duration,
) -> Result<bool, StoreError> {
    let Worker { clock, stop, .. } = *worker;
    let changed = async {
        clock.sleep(rest).await;
        tokio::select! {
            changed = patience.wait(async || watch.changed().await) => changed,
            () = clock.sleep(LOOK_AGAIN) => Ok(()),
        }
    };
    tokio::select! {
        changed = changed => changed.map(|()| false),
        () = stop.cancelled() => Ok(true),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(posts: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        posts as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
