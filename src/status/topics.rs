//! Topics that failed in the latest collection, from the run records of `collect`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use topicmill_core::{Outcome, Timestamp};

/// A topic that failed in its latest collection, in at least one of its subreddits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedTopic {
    /// The topic.
    pub topic: String,
    /// The first subreddit that failed.
    pub subreddit: String,
    /// The kind of failure.
    pub outcome: Outcome,
    /// The error message.
    pub detail: Option<String>,
    /// The start of the first consecutive failed run.
    pub since: Timestamp,
    /// The number of consecutive failed runs.
    pub runs: u64,
}

/// The fields of a [`TopicReport`](topicmill_core::TopicReport) that are read from a run record.
#[derive(Deserialize)]
struct Report<'r> {
    topic: &'r str,
    #[serde(default)]
    subreddit: &'r str,
    outcome: Outcome,
    detail: Option<String>,
}

/// Returns the topics that failed in their latest collection; `runs` are sorted from newest to oldest.
pub(super) fn failed(runs: &[(Timestamp, Value)]) -> Vec<FailedTopic> {
    let mut failed: BTreeMap<&str, FailedTopic> = BTreeMap::new();
    // Topics that succeeded in a newer run.
    let mut worked: BTreeSet<&str> = BTreeSet::new();
    for (began, outcomes) in runs {
        let mut seen: BTreeMap<&str, Option<FailedTopic>> = BTreeMap::new();
        let reports = outcomes.as_array().into_iter().flatten();
        for report in reports.filter_map(|report| Report::deserialize(report).ok()) {
            // A stopped run does not count for or against the topic.
            if report.outcome == Outcome::Stopped {
                continue;
            }
            let failure = seen.entry(report.topic).or_default();
            if report.outcome != Outcome::Ok && failure.is_none() {
                *failure = Some(FailedTopic {
                    topic: report.topic.to_owned(),
                    subreddit: report.subreddit.to_owned(),
                    outcome: report.outcome,
                    detail: report.detail,
                    since: *began,
                    runs: 1,
                });
            }
        }
        for (topic, failure) in seen {
            match failure {
                _ if worked.contains(topic) => {}
                None => drop(worked.insert(topic)),
                Some(failure) => {
                    let known = failed.entry(topic).and_modify(|known| known.runs += 1);
                    known.or_insert(failure).since = *began;
                }
            }
        }
    }
    let mut topics: Vec<FailedTopic> = failed.into_values().collect();
    topics.sort_by_key(|topic| topic.since);
    topics
}
