//! Which labels people were offered when they said that none of them fits.

use std::collections::{BTreeMap, BTreeSet};

use super::GoldRow;
use crate::domain::Fullname;
use crate::store::{Store, StoreError};
use topicmill_score::LabelSet;

/// Leaves out the posts for which somebody said "none of these" when not all labels of these sets were offered (see
/// [`super::Agreed::offered`]); how many they are.
///
/// # Errors
/// The store's.
pub async fn without_unasked(
    store: &Store,
    rows: &mut Vec<GoldRow>,
    offered: &BTreeMap<Fullname, Vec<i64>>,
    sets: &[&LabelSet],
) -> Result<usize, StoreError> {
    let mut slugs: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for id in offered.values().flatten() {
        if !slugs.contains_key(id) {
            let labels = store.label_set(*id).await?.labels.into_iter();
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
