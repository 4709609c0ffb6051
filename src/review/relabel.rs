//! What another label set would make of stored posts, from logits or vectors that are stored: no inference, and the
//! current labels stay as they are.
//!
//! In go a label set and the model whose logits count; out comes how many posts could be scored, how they move,
//! and the surest moves as examples. Where it is asked for, the labels are stored under the label set, too.

use std::collections::{HashMap, HashSet};

use super::compare::{LabelVerdict, Moves};
use crate::clock::SharedClock;
use crate::domain::TextHash;
use crate::store::{Classified, LabelledPost, Prediction, RunId, Store, StoreError, Target};
use topicmill_score::folder::ModelKind;
use topicmill_score::hypothesis;
use topicmill_score::score;
use topicmill_score::{LabelSet, LabelVector, PairLogits};

/// Most posts that are read at a time.
const WINDOW_POSTS: usize = 1_000;
/// Most scores that are made at a time.
const WINDOW_SCORES: usize = 100_000;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// How the model scores.
    pub kind: &'a ModelKind,
    /// Its key in `models`; `None` if it never computed anything here.
    pub model: Option<i64>,
    /// The label set.
    pub set: &'a LabelSet,
    /// The vectors of its labels, if they are at hand; otherwise those count that are stored.
    pub labels: Option<&'a [LabelVector]>,
    /// What the posts' labels are compared with.
    pub baseline: Option<Target>,
    /// Stop after this many posts.
    pub limit: Option<u64>,
    /// Most examples to keep.
    pub examples: usize,
    /// Posts, by fullname, whose labels are wanted one by one.
    pub wanted: Option<&'a HashSet<String>>,
}

/// Where the labels are stored.
#[derive(Debug, Clone)]
pub struct Saving {
    /// The model and the label set of the question.
    pub target: Target,
    /// The run that they belong to.
    pub run: RunId,
    /// For dates.
    pub clock: SharedClock,
}

/// What came out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Posts that were looked at.
    pub posts: u64,
    /// How many of them were scored: all their logits are stored.
    pub scored: u64,
    /// How many of them were scored and have no label to compare with.
    pub without_label: u64,
    /// How many of them were scored and stored.
    pub saved: u64,
    /// How the others move.
    pub moves: Moves,
    /// The moves with the highest scores.
    pub examples: Vec<Moved>,
    /// The labels that were wanted one by one, by fullname.
    pub predictions: HashMap<String, Prediction>,
}

/// A post that moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Its key.
    pub fullname: String,
    /// Title.
    pub title: String,
    /// What it is labelled as.
    pub from: LabelVerdict,
    /// What it would be.
    pub to: LabelVerdict,
    /// Best score.
    pub score: f64,
}

/// The keys of a label set's logits under a model, one a label, and the background's after them.
pub fn keys(kind: &ModelKind, set: &LabelSet) -> Vec<String> {
    hypothesis::keys(kind, set)
}

/// Answers a question; `answer` is added to as it goes, and `progress` hears how many posts more were looked at.
///
/// # Errors
/// Those of the store.
pub async fn relabel(
    store: &Store,
    question: &Question<'_>,
    saving: Option<&Saving>,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Send + Sync),
    answer: &mut Answer,
) -> Result<(), StoreError> {
    let set = question.set;
    let hypotheses = store.find_hypotheses(&keys(question.kind, set)).await?;
    let hypotheses: Option<Vec<i64>> = hypotheses.into_iter().collect();
    let known = Known {
        labels: question.labels,
        hypotheses,
    };
    let window = (WINDOW_SCORES / set.labels.len().max(1)).clamp(1, WINDOW_POSTS);
    let mut left = question.limit.unwrap_or(u64::MAX);
    let mut after = String::new();
    while left > 0 && !stop() {
        let wanted = u32::try_from(left.min(window as u64)).expect("a window is small");
        let posts = store
            .labelled_posts(question.baseline, &after, wanted)
            .await?;
        let Some(last) = posts.last() else { break };
        after.clone_from(&last.fullname);
        left -= posts.len() as u64;
        answer.posts += posts.len() as u64;
        if let Some(model) = question.model {
            let mut texts: Vec<TextHash> = posts.iter().map(|post| post.text_hash).collect();
            texts.sort_unstable();
            // Crossposts have one text, which is scored once.
            texts.dedup();
            let logits = stored(store, model, &known, texts).await?;
            let done = answer.add(question, &posts, &logits);
            if let Some(saving) = saving {
                let now = saving.clock.now().into();
                answer.saved += store
                    .save_relabelled(saving.target, set.mode, saving.run, now, &done)
                    .await?;
            }
        }
        progress(posts.len() as u64);
    }
    Ok(())
}

/// How a label set is known to the store.
#[derive(Debug, Clone)]
pub struct Known<'a> {
    /// The vectors of its labels, if they are at hand.
    pub labels: Option<&'a [LabelVector]>,
    /// The rows of its hypotheses; `None` if one of them has none, because nothing was ever compared with it.
    pub hypotheses: Option<Vec<i64>>,
}

/// The logits of texts of which all are stored, or follow from what is stored.
///
/// # Errors
/// Those of the store.
pub async fn stored(
    store: &Store,
    model: i64,
    known: &Known<'_>,
    texts: Vec<TextHash>,
) -> Result<HashMap<TextHash, Vec<PairLogits>>, StoreError> {
    let mut found = HashMap::with_capacity(texts.len());
    if let Some(labels) = known.labels {
        let logits = store.vector_logits(model, labels, &texts).await?;
        let whole = texts.iter().zip(logits);
        found.extend(whole.filter_map(|(text, logits)| Some((*text, logits?))));
    }
    let left = texts.into_iter().filter(|text| !found.contains_key(text));
    let left: Vec<TextHash> = left.collect();
    // A text without a vector may have pairs, of a version that stored no vectors.
    if let Some(hypotheses) = known.hypotheses.as_ref().filter(|_| !left.is_empty()) {
        let logits = store.stored_logits(model, hypotheses, &left).await?;
        let whole = left.into_iter().zip(logits);
        let whole = whole.filter_map(|(text, logits)| {
            let logits: Option<Vec<PairLogits>> = logits.into_iter().collect();
            Some((text, logits?))
        });
        found.extend(whole);
    }
    Ok(found)
}

impl Answer {
    /// Scores what can be scored.
    fn add(
        &mut self,
        question: &Question<'_>,
        posts: &[LabelledPost],
        logits: &HashMap<TextHash, Vec<PairLogits>>,
    ) -> Vec<Classified> {
        let set = question.set;
        let prior = set.prior_for(question.kind);
        let mut done = Vec::with_capacity(posts.len());
        for post in posts {
            let Some(logits) = logits.get(&post.text_hash) else {
                continue;
            };
            let scores = score::evidence_beside(question.kind, set.mode, logits, prior)
                .scores(set.temperature, set.threshold);
            self.scored += 1;
            if question
                .wanted
                .is_some_and(|wanted| wanted.contains(&post.fullname))
            {
                let prediction = Prediction {
                    label: set.labels[scores.best].slug.clone(),
                    score: scores.scores[scores.best],
                    abstained: scores.abstained,
                };
                self.predictions.insert(post.fullname.clone(), prediction);
            }
            let to = (!scores.abstained).then(|| set.labels[scores.best].slug.clone());
            match &post.verdict {
                None => self.without_label += 1,
                Some(from) => {
                    if *from != to {
                        self.examples.push(Moved {
                            fullname: post.fullname.clone(),
                            title: post.title.clone(),
                            from: from.clone(),
                            to: to.clone(),
                            score: scores.scores[scores.best],
                        });
                    }
                    self.moves.add(from.clone(), to, 1);
                }
            }
            done.push(Classified {
                fullname: post.fullname.clone(),
                text_hash: post.text_hash,
                scores,
                logits: Vec::new(),
                vector: None,
                by_small: false,
            });
        }
        self.examples.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then(a.fullname.cmp(&b.fullname))
        });
        self.examples.truncate(question.examples);
        done
    }
}
