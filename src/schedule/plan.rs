//! Plans scheduled runs: decides which due times run, based on the cron line, `catch_up` and `overlap`. Uses no
//! database and no clock.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::entry::Entry;
use topicmill_core::{CatchUp, MAX_CLOCK_SETBACK, Overlap, ScheduledRunStatus, Timestamp};
use topicmill_store::{PlannedRun, PlanningState, ScheduleState};

/// Maximum delay of a run that counts as on time: the minute of its due time, and another minute for a busy machine.
pub(super) const ON_TIME: TimeDelta = TimeDelta::seconds(120);
/// Maximum number of waiting runs per schedule: ten days of quarter-hourly runs. A longer backlog would never clear.
const MAX_WAITING: usize = 1_000;
/// Maximum age of missed runs: a little over a year. For a cron line that is due every minute, planning this takes one
/// second.
const MAX_LOOK_BACK: TimeDelta = TimeDelta::days(400);

/// The changes to write for one schedule.
#[derive(Debug, PartialEq)]
pub(super) struct Decided {
    /// The end of the previous plan, as stored in the database.
    pub from: Option<Timestamp>,
    /// The end of the new plan.
    pub until: Timestamp,
    /// The new runs, in the order of their due times.
    pub runs: Vec<PlannedRun>,
    /// True if the previous plan ends too far in the future, because a clock was wrong.
    pub clock_was_wrong: bool,
}

/// Plans the runs that are due by now; `None` if there are none. `since` is when this process began to follow the
/// schedule.
pub(super) fn decide(entry: &Entry, state: &ScheduleState, since: Timestamp) -> Option<Decided> {
    let now = state.now.as_datetime();
    let Some(planned) = &state.planned else {
        return Some(Decided {
            from: None,
            until: since,
            runs: Vec::new(),
            clock_was_wrong: false,
        });
    };
    let until = planned.until.as_datetime();
    if is_from_wrong_clock(planned.until, state.now) {
        return Some(Decided {
            from: Some(planned.until),
            until: state.now,
            runs: Vec::new(),
            clock_was_wrong: true,
        });
    }
    // If the cron line has changed, nothing is due before this process began to follow the new line.
    let from = if has_same_line(planned, entry) {
        until
    } else {
        until.max(since.as_datetime())
    };
    let due = Due::between(entry, from.max(now - MAX_LOOK_BACK), now);
    let last = due.latest.back().copied()?;
    Some(Decided {
        from: Some(planned.until),
        until: last.into(),
        runs: runs(entry, state, due),
        clock_was_wrong: false,
    })
}

/// Returns the next due time, as a scheduler will compute it. Setting the clock back a little makes no run due again; a
/// plan made by a wrong clock is ignored.
pub fn next_due(entry: &Entry, state: &ScheduleState) -> Option<Timestamp> {
    let planned = state.planned.as_ref().map(|planned| planned.until);
    let planned = planned.filter(|until| !is_from_wrong_clock(*until, state.now));
    let from = planned.map_or(state.now, |until| until.max(state.now));
    let next = entry.timetable.after(from.as_datetime())?;
    Some(next.into())
}

/// Returns true if a time is so far in the future that it must come from a wrong clock.
pub(super) fn is_from_wrong_clock(time: Timestamp, now: Timestamp) -> bool {
    time.as_datetime() - now.as_datetime() > MAX_CLOCK_SETBACK
}

/// Returns true if the plan was made with this cron line and time zone.
pub(super) fn has_same_line(planned: &PlanningState, entry: &Entry) -> bool {
    planned.cron == entry.timetable.line() && planned.timezone == entry.timetable.zone().name()
}

/// Due times: the latest ones, and the number of earlier ones.
struct Due {
    latest: VecDeque<DateTime<Utc>>,
    before: u64,
    first: Option<DateTime<Utc>>,
}

impl Due {
    fn between(entry: &Entry, from: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        let mut due = Self {
            latest: VecDeque::new(),
            before: 0,
            first: None,
        };
        let mut at = from;
        while let Some(next) = entry.timetable.after(at).filter(|next| *next <= now) {
            due.first.get_or_insert(next);
            if due.latest.len() == MAX_WAITING {
                due.latest.pop_front();
                due.before += 1;
            }
            due.latest.push_back(next);
            at = next;
        }
        due
    }
}

fn runs(entry: &Entry, state: &ScheduleState, due: Due) -> Vec<PlannedRun> {
    let now = state.now.as_datetime();
    let running = state.running.as_ref().filter(|run| !run.is_expired);
    let mut runs = Vec::new();
    // Missed runs without a row so far: count, first and last.
    let mut missed = due
        .first
        .filter(|_| due.before > 0)
        .map(|first| (due.before, first, first));
    let miss = |missed: &mut Option<(u64, DateTime<Utc>, DateTime<Utc>)>, at| {
        let (count, first, _) = missed.unwrap_or((0, at, at));
        *missed = Some((count + 1, first, at));
    };
    let any_on_time = due.latest.back().is_some_and(|last| now - *last <= ON_TIME);
    let mut waiting = usize::try_from(state.waiting).unwrap_or(usize::MAX);
    let last = due.latest.len().saturating_sub(1);
    for (place, at) in due.latest.into_iter().enumerate() {
        let overlaps = running.filter(|run| at > run.started_at.as_datetime());
        let is_late = now - at > ON_TIME;
        let why = match overlaps {
            Some(run) if entry.overlap == Overlap::Skip => {
                let earlier = run.due_at.as_datetime().format("%Y-%m-%d %H:%M");
                Some(format!("the run of {earlier} UTC was still running"))
            }
            _ if waiting >= MAX_WAITING => Some(format!("{waiting} runs are already waiting")),
            Some(_) => None,
            None => match entry.catch_up {
                CatchUp::None if is_late => {
                    miss(&mut missed, at);
                    continue;
                }
                CatchUp::One if is_late && (any_on_time || place < last) => {
                    miss(&mut missed, at);
                    continue;
                }
                _ => None,
            },
        };
        let status = if why.is_some() {
            ScheduledRunStatus::Skipped
        } else {
            waiting += 1;
            ScheduledRunStatus::Waiting
        };
        runs.push(PlannedRun {
            due_at: at.into(),
            status,
            missed: missed.take().map(|(count, first, _)| (count, first.into())),
            error: why,
        });
    }
    // No run follows that could carry the count, so the missed runs get their own row.
    if let Some((count, first, latest)) = missed {
        runs.push(PlannedRun {
            due_at: latest.into(),
            status: ScheduledRunStatus::Missed,
            missed: Some((count, first.into())),
            error: Some("no scheduler was running".to_owned()),
        });
    }
    runs
}

/// Returns the time until the next due time by this clock, at most `most`.
pub(super) fn wait(entry: &Entry, now: DateTime<Utc>, most: Duration) -> Duration {
    let next = entry.timetable.after(now);
    let wait = next.and_then(|next| (next - now).to_std().ok());
    wait.map_or(most, |wait| wait.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Timetable;
    use ScheduledRunStatus::{Missed, Skipped, Waiting};
    use chrono_tz::Tz;
    use topicmill_store::{RunningScheduledRun, ScheduledRunLease};

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_epoch_secs(1_750_000_500 + 60 * minutes).unwrap()
    }

    fn entry(catch_up: CatchUp, overlap: Overlap) -> Entry {
        Entry {
            name: "quarter".into(),
            timetable: Timetable::new("*/15 * * * *", Tz::UTC).unwrap(),
            stages: Vec::new(),
            catch_up,
            overlap,
            timeout: None,
        }
    }

    /// Planned until minute 0, evaluated at minute `now`.
    fn state(now: i64) -> ScheduleState {
        ScheduleState {
            now: at(now),
            planned: Some(PlanningState {
                until: at(0),
                cron: "*/15 * * * *".into(),
                timezone: "UTC".into(),
            }),
            running: None,
            waiting: 0,
        }
    }

    /// Returns minute, status and missed runs of each decision.
    fn decided(entry: &Entry, state: &ScheduleState) -> Vec<(i64, ScheduledRunStatus, u64)> {
        let runs = decide(entry, state, at(0)).map_or(Vec::new(), |decided| decided.runs);
        runs.iter()
            .map(|run| {
                let minute = (run.due_at.as_datetime() - at(0).as_datetime()).num_minutes();
                (minute, run.status, run.missed.map_or(0, |(n, _)| n))
            })
            .collect()
    }

    #[test]
    fn missed_runs_follow_the_catch_up_policy() {
        assert_eq!(at(0).as_datetime().timestamp() % 900, 0);
        let by = |catch_up| entry(catch_up, Overlap::Skip);
        for catch_up in [CatchUp::None, CatchUp::One, CatchUp::All] {
            assert_eq!(decided(&by(catch_up), &state(14)), []);
            assert_eq!(decided(&by(catch_up), &state(15)), [(15, Waiting, 0)]);
            assert_eq!(decided(&by(catch_up), &state(17)), [(15, Waiting, 0)]);
        }
        // Forty runs were missed, the last one five minutes ago.
        let forty = state(605);
        assert_eq!(decided(&by(CatchUp::None), &forty), [(600, Missed, 40)]);
        assert_eq!(decided(&by(CatchUp::One), &forty), [(600, Waiting, 39)]);
        let all: Vec<_> = (1..=40).map(|n| (15 * n, Waiting, 0)).collect();
        assert_eq!(decided(&by(CatchUp::All), &forty), all);
        // The last of them is due now.
        let forty = state(600);
        assert_eq!(decided(&by(CatchUp::None), &forty), [(600, Waiting, 39)]);
        assert_eq!(decided(&by(CatchUp::One), &forty), [(600, Waiting, 39)]);
    }

    #[test]
    fn years_of_missed_runs_are_counted_and_only_the_latest_wait() {
        let days = |days: i64| state(days * 24 * 60 + 5);
        let all = decided(&entry(CatchUp::All, Overlap::Queue), &days(100));
        assert_eq!(all.len(), 1_000);
        assert_eq!(all[0].2, 9_600 - 1_000);
        let one = decided(&entry(CatchUp::One, Overlap::Queue), &days(100));
        assert_eq!((one.len(), one[0].2), (1, 9_599));
        let none = decided(&entry(CatchUp::None, Overlap::Queue), &days(3_000));
        assert_eq!((none.len(), none[0].2), (1, 400 * 96));
    }

    #[test]
    fn an_overlapping_run_is_skipped_or_queued() {
        let mut running = state(30);
        running.running = Some(RunningScheduledRun {
            lease: ScheduledRunLease { id: 1, token: 1 },
            due_at: at(0),
            started_at: at(0),
            worker: "one".into(),
            is_expired: false,
        });
        let skip = entry(CatchUp::One, Overlap::Skip);
        assert_eq!(
            decided(&skip, &running),
            [(15, Skipped, 0), (30, Skipped, 0)]
        );
        let queue = entry(CatchUp::One, Overlap::Queue);
        assert_eq!(
            decided(&queue, &running),
            [(15, Waiting, 0), (30, Waiting, 0)]
        );
        // Runs are skipped once `MAX_WAITING` of them are waiting.
        running.waiting = 999;
        assert_eq!(
            decided(&queue, &running),
            [(15, Waiting, 0), (30, Skipped, 0)]
        );
        // A crashed process is no reason to skip.
        running.waiting = 0;
        running.running.as_mut().unwrap().is_expired = true;
        assert_eq!(decided(&skip, &running), [(30, Waiting, 1)]);
    }

    #[test]
    fn a_clock_set_back_makes_nothing_due_again() {
        let one = entry(CatchUp::One, Overlap::Skip);
        assert_eq!(decide(&one, &state(-120), at(0)), None);
        // A plan a week ahead comes from a wrong clock.
        let found = decide(&one, &state(-7 * 24 * 60), at(0)).unwrap();
        assert!(found.clock_was_wrong && found.runs.is_empty());
        assert_eq!(found.until, at(-7 * 24 * 60));
        // `next_due` agrees with `decide`.
        let next = |now: i64| next_due(&one, &state(now));
        assert_eq!(next(0), Some(at(15)));
        assert_eq!(next(7), Some(at(15)));
        assert_eq!(next(-120), Some(at(15)));
        assert_eq!(next(-24 * 60), Some(at(15)));
        assert_eq!(next(-24 * 60 - 1), Some(at(-24 * 60)));
        assert_eq!(next(-7 * 24 * 60), Some(at(-7 * 24 * 60 + 15)));
        let mut new = state(7);
        new.planned = None;
        assert_eq!(next_due(&one, &new), Some(at(15)));
    }

    #[test]
    fn a_new_schedule_starts_when_it_is_first_followed() {
        let one = entry(CatchUp::All, Overlap::Skip);
        let mut new = state(100);
        new.planned = None;
        let found = decide(&one, &new, at(100)).unwrap();
        assert_eq!(
            (found.from, found.until, found.runs.len()),
            (None, at(100), 0)
        );
        // With a different line, nothing is due from before the line was followed.
        let mut other = state(605);
        other.planned.as_mut().unwrap().cron = "0 3 * * *".into();
        let found = decide(&one, &other, at(580)).unwrap();
        let due: Vec<_> = found.runs.iter().map(|run| run.due_at).collect();
        assert_eq!(due, [at(585), at(600)]);
    }
}
