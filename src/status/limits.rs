//! Problems for a monitor: failed runs, and data that is older than its limit.

use chrono::TimeDelta;
use serde::Serialize;

use super::{FailedTopic, StatusReport};
use topicmill_core::{
    MAX_CLOCK_SKEW, Stage, Timestamp, counted, format_duration, format_setting, string_enum,
};

/// Minimum time since the first failure of a topic for a problem; shorter failures are often temporary.
const TOPIC_FAILED_FOR: TimeDelta = TimeDelta::days(1);

/// The warning that a scheduler follows earlier schedules.
pub const OUTDATED: &str = "the schedules in the pipeline file have changed since `topicmill schedule run` read them: restart it";

/// Maximum ages; `None` disables a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of the newest post, since it was stored.
    pub post: Option<TimeDelta>,
    /// Of the last `collect` or `import` that succeeded.
    pub collect: Option<TimeDelta>,
    /// Of the newest post in Arctic Shift, and of its measurement.
    pub lag: Option<TimeDelta>,
    /// Of the oldest unlabelled post, since it was stored.
    pub unlabelled: Option<TimeDelta>,
}

string_enum! {
    /// A check, described by what holds if it succeeds, and named after the problem or the flag.
    Check {
        /// The pipeline file can be read.
        PipelineUnreadable = "pipeline_unreadable",
        /// The last run of each stage succeeded.
        RunFailed = "run_failed",
        /// The last run of each schedule succeeded.
        ScheduledRunFailed = "scheduled_run_failed",
        /// The scheduler follows the pipeline file.
        SchedulerOutdated = "scheduler_outdated",
        /// A scheduler runs each schedule.
        ScheduleOverdue = "schedule_overdue",
        /// A `collect` or `import` succeeded within [`Limits::collect`].
        MaxAgeCollect = "max_age_collect",
        /// A new post was stored within [`Limits::post`].
        MaxAgePost = "max_age_post",
        /// The archive had a post within [`Limits::lag`].
        MaxLag = "max_lag",
        /// No post has been unlabelled for longer than [`Limits::unlabelled`].
        MaxAgeUnlabelled = "max_age_unlabelled",
        /// Each topic was read within the last day.
        TopicFailed = "topic_failed",
        /// No post is parked.
        Parked = "parked",
    }
}

/// A failed check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The check.
    pub check: Check,
    /// One line that describes the problem.
    pub problem: String,
    /// The age in seconds.
    pub age_secs: Option<i64>,
    /// The maximum age in seconds.
    pub limit_secs: Option<i64>,
}

impl Problem {
    fn new(check: Check, problem: String, age: Option<TimeDelta>) -> Self {
        Self {
            check,
            problem,
            age_secs: age.map(|age| age.num_seconds()),
            limit_secs: None,
        }
    }
}

impl Limits {
    /// Returns the failed checks, the worst first: an unreadable pipeline file, failed and overdue runs, exceeded ages,
    /// failed topics, parked posts.
    pub fn problems(&self, status: &StatusReport) -> Vec<Problem> {
        let mut problems = failures(status);
        problems.extend(self.exceeded(status));
        let topics = status.failed_topics.iter();
        problems.extend(topics.filter_map(|topic| topic_problem(status, topic)));
        let posts = status.backlog.parked;
        if posts > 0 {
            let count = counted(posts.unsigned_abs(), "post");
            let text = format!(
                "{count} parked after repeated failures: `topicmill classify --select failed` retries them"
            );
            problems.push(Problem::new(Check::Parked, text, None));
        }
        problems
    }

    /// Returns a problem for each age that exceeds its limit.
    fn exceeded(&self, status: &StatusReport) -> Vec<Problem> {
        let in_future = |what| format!("{what} at a time in the future, because of a wrong clock");
        let ended = "the last successful run of `collect` or `import` ended";
        let stages = status.stages.iter();
        let stages = stages.filter(|last| matches!(last.stage, Stage::Collect | Stage::Import));
        let good_runs: Vec<Timestamp> = stages.filter_map(|last| last.good_at).collect();
        let is_past = |at: &&Timestamp| status.since(**at) >= -MAX_CLOCK_SKEW;
        let last_good = good_runs.iter().filter(is_past).max().copied();
        let never_collected = if good_runs.is_empty() {
            "neither `collect` nor `import` has ever succeeded".to_owned()
        } else {
            in_future(ended)
        };
        let never_stored = if status.backlog.posts > 0 {
            in_future("each post was stored")
        } else {
            "no post is stored".to_owned()
        };
        let archive_read = status.archive.map_or_else(String::new, |archive| {
            let read = format_duration(status.since(archive.measured_at));
            format!("the archive, last read {read} ago, ended")
        });
        let oldest = status.backlog.oldest_unlabelled;
        let checks = [
            AgeCheck {
                check: Check::MaxAgeCollect,
                limit: self.collect,
                time: last_good,
                what: ended,
                never: &never_collected,
            },
            AgeCheck {
                check: Check::MaxAgePost,
                limit: self.post,
                time: status.newest.collected_at,
                what: "the last new post was stored",
                never: &never_stored,
            },
            AgeCheck {
                check: Check::MaxLag,
                limit: self.lag,
                time: status.archive.map(|archive| archive.newest_at),
                what: &archive_read,
                never: "no run has read a post of r/AskReddit in Arctic Shift",
            },
            AgeCheck {
                check: Check::MaxAgeUnlabelled,
                // With an empty backlog, there is nothing to check.
                limit: self.unlabelled.filter(|_| oldest.is_some()),
                time: oldest,
                what: "the oldest unlabelled post was stored",
                never: "",
            },
        ];
        let checks = checks.into_iter();
        checks.filter_map(|check| check.problem(status)).collect()
    }
}

/// Returns the problems of the pipeline file, and of runs that failed or are overdue.
fn failures(status: &StatusReport) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(error) = &status.pipeline_error {
        let text = format!("schedules and topics are not checked: {error}");
        problems.push(Problem::new(Check::PipelineUnreadable, text, None));
    }
    for last in status.failed_stages() {
        let (stage, error) = (&last.stage, reason(last.error.as_deref()));
        let verdict = last.problem().unwrap_or_default();
        let text = format!("the last run of {stage} ({}) {verdict}: {error}", last.id);
        let age = status.since(last.finished_at);
        problems.push(Problem::new(Check::RunFailed, text, Some(age)));
    }
    for run in &status.failed_scheduled_runs {
        let due = run.due_at.as_datetime().format("%Y-%m-%d %H:%M UTC");
        let (schedule, error) = (&run.schedule, reason(run.error.as_deref()));
        let text = format!("the schedule {schedule}, due at {due}, failed: {error}");
        let age = run.finished_at.map(|time| status.since(time));
        problems.push(Problem::new(Check::ScheduledRunFailed, text, age));
    }
    if status.is_scheduler_outdated {
        let text = OUTDATED.to_owned();
        problems.push(Problem::new(Check::SchedulerOutdated, text, None));
    }
    for overdue in &status.overdue_schedules {
        let (text, age) = (overdue.to_string(), status.since(overdue.due_at));
        problems.push(Problem::new(Check::ScheduleOverdue, text, Some(age)));
    }
    problems
}

/// Returns the problem of a topic that has failed for long enough.
fn topic_problem(status: &StatusReport, topic: &FailedTopic) -> Option<Problem> {
    let age = status.since(topic.since);
    if age < TOPIC_FAILED_FOR {
        return None;
    }
    let since = topic.since.as_datetime().format("%Y-%m-%d %H:%M UTC");
    let advice = if topic.outcome.is_subreddit_specific() {
        "check its subreddits in the pipeline file"
    } else {
        "`topicmill doctor` checks the source"
    };
    let text = format!(
        "the topic {} has failed since {since} (r/{}: {}): {advice}",
        topic.topic, topic.subreddit, topic.outcome
    );
    Some(Problem::new(Check::TopicFailed, text, Some(age)))
}

/// Returns the reason why a run failed.
fn reason(error: Option<&str>) -> &str {
    error.unwrap_or("no reason is recorded")
}

/// A check that a time is not longer ago than its limit.
struct AgeCheck<'a> {
    check: Check,
    limit: Option<TimeDelta>,
    time: Option<Timestamp>,
    /// Describes the time.
    what: &'a str,
    /// Describes its absence.
    never: &'a str,
}

impl AgeCheck<'_> {
    /// Returns the problem if the time is longer ago than the limit, or unknown.
    fn problem(&self, status: &StatusReport) -> Option<Problem> {
        let limit = self.limit?;
        let age = self.time.map(|time| status.since(time));
        let state = match age {
            Some(age) if age <= limit => return None,
            Some(age) => format!("{} {} ago", self.what, format_duration(age)),
            None => self.never.to_owned(),
        };
        let text = format!("{state}; the limit is {}", format_setting(limit));
        Some(Problem {
            limit_secs: Some(limit.num_seconds()),
            ..Problem::new(self.check, text, age)
        })
    }
}
