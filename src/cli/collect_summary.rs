//! Logs the summary of a run of `collect` in one line.
//!
//! The line is built from the topic reports and the client's traffic. With JSON logs, the numbers are also fields.

use std::collections::BTreeSet;

use super::output::thousands;
use super::setup::Setup;
use topicmill_core::record::{CollectCounts, Traffic};
use topicmill_core::{Outcome, TopicReport};

pub fn log(reports: &[TopicReport], traffic: &Traffic, setup: &Setup) {
    let line = line(reports, traffic);
    if setup.settings().log.format != "json" {
        tracing::info!("{line}");
        return;
    }
    let sum = CollectCounts::sum(reports, "", Traffic::default());
    let waited = traffic.waits.total();
    let by_status: Vec<String> = traffic
        .by_status
        .iter()
        .map(|(status, n)| format!("{status}={n}"))
        .collect();
    tracing::info!(
        topics = topics(reports),
        not_ok = reports
            .iter()
            .filter(|report| report.outcome != Outcome::Ok)
            .count(),
        pages = sum.pages,
        posts = sum.posts,
        new = sum.new,
        changed = sum.changed,
        edited = sum.edited,
        tombstoned = sum.tombstoned,
        rejected = sum.rejected.total(),
        requests = traffic.requests,
        retries = traffic.retries,
        no_answer = traffic.no_answer,
        by_status = by_status.join(" "),
        waits = waited.times,
        waited_secs = waited.sum.as_secs_f64(),
        own_pace_secs = traffic.waits.own_pace.sum.as_secs_f64(),
        their_quota_secs = traffic.waits.their_quota.sum.as_secs_f64(),
        retry_after_secs = traffic.waits.retry_after.sum.as_secs_f64(),
        backoff_secs = traffic.waits.backoff.sum.as_secs_f64(),
        quota_left = traffic.quota.map(|quota| quota.remaining),
        "{line}"
    );
}

/// Formats the summary, without parts that are zero:
/// `collected 16 topics: 1,600 posts (1,480 new, 3 rejected) in 34 requests; 1 topic private; quota left 966`.
fn line(reports: &[TopicReport], traffic: &Traffic) -> String {
    let mut sum = CollectCounts::sum(reports, "", Traffic::default());
    let parts = [
        ("new", sum.new),
        ("changed", sum.changed),
        ("edited", sum.edited),
        ("purged before", sum.tombstoned),
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
        count(sum.posts, "post"),
        count(traffic.requests, "request"),
        not_ok.collect::<String>(),
        left.unwrap_or_default()
    )
}

fn topics(reports: &[TopicReport]) -> usize {
    let slugs = reports.iter().map(|report| report.topic.as_str());
    slugs.collect::<BTreeSet<_>>().len()
}

fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", thousands(n))
}
