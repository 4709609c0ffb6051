//! Tests that a deletion which any source reports purges the stored post at once.

use super::*;

/// Returns a post as a source reports it after it was deleted or removed.
fn reported(id: &str, reason: PurgeReason) -> Post {
    Post {
        title: String::new(),
        selftext: "[deleted]".into(),
        author: None,
        permalink: None,
        removal: Some(reason),
        ..post(id, "")
    }
}

/// Stores and labels four posts, and `x`, a crosspost of `b`.
async fn labelled(database: &TestDatabase) -> Scene {
    let scene = Scene::of(database).await;
    let crosspost = Post {
        crosspost_parent: Some("b".parse().unwrap()),
        ..post("x", "Crosspost")
    };
    let mut posts = some(&["a", "b", "c", "old"]);
    posts.push(crosspost);
    scene.save(SourceKind::Reddit, &posts).await;
    assert_eq!(scene.label().await, 5);
    scene
}

/// Returns reports about two posts of [`labelled`] and a new one.
fn reports() -> [Post; 3] {
    [
        reported("a", PurgeReason::Deleted),
        reported("b", PurgeReason::Removed),
        reported("new", PurgeReason::Deleted),
    ]
}

#[tokio::test]
async fn a_reported_deletion_purges_the_stored_post_its_labels_and_crossposts() {
    for database in databases() {
        let scene = labelled(&database).await;
        // Retention has deleted the texts, but not the labels.
        scene.clock.advance(Duration::from_hours(49));
        scene.retain().await;
        let stored = scene.save(SourceKind::ArcticShift, &reports()).await;
        assert_eq!((stored.purged, stored.tombstoned, stored.new), (3, 0, 1));
        assert_eq!(scene.stored().await, ["t3_c", "t3_new", "t3_old"]);
        assert_eq!(
            scene.tombstones().await,
            ["t3_a deleted", "t3_b removed", "t3_x shown"]
        );
        let counts = "SELECT (SELECT COUNT(*) FROM classifications), (SELECT COUNT(*) FROM pair_logits), \
                      (SELECT COUNT(*) FROM sightings WHERE fullname IN ('t3_a', 't3_b', 't3_x'))";
        assert_eq!(scene.rows(counts).await, ["2 2 0"]);
        assert!(scene.is_rewrite_due().await);
    }
}

#[tokio::test]
async fn after_a_report_neither_a_second_one_nor_a_text_changes_anything() {
    for database in databases() {
        let scene = labelled(&database).await;
        scene.save(SourceKind::ArcticShift, &reports()).await;
        let again = scene.save(SourceKind::Import, &reports()).await;
        assert_eq!((again.purged, again.tombstoned, again.new), (0, 2, 0));
        let text = scene.import(&["a", "b"]).await;
        assert_eq!((text.purged, text.tombstoned), (0, 2));
        assert_eq!(scene.stored().await, ["t3_c", "t3_new", "t3_old"]);
    }
}

#[tokio::test]
async fn a_new_post_that_is_reported_as_deleted_is_stored_without_text() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let deleted = reported("new", PurgeReason::Deleted);
        assert_eq!(
            scene.save_one(SourceKind::ArcticShift, &deleted).await.new,
            1
        );
        assert_eq!(scene.label().await, 0);
        // An import brings its text, and another one its deletion.
        scene.import(&["new"]).await;
        assert_eq!(scene.label().await, 1);
        assert_eq!(scene.save_one(SourceKind::Import, &deleted).await.purged, 1);
        assert_eq!(scene.stored().await, [""; 0]);
    }
}
