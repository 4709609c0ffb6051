//! Tests random histories of the backlog: a real database must agree with a small model, whatever the order of
//! claims, writes, crashes, edits and purges. proptest shrinks a failing history to the shortest one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};
use topicmill_core::reddit::post_text;
use topicmill_core::{PurgeReason, Stage, TextHash, hex};
use topicmill_store::{
    Checked, Claim, Claimant, Classified, CrashFilter, HypothesisId, Lease, RunId, Store, Target,
    Written,
};

use crate::support::builders::{self, at};
use crate::support::postgres::databases;

const POSTS: usize = 6;
const LEASE_SECS: i64 = 60;
const MAX_ATTEMPTS: u32 = 2;
/// The number of crashed workers after which a post is parked.
const MAX_CRASHES: u32 = MAX_ATTEMPTS + 5;

/// One step of a history.
#[derive(Debug, Clone)]
enum Event {
    /// Inserts or edits a post.
    Save(usize, u8),
    Purge(usize),
    Enqueue,
    Claim(u32),
    ClaimClean(u32),
    ClaimSuspects(u32),
    /// A step of the worker that has a claim. Claims are numbered from the latest.
    Work(usize, Step),
    RetryFailed,
    Wait(i64),
}

/// The next step of a worker that has claimed posts.
#[derive(Debug, Clone, Copy)]
enum Step {
    Renew,
    /// Writes the claimed posts whose bit is set.
    Complete(u8),
    /// Fails a post, which may not be among the claimed ones.
    Fail(usize),
    Release,
    Reclaim,
}

fn event() -> impl Strategy<Value = Event> {
    let post = 0..POSTS;
    let claim = 0..8_usize;
    prop_oneof![
        5 => (post.clone(), 0..3_u8).prop_map(|(post, text)| Event::Save(post, text)),
        1 => post.clone().prop_map(Event::Purge),
        4 => Just(Event::Enqueue),
        4 => (1..4_u32).prop_map(Event::Claim),
        2 => (1..4_u32).prop_map(Event::ClaimClean),
        2 => (1..4_u32).prop_map(Event::ClaimSuspects),
        10 => (claim, step(post)).prop_map(|(claim, step)| Event::Work(claim, step)),
        1 => Just(Event::RetryFailed),
        2 => (1..2 * LEASE_SECS).prop_map(Event::Wait),
    ]
}

fn step(post: Range<usize>) -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Renew),
        4 => any::<u8>().prop_map(Step::Complete),
        2 => post.prop_map(Step::Fail),
        1 => Just(Step::Release),
        2 => Just(Step::Reclaim),
    ]
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Waiting {
    lease: Option<usize>,
    attempts: u32,
    crashes: u32,
}

/// The expected state of the database. A lease is identified by its claim number.
#[derive(Debug, Default)]
struct Model {
    now: i64,
    /// The text version of each stored post.
    posts: BTreeMap<String, u8>,
    purged: BTreeSet<String>,
    backlog: BTreeMap<String, Waiting>,
    /// Expiry times of the leases.
    leases: BTreeMap<usize, i64>,
    /// The text version of each classification.
    classified: BTreeMap<String, u8>,
}

impl Model {
    fn save(&mut self, post: &str, text: u8) {
        if self.purged.contains(post) {
            return;
        }
        let before = self.posts.insert(post.to_owned(), text);
        if before.is_some_and(|before| before != text)
            && let Some(waiting) = self.backlog.get_mut(post)
        {
            (waiting.attempts, waiting.crashes) = (0, 0);
        }
    }

    fn purge(&mut self, post: &str) {
        self.posts.remove(post);
        self.backlog.remove(post);
        self.classified.remove(post);
        self.purged.insert(post.to_owned());
    }

    fn is_labelled(&self, post: &str) -> bool {
        self.classified.get(post) == self.posts.get(post)
    }

    fn enqueue(&mut self) {
        for post in self.posts.keys() {
            if !self.is_labelled(post) {
                self.backlog.entry(post.clone()).or_default();
            }
        }
    }

    fn claim(&mut self, lease: usize, limit: u32, among: &Range<u32>) -> Vec<String> {
        let expired: Vec<usize> = self
            .leases
            .iter()
            .filter(|(_, ends)| **ends <= self.now)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in expired {
            self.reclaim(lease);
        }
        loop {
            let mut free: Vec<(u32, u32, String)> = self
                .backlog
                .iter()
                .filter(|(_, w)| {
                    w.lease.is_none() && w.attempts < MAX_ATTEMPTS && among.contains(&w.crashes)
                })
                .map(|(post, w)| (w.crashes, w.attempts, post.clone()))
                .collect();
            free.sort();
            let Some((crashes, ..)) = free.first().cloned() else {
                return Vec::new();
            };
            free.retain(|one| one.0 == crashes);
            let window = if crashes >= 5 { 1 } else { limit };
            free.truncate(window as usize);
            let (known, mut new): (Vec<_>, Vec<_>) = free
                .into_iter()
                .map(|(_, _, post)| post)
                .partition(|post| self.is_labelled(post));
            for post in known {
                self.backlog.remove(&post);
            }
            if !new.is_empty() {
                new.sort();
                for post in &new {
                    self.backlog.get_mut(post).unwrap().lease = Some(lease);
                }
                self.leases.insert(lease, self.now + LEASE_SECS);
                return new;
            }
        }
    }

    fn renew(&mut self, lease: usize) -> bool {
        let ends = self.now + LEASE_SECS;
        self.leases.get_mut(&lease).map(|old| *old = ends).is_some()
    }

    /// Returns the number of labels stored, or `None` if the lease was lost.
    fn complete(&mut self, lease: usize, done: &[(String, u8)]) -> Option<u64> {
        self.leases.get(&lease)?;
        let mut stored = 0;
        for (post, text) in done {
            // An edited post remains in the backlog to be scored again.
            let is_same = self.posts.get(post) == Some(text);
            if is_same
                && self
                    .backlog
                    .get(post)
                    .is_some_and(|w| w.lease == Some(lease))
            {
                self.backlog.remove(post);
                self.classified.insert(post.clone(), *text);
                stored += 1;
            }
        }
        Some(stored)
    }

    fn fail(&mut self, lease: usize, post: &str) {
        if let Some(waiting) = self.backlog.get_mut(post)
            && waiting.lease == Some(lease)
        {
            waiting.lease = None;
            waiting.attempts += 1;
        }
    }

    fn release(&mut self, lease: usize) {
        self.leases.remove(&lease);
        for waiting in self.backlog.values_mut().filter(|w| w.lease == Some(lease)) {
            waiting.lease = None;
        }
    }

    fn reclaim(&mut self, lease: usize) {
        for waiting in self.backlog.values_mut().filter(|w| w.lease == Some(lease)) {
            waiting.crashes += 1;
        }
        self.release(lease);
    }

    fn retry_failed(&mut self) {
        for waiting in self.backlog.values_mut() {
            if waiting.attempts >= MAX_ATTEMPTS || waiting.crashes >= MAX_CRASHES {
                (waiting.attempts, waiting.crashes) = (0, 0);
            }
        }
    }
}

/// The rows that the model and the database must agree on.
#[derive(Debug, Default, PartialEq)]
struct State {
    /// Post, claim, attempts and crashes.
    backlog: Vec<Value>,
    /// The claims whose leases exist.
    leases: Vec<usize>,
    /// Post, hash of the labelled text, and number of scores.
    classified: Vec<Value>,
}

/// The database under test, next to the model.
struct Real {
    store: Store,
    run: RunId,
    target: Target,
    hypothesis: HypothesisId,
    claims: Vec<Claim>,
}

fn title(text: u8) -> String {
    format!("text {text}")
}

/// Returns text that is different for each post.
fn body(post: &str) -> String {
    format!("of {post}")
}

fn hash(post: &str, text: u8) -> TextHash {
    TextHash::new(&post_text(&title(text), &body(post)))
}

impl Real {
    async fn new(store: Store) -> Self {
        let run = store.runs().begin_run(Stage::Classify, "w", at(0)).await;
        let target = builders::target(&store, &builders::label_set(&["gaming", "food"])).await;
        let hypotheses = store.labels().ensure_hypotheses(&["h".into()]).await;
        Self {
            store,
            run: run.unwrap(),
            target,
            hypothesis: hypotheses.unwrap()[0],
            claims: Vec::new(),
        }
    }

    async fn save(&self, post: &str, text: u8, now: i64) {
        let posts = [builders::post(post, &title(text), &body(post))];
        let mut page = builders::page(self.run, "", &posts, at(now));
        page.topic = None;
        self.store.posts().save_pages(&[page], None).await.unwrap();
    }

    async fn claim(&mut self, limit: u32, among: &Range<u32>, now: i64) -> Vec<String> {
        let claimant = Claimant {
            worker: "w",
            run: self.run,
            max_attempts: MAX_ATTEMPTS,
            lease: Duration::from_secs(LEASE_SECS.unsigned_abs()),
        };
        let (store, target, now) = (&self.store, self.target, at(now));
        let claim = async |crashes| {
            let claim = (store.backlog()).claim(target, &claimant, crashes, limit, now);
            claim.await.unwrap()
        };
        let claim = match (among.start, among.end) {
            (0, 1) => claim(CrashFilter::WithoutCrash).await,
            (0, _) => builders::claim(store, target, &claimant, limit, now).await,
            _ => claim(CrashFilter::WithCrash).await,
        };
        let names = claim.posts.iter().map(|post| post.fullname.to_string());
        let names = names.collect();
        self.claims.push(claim);
        names
    }

    async fn complete(&self, lease: Lease, done: &[(String, u8)], now: i64) -> Option<u64> {
        let logits = builders::logits(self.hypothesis, 1.0);
        let done: Vec<Classified> = done
            .iter()
            .map(|(post, text)| Classified {
                logits: vec![logits],
                ..builders::classified(post, hash(post, *text), &[0.75, 0.25])
            })
            .collect();
        let write = builders::write(self.target, self.run, at(now), lease);
        let written = self.store.backlog().save_labels(&write, &done).await;
        match written.unwrap() {
            Written::Stored(stored) => Some(stored.posts),
            Written::LeaseLost => None,
        }
    }

    /// Reads the database in the model's terms: leases are claim numbers.
    async fn state(&self) -> State {
        // One statement, because each statement has its own connection.
        let rows = self.store.query(
            "SELECT 'classified' AS what, c.fullname AS post, COUNT(s.position) AS n, 0 AS attempts, 0 AS crashes, \
                    c.text_hash \
               FROM classifications c \
               LEFT JOIN label_scores s ON s.model_id = c.model_id \
                AND s.label_set_id = c.label_set_id AND s.fullname = c.fullname \
              GROUP BY c.fullname, c.text_hash \
             UNION ALL SELECT 'backlog', fullname, lease_id, attempts, crashes, NULL FROM backlog \
             UNION ALL SELECT 'lease', '', id, 0, 0, NULL FROM leases \
              ORDER BY post, n",
        );
        let number = |lease: &Value| {
            let id = lease.as_i64()?;
            self.claims.iter().position(|claim| claim.lease.0 == id)
        };
        let mut state = State::default();
        for row in rows.await.unwrap().rows {
            let [what, post, n, attempts, crashes, text_hash] =
                <[Value; 6]>::try_from(row).unwrap();
            match what.as_str().unwrap() {
                "backlog" => {
                    let claim = number(&n);
                    state.backlog.push(json!([post, claim, attempts, crashes]));
                }
                "lease" => state.leases.extend(number(&n)),
                _ => state.classified.push(json!([post, text_hash, n])),
            }
        }
        state
    }
}

impl Model {
    fn state(&self) -> State {
        let backlog = self.backlog.iter();
        let backlog = backlog.map(|(post, w)| json!([post, w.lease, w.attempts, w.crashes]));
        let classified = self.classified.iter();
        let classified =
            classified.map(|(post, text)| json!([post, hex(hash(post, *text).as_bytes()), 2]));
        State {
            backlog: backlog.collect(),
            leases: self.leases.keys().copied().collect(),
            classified: classified.collect(),
        }
    }
}

/// Counts how often the histories reached each case, so that the test can fail if one was never reached.
#[derive(Debug, Default)]
struct Seen {
    claimed: usize,
    stored: u64,
    lost: usize,
    crashes: u32,
    stale: usize,
}

fn name(post: usize) -> String {
    format!("t3_p{post}")
}

/// Applies one event to the model and the database and compares the results.
async fn happen(
    event: &Event,
    model: &mut Model,
    real: &mut Real,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let store = real.store.clone();
    match *event {
        Event::Save(post, text) => {
            model.save(&name(post), text);
            real.save(&name(post), text, model.now).await;
        }
        Event::Purge(post) => {
            model.purge(&name(post));
            let gone = (name(post).parse().unwrap(), PurgeReason::Deleted);
            let checked = Checked {
                gone: vec![gone],
                ..Checked::default()
            };
            let purging = store.purging();
            let purged = purging.purge(real.run, &checked, at(model.now));
            purged.await.unwrap();
        }
        Event::Enqueue => {
            model.enqueue();
            let enqueued = store.backlog().enqueue_missing(real.target).await;
            enqueued.unwrap();
        }
        Event::Claim(limit) | Event::ClaimClean(limit) | Event::ClaimSuspects(limit) => {
            let among = match event {
                Event::ClaimClean(_) => 0..1,
                Event::ClaimSuspects(_) => 1..MAX_CRASHES,
                _ => 0..MAX_CRASHES,
            };
            let expected = model.claim(real.claims.len(), limit, &among);
            let claimed = real.claim(limit, &among, model.now).await;
            prop_assert_eq!(&claimed, &expected);
            seen.claimed += claimed.len();
        }
        Event::Work(claim, step) => {
            // Choose among the latest claims, because most older ones have lost their leases.
            let claim = real.claims.len().checked_sub(1 + claim % 4);
            if let Some(claim) = claim {
                work(step, claim, model, real, seen).await?;
            }
        }
        Event::RetryFailed => {
            model.retry_failed();
            let retried = store
                .backlog()
                .retry_failed(real.target, MAX_ATTEMPTS)
                .await;
            retried.unwrap();
        }
        Event::Wait(secs) => model.now += secs,
    }
    let crashes = model.backlog.values().map(|waiting| waiting.crashes).max();
    seen.crashes = seen.crashes.max(crashes.unwrap_or(0));
    prop_assert_eq!(real.state().await, model.state());
    Ok(())
}

/// Applies a step of the worker that has a claim.
async fn work(
    step: Step,
    claim: usize,
    model: &mut Model,
    real: &Real,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let backlog = real.store.backlog();
    let lease = real.claims[claim].lease;
    match step {
        Step::Renew => {
            let length = Duration::from_secs(LEASE_SECS.unsigned_abs());
            let renewed = backlog.renew(lease, at(model.now), length).await;
            prop_assert_eq!(renewed.unwrap(), model.renew(claim));
        }
        Step::Complete(mask) => {
            // A worker scores the text that it claimed, which may be outdated by now.
            let posts = real.claims[claim].posts.iter().enumerate();
            let done: Vec<(String, u8)> = posts
                .filter(|(i, _)| (mask >> i) & 1 == 1)
                .map(|(_, post)| {
                    let text = (0..3).find(|text| post.text.starts_with(&title(*text)));
                    (post.fullname.to_string(), text.unwrap())
                })
                .collect();
            let stale = |(post, text): &&(String, u8)| model.posts.get(post) != Some(text);
            seen.stale += done.iter().filter(stale).count();
            let stored = real.complete(lease, &done, model.now).await;
            prop_assert_eq!(stored, model.complete(claim, &done));
            seen.stored += stored.unwrap_or(0);
            seen.lost += usize::from(stored.is_none());
        }
        Step::Fail(post) => {
            model.fail(claim, &name(post));
            let failed = [name(post).parse().unwrap()];
            backlog.fail(lease, &failed, "odd").await.unwrap();
        }
        Step::Release => {
            model.release(claim);
            backlog.release(lease).await.unwrap();
        }
        Step::Reclaim => {
            model.reclaim(claim);
            backlog.reclaim(lease).await.unwrap();
        }
    }
    Ok(())
}

/// Processes the whole backlog at the end of a history.
async fn work_off(
    model: &mut Model,
    real: &mut Real,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let complete = Event::Work(0, Step::Complete(u8::MAX));
    let (mut ends, mut rounds) = (false, 0);
    model.now += 2 * LEASE_SECS;
    for event in [Event::Enqueue, Event::RetryFailed] {
        happen(&event, model, real, seen).await?;
    }
    while !ends {
        let claim = real.claims.len();
        happen(&Event::Claim(3), model, real, seen).await?;
        ends = real.claims[claim].posts.is_empty();
        happen(&complete, model, real, seen).await?;
        happen(&Event::Work(0, Step::Release), model, real, seen).await?;
        rounds += 1;
        prop_assert!(rounds < 100, "there is always another claim");
    }
    // A lease that expired only now may have parked its posts.
    for event in [Event::RetryFailed, Event::Enqueue, Event::Claim(6)] {
        happen(&event, model, real, seen).await?;
    }
    happen(&complete, model, real, seen).await?;
    prop_assert_eq!(&model.classified, &model.posts);
    prop_assert!(model.backlog.is_empty());
    Ok(())
}

#[test]
fn some_backlog_histories_match_the_model() {
    histories(25);
}

#[test]
#[ignore = "deep: long histories"]
fn every_backlog_history_matches_the_model() {
    histories(75);
}

fn histories(cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut stale = 0;
    for database in databases() {
        let config = Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        };
        // The histories are deterministic, so a failure is reproducible on other machines.
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, random);
        let real = runtime.block_on(async { Real::new(database.open().await).await });
        let both = std::cell::RefCell::new((real, Seen::default()));
        let histories = proptest::collection::vec(event(), 1..60);
        let ended = runner.run(&histories, |history| {
            let (real, seen) = &mut *both.borrow_mut();
            runtime.block_on(async {
                real.claims.clear();
                database.run(EMPTY).await;
                let mut model = Model::default();
                for event in &history {
                    happen(event, &mut model, real, seen).await?;
                }
                work_off(&mut model, real, seen).await
            })
        });
        if let Err(error) = ended {
            panic!("{}: {error}", database.url);
        }
        let (_, seen) = both.into_inner();
        assert!(seen.claimed > 0 && seen.stored > 0, "{seen:?}");
        assert!(seen.lost > 0 && seen.crashes > 1, "{seen:?}");
        stale += seen.stale;
    }
    assert!(stale > 0, "no text was edited while it was being scored");
}

/// Empties the tables that a history fills.
const EMPTY: &str = "DELETE FROM backlog; DELETE FROM leases; DELETE FROM things; DELETE FROM tombstones; \
                     DELETE FROM pair_logits";
