//! The estimates of `topicmill labels evaluate`: the sampling frame, and the shares of labels.

use serde_json::json;

use super::Printout;
use super::figures::estimate;
use super::side::Side;
use crate::cli::output;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, RandomSample};

/// Describes the frame, and says if the sample is hardly random.
pub fn notes(sample: &RandomSample) -> String {
    let mut notes = Vec::new();
    if let Some(posts) = sample.frame_in_words() {
        notes.push(format!("The figures are estimates for {posts}."));
    }
    if let Some(size) = sample.size()
        && size.waves > 1
    {
        notes.push(format!(
            "The figures are weighted by {} waves, because later posts have fewer or more answers per post.",
            size.waves
        ));
    }
    if let Some(doubt) = sample.doubt() {
        notes.push(format!("Note: {doubt}."));
    }
    notes.join(" ")
}

/// Adds a table of the labels' shares of all labelled posts: as assigned, and estimated from a random sample.
pub fn add_shares(side: &Side, sample: Option<&RandomSample>, printout: &mut Printout) {
    let random = sample.map_or(0, |sample| sample.covered.posts.len());
    let shares = sample.and_then(|sample| Some((sample.size()?.posts, sample.shares(&side.set)?)));
    let Some((posts, shares)) = shares else {
        printout.add_note(&format!(
            "The estimated shares of labels need {ENOUGH_ANSWERS} random gold posts in the database ({random} so far)."
        ));
        return;
    };
    printout.json["shares"] = json!(shares);
    let rows = shares.iter().map(|share| {
        let assigned = format!("{:.3}", share.assigned);
        json!([share.label, assigned, estimate(&share.estimated)])
    });
    let table = output::table(["label", "assigned", "estimated, 95 %"], rows);
    let heading = format!(
        "Shares of {posts} labelled posts. Assigned: the share with this label. Estimated: the share whose right label this \
         is, from {random} random gold posts",
    );
    printout.add(&heading, table);
}
