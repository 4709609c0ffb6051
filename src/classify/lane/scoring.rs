//! An engine's thread: scores claimed windows and sends the results to the writer.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Event, WINDOWS_IN_FLIGHT, Window};
use crate::classify::engine_timer::EngineTimer;
use topicmill_core::{PairLogits, TextHash, TextVector};
use topicmill_score::labeler::{PairState, Pairs, PreparedLabels, TextResult};
use topicmill_score::{Labeler, LabelerError};
use topicmill_store::{ClaimedPost, Classified, Lease};

/// The results for a recent text.
pub(super) struct RecentResult {
    logits: Vec<Option<PairLogits>>,
    /// Only from an embedding model.
    vector: Option<TextVector>,
}

/// State of an engine's thread.
pub(super) struct Scoring<'a> {
    pub prepared: &'a PreparedLabels,
    /// Id in `models` for the stored logits.
    pub model: i64,
    /// Ids in `hypotheses`, one per label.
    pub hypotheses: &'a [i64],
    pub events: &'a mpsc::Sender<Event>,
    pub stop: &'a CancellationToken,
    pub timer: EngineTimer<'a>,
    /// Results from the latest windows, which may not be stored yet when the next windows are claimed.
    pub recent: VecDeque<HashMap<TextHash, RecentResult>>,
}

impl Scoring<'_> {
    /// Scores windows until the channel closes.
    pub(super) fn windows(
        mut self,
        labeler: &mut Labeler,
        mut windows: mpsc::Receiver<Window>,
    ) -> Result<(), LabelerError> {
        while let Some(window) = self.timer.idle(|| windows.blocking_recv()) {
            self.window(labeler, window)?;
        }
        Ok(())
    }

    fn window(&mut self, labeler: &mut Labeler, window: Window) -> Result<(), LabelerError> {
        let lease = window.lease;
        for (same, error) in &window.failed {
            self.fail(
                lease,
                same,
                &format!("scoring with the small model: {error}"),
            );
        }
        let (known, mut vectors) = self.recall(&window);
        let mut results = HashMap::new();
        let (prepared, stop, events) = (self.prepared, self.stop, self.events);
        // The channel is closed when the writer has ended.
        let halted = || stop.is_cancelled() || events.is_closed();
        let texts = &window.texts;
        labeler.score(prepared, texts, &known, &halted, &mut |text, result| {
            let same = &window.posts[text];
            match result {
                Ok(mut scored) => {
                    scored.vector = scored.vector.or_else(|| vectors[text].take());
                    let result =
                        self.scored(lease, same, &window.stored[text], &known[text], scored);
                    results.insert(same[0].text_hash, result);
                }
                Err(error) => self.fail(lease, same, &error.to_string()),
            }
        })?;
        self.recent.push_front(results);
        self.recent.truncate(WINDOWS_IN_FLIGHT);
        let mut stages = window.claiming;
        stages.add(&self.timer.take());
        let stats = Box::new((stages, labeler.take_stats()));
        self.send(Event::WindowEnd(lease, window.suspects, stats));
        Ok(())
    }

    /// Returns the known pairs of each text, from the store or from recent windows, and its vector if a recent window
    /// has one.
    fn recall(&self, window: &Window) -> (Vec<Pairs>, Vec<Option<TextVector>>) {
        // A copy, because `window.stored` also decides which pairs are written.
        let mut known = window.stored.clone();
        let mut vectors = vec![None; window.posts.len()];
        for ((known, vector), same) in known.iter_mut().zip(&mut vectors).zip(&window.posts) {
            let hash = &same[0].text_hash;
            if let Some(result) = self.recent.iter().find_map(|window| window.get(hash)) {
                vector.clone_from(&result.vector);
                for (pair, logits) in known.iter_mut().zip(&result.logits) {
                    if let (PairState::Wanted, Some(logits)) = (*pair, logits) {
                        *pair = PairState::Known(*logits);
                    }
                }
            }
        }
        (known, vectors)
    }

    /// Sends a text's scores to the writer, once for each of its posts. Returns the text's results.
    fn scored(
        &mut self,
        lease: Lease,
        same: &[ClaimedPost],
        stored: &[PairState],
        known: &[PairState],
        result: TextResult,
    ) -> RecentResult {
        let unstored = wanted(stored);
        let vector = result.vector.filter(|_| !unstored.is_empty());
        let logits: Vec<(i64, i64, PairLogits)> = unstored
            .into_iter()
            // An embedding model stores the vector instead of logits.
            .filter(|_| vector.is_none())
            .filter_map(|label| Some((self.model, self.hypotheses[label], result.logits[label]?)))
            .collect();
        let scored_pairs = result.logits.iter().flatten().count();
        let mut computed = wanted(known).len();
        for post in same {
            let one = Classified {
                fullname: post.fullname.clone(),
                text_hash: post.text_hash,
                scores: result.scores.clone(),
                logits: logits.clone(),
                vector: vector.clone().map(|vector| (self.model, vector)),
            };
            // The pairs of a text count as computed for its first post, and as known for its other posts.
            let computed = std::mem::take(&mut computed);
            self.send(Event::Scored(lease, one, computed, scored_pairs - computed));
        }
        let logits = result.logits;
        RecentResult { logits, vector }
    }

    fn fail(&mut self, lease: Lease, same: &[ClaimedPost], error: &str) {
        for post in same {
            let name = post.fullname.clone();
            self.send(Event::Failed(lease, name, error.to_owned()));
        }
    }

    fn send(&mut self, event: Event) {
        let events = self.events;
        // Fails only if the writer has ended, which also ends the scoring.
        self.timer.blocked(|| drop(events.blocking_send(event)));
    }
}

/// Returns the indexes of the wanted labels.
fn wanted(pairs: &[PairState]) -> Vec<usize> {
    let pairs = (0..).zip(pairs);
    let wanted = pairs.filter(|(_, pair)| **pair == PairState::Wanted);
    wanted.map(|(label, _)| label).collect()
}
