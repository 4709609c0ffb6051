//! Attacks on the backlog: lost rows, stalled workers, lost renewals, outages, and runs wrongly marked as crashed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use topicmill::classify::{self, Options};
use topicmill::pipeline::Context;
use topicmill::run::Run;
use topicmill::run::StageError;
use topicmill_core::clock::{Clock, SharedClock, Sleep, SystemClock};
use topicmill_core::record::ClassifyCounts;
use topicmill_core::{RunStatus, Stage};
use topicmill_store::{Access, Claimant, CrashFilter, RunId, Store, Written};

use crate::crashes::{LEASE, MAX_ATTEMPTS, add_posts, begin, count, label_set, titles, with_posts};
use crate::purge::stored_labels;
use crate::store::fixture;
use crate::support::builders::at;
use crate::support::engine::{ScriptedEngine, scripted};
use crate::support::postgres::{databases, postgres, sqlite};
use crate::support::program::Program;
use crate::support::proxy::Proxy;
use crate::support::wait::{BLOCKED, sessions, until};

fn options() -> Options {
    crate::crashes::options(LEASE)
}

fn slow() -> ScriptedEngine {
    ScriptedEngine {
        batch: Duration::from_millis(10),
        ..ScriptedEngine::default()
    }
}

/// Labels the backlog with one engine.
async fn label(
    store: &Store,
    clock: &SharedClock,
    stop: &CancellationToken,
    options: &Options,
) -> (Result<(), StageError>, ClassifyCounts) {
    let name = topicmill_store::worker_name();
    let run = Run {
        store,
        clock,
        stop,
        worker: &name,
        id: begin(store, &name).await,
    };
    let mut done = ClassifyCounts::default();
    let labelers = vec![scripted(|_| slow()).into()];
    let set = label_set();
    let ended = classify::label(&run, labelers, &set, options, &|_| {}, &mut done).await;
    (ended, done)
}

async fn labelled_once(store: &Store, posts: u64) {
    assert_eq!(count(store, "classifications").await, posts);
    assert_eq!(count(store, "backlog").await, 0);
    assert_eq!(count(store, "leases").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_lost_during_the_run_is_restored_before_it_ends() {
    for database in databases() {
        let n = 3_000;
        let store = with_posts(&database, n).await;
        let (clock, stop) = (SystemClock::shared(), CancellationToken::new());
        let options = options();
        let labelling = label(&store, &clock, &stop, &options);
        let losing = async {
            until("some posts are labelled", async || {
                count(&store, "classifications").await > 0
            })
            .await;
            // With `synchronous_commit` off, a server crash may lose these rows.
            database.run("DELETE FROM backlog").await;
        };
        let ((ended, done), ()) = tokio::join!(labelling, losing);
        ended.unwrap();
        assert_eq!((done.posts, done.failed), (n as u64, 0));
        labelled_once(&store, n as u64).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_added_during_the_last_batch_are_labelled_by_the_same_run() {
    for database in databases() {
        let store = with_posts(&database, 3_000).await;
        let (clock, stop) = (SystemClock::shared(), CancellationToken::new());
        let options = options();
        let labelling = label(&store, &clock, &stop, &options);
        let collecting = async {
            until("some posts are labelled", async || {
                count(&store, "classifications").await > 0
            })
            .await;
            let run = begin(&store, "collector").await;
            add_posts(&store, run, std::iter::once(("new".into(), "news".into()))).await;
        };
        let ((ended, done), ()) = tokio::join!(labelling, collecting);
        ended.unwrap();
        assert_eq!(done.posts, 3_001);
        labelled_once(&store, 3_001).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_worker_is_reported_and_does_not_block_the_end_of_a_run() {
    use sqlx::Connection;
    let Some(database) = postgres() else {
        return;
    };
    let store = with_posts(&database, 20).await;
    let (clock, stop) = (SystemClock::shared(), CancellationToken::new());
    assert_eq!(label(&store, &clock, &stop, &options()).await.1.posts, 20);
    let run = begin(&store, "collector").await;
    add_posts(&store, run, titles(25)).await;
    let target = store.labels().current_target().await.unwrap().unwrap();
    store.backlog().enqueue_missing(target).await.unwrap();
    // A claim that expired long ago; its worker is still inside a transaction.
    let mut frozen = sqlx::PgConnection::connect(&database.url).await.unwrap();
    for sql in [
        "INSERT INTO leases (worker, claimed_at, expires_at) VALUES ('frozen', '2020-01-01', '2020-01-01')",
        "UPDATE backlog SET lease_id = (SELECT id FROM leases) WHERE fullname = 't3_p000024'",
        "BEGIN",
        "SELECT 1 FROM leases FOR UPDATE",
    ] {
        sqlx::query(sql).execute(&mut frozen).await.unwrap();
    }
    let options = options();
    let ended = tokio::time::timeout(
        Duration::from_secs(30),
        label(&store, &clock, &stop, &options),
    );
    let (ended, done) = ended
        .await
        .expect("the run does not wait for the stalled worker");
    ended.unwrap();
    assert_eq!((done.posts, done.held_elsewhere), (4, 1));
    // The server eventually aborts the stalled worker's transaction.
    let sql = "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'";
    let setting = store.query(sql).await.unwrap();
    assert_eq!(setting.rows, [[json!("60000")]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_during_the_label_write_and_not_reclaimed() {
    use sqlx::Connection;
    let Some(database) = postgres() else {
        return;
    };
    let f = fixture(database.open().await, 3).await;
    let claim = f.claim(2, 0).await;
    let mut reader = sqlx::PgConnection::connect(&database.url).await.unwrap();
    for sql in ["BEGIN", "SELECT 1 FROM posts FOR UPDATE"] {
        sqlx::query(sql).execute(&mut reader).await.unwrap();
    }
    // The write has its lease and is waiting for the posts to be unlocked.
    let writing = f.complete(&claim, 1);
    let meanwhile = async {
        let waits = async || sessions(&database.url, BLOCKED).await == 1;
        until("the write is waiting", waits).await;
        let renewed = f.store.backlog().renew(claim.lease, at(50), LEASE).await;
        assert!(renewed.unwrap());
        let others = f.claim(9, 9_999).await.posts;
        assert_eq!(others.len(), 1, "only the unclaimed post: {others:?}");
        sqlx::query("COMMIT").execute(&mut reader).await.unwrap();
    };
    let both = async { tokio::join!(writing, meanwhile) };
    let both = tokio::time::timeout(Duration::from_secs(30), both).await;
    let (written, ()) = both.expect("neither a renewal nor a claim waits for a write");
    assert_eq!(written, Written::Stored(stored_labels(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_renewal_is_retried_before_the_lease_expires() {
    let Some(database) = postgres() else {
        return;
    };
    let direct = with_posts(&database, 5).await;
    let proxy = Proxy::in_front_of(&database.url).await;
    let url = proxy.url(&database.url);
    let store = Store::open(&url, Access::Existing).await.unwrap();
    let (clock, stop) = (SystemClock::shared(), CancellationToken::new());
    let name = topicmill_store::worker_name();
    let run = Run {
        store: &store,
        clock: &clock,
        stop: &stop,
        worker: &name,
        id: begin(&store, &name).await,
    };
    let lease = Duration::from_secs(6);
    let options = Options { lease, ..options() };
    let slow = || ScriptedEngine {
        batch: 2 * lease,
        ..ScriptedEngine::default()
    };
    let labelers = vec![scripted(|_| slow()).into()];
    let (set, mut done) = (label_set(), ClassifyCounts::default());
    proxy.gate.lose("UPDATE leases SET expires_at");
    let expired = async || {
        let sql = "SELECT COUNT(*) FROM leases WHERE expires_at <= clock_timestamp()";
        direct.query(sql).await.unwrap().rows[0][0] != json!(0)
    };
    let message = |_: _| {};
    let labelling = classify::label(&run, labelers, &set, &options, &message, &mut done);
    tokio::select! {
        ended = labelling => ended.unwrap(),
        () = until("a lease expires", expired) => panic!("a lease expired"),
    }
    assert!(proxy.gate.has_lost());
    assert_eq!((done.posts, done.refused), (5, 0));
    labelled_once(&direct, 5).await;
}

/// The system clock, with sleeps a hundred times shorter.
#[derive(Debug)]
struct FastClock(SharedClock);

impl Clock for FastClock {
    fn now(&self) -> chrono::DateTime<chrono::Utc> {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        self.0.sleep(duration / 100)
    }
}

/// A store whose connections can be cut, and a clock with which the backoff of minutes takes seconds.
struct Outage {
    store: Store,
    /// A store that is not affected.
    direct: Store,
    proxy: Proxy,
    clock: SharedClock,
}

impl Outage {
    async fn with_posts(posts: usize) -> Option<Self> {
        let database = postgres()?;
        let direct = with_posts(&database, posts).await;
        let proxy = Proxy::in_front_of(&database.url).await;
        let url = proxy.url(&database.url);
        Some(Self {
            store: Store::open(&url, Access::Existing).await.unwrap(),
            direct,
            proxy,
            clock: Arc::new(FastClock(SystemClock::shared())),
        })
    }

    /// Waits for some labels, and then cuts all connections.
    async fn begin_after_some_labels(&self) {
        until("some posts are labelled", async || {
            count(&self.direct, "classifications").await > 0
        })
        .await;
        self.proxy.cut();
    }

    async fn wait_for_labels(&self, posts: u64) {
        until("the stored posts are labelled", async || {
            count(&self.direct, "classifications").await == posts
        })
        .await;
    }
}

/// Options with which the leases outlast an outage.
fn long_lease() -> Options {
    Options {
        lease: Duration::from_hours(1),
        ..options()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_survives_an_outage_of_any_length_and_still_stops_on_a_signal() {
    let Some(outage) = Outage::with_posts(20).await else {
        return;
    };
    let stop = CancellationToken::new();
    let watching = Options {
        watch: true,
        ..long_lease()
    };
    let labelling = label(&outage.store, &outage.clock, &stop, &watching);
    let calendar = SystemClock::shared();
    let outages = async {
        outage.wait_for_labels(20).await;
        let run = begin(&outage.direct, "collector").await;
        for number in 1..=2_u64 {
            outage.proxy.cut();
            // Three times as long as a normal run keeps retrying.
            calendar.sleep(Duration::from_millis(1_800)).await;
            let post = (format!("new{number}"), format!("news {number}"));
            add_posts(&outage.direct, run, std::iter::once(post)).await;
            outage.proxy.restore();
            outage.wait_for_labels(20 + number).await;
        }
        // Wait for this, because a claim that cannot be released would be an error.
        until("the last claim is released", async || {
            count(&outage.direct, "leases").await == 0
        })
        .await;
        outage.proxy.cut();
        calendar.sleep(Duration::from_millis(900)).await;
        stop.cancel();
    };
    let both = async { tokio::join!(labelling, outages) };
    let ((ended, done), ()) = tokio::time::timeout(Duration::from_mins(1), both)
        .await
        .expect("the watcher stops on the signal");
    ended.unwrap();
    assert_eq!(done.posts, 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_gives_up_after_its_last_retry_in_an_outage() {
    let Some(outage) = Outage::with_posts(3_000).await else {
        return;
    };
    let (stop, options) = (CancellationToken::new(), long_lease());
    let labelling = label(&outage.store, &outage.clock, &stop, &options);
    let ((ended, _), ()) = tokio::join!(labelling, outage.begin_after_some_labels());
    assert!(matches!(&ended, Err(StageError::Store(error)) if error.is_transient()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stopped_in_an_outage_leaves_its_claims_to_expire_and_succeeds() {
    let Some(outage) = Outage::with_posts(3_000).await else {
        return;
    };
    let (stop, options) = (CancellationToken::new(), long_lease());
    let labelling = label(&outage.store, &outage.clock, &stop, &options);
    let stopping = async {
        outage.begin_after_some_labels().await;
        stop.cancel();
    };
    let ((ended, _), ()) = tokio::join!(labelling, stopping);
    ended.unwrap();
    assert!(count(&outage.direct, "leases").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sends_heartbeats_and_recovers_after_being_declared_crashed() {
    for database in databases() {
        let store = with_posts(&database, 1_000).await;
        // The first run's last heartbeat is old. The second has a recent one, according to the database's clock.
        database
            .run(
                "INSERT INTO runs (stage, status, worker, started_at, heartbeat_at) VALUES \
                 ('import', 'running', 'elsewhere:1:1:1', '2020-01-01T00:00:00+00:00', '2020-01-01T00:00:00+00:00')",
            )
            .await;
        let elsewhere = store
            .runs()
            .begin_run(
                Stage::Import,
                "elsewhere:1:1:2",
                chrono::DateTime::UNIX_EPOCH.into(),
            )
            .await
            .unwrap();
        let clock = SystemClock::shared();
        let stop = CancellationToken::new();
        let mut context = Context::new(store.clone(), clock, stop, "w".into());
        context.heartbeat = Duration::from_millis(30);
        let status = async |id: i64| {
            let runs = store.runs().recent_runs(None, 9).await.unwrap();
            let run = runs.into_iter().find(|run| run.id == RunId(id)).unwrap();
            (run.status, run.finished_at)
        };
        let (set, options) = (label_set(), options());
        let labelling =
            context.classify(vec![scripted(|_| slow()).into()], &set, &options, &|_| {});
        let watching = async {
            until("the run is recorded", async || {
                count(&store, "runs WHERE stage = 'classify' AND worker = 'w'").await == 1
            })
            .await;
            // The old run was marked as crashed; the one that just started, on another machine, was not.
            assert_eq!(status(2).await.0, RunStatus::Crashed);
            assert!(status(2).await.1.is_some());
            assert_eq!(status(elsewhere.0).await, (RunStatus::Running, None));
            // Mark this run as crashed although it is alive.
            store.runs().mark_crashed(RunId(4), "why").await.unwrap();
            until("the run sends a heartbeat", async || {
                status(4).await == (RunStatus::Running, None)
            })
            .await;
        };
        let (ended, ()) = tokio::join!(labelling, watching);
        assert_eq!(ended.unwrap().1, RunStatus::Done);
        assert_eq!(status(4).await.0, RunStatus::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_75_when_other_workers_hold_the_remaining_posts() {
    let database = sqlite();
    let store = with_posts(&database, 10).await;
    let program = Program::on(database);
    program.ok("classify");
    let run = begin(&store, "collector").await;
    add_posts(&store, run, titles(30)).await;
    let target = store.labels().current_target().await.unwrap().unwrap();
    store.backlog().enqueue_missing(target).await.unwrap();
    let claimant = Claimant {
        worker: "elsewhere:1:1:1",
        run,
        max_attempts: MAX_ATTEMPTS,
        lease: Duration::from_hours(1),
    };
    let now = SystemClock::shared().now().into();
    let backlog = store.backlog();
    let claim = backlog.claim(target, &claimant, CrashFilter::WithoutCrash, 5, now);
    assert_eq!(claim.await.unwrap().posts.len(), 5);
    // It labels as many posts as requested, then all except the claimed ones, then none.
    for (command, code, posts) in [
        ("classify --limit 3 --run-json run.json", 0, 3),
        ("classify --run-json run.json", 75, 12),
        ("classify --run-json run.json", 75, 0),
    ] {
        let ran = program.run(command);
        assert_eq!(ran.code, code, "{command}: {}", ran.stderr);
        assert_eq!(program.read_json("run.json")["counts"]["posts"], posts);
    }
}
