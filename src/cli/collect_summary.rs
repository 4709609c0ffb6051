//! Formats the summary of a run of `collect`, from the topic reports and the client's traffic.

use std::collections::BTreeSet;

use super::output::{counted, thousands};
use topicmill_core::record::{CollectCounts, Traffic};
use topicmill_core::{Outcome, TopicReport};

/// Formats the summary, without parts that are zero:
/// `collected 16 topics: 1,600 posts (1,480 new, 3 rejected) in 34 requests; 1 topic private; quota left 966`.
pub fn line(reports: &[TopicReport], traffic: &Traffic) -> String {
    let mut sum = CollectCounts::sum(reports);
    let counts = [
        ("new", sum.stored.new),
        ("changed", sum.stored.changed),
        ("edited", sum.stored.edited),
        ("purged", sum.stored.purged),
        ("purged before", sum.stored.tombstoned),
        ("rejected", sum.rejected.total()),
    ];
    let shown = counts.iter().filter(|(_, n)| *n > 0);
    let parts: Vec<String> = shown
        .map(|(what, n)| format!("{} {what}", thousands(*n)))
        .collect();
    let details = if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    };
    let waited = match traffic.waits.total().sum.as_secs() {
        0 => String::new(),
        secs => format!(", waited {secs} s"),
    };
    sum.by_outcome.remove(Outcome::Ok.as_str());
    let topics: BTreeSet<&str> = reports.iter().map(|report| report.topic.as_str()).collect();
    // A topic that reads all of its subreddits has a report for each.
    let reported = if topics.len() == reports.len() {
        "topic"
    } else {
        "subreddit"
    };
    let mut posts = counted(sum.posts - sum.comments, "post");
    if sum.comments > 0 {
        posts.extend([" and ", &counted(sum.comments, "comment")]);
    }
    let failures = sum.by_outcome.iter();
    let failures = failures.map(|(outcome, n)| format!("; {} {outcome}", counted(*n, reported)));
    let quota_left = traffic
        .quota
        .map(|quota| format!("; quota left {:.0}", quota.remaining));
    format!(
        "collected {}: {}{details} in {}{waited}{}{}",
        counted(topics.len() as u64, "topic"),
        posts,
        counted(traffic.requests, "request"),
        failures.collect::<String>(),
        quota_left.unwrap_or_default()
    )
}
