//! The thread of an engine: scores the windows that its task claimed, and tells what comes out.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Event, WINDOWS_IN_FLIGHT, Window};
use crate::classify::watched::Watched;
use topicmill_core::TextHash;
use topicmill_score::labeler::{Pair, Pairs, Prepared};
use topicmill_score::{Labeler, LabelerError, PairLogits, TextVector};
use topicmill_store::Classified;

/// What a model said of a text a moment ago.
struct Said {
    logits: Vec<Option<PairLogits>>,
    /// Of an embedding model.
    vector: Option<TextVector>,
}

/// The engine's thread: scores windows as they come. `keys` are the rows of `models` and, one a label, of
/// `hypotheses` under which logits are stored.
pub(super) fn score_windows(
    labeler: &mut Labeler,
    prepared: &Prepared,
    keys: (i64, &[i64]),
    mut windows: mpsc::Receiver<Window>,
    events: &mpsc::Sender<Event>,
    stop: &CancellationToken,
    mut watched: Watched<'_>,
) -> Result<(), LabelerError> {
    // What was computed for the latest windows may not have been stored yet when the next ones were claimed.
    let mut recent: VecDeque<HashMap<TextHash, Said>> = VecDeque::new();
    while let Some(window) = watched.idle(|| windows.blocking_recv()) {
        let Window {
            lease,
            texts,
            stored,
            posts,
            unread,
            claiming,
            suspects,
        } = window;
        // `stored` stays as it is: what is known but not stored yet must still be written.
        let mut known = stored.clone();
        let mut vectors = vec![None; posts.len()];
        for ((known, vector), same) in known.iter_mut().zip(&mut vectors).zip(&posts) {
            let hash = &same[0].text_hash;
            if let Some(said) = recent.iter().find_map(|of_window| of_window.get(hash)) {
                vector.clone_from(&said.vector);
                for (pair, logits) in known.iter_mut().zip(&said.logits) {
                    if let (Pair::Wanted, Some(logits)) = (*pair, logits) {
                        *pair = Pair::Known(*logits);
                    }
                }
            }
        }
        for (same, error) in unread {
            for post in same {
                let error = format!("read it with the small model: {error}");
                let failed = Event::Failed(lease, post.fullname, error);
                watched.told(|| drop(events.blocking_send(failed)));
            }
        }
        // A writer that went away wants nothing more.
        let halted = || stop.is_cancelled() || events.is_closed();
        let mut of_window = HashMap::new();
        let _span =
            tracing::trace_span!(target: "otel", "score", texts = texts.len(), lease = lease.0)
                .entered();
        labeler.score(prepared, &texts, &known, &halted, &mut |text, result| {
            // Only fails when the writer went away, which `halted` sees.
            let mut tell = |event| watched.told(|| drop(events.blocking_send(event)));
            let same = &posts[text];
            match result {
                Ok(scored) => {
                    let wanted = |pairs: &Pairs| {
                        let wanted = (0..).zip(pairs).filter(|(_, pair)| **pair == Pair::Wanted);
                        wanted.map(|(label, _)| label).collect::<Vec<usize>>()
                    };
                    let mut computed = wanted(&known[text]).len();
                    let scored_pairs = scored.logits.iter().flatten().count();
                    let (model, hypotheses) = keys;
                    let unstored = wanted(&stored[text]);
                    let vector = scored.vector.or_else(|| vectors[text].take());
                    let vector = vector.filter(|_| !unstored.is_empty());
                    let logits: Vec<(i64, i64, PairLogits)> = unstored
                        .into_iter()
                        // All that an embedding model says of a text is in its vector.
                        .filter(|_| vector.is_none())
                        .filter_map(|label| Some((model, hypotheses[label], scored.logits[label]?)))
                        .collect();
                    for post in same {
                        let one = Classified {
                            fullname: post.fullname.clone(),
                            text_hash: post.text_hash,
                            scores: scored.scores.clone(),
                            logits: logits.clone(),
                            vector: vector.clone().map(|vector| (model, vector)),
                        };
                        // Pairs are computed once for a text. They count for the first of its posts, and as known for
                        // the others.
                        let now = std::mem::take(&mut computed);
                        tell(Event::Scored(lease, one, now, scored_pairs - now));
                    }
                    let logits = scored.logits;
                    of_window.insert(same[0].text_hash, Said { logits, vector });
                }
                Err(error) => {
                    for post in same {
                        let (name, error) = (post.fullname.clone(), error.to_string());
                        tell(Event::Failed(lease, name, error));
                    }
                }
            }
        })?;
        recent.push_front(of_window);
        recent.truncate(WINDOWS_IN_FLIGHT);
        let mut took = claiming;
        took.add(&watched.take());
        let took = Box::new((took, labeler.take_computed()));
        watched.told(|| drop(events.blocking_send(Event::WindowEnd(lease, suspects, took))));
    }
    Ok(())
}
