//! One engine at work: a task claims the next window of posts, has the small model look at it where there is one,
//! and tokenises what is left; a thread of its own scores, and another task writes what comes out, joined by bounded
//! channels.

mod scoring;
mod small;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::scoring::score_windows;
use super::leases::LiveLeases;
use super::patience::Patience;
use super::tally::Tally;
use super::watched::Watched;
use super::{BacklogError, LabelStep, OnLabelStep, Options};
use crate::worker::Worker;
use topicmill_core::TextHash;
use topicmill_core::record::Stages;
use topicmill_score::labeler::{Computed, Pair, Pairs, Prepared};
use topicmill_score::reddit::post_text;
use topicmill_score::text::{EncodedText, Encoder};
use topicmill_score::{LabelSet, Models, PairLogits, Shortlist, TextError};
use topicmill_store::{Claim, Claimant, ClaimedPost, Classified, Lease, Target, Written};

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
/// Most posts of one write.
const WRITE_POSTS: usize = 256;
/// A write that has gathered fewer posts goes out after this time: what a slow model scored is seen, and safe, soon.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Claimed posts on their way to the engine.
struct Window {
    lease: Lease,
    texts: Vec<EncodedText>,
    /// What is stored of each text, and what is left out.
    stored: Vec<Pairs>,
    /// The posts of each text, one or more.
    posts: Vec<Vec<ClaimedPost>>,
    /// Posts of texts of which the small model said nothing.
    unread: Vec<(Vec<ClaimedPost>, TextError)>,
    /// What it took to claim it, up to its tokens.
    claiming: Stages,
    /// Given back when the window is written.
    suspects: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// What was claimed, of which nothing is known yet.
    fn of(claim: Claim, suspects: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            lease: claim.lease,
            texts: Vec::new(),
            stored: Vec::new(),
            posts: by_text(claim.posts),
            unread: Vec::new(),
            claiming: Stages::default(),
            suspects,
        }
    }
}

/// What the engine's thread tells.
enum Event {
    /// A post, and how many of its pairs were computed, and how many known.
    Scored(Lease, Classified, usize, usize),
    Failed(Lease, String, String),
    /// No more of this window will come: done, or stopped on the way. With what it took.
    WindowEnd(Lease, Option<OwnedSemaphorePermit>, Box<(Stages, Computed)>),
}

/// What all lanes of a process share.
pub(super) struct Shared<'a> {
    pub worker: &'a Worker<'a>,
    pub patience: &'a Patience<'a>,
    /// Cancelled by a signal, or when one lane fails.
    pub halt: &'a CancellationToken,
    pub target: Target,
    pub set: &'a LabelSet,
    pub options: &'a Options,
    pub prepared: &'a Arc<Prepared>,
    /// The label set as the small model reads it.
    pub picking: &'a Option<Arc<Prepared>>,
    /// Row of `models` under which vectors by the small model are stored, if it has any.
    pub small_vectors: Option<i64>,
    /// Labels of each post that are scored.
    pub scored_labels: usize,
    /// Row of `models` under which logits are stored.
    pub logits_model: i64,
    /// Rows of `hypotheses`, one a label.
    pub hypotheses: &'a Arc<Vec<i64>>,
    pub leases: &'a LiveLeases,
    /// Posts that may still be claimed.
    pub left: &'a AtomicU64,
    /// Posts that waited when the round began, less those that its lanes claimed.
    pub waiting: &'a AtomicU64,
    /// Lanes of the round.
    pub lanes: u64,
    /// One permit: of posts whose workers died, a process holds one window at a time, so that its death can
    /// be blamed on that one.
    pub suspects: &'a Arc<Semaphore>,
    pub progress: OnLabelStep<'a>,
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
        large.time_by(Box::new(move || watch.elapsed()));
        let engine = {
            let prepared = Arc::clone(self.prepared);
            let keys = (self.logits_model, Arc::clone(self.hypotheses));
            let (halt, clock) = (self.halt.clone(), self.worker.clock.clone());
            tokio::task::spawn_blocking(move || {
                let mut stages = Stages::default();
                let ended = score_windows(
                    &mut large,
                    &prepared,
                    (keys.0, &keys.1),
                    window_rx,
                    &event_tx,
                    &halt,
                    Watched::new(&clock, &mut stages),
                );
                let computed = large.take_computed();
                (ended.map(|()| large), stages, computed)
            })
        };
        // Claiming ends when nothing is left, at a signal or at an error; its end closes the channel of windows,
        // the engine scores what it was given and closes the channel of events, and the writer writes what is
        // in it. So each of them comes to its end by itself, and nothing that was scored is dropped.
        let mut claiming = Stages::default();
        let (claimed, written) = tokio::join!(
            self.claim_windows(&encoder, &mut small, window_tx, &mut claiming),
            self.write_events(event_rx, done)
        );
        let scored = engine
            .await
            .map_err(|error| BacklogError::Thread(error.to_string()));
        done.new.stages.add(&claiming);
        written?;
        claimed?;
        let (scored, computing, computed) = scored?;
        done.new.stages.add(&computing);
        done.new.computed(&computed);
        let large = scored?;
        Ok(Models { large, small })
    }

    /// Claims and tokenises window after window until nothing is left.
    async fn claim_windows(
        &self,
        encoder: &Arc<Encoder>,
        small: &mut Option<Shortlist>,
        windows: mpsc::Sender<Window>,
        stages: &mut Stages,
    ) -> Result<(), BacklogError> {
        let Worker {
            store,
            clock,
            name,
            run,
            ..
        } = *self.worker;
        let claimant = Claimant {
            worker: name,
            run,
            max_attempts: self.options.max_attempts,
            lease: self.options.lease,
        };
        let picking = self.picking.as_deref().map(Prepared::rows_per_text);
        let rows = self.rows_of_a_text();
        let most = window_posts(rows.max(picking.unwrap_or(0)), self.set.labels.len());
        let least = u32::try_from(LEAST_SHARE.div_ceil(rows)).unwrap_or(u32::MAX);
        while !self.halt.is_cancelled() {
            // A place in the channel first: posts are claimed only when the engine is about to need them.
            let Ok(place) = windows.reserve().await else {
                break;
            };
            let wanted = self.take(self.share(least, most));
            if wanted == 0 {
                break;
            }
            let mut since = clock.elapsed();
            // What passed since it was called last.
            let mut lap = || {
                let from = std::mem::replace(&mut since, clock.elapsed());
                since.saturating_sub(from).as_secs_f64()
            };
            // The posts of a claim whose answer was lost come free when it expires.
            let clean = self.patience.wait_in_hand(async || {
                let now = clock.now().into();
                store.claim_clean(self.target, &claimant, wanted, now).await
            });
            let mut claim = clean.await?;
            let mut suspects = None;
            // Suspects come last, so that a text that kills its worker does so after all others were scored.
            if claim.posts.is_empty() {
                let alone = Arc::clone(self.suspects).acquire_owned().await;
                suspects = Some(alone.expect("nobody closes the semaphore"));
                // The permit may have taken as long as another lane needs for a window.
                if !self.halt.is_cancelled() {
                    let suspected = self.patience.wait_in_hand(async || {
                        let now = clock.now().into();
                        store
                            .claim_suspects(self.target, &claimant, wanted, now)
                            .await
                    });
                    claim = suspected.await?;
                }
            }
            stages.claim_secs += lap();
            let count = claim.posts.len() as u64;
            self.left
                // What was taken of the limit and not claimed goes back to the other lanes.
                .fetch_add(u64::from(wanted) - count, Ordering::Relaxed);
            if count == 0 {
                break;
            }
            // The closure never declines. Posts may have come since they were counted.
            let _ = self
                .waiting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                    Some(waiting.saturating_sub(count))
                });
            // From here on the heartbeat renews it. Until now it lived by the time that the claim gave it.
            self.leases.add(claim.lease);
            let mut window = Window::of(claim, suspects);
            self.look_up(&mut window).await?;
            stages.look_up_secs += lap();
            if small.is_some() {
                // Its posts are given back at the end of the run, with all leases that are still live.
                if !self.ask_small(small, &mut window).await? {
                    break;
                }
                stages.shortlist_secs += lap();
            }
            let texts: Vec<String> = window
                .posts
                .iter()
                .zip(&window.stored)
                .map(|(same, stored)| {
                    // What needs no inference needs no tokens.
                    if stored.contains(&Pair::Wanted) {
                        post_text(&same[0].title, &same[0].selftext)
                    } else {
                        String::new()
                    }
                })
                .collect();
            // Tokenising takes a core, so it must not run on a thread that also serves the database.
            let encoder = Arc::clone(encoder);
            window.texts = blocking(move || encoder.encode(&texts)).await??;
            stages.tokenize_secs += lap();
            window.claiming = std::mem::take(stages);
            place.send(window);
        }
        Ok(())
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
        let hashes: Vec<TextHash> = window.posts.iter().map(|same| same[0].text_hash).collect();
        let stored = self.patience.wait_in_hand(async || {
            let (store, model) = (self.worker.store, self.logits_model);
            store.stored_logits(model, self.hypotheses, &hashes).await
        });
        let pair = |logits: Option<PairLogits>| logits.map_or(Pair::Wanted, Pair::Known);
        let stored = stored.await?.into_iter();
        window.stored = stored
            .map(|of_text| of_text.into_iter().map(pair).collect())
            .collect();
        Ok(())
    }

    /// Posts of the next claim: of a backlog, or a limit, that a few claims would use up, no lane takes so many
    /// that the others have nothing to do.
    fn share(&self, least: u32, most: u32) -> u32 {
        if self.lanes == 1 {
            return most;
        }
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

    /// Writes scores as they come, in transactions of a useful size.
    async fn write_events(
        &self,
        mut events: mpsc::Receiver<Event>,
        done: &mut Tally<'_>,
    ) -> Result<(), BacklogError> {
        let Worker { store, clock, .. } = *self.worker;
        // The engine works on one window at a time, so what waits is of one lease.
        let mut waiting: Vec<Classified> = Vec::new();
        let mut of_lease = None;
        let mut written_at = clock.elapsed();
        while let Some(event) = events.recv().await {
            let (lease, ended, suspects) = match event {
                Event::Scored(lease, one, computed, reused) => {
                    waiting.push(one);
                    done.new.pairs += computed as u64;
                    done.new.pairs_reused += reused as u64;
                    (lease, false, None)
                }
                Event::Failed(lease, fullname, error) => {
                    tracing::error!(%fullname, "not scored: {error}");
                    let failed = [(fullname, error)];
                    self.patience
                        .wait_in_hand(async || store.fail(lease, &failed).await)
                        .await?;
                    done.new.failed += 1;
                    (lease, false, None)
                }
                Event::WindowEnd(lease, suspects, took) => {
                    let (stages, computed) = *took;
                    done.new.stages.add(&stages);
                    done.new.computed(&computed);
                    (lease, true, suspects)
                }
            };
            of_lease = Some(lease);
            let due = clock.elapsed().saturating_sub(written_at) >= WRITE_EVERY;
            if waiting.len() >= WRITE_POSTS || due || ended {
                self.write(lease, &std::mem::take(&mut waiting), done)
                    .await?;
                written_at = clock.elapsed();
            }
            // What is left under the lease goes back to the backlog: posts that were edited meanwhile, or not reached
            // before a stop.
            if ended {
                self.patience
                    .wait_in_hand(async || store.release(lease).await)
                    .await?;
                self.leases.remove(lease);
            }
            // Only after the write: until then the window counts as in hand, and no other one with suspects may be.
            drop(suspects);
        }
        // An engine that failed does not say that its window ends.
        match of_lease {
            Some(lease) if !waiting.is_empty() => self.write(lease, &waiting, done).await,
            _ => Ok(()),
        }
    }

    async fn write(
        &self,
        lease: Lease,
        posts: &[Classified],
        done: &mut Tally<'_>,
    ) -> Result<(), BacklogError> {
        let Worker {
            store, clock, run, ..
        } = *self.worker;
        let now = clock.now().into();
        let n = posts.len() as u64;
        let mode = self.set.mode;
        let began = clock.elapsed();
        // Written once however often it is tried: whoever is written has left the backlog.
        let written = self.patience.wait_in_hand(async || {
            store
                .complete(lease, self.target, mode, run, now, posts)
                .await
        });
        let span = tracing::trace_span!(target: "otel", "write labels", posts = n, lease = lease.0);
        let written = written.instrument(span).await?;
        done.new.stages.write_secs += clock.elapsed().saturating_sub(began).as_secs_f64();
        match written {
            Written::Stored(stored) => {
                done.new.posts += stored.posts;
                done.new.other += stored.other;
                done.new.unsure += stored.unsure;
                // Posts that were deleted meanwhile need no label.
                (self.progress)(LabelStep::Done(n));
            }
            Written::LeaseLost => {
                tracing::warn!(
                    lease = lease.0,
                    posts = n,
                    "another worker took these posts over; what this one scored is refused"
                );
                done.new.refused += n;
                done.new.leases_lost += 1;
            }
        }
        done.tell();
        Ok(())
    }
}

/// Runs on a thread where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BacklogError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| BacklogError::Thread(error.to_string()))
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
