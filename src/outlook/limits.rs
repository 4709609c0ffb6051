//! For a monitor: what is older than it may be.

use chrono::TimeDelta;
use serde::Serialize;

use super::Outlook;
use super::next::use_them;
use crate::domain::{CLOCKS_DIFFER, RunStatus, Stage, Timestamp, ago};

/// How old things may be; what has no limit is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Since the last new post was stored.
    pub post: Option<TimeDelta>,
    /// Since the last good run of `collect` or `import` ended.
    pub collect: Option<TimeDelta>,
    /// Since the oldest post was stored that waits for a label.
    pub unlabelled: Option<TimeDelta>,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What: `max_age_post`, `max_age_collect`, `max_age_unlabelled`, `run_failed`, `slot_failed` or `set_aside`.
    pub check: &'static str,
    /// In a line, with what to do.
    pub problem: String,
    /// How old it is, in seconds.
    pub age_secs: Option<i64>,
    /// How old it may be.
    pub limit_secs: Option<i64>,
}

impl Limits {
    /// What is not as it should be, the worst first; whatever the limits, a stage whose last run failed, a schedule whose latest slot failed, and posts
    /// that were set aside.
    pub fn problems(&self, outlook: &Outlook) -> Vec<Problem> {
        let mut problems: Vec<Problem> = outlook
            .stages
            .iter()
            .filter(|last| {
                let failed = [RunStatus::Failed.as_str(), RunStatus::Died.as_str()];
                // A run under way may put it right, and its own end will tell.
                failed.contains(&last.status.as_str()) && !outlook.runs_now(&last.stage)
            })
            .map(|last| {
                let error = last.error.as_deref().unwrap_or("no reason is recorded");
                Problem {
                    check: "run_failed",
                    problem: format!(
                        "the last run of {} ({}) {}: {error}",
                        last.stage, last.id, last.status
                    ),
                    age_secs: Some(outlook.since(last.finished_at).num_seconds()),
                    limit_secs: None,
                }
            })
            .collect();
        problems.extend(outlook.failed_slots.iter().map(|slot| {
            let error = slot.error.as_deref().unwrap_or("no reason is recorded");
            let due = slot.due_at.as_datetime().format("%Y-%m-%d %H:%M UTC");
            let age = slot.finished_at.map(|at| outlook.since(at).num_seconds());
            Problem {
                check: "slot_failed",
                problem: format!(
                    "the schedule {}, due at {due}, failed: {error}",
                    slot.schedule
                ),
                age_secs: age,
                limit_secs: None,
            }
        }));
        problems.extend(self.too_old(outlook));
        if outlook.backlog.set_aside > 0 {
            let (posts, classify) = (outlook.backlog.set_aside, outlook.classify());
            problems.push(Problem {
                check: "set_aside",
                problem: format!("{posts} posts were set aside after failing: `{classify} --select failed` tries them again"),
                age_secs: None,
                limit_secs: None,
            });
        }
        problems
    }

    fn too_old(&self, outlook: &Outlook) -> Vec<Problem> {
        let collected = outlook.stages.iter().filter(|last| {
            [Stage::Collect.as_str(), Stage::Import.as_str()].contains(&last.stage.as_str())
        });
        let (past, future): (Vec<Timestamp>, Vec<_>) = collected
            .filter_map(|last| last.good_at)
            .partition(|at| outlook.since(*at) >= -CLOCKS_DIFFER);
        let newest = outlook.newest.collected_at;
        let found = [
            older(
                outlook,
                "max_age_collect",
                self.collect,
                past.into_iter().max(),
                "the last good run of `collect` ended",
                if future.is_empty() {
                    "`collect` never ended well"
                } else {
                    "the last good run of `collect` ended at a time that lies in the future, by a clock that was wrong"
                },
            ),
            older(
                outlook,
                "max_age_post",
                self.post,
                newest,
                "the last new post was stored",
                if outlook.backlog.posts > 0 {
                    "each post was stored at a time that lies in the future, by a clock that was wrong"
                } else {
                    "no post is stored"
                },
            ),
        ];
        // That nothing waits is as it should be.
        let waiting = outlook.backlog.oldest_unlabelled.and_then(|oldest| {
            older(
                outlook,
                "max_age_unlabelled",
                self.unlabelled,
                Some(oldest),
                "a post waits for a label that was stored",
                "",
            )
        });
        let waiting = waiting.map(|mut problem| {
            if let Some(beside) = &outlook.labelled_beside {
                problem.problem += "; the newest that wait have labels beside the current ones: `";
                problem.problem += &use_them(beside);
                problem.problem += "` shows these";
            }
            problem
        });
        found.into_iter().chain([waiting]).flatten().collect()
    }
}

fn older(
    outlook: &Outlook,
    check: &'static str,
    limit: Option<TimeDelta>,
    time: Option<Timestamp>,
    what: &str,
    never: &str,
) -> Option<Problem> {
    let limit = limit?;
    let age = time.map(|time| outlook.since(time));
    if age.is_some_and(|age| age <= limit) {
        return None;
    }
    let allowed = ago(limit);
    let problem = match age {
        Some(age) => format!("{what} {} ago, and {allowed} are allowed", ago(age)),
        None => format!("{never}, and {allowed} are allowed"),
    };
    Some(Problem {
        check,
        problem,
        age_secs: age.map(|age| age.num_seconds()),
        limit_secs: Some(limit.num_seconds()),
    })
}
