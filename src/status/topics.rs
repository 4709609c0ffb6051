//! Topics that failed in the latest collection, from the run records of `collect`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
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
    pub outcome: String,
    /// The error message.
    pub detail: Option<String>,
    /// The start of the first consecutive failed run.
    pub since: Timestamp,
    /// The number of consecutive failed runs.
    pub runs: u64,
}

/// Returns the topics that failed in their latest collection; `runs` are sorted from newest to oldest.
pub(super) fn failed(runs: &[(Timestamp, Value)]) -> Vec<FailedTopic> {
    let mut failed: BTreeMap<&str, FailedTopic> = BTreeMap::new();
    // Topics that succeeded in a newer run.
    let mut worked: BTreeSet<&str> = BTreeSet::new();
    for (began, outcomes) in runs {
        let mut seen: BTreeMap<&str, Option<FailedTopic>> = BTreeMap::new();
        for report in outcomes.as_array().into_iter().flatten() {
            let text = |field: &str| report.get(field).and_then(Value::as_str);
            let (Some(topic), Some(outcome)) = (text("topic"), text("outcome")) else {
                continue;
            };
            // A stopped run does not count for or against the topic.
            if outcome == Outcome::Stopped.as_str() {
                continue;
            }
            let failure = seen.entry(topic).or_default();
            if outcome != Outcome::Ok.as_str() && failure.is_none() {
                *failure = Some(FailedTopic {
                    topic: topic.to_owned(),
                    subreddit: text("subreddit").unwrap_or_default().to_owned(),
                    outcome: outcome.to_owned(),
                    detail: text("detail").map(str::to_owned),
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
