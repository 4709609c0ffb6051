//! Formats the summary of a run of `collect`, from the topic reports and the client's traffic.

use std::collections::BTreeSet;

use super::output::thousands;
use topicmill_core::record::{CollectCounts, Traffic};
use topicmill_core::{Outcome, TopicReport};

/// Formats the summary, without parts that are zero:
/// `collected 16 topics: 1,600 posts (1,480 new, 3 rejected) in 34 requests; 1 topic private; quota left 966`.
pub fn line(reports: &[TopicReport], traffic: &Traffic) -> String {
    let mut sum = CollectCounts::sum(reports, "", Traffic::default());
    let parts = [
        ("new", sum.stored.new),
        ("changed", sum.stored.changed),
        ("edited", sum.stored.edited),
        ("purged", sum.stored.purged),
        ("purged before", sum.stored.tombstoned),
        ("rejected", sum.rejected.total()),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(what, n)| format!("{} {what}", thousands(*n)))
        .collect();
    let parts = match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    };
    let waited = match traffic.waits.total().sum.as_secs() {
        0 => String::new(),
        secs => format!(", waited {secs} s"),
    };
    sum.by_outcome.remove(Outcome::Ok.as_str());
    // A topic that reads all of its subreddits has a report for each.
    let topics = topics(reports);
    let each = if topics == reports.len() {
        "topic"
    } else {
        "subreddit"
    };
    let not_ok = sum.by_outcome.iter();
    let not_ok = not_ok.map(|(outcome, n)| format!("; {} {outcome}", count(*n, each)));
    let left = traffic.quota;
    let left = left.map(|quota| format!("; quota left {:.0}", quota.remaining));
    format!(
        "collected {}: {}{parts} in {}{waited}{}{}",
        count(topics as u64, "topic"),
        things(sum.posts - sum.comments, sum.comments),
        count(traffic.requests, "request"),
        not_ok.collect::<String>(),
        left.unwrap_or_default()
    )
}

fn things(posts: u64, comments: u64) -> String {
    let posts = count(posts, "post");
    if comments == 0 {
        return posts;
    }
    format!("{posts} and {}", count(comments, "comment"))
}

fn topics(reports: &[TopicReport]) -> usize {
    let slugs = reports.iter().map(|report| report.topic.as_str());
    slugs.collect::<BTreeSet<_>>().len()
}

fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", thousands(n))
}
