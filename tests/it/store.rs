//! Tests the store on both databases: each write is stored once, and a lost lease writes nothing.

mod batches;

use std::time::Duration;

use serde_json::{Value, json};
use topicmill_core::{LabelSet, Listing, Post, PurgeReason, SourceKind, Stage, Timestamp};
use topicmill_store::{
    Access, Checked, Claim, Claimant, Classified, HypothesisId, ImportState, Page, RunId, Store,
    StoreError, Target, Upserted, Written,
};

use crate::support::builders::{self, at};
use crate::support::postgres::{databases, sqlite};
use crate::support::rows::execute;

const LEASE: Duration = Duration::from_mins(1);

pub fn post(id: &str, title: &str, body: &str) -> Post {
    Post {
        subreddit: "gaming".into(),
        permalink: Some(format!("/r/gaming/comments/{id}/")),
        author: Some("someone".into()),
        score: Some(12),
        upvote_ratio: Some(0.9),
        num_comments: Some(3),
        source: SourceKind::Sample,
        ..builders::post(id, title, body)
    }
}

pub fn labels(threshold: f64) -> LabelSet {
    LabelSet {
        name: "two".into(),
        threshold,
        ..builders::label_set(&["gaming", "food"])
    }
}

pub async fn save(store: &Store, run: RunId, posts: &[Post], now: i64) -> Upserted {
    let mut page = Page {
        source: SourceKind::Sample,
        subreddit: "gaming",
        listing: Some(Listing::Hot),
        ..of_file(run, "gaming", posts, now)
    };
    for (post, rank) in page.posts.iter_mut().zip(0..) {
        post.rank = Some(rank);
    }
    store.posts().save_pages(&[page], None).await.unwrap()
}

async fn begin(store: &Store) -> RunId {
    let run = store.runs().begin_run(Stage::Import, "w", at(0)).await;
    run.unwrap()
}

async fn rows(store: &Store, sql: &str) -> Value {
    json!(store.query(sql).await.unwrap().rows)
}

pub struct Fixture {
    pub store: Store,
    pub run: RunId,
    pub target: Target,
    hypotheses: Vec<HypothesisId>,
}

pub async fn fixture(store: Store, posts: usize) -> Fixture {
    let run = begin(&store).await;
    let posts: Vec<Post> = (0..posts)
        .map(|i| post(&format!("p{i:03}"), &format!("Title {i}"), ""))
        .collect();
    save(&store, run, &posts, 0).await;
    let target = builders::target(&store, &labels(0.0)).await;
    let texts = [
        "This text is about gaming.".to_owned(),
        "This text is about food.".to_owned(),
    ];
    let hypotheses = store.labels().ensure_hypotheses(&texts).await.unwrap();
    assert_eq!(
        store.labels().ensure_hypotheses(&texts).await.unwrap(),
        hypotheses,
        "each hypothesis is stored once"
    );
    store.labels().set_current(target).await.unwrap();
    store.backlog().enqueue_missing(target).await.unwrap();
    Fixture {
        store,
        run,
        target,
        hypotheses,
    }
}

impl Fixture {
    pub async fn claim(&self, limit: u32, now: i64) -> Claim {
        let claimant = Claimant {
            worker: "w",
            run: self.run,
            max_attempts: 3,
            lease: LEASE,
        };
        builders::claim(&self.store, self.target, &claimant, limit, at(now)).await
    }

    fn done(&self, claim: &Claim) -> Vec<Classified> {
        let logits =
            |place: usize, entailment| builders::logits(self.hypotheses[place], entailment);
        claim
            .posts
            .iter()
            .map(|post| Classified {
                logits: vec![logits(0, 2.0), logits(1, 0.5)],
                ..builders::classified(&post.fullname, post.text_hash, &[0.75, 0.25])
            })
            .collect()
    }

    pub async fn complete(&self, claim: &Claim, now: i64) -> Written {
        let write = builders::write(self.target, self.run, at(now), claim.lease);
        let (backlog, done) = (self.store.backlog(), self.done(claim));
        backlog.save_labels(&write, &done).await.unwrap()
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.store.query(sql).await.unwrap().rows[0][0]
            .as_i64()
            .unwrap()
    }
}

#[tokio::test]
async fn posts_are_upserted_once_and_edits_are_reported() {
    for database in databases() {
        let store = database.open().await;
        let run = begin(&store).await;
        let twice = [
            post("a", "A", ""),
            post("b", "B", "body"),
            post("a", "A again", ""),
        ];
        let first = save(&store, run, &twice, 0).await;
        assert_eq!((first.new, first.changed, first.unchanged), (2, 0, 0));

        let mut voted = post("b", "B", "body");
        voted.score = Some(99);
        let second = save(&store, run, &[voted, post("a", "A edited", "")], 60).await;
        assert_eq!((second.new, second.changed, second.unchanged), (0, 2, 0));
        assert_eq!(second.edited, 1, "the other post only has more votes");

        let output = "SELECT title, reddit_score, author FROM posts ORDER BY fullname";
        let expected = json!([["A edited", 12, "someone"], ["B", 99, "someone"]]);
        assert_eq!(rows(&store, output).await, expected);

        let mut from_file = post("a", "A before it was edited", "");
        from_file.source = SourceKind::Import;
        let third = save(&store, run, &[from_file], 120).await;
        assert_eq!((third.new, third.changed, third.unchanged), (0, 0, 1));
        let kept = rows(&store, output).await;
        assert_eq!(kept, expected, "a file is older than posts from Reddit");
        let seen = rows(&store, "SELECT COUNT(*) FROM sightings").await;
        assert_eq!(seen, json!([[2]]));
    }
}

/// Returns a page of imported posts with a topic.
pub fn of_file<'a>(run: RunId, topic: &'a str, posts: &[Post], now: i64) -> Page<'a> {
    builders::page(run, topic, posts, at(now))
}

/// Returns the position of an unfinished import.
fn place(run: RunId, bytes: u64, now: i64) -> ImportState {
    ImportState {
        file: "1-abc".into(),
        selection: "food".into(),
        name: "RS.zst".into(),
        byte_offset: bytes,
        rows: bytes / 100,
        left_out: 7,
        posts: 3,
        rejected: 1,
        run,
        updated_at: at(now),
        finished_at: None,
    }
}

#[tokio::test]
async fn a_page_is_stored_atomically_with_its_position() {
    for database in databases() {
        let store = database.open().await;
        let run = begin(&store).await;
        let position = async |file, selection| {
            let state = store.posts().import_state(file, selection).await;
            state.unwrap()
        };
        let save = async |pages: &[Page<'_>], state: &ImportState| {
            store.posts().save_pages(pages, Some(state)).await
        };
        assert_eq!(position("1-abc", "food").await, None);
        let food = [post("a", "A", ""), post("b", "B", "")];
        let music = [post("c", "C", "")];
        let both = |food: &[Post], now| {
            [
                of_file(run, "food", food, now),
                of_file(run, "music", &music, now),
            ]
        };
        let first = place(run, 1_000, 1);
        let stored = save(&both(&food, 1), &first).await.unwrap();
        assert_eq!((stored.new, stored.changed, stored.unchanged), (3, 0, 0));
        assert_eq!(position("1-abc", "food").await, Some(first.clone()));
        assert_eq!(position("1-abc", "music").await, None);
        assert_eq!(position("2-abc", "food").await, None);

        // The position of an unknown run is rejected after the posts were written.
        let more = [post("d", "D", "")];
        let nobody = place(RunId(99), 2_000, 2);
        let refused = save(&both(&more, 2), &nobody).await;
        assert!(
            matches!(refused, Err(StoreError::Statement { .. })),
            "{refused:?}"
        );
        assert_eq!(position("1-abc", "food").await, Some(first));
        let seen = "SELECT s.topic, p.fullname FROM posts p LEFT JOIN sightings s ON s.fullname = p.fullname ORDER BY \
            2";
        let expected = json!([["food", "t3_a"], ["food", "t3_b"], ["music", "t3_c"]]);
        assert_eq!(rows(&store, seen).await, expected);

        let last = ImportState {
            finished_at: Some(at(2)),
            ..place(run, 2_000, 2)
        };
        let stored = save(&[of_file(run, "food", &more, 2)], &last).await;
        assert_eq!(stored.unwrap().new, 1);
        assert_eq!(position("1-abc", "food").await, Some(last));
        let empty = store.posts().save_pages(&[], None).await.unwrap();
        assert_eq!(empty, Upserted::default());
    }
}

#[tokio::test]
async fn an_edited_post_is_relabelled_and_keeps_no_stale_label() {
    for database in databases() {
        let f = fixture(database.open().await, 1).await;
        let claim = f.claim(1, 1).await;
        f.complete(&claim, 2).await;
        let edited = [post("p000", "Title 0", "now with a body")];
        save(&f.store, f.run, &edited, 3).await;
        let labelled = "SELECT COUNT(*) FROM labeled_posts WHERE label IS NOT NULL";
        assert_eq!(f.count(labelled).await, 0);
        let added = f.store.backlog().enqueue_missing(f.target).await;
        assert_eq!(added.unwrap(), 1);
        let again = f.claim(1, 4).await;
        assert_ne!(again.posts[0].text_hash, claim.posts[0].text_hash);
        f.complete(&again, 5).await;
        assert_eq!(f.count("SELECT COUNT(*) FROM classifications").await, 1);
        assert_eq!(f.count(labelled).await, 1);
    }
}

#[tokio::test]
async fn a_late_renewal_does_not_shorten_a_lease_but_one_after_a_clock_correction_does() {
    for database in databases() {
        let f = fixture(database.open().await, 1).await;
        let held = f.claim(1, 0).await;
        let renew = async |now| {
            f.store
                .backlog()
                .renew(held.lease, at(now), LEASE)
                .await
                .unwrap()
        };
        assert!(renew(40).await);
        // A renewal that was sent first but is applied last does not shorten the lease, which lasts until 100.
        assert!(renew(20).await);
        assert!(f.claim(1, 99).await.posts.is_empty());
        assert!(renew(160).await);
        // Once a clock that was far ahead is corrected, a renewal shortens the lease, so that others need not wait.
        assert!(renew(90).await);
        assert_eq!(f.claim(1, 151).await.posts.len(), 1);
    }
}

#[tokio::test]
async fn a_read_only_store_creates_nothing_and_cannot_write() {
    for database in databases() {
        let open = async || Store::open(&database.url, Access::ReadOnly).await;
        let missing = open().await.unwrap_err();
        assert!(matches!(missing, StoreError::Open { .. }), "{missing}");
        database.open().await.close().await.unwrap();
        let reader = open().await.unwrap();
        let write = reader.query("DELETE FROM things").await;
        assert!(matches!(write, Err(StoreError::Query(_))));
        let two = reader.query("SELECT 1; SELECT 2").await;
        assert!(two.is_err(), "one statement at a time");
    }
}

#[tokio::test]
async fn a_query_has_typed_values_and_distinct_names_of_columns() {
    for database in databases() {
        let reader = database.open().await;
        let twice = reader.query("SELECT 1 AS a, 2 AS a").await.unwrap();
        assert_eq!(twice.columns, ["a", "a_2"]);
        let typed = reader
            .query("SELECT 1 AS i, 0.5 AS f, 'x' AS t, NULL AS n")
            .await
            .unwrap();
        assert_eq!(typed.columns, ["i", "f", "t", "n"]);
        assert_eq!(
            typed.rows,
            [[json!(1), json!(0.5), json!("x"), json!(null)]]
        );
    }
}

#[tokio::test]
async fn a_newer_schema_version_is_rejected() {
    for database in databases() {
        let store = database.open().await;
        let add = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                   VALUES (9999, 'from the future', TRUE, '', 0)";
        execute(&database.url, add).await;
        store.close().await.unwrap();
        for access in [Access::Create, Access::Existing, Access::ReadOnly] {
            let error = Store::open(&database.url, access).await.unwrap_err();
            assert!(
                matches!(error, StoreError::Newer { found: 9999, .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn concurrent_starts_migrate_once() {
    // Repeated, because the race is in the first moments of a new file.
    for database in (0..10).flat_map(|_| databases()) {
        let opened = (0..6).map(|_| {
            let url = database.url.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                runtime
                    .block_on(Store::open(&url, Access::Create))
                    .map(drop)
            })
        });
        for open in opened.collect::<Vec<_>>() {
            open.join().unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn a_sqlite_lease_of_a_live_process_survives_a_fast_clock() {
    let database = sqlite();
    let fixture = fixture(database.open().await, 2).await;
    let mut other = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let me = topicmill_store::worker_name();
    let (place, _) = me.rsplit_once(':').unwrap();
    let claimant = Claimant {
        worker: &format!("{place}:{}", other.id()),
        run: fixture.run,
        max_attempts: 3,
        lease: LEASE,
    };
    let backlog = fixture.store.backlog();
    let (store, target) = (&fixture.store, fixture.target);
    let claim = async |now| builders::claim(store, target, &claimant, 2, at(now)).await;
    assert_eq!(claim(0).await.posts.len(), 2);
    let late = LEASE.as_secs().cast_signed() + 600;
    assert!(fixture.claim(2, late).await.posts.is_empty());
    // A process that hangs does not keep its leases forever.
    let expired = fixture.claim(2, late + 3_600).await;
    assert_eq!(expired.posts.len(), 2);
    backlog.release(expired.lease).await.unwrap();
    claim(late).await;
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(fixture.claim(2, 2 * late).await.posts.len(), 2);
}
