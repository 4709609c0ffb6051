//! A lane labels posts with one engine: from the backlog, through a claim, tokens and scores, to the rows of their
//! labels.
//!
//! Bounded channels connect three workers, which pass on a window of posts at a time:
//!
//! 1. A task, `claim_windows`: claims posts (`Labelling::claim`, then `claim` in the store), looks up
//!    [`stored_logits`], shortlists labels if there is a small model (`apply_shortlist`), and tokenises the texts
//!    ([`Encoder::encode`]).
//! 2. A thread, `score_windows`: scores the texts ([`Labeler::score`]). They become rows (`PreparedLabels::rows`), rows
//!    become batches (`batch::plan`, `Labeler::compute`), an [`Engine`](topicmill_score::Engine) computes their logits,
//!    and the logits of a text become its scores (`PreparedLabels::result`).
//! 3. Another task, `write_results`: writes the labels ([`Labelling::write`], then `save_labels` in the store).

mod shortlist;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::engine_timer::{EngineTimer, Stopwatch};
use super::tally::Tally;
use super::targets::Targets;
use super::{Labelling, StageError, blocking};
use crate::run::Run;
use topicmill_core::record::{ClassifyCounts, StageTimes};
use topicmill_core::{Fullname, TextHash, TextVector};
use topicmill_review::rescore::stored_logits;
use topicmill_score::labeler::{Completion, PairState, Pairs};
use topicmill_score::text::{EncodedText, Encoder};
use topicmill_score::{Labeler, LabelerError, Models, Shortlist, TextError, TextResult};
use topicmill_store::{
    Claimant, ClaimedPost, Classified, CrashFilter, HypothesisId, Lease, NewLogits, StoreError,
};

/// Maximum number of unwritten windows: one being tokenised, one being computed and one being written.
const WINDOWS_IN_FLIGHT: usize = 3;
/// Capacity of the channel for scored texts; the engine waits while it is full.
const RESULTS: usize = 64;
/// Number of posts per write.
const WRITE_POSTS: usize = 256;
/// Maximum time between writes, so that a slow model's results soon become visible and durable.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Claimed posts on their way to the engine.
struct ClaimedWindow {
    lease: Lease,
    /// The posts of each text.
    posts: Vec<SameText>,
    /// The pairs of each text: wanted, known from stored logits, or skipped.
    stored: Vec<Pairs>,
    /// The tokens of each text; none if no pair is wanted.
    texts: Vec<EncodedText>,
    /// Texts that the small model could not score.
    failed: Vec<FailedText>,
    /// Time spent on the window from the claim to tokenising.
    claiming: StageTimes,
    /// The permit for suspects, released when the window is written.
    suspects: Option<OwnedSemaphorePermit>,
}

/// Claimed posts with the same text, one or more.
#[derive(Default)]
struct SameText {
    posts: Vec<ClaimedPost>,
}

impl SameText {
    fn text(&self) -> &str {
        &self.posts[0].text
    }

    fn hash(&self) -> TextHash {
        self.posts[0].text_hash
    }
}

/// Groups posts by text, in the order of each text's first post.
fn group_by_text(posts: Vec<ClaimedPost>) -> Vec<SameText> {
    let mut groups: Vec<SameText> = Vec::new();
    let mut index: HashMap<TextHash, usize> = HashMap::new();
    for post in posts {
        let group = *index.entry(post.text_hash).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(same) => same.posts.push(post),
            None => groups.push(SameText { posts: vec![post] }),
        }
    }
    groups
}

/// A text that could not be scored.
struct FailedText {
    same: SameText,
    error: String,
}

/// A scored text.
struct ScoredText {
    same: SameText,
    /// The pairs that were wanted, known or skipped when the text was claimed.
    stored: Pairs,
    /// Number of pairs computed now; the other wanted pairs were known from the latest windows.
    computed: usize,
    result: TextResult,
}

impl ScoredText {
    /// Keeps of a result what is stored, or needed for the same text in the next windows. `known` are the pairs that
    /// the engine got, and `recent_vector` is the text's vector from the latest windows.
    fn new(
        same: SameText,
        stored: Pairs,
        known: &[PairState],
        recent_vector: Option<TextVector>,
        mut result: TextResult,
    ) -> Self {
        result.raw = Vec::new();
        let is_scored = stored.contains(&PairState::Wanted);
        result.vector = result.vector.or(recent_vector).filter(|_| is_scored);
        let computed = known.iter().filter(|pair| **pair == PairState::Wanted);
        Self {
            computed: computed.count(),
            same,
            stored,
            result,
        }
    }

    /// Adds the text's pairs to `counts`: they count as computed for its first post, and as known for its other posts.
    fn count_pairs(&self, counts: &mut ClassifyCounts) {
        let pairs = self.result.logits.iter().flatten().count() * self.same.posts.len();
        counts.pairs += self.computed as u64;
        counts.pairs_reused += (pairs - self.computed) as u64;
    }

    /// Returns the logits that are not stored yet, for these keys in `hypotheses`. An embedding model stores the vector
    /// instead.
    fn new_logits(&self, hypotheses: &[HypothesisId]) -> Vec<NewLogits> {
        if self.result.vector.is_some() {
            return Vec::new();
        }
        let pairs = self.stored.iter().zip(hypotheses).zip(&self.result.logits);
        let new = pairs.filter_map(|((stored, hypothesis), logits)| {
            Some(NewLogits {
                hypothesis: *hypothesis,
                logits: logits.filter(|_| *stored == PairState::Wanted)?,
            })
        });
        new.collect()
    }

    /// Returns the posts with their labels, and with what is to be stored of the model's output.
    fn into_classified(self, hypotheses: &[HypothesisId]) -> impl Iterator<Item = Classified> {
        let logits = self.new_logits(hypotheses);
        let result = self.result;
        self.same.posts.into_iter().map(move |post| Classified {
            fullname: post.fullname,
            text_hash: post.text_hash,
            scores: result.scores.clone(),
            logits: logits.clone(),
            vector: result.vector.clone(),
        })
    }
}

/// A message from the engine's thread to the writer, sent with the lease of the window.
enum LaneMessage {
    Scored(ScoredText),
    Failed(FailedText),
    /// The window ended, complete or stopped.
    End {
        counts: Box<ClassifyCounts>,
        /// The permit for suspects, released when the window is written.
        suspects: Option<OwnedSemaphorePermit>,
    },
}

impl Labelling<'_> {
    /// Labels posts until nothing is left to claim, and returns the models. `done` is updated as labels are written.
    pub(super) async fn lane(
        &self,
        models: Models,
        done: &mut Tally<'_>,
    ) -> Result<Models, StageError> {
        // Separated, because the two models work concurrently on two threads.
        let Models { mut large, small } = models;
        // One window waits while another is being computed. With more, posts would be claimed long before they are
        // scored, and would remain leased for longer after a crash.
        let (window_tx, window_rx) = mpsc::channel(1);
        let (result_tx, result_rx) = mpsc::channel(RESULTS);
        let encoder = large.encoder();
        let (targets, halt) = (Arc::clone(&self.targets), self.halt.clone());
        let clock = self.run.clock.clone();
        let engine = blocking(move || {
            let mut stages = StageTimes::default();
            let mut timer = EngineTimer::new(&clock, &mut stages);
            let ended = score_windows(
                &mut large, &targets, window_rx, &result_tx, &halt, &mut timer,
            );
            let computed = large.take_stats();
            Ok::<_, StageError>((large, ended, stages, computed))
        });
        // When nothing is left to claim, or after a signal or an error, `claim_windows` ends and closes the channel of
        // windows. The engine then scores the windows in the channel and closes the channel of results, and the writer
        // writes those results. So all three end and no result is lost.
        let mut claiming = StageTimes::default();
        let (claimed, written) = tokio::join!(
            self.claim_windows(&encoder, small, window_tx, &mut claiming),
            self.write_results(result_rx, done)
        );
        let scored = engine.await;
        done.new.stages.add(&claiming);
        written?;
        let small = claimed?;
        let (large, ended, stages, computed) = scored?;
        done.new.stages.add(&stages);
        done.new.computed.add(&computed);
        ended?;
        Ok(Models { large, small })
    }

    /// Claims and tokenises window after window until nothing is left, and returns the small model.
    async fn claim_windows(
        &self,
        encoder: &Arc<Encoder>,
        mut small: Option<Shortlist>,
        windows: mpsc::Sender<ClaimedWindow>,
        stages: &mut StageTimes,
    ) -> Result<Option<Shortlist>, StageError> {
        let Run { store, clock, .. } = self.run;
        let targets = &self.targets;
        let (model, hypotheses) = (targets.logits_model, &targets.hypotheses);
        while !self.halt.is_cancelled() {
            // Reserved first, so that posts are claimed only when the engine is about to need them.
            let Ok(permit) = windows.reserve().await else {
                break;
            };
            let mut watch = Stopwatch::start(clock);
            let claimed = self.claim().await?;
            stages.claim_secs += watch.lap();
            let Some(mut window) = claimed else {
                break;
            };
            if targets.prepared.needs_vectors() {
                let wanted = vec![PairState::Wanted; hypotheses.len()];
                window.stored = vec![wanted; window.posts.len()];
            } else {
                let hashes: Vec<TextHash> = window.posts.iter().map(SameText::hash).collect();
                let look_up = async || stored_logits(store, model, hypotheses, &hashes).await;
                let stored = self.retry.run_with_timeout(look_up).await?.into_iter();
                let pairs = |logits: Vec<_>| logits.into_iter().map(PairState::from).collect();
                window.stored = stored.map(pairs).collect();
            }
            stages.look_up_secs += watch.lap();
            if let Some(shortlist) = small {
                let (shortlist, completion) = self.apply_shortlist(shortlist, &mut window).await?;
                small = Some(shortlist);
                // The posts are released at the end of the run, with all live leases.
                if completion == Completion::Cancelled {
                    break;
                }
                stages.shortlist_secs += watch.lap();
            }
            let posts_and_pairs = window.posts.iter_mut().zip(&window.stored);
            let texts = posts_and_pairs.map(|(same, pairs)| {
                if pairs.contains(&PairState::Wanted) {
                    std::mem::take(&mut same.posts[0].text)
                } else {
                    // A text that needs no inference needs no tokens.
                    String::new()
                }
            });
            let texts: Vec<String> = texts.collect();
            // Tokenising keeps a core busy, so it must not block an async thread that serves the database.
            let encoder = Arc::clone(encoder);
            window.texts = blocking(move || encoder.encode(&texts)).await?;
            stages.tokenize_secs += watch.lap();
            window.claiming = std::mem::take(stages);
            permit.send(window);
        }
        Ok(small)
    }

    /// Claims posts, or, if none are left, suspects (posts whose workers crashed), and groups them by text. `None` if
    /// nothing is left or the limit is reached.
    async fn claim(&self) -> Result<Option<ClaimedWindow>, StoreError> {
        let Run { store, clock, .. } = self.run;
        let limit = self.sizes.take();
        if limit == 0 {
            return Ok(None);
        }
        let claimant = Claimant {
            worker: self.run.worker,
            run: self.run.id,
            max_attempts: self.options.max_attempts,
            lease: self.options.lease,
        };
        // If the response to a claim is lost, its posts become claimable when the lease expires.
        let claim = async |crashes| {
            let (backlog, target) = (store.backlog(), self.targets.target);
            self.retry
                .run_with_timeout(async || {
                    let now = clock.now().into();
                    backlog.claim(target, &claimant, crashes, limit, now).await
                })
                .await
        };
        let (mut claimed, mut permit) = (claim(CrashFilter::WithoutCrash).await?, None);
        // Suspects are claimed last, so that a text that crashes its worker does so only after all others are scored.
        if claimed.posts.is_empty() {
            let acquired = Arc::clone(&self.suspects).acquire_owned().await;
            let acquired = acquired.expect("the semaphore is never closed");
            // The wait for the permit may have taken as long as another lane's window.
            if !self.halt.is_cancelled() {
                claimed = claim(CrashFilter::WithCrash).await?;
                permit = Some(acquired);
            }
        }
        self.sizes.settle(limit, claimed.posts.len() as u64);
        if claimed.posts.is_empty() {
            return Ok(None);
        }
        // From here on the heartbeat renews the lease.
        self.leases.add(claimed.lease);
        Ok(Some(ClaimedWindow {
            lease: claimed.lease,
            posts: group_by_text(claimed.posts),
            stored: Vec::new(),
            texts: Vec::new(),
            failed: Vec::new(),
            claiming: StageTimes::default(),
            suspects: permit,
        }))
    }
}

/// Results of the latest windows, which may not be stored yet when the next windows are claimed.
#[derive(Default)]
struct RecentResults(VecDeque<HashMap<TextHash, TextResult>>);

impl RecentResults {
    fn add_window(&mut self, results: HashMap<TextHash, TextResult>) {
        self.0.push_front(results);
        self.0.truncate(WINDOWS_IN_FLIGHT);
    }

    /// Marks the wanted pairs of a text as known if they were computed for it recently. Returns its vector, if it has a
    /// recent one.
    fn fill_in(&self, text: TextHash, pairs: &mut Pairs) -> Option<TextVector> {
        let result = self.0.iter().find_map(|window| window.get(&text))?;
        for (pair, logits) in pairs.iter_mut().zip(&result.logits) {
            if let (PairState::Wanted, Some(logits)) = (*pair, logits) {
                *pair = PairState::Known(*logits);
            }
        }
        result.vector.clone()
    }
}

/// Scores windows until the channel closes, and sends the results to the writer.
fn score_windows(
    labeler: &mut Labeler,
    targets: &Targets,
    mut windows: mpsc::Receiver<ClaimedWindow>,
    results: &mpsc::Sender<(Lease, LaneMessage)>,
    halt: &CancellationToken,
    timer: &mut EngineTimer<'_>,
) -> Result<(), LabelerError> {
    let mut recent = RecentResults::default();
    // The channel is closed when the writer has ended.
    let halted = || halt.is_cancelled() || results.is_closed();
    while let Some(mut window) = timer.idle(|| windows.blocking_recv()) {
        let send = |timer: &mut EngineTimer<'_>, message| {
            // Fails only if the writer has ended, which also ends the scoring.
            timer.blocked(|| drop(results.blocking_send((window.lease, message))));
        };
        for failed in window.failed {
            send(timer, LaneMessage::Failed(failed));
        }
        // A copy, because `window.stored` also decides which pairs are written.
        let (mut known, mut vectors) = (window.stored.clone(), vec![None; window.posts.len()]);
        for ((same, pairs), vector) in window.posts.iter().zip(&mut known).zip(&mut vectors) {
            *vector = recent.fill_in(same.hash(), pairs);
        }
        let mut latest = HashMap::new();
        let mut done = |text: usize, result: Result<TextResult, TextError>| {
            // Each text is reported once.
            let same = std::mem::take(&mut window.posts[text]);
            let result = match result {
                Ok(result) => result,
                Err(error) => {
                    let error = error.to_string();
                    return send(timer, LaneMessage::Failed(FailedText { same, error }));
                }
            };
            let stored = std::mem::take(&mut window.stored[text]);
            let posts = ScoredText::new(same, stored, &known[text], vectors[text].take(), result);
            latest.insert(posts.same.hash(), posts.result.clone());
            send(timer, LaneMessage::Scored(posts));
        };
        let prepared = &targets.prepared;
        labeler.score(prepared, &window.texts, &known, &halted, &mut done)?;
        recent.add_window(latest);
        let mut stages = window.claiming;
        stages.add(&timer.take());
        let counts = Box::new(ClassifyCounts {
            computed: labeler.take_stats(),
            stages,
            ..ClassifyCounts::default()
        });
        let suspects = window.suspects;
        send(timer, LaneMessage::End { counts, suspects });
    }
    Ok(())
}

impl Labelling<'_> {
    /// Writes scores as they arrive, in transactions of about [`WRITE_POSTS`] posts.
    async fn write_results(
        &self,
        mut results: mpsc::Receiver<(Lease, LaneMessage)>,
        done: &mut Tally<'_>,
    ) -> Result<(), StageError> {
        let Run { store, clock, .. } = self.run;
        // The engine scores one window at a time, so all waiting posts are under the same lease.
        let mut waiting: Vec<Classified> = Vec::new();
        let mut last_lease = None;
        let mut written_at = clock.elapsed();
        while let Some((lease, message)) = results.recv().await {
            last_lease = Some(lease);
            // At the end of a window: its permit for suspects.
            let mut end = None;
            match message {
                LaneMessage::Scored(text) => {
                    text.count_pairs(&mut done.new);
                    waiting.extend(text.into_classified(&self.targets.hypotheses));
                }
                LaneMessage::Failed(FailedText { same, error }) => {
                    let posts = same.posts.into_iter().map(|post| post.fullname);
                    let posts: Vec<Fullname> = posts.collect();
                    for post in &posts {
                        tracing::error!(fullname = %post, "not scored: {error}");
                    }
                    let fail = async || store.backlog().fail(lease, &posts, &error).await;
                    self.retry.run_with_timeout(fail).await?;
                    done.new.failed += posts.len() as u64;
                }
                LaneMessage::End { counts, suspects } => {
                    done.new.add(&counts);
                    end = Some(suspects);
                }
            }
            let due = clock.elapsed().saturating_sub(written_at) >= WRITE_EVERY;
            if waiting.len() >= WRITE_POSTS || due || end.is_some() {
                let posts = std::mem::take(&mut waiting);
                self.write(Some(lease), &posts, done).await?;
                written_at = clock.elapsed();
            }
            // The permit is dropped after the write, so that a process has at most one unwritten window of suspects.
            if let Some(_suspects) = end {
                // Posts still under the lease return to the backlog: they were edited in the meantime, or were not
                // reached before the run was stopped.
                self.retry
                    .run_with_timeout(async || store.backlog().release(lease).await)
                    .await?;
                self.leases.remove(lease);
            }
        }
        // A failed engine sends no end of its window.
        if !waiting.is_empty() {
            self.write(last_lease, &waiting, done).await?;
        }
        Ok(())
    }
}
