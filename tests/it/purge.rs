//! Tests that posts deleted on Reddit are deleted here, on both databases, and stay deleted.

mod checks;
mod command;
mod reports;
mod scene;

use std::time::Duration;

use serde_json::{Value, json};
use topicmill::purge::{PurgePlan, Retention};
use topicmill_core::{Post, PurgeReason, SourceKind};

pub use self::scene::{checking, deleted, holds, post, removed, some, stored_labels, to_purge};
pub use crate::collect::Scene;
use crate::support::builders;
use crate::support::postgres::{TestDatabase, databases};

#[tokio::test]
async fn posts_deleted_on_reddit_are_purged_with_all_derived_data() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.import(&["a", "b", "c", "d", "e"]).await;
        assert_eq!(scene.label().await, 5);

        let authorless = json!({"author": "[deleted]"});
        scene
            .gone(&[
                ("a", deleted()),
                ("b", removed()),
                ("c", Value::Null),
                ("d", authorless),
            ])
            .await;
        let report = scene.check().await;
        assert_eq!(
            (
                report.checked,
                report.purged,
                report.deleted,
                report.removed,
                report.missing
            ),
            (5, 3, 1, 1, 1)
        );
        assert_eq!(
            (report.requests, report.left, report.reconciled),
            (1, 0, true)
        );

        assert_eq!(scene.stored().await, ["t3_d", "t3_e"]);
        assert_eq!(
            scene.tombstones().await,
            ["t3_a deleted", "t3_b removed", "t3_c missing"]
        );
        for (table, left) in [
            ("classifications", 2),
            ("label_scores", 2),
            ("pair_logits", 2),
            ("sightings", 2),
            ("backlog", 0),
        ] {
            assert_eq!(scene.count(table).await, left, "{table}");
        }
        assert_eq!(
            scene
                .rows("SELECT author FROM posts ORDER BY fullname")
                .await,
            ["null", "someone"],
            "the author of `d` is erased, but not the post"
        );
        for view in [
            "labeled_posts",
            "labeled_posts_all",
            "post_scores",
            "post_scores_all",
            "uncertain_posts",
        ] {
            let purged = format!("{view} WHERE fullname IN ('t3_a', 't3_b', 't3_c')");
            assert_eq!(scene.count(&purged).await, 0, "{view}");
        }
    }
}

#[tokio::test]
async fn a_tombstone_blocks_imports_and_reddit_lifts_only_moderator_removals() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let all = some(&["a", "b", "c", "d"]);
        scene.save(SourceKind::Import, &all).await;
        scene
            .gone(&[("a", deleted()), ("b", removed()), ("c", Value::Null)])
            .await;
        scene.check().await;
        scene.request("d").await;
        assert_eq!(scene.stored().await, [""; 0]);

        // A file restores nothing, nor does a listing that shows the post as removed.
        let from_file = scene.save(SourceKind::Import, &all).await;
        assert_eq!((from_file.new, from_file.tombstoned), (0, 4));
        let still: Vec<Post> = all
            .iter()
            .cloned()
            .map(|p| Post {
                removal: Some(PurgeReason::Removed),
                ..p
            })
            .collect();
        let shown = scene.save(SourceKind::Reddit, &still).await;
        assert_eq!((shown.new, shown.tombstoned), (0, 4));
        assert_eq!(scene.stored().await, [""; 0]);
        assert_eq!(scene.count("sightings").await, 0);

        // Reddit shows all of them again.
        let alive = scene.save(SourceKind::Reddit, &all).await;
        assert_eq!((alive.new, alive.tombstoned), (2, 2));
        assert_eq!(scene.stored().await, ["t3_b", "t3_c"]);
        assert_eq!(scene.tombstones().await, ["t3_a deleted", "t3_d requested"]);

        // A tombstone that may be lifted is replaced by one that may not, but not the reverse.
        scene.gone(&[("b", removed())]).await;
        scene.clock.advance(Duration::from_hours(1));
        scene.check().await;
        scene.request("b").await;
        assert_eq!(
            scene.tombstones().await,
            ["t3_a deleted", "t3_b requested", "t3_d requested"]
        );
    }
}

/// Purges the texts of posts older than two days: `a` and `b`, which are labelled, and `unlabelled`; `young` keeps its
/// text.
async fn after_retention(database: &TestDatabase) -> Scene {
    let scene = Scene::of(database).await;
    scene.save(SourceKind::Reddit, &some(&["a", "b"])).await;
    assert_eq!(scene.label().await, 2);
    // A dump contains this post, too.
    for source in [SourceKind::ArcticShift, SourceKind::Import] {
        scene.save(source, &some(&["unlabelled"])).await;
    }
    scene.enqueue(scene.target().await).await;
    scene.clock.advance(Duration::from_hours(47));
    scene.save(SourceKind::Reddit, &some(&["young"])).await;
    scene.clock.advance(Duration::from_hours(2));
    let collected = PurgePlan {
        retention: Some(Retention {
            imports: false,
            ..builders::RETENTION
        }),
        ..PurgePlan::default()
    };
    assert_eq!(scene.purge(&collected).await.texts, 3);
    scene
}

const TEXTS: &str = "SELECT p.fullname, p.title, p.selftext, p.url, p.permalink, p.author, p.flair, l.label \
                       FROM posts p JOIN labeled_posts l ON l.fullname = p.fullname ORDER BY p.fullname";

#[tokio::test]
async fn retention_removes_the_text_and_keeps_the_label() {
    for database in databases() {
        let scene = after_retention(&database).await;
        assert_eq!(scene.retain().await.texts, 0);
        let expected = [
            "t3_a   null null null Discussion climate",
            "t3_b   null null null Discussion climate",
            "t3_unlabelled   null null null Discussion null",
            "t3_young Title-young Body of Title-young null /r/climate/comments/young/Title-young/ \
             someone Discussion null",
        ];
        assert_eq!(scene.rows(TEXTS).await, expected);
        // Only posts with text are enqueued.
        let state = scene.state().await;
        assert_eq!(
            (state.labelled, state.unlabelled, state.without_text),
            (2, 1, 1)
        );
        assert_eq!(scene.label().await, 1);
    }
}

#[tokio::test]
async fn a_post_without_text_gets_new_votes_but_no_text_and_is_purged_once_deleted() {
    for database in databases() {
        let scene = after_retention(&database).await;
        let before = scene.rows(TEXTS).await;
        for (source, changed) in [(SourceKind::Reddit, 1), (SourceKind::Import, 0)] {
            let again = Post {
                score: Some(99),
                ..post("a", "Edited")
            };
            let stored = scene.save(source, &[again]).await;
            assert_eq!((stored.changed, stored.edited), (changed, 0));
        }
        assert_eq!(scene.rows(TEXTS).await, before);
        let score = "SELECT reddit_score FROM posts WHERE fullname = 't3_a'";
        assert_eq!(scene.rows(score).await, ["99"]);

        scene.gone(&[("a", deleted())]).await;
        scene.clock.advance(Duration::from_hours(1));
        scene.check().await;
        assert_eq!(scene.stored().await, ["t3_b", "t3_unlabelled", "t3_young"]);
    }
}
