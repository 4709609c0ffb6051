//! Tests one quota shared by several processes: its row, and two real collectors.
//!
//! Tests of the row use explicit times. The two processes use the system clock, but nothing is asserted
//! about their speed: no request may arrive before its reserved time.

use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Json;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use topicmill::pipeline::Context;
use topicmill_core::clock::{SharedClock, SystemClock};
use topicmill_core::{FailureKind, Outcome};
use topicmill_sources::Source;
use topicmill_store::{QuotaReservation, QuotaTerms, Store};

use crate::collect::{Scene, children, climate, outcomes, topic};
use crate::purge::checking;
use crate::support::postgres::{databases, sqlite};
use crate::support::program::{Program, finished, on_reddit};
use crate::support::reddit::{client_with, requests, settings};
use crate::support::scene::READ_OPTIONS;
use crate::support::wait::until;

const SECOND: Duration = Duration::from_secs(1);

/// One reservation per second, with a burst of four.
const TERMS: QuotaTerms = QuotaTerms {
    interval: SECOND,
    burst: 4,
    max_wait: Duration::from_secs(20),
};

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

async fn take(store: &Store, now: DateTime<Utc>) -> QuotaReservation {
    let reserved = store.quotas().reserve_request("q", TERMS, now);
    reserved.await.unwrap()
}

/// Pauses all clients.
async fn throttle(store: &Store, secs: u64, now: DateTime<Utc>) {
    let wait = Duration::from_secs(secs);
    let throttled = store.quotas().throttle_quota("q", wait, now);
    throttled.await.unwrap();
}

fn secs(reservations: &[QuotaReservation]) -> Vec<u64> {
    reservations
        .iter()
        .map(|reservation| reservation.wait.as_secs())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_reservations_get_distinct_times() {
    for database in databases() {
        // Two stores represent two processes.
        let stores = [database.open().await, database.open().await];
        let tasks: Vec<_> = (0..24)
            .map(|i| {
                let store = stores[i % 2].clone();
                tokio::spawn(async move { take(&store, start()).await })
            })
            .collect();
        let mut reservations = Vec::new();
        for task in tasks {
            reservations.push(task.await.unwrap());
        }
        let mut waits = secs(&reservations);
        waits.sort_unstable();
        let expected: Vec<u64> = [0; 3].into_iter().chain(0..=20).collect();
        // Four immediately, then one per second.
        assert_eq!(waits, expected);
        assert!(reservations.iter().all(|reserved| !reserved.is_throttled));
    }
}

#[tokio::test]
async fn unused_quota_accumulates_up_to_the_burst() {
    for database in databases() {
        let store = database.open().await;
        for _ in 0..6 {
            take(&store, start()).await;
        }
        // Two requests are reserved ahead; three seconds later, exactly one may be sent immediately.
        let later = start() + 3 * SECOND;
        assert_eq!(take(&store, later).await.wait, Duration::ZERO);
        assert_eq!(take(&store, later).await.wait, SECOND);
        let rested = start() + Duration::from_hours(2);
        let mut reservations = Vec::new();
        for _ in 0..5 {
            reservations.push(take(&store, rested).await);
        }
        assert_eq!(secs(&reservations), [0, 0, 0, 0, 1]);
        // Fractions of a second count.
        let between = rested + Duration::from_millis(250);
        let wait = take(&store, between).await.wait;
        assert_eq!(wait, Duration::from_millis(1_750));
    }
}

#[tokio::test]
async fn a_wait_beyond_the_maximum_is_reported_and_not_reserved() {
    for database in databases() {
        let store = database.open().await;
        for _ in 0..24 {
            take(&store, start()).await;
        }
        for _ in 0..3 {
            assert_eq!(take(&store, start()).await.wait.as_secs(), 21);
        }
        assert_eq!(take(&store, start() + SECOND).await.wait.as_secs(), 20);
    }
}

#[tokio::test]
async fn a_pause_applies_to_all_processes_of_its_client_and_to_no_other_client() {
    for database in databases() {
        let stores = [database.open().await, database.open().await];
        let hold = async |secs| throttle(&stores[0], secs, start()).await;
        hold(12).await;
        hold(5).await;
        for store in &stores {
            let reservation = take(store, start()).await;
            assert_eq!(reservation.wait.as_secs(), 12);
            assert!(reservation.is_throttled);
        }
        hold(30).await;
        let reservation = take(&stores[1], start()).await;
        // A throttled wait reserves nothing.
        assert_eq!(reservation.wait.as_secs(), 30);
        assert!(reservation.is_throttled);
        let after = take(&stores[1], start() + Duration::from_secs(31)).await;
        assert_eq!((after.wait, after.is_throttled), (Duration::ZERO, false));
        let other = stores[1]
            .quotas()
            .reserve_request("another", TERMS, start())
            .await;
        assert_eq!(other.unwrap().wait, Duration::ZERO);

        // A pause lasts at most one hour, whatever was requested.
        hold(u64::MAX).await;
        assert_eq!(take(&stores[1], start()).await.wait.as_secs(), 3_600);
    }
}

#[tokio::test]
async fn state_written_under_a_wrong_clock_is_ignored() {
    for database in databases() {
        let store = database.open().await;
        for jump in [TimeDelta::hours(2), TimeDelta::days(400)] {
            let wrong = start() + jump;
            for _ in 0..10 {
                take(&store, wrong).await;
            }
            throttle(&store, 9, wrong).await;
            // Once the clock is right again, its wrong reservations and pause are ignored.
            let mut reservations = Vec::new();
            for _ in 0..6 {
                reservations.push(take(&store, start()).await);
            }
            assert_eq!(secs(&reservations), [0, 0, 0, 0, 1, 2]);
            throttle(&store, 9, start()).await;
            assert_eq!(take(&store, start()).await.wait.as_secs(), 9);
        }
        // A process with a slightly slow clock waits longer by the difference and never reserves a time twice.
        let slow = start() - TimeDelta::seconds(5);
        let wait = take(&store, slow).await.wait.as_secs();
        assert!((9..=20).contains(&wait), "{wait}");
    }
}

/// A fake Reddit that records when each request arrives; each page contains one post and links to the next.
#[derive(Clone)]
struct Log {
    clock: SharedClock,
    arrivals: Arc<Mutex<Vec<DateTime<Utc>>>>,
}

impl Log {
    async fn serve() -> (Self, String) {
        let log = Self {
            clock: SystemClock::shared(),
            arrivals: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(log.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        (log, url)
    }

    fn arrivals(&self) -> Vec<DateTime<Utc>> {
        let mut arrivals = self.arrivals.lock().unwrap().clone();
        arrivals.sort_unstable();
        arrivals
    }
}

async fn answer(State(log): State<Log>, uri: Uri) -> Json<Value> {
    let number = {
        let mut arrivals = log.arrivals.lock().unwrap();
        arrivals.push(log.clock.now());
        arrivals.len()
    };
    if uri.path().ends_with("access_token") {
        return Json(json!({"access_token": "t", "expires_in": 3600, "scope": "read"}));
    }
    let id = format!("n{number}");
    Json(json!({"kind": "Listing", "data": {
        "after": format!("t3_{id}"), "children": children(&[&id]),
    }}))
}

/// Reservations per minute, which are a quarter of a second apart.
const PER_MINUTE: u32 = 240;
/// Pages that each process reads, after one request for the token.
const PAGES: usize = 8;

/// Uses up the burst that both processes share. Returns the current time, which later reservations follow at intervals
/// of a quarter of a second.
async fn use_up(store: &Store, url: &str) -> DateTime<Utc> {
    let quota = client_with(settings(url)).0.quota_id();
    let terms = QuotaTerms {
        interval: Duration::from_mins(1) / PER_MINUTE,
        burst: PER_MINUTE,
        max_wait: Duration::from_mins(10),
    };
    let now = SystemClock::shared().now();
    for _ in 0..PER_MINUTE {
        let reserved = store.quotas().reserve_request(&quota, terms, now);
        assert_eq!(reserved.await.unwrap().wait, Duration::ZERO);
    }
    now
}

fn spawn(program: &Program, url: &str) -> Child {
    let mut command = program.command("collect --topic climate --limit 1000");
    let per_minute = PER_MINUTE.to_string();
    on_reddit(&mut command, url)
        .env("TOPICMILL__REDDIT__REQUESTS_PER_MINUTE", per_minute)
        .env("TOPICMILL__COLLECT__PAGE_CAP", PAGES.to_string())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Checks that request k does not arrive before the time of reservation k.
fn assert_paced(arrivals: &[DateTime<Utc>], used_up: DateTime<Utc>) {
    let interval = Duration::from_mins(1) / PER_MINUTE;
    for (k, arrival) in (1..).zip(arrivals) {
        let due = used_up + interval * k;
        assert!(*arrival >= due, "request {k} before {due}: {arrivals:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_one_quota() {
    let program = Program::new();
    let (log, url) = Log::serve().await;
    let used_up = use_up(&program.store().await, &url).await;
    let both = [0, 1].map(|_| spawn(&program, &url));
    for child in both {
        let ran = finished(child.wait_with_output().unwrap());
        ran.expect_code(0);
    }
    let arrivals = log.arrivals();
    assert_eq!(arrivals.len(), 2 * (PAGES + 1));
    assert_paced(&arrivals, used_up);
    assert_eq!(program.count("posts"), 2 * PAGES as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_does_not_stall_the_other() {
    for program in Program::on_each_database() {
        let store = program.store().await;
        let (log, url) = Log::serve().await;
        let used_up = use_up(&store, &url).await;
        let mut killed = spawn(&program, &url);
        let other = spawn(&program, &url);
        // One process is killed while it is waiting for its reserved time.
        until("both send requests", async || {
            assert_eq!(killed.try_wait().unwrap(), None);
            log.arrivals().len() >= 5
        })
        .await;
        killed.kill().unwrap();
        killed.wait().unwrap();
        let ran = finished(other.wait_with_output().unwrap());
        ran.expect_code(0);
        let arrivals = log.arrivals();
        assert!(arrivals.len() > PAGES, "{}", arrivals.len());
        assert_paced(&arrivals, used_up);
        // The killed process leaves at most one unused reservation, so the next one is at most two intervals later than
        // the requests that arrived account for.
        let next_at = program.scalar("SELECT next_at FROM quotas");
        let next_at = next_at.as_i64().unwrap();
        let used = i64::try_from(arrivals.len()).unwrap();
        let full = (used_up + Duration::from_mins(1)).max(arrivals[arrivals.len() - 1]);
        let most = full.timestamp_micros() + 250_000 * (used + 2);
        assert!(next_at <= most, "{} too far ahead", next_at - most);
    }
}

#[tokio::test]
async fn a_run_ends_before_any_request_if_the_quota_cannot_be_stored() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.hot("climate", "", "a", "").await;
    database.run("DROP TABLE quotas").await;
    let error = scene.try_collect(&[climate(5)]).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Database, "{error:?}");
    assert_eq!(requests(&scene.server, "POST").await, 0);
    assert_eq!(requests(&scene.server, "GET").await, 0);
    assert_eq!(scene.rows("SELECT status FROM runs").await, ["failed"]);
}

#[tokio::test]
async fn a_purge_uses_the_same_quota() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.hot("climate", "", "a", "").await;
    scene.collect_one(climate(5)).await;
    scene.clock.advance(Duration::from_hours(1));
    database.run("DROP TABLE quotas").await;
    let before = requests(&scene.server, "GET").await;
    let plan = checking(None, 0);
    let purged = scene.context.purge(&plan, Some(&scene.source), &|_| {});
    let error = purged.await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Database, "{error:?}");
    assert_eq!(requests(&scene.server, "GET").await, before);
}

#[tokio::test]
async fn a_429_seen_by_one_process_pauses_the_other() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    let busy = wiremock::ResponseTemplate::new(429).insert_header("retry-after", "30");
    scene.refuse("climate", busy).await;
    scene.hot("food", "", "f", "").await;

    let mut hasty = settings(&scene.server.uri());
    hasty.client.tries = 1;
    let hasty = Arc::into_inner(client_with(hasty).0).unwrap();
    let topics = [climate(5)];
    let refused = scene
        .context
        .collect(&hasty, &topics, READ_OPTIONS, false, &|_| {});
    let (reports, _) = refused.await.unwrap();
    assert_eq!(outcomes(&reports), [Outcome::RateLimited]);

    // Another client, with its own clock and connection, that has not seen the 429.
    let (reddit, clock) = client_with(settings(&scene.server.uri()));
    let reddit = Arc::into_inner(reddit).unwrap();
    let stop = CancellationToken::new();
    let store = database.open().await;
    let context = Context::new(store, clock.clone(), stop, "w2".into());
    let topics = [topic("food", &["food"], 5)];
    let collected = context.collect(&reddit, &topics, READ_OPTIONS, false, &|_| {});
    let (reports, _) = collected.await.unwrap();
    assert_eq!(outcomes(&reports), [Outcome::Ok]);
    assert_eq!(clock.sleeps(), [Duration::from_secs(30)]);
    assert_eq!(reddit.traffic().waits.retry_after.times, 1);
}
