//! Decides what to do with the latest due time of a schedule. Uses no database and no clock.
//!
//! Only the latest due time counts. It runs unless it has a row: also late, if no scheduler was running when it was
//! due. Earlier due times do not run.

use chrono::TimeDelta;

use super::ScheduleEntry;
use topicmill_core::Timestamp;
use topicmill_store::{RunningScheduledRun, ScheduleState};

/// Maximum delay of the first run of a new schedule: the minute of its due time, and another minute for a busy machine.
const ON_TIME: TimeDelta = TimeDelta::minutes(2);

/// Next step for a schedule.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision<'a> {
    /// Nothing is due.
    Wait,
    /// Start the run of this due time.
    Start(Timestamp),
    /// Record that this due time does not run, for this reason.
    Skip(Timestamp, String),
    /// Resume this run of a process that crashed or was stopped.
    Resume(&'a RunningScheduledRun),
    /// Give up this run of a process that crashed or was stopped, and start the run of this due time.
    Replace(&'a RunningScheduledRun, Timestamp),
}

/// Decides what to do. `lost` is the run in progress if its process is gone.
pub(super) fn decide<'a>(
    entry: &ScheduleEntry,
    state: &ScheduleState,
    lost: Option<&'a RunningScheduledRun>,
) -> Decision<'a> {
    let now = state.now.as_datetime();
    let latest_due = entry.timetable.latest(now).map(Timestamp::from);
    // A due time up to the latest row is not due again.
    let due = latest_due.filter(|due| state.latest.is_none_or(|latest| latest < *due));
    match (lost, due, &state.running) {
        (Some(lost), Some(due), _) => Decision::Replace(lost, due),
        (Some(lost), None, _) => Decision::Resume(lost),
        (None, None, _) => Decision::Wait,
        (None, Some(due), Some(running)) => {
            let earlier = utc(running.due_at);
            let why = format!("the run of {earlier} was still in progress");
            Decision::Skip(due, why)
        }
        (None, Some(due), None) if state.latest.is_none() && now - due.as_datetime() > ON_TIME => {
            Decision::Skip(due, "the schedule was new".to_owned())
        }
        (None, Some(due), None) => Decision::Start(due),
    }
}

/// Formats a due time for messages.
pub(super) fn utc(due: Timestamp) -> String {
    due.as_datetime().format("%Y-%m-%d %H:%M UTC").to_string()
}

/// Returns the next due time. Setting the clock back makes no due time due again.
pub fn next_due(entry: &ScheduleEntry, state: &ScheduleState) -> Option<Timestamp> {
    let from = state.latest.unwrap_or(state.now).max(state.now);
    entry.timetable.after(from.as_datetime()).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Timetable;
    use chrono_tz::Tz;
    use topicmill_core::table;
    use topicmill_store::ScheduledRunLease;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_epoch_secs(1_750_000_500 + 60 * minutes).unwrap()
    }

    fn entry() -> ScheduleEntry {
        ScheduleEntry {
            name: "quarter".into(),
            timetable: Timetable::new("*/15 * * * *", Tz::UTC).unwrap(),
            stages: Vec::new(),
            timeout: None,
        }
    }

    /// The state at minute `now`; the latest row is of minute `latest`.
    fn state(now: i64, latest: Option<i64>) -> ScheduleState {
        ScheduleState {
            now: at(now),
            latest: latest.map(at),
            running: None,
        }
    }

    #[test]
    fn a_run_in_progress_is_awaited_and_a_lost_one_is_resumed_or_replaced() {
        let running = RunningScheduledRun {
            lease: ScheduledRunLease { id: 1, token: 1 },
            due_at: at(0),
            worker: "one".into(),
            lease_until: at(1),
            outcomes: Vec::new(),
            is_expired: false,
        };
        for (now, is_lost, latest, expected) in table! {
            14, false, 0, Decision::Wait;
            14, true, 0, Decision::Resume(&running);
            15, false, 0, Decision::Skip(at(15), "the run of 2025-06-15 15:15 UTC was still in progress".into());
            15, true, 0, Decision::Replace(&running, at(15));
            // The next due time was skipped before the process was lost.
            16, true, 15, Decision::Resume(&running);
        } {
            let state = ScheduleState {
                running: Some(running.clone()),
                ..state(now, Some(latest))
            };
            let lost = is_lost.then_some(&running);
            assert_eq!(decide(&entry(), &state, lost), expected, "{now}");
        }
    }

    #[test]
    fn the_next_due_time_has_no_row() {
        for (now, latest, next) in [
            (0, None, 15),
            (7, Some(0), 15),
            (-120, Some(0), 15),
            (15, Some(15), 30),
        ] {
            assert_eq!(next_due(&entry(), &state(now, latest)), Some(at(next)));
        }
    }
}
