//! Topics whose latest reading failed, and since when, from what the runs of `collect` recorded.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::domain::{Outcome, Timestamp};

/// A topic, or a subreddit of a topic that reads several, whose latest reading failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedTopic {
    /// The topic.
    pub topic: String,
    /// The subreddit that was read, or the last one tried.
    pub subreddit: String,
    /// What came of it.
    pub outcome: String,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// When the first of the runs began that failed one after the other.
    pub since: Timestamp,
    /// How many these are.
    pub runs: u64,
}

/// What a run says of a subreddit.
struct Report<'r> {
    topic: &'r str,
    subreddit: &'r str,
    outcome: &'r str,
    detail: Option<&'r str>,
}

impl Report<'_> {
    fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok.as_str()
    }
}

/// The topics of some runs, the newest run first, whose latest reading failed.
pub fn failed(runs: &[(Timestamp, Value)]) -> Vec<FailedTopic> {
    // With whether it failed in each of the runs that were looked at so far, going back.
    let mut failed: Vec<(FailedTopic, bool)> = Vec::new();
    // Whether a topic still fails in the runs that are looked at, going back.
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    for (began, outcomes) in runs {
        let mut topics: BTreeMap<&str, Vec<Report<'_>>> = BTreeMap::new();
        for report in outcomes.as_array().into_iter().flatten().filter_map(read) {
            topics.entry(report.topic).or_default().push(report);
        }
        for (topic, reports) in topics {
            match seen.get_mut(topic) {
                None => {
                    let bad = reports.iter().filter(|report| !report.is_ok());
                    let before = failed.len();
                    failed.extend(bad.map(|report| (first(report, *began), true)));
                    seen.insert(topic, failed.len() > before);
                }
                Some(still) if *still => *still = go_on(&mut failed, &reports, *began),
                Some(_) => {}
            }
        }
    }
    let mut failed: Vec<FailedTopic> = failed.into_iter().map(|(topic, _)| topic).collect();
    failed.sort_by(|a, b| (a.since, &a.topic).cmp(&(b.since, &b.topic)));
    failed
}

fn read(report: &Value) -> Option<Report<'_>> {
    let text = |field: &str| report.get(field).and_then(Value::as_str);
    let outcome = text("outcome")?;
    // A signal says nothing of the topic.
    (outcome != Outcome::Stopped.as_str()).then_some(Report {
        topic: text("topic")?,
        subreddit: text("subreddit")?,
        outcome,
        detail: text("detail"),
    })
}

fn first(report: &Report<'_>, began: Timestamp) -> FailedTopic {
    FailedTopic {
        topic: report.topic.to_owned(),
        subreddit: report.subreddit.to_owned(),
        outcome: report.outcome.to_owned(),
        detail: report.detail.map(str::to_owned),
        since: began,
        runs: 1,
    }
}

/// Takes an earlier run into account; whether something of the topic failed then, too.
fn go_on(failed: &mut [(FailedTopic, bool)], reports: &[Report<'_>], began: Timestamp) -> bool {
    let of_topic = |known: &FailedTopic| known.topic == reports[0].topic;
    for (known, still) in failed
        .iter_mut()
        .filter(|(known, still)| *still && of_topic(known))
    {
        // A topic that reads its subreddits in turn has one report, of the one that answered.
        let same = match reports {
            [only] => Some(only),
            several => several
                .iter()
                .find(|report| report.subreddit == known.subreddit),
        };
        *still = same.is_some_and(|report| !report.is_ok());
        if *still {
            known.since = began;
            known.runs += 1;
        }
    }
    failed
        .iter()
        .any(|(known, still)| *still && of_topic(known))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(at: i64, reports: &[(&str, &str, &str)]) -> (Timestamp, Value) {
        let reports = reports.iter().map(|(topic, subreddit, outcome)| {
            json!({"topic": topic, "subreddit": subreddit, "outcome": outcome, "detail": null})
        });
        (
            Timestamp::from_epoch_secs(at).unwrap(),
            reports.collect::<Vec<_>>().into(),
        )
    }

    fn told(runs: &[(Timestamp, Value)]) -> Vec<(String, String, i64, u64)> {
        let told = failed(runs).into_iter().map(|topic| {
            let since = topic.since.as_datetime().timestamp();
            (topic.topic, topic.subreddit, since, topic.runs)
        });
        told.collect()
    }

    fn failing(topic: &str, subreddit: &str, since: i64, runs: u64) -> (String, String, i64, u64) {
        (topic.into(), subreddit.into(), since, runs)
    }

    #[test]
    fn a_topic_fails_since_the_first_run_after_its_last_good_one() {
        let runs = [
            run(50, &[("a", "x", "private"), ("b", "y", "ok")]),
            // Another command read another topic.
            run(40, &[("b", "y", "server")]),
            run(30, &[("a", "x", "private")]),
            run(20, &[("a", "x", "ok")]),
            run(10, &[("a", "x", "private")]),
        ];
        assert_eq!(told(&runs), [failing("a", "x", 30, 2)]);
        assert_eq!(told(&[]), []);
        assert_eq!(
            told(&[
                run(1, &[("a", "x", "stopped")]),
                run(0, &[("a", "x", "ok")])
            ]),
            []
        );
    }

    #[test]
    fn a_topic_that_found_another_subreddit_does_not_fail() {
        let runs = [
            run(30, &[("a", "second", "ok")]),
            run(20, &[("a", "first", "missing")]),
        ];
        assert_eq!(told(&runs), []);
        let runs = [
            run(30, &[("a", "second", "private")]),
            run(20, &[("a", "first", "ok")]),
        ];
        assert_eq!(told(&runs), [failing("a", "second", 30, 1)]);
    }

    #[test]
    fn each_subreddit_of_a_topic_that_reads_several_stands_for_itself() {
        let runs = [
            run(
                30,
                &[
                    ("a", "x", "private"),
                    ("a", "y", "banned"),
                    ("a", "z", "ok"),
                ],
            ),
            run(
                20,
                &[
                    ("a", "x", "ok"),
                    ("a", "y", "banned"),
                    ("a", "z", "private"),
                ],
            ),
            run(
                10,
                &[
                    ("a", "x", "private"),
                    ("a", "y", "banned"),
                    ("a", "z", "ok"),
                ],
            ),
        ];
        let told = told(&runs);
        assert_eq!(told, [failing("a", "y", 10, 3), failing("a", "x", 30, 1)]);
    }
}
