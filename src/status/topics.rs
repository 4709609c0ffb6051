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
struct StoredReport<'r> {
    topic: &'r str,
    #[serde(default)]
    subreddit: &'r str,
    outcome: Outcome,
    detail: Option<String>,
}

/// Returns the topics that failed in their latest collection, longest first; `runs` are sorted from newest to oldest.
pub(super) fn failed(runs: &[(Timestamp, Value)]) -> Vec<FailedTopic> {
    let mut failed: BTreeMap<&str, FailedTopic> = BTreeMap::new();
    let mut succeeded_since: BTreeSet<&str> = BTreeSet::new();
    for (started_at, reports) in runs {
        for (topic, failure) in first_failures(*started_at, reports) {
            if succeeded_since.contains(topic) {
                continue;
            }
            match (failure, failed.get_mut(topic)) {
                (None, _) => drop(succeeded_since.insert(topic)),
                (Some(_), Some(known)) => {
                    known.since = *started_at;
                    known.runs += 1;
                }
                (Some(failure), None) => drop(failed.insert(topic, failure)),
            }
        }
    }
    let mut topics: Vec<FailedTopic> = failed.into_values().collect();
    topics.sort_by_key(|topic| topic.since);
    topics
}

/// Returns the topics that a run read, each with its first failure, if any. Left out are topics that a stopped run did
/// not finish, and reports that this version cannot decode.
fn first_failures(started_at: Timestamp, reports: &Value) -> BTreeMap<&str, Option<FailedTopic>> {
    let mut topics: BTreeMap<&str, Option<FailedTopic>> = BTreeMap::new();
    let reports = reports.as_array().into_iter().flatten();
    for report in reports.filter_map(|report| StoredReport::deserialize(report).ok()) {
        if report.outcome == Outcome::Stopped {
            continue;
        }
        let failure = topics.entry(report.topic).or_default();
        if report.outcome != Outcome::Ok && failure.is_none() {
            *failure = Some(FailedTopic {
                topic: report.topic.to_owned(),
                subreddit: report.subreddit.to_owned(),
                outcome: report.outcome,
                detail: report.detail,
                since: started_at,
                runs: 1,
            });
        }
    }
    topics
}
