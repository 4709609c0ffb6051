//! What people said, as gold labels: posts on which everybody who was asked agrees, and what they were offered.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::GoldRow;
use topicmill_core::{Fullname, SampleReason};
use topicmill_score::LabelSet;
use topicmill_store::{Store, StoreError, StoredGold};

/// A post about which people say different things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    pub fullname: Fullname,
    /// Who says what, in the order of time; `None` for none of these.
    pub said: Vec<(String, Option<String>)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consensus {
    /// One row for each post on which everybody agrees, by fullname. The line is its number.
    pub rows: Vec<GoldRow>,
    /// Those of them that people were asked about at random: they stand for all posts.
    pub random: BTreeSet<Fullname>,
    /// Whether some of the others were chosen because they are hard, so that together they stand for nothing.
    pub has_close_calls: bool,
    /// For the posts that fit none of the labels, the label sets whose labels were offered, where that is known.
    pub offered: BTreeMap<Fullname, Vec<i64>>,
    pub disagreements: Vec<Disagreement>,
    /// Answers about an earlier text of their post, which are left out.
    pub before_an_edit: usize,
}

/// Takes answers together; they come by post and time.
pub fn consensus(answers: Vec<StoredGold>) -> Consensus {
    let mut found = Consensus::default();
    let mut posts: BTreeMap<Fullname, Vec<StoredGold>> = BTreeMap::new();
    for one in answers {
        if one.is_of_present_text {
            let post = posts.entry(one.answer.fullname.clone()).or_default();
            post.push(one);
        } else {
            found.before_an_edit += 1;
        }
    }
    for (fullname, said) in posts {
        let first = &said[0].answer;
        if said.iter().any(|one| one.answer.label != first.label) {
            let said = said
                .into_iter()
                .map(|one| (one.answer.reviewer, one.answer.label));
            let said = said.collect();
            found.disagreements.push(Disagreement { fullname, said });
            continue;
        }
        if said.iter().any(|one| one.in_random_sample) {
            found.random.insert(fullname.clone());
        } else if said
            .iter()
            .any(|one| one.answer.chosen == SampleReason::Closest)
        {
            found.has_close_calls = true;
        }
        if first.label.is_none() {
            let sets = said.iter().filter_map(|one| one.answer.label_set);
            found.offered.insert(fullname.clone(), sets.collect());
        }
        let line = found.rows.len() as u64 + 1;
        let label = first.label.clone().unwrap_or_default();
        found.rows.push(GoldRow::new(line, fullname, label));
    }
    found
}

/// Leaves out the posts for which somebody said "none of these" when not all labels of these sets were offered (see
/// [`Consensus::offered`]); how many they are.
///
/// # Errors
/// When the database cannot be read: see [`StoreError`].
pub async fn remove_partly_offered(
    store: &Store,
    rows: &mut Vec<GoldRow>,
    offered: &BTreeMap<Fullname, Vec<i64>>,
    sets: &[&LabelSet],
) -> Result<usize, StoreError> {
    let mut slugs: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for id in offered.values().flatten() {
        if !slugs.contains_key(id) {
            let labels = store.labels().label_set(*id).await?.labels.into_iter();
            slugs.insert(*id, labels.map(|label| label.slug).collect());
        }
    }
    let has_all = |slugs: &BTreeSet<String>| {
        let mut labels = sets.iter().flat_map(|set| &set.labels);
        labels.all(|label| slugs.contains(&label.slug))
    };
    let before = rows.len();
    rows.retain(|row| {
        let sets = offered.get(&row.id);
        sets.is_none_or(|sets| sets.iter().all(|id| has_all(&slugs[id])))
    });
    Ok(before - rows.len())
}
