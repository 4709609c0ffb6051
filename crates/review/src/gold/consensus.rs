//! Turns annotators' answers into gold labels: finds the posts on which all annotators agree and checks which labels
//! they were offered.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::GoldRow;
use topicmill_core::{Fullname, LabelSet, SampleReason};
use topicmill_store::{Store, StoreError, StoredGold};

/// A post on which annotators disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// (annotator, label) pairs in order of time; `None` for "none of these".
    pub answers: Vec<(String, Option<String>)>,
}

/// Annotators' answers, combined by post.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consensus {
    /// One row per post on which all annotators agree, ordered by fullname. Their line numbers are consecutive.
    pub rows: Vec<GoldRow>,
    /// The posts among `rows` that were sampled at random; only these allow unbiased estimates.
    pub random: BTreeSet<Fullname>,
    /// True if some posts among `rows` were selected on the review page as close calls or by a filter, so that an
    /// estimate from all rows would be biased.
    pub has_close_calls: bool,
    /// For out-of-scope posts, the keys of the label sets that were offered, if known.
    pub offered: BTreeMap<Fullname, Vec<i64>>,
    /// The annotators of `rows`.
    pub annotators: BTreeSet<String>,
    /// The posts on which annotators disagree; these are not in `rows`.
    pub disagreements: Vec<Disagreement>,
    /// Number of answers about an earlier version of a post's text; these are ignored.
    pub before_an_edit: usize,
}

/// Combines answers, which must be ordered by post and time.
pub fn consensus(stored: Vec<StoredGold>) -> Consensus {
    let mut found = Consensus::default();
    let mut posts: BTreeMap<Fullname, Vec<StoredGold>> = BTreeMap::new();
    for one in stored {
        if one.is_of_present_text {
            let post = posts.entry(one.answer.fullname.clone()).or_default();
            post.push(one);
        } else {
            found.before_an_edit += 1;
        }
    }
    for (fullname, answers) in posts {
        let first = &answers[0].answer;
        if answers.iter().any(|one| one.answer.label != first.label) {
            let answers = answers
                .into_iter()
                .map(|one| (one.answer.annotator, one.answer.label))
                .collect();
            found.disagreements.push(Disagreement { fullname, answers });
            continue;
        }
        if answers.iter().any(|one| one.in_random_sample) {
            found.random.insert(fullname.clone());
        } else if answers.iter().any(|one| {
            matches!(
                one.answer.chosen,
                SampleReason::Closest | SampleReason::Filter
            )
        }) {
            found.has_close_calls = true;
        }
        if first.label.is_none() {
            let sets = answers.iter().filter_map(|one| one.answer.label_set);
            found.offered.insert(fullname.clone(), sets.collect());
        }
        let line = found.rows.len() as u64 + 1;
        let label = first.label.clone().unwrap_or_default();
        found.rows.push(GoldRow::new(line, fullname, label));
        let annotators = answers.into_iter().map(|one| one.answer.annotator);
        found.annotators.extend(annotators);
    }
    found
}

/// Removes out-of-scope posts whose annotators were not offered all labels of `sets` (see [`Consensus::offered`]).
/// Returns the removed posts. If any of them was drawn at random, the other posts are no longer a random sample.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn remove_partly_offered(
    store: &Store,
    rows: &mut Vec<GoldRow>,
    offered: &BTreeMap<Fullname, Vec<i64>>,
    sets: &[&LabelSet],
) -> Result<Vec<Fullname>, StoreError> {
    let partial = partial_sets(store, offered.values().flatten(), sets).await?;
    let is_partly_offered = |row: &mut GoldRow| {
        let sets = offered.get(&row.id);
        sets.is_some_and(|sets| sets.iter().any(|id| partial.contains(id)))
    };
    Ok(rows
        .extract_if(.., is_partly_offered)
        .map(|row| row.id)
        .collect())
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
    answers.retain(|one| one.answer.label.is_none());
    let sets = answers
        .iter()
        .filter_map(|one| one.answer.label_set.as_ref());
    let partial = partial_sets(store, sets, &[set]).await?;
    answers.retain(|one| {
        let offered = one.answer.label_set.as_ref();
        offered.is_some_and(|id| partial.contains(id))
    });
    Ok(answers)
}

/// Returns the keys of the stored label sets that lack a label of `sets`.
async fn partial_sets(
    store: &Store,
    stored: impl Iterator<Item = &i64>,
    sets: &[&LabelSet],
) -> Result<BTreeSet<i64>, StoreError> {
    let mut partial = BTreeSet::new();
    for id in stored.copied().collect::<BTreeSet<i64>>() {
        let offered = store.labels().unfitted_label_set(id).await?;
        let offered: BTreeSet<&str> = offered
            .labels
            .iter()
            .map(|label| label.slug.as_str())
            .collect();
        let mut labels = sets.iter().flat_map(|set| &set.labels);
        if labels.any(|label| !offered.contains(label.slug.as_str())) {
            partial.insert(id);
        }
    }
    Ok(partial)
}
