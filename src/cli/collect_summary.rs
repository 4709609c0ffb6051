//! Formats the summary of a run of `collect`, from the topic reports and the client's traffic.

use std::collections::{BTreeMap, BTreeSet};

use super::output::{counted, thousands};
use topicmill_core::record::{CollectCounts, Traffic};
use topicmill_core::{Outcome, TopicReport, subreddit_of_path};

/// A topic and a subreddit. Its posts and its comments have a report each.
type Place<'r> = (&'r str, &'r str);

fn place(report: &TopicReport) -> Place<'_> {
    (&report.topic, subreddit_of_path(&report.subreddit).0)
}

/// Formats the summary, without parts that are zero:
/// `collected 16 topics: 1,600 posts (1,480 new, 3 rejected) in 34 requests; 1 topic private; quota left 966`.
pub fn line(reports: &[TopicReport], traffic: &Traffic) -> String {
    let sum = CollectCounts::sum(reports);
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
    let topics: BTreeSet<&str> = reports.iter().map(|report| report.topic.as_str()).collect();
    let places: BTreeSet<Place<'_>> = reports.iter().map(place).collect();
    // A topic may read all of its subreddits.
    let unit = if topics.len() == places.len() {
        "topic"
    } else {
        "subreddit"
    };
    let mut failed: BTreeMap<&str, BTreeSet<Place<'_>>> = BTreeMap::new();
    for report in reports
        .iter()
        .filter(|report| report.outcome != Outcome::Ok)
    {
        let places = failed.entry(report.outcome.as_str()).or_default();
        places.insert(place(report));
    }
    let failures = failed
        .iter()
        .map(|(outcome, places)| format!("; {} {outcome}", counted(places.len() as u64, unit)));
    let mut posts = counted(sum.posts - sum.comments, "post");
    if sum.comments > 0 {
        posts.extend([" and ", &counted(sum.comments, "comment")]);
    }
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
