//! The thread of an engine: scores the windows that its task claimed, and tells what comes out.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Event, WINDOWS_IN_FLIGHT, Window};
use crate::classify::watched::Watched;
use topicmill_core::TextHash;
use topicmill_score::labeler::{PairState, Pairs, PreparedLabels, TextResult};
use topicmill_score::{Labeler, LabelerError, PairLogits, TextVector};
use topicmill_store::{ClaimedPost, Classified, Lease};

/// The results for a recent text.
pub(super) struct Said {
    logits: Vec<Option<PairLogits>>,
    /// Of an embedding model.
    vector: Option<TextVector>,
}

/// The thread of an engine at work.
pub(super) struct Scoring<'a> {
    pub prepared: &'a PreparedLabels,
    /// Row of `models` under which logits are stored.
    pub model: i64,
    /// Rows of `hypotheses`, one a label.
    pub hypotheses: &'a [i64],
    pub events: &'a mpsc::Sender<Event>,
    pub stop: &'a CancellationToken,
    pub watched: Watched<'a>,
    /// Results of the latest windows, which may not have been stored when the next ones were claimed.
    pub recent: VecDeque<HashMap<TextHash, Said>>,
}

impl Scoring<'_> {
    /// Scores windows as they come.
    pub(super) fn windows(
        mut self,
        labeler: &mut Labeler,
        mut windows: mpsc::Receiver<Window>,
    ) -> Result<(), LabelerError> {
        while let Some(window) = self.watched.idle(|| windows.blocking_recv()) {
            self.window(labeler, window)?;
        }
        Ok(())
    }

    fn window(&mut self, labeler: &mut Labeler, window: Window) -> Result<(), LabelerError> {
        let lease = window.lease;
        for (same, error) in &window.unread {
            self.fail(
                lease,
                same,
                &format!("read it with the small model: {error}"),
            );
        }
        let (known, mut vectors) = self.recall(&window);
        let mut said = HashMap::new();
        let (prepared, stop, events) = (self.prepared, self.stop, self.events);
        // A writer that went away wants nothing more.
        let halted = || stop.is_cancelled() || events.is_closed();
        let texts = &window.texts;
        let _span =
            tracing::trace_span!(target: "otel", "score", texts = texts.len(), lease = lease.0)
                .entered();
        labeler.score(prepared, texts, &known, &halted, &mut |text, result| {
            let same = &window.posts[text];
            match result {
                Ok(mut scored) => {
                    scored.vector = scored.vector.or_else(|| vectors[text].take());
                    let of_text =
                        self.scored(lease, same, &window.stored[text], &known[text], scored);
                    said.insert(same[0].text_hash, of_text);
                }
                Err(error) => self.fail(lease, same, &error.to_string()),
            }
        })?;
        self.recent.push_front(said);
        self.recent.truncate(WINDOWS_IN_FLIGHT);
        let mut took = window.claiming;
        took.add(&self.watched.take());
        let took = Box::new((took, labeler.take_stats()));
        self.tell(Event::WindowEnd(lease, window.suspects, took));
        Ok(())
    }

    /// Returns the known pairs of each text, from the store or from recent windows, and the vectors of the latter.
    fn recall(&self, window: &Window) -> (Vec<Pairs>, Vec<Option<TextVector>>) {
        // A copy: what is known but not stored yet must still be written.
        let mut known = window.stored.clone();
        let mut vectors = vec![None; window.posts.len()];
        for ((known, vector), same) in known.iter_mut().zip(&mut vectors).zip(&window.posts) {
            let hash = &same[0].text_hash;
            if let Some(said) = self.recent.iter().find_map(|of_window| of_window.get(hash)) {
                vector.clone_from(&said.vector);
                for (pair, logits) in known.iter_mut().zip(&said.logits) {
                    if let (PairState::Wanted, Some(logits)) = (*pair, logits) {
                        *pair = PairState::Known(*logits);
                    }
                }
            }
        }
        (known, vectors)
    }

    /// Hands the scores of a text to the writer, for each of its posts; what the model said of it.
    fn scored(
        &mut self,
        lease: Lease,
        same: &[ClaimedPost],
        stored: &[PairState],
        known: &[PairState],
        result: TextResult,
    ) -> Said {
        let unstored = wanted(stored);
        let vector = result.vector.filter(|_| !unstored.is_empty());
        let logits: Vec<(i64, i64, PairLogits)> = unstored
            .into_iter()
            // All that an embedding model says of a text is in its vector.
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
            // Pairs are computed once for a text. They count for the first of its posts, and as known for the others.
            let now = std::mem::take(&mut computed);
            self.tell(Event::Scored(lease, one, now, scored_pairs - now));
        }
        let logits = result.logits;
        Said { logits, vector }
    }

    fn fail(&mut self, lease: Lease, same: &[ClaimedPost], error: &str) {
        for post in same {
            let name = post.fullname.clone();
            self.tell(Event::Failed(lease, name, error.to_owned()));
        }
    }

    fn tell(&mut self, event: Event) {
        let events = self.events;
        // Only fails when the writer went away, which ends the scoring, too.
        self.watched.told(|| drop(events.blocking_send(event)));
    }
}

/// The labels that are wanted of a text.
fn wanted(pairs: &[PairState]) -> Vec<usize> {
    let pairs = (0..).zip(pairs);
    let wanted = pairs.filter(|(_, pair)| **pair == PairState::Wanted);
    wanted.map(|(label, _)| label).collect()
}
