//! Estimates the share of each label from a random sample of gold labels.

use serde_json::json;

use super::super::super::{CliError, output};
use super::super::gold_source::estimate;
use super::super::side::Side;
use super::super::{NONE, Printout};
use topicmill_review::evaluate::{EvaluatedPost, estimate_shares};
use topicmill_score::LabelSet;
use topicmill_store::Store;

/// Minimum number of representative gold posts for estimates of the labels' shares.
pub const SHARE_POSTS: usize = 30;

/// Returns the numbers of stored posts with each label, then without a label; `None` if no labels are stored.
pub async fn totals(store: &Store, side: &Side) -> Result<Option<Vec<u64>>, CliError> {
    let Some(target) = side.target() else {
        return Ok(None);
    };
    let labels = &side.set.labels;
    let mut totals = vec![0; labels.len() + 1];
    for (label, _, posts) in store.labels().compare_labels(target, target).await? {
        let place = label.and_then(|slug| labels.iter().position(|label| label.slug == slug));
        totals[place.unwrap_or(labels.len())] += posts;
    }
    Ok(Some(totals).filter(|totals| totals.iter().any(|n| *n > 0)))
}

/// Adds a table of the labels' shares of all labelled posts: as assigned, and estimated from a random sample.
pub fn add_shares(found: &mut Printout, set: &LabelSet, sample: &[EvaluatedPost], totals: &[u64]) {
    let posts: u64 = totals.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "counts of posts")]
    let shares: Vec<f64> = totals.iter().map(|n| *n as f64 / posts as f64).collect();
    let slugs = set.labels.iter().map(|label| label.slug.as_str());
    let rows: Vec<_> = slugs
        .chain([NONE])
        .zip(&shares)
        .zip(estimate_shares(sample, &shares))
        .collect();
    let json = rows.iter().map(|((label, assigned), estimated)| {
        json!({"label": label, "assigned": assigned, "estimated": estimated})
    });
    found.json["shares"] = json.collect();
    let rows = rows.iter().map(|((label, assigned), estimated)| {
        json!([label, format!("{assigned:.3}"), estimate(estimated)])
    });
    let table = output::table(["label", "assigned", "estimated, 95 %"], rows);
    let heading = format!(
        "Shares of all {posts} labelled posts. Estimated: the share of posts whose right label this is, if the {} gold \
         posts are a random sample; it is the assigned share plus the mean error in the sample",
        sample.len()
    );
    found.add(&heading, table);
}
