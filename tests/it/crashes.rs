//! Tests that every pair is scored once and every label is written once despite failures: processes that are killed or
//! paused, connections that are cut, a server that restarts.
//!
//! The test binary starts itself again as worker processes; see [`worker`].

#![expect(clippy::print_stdout, reason = "figures, for `--nocapture`")]

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use topicmill::classify::{self, MakeCurrent, Options};
use topicmill::run::Run;
use topicmill_core::clock::{SharedClock, SystemClock};
use topicmill_core::record::{ClassifyCounts, RunSettings};
use topicmill_core::{LabelSet, Post, Stage};
use topicmill_score::Labeler;
use topicmill_store::{Access, RunId, Store};

use crate::support::builders;
use crate::support::engine::{ScriptedEngine, scripted};
use crate::support::postgres::{OwnServer, TestDatabase, databases, sqlite};
use crate::support::wait::until;

pub const LEASE: Duration = Duration::from_secs(3);
pub const MAX_ATTEMPTS: u32 = 3;
const LABELS: u64 = 3;
/// The environment variable with a worker's task as JSON.
const TASK: &str = "TEST_WORKER_TASK";

/// Returns the number of posts in the largest test.
fn many_posts() -> usize {
    let asked = std::env::var("TEST_PROOF_POSTS").ok();
    asked.map_or(20_000, |posts| posts.parse().unwrap())
}

pub fn label_set() -> LabelSet {
    builders::label_set(&["food", "music", "travel"])
}

pub async fn add_posts(store: &Store, run: RunId, titles: impl Iterator<Item = (String, String)>) {
    let clock = SystemClock::shared();
    let posts: Vec<Post> = titles
        .map(|(fullname, title)| builders::post(&fullname, &title, ""))
        .collect();
    for posts in posts.chunks(2_000) {
        let page = builders::page(run, "food", posts, clock.now().into());
        store.posts().save_pages(&[page], None).await.unwrap();
    }
}

/// Returns fullnames and titles; no two texts are equal.
pub fn titles(n: usize) -> impl Iterator<Item = (String, String)> {
    (0..n).map(|i| (format!("p{i:06}"), format!("post {i}")))
}

pub async fn begin(store: &Store, worker: &str) -> RunId {
    let now = SystemClock::shared().now().into();
    let run = store.runs().begin_run(Stage::Classify, worker, now).await;
    run.unwrap()
}

/// Creates a database with these posts.
pub async fn with_posts(database: &TestDatabase, n: usize) -> Store {
    let store = database.open().await;
    let run = begin(&store, "collector").await;
    add_posts(&store, run, titles(n)).await;
    store
}

pub fn options(lease: Duration) -> Options {
    Options {
        lease,
        max_attempts: MAX_ATTEMPTS,
        limit: None,
        retry_failed: false,
        watch: false,
        pipeline_file: None,
        make_current: MakeCurrent::Always,
        settings: RunSettings::default(),
    }
}

/// Labels everything that can be claimed, in this process.
async fn label(store: &Store, engine: ScriptedEngine, lease: Duration) -> ClassifyCounts {
    let run = begin(store, &topicmill_store::worker_name()).await;
    label_with(store, run, scripted(|_| engine), lease).await
}

async fn label_with(
    store: &Store,
    run: RunId,
    labeler: Labeler,
    lease: Duration,
) -> ClassifyCounts {
    let clock: SharedClock = SystemClock::shared();
    let run = Run {
        store,
        clock: &clock,
        stop: &CancellationToken::new(),
        worker: &topicmill_store::worker_name(),
        id: run,
    };
    let (mut done, labelers) = (ClassifyCounts::default(), vec![labeler.into()]);
    let options = options(lease);
    let set = label_set();
    let labelling = classify::label(&run, labelers, &set, &options, &|_| {}, &mut done);
    labelling.await.unwrap();
    done
}

/// Runs as a worker process: labels until no claim is left and writes its counts to a file. Without a task it
/// returns immediately, since `make test-all` runs every ignored test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a worker process, started by other tests"]
async fn worker() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let task: Value = serde_json::from_str(&task).unwrap();
    let text = |key: &str| task[key].as_str().map(str::to_owned);
    let store = Store::open(&text("url").unwrap(), Access::Create)
        .await
        .unwrap();
    let Some(report) = text("report") else {
        return;
    };
    let clock: SharedClock = SystemClock::shared();
    let name = topicmill_store::worker_name();
    let run = begin(&store, &name).await;
    let engine = |ids: &dyn Fn(&str) -> Vec<i64>| ScriptedEngine {
        batch: Duration::from_millis(task["batch_ms"].as_u64().unwrap()),
        deadly: text("deadly").map(|deadly| ids(&deadly)),
        started: text("started").map(PathBuf::from),
    };
    let mut labeler = Some(scripted(engine));
    let (mut posts, mut refused, mut pairs, mut parked) = (0, 0, 0, 0);
    loop {
        let labeler = labeler.take().unwrap_or_else(|| scripted(engine));
        let done = label_with(&store, run, labeler, LEASE).await;
        posts += done.posts;
        refused += done.refused;
        pairs += done.pairs;
        parked = parked.max(done.parked);
        if done.held_elsewhere == 0 {
            break;
        }
        clock.sleep(Duration::from_millis(200)).await;
    }
    let output = json!({"posts": posts, "refused": refused, "pairs": pairs, "parked": parked});
    std::fs::write(report, output.to_string()).unwrap();
}

/// A worker process, killed when dropped.
struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    fn start(mut task: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        task["started"] = json!(folder.path().join("started"));
        task["report"] = json!(folder.path().join("report"));
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashes::worker", "--ignored", "--nocapture"])
            .env(TASK, task.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn label(url: &str, batch_ms: u64) -> Self {
        Self::start(json!({"url": url, "batch_ms": batch_ms}))
    }

    fn signal(&self, signal: &str) {
        crate::support::program::signal(&self.child, signal);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits until its engine is running.
    async fn is_running(&mut self) {
        let started = self.folder.path().join("started");
        until("a worker is running", async || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            started.exists()
        })
        .await;
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its exit; returns its counts if it wrote them.
    async fn wait_for_exit(mut self) -> Option<Value> {
        let mut status = None;
        until("a worker ends", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        let report = std::fs::read_to_string(self.folder.path().join("report")).ok();
        let killed = status.and_then(|status| status.signal()).is_some();
        assert!(report.is_some() || killed, "it failed: {}", self.log());
        report.map(|report| serde_json::from_str(&report).unwrap())
    }

    async fn done(self) -> Value {
        let counts = self.wait_for_exit().await;
        counts.expect("the worker wrote its counts")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the number of rows of a table, which a condition may follow.
pub async fn count(store: &Store, table: &str) -> u64 {
    let found = store.query(&format!("SELECT COUNT(*) FROM {table}")).await;
    found.unwrap().rows[0][0].as_u64().unwrap()
}

/// Rounds a number to its stored precision: one database prints more digits than the other.
#[expect(clippy::cast_possible_truncation, reason = "it was an f32")]
fn narrow(value: &mut Value) {
    if let Some(wide) = value.as_f64() {
        *value = json!(wide as f32);
    }
}

/// Returns everything that labelling wrote.
async fn labels_of(store: &Store) -> Vec<Vec<Vec<Value>>> {
    let mut all = Vec::new();
    for sql in [
        "SELECT fullname, text_hash, label, score, margin, CASE WHEN abstained THEN 1 ELSE 0 END FROM classifications \
            ORDER BY fullname",
        "SELECT fullname, position, score FROM label_scores ORDER BY fullname, position",
        "SELECT l.text_hash, h.text, l.entailment, l.contradiction, l.neutral FROM pair_logits l \
           JOIN hypotheses h ON h.id = l.hypothesis_id ORDER BY l.text_hash, h.text",
    ] {
        all.push(store.query(sql).await.unwrap().rows);
    }
    let logits = all.last_mut().expect("three tables");
    logits.iter_mut().flatten().for_each(narrow);
    all
}

/// Returns the result of one undisturbed process.
async fn undisturbed(n: usize) -> Vec<Vec<Vec<Value>>> {
    let database = sqlite();
    let store = with_posts(&database, n).await;
    let done = label(&store, ScriptedEngine::default(), LEASE).await;
    assert_eq!(done.posts, n as u64);
    labels_of(&store).await
}

/// Checks that no classification is incomplete, and that no labelled post is in the backlog.
async fn assert_classifications_complete(store: &Store) {
    let halves = format!(
        "classifications c WHERE (SELECT COUNT(*) FROM label_scores s WHERE s.model_id = c.model_id \
            AND s.label_set_id = c.label_set_id AND s.fullname = c.fullname) <> {LABELS} \
          OR (SELECT COUNT(*) FROM pair_logits l WHERE l.model_id = c.model_id \
            AND l.text_hash = c.text_hash) <> {LABELS} \
          OR EXISTS (SELECT 1 FROM backlog b WHERE b.model_id = c.model_id \
            AND b.label_set_id = c.label_set_id AND b.fullname = c.fullname)"
    );
    assert_eq!(count(store, &halves).await, 0, "incomplete classifications");
}

/// Checks that every post has one classification, the same as from an undisturbed process, and that the backlog is
/// empty.
async fn assert_labelled_once(store: &Store, n: usize) {
    let last = label(store, ScriptedEngine::default(), LEASE).await;
    assert_eq!((last.posts, last.parked), (0, 0), "nothing was left to do");
    assert_classifications_complete(store).await;
    assert_eq!(count(store, "backlog").await, 0);
    assert_eq!(count(store, "leases").await, 0);
    // Not `assert_eq`, which would print all rows.
    assert!(labels_of(store).await == undisturbed(n).await);
}

/// Waits until the leases of a process are reclaimed.
async fn until_reclaimed(store: &Store, process: &Process) {
    let name = format!("leases WHERE worker LIKE '%:{}'", process.child.id());
    until("the leases are reclaimed", async || {
        count(store, &name).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_failing_workers_label_every_post_once() {
    let Some(server) = OwnServer::start() else {
        return;
    };
    let n = many_posts();
    let database = server.database("accidents");
    let store = with_posts(&database, n).await;
    let clock = SystemClock::shared();
    let mut workers: Vec<Process> = (0..3).map(|_| Process::label(&database.url, 30)).collect();
    for worker in &mut workers {
        worker.is_running().await;
    }
    let [killed, stopped, cut] = <[Process; 3]>::try_from(workers).ok().unwrap();
    until("some posts are labelled", async || {
        count(&store, "classifications").await > n as u64 / 10
    })
    .await;
    killed.kill();
    stopped.signal("-STOP");
    let before = count(&store, "classifications").await;
    assert!(before < n as u64, "the failures come too late");

    // All connections of the remaining worker are cut at the same time, and then the server restarts.
    let victims = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE application_name = 'topicmill' AND pid <> pg_backend_pid()";
    let cut_connections = store.query(victims).await.unwrap().rows.len();
    assert!(cut_connections > 0);
    clock.sleep(Duration::from_secs(1)).await;
    server.restart("fast");
    let store = database.open().await;
    until_reclaimed(&store, &stopped).await;
    stopped.signal("-CONT");
    let (stopped, cut) = (stopped.done().await, cut.done().await);
    println!("{before} posts labelled before the failures; {cut_connections} connections cut");
    println!("the suspended worker: {stopped}; the disconnected worker: {cut}");
    assert!(stopped["refused"].as_u64() > Some(0), "{stopped}");
    assert_labelled_once(&store, n).await;
}

/// Kills a worker repeatedly during its writes.
async fn kill_at_random_moments(database: &TestDatabase, moments: usize, n: usize, seed: u64) {
    let clock = SystemClock::shared();
    let mut random = fastrand::Rng::with_seed(seed);
    // Milliseconds, and the posts labelled by then.
    let mut kills = Vec::new();
    let store = with_posts(database, n).await;
    for _ in 0..moments {
        let mut process = Process::label(&database.url, 40);
        process.is_running().await;
        let moment = random.u64(..400);
        clock.sleep(Duration::from_millis(moment)).await;
        process.kill();
        assert_integrity(database).await;
        assert_classifications_complete(&store).await;
        kills.push((moment, count(&store, "classifications").await));
    }
    println!("seed {seed}: killed after (milliseconds, posts labelled by then) {kills:?}");
    let left = n as u64 - count(&store, "classifications").await;
    assert!(left > 0, "the last kill comes too late: {kills:?}");
    let rest = label(&store, ScriptedEngine::default(), LEASE).await;
    // No post is parked because its worker was killed.
    assert_eq!((rest.posts, rest.parked), (left, 0));
    assert_labelled_once(&store, n).await;
}

/// Runs SQLite's integrity check.
async fn assert_integrity(database: &TestDatabase) {
    use sqlx::Connection;
    if !database.url.starts_with("sqlite:") {
        return;
    }
    let mut connection = sqlx::SqliteConnection::connect(&database.url)
        .await
        .unwrap();
    for (pragma, sound) in [("integrity_check", Some("ok")), ("foreign_key_check", None)] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT * FROM pragma_{pragma}"));
        let row: Option<(String,)> = sqlx::query_as(sql)
            .fetch_optional(&mut connection)
            .await
            .unwrap();
        assert_eq!(row.map(|row| row.0).as_deref(), sound);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_file_is_intact_after_a_few_kills_during_writes() {
    kill_at_random_moments(&sqlite(), 4, 5_000, 20_261_121).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: crashes anywhere"]
async fn a_sqlite_file_is_intact_after_thirty_kills_during_writes() {
    kill_at_random_moments(&sqlite(), 30, 20_000, 20_261_121).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_is_intact_after_kills_and_a_server_crash() {
    let Some(server) = OwnServer::start() else {
        return;
    };
    kill_at_random_moments(&server.database("kills"), 4, 5_000, 7).await;

    let n = 4_000;
    let database = server.database("crash");
    let store = with_posts(&database, n).await;
    let mut process = Process::label(&database.url, 30);
    process.is_running().await;
    server.restart("immediate");
    let store_after = database.open().await;
    assert_classifications_complete(&store_after).await;
    let output = process.done().await;
    println!("the worker that ran during the server crash: {output}");
    drop(store);
    assert_labelled_once(&store_after, n).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_crashes_its_worker_is_parked_and_its_neighbours_are_labelled() {
    let n = 2_000;
    for database in databases() {
        let store = database.open().await;
        let run = begin(&store, "collector").await;
        let save_suspect = |title: &str| {
            let post = ("p000777x".to_owned(), title.to_owned());
            add_posts(&store, run, std::iter::once(post))
        };
        add_posts(&store, run, titles(n)).await;
        save_suspect("deadly zebra").await;
        let task = json!({"url": database.url, "batch_ms": 1, "deadly": "deadly zebra"});
        let mut crashes = 0;
        let done = loop {
            if let Some(done) = Process::start(task.clone()).wait_for_exit().await {
                break done;
            }
            crashes += 1;
            assert!(crashes < 30, "the text is never parked");
        };
        let url = &database.url;
        println!("{url}: {crashes} processes crashed; the last: {done}");
        // After each crash, the suspected posts are claimed in smaller groups: 1,024, 256, 64, 16 and 4 posts, then 1.
        assert_eq!(crashes, 5 + MAX_ATTEMPTS);
        assert_eq!(done["parked"], 1);
        assert_eq!(count(&store, "classifications").await, n as u64);
        assert_eq!(count(&store, "backlog").await, 1);
        let parked = format!(
            "backlog WHERE fullname = 't3_p000777x' AND crashes = {crashes} AND attempts = 0"
        );
        assert_eq!(count(&store, &parked).await, 1);
        // `status` shows the error.
        let failures = store.backlog().failures(MAX_ATTEMPTS).await.unwrap();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].posts, 1);
        assert!(failures[0].error.contains("crashed"), "{failures:?}");

        // The post is retried once its text changes.
        save_suspect("a tame one").await;
        let done = label(&store, ScriptedEngine::default(), LEASE).await;
        assert_eq!(done.posts, 1);
        assert_eq!(count(&store, "backlog").await, 0);
    }
}
