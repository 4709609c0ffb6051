//! Problems for a monitor: failed runs, and data that is older than its limit.

use chrono::TimeDelta;
use serde::Serialize;

use super::StatusReport;
use topicmill_core::{MAX_CLOCK_SKEW, Outcome, Stage, Timestamp, format_duration};

/// Minimum time since the first failure of a topic for a problem; shorter failures are often temporary.
const TOPIC_FAILED_FOR: TimeDelta = TimeDelta::days(1);

/// The warning that a scheduler follows earlier schedules.
pub const OUTDATED: &str = "the schedules in the pipeline file have changed since `topicmill schedule run` read them: restart it";

/// Maximum ages; `None` disables a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time since the last new post was stored.
    pub post: Option<TimeDelta>,
    /// Time since the last successful run of `collect` or `import` ended.
    pub collect: Option<TimeDelta>,
    /// Time since the archive's newest post, as the last run that read it found it, was created.
    pub lag: Option<TimeDelta>,
    /// Time since the oldest unlabelled post was stored.
    pub unlabelled: Option<TimeDelta>,
}

/// A failed check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The check: `max_age_post`, `max_age_collect`, `max_age_unlabelled`, `max_lag`, `run_failed`,
    /// `scheduled_run_failed`, `scheduler_outdated`, `schedule_overdue`, `topic_failed` or `parked`.
    pub check: &'static str,
    /// One line that describes the problem.
    pub problem: String,
    /// The age in seconds.
    pub age_secs: Option<i64>,
    /// The maximum age in seconds.
    pub limit_secs: Option<i64>,
}

impl Limits {
    /// Returns the failed checks, the worst first: failed and overdue runs, exceeded ages, failed topics,
    /// parked posts.
    pub fn problems(&self, status: &StatusReport) -> Vec<Problem> {
        let failed = |check, problem, ended: Option<Timestamp>| Problem {
            check,
            problem,
            age_secs: ended.map(|at| status.since(at).num_seconds()),
            limit_secs: None,
        };
        let why = |error: &Option<String>| error.clone().unwrap_or("no reason is recorded".into());
        let mut problems = Vec::new();
        // Left out while another run of the stage is active, because that run may succeed.
        for last in status.failed_stages() {
            let (stage, error) = (&last.stage, why(&last.error));
            let verdict = last.problem().unwrap_or_default();
            let text = format!("the last run of {stage} ({}) {verdict}: {error}", last.id);
            problems.push(failed("run_failed", text, Some(last.finished_at)));
        }
        for run in &status.failed_scheduled_runs {
            let due = run.due_at.as_datetime().format("%Y-%m-%d %H:%M UTC");
            let (schedule, error) = (&run.schedule, why(&run.error));
            let text = format!("the schedule {schedule}, due at {due}, failed: {error}");
            problems.push(failed("scheduled_run_failed", text, run.finished_at));
        }
        if status.is_scheduler_outdated {
            problems.push(failed("scheduler_outdated", OUTDATED.to_owned(), None));
        }
        for overdue in &status.overdue_schedules {
            let (text, due) = (overdue.to_string(), overdue.due_at);
            problems.push(failed("schedule_overdue", text, Some(due)));
        }
        problems.extend(self.too_old(status));
        for topic in &status.failed_topics {
            if status.since(topic.since) < TOPIC_FAILED_FOR {
                continue;
            }
            let since = topic.since.as_datetime().format("%Y-%m-%d %H:%M UTC");
            let outcome: Option<Outcome> = topic.outcome.parse().ok();
            let advice = if outcome.is_some_and(Outcome::is_subreddit_specific) {
                "check its subreddits in the pipeline file"
            } else {
                "`topicmill doctor` checks the source"
            };
            let text = format!(
                "the topic {} has failed since {since} (r/{}: {}): {advice}",
                topic.topic, topic.subreddit, topic.outcome
            );
            problems.push(failed("topic_failed", text, Some(topic.since)));
        }
        let posts = status.backlog.parked;
        if posts > 0 {
            let text = format!(
                "{posts} posts are parked after repeated failures: `topicmill classify --select failed` retries them"
            );
            problems.push(failed("parked", text, None));
        }
        problems
    }

    fn too_old(&self, status: &StatusReport) -> impl Iterator<Item = Problem> {
        let future = |what| format!("{what} at a time in the future, because of a wrong clock");
        let collected = status.stages.iter();
        let collected =
            collected.filter(|last| matches!(last.stage, Stage::Collect | Stage::Import));
        let good: Vec<Timestamp> = collected.filter_map(|last| last.good_at).collect();
        let past = good
            .iter()
            .copied()
            .filter(|at| status.since(*at) >= -MAX_CLOCK_SKEW);
        let never = if good.is_empty() {
            "neither `collect` nor `import` has ever succeeded".to_owned()
        } else {
            future("the last successful run of `collect` or `import` ended")
        };
        let ended = "the last successful run of `collect` or `import` ended";
        let collect = older(
            status,
            "max_age_collect",
            self.collect,
            past.max(),
            ended,
            &never,
        );
        let never = if status.backlog.posts > 0 {
            future("each post was stored")
        } else {
            "no post is stored".to_owned()
        };
        let (newest, what) = (status.newest.collected_at, "the last new post was stored");
        let stored = older(status, "max_age_post", self.post, newest, what, &never);
        // With an empty backlog, there is nothing to check.
        let waits = "the oldest unlabelled post was stored";
        let oldest = status.backlog.oldest_unlabelled;
        let limit = self.unlabelled.filter(|_| oldest.is_some());
        let waiting = older(status, "max_age_unlabelled", limit, oldest, waits, "");
        [collect, stored, self.lagging(status), waiting]
            .into_iter()
            .flatten()
    }
}

impl Limits {
    /// Returns the problem that the stored posts end too long ago, because of the archive or for want of a run.
    fn lagging(&self, status: &StatusReport) -> Option<Problem> {
        let read = status.archive.map(|archive| {
            let read = format_duration(status.since(archive.measured_at));
            format!("the archive, last read {read} ago, ended")
        });
        older(
            status,
            "max_lag",
            self.lag,
            status.archive.map(|archive| archive.newest_at),
            read.as_deref().unwrap_or_default(),
            "no run has read Arctic Shift",
        )
    }
}

fn older(
    status: &StatusReport,
    check: &'static str,
    limit: Option<TimeDelta>,
    time: Option<Timestamp>,
    what: &str,
    never: &str,
) -> Option<Problem> {
    let limit = limit?;
    let age = time.map(|time| status.since(time));
    if age.is_some_and(|age| age <= limit) {
        return None;
    }
    let found = age.map_or(never.to_owned(), |age| {
        format!("{what} {} ago", format_duration(age))
    });
    Some(Problem {
        check,
        problem: format!("{found}; the limit is {}", format_duration(limit)),
        age_secs: age.map(|age| age.num_seconds()),
        limit_secs: Some(limit.num_seconds()),
    })
}
