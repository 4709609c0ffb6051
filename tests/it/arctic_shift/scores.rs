//! Tests that a score is flagged if the archive fetched it too soon after posting, and that data from Reddit takes
//! precedence over the archive's.

use super::*;

/// Returns rows of the archive: (id, fields, true if the score is flagged as a placeholder).
fn readings() -> Vec<(&'static str, Value, bool)> {
    let hours = |n: i64| START + n * 3_600;
    vec![
        ("twice", json!({}), false),
        (
            "once",
            json!({"score": 1, "num_comments": 0, "_meta": null}),
            true,
        ),
        (
            "note",
            json!({"score": 1, "_meta": {"note": "no_2nd_retrieval"}}),
            true,
        ),
        (
            "utc",
            json!({"score": 1, "_meta": null, "retrieved_on": null, "retrieved_utc": hours(1)}),
            true,
        ),
        (
            "later",
            json!({"_meta": null, "retrieved_on": hours(37)}),
            false,
        ),
        ("none", json!({"score": null, "_meta": null}), false),
        (
            "silent",
            json!({"_meta": null, "retrieved_on": null}),
            false,
        ),
    ]
}

const FLAGS: &str = "SELECT fullname, reddit_score_is_placeholder FROM posts ORDER BY fullname";

fn flags() -> Vec<String> {
    let mut flags: Vec<String> = readings()
        .iter()
        .map(|(id, _, flagged)| format!("t3_{id} {}", u8::from(*flagged)))
        .collect();
    flags.sort();
    flags
}

#[tokio::test]
async fn a_score_read_too_early_is_flagged() {
    let scene = Scene::new().await;
    scene.put(
        readings()
            .iter()
            .map(|(id, fields, _)| row_with(id, 0, fields)),
    );
    scene.collect_one(climate(100)).await;
    assert_eq!(scene.rows(FLAGS).await, flags());

    // A row without a retrieval time counts as fetched now, which is soon after posting.
    let fresh = NOW - START - 3_600;
    let mut silent = row_with("fresh", fresh, &json!({"_meta": null}));
    silent.as_object_mut().unwrap().remove("retrieved_on");
    scene.put([silent]);
    scene.collect_one(climate(100)).await;
    let fresh = "SELECT reddit_score_is_placeholder FROM posts WHERE fullname = 't3_fresh'";
    assert_eq!(scene.rows(fresh).await, ["1"]);
}

#[tokio::test]
async fn a_real_score_replaces_a_placeholder_and_never_the_reverse() {
    const SCORE: &str = "SELECT reddit_score, num_comments, upvote_ratio, reddit_score_is_placeholder, source FROM \
        posts";
    let placeholder = json!({"score": 1, "num_comments": 0, "upvote_ratio": 1.0, "_meta": null});
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.put([row_with("a", 0, &placeholder)]);
    scene.collect_one(climate(5)).await;
    assert_eq!(scene.rows(SCORE).await, ["1 0 1.0 1 arctic-shift"]);
    // The archive has fetched the post again.
    let again = Scene::of(&database).await;
    again.put([row("a", 0)]);
    again.collect_one(climate(5)).await;
    assert_eq!(scene.rows(SCORE).await, ["40 7 0.9 0 arctic-shift"]);
    // Late imports: a dump of the first reading, and a row without a score.
    for fields in [
        &placeholder,
        &json!({"score": null, "num_comments": null, "upvote_ratio": null}),
    ] {
        let program = Program::with_database(&database.url);
        program.write("RS.ndjson", row_with("a", 0, fields).to_string());
        program.ok("import --format dump RS.ndjson");
        assert_eq!(scene.rows(SCORE).await, ["40 7 0.9 0 import"], "{fields}");
    }
}

/// Collects a listing with this child from Reddit into the same database.
async fn from_reddit(scene: &Scene, child: Value) {
    let server = reddit::server().await;
    let page = json!({"kind": "Listing", "data": {"after": null, "children": [child]}});
    reddit::mount_listing(&server, ResponseTemplate::new(200).set_body_json(page), 1).await;
    let (reddit, _) = reddit::client(&server.uri());
    let reddit = Arc::into_inner(reddit).unwrap();
    let topics = [climate(5)];
    let collected = scene
        .context
        .collect(&reddit, &topics, READ_OPTIONS, false, &|_| {});
    assert_eq!(collected.await.unwrap().0[0].outcome, Outcome::Ok);
}

fn of_reddit(id: &str, fields: &Value) -> Value {
    let mut child = reddit::page_json(&[id])["data"]["children"][0].take();
    child["data"]["created_utc"] = json!(START);
    for (name, value) in fields.as_object().unwrap() {
        child["data"][name] = value.clone();
    }
    child
}

#[tokio::test]
async fn data_from_reddit_takes_precedence_over_the_archive() {
    const ROW: &str = "SELECT title, reddit_score, reddit_score_is_placeholder, source FROM posts";
    let placeholder = json!({"score": 1, "_meta": null});
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.put([row_with("a", 0, &placeholder)]);
    scene.collect_one(climate(5)).await;
    assert_eq!(scene.rows(ROW).await, ["Title a 1 1 arctic-shift"]);
    from_reddit(
        &scene,
        of_reddit("a", &json!({"title": "Edited", "score": 77})),
    )
    .await;
    assert_eq!(
        scene.rows(ROW).await,
        ["Edited 77 0 reddit"],
        "Reddit's score clears the flag"
    );
    // The archive returns both of its versions again, and neither replaces Reddit's data.
    for fields in [&placeholder, &json!({"title": "Old"})] {
        let again = Scene::of(&database).await;
        again.put([row_with("a", 0, fields)]);
        let report = again.collect_one(climate(5)).await;
        assert_eq!((report.new, report.changed), (0, 0), "{fields}");
        assert_eq!(again.rows(ROW).await, ["Edited 77 0 reddit"], "{fields}");
    }
}
