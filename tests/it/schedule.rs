//! Tests scheduled runs on both databases: each runs exactly once, despite concurrent processes, clock jumps and
//! crashes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use topicmill::schedule::{Ended, ScheduleEntry, Scheduler, StageEnd, StageOrder, Timetable};
use topicmill_core::ScheduledRunStatus;
use topicmill_core::clock::{Clock, ManualClock};
use topicmill_store::{ScheduleState, Store};

use crate::support::postgres::{TestDatabase, databases};

mod program;

const LEASE: Duration = Duration::from_mins(1);
const DONE: StageEnd = StageEnd {
    status: ScheduledRunStatus::Done,
    exit: 0,
    error: None,
    skips_rest: false,
};

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn entry() -> ScheduleEntry {
    ScheduleEntry {
        name: "often".to_owned(),
        timetable: Timetable::new("*/15 * * * *", Tz::UTC).unwrap(),
        stages: vec![vec!["collect".to_owned()], vec!["classify".to_owned()]],
        timeout: None,
    }
}

/// A database with a schedule that ran at noon, a clock, and the executed stages as pairs of scheduled run and stage.
struct Schedules {
    store: Store,
    clock: Arc<ManualClock>,
    ran: RefCell<Vec<(i64, String)>>,
    stop: CancellationToken,
}

impl Schedules {
    async fn of(database: &TestDatabase) -> Self {
        let schedules = Self {
            store: database.open().await,
            clock: ManualClock::at(utc("2026-03-02T12:00:00Z")),
            ran: RefCell::default(),
            stop: CancellationToken::new(),
        };
        assert_eq!(schedules.run_due(&mut schedules.scheduler("zero")).await, 1);
        schedules
    }

    fn scheduler(&self, worker: &str) -> Scheduler {
        self.scheduler_of(worker, entry())
    }

    fn scheduler_of(&self, worker: &str, entry: ScheduleEntry) -> Scheduler {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        Scheduler::new(store, clock, worker.to_owned(), LEASE, vec![entry])
    }

    /// Runs what is due; every stage succeeds. Returns the number of runs.
    async fn run_due(&self, scheduler: &mut Scheduler) -> usize {
        let work = async |order: StageOrder<'_>| {
            tokio::task::yield_now().await;
            let stage = order.words[0].clone();
            self.ran.borrow_mut().push((order.scheduled_run, stage));
            DONE
        };
        self.run_with(scheduler, &work).await.runs
    }

    async fn run_with(
        &self,
        scheduler: &mut Scheduler,
        work: &impl AsyncFn(StageOrder<'_>) -> StageEnd,
    ) -> Ended {
        scheduler.run(true, &self.stop, work).await.unwrap()
    }

    /// Runs what is due in a process that disappears during `classify`.
    async fn crash(&self, worker: &str) {
        let reached = Notify::new();
        let hang = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                reached.notify_one();
                std::future::pending::<()>().await;
            }
            let stage = order.words[0].clone();
            self.ran.borrow_mut().push((order.scheduled_run, stage));
            DONE
        };
        let mut scheduler = self.scheduler(worker);
        tokio::select! {
            _ = self.run_with(&mut scheduler, &hang) => unreachable!("the stage hangs"),
            () = reached.notified() => {}
        }
    }

    fn minutes(&self, minutes: u64) {
        self.clock.advance(Duration::from_secs(60 * minutes));
    }

    async fn state(&self) -> ScheduleState {
        let now = self.clock.now().into();
        let schedules = self.store.schedules();
        schedules.schedule_state("often", now).await.unwrap()
    }

    /// Returns the rows of scheduled runs, except the one at noon: time, status, number of stages, error.
    async fn rows(&self) -> Vec<Value> {
        let sql = "SELECT due_at, status, outcomes, error FROM scheduled_runs WHERE schedule = 'often' \
                    ORDER BY due_at";
        let rows = self.store.query(sql).await.unwrap().rows.split_off(1);
        let row = |row: Vec<Value>| {
            let [due, status, outcomes, error] = <[Value; 4]>::try_from(row).unwrap();
            let time = &due.as_str().unwrap()[11..16];
            // SQLite stores JSON as text.
            let outcomes: Vec<Value> = match outcomes {
                Value::String(text) => serde_json::from_str(&text).unwrap(),
                json => serde_json::from_value(json).unwrap(),
            };
            json!([time, status, outcomes.len(), error])
        };
        rows.into_iter().map(row).collect()
    }

    /// Checks that no stage of a scheduled run ran twice, and that this many scheduled runs ran.
    fn check_once(&self, runs: usize) {
        let mut stages: BTreeMap<(i64, String), usize> = BTreeMap::new();
        for ran in self.ran.borrow().iter() {
            *stages.entry(ran.clone()).or_default() += 1;
        }
        assert!(stages.values().all(|times| *times == 1), "{stages:?}");
        assert_eq!(stages.len(), 2 * runs, "{stages:?}");
    }
}

#[tokio::test]
async fn the_latest_due_time_runs_once_after_a_pause_of_all_schedulers() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let (mut one, mut two) = (here.scheduler("one"), here.scheduler("two"));
        // Forty due times and five minutes later, both schedulers start.
        here.minutes(605);
        let (a, b) = tokio::join!(here.run_due(&mut one), here.run_due(&mut two));
        assert_eq!(a + b, 1);
        here.minutes(10);
        let (a, b) = tokio::join!(here.run_due(&mut one), here.run_due(&mut two));
        assert_eq!(a + b, 1);
        let rows = here.rows().await;
        assert_eq!(
            json!(rows),
            json!([["22:00", "done", 2, null], ["22:15", "done", 2, null]])
        );
        here.check_once(3);
    }
}

#[tokio::test]
async fn a_new_schedule_does_not_run_for_an_earlier_due_time() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        here.minutes(125);
        let new = ScheduleEntry {
            name: "new".to_owned(),
            timetable: Timetable::new("0 * * * *", Tz::UTC).unwrap(),
            ..entry()
        };
        let mut one = here.scheduler_of("one", new);
        assert_eq!(here.run_due(&mut one).await, 0);
        here.minutes(55);
        assert_eq!(here.run_due(&mut one).await, 1);
    }
}

#[tokio::test]
async fn a_clock_set_back_repeats_no_scheduled_run() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let mut one = here.scheduler("one");
        for _ in 0..12 {
            here.minutes(15);
            assert_eq!(here.run_due(&mut one).await, 1);
        }
        // The clock is set back two hours; another process starts in the meantime.
        here.clock.jump(-TimeDelta::hours(2));
        let mut two = here.scheduler("two");
        for _ in 0..8 {
            let both = here.run_due(&mut one).await + here.run_due(&mut two).await;
            assert_eq!(both, 0);
            here.minutes(15);
        }
        here.minutes(15);
        assert_eq!(here.run_due(&mut two).await, 1);
        here.check_once(14);
    }
}

#[tokio::test]
async fn a_clock_that_was_a_year_ahead_does_not_stop_the_schedule_for_a_year() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let mut one = here.scheduler("one");
        here.clock.jump(TimeDelta::days(365));
        here.run_due(&mut one).await;
        here.clock.jump(-TimeDelta::days(365));
        assert_eq!(here.run_due(&mut one).await, 0);
        here.minutes(15);
        assert_eq!(here.run_due(&mut one).await, 1);
    }
}

#[tokio::test]
async fn a_due_time_is_skipped_while_the_previous_run_is_in_progress() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let mut one = here.scheduler("one");
        here.minutes(15);
        let first = Cell::new(true);
        // The first stage takes half an hour, during which a second process polls twice.
        let work = async |_: StageOrder<'_>| {
            if first.replace(false) {
                for _ in 0..2 {
                    here.minutes(15);
                    // The renewal, which uses real time, keeps the run alive.
                    let (lease, now) =
                        (here.state().await.running.unwrap().lease, here.clock.now());
                    let renewed =
                        here.store
                            .schedules()
                            .renew_scheduled_run(lease, LEASE, now.into());
                    assert!(renewed.await.unwrap());
                    assert_eq!(here.run_due(&mut here.scheduler("two")).await, 0);
                }
            }
            DONE
        };
        assert_eq!(here.run_with(&mut one, &work).await.runs, 1);
        assert_eq!(here.run_due(&mut one).await, 0);
        let why = "the run of 2026-03-02 12:15 UTC was still in progress";
        assert_eq!(
            json!(here.rows().await),
            json!([
                ["12:15", "done", 2, null],
                ["12:30", "skipped", 0, why],
                ["12:45", "skipped", 0, why]
            ])
        );
    }
}

#[tokio::test]
async fn a_crashed_scheduled_run_is_resumed_after_its_last_stage() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        here.minutes(15);
        here.crash("elsewhere").await;
        let held = here.state().await.running.unwrap();
        assert!(!held.is_expired);
        let schedules = here.store.schedules();
        let renew =
            |now: DateTime<Utc>| schedules.renew_scheduled_run(held.lease, LEASE, now.into());
        let start = here.clock.now();
        assert!(renew(start + Duration::from_secs(20)).await.unwrap());
        // An earlier renewal that arrives late does not shorten the lease.
        assert!(renew(start).await.unwrap());
        let mut one = here.scheduler("one");
        here.clock.advance(LEASE);
        assert_eq!(here.run_due(&mut one).await, 0, "the lease is still held");
        here.clock.advance(Duration::from_secs(20));
        assert_eq!(here.run_due(&mut one).await, 1);
        here.check_once(2);
        assert_eq!(
            json!(here.rows().await),
            json!([["12:15", "done", 2, null]])
        );
        // A process that wakes up later writes nothing.
        assert!(!renew(here.clock.now()).await.unwrap());
        assert!(!schedules.record_stages(held.lease, &[]).await.unwrap());
    }
}

#[tokio::test]
async fn a_crashed_scheduled_run_is_abandoned_at_the_next_due_time() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        here.minutes(15);
        here.crash("elsewhere").await;
        here.minutes(15);
        assert_eq!(here.run_due(&mut here.scheduler("one")).await, 1);
        let [stopped, done] = <[Value; 2]>::try_from(here.rows().await).unwrap();
        let error = &stopped[3];
        assert!(error.is_string(), "{stopped}");
        assert_eq!(stopped, json!(["12:15", "stopped", 1, error]));
        assert_eq!(done, json!(["12:30", "done", 2, null]));
    }
}

#[tokio::test]
async fn a_timeout_fails_a_scheduled_run() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let slow = ScheduleEntry {
            timeout: Some(Duration::from_mins(10)),
            ..entry()
        };
        here.minutes(15);
        let waits = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                order.stop.cancelled().await;
            }
            DONE
        };
        here.run_with(&mut here.scheduler_of("one", slow), &waits)
            .await;
        let timeout = "it exceeded its timeout of 10 min and was stopped in `classify`";
        assert_eq!(
            json!(here.rows().await),
            json!([["12:15", "failed", 1, timeout]])
        );
    }
}

#[tokio::test]
async fn the_next_process_resumes_a_scheduled_run_that_a_signal_stopped() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        here.minutes(15);
        let mut one = here.scheduler("one");
        let signalled = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                here.stop.cancel();
            }
            DONE
        };
        here.run_with(&mut one, &signalled).await;
        let running = json!([["12:15", "running", 1, null]]);
        assert_eq!(json!(here.rows().await), running);
        // Nothing starts after a signal; the next process continues with the stage.
        assert_eq!(here.run_due(&mut one).await, 0);
        let again = Schedules {
            stop: CancellationToken::new(),
            ran: RefCell::default(),
            store: here.store.clone(),
            clock: here.clock.clone(),
        };
        assert_eq!(again.run_due(&mut again.scheduler("two")).await, 1);
        let stages: Vec<String> = again
            .ran
            .take()
            .into_iter()
            .map(|(_, stage)| stage)
            .collect();
        assert_eq!(stages, ["classify"]);
        let done = json!([["12:15", "done", 2, null]]);
        assert_eq!(json!(again.rows().await), done);
    }
}

#[tokio::test]
async fn a_failed_stage_is_recorded_and_the_next_one_runs_unless_the_database_failed() {
    for database in databases() {
        let here = Schedules::of(&database).await;
        let mut one = here.scheduler("one");
        for (status, skips_rest) in [
            (ScheduledRunStatus::Partial, false),
            (ScheduledRunStatus::Failed, false),
            (ScheduledRunStatus::Failed, true),
        ] {
            here.minutes(15);
            let work = async |order: StageOrder<'_>| match order.words[0].as_str() {
                "collect" => StageEnd {
                    status,
                    exit: 1,
                    error: Some("no quota".into()),
                    skips_rest,
                },
                _ => DONE,
            };
            let ended = here.run_with(&mut one, &work).await;
            assert_eq!(ended, Ended { runs: 1, failed: 1 });
        }
        let error = "`collect`: no quota";
        assert_eq!(
            json!(here.rows().await),
            json!([
                ["12:15", "partial", 2, error],
                ["12:30", "failed", 2, error],
                ["12:45", "failed", 1, error]
            ])
        );
    }
}
