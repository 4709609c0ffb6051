//! Joins gold labels with the predictions of one or more label runs.
//!
//! The output is the input of [`evaluate`](super::evaluate::evaluate). Posts that cannot be used are left out and
//! counted by reason.

mod texts;

use std::collections::HashMap;

use serde::Serialize;

pub use self::texts::{GoldText, GoldTexts, gold_texts};
use super::evaluate::EvaluatedPost;
use super::gold::{GoldError, GoldPost, NONE_OF_THESE};
use crate::REVIEW_COMMAND;
use topicmill_core::{Fullname, LabelSet};
use topicmill_store::{LabelState, PostLabel, Prediction, Store, StoreError, Target};

/// Maximum number of fullnames of missing posts in [`LeftOut::examples`].
const EXAMPLES: usize = 5;
/// With fewer posts, confidence intervals are too wide to rely on a figure.
const GOOD_POSTS: usize = 100;

/// A label run: stored and computed predictions for a label set.
#[derive(Debug)]
pub struct Labelling<'a> {
    /// The label set of the run.
    pub set: &'a LabelSet,
    /// The target of the stored labels, if there are any.
    pub stored: Option<Target>,
    /// Predictions for posts without a stored label of their current text.
    pub computed: HashMap<Fullname, Prediction>,
    /// Predictions that replace stored labels: those of posts that the label set was fitted to, by fits without them.
    pub held_out: HashMap<Fullname, Prediction>,
}

/// A gold post with a prediction in every label run.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinedPost {
    /// Fullname of the post.
    pub id: Fullname,
    /// Title of the post.
    pub title: String,
    /// Gold labels of the post as written in the source, separated by commas.
    pub gold: String,
}

/// Counts of gold posts that cannot be evaluated, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Posts that are not in the database.
    pub unknown: usize,
    /// Posts among `unknown` that were purged.
    pub purged: u64,
    /// Fullnames of the first few posts in `unknown`.
    pub examples: Vec<String>,
    /// Stored posts without text or label: the text is only a placeholder, or was purged before it was labelled.
    pub without_text: usize,
    /// Posts that were edited after their prediction.
    pub edited: usize,
    /// Posts without a prediction.
    pub unlabelled: usize,
}

/// Gold posts with the predictions of each label run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JoinedGold {
    /// The evaluated posts, ordered by fullname.
    pub posts: Vec<JoinedPost>,
    /// Gold and predicted labels, one list per label run, each in the order of `posts`.
    pub rows: Vec<Vec<EvaluatedPost>>,
    /// The posts that could not be joined.
    pub left_out: LeftOut,
}

impl JoinedGold {
    /// Warns about the posts that are left out of `gold`.
    ///
    /// # Errors
    /// Returns [`GoldError::Unusable`] if none is left.
    pub fn check(&self, gold: &[GoldPost]) -> Result<(), GoldError> {
        let out = &self.left_out;
        if self.posts.is_empty() {
            let advice = if out.without_text == gold.len() {
                format!("answer posts that still have their text with `{REVIEW_COMMAND}`")
            } else {
                "check the ids, or label the posts with `topicmill classify` or `labels evaluate --compute`".to_owned()
            };
            return Err(GoldError::Unusable(format!(
                "none of the {} gold posts can be evaluated: {} are not in the database ({} of them purged), {} have \
                 neither text nor label, {} were edited after they were labelled, {} have no label of this model and \
                 label set; {advice}",
                gold.len(),
                out.unknown,
                out.purged,
                out.without_text,
                out.edited,
                out.unlabelled,
            )));
        }
        if out.unknown > 0 {
            let shown = out.examples.len();
            let more = if out.unknown > shown { ", …" } else { "" };
            tracing::warn!(
                posts = out.unknown,
                purged = out.purged,
                "gold posts that are not in the database are left out: {}{more}",
                out.examples.join(", ")
            );
        }
        if out.edited + out.unlabelled > 0 {
            tracing::warn!(
                unlabelled = out.unlabelled,
                edited = Some(out.edited).filter(|n| *n > 0),
                "gold posts without a label of their current text are left out: `topicmill classify` labels them"
            );
        }
        if out.without_text > 0 {
            tracing::warn!(
                posts = out.without_text,
                "gold posts with neither text nor label are left out, because they cannot be labelled"
            );
        }
        if self.posts.len() < GOOD_POSTS {
            tracing::warn!(
                posts = self.posts.len(),
                "few gold posts: check the confidence intervals before you rely on a figure"
            );
        }
        Ok(())
    }

    /// Adds a stored post with its label in each run, or counts it as left out.
    fn add(&mut self, post: &GoldPost, labellings: &[Labelling<'_>], labels: &[&PostLabel]) {
        let predictions = labels.iter().map(|label| match &label.state {
            LabelState::Labelled(prediction) => Ok(prediction),
            state => Err(state),
        });
        let predictions = match predictions.collect::<Result<Vec<&Prediction>, &LabelState>>() {
            Ok(predictions) => predictions,
            Err(state) => {
                let left_out = match state {
                    LabelState::WithoutText => &mut self.left_out.without_text,
                    LabelState::Outdated => &mut self.left_out.edited,
                    _ => &mut self.left_out.unlabelled,
                };
                *left_out += 1;
                return;
            }
        };
        self.posts.push(JoinedPost {
            id: post.id.clone(),
            title: labels[0].title.clone(),
            gold: words_of(post),
        });
        for (run, prediction) in predictions.into_iter().enumerate() {
            let row = evaluated_post(labellings[run].set, prediction, post, run);
            self.rows[run].push(row);
        }
    }

    /// Returns a copy with only some of the posts.
    #[must_use]
    pub fn filtered(&self, is_wanted: impl Fn(&Fullname) -> bool) -> Self {
        let mut wanted: Vec<usize> = (0..self.posts.len()).collect();
        wanted.retain(|position| is_wanted(&self.posts[*position].id));
        let posts = wanted.iter().map(|position| self.posts[*position].clone());
        let rows = self.rows.iter().map(|rows| {
            let rows = wanted.iter().map(|position| rows[*position].clone());
            rows.collect()
        });
        Self {
            posts: posts.collect(),
            rows: rows.collect(),
            left_out: self.left_out.clone(),
        }
    }
}

/// Joins gold posts with the predictions of label runs. [`GoldPost::right`] contains one list per label run, in the
/// same order.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn join_gold(
    store: &Store,
    labellings: &[Labelling<'_>],
    gold: &[GoldPost],
) -> Result<JoinedGold, StoreError> {
    let names: Vec<Fullname> = gold.iter().map(|post| post.id.clone()).collect();
    let mut runs: Vec<HashMap<Fullname, PostLabel>> = Vec::new();
    for labelling in labellings {
        runs.push(label_states(store, labelling, &names).await?);
    }
    let mut joined = JoinedGold {
        rows: vec![Vec::with_capacity(gold.len()); labellings.len()],
        ..JoinedGold::default()
    };
    let mut unknown = Vec::new();
    for post in gold {
        let labels = runs.iter().map(|run| run.get(&post.id));
        match labels.collect::<Option<Vec<&PostLabel>>>() {
            Some(labels) => joined.add(post, labellings, &labels),
            None => unknown.push(post.id.clone()),
        }
    }
    joined.left_out.unknown = unknown.len();
    joined.left_out.purged = store.purging().count_tombstones(&unknown).await?;
    let examples = unknown.iter().take(EXAMPLES);
    joined.left_out.examples = examples.map(Fullname::to_string).collect();
    Ok(joined)
}

/// Returns a post's gold labels as written; answers between which none decides are separated by "or".
fn words_of(post: &GoldPost) -> String {
    if post.ties.is_empty() {
        return post.words.join(", ");
    }
    let words = post.words.iter().map(|word| match word.as_str() {
        "" => NONE_OF_THESE,
        word => word,
    });
    words.collect::<Vec<_>>().join(" or ")
}

/// Returns the label of each post: the held-out one, the stored one, or the computed one, in this order. Only a post
/// with one of the others has a held-out label.
async fn label_states(
    store: &Store,
    labelling: &Labelling<'_>,
    names: &[Fullname],
) -> Result<HashMap<Fullname, PostLabel>, StoreError> {
    let mut posts = store.labels().label_states(labelling.stored, names).await?;
    for post in &mut posts {
        let computed = match post.state {
            LabelState::Labelled(_) => None,
            _ => labelling.computed.get(&post.fullname),
        };
        let is_labelled = computed.is_some() || matches!(post.state, LabelState::Labelled(_));
        let held_out = labelling.held_out.get(&post.fullname);
        if let Some(prediction) = held_out.filter(|_| is_labelled).or(computed) {
            post.state = LabelState::Labelled(prediction.clone());
        }
    }
    let posts = posts.into_iter();
    Ok(posts.map(|post| (post.fullname.clone(), post)).collect())
}

/// Pairs a prediction with the gold labels. A label that is not in the set counts as an abstention.
fn evaluated_post(
    set: &LabelSet,
    prediction: &Prediction,
    post: &GoldPost,
    run: usize,
) -> EvaluatedPost {
    let mut labels = set.labels.iter();
    let best = labels.position(|label| label.slug == prediction.label);
    EvaluatedPost {
        right: post.right[run].clone(),
        ties: post.ties_in(run),
        best: best.unwrap_or_default(),
        score: prediction.score,
        abstained: prediction.abstained || best.is_none(),
        weight: 1.0,
    }
}
