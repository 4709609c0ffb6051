//! Tests that a score is flagged if the archive fetched it too soon after posting, and that data from Reddit takes
//! precedence over the archive's.

use super::*;
use crate::collect::child;

#[tokio::test]
async fn a_score_read_too_early_is_flagged() {
    let hours = |n: i64| START + n * 3_600;
    let (early, late) = (hours(1), hours(37));
    let utc = json!({"score": 1, "_meta": null, "retrieved_on": null, "retrieved_utc": early});
    let note = json!({"score": 1, "_meta": {"note": "no_2nd_retrieval"}});
    let once = json!({"score": 1, "num_comments": 0, "_meta": null});
    let scene = Scene::new().await;
    scene.put([
        row("twice", 0),
        row_with("once", 0, &once),
        row_with("note", 0, &note),
        row_with("utc", 0, &utc),
        row_with("later", 0, &json!({"_meta": null, "retrieved_on": late})),
        row_with("none", 0, &json!({"score": null, "_meta": null})),
        row_with("silent", 0, &json!({"_meta": null, "retrieved_on": null})),
    ]);
    // A row without a retrieval time counts as fetched now, which is soon after posting.
    let mut fresh = row_with("fresh", NOW - START - 3_600, &json!({"_meta": null}));
    fresh.as_object_mut().unwrap().remove("retrieved_on");
    scene.put([fresh]);
    scene.collect_one(climate(100)).await;
    let flagged = "SELECT fullname FROM posts WHERE reddit_score_is_placeholder ORDER BY fullname";
    let expected = ["t3_fresh", "t3_note", "t3_once", "t3_utc"];
    assert_eq!(scene.rows(flagged).await, expected);
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
        assert_eq!(
            scene.rows(SCORE).await,
            ["40 7 0.9 0 arctic-shift"],
            "{fields}"
        );
    }
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
    let live = crate::collect::Scene::of(&database).await;
    let edited = json!({"title": "Edited", "score": 77, "created_utc": START});
    live.page("climate", None, &[child("a", &edited)], None)
        .await;
    live.collect_one(climate(5)).await;
    // Reddit's score clears the flag.
    assert_eq!(scene.rows(ROW).await, ["Edited 77 0 reddit"]);
    // The archive returns both of its versions again, and neither replaces Reddit's data.
    for fields in [&placeholder, &json!({"title": "Old"})] {
        let again = Scene::of(&database).await;
        again.put([row_with("a", 0, fields)]);
        let report = again.collect_one(climate(5)).await;
        assert_eq!(
            (report.stored.new, report.stored.changed),
            (0, 0),
            "{fields}"
        );
        assert_eq!(again.rows(ROW).await, ["Edited 77 0 reddit"], "{fields}");
    }
}
