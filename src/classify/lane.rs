//! One engine at work: a task claims the next window of posts, has the small model look at it where there is one,
//! and tokenises what is left; a thread of its own scores, and another task writes what comes out, joined by bounded
//! channels.

mod scoring;
mod small;
mod writing;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::scoring::Scoring;
use super::leases::LiveLeases;
use super::patience::Patience;
use super::tally::Tally;
use super::targets::{Targets, prepare, targets, vectors_of_small};
use super::watched::Watched;
use super::{BacklogError, OnLabelStep, Options};
use crate::worker::Worker;
use topicmill_core::record::StageTimes;
use topicmill_core::{Fullname, TextHash};
use topicmill_review::rescore::stored_logits;
use topicmill_score::labeler::{ComputeStats, PairState, Pairs, PreparedLabels};
use topicmill_score::text::{EncodedText, Encoder};
use topicmill_score::{LabelSet, Labeler, LabelerError, Models, PairLogits, Shortlist, TextError};
use topicmill_store::{
    Claim, Claimant, ClaimedPost, Classified, Lease, StoreError, Suspicion, Target,
};

/// Most posts of one claim: enough to sort by length and fill batches, few enough that a worker which dies costs others
/// seconds. Any number of this size would do.
const WINDOW_POSTS: usize = 1_024;
/// Most rows that the engine computes for one claim: 4,096 pairs of BART-large's shape with short texts take a core
/// about five minutes (77 ms each), which is the default lease.
const WINDOW_ROWS: usize = 4_096;
/// Most scores that one claim gives: with 8 bytes each less than a megabyte, whatever the number of labels.
const WINDOW_SCORES: usize = 100_000;
/// Fewest rows of a claim that is made small for the sake of other lanes: about a batch on a CPU.
const LEAST_SHARE: usize = 64;
/// Windows that may be claimed before what was computed for one is written: one is tokenised, one computed, one written.
const WINDOWS_IN_FLIGHT: usize = 3;
/// Scored posts that wait for the writer; with it busy, the engine waits.
const EVENTS: usize = 64;

/// Claimed posts on their way to the engine.
struct Window {
    lease: Lease,
    texts: Vec<EncodedText>,
    /// Stored logits of each text, and the labels that are left out.
    stored: Vec<Pairs>,
    /// The posts of each text, one or more.
    posts: Vec<Vec<ClaimedPost>>,
    /// Posts of texts of which the small model said nothing.
    unread: Vec<(Vec<ClaimedPost>, TextError)>,
    /// Time spent on the claim, up to tokenising.
    claiming: StageTimes,
    /// Given back when the window is written.
    suspects: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// Creates a window from a claim; nothing is looked up yet.
    fn of(claim: Claim, suspects: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            lease: claim.lease,
            texts: Vec::new(),
            stored: Vec::new(),
            posts: by_text(claim.posts),
            unread: Vec::new(),
            claiming: StageTimes::default(),
            suspects,
        }
    }

    /// Tokenises the texts that need inference.
    async fn tokenize(&mut self, encoder: &Arc<Encoder>) -> Result<(), BacklogError> {
        let texts = self.posts.iter_mut().zip(&self.stored);
        let texts: Vec<String> = texts
            .map(|(same, stored)| {
                // What needs no inference needs no tokens.
                if stored.contains(&PairState::Wanted) {
                    std::mem::take(&mut same[0].text)
                } else {
                    String::new()
                }
            })
            .collect();
        // Tokenising takes a core, so it must not run on a thread that also serves the database.
        let encoder = Arc::clone(encoder);
        self.texts = blocking(move || encoder.encode(&texts)).await??;
        Ok(())
    }
}

/// An engine after its last window, or why it failed, and what it counted since that window.
type Engine = (Result<Labeler, LabelerError>, StageTimes, ComputeStats);

/// An event of the engine's thread.
enum Event {
    /// A post, and how many of its pairs were computed, and how many known.
    Scored(Lease, Classified, usize, usize),
    Failed(Lease, Fullname, String),
    /// No more of this window will come: done, or stopped on the way. With what it took.
    WindowEnd(
        Lease,
        Option<OwnedSemaphorePermit>,
        Box<(StageTimes, ComputeStats)>,
    ),
}

/// State that all lanes of a process share.
pub(super) struct Shared<'a> {
    pub worker: &'a Worker<'a>,
    pub patience: Patience<'a>,
    /// Cancelled by a signal, or when one lane fails.
    pub halt: CancellationToken,
    pub target: Target,
    /// With a small model: where the large one's labels go without it.
    pub alone: Option<Target>,
    pub set: &'a LabelSet,
    pub options: &'a Options,
    pub prepared: Arc<PreparedLabels>,
    /// The label set as the small model reads it.
    picking: Option<Arc<PreparedLabels>>,
    /// Row of `models` under which vectors by the small model are stored, if it has any.
    small_vectors: Option<i64>,
    /// Labels of each post that are scored.
    scored_labels: usize,
    /// Row of `models` under which logits are stored.
    logits_model: i64,
    /// Rows of `hypotheses`, one a label.
    hypotheses: Arc<Vec<i64>>,
    pub leases: LiveLeases,
    // Mere counts, shared by the lanes: no other memory is published through them, so `Relaxed` is enough everywhere.
    /// Posts that may still be claimed.
    pub left: AtomicU64,
    /// Posts that waited when the round began, less those that its lanes claimed.
    pub waiting: AtomicU64,
    /// Lanes of the round.
    lanes: u64,
    /// One permit: of posts whose workers died, a process holds one window at a time, so that its death can
    /// be blamed on that one.
    suspects: Arc<Semaphore>,
    pub progress: OnLabelStep<'a>,
}

impl<'a> Shared<'a> {
    /// Makes the label set ready for the models, and finds or makes the rows under which their work is stored.
    pub(super) async fn new(
        worker: &'a Worker<'a>,
        models: &mut [Models],
        set: &'a LabelSet,
        options: &'a Options,
        progress: OnLabelStep<'a>,
    ) -> Result<Self, BacklogError> {
        let (store, lanes) = (worker.store, models.len() as u64);
        let first = &mut models[0];
        let prepared = prepare(store, first, set).await?;
        let small = first.small.as_mut();
        let picking = small.map(|small| small.prepare(set)).transpose()?;
        let Targets {
            target,
            alone,
            logits_model,
        } = targets(worker, first, set).await?;
        let hypotheses = store.labels().ensure_hypotheses(prepared.keys()).await?;
        if let Some(vectors) = prepared.label_vectors() {
            store
                .computed()
                .save_label_vectors(logits_model, &hypotheses, vectors)
                .await?;
        }
        Ok(Self {
            worker,
            patience: Patience::new(worker, options.watch),
            halt: worker.stop.child_token(),
            target,
            alone,
            set,
            options,
            prepared: Arc::new(prepared),
            picking: picking.map(Arc::new),
            small_vectors: vectors_of_small(store, first).await?,
            scored_labels: first.scored_labels(set.labels.len()),
            logits_model,
            hypotheses: Arc::new(hypotheses),
            leases: LiveLeases::default(),
            left: AtomicU64::new(options.limit.unwrap_or(u64::MAX)),
            waiting: AtomicU64::new(0),
            lanes,
            suspects: Arc::new(Semaphore::new(1)),
            progress,
        })
    }
}

impl Shared<'_> {
    /// Works until nothing can be claimed any more, and hands the models back. `done` is added to as labels
    /// are written.
    pub(super) async fn lane(
        &self,
        models: Models,
        done: &mut Tally<'_>,
    ) -> Result<Models, BacklogError> {
        // Each has a thread of its own, so that one works while the other does.
        let Models {
            mut large,
            mut small,
        } = models;
        // One window waits while another is computed. With more, posts would be claimed long before anybody scores
        // them, and come free late where this worker dies.
        let (window_tx, window_rx) = mpsc::channel::<Window>(1);
        let (event_tx, event_rx) = mpsc::channel::<Event>(EVENTS);
        let encoder = large.encoder();
        let watch = self.worker.clock.clone();
        large.set_stopwatch(Box::new(move || watch.elapsed()));
        let engine = self.engine(large, window_rx, event_tx);
        // Claiming ends when nothing is left, at a signal or at an error; its end closes the channel of windows,
        // the engine scores what it was given and closes the channel of events, and the writer writes what is
        // in it. So each of them comes to its end by itself, and nothing that was scored is dropped.
        let mut claiming = StageTimes::default();
        let (claimed, written) = tokio::join!(
            self.claim_windows(&encoder, &mut small, window_tx, &mut claiming),
            self.write_events(event_rx, done)
        );
        let scored = engine.await;
        done.new.stages.add(&claiming);
        written?;
        claimed?;
        let (scored, computing, computed) = scored?;
        done.new.stages.add(&computing);
        done.new.add_computed(&computed);
        let large = scored?;
        Ok(Models { large, small })
    }

    /// Starts the thread of an engine. It ends with the engine, or why that failed, and with what it counted last.
    fn engine(
        &self,
        mut large: Labeler,
        windows: mpsc::Receiver<Window>,
        events: mpsc::Sender<Event>,
    ) -> impl Future<Output = Result<Engine, BacklogError>> + use<> {
        let (prepared, hypotheses) = (Arc::clone(&self.prepared), Arc::clone(&self.hypotheses));
        let (model, clock, stop) = (
            self.logits_model,
            self.worker.clock.clone(),
            self.halt.clone(),
        );
        blocking(move || {
            let mut stages = StageTimes::default();
            let scoring = Scoring {
                prepared: &prepared,
                model,
                hypotheses: &hypotheses,
                events: &events,
                stop: &stop,
                watched: Watched::new(&clock, &mut stages),
                recent: VecDeque::new(),
            };
            let ended = scoring.windows(&mut large, windows);
            let computed = large.take_stats();
            (ended.map(|()| large), stages, computed)
        })
    }

    /// Claims and tokenises window after window until nothing is left.
    async fn claim_windows(
        &self,
        encoder: &Arc<Encoder>,
        small: &mut Option<Shortlist>,
        windows: mpsc::Sender<Window>,
        stages: &mut StageTimes,
    ) -> Result<(), BacklogError> {
        let clock = self.worker.clock;
        while !self.halt.is_cancelled() {
            // A place in the channel first: posts are claimed only when the engine is about to need them.
            let Ok(place) = windows.reserve().await else {
                break;
            };
            let mut since = clock.elapsed();
            // What passed since it was called last.
            let mut lap = || {
                let from = std::mem::replace(&mut since, clock.elapsed());
                since.saturating_sub(from).as_secs_f64()
            };
            let claimed = self.claim_window().await?;
            stages.claim_secs += lap();
            let Some(mut window) = claimed else {
                break;
            };
            self.look_up(&mut window).await?;
            stages.look_up_secs += lap();
            if small.is_some() {
                // Its posts are given back at the end of the run, with all leases that are still live.
                if !self.ask_small(small, &mut window).await? {
                    break;
                }
                stages.shortlist_secs += lap();
            }
            window.tokenize(encoder).await?;
            stages.tokenize_secs += lap();
            window.claiming = std::mem::take(stages);
            place.send(window);
        }
        Ok(())
    }

    /// Claims the next window; `None` where nothing is left, or enough is claimed.
    async fn claim_window(&self) -> Result<Option<Window>, StoreError> {
        let wanted = self.take(self.share());
        if wanted == 0 {
            return Ok(None);
        }
        let (claim, suspects) = self.claim(wanted).await?;
        let count = claim.posts.len() as u64;
        self.left
            // What was taken of the limit and not claimed goes back to the other lanes.
            .fetch_add(u64::from(wanted) - count, Ordering::Relaxed);
        if count == 0 {
            return Ok(None);
        }
        // The closure never declines. Posts may have come since they were counted.
        let _ = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                Some(waiting.saturating_sub(count))
            });
        // From here on the heartbeat renews it. Until now it lived by the time that the claim gave it.
        self.leases.add(claim.lease);
        Ok(Some(Window::of(claim, suspects)))
    }

    /// Claims posts that are free, or, once there are none, those whose workers died. These come with the permit for them.
    async fn claim(
        &self,
        wanted: u32,
    ) -> Result<(Claim, Option<OwnedSemaphorePermit>), StoreError> {
        let Worker {
            store, clock, name, ..
        } = *self.worker;
        let claimant = Claimant {
            worker: name,
            run: self.worker.run,
            max_attempts: self.options.max_attempts,
            lease: self.options.lease,
        };
        // The posts of a claim whose answer was lost come free when it expires.
        let clean = self.patience.wait_in_hand(async || {
            let now = clock.now().into();
            store
                .backlog()
                .claim(self.target, &claimant, Suspicion::Clear, wanted, now)
                .await
        });
        let clean = clean.await?;
        // Suspects come last, so that a text that kills its worker does so after all others were scored.
        if !clean.posts.is_empty() {
            return Ok((clean, None));
        }
        let alone = Arc::clone(&self.suspects).acquire_owned().await;
        let alone = alone.expect("nobody closes the semaphore");
        // The permit may have taken as long as another lane needs for a window.
        if self.halt.is_cancelled() {
            return Ok((clean, None));
        }
        let suspected = self.patience.wait_in_hand(async || {
            let now = clock.now().into();
            store
                .backlog()
                .claim(self.target, &claimant, Suspicion::Suspect, wanted, now)
                .await
        });
        Ok((suspected.await?, Some(alone)))
    }

    /// Rows that the engine computes for a text: a shortlist leaves labels out, and the background's topics stay.
    fn rows_of_a_text(&self) -> usize {
        match self.prepared.rows_per_text() {
            1 => 1,
            rows => self.scored_labels + rows.saturating_sub(self.set.labels.len()),
        }
    }

    /// Looks up what is stored of the texts of a window.
    async fn look_up(&self, window: &mut Window) -> Result<(), BacklogError> {
        if self.prepared.needs_vectors() {
            let all_wanted = vec![PairState::Wanted; self.hypotheses.len()];
            window.stored = vec![all_wanted; window.posts.len()];
            return Ok(());
        }
        let hashes: Vec<TextHash> = window.posts.iter().map(|same| same[0].text_hash).collect();
        let stored = self.patience.wait_in_hand(async || {
            let (store, model) = (self.worker.store, self.logits_model);
            stored_logits(store, model, &self.hypotheses, &hashes).await
        });
        let pair = |logits: Option<PairLogits>| logits.map_or(PairState::Wanted, PairState::Known);
        let stored = stored.await?.into_iter();
        window.stored = stored
            .map(|of_text| of_text.into_iter().map(pair).collect())
            .collect();
        Ok(())
    }

    /// Posts of the next claim: of a backlog, or a limit, that a few claims would use up, no lane takes so many
    /// that the others have nothing to do.
    fn share(&self) -> u32 {
        let rows = self.rows_of_a_text();
        let picking = self.picking.as_deref().map(PreparedLabels::rows_per_text);
        let most = window_posts(rows.max(picking.unwrap_or(0)), self.set.labels.len());
        if self.lanes == 1 {
            return most;
        }
        let least = u32::try_from(LEAST_SHARE.div_ceil(rows)).unwrap_or(u32::MAX);
        let left = self.left.load(Ordering::Relaxed);
        // Half of an equal share: shares shrink as the backlog does, and the lanes come to their end at about the same
        // time.
        let share = self.waiting.load(Ordering::Relaxed).min(left) / (2 * self.lanes);
        most.min(u32::try_from(share).unwrap_or(most).max(least))
    }

    /// Takes up to `most` from the posts that may still be claimed.
    fn take(&self, most: u32) -> u32 {
        let mut taken = 0;
        // The closure never declines.
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                taken = u32::try_from(left).unwrap_or(u32::MAX).min(most);
                Some(left - u64::from(taken))
            });
        taken
    }
}

/// Runs on a thread where it may block.
pub(super) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, BacklogError>> {
    // Begins at once, and not when it is awaited.
    let thread = tokio::task::spawn_blocking(work);
    async {
        thread
            .await
            .map_err(|error| BacklogError::Thread(error.to_string()))
    }
}

/// Posts of one claim: enough to sort by length, but not more scores than fit in memory, nor more work than
/// one wants to redo.
fn window_posts(rows_per_text: usize, labels: usize) -> u32 {
    let posts = (WINDOW_ROWS / rows_per_text).min(WINDOW_SCORES / labels.max(1));
    u32::try_from(posts.clamp(1, WINDOW_POSTS)).expect("WINDOW_POSTS is small")
}

/// Posts put together that have the same text, in the order of their first.
fn by_text(posts: Vec<ClaimedPost>) -> Vec<Vec<ClaimedPost>> {
    let mut index: HashMap<TextHash, usize> = HashMap::new();
    let mut groups: Vec<Vec<ClaimedPost>> = Vec::new();
    for post in posts {
        let group = *index.entry(post.text_hash).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(same) => same.push(post),
            None => groups.push(vec![post]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::window_posts;

    #[test]
    fn a_window_shrinks_as_labels_grow() {
        assert_eq!(window_posts(1, 16), 1_024);
        assert_eq!(window_posts(16, 16), 256);
        assert_eq!(window_posts(1, 10_000), 10);
        assert_eq!(window_posts(10_000, 10_000), 1);
    }
}
