//! Tests scheduled runs on both databases: each runs exactly once, despite concurrent processes, clock jumps and
//! crashes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde_json::json;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use topicmill::schedule::{Entry, Event, EventKind, Scheduler, StageEnd, StageOrder, Timetable};
use topicmill_core::clock::{Clock, ManualClock};
use topicmill_core::{CatchUp, Overlap, ScheduledRunStatus, Timestamp};
use topicmill_store::{ScheduledRunClaimant, ScheduledRunRow, Store};

use crate::support::postgres::{TestDatabase, databases};

mod program;

const LEASE: Duration = Duration::from_mins(1);
/// A time after every scheduled run.
const EVER: &str = "9999-01-01T00:00:00Z";
const DONE: StageEnd = StageEnd {
    status: ScheduledRunStatus::Done,
    exit: 0,
    error: None,
    skips_rest: false,
};

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn entry(name: &str, catch_up: CatchUp) -> Entry {
    Entry {
        name: name.to_owned(),
        timetable: Timetable::new("*/15 * * * *", Tz::UTC).unwrap(),
        stages: vec![vec!["collect".to_owned()], vec!["classify".to_owned()]],
        catch_up,
        overlap: Overlap::Skip,
        timeout: None,
    }
}

/// A database, a clock stopped at noon, and the executed stages as pairs of scheduled run and stage.
struct Scene {
    store: Store,
    clock: Arc<ManualClock>,
    ran: RefCell<Vec<(i64, String)>>,
    stop: CancellationToken,
}

impl Scene {
    async fn of(database: &TestDatabase) -> Self {
        Self {
            store: database.open().await,
            clock: ManualClock::at(utc("2026-03-02T12:00:00Z")),
            ran: RefCell::default(),
            stop: CancellationToken::new(),
        }
    }

    fn scheduler(&self, worker: &str, entries: &[Entry]) -> Scheduler {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let mut scheduler = Scheduler::new(store, clock, worker.to_owned(), LEASE);
        scheduler.follow(entries.to_vec());
        scheduler
    }

    fn note(&self, order: StageOrder<'_>) {
        let mut ran = self.ran.borrow_mut();
        ran.push((order.scheduled_run, order.words[0].clone()));
    }

    /// Runs what is due; every stage succeeds.
    async fn run_due(&self, scheduler: &mut Scheduler) -> usize {
        let work = async |order: StageOrder<'_>| {
            tokio::task::yield_now().await;
            self.note(order);
            DONE
        };
        let ended = scheduler.run_due(&self.stop, &work, &|_| {}).await;
        ended.unwrap().len()
    }

    fn minutes(&self, minutes: u64) {
        self.clock.advance(Duration::from_secs(60 * minutes));
    }

    async fn runs(&self, name: &str) -> Vec<ScheduledRunRow> {
        let ever = utc(EVER).into();
        let mut runs = self
            .store
            .schedules()
            .latest_scheduled_runs(name, ever, 5_000)
            .await
            .unwrap();
        runs.reverse();
        runs
    }

    /// Returns the status and missed count of each scheduled run, the earliest first.
    async fn found(&self, name: &str) -> Vec<(ScheduledRunStatus, u64)> {
        let runs = self.runs(name).await;
        runs.iter().map(|run| (run.status, run.missed)).collect()
    }

    /// Checks that each scheduled run ran each of its stages once, and that no other stage ran.
    async fn check_once(&self, name: &str, done: usize) {
        let runs = self.runs(name).await;
        let done_ids: Vec<i64> = runs
            .iter()
            .filter(|run| run.status == ScheduledRunStatus::Done)
            .map(|run| run.id)
            .collect();
        assert_eq!(done_ids.len(), done);
        let mut times: BTreeMap<(i64, String), usize> = BTreeMap::new();
        for ran in self.ran.borrow().iter() {
            *times.entry(ran.clone()).or_default() += 1;
        }
        for id in done_ids {
            for stage in ["collect", "classify"] {
                assert_eq!(times.get(&(id, stage.to_owned())), Some(&1), "{id} {stage}");
            }
        }
    }
}

#[tokio::test]
async fn a_forward_clock_jump_runs_each_schedule_by_its_catch_up_policy() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [
            entry("none", CatchUp::None),
            entry("one", CatchUp::One),
            entry("all", CatchUp::All),
        ];
        let mut one = scene.scheduler("one", &entries);
        let mut two = scene.scheduler("two", &entries);
        assert_eq!(
            scene.run_due(&mut one).await,
            0,
            "nothing is due at the first poll"
        );
        // Forty scheduled times and five minutes later, both schedulers poll concurrently.
        scene.minutes(605);
        let (a, b) = tokio::join!(scene.run_due(&mut one), scene.run_due(&mut two));
        assert_eq!(a + b, 41, "{}", database.url);
        assert_eq!(
            scene.found("none").await,
            [(ScheduledRunStatus::Missed, 40)]
        );
        assert_eq!(scene.found("one").await, [(ScheduledRunStatus::Done, 39)]);
        assert_eq!(
            scene.found("all").await,
            [(ScheduledRunStatus::Done, 0); 40]
        );
        scene.check_once("all", 40).await;
        scene.check_once("one", 1).await;
        // The next run of each schedule is due.
        scene.minutes(10);
        let (a, b) = tokio::join!(scene.run_due(&mut one), scene.run_due(&mut two));
        assert_eq!(a + b, 3, "{}", database.url);
        assert_eq!(
            scene.found("none").await,
            [
                (ScheduledRunStatus::Missed, 40),
                (ScheduledRunStatus::Done, 0)
            ]
        );
        let last = scene.runs("one").await.pop().unwrap();
        assert_eq!(last.due_at.as_datetime(), utc("2026-03-02T22:15:00Z"));
        assert_eq!(last.started_at, Some(last.due_at));
        assert_eq!(last.outcomes[1]["stage"], json!("classify"));
    }
}

#[tokio::test]
async fn a_clock_set_back_repeats_no_scheduled_run() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [entry("often", CatchUp::One)];
        let mut one = scene.scheduler("one", &entries);
        scene.run_due(&mut one).await;
        for _ in 0..12 {
            scene.minutes(15);
            assert_eq!(scene.run_due(&mut one).await, 1);
        }
        // The clock is set back two hours; another process starts in the meantime.
        scene.clock.jump(-TimeDelta::hours(2));
        let mut two = scene.scheduler("two", &entries);
        for _ in 0..8 {
            let both = scene.run_due(&mut one).await + scene.run_due(&mut two).await;
            assert_eq!(both, 0, "{}", database.url);
            scene.minutes(15);
        }
        scene.minutes(15);
        assert_eq!(scene.run_due(&mut two).await, 1);
        scene.check_once("often", 13).await;
        // A clock that was a year ahead and is corrected does not stop the schedule for a year.
        scene.clock.jump(TimeDelta::days(365));
        scene.run_due(&mut one).await;
        scene.clock.jump(-TimeDelta::days(365));
        assert_eq!(scene.run_due(&mut one).await, 0);
        scene.minutes(15);
        assert_eq!(scene.run_due(&mut one).await, 1, "{}", database.url);
    }
}

#[tokio::test]
async fn an_overlapping_scheduled_run_is_skipped_or_queued() {
    for database in databases() {
        for (overlap, expected) in [
            (
                Overlap::Skip,
                [
                    ScheduledRunStatus::Done,
                    ScheduledRunStatus::Skipped,
                    ScheduledRunStatus::Skipped,
                ],
            ),
            (
                Overlap::Queue,
                [
                    ScheduledRunStatus::Done,
                    ScheduledRunStatus::Done,
                    ScheduledRunStatus::Done,
                ],
            ),
        ] {
            let scene = Scene::of(&database).await;
            let name = overlap.as_str();
            let entries = [Entry {
                overlap,
                ..entry(name, CatchUp::One)
            }];
            let mut one = scene.scheduler("one", &entries);
            let other = Mutex::new(scene.scheduler("two", &entries));
            scene.run_due(&mut one).await;
            scene.minutes(15);
            let first = RefCell::new(true);
            // The first stage takes half an hour, during which a second process polls twice.
            let work = async |order: StageOrder<'_>| {
                scene.note(order);
                if first.replace(false) {
                    for _ in 0..2 {
                        scene.minutes(15);
                        // Its heartbeat keeps the run alive.
                        renew(&scene, name).await;
                        assert_eq!(scene.run_due(&mut *other.lock().await).await, 0);
                    }
                }
                DONE
            };
            one.run_due(&scene.stop, &work, &|_| {}).await.unwrap();
            let found = scene.runs(name).await;
            let statuses: Vec<ScheduledRunStatus> = found.iter().map(|run| run.status).collect();
            assert_eq!(statuses, expected, "{}", database.url);
            if overlap == Overlap::Skip {
                let why = found[1].error.as_deref().unwrap();
                assert_eq!(why, "the run of 2026-03-02 12:15 UTC was still running");
            } else {
                scene.check_once(name, 3).await;
                assert!(found[1].started_at >= found[0].finished_at);
            }
        }
    }
}

/// Renews a run's lease in place of the heartbeat, which uses real time.
async fn renew(scene: &Scene, name: &str) {
    let now = scene.clock.now().into();
    let state = scene
        .store
        .schedules()
        .schedule_state(name, now)
        .await
        .unwrap();
    let held = state.running.unwrap();
    assert!(
        scene
            .store
            .schedules()
            .renew_scheduled_run(held.lease, LEASE, now)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_crashed_scheduled_run_is_resumed_after_its_last_stage() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [entry("often", CatchUp::One)];
        let mut one = scene.scheduler("one", &entries);
        scene.run_due(&mut one).await;
        scene.minutes(15);
        // A process on another machine starts the run, finishes its first stage, and disappears.
        let now = || Timestamp::from(scene.clock.now());
        let mut lost = scene.scheduler("elsewhere", &entries);
        let reached = Notify::new();
        let hang = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                reached.notify_one();
                std::future::pending::<()>().await;
            }
            scene.note(order);
            DONE
        };
        tokio::select! {
            _ = lost.run_due(&scene.stop, &hang, &|_| {}) => unreachable!("the stage hangs"),
            () = reached.notified() => {}
        }
        let held = scene
            .store
            .schedules()
            .schedule_state("often", now())
            .await
            .unwrap();
        let held = held.running.unwrap();
        assert!(!held.is_expired);
        let renew = |now| {
            scene
                .store
                .schedules()
                .renew_scheduled_run(held.lease, LEASE, now)
        };
        let later = scene.clock.now() + Duration::from_secs(20);
        assert!(renew(later.into()).await.unwrap());
        // An earlier renewal that arrives late does not shorten the lease.
        assert!(renew(now()).await.unwrap());
        scene.clock.advance(LEASE);
        assert_eq!(scene.run_due(&mut one).await, 0, "the lease is still held");
        scene.clock.advance(Duration::from_secs(20));
        assert_eq!(scene.run_due(&mut one).await, 1, "{}", database.url);
        scene.check_once("often", 1).await;
        // A process that wakes up later writes nothing.
        assert!(
            !scene
                .store
                .schedules()
                .renew_scheduled_run(held.lease, LEASE, now())
                .await
                .unwrap()
        );
        assert!(
            !scene
                .store
                .schedules()
                .record_stages(held.lease, &[])
                .await
                .unwrap()
        );
        let runs = scene.runs("often").await;
        assert_eq!(runs[0].outcomes.as_array().unwrap().len(), 2);
        assert_eq!(runs[0].worker.as_deref(), Some("one"));
    }
}

#[tokio::test]
async fn a_scheduled_run_that_keeps_crashing_is_abandoned() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [entry("deadly", CatchUp::One)];
        let mut one = scene.scheduler("one", &entries);
        scene.run_due(&mut one).await;
        scene.minutes(15);
        let claimant = ScheduledRunClaimant {
            worker: "elsewhere",
            lease: LEASE,
        };
        let mut last = None;
        // The process crashes during the scheduled run, five times.
        let reached = Notify::new();
        let die = async |_: StageOrder<'_>| {
            reached.notify_one();
            std::future::pending::<StageEnd>().await
        };
        tokio::select! {
            _ = one.run_due(&scene.stop, &die, &|_| {}) => unreachable!("the stage hangs"),
            () = reached.notified() => {}
        }
        for crashes in 1..5 {
            scene.clock.advance(LEASE);
            let now = scene.clock.now().into();
            let taken = scene
                .store
                .schedules()
                .claim_scheduled_run("deadly", &claimant, now)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(taken.crashes, crashes);
            last = Some(taken.lease);
        }
        scene.clock.advance(LEASE);
        let output = RefCell::new(Vec::new());
        let received = |event: &Event<'_>| {
            if let EventKind::Ended { status, .. } = event.kind {
                output.borrow_mut().push(status);
            }
        };
        let never = async |_: StageOrder<'_>| unreachable!("the run is abandoned");
        let ended = one.run_due(&scene.stop, &never, &received).await.unwrap();
        assert_eq!(
            ended,
            [("deadly".to_owned(), Some(ScheduledRunStatus::Failed))],
            "{}",
            database.url
        );
        assert_eq!(output.into_inner(), [ScheduledRunStatus::Failed]);
        let run = scene.runs("deadly").await.remove(0);
        assert_eq!(run.status, ScheduledRunStatus::Failed);
        let error = run.error.unwrap();
        assert!(
            error.starts_with("each process that ran it crashed"),
            "{error}"
        );
        assert!(
            !scene
                .store
                .schedules()
                .record_stages(last.unwrap(), &[])
                .await
                .unwrap()
        );
        // The next scheduled run is not blocked.
        scene.minutes(15);
        assert_eq!(scene.run_due(&mut one).await, 1);
    }
}

#[tokio::test]
async fn a_timeout_stops_a_scheduled_run_and_a_signal_releases_it() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [
            Entry {
                timeout: Some(Duration::from_mins(10)),
                ..entry("slow", CatchUp::One)
            },
            Entry {
                timetable: Timetable::new("20 * * * *", Tz::UTC).unwrap(),
                ..entry("stopped", CatchUp::One)
            },
            Entry {
                timetable: Timetable::new("20 * * * *", Tz::UTC).unwrap(),
                ..entry("gone", CatchUp::None)
            },
        ];
        let mut one = scene.scheduler("one", &entries[..1]);
        scene.run_due(&mut one).await;
        scene.minutes(15);
        let drains = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                order.stop.cancelled().await;
            }
            DONE
        };
        one.run_due(&scene.stop, &drains, &|_| {}).await.unwrap();
        let slow = scene.runs("slow").await.remove(0);
        assert_eq!(slow.status, ScheduledRunStatus::Failed, "{}", database.url);
        assert_eq!(
            slow.error.as_deref(),
            Some("it exceeded its timeout of 10 min and was stopped in `classify`")
        );
        assert_eq!(slow.outcomes.as_array().unwrap().len(), 1);

        // A signal arrives during the second stage.
        let mut two = scene.scheduler("two", &entries[1..]);
        assert_eq!(scene.run_due(&mut two).await, 0);
        let now = scene.clock.now();
        scene.clock.jump(utc("2026-03-02T13:20:00Z") - now);
        let signalled = async |order: StageOrder<'_>| {
            if order.words[0] == "classify" {
                scene.stop.cancel();
            }
            scene.note(order);
            DONE
        };
        two.run_due(&scene.stop, &signalled, &|_| {}).await.unwrap();
        assert_eq!(
            scene.found("stopped").await,
            [(ScheduledRunStatus::Waiting, 0)]
        );
        assert_eq!(
            scene.found("gone").await,
            [(ScheduledRunStatus::Stopped, 0)]
        );
        // Nothing starts after a signal; the next process continues with the stage.
        assert_eq!(scene.run_due(&mut two).await, 0);
        let again = Scene {
            stop: CancellationToken::new(),
            ran: RefCell::default(),
            store: scene.store.clone(),
            clock: scene.clock.clone(),
        };
        assert_eq!(again.run_due(&mut two).await, 1);
        let ran: Vec<String> = again
            .ran
            .borrow()
            .iter()
            .map(|(_, stage)| stage.clone())
            .collect();
        assert_eq!(ran, ["classify"]);
        assert_eq!(
            scene.found("stopped").await,
            [(ScheduledRunStatus::Done, 0)]
        );
    }
}

#[tokio::test]
async fn a_failed_stage_is_recorded_and_the_next_one_runs() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let entries = [entry("often", CatchUp::One)];
        let mut one = scene.scheduler("one", &entries);
        scene.run_due(&mut one).await;
        let received = RefCell::new(Vec::new());
        let hear = |event: &Event<'_>| {
            received.borrow_mut().push(match event.kind {
                EventKind::Started { late, .. } => format!("started {late:?} late"),
                EventKind::Ended { status, error, .. } => {
                    format!("{status} {}", error.unwrap_or(""))
                }
                other => format!("{other:?}"),
            });
        };
        for (status, skips_rest) in [
            (ScheduledRunStatus::Partial, false),
            (ScheduledRunStatus::Failed, false),
            (ScheduledRunStatus::Failed, true),
        ] {
            scene.minutes(15);
            scene.clock.advance(Duration::from_secs(7));
            let work = async |order: StageOrder<'_>| match order.words[0].as_str() {
                "collect" => StageEnd {
                    status,
                    exit: 1,
                    error: Some("no quota".into()),
                    skips_rest,
                },
                _ => DONE,
            };
            one.run_due(&scene.stop, &work, &hear).await.unwrap();
            scene.clock.jump(-TimeDelta::seconds(7));
        }
        let runs = scene.runs("often").await;
        let ended: Vec<_> = runs
            .iter()
            .map(|run| (run.status, run.outcomes.as_array().unwrap().len()))
            .collect();
        assert_eq!(
            ended,
            [
                (ScheduledRunStatus::Partial, 2),
                (ScheduledRunStatus::Failed, 2),
                (ScheduledRunStatus::Failed, 1)
            ]
        );
        assert_eq!(runs[1].error.as_deref(), Some("`collect`: no quota"));
        let received = received.into_inner();
        assert_eq!(
            received[..4],
            [
                "started 7s late",
                "partial `collect`: no quota",
                "started 7s late",
                "failed `collect`: no quota"
            ]
        );
    }
}
