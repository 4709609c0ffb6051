//! Tests what is stored about a post: its labels when it leaves a listing, its author, and NUL characters.

use std::collections::HashSet;
use std::time::Duration;

use sha2::{Digest, Sha256};
use topicmill_core::clock::Clock;
use topicmill_score::hex;
use topicmill_store::{Claimant, Classified, CrashFilter, Store, Written};

use super::*;
use crate::support::builders;
use crate::support::postgres::{databases, sqlite};
use crate::support::program::Program;

fn by(id: &str, author: &str) -> Value {
    child(id, &json!({"author": author}))
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
        Written::LeaseLost => panic!("another worker reclaimed the lease"),
    }
}

#[tokio::test]
async fn posts_gone_from_the_listing_keep_their_labels() {
    let scene = Scene::new().await;
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
    assert_eq!(label_all(&scene).await, 1, "only `c` had no label");
}

#[tokio::test]
async fn author_names_are_hashed_with_the_databases_own_key() {
    let mut seen = HashSet::new();
    for database in [sqlite(), sqlite()] {
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
        assert!(
            seen.insert(hashed("someone")),
            "each database has its own key"
        );
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
        let scene = Scene::new().await;
        let posts = [by("a", "someone"), by("b", "other")];
        scene.page("climate", None, &posts, None).await;
        scene
            .collect_with(&[climate(5)], READ_OPTIONS, store_author)
            .await;
        assert_eq!(scene.rows(KNOWN).await, ["t3_a", "t3_b"]);

        let posts = [child("a", &json!({"author": gone})), by("b", "other")];
        scene.page("climate", None, &posts, None).await;
        let reports = scene
            .collect_with(&[climate(5)], READ_OPTIONS, store_author)
            .await;
        assert_eq!((reports[0].new, reports[0].changed), (0, 1));
        assert_eq!(reports[0].edited, 0);
        assert_eq!(scene.rows(KNOWN).await, ["t3_b"], "{gone}");
        assert_eq!(scene.stored().await, ["t3_a", "t3_b"]);
    }
}

#[tokio::test]
async fn children_that_are_not_posts_are_counted_by_reason() {
    let comment = json!({"kind": "t1", "data": {"name": "t1_x", "body": "no"}});
    let scene = Scene::new().await;
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
        let reports = scene.collect_with(&[climate(5)], READ_OPTIONS, true).await;
        assert_eq!(outcomes(&reports), [Outcome::Ok]);
        let stored = "SELECT title, selftext, author FROM posts";
        assert_eq!(scene.rows(stored).await, ["ab cd someone"]);
        assert_eq!(
            counts(scene.store()).await["rejected_for"],
            json!({"a thing of kind `t9`, not a post": 1, "neither `title` nor `selftext`": 1})
        );
    }
}

#[test]
fn nul_bytes_in_a_file_are_harmless() {
    let post = |id: &str, fields: Value| child(id, &fields)["data"].take();
    let text = json!({"title": "a\0b", "selftext": "c\0d", "subreddit": "cli\0mate"});
    let author = json!({"author": "some\0one", "link_flair_text": "fl\0air"});
    let records = [
        post("a", text),
        post("b", json!({"topic": "fo\0od"})),
        post("c", json!({"topic": "\0"})),
        post("d", author),
        json!({"kind": "t\09", "data": {"id": "x"}}),
    ];
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    for program in Program::on_each_database() {
        program.write("posts.ndjson", &lines);
        let ran = program.run("import posts.ndjson --run-json run.json");
        assert_eq!(ran.code, 1, "one record is not a post\n{}", ran.stderr);
        let stored = "SELECT p.title, p.selftext, p.subreddit, p.flair, s.topic FROM posts p \
                        JOIN sightings s ON s.fullname = p.fullname ORDER BY p.fullname";
        // The row of `c` names no topic, so `c` gets the topic that lists its subreddit.
        assert_eq!(
            program.rows(stored),
            json!([
                ["ab", "cd", "climate", null, "climate"],
                ["A title", "A text", "climate", null, "food"],
                ["A title", "A text", "climate", null, "climate"],
                ["A title", "A text", "climate", "flair", "climate"],
            ])
        );
        let counts = &program.read_json("run.json")["counts"];
        assert_eq!(counts["posts"], 4);
        let rejected = json!({"a thing of kind `t9`, not a post": 1});
        assert_eq!(counts["rejected_for"], rejected);
    }
}
