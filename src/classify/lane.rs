//! A lane runs one engine. A task claims a window of posts, shortlists labels if there is a small model, and tokenises
//! the texts; a thread scores them; another task writes the results. Bounded channels connect them.

mod scoring;
mod shortlist;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::scoring::Scoring;
use super::engine_timer::EngineTimer;
use super::leases::LiveLeases;
use super::retry::Retry;
use super::tally::Tally;
use super::targets::{Targets, prepare, targets, vectors_of_small};
use super::{BacklogError, OnLabelStep, Options};
use crate::run::Run;
use topicmill_core::record::{ComputeStats, StageTimes};
use topicmill_core::{Fullname, LabelSet, PairLogits, TextHash};
use topicmill_review::rescore::stored_logits;
use topicmill_score::labeler::{PairState, Pairs, PreparedLabels};
use topicmill_score::text::{EncodedText, Encoder};
use topicmill_score::{Labeler, LabelerError, Models, Shortlist, TextError};
use topicmill_store::{
    Claim, Claimant, ClaimedPost, Classified, CrashFilter, Lease, StoreError, Target,
};

/// Maximum number of posts per claim: enough to sort by length and fill batches, and small enough that a crashed worker
/// costs a few seconds of repeated work. The exact value is not critical.
const WINDOW_POSTS: usize = 1_024;
/// Maximum number of rows that the engine computes for one claim and that a crash can lose: a BART-large-sized model
/// takes about five minutes on one core for 4,096 pairs with short texts (77 ms each).
const WINDOW_ROWS: usize = 4_096;
/// Maximum number of scores per claim: at 8 bytes each, less than a megabyte for any number of labels.
const WINDOW_SCORES: usize = 100_000;
/// Minimum number of rows per claim, even when claims get smaller to leave posts for other lanes: about one batch on a
/// CPU.
const MIN_ROWS: usize = 64;
/// Maximum number of unwritten windows: one being tokenised, one being computed and one being written.
const WINDOWS_IN_FLIGHT: usize = 3;
/// Capacity of the channel for scored posts; the engine waits while it is full.
const EVENTS: usize = 64;

/// Claimed posts on their way to the engine.
struct Window {
    lease: Lease,
    texts: Vec<EncodedText>,
    /// The pairs of each text: wanted, known from stored logits, or left out.
    stored: Vec<Pairs>,
    /// The posts of each text, one or more.
    posts: Vec<Vec<ClaimedPost>>,
    /// Posts whose texts the small model could not score.
    failed: Vec<(Vec<ClaimedPost>, TextError)>,
    /// Time spent on the window from the claim to tokenising.
    claiming: StageTimes,
    /// The permit for suspects, released when the window is written.
    suspects: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// Creates a window from a claim, before stored logits are looked up.
    fn new(claim: Claim, suspects: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            lease: claim.lease,
            texts: Vec::new(),
            stored: Vec::new(),
            posts: group_by_text(claim.posts),
            failed: Vec::new(),
            claiming: StageTimes::default(),
            suspects,
        }
    }

    /// Tokenises the texts that need inference.
    async fn tokenize(&mut self, encoder: &Arc<Encoder>) -> Result<(), BacklogError> {
        let texts = self.posts.iter_mut().zip(&self.stored);
        let texts: Vec<String> = texts
            .map(|(same, stored)| {
                // A text that needs no inference needs no tokens.
                if stored.contains(&PairState::Wanted) {
                    std::mem::take(&mut same[0].text)
                } else {
                    String::new()
                }
            })
            .collect();
        // Tokenising keeps a core busy, so it must not block an async thread that serves the database.
        let encoder = Arc::clone(encoder);
        self.texts = blocking(move || encoder.encode(&texts)).await??;
        Ok(())
    }
}

/// The result of an engine's thread: the engine or its error, and the times and counts since its last window.
type Engine = (Result<Labeler, LabelerError>, StageTimes, ComputeStats);

/// An event of the engine's thread.
enum Event {
    /// A scored post, the number of its computed pairs, and the number of its known pairs.
    Scored(Lease, Classified, usize, usize),
    /// A post that could not be scored, and the error.
    Failed(Lease, Fullname, String),
    /// The end of a window, complete or stopped, with its times and counts.
    WindowEnd(
        Lease,
        Option<OwnedSemaphorePermit>,
        Box<(StageTimes, ComputeStats)>,
    ),
}

/// State that all lanes of a process share.
pub(super) struct Shared<'a> {
    pub run: &'a Run<'a>,
    pub retry: Retry<'a>,
    /// Cancelled by a signal, or when one lane fails.
    pub halt: CancellationToken,
    pub target: Target,
    /// With a shortlist: the target of the labels that the large model assigns without a shortlist.
    pub large_target: Option<Target>,
    pub set: &'a LabelSet,
    pub options: &'a Options,
    pub prepared: Arc<PreparedLabels>,
    /// The label set, prepared for the small model.
    small_prepared: Option<Arc<PreparedLabels>>,
    /// Id in `models` for the small model's stored vectors, if there are any.
    small_vectors: Option<i64>,
    /// Number of labels that are scored per post.
    scored_labels: usize,
    /// Id in `models` for the stored logits.
    logits_model: i64,
    /// Ids in `hypotheses`, one per label.
    hypotheses: Arc<Vec<i64>>,
    pub leases: LiveLeases,
    // The lanes share only these counts and publish no other memory through them, so `Relaxed` is enough.
    /// Number of posts that may still be claimed within the limit.
    pub left: AtomicU64,
    /// Number of claimable posts at the start of the round, minus the posts that its lanes have claimed since.
    pub waiting: AtomicU64,
    /// Number of lanes.
    lanes: u64,
    /// One permit: a process claims at most one window of suspects (posts whose workers crashed), so that its next
    /// crash can be attributed to that window.
    suspects: Arc<Semaphore>,
    pub progress: OnLabelStep<'a>,
}

impl<'a> Shared<'a> {
    /// Prepares the label set for the models, and finds or inserts the rows that results refer to.
    pub(super) async fn new(
        run: &'a Run<'a>,
        models: &mut [Models],
        set: &'a LabelSet,
        options: &'a Options,
        progress: OnLabelStep<'a>,
    ) -> Result<Self, BacklogError> {
        let (store, lanes) = (run.store, models.len() as u64);
        let first = &mut models[0];
        let prepared = prepare(store, first, set).await?;
        let small = first.small.as_mut();
        let small_prepared = small.map(|small| small.prepare(set)).transpose()?;
        let Targets {
            target,
            large_target,
            logits_model,
        } = targets(run, first, set).await?;
        let hypotheses = store.labels().ensure_hypotheses(prepared.keys()).await?;
        if let Some(vectors) = prepared.label_vectors() {
            store
                .computed()
                .save_label_vectors(logits_model, &hypotheses, vectors)
                .await?;
        }
        Ok(Self {
            run,
            retry: Retry::new(run, options.watch),
            halt: run.stop.child_token(),
            target,
            large_target,
            set,
            options,
            prepared: Arc::new(prepared),
            small_prepared: small_prepared.map(Arc::new),
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
    /// Labels posts until nothing is left to claim, and returns the models. `done` is updated as labels are written.
    pub(super) async fn lane(
        &self,
        models: Models,
        done: &mut Tally<'_>,
    ) -> Result<Models, BacklogError> {
        // Separated, because the two models work concurrently on two threads.
        let Models { large, mut small } = models;
        // One window waits while another is being computed. With more, posts would be claimed long before they are
        // scored, and would remain leased for longer after a crash.
        let (window_tx, window_rx) = mpsc::channel::<Window>(1);
        let (event_tx, event_rx) = mpsc::channel::<Event>(EVENTS);
        let encoder = large.encoder();
        let engine = self.engine(large, window_rx, event_tx);
        // When nothing is left to claim, or after a signal or an error, `claim_windows` ends and closes the channel of
        // windows. The engine then scores the windows in the channel and closes the channel of events, and the writer
        // writes those events. So all three end and no result is lost.
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

    /// Starts an engine's thread.
    fn engine(
        &self,
        mut large: Labeler,
        windows: mpsc::Receiver<Window>,
        events: mpsc::Sender<Event>,
    ) -> impl Future<Output = Result<Engine, BacklogError>> + use<> {
        let (prepared, hypotheses) = (Arc::clone(&self.prepared), Arc::clone(&self.hypotheses));
        let (model, clock, stop) = (self.logits_model, self.run.clock.clone(), self.halt.clone());
        blocking(move || {
            let mut stages = StageTimes::default();
            let scoring = Scoring {
                prepared: &prepared,
                model,
                hypotheses: &hypotheses,
                events: &events,
                stop: &stop,
                timer: EngineTimer::new(&clock, &mut stages),
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
        let clock = self.run.clock;
        while !self.halt.is_cancelled() {
            // Reserved first, so that posts are claimed only when the engine is about to need them.
            let Ok(permit) = windows.reserve().await else {
                break;
            };
            let mut since = clock.elapsed();
            // Returns the seconds since its last call.
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
                // The posts are released at the end of the run, with all live leases.
                if !self.apply_shortlist(small, &mut window).await? {
                    break;
                }
                stages.shortlist_secs += lap();
            }
            window.tokenize(encoder).await?;
            stages.tokenize_secs += lap();
            window.claiming = std::mem::take(stages);
            permit.send(window);
        }
        Ok(())
    }

    /// Claims the next window; `None` if nothing is left or the limit is reached.
    async fn claim_window(&self) -> Result<Option<Window>, StoreError> {
        let wanted = self.take(self.next_claim_size());
        if wanted == 0 {
            return Ok(None);
        }
        let (claim, suspects) = self.claim(wanted).await?;
        let count = claim.posts.len() as u64;
        self.left
            // Returns the unclaimed part of the limit to the other lanes.
            .fetch_add(u64::from(wanted) - count, Ordering::Relaxed);
        if count == 0 {
            return Ok(None);
        }
        // The closure always returns `Some`. It saturates, because posts may have arrived since the count.
        let _ = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                Some(waiting.saturating_sub(count))
            });
        // From here on the heartbeat renews the lease.
        self.leases.add(claim.lease);
        Ok(Some(Window::new(claim, suspects)))
    }

    /// Claims posts, or, if none are left, suspects (posts whose workers crashed). Suspects are returned with a permit.
    async fn claim(
        &self,
        wanted: u32,
    ) -> Result<(Claim, Option<OwnedSemaphorePermit>), StoreError> {
        let Run { store, clock, .. } = *self.run;
        let claimant = Claimant {
            worker: self.run.worker,
            run: self.run.id,
            max_attempts: self.options.max_attempts,
            lease: self.options.lease,
        };
        // If the response to a claim is lost, its posts become claimable when the lease expires.
        let clean = self.retry.run_with_timeout(async || {
            let now = clock.now().into();
            store
                .backlog()
                .claim(
                    self.target,
                    &claimant,
                    CrashFilter::WithoutCrash,
                    wanted,
                    now,
                )
                .await
        });
        let clean = clean.await?;
        // Suspects are claimed last, so that a text that crashes its worker does so only after all others are scored.
        if !clean.posts.is_empty() {
            return Ok((clean, None));
        }
        let permit = Arc::clone(&self.suspects).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        // The wait for the permit may have taken as long as another lane's window.
        if self.halt.is_cancelled() {
            return Ok((clean, None));
        }
        let suspected = self.retry.run_with_timeout(async || {
            let now = clock.now().into();
            store
                .backlog()
                .claim(self.target, &claimant, CrashFilter::WithCrash, wanted, now)
                .await
        });
        Ok((suspected.await?, Some(permit)))
    }

    /// Returns the number of rows that the engine computes per text. A shortlist leaves out labels, but not background
    /// topics.
    fn rows_per_text(&self) -> usize {
        match self.prepared.rows_per_text() {
            1 => 1,
            rows => self.scored_labels + rows.saturating_sub(self.set.labels.len()),
        }
    }

    /// Looks up the stored logits of a window's texts.
    async fn look_up(&self, window: &mut Window) -> Result<(), BacklogError> {
        if self.prepared.needs_vectors() {
            let all_wanted = vec![PairState::Wanted; self.hypotheses.len()];
            window.stored = vec![all_wanted; window.posts.len()];
            return Ok(());
        }
        let hashes: Vec<TextHash> = window.posts.iter().map(|same| same[0].text_hash).collect();
        let stored = self.retry.run_with_timeout(async || {
            let (store, model) = (self.run.store, self.logits_model);
            stored_logits(store, model, &self.hypotheses, &hashes).await
        });
        let pair = |logits: Option<PairLogits>| logits.map_or(PairState::Wanted, PairState::Known);
        let stored = stored.await?.into_iter();
        window.stored = stored
            .map(|logits| logits.into_iter().map(pair).collect())
            .collect();
        Ok(())
    }

    /// Returns the size of the next claim. Near the end of the backlog or limit, claims get smaller, so that every lane
    /// has posts.
    fn next_claim_size(&self) -> u32 {
        let rows = self.rows_per_text();
        let small_rows = self
            .small_prepared
            .as_deref()
            .map(PreparedLabels::rows_per_text);
        let max = window_posts(rows.max(small_rows.unwrap_or(0)), self.set.labels.len());
        if self.lanes == 1 {
            return max;
        }
        let min = u32::try_from(MIN_ROWS.div_ceil(rows)).unwrap_or(u32::MAX);
        let left = self.left.load(Ordering::Relaxed);
        // Half of an equal share: the shares shrink with the backlog, so that the lanes end at about the same time.
        let share = self.waiting.load(Ordering::Relaxed).min(left) / (2 * self.lanes);
        max.min(u32::try_from(share).unwrap_or(max).max(min))
    }

    /// Takes up to `max` from the number of posts that may still be claimed.
    fn take(&self, max: u32) -> u32 {
        let mut taken = 0;
        // The closure always returns `Some`.
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                taken = u32::try_from(left).unwrap_or(u32::MAX).min(max);
                Some(left - u64::from(taken))
            });
        taken
    }
}

/// Runs blocking work on another thread.
pub(super) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, BacklogError>> {
    // Starts now, not when the future is first polled.
    let thread = tokio::task::spawn_blocking(work);
    async {
        thread
            .await
            .map_err(|error| BacklogError::Thread(error.to_string()))
    }
}

/// Returns the maximum number of posts in a claim, which bounds its memory and the work that a crash can lose.
fn window_posts(rows_per_text: usize, labels: usize) -> u32 {
    let posts = (WINDOW_ROWS / rows_per_text).min(WINDOW_SCORES / labels.max(1));
    u32::try_from(posts.clamp(1, WINDOW_POSTS)).expect("WINDOW_POSTS is small")
}

/// Groups posts by text, in the order of each text's first post.
fn group_by_text(posts: Vec<ClaimedPost>) -> Vec<Vec<ClaimedPost>> {
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
