//! Compares two label runs on the same posts.
//!
//! Labels are read from the store or computed from stored logits; no model runs.

mod label_changes;
mod moves;

use serde::Serialize;
use serde_json::{Value, json};

pub use self::label_changes::{ChangeKind, LabelChange, label_changes};
pub(crate) use self::moves::kappa;
pub use self::moves::{LabelVerdict, Move, Moves};
use super::rescore::Rescorer;
use topicmill_core::Fullname;
use topicmill_store::{ComparedPost, Store, StoreError, Target};

/// Posts per page of a query.
const WINDOW: u32 = 1_000;

/// The labels of a run: stored labels and, for posts without one, labels computed from stored logits.
#[derive(Debug)]
pub struct LabelSource<'a> {
    /// The target of the stored labels.
    pub stored: Option<Target>,
    /// Computes labels for posts without a stored one.
    pub rescorer: Option<Rescorer<'a>>,
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Posts in the database, without those that have neither text nor label.
    pub posts: u64,
    /// Posts without a label in the first and in the second run; these need inference.
    pub unlabelled: [u64; 2],
    /// Counts of posts by their outcomes.
    pub moves: Moves,
    /// The posts that moved, with the highest scores in the second run first.
    pub examples: Vec<MovedPost>,
}

/// A post whose outcomes differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedPost {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// Title of the post.
    pub title: String,
    /// Outcome in the first run.
    pub from: LabelVerdict,
    /// Outcome in the second run.
    pub to: LabelVerdict,
    /// Score in the second run.
    pub score: f64,
}

/// Compares two label runs on all posts and keeps up to `examples` posts that moved. `stop` ends the comparison early;
/// `progress` is called with the number of posts in each page.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn compare(
    store: &Store,
    labels: &[LabelSource<'_>; 2],
    examples: usize,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Comparison, StoreError> {
    let targets = [labels[0].stored, labels[1].stored];
    let mut compared = Comparison::default();
    let mut after = String::new();
    while !stop() {
        let page = store.labels().compared_posts(targets, &after, WINDOW);
        let mut posts = page.await?;
        let Some(last) = posts.last() else { break };
        after = last.fullname.to_string();
        progress(posts.len() as u64);
        for (side, labels) in labels.iter().enumerate() {
            if let Some(rescorer) = &labels.rescorer {
                add_computed(store, rescorer, side, &mut posts).await?;
            }
        }
        for post in posts {
            compared.add(post);
        }
        let by_score = |a: &MovedPost, b: &MovedPost| {
            let by_name = a.fullname.cmp(&b.fullname);
            b.score.total_cmp(&a.score).then(by_name)
        };
        compared.examples.sort_by(by_score);
        compared.examples.truncate(examples);
    }
    Ok(compared)
}

/// Computes the labels that posts lack in one of the two runs.
async fn add_computed(
    store: &Store,
    rescorer: &Rescorer<'_>,
    side: usize,
    posts: &mut [ComparedPost],
) -> Result<(), StoreError> {
    let unlabelled = posts.iter().filter(|post| post.labels[side].is_none());
    let texts = unlabelled.map(|post| post.text_hash).collect();
    let computed = rescorer.labels(store, texts).await?;
    for post in posts.iter_mut().filter(|post| post.labels[side].is_none()) {
        post.labels[side] = computed.get(&post.text_hash).cloned();
    }
    Ok(())
}

impl Comparison {
    /// Returns the counts, the moves and the examples as JSON.
    pub fn to_json(&self) -> Value {
        let moves = &self.moves;
        let [before, after] = moves.abstained();
        json!({
            "posts": moves.posts(), "moved": moves.moved(), "agreement": moves.agreement(), "kappa": moves.kappa(),
            "none_of_these_before": before, "none_of_these_after": after, "looked_at": self.posts,
            "lacking": self.unlabelled, "moves": moves.largest(), "examples": self.examples,
        })
    }

    fn add(&mut self, post: ComparedPost) {
        // A post without text or label can never be labelled.
        if !post.has_text && post.labels.iter().all(Option::is_none) {
            return;
        }
        self.posts += 1;
        for (unlabelled, label) in self.unlabelled.iter_mut().zip(&post.labels) {
            *unlabelled += u64::from(label.is_none());
        }
        let [Some(from), Some(to)] = post.labels else {
            return;
        };
        let score = to.score;
        let [from, to] = [from, to].map(|label| (!label.abstained).then_some(label.label));
        self.moves.add(from.clone(), to.clone(), 1);
        if from != to {
            self.examples.push(MovedPost {
                fullname: post.fullname,
                title: post.title,
                from,
                to,
                score,
            });
        }
    }
}
