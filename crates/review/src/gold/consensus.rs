//! Turns annotators' answers into gold labels: decides posts on which annotators disagree, and checks which labels they
//! were offered. A further answer never removes a post from the gold labels, because the posts on which annotators
//! agree are easier than the others, and figures from them alone would be too good.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::GoldRow;
use topicmill_core::{Fullname, LabelSet, SampleReason};
use topicmill_store::{LabelSetId, Store, StoreError, StoredGold};

/// A post on which annotators disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// (annotator, label) pairs in order of time; `None` for "none of these".
    pub answers: Vec<(String, Option<String>)>,
    /// True if the deciding annotator or a majority decides.
    pub is_decided: bool,
}

/// Annotators' answers, combined by post.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consensus {
    /// A row for each post, ordered by fullname, or a [tied](GoldRow::is_tied) row for each different answer if
    /// annotators disagree and none decides. The line numbers are consecutive.
    pub rows: Vec<GoldRow>,
    /// Number of posts with an answer about their text.
    pub posts: usize,
    /// The posts among `rows` that were sampled at random; only these allow unbiased estimates.
    pub random: BTreeSet<Fullname>,
    /// True if some posts among `rows` were selected on the review page as close calls or by a filter, so that an
    /// estimate from all rows would be biased.
    pub has_close_calls: bool,
    /// For posts that may be out of scope, the keys of the label sets that were offered, if known.
    pub offered: BTreeMap<Fullname, Vec<LabelSetId>>,
    /// The annotators of `rows`.
    pub annotators: BTreeSet<String>,
    /// The posts on which annotators disagree.
    pub disagreements: Vec<Disagreement>,
    /// Number of answers about an earlier version of a post's text; these are ignored.
    pub before_an_edit: usize,
}

impl Consensus {
    /// Returns the number of posts on which annotators disagree and none decides.
    pub fn undecided(&self) -> usize {
        let undecided = self.disagreements.iter().filter(|post| !post.is_decided);
        undecided.count()
    }

    /// Adds the answers about a post's text.
    fn add(&mut self, fullname: Fullname, answers: Vec<StoredGold>, decides: Option<&str>) {
        let labels = decided_labels(&answers, decides);
        let is_selected = |gold: &StoredGold| {
            let chosen = gold.answer.chosen;
            matches!(chosen, SampleReason::Closest | SampleReason::Filter)
        };
        if answers.iter().any(|gold| gold.in_random_sample) {
            self.random.insert(fullname.clone());
        } else if answers.iter().any(is_selected) {
            self.has_close_calls = true;
        }
        if labels.contains(&None) {
            let none = answers.iter().filter(|gold| gold.answer.label.is_none());
            let sets = none.filter_map(|gold| gold.answer.label_set);
            self.offered.insert(fullname.clone(), sets.collect());
        }
        let is_decided = labels.len() == 1;
        for label in labels {
            let line = self.rows.len() as u64 + 1;
            let mut row = GoldRow::new(line, fullname.clone(), label.unwrap_or_default());
            row.is_tied = !is_decided;
            self.rows.push(row);
        }
        let answers = answers.into_iter().map(|gold| gold.answer);
        let answers = answers.map(|answer| (answer.annotator, answer.label));
        let answers: Vec<(String, Option<String>)> = answers.collect();
        let annotators = answers.iter().map(|(annotator, _)| annotator.clone());
        self.annotators.extend(annotators);
        if answers.iter().any(|(_, label)| *label != answers[0].1) {
            self.disagreements.push(Disagreement {
                fullname,
                answers,
                is_decided,
            });
        }
    }
}

/// Combines answers, which must be ordered by post and time. If annotators disagree about a post, the answer of the
/// annotator `decides` counts, or else the answer of more than half of them; or else all answers are kept.
pub fn consensus(stored: Vec<StoredGold>, decides: Option<&str>) -> Consensus {
    let mut consensus = Consensus::default();
    let mut posts: BTreeMap<Fullname, Vec<StoredGold>> = BTreeMap::new();
    for gold in stored {
        if gold.is_of_present_text {
            let post = posts.entry(gold.answer.fullname.clone()).or_default();
            post.push(gold);
        } else {
            consensus.before_an_edit += 1;
        }
    }
    consensus.posts = posts.len();
    for (fullname, answers) in posts {
        consensus.add(fullname, answers, decides);
    }
    consensus
}

/// Returns the label that counts for a post, or all different labels if none decides.
fn decided_labels(answers: &[StoredGold], decides: Option<&str>) -> Vec<Option<String>> {
    let is_deciding = |gold: &&StoredGold| Some(gold.answer.annotator.as_str()) == decides;
    if let Some(gold) = answers.iter().find(is_deciding) {
        return vec![gold.answer.label.clone()];
    }
    let mut counts: Vec<(&Option<String>, usize)> = Vec::new();
    for StoredGold { answer, .. } in answers {
        match counts.iter_mut().find(|(label, _)| *label == &answer.label) {
            Some((_, count)) => *count += 1,
            None => counts.push((&answer.label, 1)),
        }
    }
    let majority = counts.iter().find(|(_, count)| 2 * count > answers.len());
    match majority {
        Some((label, _)) => vec![(*label).clone()],
        None => counts.into_iter().map(|(label, _)| label.clone()).collect(),
    }
}

/// Removes rows of out-of-scope posts whose annotators were not offered all labels of `sets` (see
/// [`Consensus::offered`]), and returns their posts. If any of them was drawn at random, the other posts are no longer
/// a random sample.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub(crate) async fn remove_partly_offered(
    store: &Store,
    rows: &mut Vec<GoldRow>,
    offered: &BTreeMap<Fullname, Vec<LabelSetId>>,
    sets: &[&LabelSet],
) -> Result<BTreeSet<Fullname>, StoreError> {
    let partial = partial_sets(store, offered.values().flatten(), sets).await?;
    let is_partly_offered = |row: &mut GoldRow| {
        let sets = offered.get(&row.id);
        sets.is_some_and(|sets| sets.iter().any(|id| partial.contains(id)))
    };
    let removed = rows.extract_if(.., is_partly_offered);
    Ok(removed.map(|row| row.id).collect())
}

/// Returns the "none of these" answers whose annotators were not offered all labels of `set`.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn partly_offered(
    store: &Store,
    mut answers: Vec<StoredGold>,
    set: &LabelSet,
) -> Result<Vec<StoredGold>, StoreError> {
    answers.retain(|gold| gold.answer.label.is_none());
    let answered = answers.iter().map(|gold| &gold.answer);
    let sets = answered.filter_map(|answer| answer.label_set.as_ref());
    let partial = partial_sets(store, sets, &[set]).await?;
    answers.retain(|gold| {
        let offered = gold.answer.label_set.as_ref();
        offered.is_some_and(|id| partial.contains(id))
    });
    Ok(answers)
}

/// Returns the keys of the stored label sets that lack a label of `sets`.
async fn partial_sets(
    store: &Store,
    stored: impl Iterator<Item = &LabelSetId>,
    sets: &[&LabelSet],
) -> Result<BTreeSet<LabelSetId>, StoreError> {
    let mut partial = BTreeSet::new();
    for id in stored.copied().collect::<BTreeSet<LabelSetId>>() {
        let offered = store.labels().unfitted_label_set(id).await?;
        let slugs = offered.labels.iter().map(|label| label.slug.as_str());
        let offered: BTreeSet<&str> = slugs.collect();
        let mut labels = sets.iter().flat_map(|set| &set.labels);
        if labels.any(|label| !offered.contains(label.slug.as_str())) {
            partial.insert(id);
        }
    }
    Ok(partial)
}
