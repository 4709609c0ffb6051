//! Tests collecting from a fake Reddit into both databases: every post is stored once with its rank, and a topic
//! that cannot be read has the right outcome.
//!
//! A page is served once; a collector that requests it again gets an empty listing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use topicmill::collect::ReadOptions;
use topicmill::pipeline::{Context, RunRecord};
use topicmill_core::clock::{Clock, ManualClock};
use topicmill_core::{Listing, Outcome, RunStatus, Timestamp, Topic, TopicReport};
use topicmill_score::hex;
use topicmill_sources::reddit::Reddit;
use topicmill_store::{Claimant, Classified, CrashFilter, Store, Written};
use wiremock::matchers::{method, path, query_param, query_param_is_missing};
use wiremock::{Mock, MockBuilder, MockServer, ResponseTemplate};

use crate::support::builders;
use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::Program;
use crate::support::reddit::{client, page_json, requests, server};

/// Options that read one topic after another, so that the order of requests is known.
pub const READ_OPTIONS: ReadOptions = ReadOptions {
    concurrency: 1,
    overlap: Duration::from_mins(10),
    page_cap: 50,
    time_range: None,
};

/// A Reddit, its client, and a database to collect into.
pub struct Scene {
    pub server: MockServer,
    pub reddit: Reddit,
    pub clock: Arc<ManualClock>,
    pub context: Context,
}

impl Scene {
    pub async fn of(database: &TestDatabase) -> Self {
        Self::on(server().await, database).await
    }

    /// Creates the scene with an existing server.
    pub async fn on(server: MockServer, database: &TestDatabase) -> Self {
        let (reddit, clock) = client(&server.uri());
        let reddit = Arc::into_inner(reddit).unwrap();
        let store = database.open().await;
        let context = Context::new(store, clock.clone(), CancellationToken::new(), "w".into());
        Self {
            server,
            reddit,
            clock,
            context,
        }
    }

    pub fn store(&self) -> &Store {
        &self.context.store
    }

    /// Serves a page of a subreddit once, to a request with this `after` or none.
    pub async fn page(
        &self,
        subreddit: &str,
        after: Option<&str>,
        children: &[Value],
        next: Option<&str>,
    ) {
        let page = json!({"kind": "Listing", "data": {"after": next, "children": children}});
        let asked = match after {
            Some(after) => get(subreddit).and(query_param("after", after)),
            None => get(subreddit).and(query_param_is_missing("after")),
        };
        asked
            .respond_with(ResponseTemplate::new(200).set_body_json(page))
            .up_to_n_times(1)
            .mount(&self.server)
            .await;
    }

    /// Serves a page of `r/climate`'s new posts once.
    pub async fn new_page(&self, after: Option<&str>, children: &[Value], next: Option<&str>) {
        let page = json!({"kind": "Listing", "data": {"after": next, "children": children}});
        let new = Mock::given(method("GET")).and(path("/r/climate/new"));
        let asked = match after {
            Some(after) => new.and(query_param("after", after)),
            None => new.and(query_param_is_missing("after")),
        };
        let answer = ResponseTemplate::new(200).set_body_json(page);
        asked
            .respond_with(answer)
            .up_to_n_times(1)
            .mount(&self.server)
            .await;
    }

    /// Responds to one request for `r/climate`'s new posts for which no page is left.
    pub async fn refuse_new(&self, answer: ResponseTemplate) {
        let new = Mock::given(method("GET")).and(path("/r/climate/new"));
        new.respond_with(answer)
            .up_to_n_times(1)
            .with_priority(9)
            .mount(&self.server)
            .await;
    }

    /// Responds to every request for a subreddit for which no page is left.
    pub async fn refuse(&self, subreddit: &str, answer: ResponseTemplate) {
        get(subreddit)
            .respond_with(answer)
            .with_priority(9)
            .mount(&self.server)
            .await;
    }

    async fn collect_with(&self, topics: &[Topic], store_author: bool) -> Vec<TopicReport> {
        let collected = self
            .context
            .collect(&self.reddit, topics, READ_OPTIONS, store_author, &|_| {})
            .await;
        collected.unwrap().0
    }

    pub async fn collect(&self, topics: &[Topic]) -> Vec<TopicReport> {
        self.collect_with(topics, false).await
    }

    /// Returns the record of the latest run.
    pub fn record(&self) -> RunRecord {
        self.context.records().pop().unwrap()
    }

    /// Returns the report of the only topic.
    pub async fn collect_one(&self, topic: Topic) -> TopicReport {
        let reports = self.collect(&[topic]).await;
        assert_eq!(reports.len(), 1);
        reports.into_iter().next().unwrap()
    }

    /// Returns the listing requests: subreddit, `limit` and `after`.
    async fn requested_pages(&self) -> Vec<String> {
        let requests = self.server.received_requests().await.unwrap();
        let of_listings = requests.iter().filter(|request| request.method == "GET");
        of_listings
            .map(|request| {
                let query: BTreeMap<_, _> = request.url.query_pairs().collect();
                let after = query.get("after").map_or("the start", AsRef::as_ref);
                let subreddit = request.url.path().split('/').nth(2).unwrap();
                format!("{subreddit}: {} from {after}", query["limit"])
            })
            .collect()
    }

    pub async fn rows(&self, sql: &str) -> Vec<String> {
        rows(self.store(), sql).await
    }

    /// Returns the fullnames of the stored posts.
    pub async fn stored(&self) -> Vec<String> {
        self.rows("SELECT fullname FROM posts ORDER BY fullname")
            .await
    }
}

/// Returns the rows of a query, each with its values separated by spaces.
async fn rows(store: &Store, sql: &str) -> Vec<String> {
    let words = |row: Vec<Value>| -> Vec<String> {
        row.iter()
            .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
            .collect()
    };
    let rows = store.query(sql).await.unwrap().rows;
    rows.into_iter().map(|row| words(row).join(" ")).collect()
}

fn get(subreddit: &str) -> MockBuilder {
    Mock::given(method("GET")).and(path(format!("/r/{subreddit}/hot")))
}

pub fn children(ids: &[&str]) -> Vec<Value> {
    ids.iter().map(|id| child(id, &json!({}))).collect()
}

/// Returns a child of a listing with these fields.
pub fn child(id: &str, fields: &Value) -> Value {
    let mut child = page_json(&[id])["data"]["children"][0].take();
    for (name, value) in fields.as_object().unwrap() {
        child["data"][name] = value.clone();
    }
    child
}

fn by(id: &str, author: &str) -> Value {
    child(id, &json!({"author": author}))
}

pub fn topic(slug: &str, subreddits: &[&str], limit: u32) -> Topic {
    Topic {
        slug: slug.into(),
        label: format!("{slug} things"),
        descriptions: vec![],
        subreddits: subreddits.iter().map(|name| (*name).into()).collect(),
        listing: Listing::Hot,
        is_default_listing: false,
        limit,
    }
}

pub fn climate(limit: u32) -> Topic {
    topic("climate", &["climate"], limit)
}

pub fn outcomes(reports: &[TopicReport]) -> Vec<Outcome> {
    reports.iter().map(|report| report.outcome).collect()
}

#[tokio::test]
async fn a_limit_does_not_count_stickied_posts() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let pinned = |id| child(id, &json!({"stickied": true}));
        let mut first = vec![pinned("p1"), pinned("p2")];
        first.extend(children(&["a", "b"]));
        scene.page("climate", None, &first, Some("t3_b")).await;
        // More than requested: `d` exceeds the limit, and pinned posts do not count.
        let mut second = children(&["c", "d"]);
        second.push(pinned("p3"));
        scene
            .page("climate", Some("t3_b"), &second, Some("t3_d"))
            .await;

        let report = scene.collect_one(climate(3)).await;
        assert_eq!(
            (report.outcome, report.pages, report.posts, report.new),
            (Outcome::Ok, 2, 6, 6)
        );
        assert_eq!(
            scene.requested_pages().await,
            ["climate: 3 from the start", "climate: 1 from t3_b"]
        );
        assert_eq!(
            scene.stored().await,
            ["t3_a", "t3_b", "t3_c", "t3_p1", "t3_p2", "t3_p3"]
        );
    }
}

#[tokio::test]
async fn a_post_on_two_pages_is_stored_once_and_all_ranks_are_kept() {
    const RANKS: &str = "SELECT rank, fullname FROM sightings \
                          WHERE run_id = (SELECT MAX(id) FROM runs) ORDER BY rank";
    for database in databases() {
        let scene = Scene::of(&database).await;
        let pages = [
            children(&["a", "b"]),
            children(&["b", "c"]),
            children(&["d", "e", "f"]),
        ];
        scene.page("climate", None, &pages[0], Some("t3_b")).await;
        scene
            .page("climate", Some("t3_b"), &pages[1], Some("t3_c"))
            .await;
        scene
            .page("climate", Some("t3_c"), &pages[2], Some("t3_f"))
            .await;

        let report = scene.collect_one(climate(4)).await;
        assert_eq!((report.pages, report.posts, report.new), (3, 4, 4));
        assert_eq!(
            scene.requested_pages().await,
            [
                "climate: 4 from the start",
                "climate: 2 from t3_b",
                "climate: 1 from t3_c"
            ],
            "the second `b` takes nothing off the limit"
        );
        // Ranks are positions on the listing as it was read: `b` was at 1, and on the second page at 2.
        assert_eq!(
            scene.rows(RANKS).await,
            ["0 t3_a", "1 t3_b", "3 t3_c", "4 t3_d"]
        );
        assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_c", "t3_d"]);

        // The next run sees other ranks, and no new post.
        scene
            .page("climate", None, &children(&["d", "b", "a"]), None)
            .await;
        let again = scene.collect_one(climate(4)).await;
        assert_eq!((again.posts, again.new, again.changed), (3, 0, 0));
        assert_eq!(scene.rows(RANKS).await, ["0 t3_d", "1 t3_b", "2 t3_a"]);
        assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_c", "t3_d"]);
    }
}

#[tokio::test]
async fn a_repeated_or_cyclic_after_ends_the_topic() {
    let repeats = ["t3_b", "t3_b"];
    let circles = ["t3_b", "t3_c", "t3_d", "t3_b"];
    for (cursors, posts) in [(&repeats[..], 2), (&circles[..], 4)] {
        for database in databases() {
            let scene = Scene::of(&database).await;
            let mut after = None;
            for (i, next) in cursors.iter().enumerate() {
                let post = child(&format!("p{i}"), &json!({}));
                scene.page("climate", after, &[post], Some(next)).await;
                after = Some(next);
            }
            scene.page("food", None, &children(&["f"]), None).await;

            let topics = [climate(100), topic("food", &["food"], 100)];
            let reports = scene.collect(&topics).await;
            assert_eq!(outcomes(&reports), [Outcome::Ok, Outcome::Ok]);
            assert_eq!((reports[0].pages, reports[0].posts), (posts, posts));
            assert_eq!(scene.record().status, RunStatus::Done);
            assert_eq!(
                scene.requested_pages().await.len(),
                cursors.len() + 1,
                "{cursors:?}"
            );
            let left = "SELECT topic FROM watermarks WHERE after_cursor IS NOT NULL";
            assert_eq!(scene.rows(left).await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_null_or_empty_after_ends_the_topic() {
    for end in [None, Some("")] {
        for database in databases() {
            let scene = Scene::of(&database).await;
            scene
                .page("climate", None, &children(&["a", "b"]), end)
                .await;
            let report = scene.collect_one(climate(250)).await;
            assert_eq!(
                scene.requested_pages().await,
                ["climate: 100 from the start"]
            );
            assert_eq!((report.outcome, report.posts), (Outcome::Ok, 2));
            assert_eq!(scene.record().status, RunStatus::Done);
        }
    }
}

#[tokio::test]
async fn fallback_subreddits_are_recorded_with_their_outcomes() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let private = ResponseTemplate::new(403).set_body_json(json!({"reason": "private"}));
        scene.refuse("secret", private).await;
        scene.refuse("gone", ResponseTemplate::new(404)).await;
        scene.page("quiet", None, &[], None).await;
        scene.page("climate", None, &children(&["a"]), None).await;
        scene.page("never", None, &children(&["n"]), None).await;

        let names = ["secret", "gone", "quiet", "climate", "never"];
        let topics = [
            topic("climate", &names, 5),
            topic("lost", &["gone", "secret"], 5),
        ];
        let reports = scene.collect(&topics).await;
        assert_eq!(outcomes(&reports), [Outcome::Ok, Outcome::Private]);
        assert_eq!(
            (reports[0].subreddit.as_str(), &reports[0].detail),
            ("climate", &None)
        );
        let skipped = |name: &str, outcome| (name.to_owned(), outcome);
        assert_eq!(
            reports[0].skipped,
            [
                skipped("secret", Outcome::Private),
                skipped("gone", Outcome::Missing),
                skipped("quiet", Outcome::Empty),
            ]
        );
        assert_eq!(reports[1].subreddit, "secret");
        assert_eq!(reports[1].skipped, [skipped("gone", Outcome::Missing)]);

        let stored = scene.rows("SELECT outcomes FROM runs").await;
        let stored: Value = serde_json::from_str(&stored[0]).unwrap();
        assert_eq!(stored, json!(reports));
        assert_eq!(
            stored[0]["skipped"],
            json!([
                ["secret", "private"],
                ["gone", "missing"],
                ["quiet", "empty"]
            ])
        );
        assert_eq!(scene.rows("SELECT status FROM runs").await, ["partial"]);
    }
}

#[tokio::test]
async fn a_failing_topic_ends_as_server_and_the_others_continue() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.page("food", None, &children(&["f"]), None).await;
        // The server fails from the second page on.
        scene
            .page("climate", None, &children(&["a", "b"]), Some("t3_b"))
            .await;
        scene.refuse("climate", ResponseTemplate::new(500)).await;
        scene.page("music", None, &children(&["m"]), None).await;

        let topics = [
            topic("food", &["food"], 5),
            topic("climate", &["climate", "environment"], 5),
            topic("music", &["music"], 5),
        ];
        let reports = scene.collect(&topics).await;
        assert_eq!(
            outcomes(&reports),
            [Outcome::Ok, Outcome::Server, Outcome::Ok]
        );
        let failed = &reports[1];
        assert_eq!((failed.subreddit.as_str(), failed.posts), ("climate", 2));
        let detail = failed.detail.as_deref().unwrap();
        assert!(detail.contains("status 500"), "{detail}");
        let record = scene.record();
        assert_eq!(record.status, RunStatus::Partial);
        assert_eq!(record.counts.collected(), Some((4, 4)));

        let mut asked = vec!["food: 5 from the start", "climate: 5 from the start"];
        asked.extend(["climate: 3 from t3_b"; 5]);
        asked.push("music: 5 from the start");
        assert_eq!(
            scene.requested_pages().await,
            asked,
            "and no other subreddit in its place"
        );
        assert_eq!(scene.clock.sleeps().len(), 4, "one before each try again");
        assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_f", "t3_m"]);
    }
}

#[tokio::test]
async fn a_second_401_ends_the_run() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.page("food", None, &children(&["f"]), None).await;
        scene.refuse("climate", ResponseTemplate::new(401)).await;
        scene.page("music", None, &children(&["m"]), None).await;

        let topics = [
            topic("food", &["food"], 5),
            topic("climate", &["climate", "environment"], 5),
            topic("music", &["music"], 5),
        ];
        let reports = scene.collect(&topics).await;
        // A topic that did not start has no report.
        assert_eq!(
            outcomes(&reports),
            [Outcome::Ok, Outcome::Auth, Outcome::Stopped]
        );
        let record = scene.record();
        assert_eq!(
            (record.status, &json!(record.counts)["topics"]),
            (RunStatus::Partial, &json!(3))
        );
        assert_eq!(
            scene.requested_pages().await,
            [
                "food: 5 from the start",
                "climate: 5 from the start",
                "climate: 5 from the start"
            ]
        );
        assert_eq!(requests(&scene.server, "POST").await, 2, "one more token");
        assert_eq!(scene.clock.sleeps(), []);
        assert_eq!(scene.stored().await, ["t3_f"]);
    }
}

/// Labels all unlabelled posts as part of the latest run; returns their number.
async fn label_all(scene: &Scene) -> u64 {
    let (store, run) = (scene.store(), scene.record().id);
    let now = scene.clock.now().into();
    let labels = builders::label_set(&["climate"]);
    let target = builders::target(store, &labels).await;
    let texts = [labels.hypothesis(&labels.labels[0])];
    let hypothesis = store.labels().ensure_hypotheses(&texts).await.unwrap()[0];
    store.labels().set_current(target).await.unwrap();
    store.backlog().enqueue_missing(target).await.unwrap();
    let claimant = Claimant {
        worker: "w",
        run,
        max_attempts: 3,
        lease: Duration::from_mins(1),
    };
    let claim = store
        .backlog()
        .claim(target, &claimant, CrashFilter::Any, 100, now)
        .await
        .unwrap();
    let done: Vec<Classified> = claim
        .posts
        .iter()
        .map(|post| Classified {
            logits: vec![(target.model, hypothesis, builders::logits(1.0))],
            ..builders::classified(&post.fullname, post.text_hash, &[1.0])
        })
        .collect();
    let written = store
        .backlog()
        .save_labels(&builders::write(target, run, now, claim.lease), &done)
        .await
        .unwrap();
    store.backlog().release(claim.lease).await.unwrap();
    match written {
        Written::Stored(stored) => stored.posts,
        Written::LeaseLost => panic!("nobody else works here"),
    }
}

#[tokio::test]
async fn posts_gone_from_the_listing_keep_their_labels() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene
            .page("climate", None, &children(&["a", "b"]), None)
            .await;
        scene.collect_one(climate(5)).await;
        assert_eq!(label_all(&scene).await, 2);

        scene
            .page("climate", None, &children(&["b", "c"]), None)
            .await;
        let report = scene.collect_one(climate(5)).await;
        assert_eq!((report.posts, report.new, report.changed), (2, 1, 0));
        assert_eq!(
            scene
                .rows("SELECT fullname, topic, label FROM labeled_posts ORDER BY fullname")
                .await,
            [
                "t3_a climate climate",
                "t3_b climate climate",
                "t3_c climate null"
            ]
        );
        let removed = "SELECT fullname FROM posts WHERE removed_at IS NOT NULL";
        assert_eq!(scene.rows(removed).await, [""; 0]);
        assert_eq!(label_all(&scene).await, 1, "only `c` is left to label");
    }
}

#[tokio::test]
async fn author_names_are_hashed_with_a_key_of_the_database() {
    let mut seen = HashSet::new();
    for database in [databases(), databases()].into_iter().flatten() {
        let scene = Scene::of(&database).await;
        let both = [by("a", "someone"), by("b", "Other")];
        scene.page("climate", None, &both, None).await;
        scene.page("food", None, &[by("c", "someone")], None).await;
        let topics = [climate(5), topic("food", &["food"], 5)];
        scene.collect(&topics).await;
        // Another process uses the same key.
        let later = Scene::of(&database).await;
        later
            .page("climate", None, &[by("d", "someone")], None)
            .await;
        later.collect_one(climate(5)).await;

        let key = scene.store().posts().author_key().await.unwrap();
        let hashed = |name: &str| {
            let digest = Sha256::digest(format!("{key}{name}").as_bytes());
            format!("u_{}", hex(&digest[..8]))
        };
        assert_eq!(
            scene
                .rows("SELECT author FROM posts ORDER BY fullname")
                .await,
            ["someone", "Other", "someone", "someone"].map(hashed)
        );
        assert!(seen.insert(hashed("someone")), "each database has its own");
    }
}

#[tokio::test]
async fn an_author_deleted_on_reddit_is_erased() {
    const KNOWN: &str = "SELECT fullname FROM posts WHERE author IS NOT NULL ORDER BY fullname";
    for (store_author, gone) in [
        (true, json!("[deleted]")),
        (false, json!("[deleted]")),
        (true, Value::Null),
    ] {
        for database in databases() {
            let scene = Scene::of(&database).await;
            let posts = [by("a", "someone"), by("b", "other")];
            scene.page("climate", None, &posts, None).await;
            scene.collect_with(&[climate(5)], store_author).await;
            assert_eq!(scene.rows(KNOWN).await, ["t3_a", "t3_b"]);

            let posts = [child("a", &json!({"author": gone})), by("b", "other")];
            scene.page("climate", None, &posts, None).await;
            let reports = scene.collect_with(&[climate(5)], store_author).await;
            assert_eq!((reports[0].new, reports[0].changed), (0, 1));
            assert_eq!(reports[0].edited, 0);
            assert_eq!(scene.rows(KNOWN).await, ["t3_b"], "{gone}");
            assert_eq!(scene.stored().await, ["t3_a", "t3_b"]);
        }
    }
}

#[tokio::test]
async fn children_that_are_not_posts_are_counted_by_reason() {
    let comment = json!({"kind": "t1", "data": {"name": "t1_x", "body": "no"}});
    for database in databases() {
        let scene = Scene::of(&database).await;
        let first = [
            Value::Null,
            comment.clone(),
            child("a", &json!({})),
            json!({"kind": "t5", "data": {"name": "t5_x"}}),
            child("ad", &json!({"promoted": true})),
            child("old", &json!({"created_utc": "once"})),
        ];
        scene.page("climate", None, &first, Some("t3_a")).await;
        let second = [comment.clone(), child("b", &json!({})), comment.clone()];
        scene.page("climate", Some("t3_a"), &second, None).await;
        // A subreddit without a post still counts its children.
        scene
            .page("replies", None, std::slice::from_ref(&comment), None)
            .await;
        scene.page("food", None, &children(&["f"]), None).await;

        let topics = [climate(5), topic("food", &["replies", "food"], 5)];
        let reports = scene.collect(&topics).await;
        assert_eq!(outcomes(&reports), [Outcome::Ok, Outcome::Ok]);
        assert_eq!((reports[0].posts, reports[1].posts), (2, 1));
        assert_eq!(
            json!(reports[0].rejected),
            json!({
                "not a JSON object": 1,
                "a comment, not a post": 3,
                "a thing of kind `t5`, not a post": 1,
                "an advertisement, not a post": 1,
                "`created_utc` is not a time": 1,
            })
        );
        assert_eq!(
            json!(reports[1].rejected),
            json!({"a comment, not a post": 1})
        );

        let counts = counts(scene.store()).await;
        assert_eq!(counts, json!(scene.record().counts));
        assert_eq!(counts["rejected"], 8);
        assert_eq!(counts["rejected_for"]["a comment, not a post"], 4);
    }
}

/// Returns the counts of the latest run.
async fn counts(store: &Store) -> Value {
    store.runs().recent_runs(None, 1).await.unwrap()[0]
        .counts
        .clone()
}

#[tokio::test]
async fn nul_bytes_in_a_listing_are_harmless() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let fields = json!({"title": "a\0b", "selftext": "c\0d", "author": "some\0one"});
        let posts = [
            child("a", &fields),
            child("only", &json!({"title": "\0", "selftext": "\0"})),
            json!({"kind": "t\09", "data": {}}),
        ];
        scene.page("climate", None, &posts, None).await;
        let reports = scene.collect_with(&[climate(5)], true).await;
        assert_eq!(outcomes(&reports), [Outcome::Ok]);
        let stored = "SELECT title, selftext, author FROM posts";
        assert_eq!(scene.rows(stored).await, ["ab cd someone"]);
        assert_eq!(
            counts(scene.store()).await["rejected_for"],
            json!({"a thing of kind `t9`, not a post": 1, "neither `title` nor `selftext`": 1})
        );
    }
}

#[tokio::test]
async fn nul_bytes_in_a_file_are_harmless() {
    let post = |id: &str, fields: Value| child(id, &fields)["data"].take();
    let records = [
        post(
            "a",
            json!({"title": "a\0b", "selftext": "c\0d", "subreddit": "cli\0mate"}),
        ),
        post("b", json!({"topic": "fo\0od"})),
        post("c", json!({"topic": "\0"})),
        post(
            "d",
            json!({"author": "some\0one", "link_flair_text": "fl\0air"}),
        ),
        json!({"kind": "t\09", "data": {"id": "x"}}),
    ];
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    for database in databases() {
        let program = Program::new();
        let file = program.write("posts.ndjson", &lines);
        let ran = program.run(&["--database", &database.url, "import", &file]);
        assert_eq!(ran.code, 1, "one record is no post\n{}", ran.stderr);

        let store = database.open().await;
        let texts = "SELECT title, selftext, subreddit FROM posts WHERE fullname = 't3_a'";
        assert_eq!(rows(&store, texts).await, ["ab cd climate"]);
        let flair = "SELECT flair FROM posts WHERE fullname = 't3_d'";
        assert_eq!(rows(&store, flair).await, ["flair"]);
        // `c` names no topic, so it gets the topic that reads its subreddit.
        assert_eq!(
            rows(
                &store,
                "SELECT fullname, topic FROM sightings ORDER BY fullname"
            )
            .await,
            ["t3_a climate", "t3_b food", "t3_c climate", "t3_d climate"]
        );
        let counts = counts(&store).await;
        assert_eq!(counts["posts"], 4);
        assert_eq!(
            counts["rejected_for"],
            json!({"a thing of kind `t9`, not a post": 1})
        );
    }
}

/// Returns children of a listing of new posts, at these minutes after the hour.
pub fn posted(minutes: std::ops::Range<u64>) -> Vec<Value> {
    let at = |minute| json!({"created_utc": 1_750_000_000 + 60 * minute});
    let newest_first = minutes.rev();
    newest_first
        .map(|minute| child(&format!("m{minute}"), &at(minute)))
        .collect()
}

pub fn new_climate(limit: u32) -> Topic {
    Topic {
        listing: Listing::New,
        ..climate(limit)
    }
}

#[tokio::test]
async fn new_posts_are_read_back_to_the_known_ones_and_no_further() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.new_page(None, &posted(0..5), Some("t3_old")).await;
        let first = scene.collect_one(new_climate(5)).await;
        assert_eq!(
            (first.pages, first.new),
            (1, 5),
            "the first run reads its limit"
        );

        // Seven posts came since. The newest known one is of minute 4, and the overlap adds ten minutes.
        scene.new_page(None, &posted(6..12), Some("t3_m6")).await;
        scene
            .new_page(Some("t3_m6"), &posted(4..6), Some("t3_m4"))
            .await;
        let old = [child("ancient", &json!({"created_utc": 1_749_990_000}))];
        scene
            .new_page(Some("t3_m4"), &old, Some("t3_ancient"))
            .await;
        let second = scene.collect_one(new_climate(5)).await;
        assert_eq!(
            (second.outcome, second.pages),
            (Outcome::Ok, 3),
            "{second:?}"
        );
        assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["13"]);
        assert_eq!(scene.store().posts().gaps().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_run_that_crashes_between_two_pages_leaves_no_gap() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.new_page(None, &posted(0..3), None).await;
        scene.collect_one(new_climate(3)).await;

        // The second page fails, so the first one must not advance the watermark.
        scene.new_page(None, &posted(20..23), Some("t3_m20")).await;
        scene.refuse_new(ResponseTemplate::new(404)).await;
        let cut = scene.collect_one(new_climate(3)).await;
        assert_eq!((cut.outcome, cut.new), (Outcome::Missing, 3));

        scene.new_page(None, &posted(20..23), Some("t3_m20")).await;
        scene
            .new_page(Some("t3_m20"), &posted(3..20), Some("t3_m3"))
            .await;
        let old = [child("ancient", &json!({"created_utc": 1_749_990_000}))];
        scene.new_page(Some("t3_m3"), &old, None).await;
        scene.collect_one(new_climate(3)).await;
        assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["24"]);
    }
}

#[tokio::test]
async fn more_new_posts_than_reddit_lists_are_recorded_as_a_gap() {
    let database = crate::support::postgres::sqlite();
    let scene = Scene::of(&database).await;
    scene.new_page(None, &posted(0..1), None).await;
    scene.collect_one(new_climate(1)).await;
    let mut after = None;
    for page in (0..10).rev() {
        let first = 5_000 + 100 * page;
        let next = format!("t3_m{first}");
        scene
            .new_page(after.as_deref(), &posted(first..first + 100), Some(&next))
            .await;
        after = Some(next);
    }
    let report = scene.collect_one(new_climate(100)).await;
    assert_eq!((report.pages, report.new), (10, 1_000));
    let gaps = scene.store().posts().gaps().await.unwrap();
    assert_eq!(gaps.len(), 1);
    let at = |minute: i64| Timestamp::from_epoch_secs(1_750_000_000 + 60 * minute).unwrap();
    assert_eq!((gaps[0].from_at, gaps[0].until_at), (at(0), at(5_000)));
}

/// A short listing that does not reach the stored posts is a gap, however it ends.
#[tokio::test]
async fn a_listing_that_ends_before_the_newest_stored_post_is_a_gap_until_another_reaches_it() {
    let at = |minute: i64| Timestamp::from_epoch_secs(1_750_000_000 + 60 * minute).unwrap();
    for empty_page in [false, true] {
        let database = crate::support::postgres::sqlite();
        let scene = Scene::of(&database).await;
        let gaps = async || {
            let gaps = scene.store().posts().gaps().await.unwrap();
            let times = gaps.iter().map(|gap| (gap.from_at, gap.until_at));
            times.collect::<Vec<_>>()
        };
        scene.new_page(None, &posted(0..100), None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, []);
        let next = empty_page.then_some("t3_m2000");
        scene.new_page(None, &posted(2_000..2_100), next).await;
        if empty_page {
            scene.new_page(next, &[], None).await;
        }
        let report = scene.collect_one(new_climate(100)).await;
        assert_eq!((report.outcome, report.new), (Outcome::Ok, 100));
        assert_eq!(gaps().await, [(at(99), at(2_000))]);
        // The gap stays, although the listing reaches the newest stored post.
        scene.new_page(None, &posted(2_001..2_101), None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, [(at(99), at(2_000))]);
        let mut all = posted(2_090..2_102);
        all.extend(posted(90..100));
        scene.new_page(None, &all, None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, []);
    }
}

#[tokio::test]
async fn topics_are_read_concurrently_and_reported_in_order() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let names: Vec<String> = (0..8).map(|i| format!("topic{i}")).collect();
        for name in &names {
            scene
                .page(name, None, &children(&[&format!("{name}a")]), Some("next"))
                .await;
            scene
                .page(name, Some("next"), &children(&[&format!("{name}b")]), None)
                .await;
        }
        let topics: Vec<Topic> = names.iter().map(|name| topic(name, &[name], 5)).collect();
        let options = ReadOptions {
            concurrency: 4,
            ..READ_OPTIONS
        };
        let collected = scene
            .context
            .collect(&scene.reddit, &topics, options, false, &|_| {});
        let (reports, status) = collected.await.unwrap();
        assert_eq!(status, RunStatus::Done);
        assert!(
            reports
                .iter()
                .zip(&names)
                .all(|(report, name)| report.topic == *name)
        );
        assert_eq!(scene.stored().await.len(), 16);
        let asked = scene.requested_pages().await;
        // Sequentially, each second page would follow its first.
        let next = |at: &usize| asked[*at].ends_with("next");
        let of_one = |at: &usize| asked[at - 1].split(':').next() == asked[*at].split(':').next();
        let followed = (1..asked.len()).filter(|at| next(at) && of_one(at)).count();
        assert!(followed < names.len(), "one after the other: {asked:?}");
    }
}
