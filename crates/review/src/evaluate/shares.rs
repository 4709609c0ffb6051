//! Estimates the share of each label among all labelled posts.

use serde::Serialize;

use super::{Estimate, EvaluatedPost, estimate_shares};
use topicmill_core::LabelSet;
use topicmill_store::{Store, StoreError, Target};

/// A label's share of all labelled posts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelShare {
    /// Slug of the label; `None` for no label.
    pub label: Option<String>,
    /// The share of posts that the label is assigned to.
    pub assigned: f64,
    /// The estimated share of posts whose correct label this is.
    pub estimated: Estimate,
}

/// Returns the number of labelled posts, and the share of each label of `set` and of no label, estimated from a random
/// sample; `None` if no labels are stored.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn label_shares(
    store: &Store,
    target: Target,
    set: &LabelSet,
    sample: &[EvaluatedPost],
) -> Result<Option<(u64, Vec<LabelShare>)>, StoreError> {
    let mut totals = vec![0; set.labels.len() + 1];
    for (label, _, posts) in store.labels().compare_labels(target, target).await? {
        let place = |slug: String| set.labels.iter().position(|label| label.slug == slug);
        totals[label.and_then(place).unwrap_or(set.labels.len())] += posts;
    }
    let posts: u64 = totals.iter().sum();
    if posts == 0 {
        return Ok(None);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of posts")]
    let assigned: Vec<f64> = totals.iter().map(|n| *n as f64 / posts as f64).collect();
    let slugs = set.labels.iter().map(|label| Some(label.slug.clone()));
    let shares = slugs.chain([None]).zip(&assigned);
    let shares = shares.zip(estimate_shares(sample, &assigned));
    let shares = shares.map(|((label, assigned), estimated)| LabelShare {
        label,
        assigned: *assigned,
        estimated,
    });
    Ok(Some((posts, shares.collect())))
}
