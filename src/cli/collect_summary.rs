//! Formats the summary of a run of `collect`, from the topic reports and the client's traffic.

use std::collections::{BTreeMap, BTreeSet};

use super::output::{counted, thousands};
use topicmill_core::record::{CollectCounts, Traffic};
use topicmill_core::{Outcome, TopicReport, subreddit_of_path};

/// Formats the summary, without parts that are zero:
/// `collected 16 topics: 1,600 posts (1,480 new, 3 rejected) in 34 requests; 1 topic private; quota left 966`.
pub fn line(reports: &[TopicReport], traffic: &Traffic) -> String {
    let sum = CollectCounts::sum(reports);
    let topics: BTreeSet<&str> = reports.iter().map(|report| report.topic.as_str()).collect();
    let waited = match traffic.waits.total().sum.as_secs() {
        0 => String::new(),
        secs => format!(", waited {secs} s"),
    };
    let quota_left = match traffic.quota {
        None => String::new(),
        Some(quota) => format!("; quota left {:.0}", quota.remaining),
    };
    format!(
        "collected {}: {}{} in {}{waited}{}{quota_left}",
        counted(topics.len() as u64, "topic"),
        posts_and_comments(&sum),
        changes(&sum),
        counted(traffic.requests, "request"),
        failures(reports, topics.len())
    )
}

/// Formats the numbers of posts and comments: `1,600 posts and 20 comments`.
fn posts_and_comments(sum: &CollectCounts) -> String {
    let posts = counted(sum.posts - sum.comments, "post");
    match sum.comments {
        0 => posts,
        comments => format!("{posts} and {}", counted(comments, "comment")),
    }
}

/// Formats what became of the posts: ` (1,480 new, 3 rejected)`.
fn changes(sum: &CollectCounts) -> String {
    let counts = [
        ("new", sum.stored.new),
        ("changed", sum.stored.changed),
        ("edited", sum.stored.edited),
        ("purged", sum.stored.purged),
        ("purged before", sum.stored.tombstoned),
        ("rejected", sum.rejected.total()),
    ];
    let shown = counts.into_iter().filter(|(_, n)| *n > 0);
    let parts = shown.map(|(what, n)| format!("{} {what}", thousands(n)));
    match parts.collect::<Vec<_>>().join(", ").as_str() {
        "" => String::new(),
        parts => format!(" ({parts})"),
    }
}

/// A topic and a subreddit. Its posts and its comments have a report each.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place<'r> {
    topic: &'r str,
    subreddit: &'r str,
}

impl<'r> Place<'r> {
    fn of(report: &'r TopicReport) -> Self {
        let (subreddit, _) = subreddit_of_path(&report.subreddit);
        let topic = &report.topic;
        Self { topic, subreddit }
    }
}

/// Formats the numbers of places that were not read, by outcome: `; 1 topic private; 2 topics missing`.
fn failures(reports: &[TopicReport], topics: usize) -> String {
    let all_places: BTreeSet<Place<'_>> = reports.iter().map(Place::of).collect();
    // A topic may read all of its subreddits.
    let unit = if all_places.len() == topics {
        "topic"
    } else {
        "subreddit"
    };
    let mut by_outcome: BTreeMap<Outcome, BTreeSet<Place<'_>>> = BTreeMap::new();
    for report in reports {
        let places = by_outcome.entry(report.outcome).or_default();
        places.insert(Place::of(report));
    }
    by_outcome.remove(&Outcome::Ok);
    // In the order of the run record, which sorts outcomes by name.
    let mut failed: Vec<_> = by_outcome.into_iter().collect();
    failed.sort_by_key(|(outcome, _)| outcome.as_str());
    let parts = failed
        .iter()
        .map(|(outcome, places)| format!("; {} {outcome}", counted(places.len() as u64, unit)));
    parts.collect()
}
