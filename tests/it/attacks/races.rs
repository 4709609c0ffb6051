//! Races between two stages: one is paused before each statement of its transactions while the other is running.
//!
//! A stage is represented by its calls to the store. On PostgreSQL, a proxy pauses one stage before its first
//! statement, then before its second, and so on, until it finishes without a pause; during each pause, the other stage
//! finishes or waits for a lock. SQLite has one writer at a time, whose transaction no other writer interrupts: there,
//! the pause comes before each method call. `docs/architecture.md` explains why each pair is safe.

mod migrations;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sqlx::Connection;
use topicmill_core::clock::SystemClock;
use topicmill_core::{Fullname, Listing, Post, PurgeReason, SourceKind, TextHash, Timestamp};
use topicmill_store::{
    Access, Checked, Claimant, Classified, CrashFilter, HypothesisId, ImportState, Page, RunId,
    Store, StoreError, Target, Written,
};

use crate::crashes::{MAX_ATTEMPTS, begin, count, label_set};
use crate::support::builders;
use crate::support::postgres::{TestDatabase, postgres, sqlite};
use crate::support::proxy::{Gate, Proxy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Collect,
    Import,
    Classify,
    Purge,
    Retention,
}

const STAGES: [Stage; 5] = [
    Stage::Collect,
    Stage::Import,
    Stage::Classify,
    Stage::Purge,
    Stage::Retention,
];

/// The posts at the start of each round. The fourth is a crosspost of the first.
const POSTS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// Their titles; the second and the third have the same text.
const TITLES: [&str; 4] = ["first", "twice", "twice", "a crosspost"];

fn at(year: i64) -> Timestamp {
    Timestamp::from_epoch_secs((year - 1970) * 31_557_600).unwrap()
}

fn post(id: &str, title: &str, source: SourceKind) -> Post {
    Post {
        crosspost_parent: (id == "p3").then(|| "p0".parse().unwrap()),
        author: Some("somebody".into()),
        score: Some(1),
        created_at: at(2020),
        source,
        ..builders::post(id, title, &format!("the body of {title}"))
    }
}

fn page(run: RunId, source: SourceKind, posts: &[Post], now: Timestamp) -> Page<'static> {
    let live = source.is_live();
    let mut page = Page {
        source,
        subreddit: "food",
        listing: live.then_some(Listing::New),
        newest: live.then(|| at(2020)),
        ..builders::page(run, "food", posts, now)
    };
    for (post, rank) in page.posts.iter_mut().zip(0..) {
        post.rank = live.then_some(rank);
    }
    page
}

/// Returns a score derived from the hash of a text, which shows which text was scored.
fn score_of(hash: TextHash) -> f32 {
    f32::from(hash.as_bytes()[0])
}

/// A database on which two stages race.
struct Scene {
    database: TestDatabase,
    /// The store of the stage that is paused.
    held: Store,
    other: Store,
    gate: Arc<Gate>,
    /// On PostgreSQL: the proxy, and a connection that shows which sessions are waiting for locks.
    proxy: Option<(Proxy, tokio::sync::Mutex<sqlx::PgConnection>)>,
    target: Target,
    hypotheses: Vec<HypothesisId>,
}

impl Scene {
    async fn on_postgres() -> Option<Self> {
        let database = postgres()?;
        let other = database.open().await;
        let proxy = Proxy::in_front_of(&database.url).await;
        let url = proxy.url(&database.url);
        let held = Store::open(&url, Access::Existing).await.unwrap();
        let gate = Arc::clone(&proxy.gate);
        let onlooker = sqlx::PgConnection::connect(&database.url).await.unwrap();
        let proxy = Some((proxy, onlooker.into()));
        let scene = Self::with(database, held, other, gate, proxy).await;
        scene.database.run(WATCH_OVER_LABELS).await;
        Some(scene)
    }

    async fn on_sqlite() -> Self {
        let database = sqlite();
        let other = database.open().await;
        let held = database.open().await;
        Self::with(database, held, other, Arc::default(), None).await
    }

    async fn with(
        database: TestDatabase,
        held: Store,
        other: Store,
        gate: Arc<Gate>,
        proxy: Option<(Proxy, tokio::sync::Mutex<sqlx::PgConnection>)>,
    ) -> Self {
        let target = builders::target(&other, &label_set()).await;
        let texts = ["It is food.", "It is music.", "It is travel."].map(String::from);
        let hypotheses = other.labels().ensure_hypotheses(&texts).await.unwrap();
        Self {
            database,
            held,
            other,
            gate,
            proxy,
            target,
            hypotheses,
        }
    }

    /// On SQLite, passes the gate before a method call. On PostgreSQL, the proxy pauses statements instead.
    async fn step(&self, store: &Store, call: &str) {
        if self.proxy.is_none() && std::ptr::eq(store, &raw const self.held) {
            self.gate.pass(call).await;
        }
    }

    /// Inserts four old posts; the first and the third are labelled.
    async fn begin_round(&self) {
        let run = begin(&self.other, "w").await;
        for labelled in [true, false] {
            let posts: Vec<Post> = (0..POSTS.len())
                .filter(|i| i.is_multiple_of(2) == labelled)
                .map(|i| post(POSTS[i], TITLES[i], SourceKind::Import))
                .collect();
            let page = page(run, SourceKind::Import, &posts, at(2020));
            self.other.posts().save_pages(&[page], None).await.unwrap();
            if labelled {
                self.run(&self.other, Stage::Classify).await.unwrap();
            }
        }
    }

    async fn end_round(&self) {
        self.database
            .run(
                "DELETE FROM pair_logits; DELETE FROM things; DELETE FROM tombstones; \
                 DELETE FROM leases; DELETE FROM imports",
            )
            .await;
    }

    async fn run(&self, store: &Store, stage: Stage) -> Result<(), StoreError> {
        self.step(store, "begin_run").await;
        let (runs, purging) = (store.runs(), store.purging());
        let run = runs.begin_run(topicmill_core::Stage::Collect, "w", at(2026));
        let run = run.await?;
        match stage {
            Stage::Collect => {
                let mut posts = POSTS.map(|id| post(id, "edited on Reddit", SourceKind::Reddit));
                for i in 1..POSTS.len() {
                    posts[i] = post(POSTS[i], TITLES[i], SourceKind::Reddit);
                }
                let new = post("c1", "new on Reddit", SourceKind::Reddit);
                let posts = [&posts[..], &[new]].concat();
                let page = page(run, SourceKind::Reddit, &posts, at(2026));
                self.step(store, "save_pages").await;
                store.posts().save_pages(&[page], None).await.map(drop)
            }
            Stage::Import => {
                let mut posts = POSTS.map(|id| post(id, "edited in a file", SourceKind::Import));
                for i in [0, 2] {
                    posts[i] = post(POSTS[i], TITLES[i], SourceKind::Import);
                }
                let new = post("i1", "new in a file", SourceKind::Import);
                let posts = [&posts[..], &[new]].concat();
                let pages = [page(run, SourceKind::Import, &posts, at(2026))];
                let progress = ImportState {
                    file: "file".into(),
                    selection: "all".into(),
                    name: "file".into(),
                    byte_offset: 100,
                    rows: 5,
                    left_out: 0,
                    posts: 5,
                    rejected: 0,
                    run,
                    updated_at: at(2026),
                    finished_at: None,
                };
                self.step(store, "save_pages").await;
                let saved = store.posts().save_pages(&pages, Some(&progress));
                saved.await.map(drop)
            }
            Stage::Classify => self.classify(store, run).await,
            Stage::Purge => {
                let name = |id: &str| id.parse::<Fullname>().unwrap();
                let checked = Checked {
                    visible: vec![name("p1")],
                    author_deleted: vec![name("p1")],
                    gone: vec![
                        (name("p2"), PurgeReason::Deleted),
                        (name("p0"), PurgeReason::Requested),
                    ],
                    ..Checked::default()
                };
                self.step(store, "purge").await;
                purging.purge(run, &checked, at(2026)).await.map(drop)
            }
            Stage::Retention => {
                self.step(store, "purge_texts").await;
                let old = builders::old_texts(at(2021), at(90_000));
                purging.purge_texts(&old, 1_000, at(2026)).await.map(drop)
            }
        }
    }

    /// Labels until nothing can be claimed, retrying as a worker does.
    async fn classify(&self, store: &Store, run: RunId) -> Result<(), StoreError> {
        let (target, backlog) = (self.target, store.backlog());
        let claimant = Claimant {
            worker: "w",
            run,
            max_attempts: MAX_ATTEMPTS,
            lease: Duration::from_hours(1),
        };
        self.step(store, "enqueue_missing").await;
        again(async || backlog.enqueue_missing(target).await).await?;
        loop {
            self.step(store, "claim").await;
            let clean = CrashFilter::WithoutCrash;
            let claim = async || backlog.claim(target, &claimant, clean, 3, at(2026)).await;
            let claim = again(claim).await?;
            if claim.posts.is_empty() {
                return Ok(());
            }
            let scored = |post: &topicmill_store::ClaimedPost| {
                let entailment = score_of(TextHash::new(&post.text));
                let hypotheses = self.hypotheses.iter();
                let scores = [f64::from(entailment) / 256.0, 0.0, 0.0];
                Classified {
                    logits: hypotheses
                        .map(|id| builders::logits(*id, entailment))
                        .collect(),
                    ..builders::classified(&post.fullname, post.text_hash, &scores)
                }
            };
            let done: Vec<Classified> = claim.posts.iter().map(scored).collect();
            self.step(store, "complete").await;
            let write = builders::write(target, run, at(2026), claim.lease);
            let written = again(async || backlog.save_labels(&write, &done).await).await?;
            // No other worker reclaims the lease.
            assert_ne!(written, Written::LeaseLost);
            self.step(store, "release").await;
            again(async || backlog.release(claim.lease).await).await?;
        }
    }

    /// Pauses `first` after `steps` steps while `second` runs. Returns the statement at which `first` paused, and
    /// whether `second` waited for it; `None` if `first` finished without a pause.
    async fn meet(&self, first: Stage, second: Stage, steps: usize) -> Option<(String, bool)> {
        self.begin_round().await;
        self.gate.pause_after(steps);
        let what = format!("{first:?} paused after {steps} steps, and {second:?}");
        let held = async {
            let ended = self.run(&self.held, first).await;
            // If this stage finished without a pause, `running` must stop waiting for one.
            self.gate.resume();
            ended.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        };
        let running = async {
            let paused = self.gate.wait_for_pause().await?;
            let waited = self.run_during_pause(second, &what).await;
            Some((paused, waited))
        };
        let both = async { tokio::join!(held, running) };
        let ((), met) = within_a_minute(both, &what).await;
        let ran = if met.is_some() {
            &[first, second][..]
        } else {
            &[first]
        };
        self.check(ran, &format!("{what}, at {met:?}")).await;
        self.end_round().await;
        met
    }

    /// Runs a stage while the other is paused, and resumes the other once this one has ended or waits for a lock; returns
    /// true if it waited.
    async fn run_during_pause(&self, stage: Stage, what: &str) -> bool {
        let mut running = Box::pin(self.run(&self.other, stage));
        let blocked = async {
            match &self.proxy {
                Some((_, onlooker)) => blocked(&mut *onlooker.lock().await).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = &mut running => Some(ended),
            () = blocked => None,
        };
        self.gate.resume();
        let waited = ended.is_none();
        let ended = match ended {
            Some(ended) => ended,
            None => running.await,
        };
        ended.unwrap_or_else(|error| panic!("{what}, the other stage: {error:?}"));
        waited
    }

    /// Checks the invariants that hold for either order.
    async fn check(&self, stages: &[Stage], what: &str) {
        let ran = |stage| stages.contains(&stage);
        self.check_rows(what).await;
        let rows = self.rows("SELECT fullname, title FROM posts").await;
        let titles: Vec<[Value; 2]> = rows
            .into_iter()
            .map(|row| row.try_into().unwrap())
            .collect();
        let title = |id: &str| {
            let name = format!("t3_{id}");
            let mut titles = titles.iter();
            titles.find_map(|[fullname, title]| (*fullname == name).then_some(title))
        };
        if ran(Stage::Purge) {
            // The crosspost of the purged post is gone too.
            for id in ["p0", "p2", "p3"] {
                assert_eq!(title(id), None, "{what}: {id} came back");
            }
            let left = "tombstones WHERE fullname IN ('t3_p0', 't3_p2')";
            assert_eq!(count(&self.other, left).await, 2, "{what}");
        } else {
            for id in POSTS {
                assert!(title(id).is_some(), "{what}: {id} is lost");
            }
        }
        assert!(title("p1").is_some(), "{what}: p1 is lost");
        if ran(Stage::Retention) {
            let old = "posts WHERE fullname LIKE 't3_p%' AND (title <> '' OR selftext <> '')";
            self.assert_no_rows(what, &[old]).await;
        } else if ran(Stage::Collect) && !ran(Stage::Purge) {
            assert_eq!(*title("p0").unwrap(), "edited on Reddit", "{what}");
        }
        assert!(!ran(Stage::Collect) || title("c1").is_some(), "{what}");
        assert!(!ran(Stage::Import) || title("i1").is_some(), "{what}");

        // After one more labelling, every text has its label, and the backlog is empty.
        self.run(&self.other, Stage::Classify).await.unwrap();
        self.check_rows(what).await;
        self.assert_no_rows(
            what,
            &[
            "things p WHERE p.text_purged_at IS NULL AND NOT EXISTS (SELECT 1 FROM classifications c \
               WHERE c.fullname = p.fullname AND c.text_hash = p.text_hash)",
            "backlog",
            "leases",
        ]).await;
    }

    /// Asserts that none of these tables has rows, or rows that match the condition after its name.
    async fn assert_no_rows(&self, what: &str, tables: &[&str]) {
        let counts: Vec<String> = tables
            .iter()
            .map(|table| format!("(SELECT COUNT(*) FROM {table})"))
            .collect();
        let counts = self.rows(&format!("SELECT {}", counts.join(", "))).await;
        for (table, n) in tables.iter().zip(&counts[0]) {
            assert_eq!(n, 0, "{what}: {table}");
        }
    }

    /// Asserts that labels and logits were computed from the texts with their hashes, and that none lacks its post.
    async fn check_rows(&self, what: &str) {
        // The score of a label is its logit divided by 256.
        let scored = "SELECT text_hash, entailment FROM pair_logits \
                      UNION ALL SELECT text_hash, score * 256 FROM classifications";
        for row in self.rows(scored).await {
            let [hash, logit] = <[Value; 2]>::try_from(row).unwrap();
            let byte = u8::from_str_radix(&hash.as_str().unwrap()[..2], 16).unwrap();
            assert_eq!(logit.as_f64(), Some(byte.into()), "{what}: {hash}");
        }
        self.assert_no_rows(what, &[
            "pair_logits l WHERE NOT EXISTS (SELECT 1 FROM things p WHERE p.text_hash = l.text_hash)",
            "classifications c WHERE c.fullname NOT IN (SELECT fullname FROM posts)",
            "classifications c JOIN things p ON p.fullname = c.fullname \
              WHERE c.day IS NOT NULL AND (p.text_hash <> c.text_hash OR p.topic IS DISTINCT FROM c.topic)",
            "packed_scores c WHERE c.fullname NOT IN (SELECT fullname FROM posts)",
            "sightings s WHERE s.fullname NOT IN (SELECT fullname FROM posts)",
            "backlog b WHERE b.fullname NOT IN (SELECT fullname FROM posts)",
            "tombstones t WHERE t.fullname IN (SELECT fullname FROM posts)",
            "posts WHERE text_purged_at IS NOT NULL AND (title <> '' OR selftext <> '' OR author IS NOT NULL)",
        ]).await;
        if self.proxy.is_some() {
            self.assert_no_rows(what, &["violations"]).await;
        }
    }

    async fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        self.other.query(sql).await.unwrap().rows
    }
}

/// Adds triggers that record a violation if a label is committed and its post does not have the labelled text, or if
/// logits are committed and no post has their text.
const WATCH_OVER_LABELS: &str = "
CREATE TABLE violations (what TEXT, fullname TEXT);
CREATE FUNCTION watch_over_labels() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (SELECT 1 FROM classifications WHERE fullname = NEW.fullname AND text_hash = NEW.text_hash)
     AND NOT EXISTS (SELECT 1 FROM things WHERE fullname = NEW.fullname AND text_hash = NEW.text_hash
                        AND text_purged_at IS NULL) THEN
    INSERT INTO violations VALUES ('a label without its text', NEW.fullname);
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch_over_labels AFTER INSERT OR UPDATE OF fullname, text_hash, model_id, label_set_id,
  label, score, margin, abstained, other, mode, run_id, classified_at ON classifications
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch_over_labels();
CREATE FUNCTION watch_over_logits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM things WHERE text_hash = NEW.text_hash) THEN
    INSERT INTO violations VALUES ('logits without a post', encode(NEW.text_hash, 'hex'));
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch_over_logits AFTER INSERT ON pair_logits
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch_over_logits()";

/// Returns once two successive polls have found a session that is waiting for a lock.
async fn blocked(onlooker: &mut sqlx::PgConnection) {
    let clock = SystemClock::shared();
    let mut seen = 0;
    while seen < 2 {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity \
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waiting: i64 = sqlx::query_scalar(sql)
            .fetch_one(&mut *onlooker)
            .await
            .unwrap();
        seen = if waiting > 0 { seen + 1 } else { 0 };
        clock.sleep(Duration::from_millis(3)).await;
    }
}

/// Returns the result of work that takes seconds unless it is in a deadlock.
async fn within_a_minute<T>(work: impl Future<Output = T>, what: &str) -> T {
    tokio::time::timeout(Duration::from_mins(1), work)
        .await
        .unwrap_or_else(|_| panic!("{what}: deadlock"))
}

/// Retries a transient error, as a worker does.
async fn again<T>(mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..5 {
        match call().await {
            Err(error) if error.is_transient() => {}
            ended => return ended,
        }
    }
    call().await
}

/// Races a stage, paused before each of its steps in turn, against others.
async fn pause_at_each_step(first: Stage, others: &[Stage]) {
    let scenes = [Some(Scene::on_sqlite().await), Scene::on_postgres().await];
    for scene in scenes.into_iter().flatten() {
        for &second in others {
            let (mut steps, mut waits) = (0, 0);
            while let Some((_, waited)) = scene.meet(first, second, steps).await {
                steps += 1;
                waits += usize::from(waited);
            }
            // At least `begin_run` and one call.
            assert!(steps >= 2, "{first:?} and {second:?}: {steps} steps");
            let backend = scene.database.url.split(':').next().unwrap();
            #[expect(clippy::print_stdout, reason = "figures, for `--nocapture`")]
            {
                println!(
                    "{backend}: {first:?} paused at {steps} places; {second:?} waited at {waits}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn classify_paused_at_any_statement_tolerates_a_purge() {
    pause_at_each_step(Stage::Classify, &[Stage::Purge]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: all interleavings"]
async fn each_stage_paused_at_any_statement_tolerates_every_other() {
    for first in STAGES {
        pause_at_each_step(first, &STAGES).await;
    }
}
