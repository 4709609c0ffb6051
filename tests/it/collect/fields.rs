//! Tests what is stored about a post: its labels when it leaves a listing, its author, and NUL characters.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use topicmill_core::hex;
use topicmill_store::Store;

use super::*;
use crate::support::builders;
use crate::support::postgres::{databases, sqlite};
use crate::support::program::Program;

fn by(id: &str, author: &str) -> Value {
    child(id, &json!({"author": author}))
}

#[tokio::test]
async fn posts_gone_from_the_listing_keep_their_labels() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.hot("climate", "", "a b", "").await;
    scene.collect_one(climate(5)).await;
    let target = builders::target(scene.store(), &builders::label_set(&["climate"])).await;
    scene.store().labels().set_current(target).await.unwrap();
    database
        .run(
            "INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, \
               abstained, mode, classified_at) \
             SELECT p.fullname, t.model_id, t.label_set_id, p.text_hash, 'climate', 0.5, 0.25, FALSE, 'single', \
               p.created_at FROM things p CROSS JOIN current_target t",
        )
        .await;

    scene.hot("climate", "", "b c", "").await;
    let report = scene.collect_one(climate(5)).await;
    assert_eq!(
        (report.posts, report.stored.new, report.stored.changed),
        (2, 1, 0)
    );
    let labels = "SELECT fullname, topic, label FROM labeled_posts ORDER BY fullname";
    let expected = [
        "t3_a climate climate",
        "t3_b climate climate",
        "t3_c climate null",
    ];
    assert_eq!(scene.rows(labels).await, expected);
    let removed = "SELECT fullname FROM posts WHERE removed_at IS NOT NULL";
    assert_eq!(scene.rows(removed).await, [""; 0]);
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
            let digest = Sha256::digest(format!("{key}{}", name.to_lowercase()));
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
        let topics = [climate(5)];
        let collect = async || {
            if store_author {
                scene.collect_with_authors(&topics).await
            } else {
                scene.collect(&topics).await
            }
        };
        let posts = [by("a", "someone"), by("b", "other")];
        scene.page("climate", None, &posts, None).await;
        collect().await;
        assert_eq!(scene.rows(KNOWN).await, ["t3_a", "t3_b"]);

        let posts = [child("a", &json!({"author": gone})), by("b", "other")];
        scene.page("climate", None, &posts, None).await;
        let reports = collect().await;
        assert_eq!((reports[0].stored.new, reports[0].stored.changed), (0, 1));
        assert_eq!(reports[0].stored.edited, 0);
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
    scene.hot("food", "", "f", "").await;

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
        let reports = scene.collect_with_authors(&[climate(5)]).await;
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
