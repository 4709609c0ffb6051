//! Topics whose latest reading failed, and since when, from what the runs of `collect` recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use topicmill_core::{Outcome, Timestamp};

/// A topic whose latest reading failed, in at least one of its subreddits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedTopic {
    /// The topic.
    pub topic: String,
    /// The first of its subreddits that failed last.
    pub subreddit: String,
    /// How.
    pub outcome: String,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// When the first of the runs began that failed one after the other.
    pub since: Timestamp,
    /// How many these are.
    pub runs: u64,
}

/// The topics of some runs, the newest run first, whose latest reading failed.
pub(super) fn failed(runs: &[(Timestamp, Value)]) -> Vec<FailedTopic> {
    let mut failed: BTreeMap<&str, FailedTopic> = BTreeMap::new();
    // Topics that worked in a run that is newer than the one at hand.
    let mut worked: BTreeSet<&str> = BTreeSet::new();
    for (began, outcomes) in runs {
        let mut seen: BTreeMap<&str, Option<FailedTopic>> = BTreeMap::new();
        for report in outcomes.as_array().into_iter().flatten() {
            let text = |field: &str| report.get(field).and_then(Value::as_str);
            let (Some(topic), Some(outcome)) = (text("topic"), text("outcome")) else {
                continue;
            };
            // A signal says nothing about the topic.
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
    let mut failed: Vec<FailedTopic> = failed.into_values().collect();
    failed.sort_by_key(|topic| topic.since);
    failed
}
