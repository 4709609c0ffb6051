//! Attacks on purging: posts that return, labels without text, bytes that remain in files.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use topicmill::purge::PurgePlan;
use topicmill_core::{Post, SourceKind, Stage};
use topicmill_store::Written;

use crate::purge::{Scene, deleted, post, some, stored_labels};
use crate::support::builders;
use crate::support::postgres::{databases, postgres};
use crate::support::wait::{BLOCKED, sessions, until};

/// Returns a crosspost of a post, with a copy of its title and body.
fn crosspost(id: &str, of: &Post) -> Post {
    Post {
        title: of.title.clone(),
        selftext: of.selftext.clone(),
        url: of.permalink.clone(),
        is_self: false,
        crosspost_parent: Some(of.fullname.clone()),
        ..post(id, &format!("Crosspost-{id}"))
    }
}

#[tokio::test]
async fn a_text_being_purged_is_not_enqueued() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    scene.import(&["a", "b"]).await;
    let target = scene.target().await;
    // Retention, paused before it commits.
    let mut retention = PgConnection::connect(&database.url).await.unwrap();
    let mut taking = retention.begin().await.unwrap();
    sqlx::query("UPDATE things SET title = '', selftext = '', text_purged_at = now() WHERE fullname = 't3_a'")
        .execute(&mut *taking)
        .await
        .unwrap();
    let store = scene.store().clone();
    let queueing = tokio::spawn(async move { store.backlog().enqueue_missing(target).await });
    let waits = async || sessions(&database.url, BLOCKED).await > 0;
    until("enqueueing waits for retention", waits).await;
    taking.commit().await.unwrap();
    queueing.await.unwrap().unwrap();
    assert_eq!(scene.rows("SELECT fullname FROM backlog").await, ["t3_b"]);
}

#[tokio::test]
async fn posts_with_missing_or_altered_text_are_never_claimed() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let posts = some(&["edited", "taken", "whole"]);
        scene.save(SourceKind::Import, &posts).await;
        let target = scene.target().await;
        scene.enqueue(target).await;
        // A state that an earlier version or hand-written SQL may have left.
        database
            .run("UPDATE things SET title = '', selftext = '', text_purged_at = updated_at WHERE fullname = 't3_taken'")
            .await;
        database
            .run("UPDATE things SET title = 'Another' WHERE fullname = 't3_edited'")
            .await;
        let (_, claim) = scene.claim(target).await;
        let claimed: Vec<&str> = claim.posts.iter().map(|p| p.fullname.as_str()).collect();
        assert_eq!(claimed, ["t3_whole"]);
        assert_eq!(
            scene
                .rows("SELECT fullname, error FROM backlog WHERE lease_id IS NULL")
                .await,
            ["t3_edited its text does not match its hash: collect or import the post again"]
        );
        // Only such posts are left, so the next claim is empty, and the run ends.
        assert!(scene.claim(target).await.1.posts.is_empty());
        // When the posts are imported again, the edited one is claimed, with its original text.
        scene.save(SourceKind::Import, &posts).await;
        let (_, claim) = scene.claim(target).await;
        assert_eq!(claim.posts[0].fullname.as_str(), "t3_edited");
        assert!(claim.posts[0].text.starts_with("Title-edited"));
    }
}

#[tokio::test]
async fn a_text_removed_or_edited_during_scoring_gets_neither_label_nor_logits() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.import(&["old", "twin"]).await;
        scene.clock.advance(Duration::from_hours(49));
        scene.import(&["edited", "whole"]).await;
        let target = scene.target().await;
        scene.enqueue(target).await;
        let (run, claim) = scene.claim(target).await;
        scene.retain().await;
        let edited = Post {
            title: "Edited".into(),
            ..post("edited", "Title-edited")
        };
        scene.save(SourceKind::Import, &[edited]).await;

        let written = scene.complete(target, run, &claim).await;
        assert_eq!(written, Written::Stored(stored_labels(1)));
        let labelled = "SELECT fullname FROM classifications";
        assert_eq!(scene.rows(labelled).await, ["t3_whole"]);
        assert_eq!(scene.count("pair_logits").await, 1);
        // The edited post is still in the backlog, with its new text.
        let (_, claim) = scene.claim(target).await;
        assert_eq!(claim.posts.len(), 1);
        assert!(claim.posts[0].text.starts_with("Edited"));
    }
}

#[tokio::test]
async fn logits_last_as_long_as_a_post_has_their_text() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let same_text = ["a", "twin", "purged"].map(|id| post(id, "Same"));
        scene.save(SourceKind::Import, &same_text).await;
        scene.label().await;
        assert_eq!(scene.count("pair_logits").await, 1);
        scene.request("purged").await;
        assert_eq!(scene.count("pair_logits").await, 1);
        let edit = |id: &str, title: &str| Post {
            title: title.into(),
            ..post(id, "Same")
        };
        // Another post still has the earlier text.
        scene.save(SourceKind::Import, &[edit("a", "Second")]).await;
        assert_eq!(scene.count("pair_logits").await, 1);
        scene.label().await;
        assert_eq!(scene.count("pair_logits").await, 2);
        scene
            .save(SourceKind::Import, &[edit("twin", "Third")])
            .await;
        assert_eq!(scene.count("pair_logits").await, 1);
        scene.save(SourceKind::Import, &[edit("a", "Fourth")]).await;
        scene.request("a").await;
        scene.request("twin").await;
        assert_eq!(scene.count("pair_logits").await, 0);
    }
}

#[tokio::test]
async fn concurrent_purges_of_a_shared_text_leave_no_logits() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    for round in 0..20 {
        let ids = [format!("a{round}"), format!("b{round}")];
        let same = |id: &String| post(id, &format!("Same-{round}"));
        scene
            .save(SourceKind::Import, &ids.each_ref().map(same))
            .await;
        scene.label().await;
        let edit = |id: &String| post(id, &format!("Other-{id}"));
        let (one, two) = ([edit(&ids[0])], [edit(&ids[1])]);
        tokio::join!(
            scene.save(SourceKind::Import, &one),
            scene.save(SourceKind::Import, &two)
        );
    }
    let orphans =
        "pair_logits l WHERE NOT EXISTS (SELECT 1 FROM things p WHERE p.text_hash = l.text_hash)";
    assert_eq!(scene.count(orphans).await, 0);
}

#[tokio::test]
async fn a_crosspost_is_purged_with_its_original_and_no_import_restores_it() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        let shown = [
            crosspost("x", &parent),
            Post {
                crosspost_parent: "x".parse().ok(),
                ..crosspost("y", &parent)
            },
            post("other", "Other"),
        ];
        scene.save(SourceKind::Import, &shown).await;
        scene.save_one(SourceKind::Import, &parent).await;
        scene.label().await;
        let report = scene.request("p").await;
        assert_eq!((report.purged, report.crossposts), (1, 2));
        assert_eq!(scene.stored().await, ["t3_other"]);
        assert_eq!(scene.count("pair_logits").await, 1);
        let tombstones = ["t3_p requested", "t3_x shown", "t3_y shown"];
        assert_eq!(scene.tombstones().await, tombstones);

        // Neither a file nor Reddit brings it back while its original is gone.
        for source in [SourceKind::Import, SourceKind::Reddit] {
            let again = scene.save_one(source, &crosspost("x", &parent)).await;
            assert_eq!((again.new, again.tombstoned), (0, 1));
        }
        assert_eq!(scene.stored().await, ["t3_other"]);
    }
}

#[tokio::test]
async fn a_crosspost_reveals_the_deletion_of_an_unstored_original() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        let stored = [crosspost("x", &parent), post("other", "Other")];
        scene.save(SourceKind::Import, &stored).await;
        let mut gone = deleted();
        gone["name"] = json!("t3_p");
        let shows = json!({"crosspost_parent_list": [gone]});
        scene.gone(&[("x", shows)]).await;
        let report = scene.check().await;
        assert_eq!((report.deleted, report.crossposts), (1, 1));
        assert_eq!(scene.stored().await, ["t3_other"]);
        assert_eq!(scene.tombstones().await, ["t3_p deleted", "t3_x shown"]);
    }
}

#[tokio::test]
async fn retention_removes_the_text_from_crossposts() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        scene.save_one(SourceKind::Import, &parent).await;
        scene.clock.advance(Duration::from_hours(49));
        scene
            .save_one(SourceKind::Import, &crosspost("x", &parent))
            .await;
        assert_eq!(scene.retain().await.texts, 2);
        // A crosspost that is imported later keeps its own title, but no part of the removed text.
        let late = Post {
            title: "Look at this".into(),
            ..crosspost("late", &parent)
        };
        scene
            .save(SourceKind::Import, &[late, crosspost("x", &parent)])
            .await;
        assert_eq!(
            scene
                .rows("SELECT fullname, title, selftext FROM posts ORDER BY fullname")
                .await,
            ["t3_late Look at this ", "t3_p  ", "t3_x  "]
        );
    }
}

/// Returns a crosspost of a picture as an earlier version stored it: with the parent's body, but not its id.
fn without_parent(id: &str, of: &Post) -> Post {
    Post {
        url: Some("https://i.redd.it/picture.jpg".into()),
        crosspost_parent: None,
        ..crosspost(id, of)
    }
}

#[tokio::test]
async fn a_crosspost_found_later_is_purged_with_its_original() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        let showing = Post {
            crosspost_parent: "x".parse().ok(),
            ..crosspost("y", &parent)
        };
        let stored = [without_parent("x", &parent), showing, parent.clone()];
        scene.save(SourceKind::Reddit, &stored).await;
        assert_eq!(scene.request("p").await.crossposts, 0);
        assert_eq!(scene.stored().await, ["t3_x", "t3_y"]);
        assert!(database.url.starts_with("postgres") || !scene.is_rewrite_due().await);
        // Reddit lists it again, now with its parent.
        let again = scene
            .save_one(SourceKind::Reddit, &crosspost("x", &parent))
            .await;
        assert_eq!((again.tombstoned, again.purged), (1, 2));
        assert!(scene.stored().await.is_empty());
        let tombstones = ["t3_p requested", "t3_x shown", "t3_y shown"];
        assert_eq!(scene.tombstones().await, tombstones);
        assert!(scene.is_rewrite_due().await);
    }
}

#[tokio::test]
async fn a_crosspost_reported_by_reddit_is_purged_with_its_original() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let (gone, named) = (post("p", "A secret"), post("q", "Another"));
        let (taken, there) = (post("r", "Too old"), post("s", "There"));
        scene.save_one(SourceKind::Import, &taken).await;
        scene.clock.advance(Duration::from_hours(49));
        let stored = [
            without_parent("x", &gone),
            without_parent("y", &named),
            without_parent("z", &taken),
            without_parent("alive", &there),
        ];
        scene.save(SourceKind::Import, &stored).await;
        let plan = PurgePlan {
            ids: vec![crate::purge::to_purge(named.fullname.as_str())],
            retention: Some(builders::RETENTION),
            ..PurgePlan::default()
        };
        assert_eq!(scene.purge(&plan).await.texts, 1);
        let mut fates = deleted();
        fates["name"] = json!("t3_p");
        // For `x`, Reddit shows all of the parent's fields; for the others, it shows only the parent's name.
        scene
            .gone(&[
                ("x", json!({"crosspost_parent_list": [fates]})),
                ("y", json!({"crosspost_parent": "t3_q"})),
                ("z", json!({"crosspost_parent": "t3_r"})),
                ("alive", json!({"crosspost_parent": "t3_s"})),
            ])
            .await;
        let report = scene.check().await;
        assert_eq!((report.deleted, report.crossposts), (1, 2));
        let left = "SELECT fullname, selftext, COALESCE(crosspost_parent, '') FROM posts ORDER BY fullname";
        assert_eq!(
            scene.rows(left).await,
            ["t3_alive Body of There t3_s", "t3_r  ", "t3_z  t3_r"]
        );
        // Later purges use a parent that is found now.
        assert_eq!(scene.request("s").await.crossposts, 1);
    }
}

#[tokio::test]
async fn a_crosspost_found_after_retention_loses_its_copied_text() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        scene.save_one(SourceKind::Import, &parent).await;
        scene.clock.advance(Duration::from_hours(49));
        scene
            .save_one(SourceKind::Reddit, &without_parent("x", &parent))
            .await;
        assert_eq!(scene.retain().await.texts, 1);
        scene.store().purging().rewrite().await.unwrap();
        assert!(!scene.is_rewrite_due().await);
        let named = Post {
            url: Some("https://i.redd.it/picture.jpg".into()),
            title: "Look".into(),
            ..crosspost("x", &parent)
        };
        for due in [true, false] {
            scene.save_one(SourceKind::Reddit, &named).await;
            let left = "SELECT title, selftext, url FROM posts WHERE fullname = 't3_x'";
            assert_eq!(scene.rows(left).await, ["Look  null"]);
            assert_eq!(scene.is_rewrite_due().await, due);
            scene.store().purging().rewrite().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_purged_crosspost_does_not_return_from_a_table_without_its_parent() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let parent = post("p", "A secret");
        scene
            .save(
                SourceKind::Reddit,
                &[crosspost("x", &parent), parent.clone()],
            )
            .await;
        let mut gone = crate::purge::removed();
        gone["name"] = json!("t3_p");
        scene.gone(&[("p", gone)]).await;
        scene.clock.advance(Duration::from_hours(1));
        scene.check().await;
        assert_eq!(scene.tombstones().await, ["t3_p removed", "t3_x shown"]);
        let table = Post {
            crosspost_parent: None,
            ..crosspost("x", &parent)
        };
        for source in [SourceKind::Import, SourceKind::ArcticShift] {
            let again = scene.save_one(source, &table).await;
            assert_eq!((again.new, again.tombstoned), (0, 1));
        }
        // Reddit still shows the crosspost, but its parent is gone, so its tombstone is kept.
        scene
            .save_one(SourceKind::Reddit, &crosspost("x", &parent))
            .await;
        assert_eq!(scene.tombstones().await, ["t3_p removed", "t3_x shown"]);
        assert!(scene.stored().await.is_empty());
        // Once Reddit shows both again, both are stored.
        let both = [crosspost("x", &parent), parent.clone()];
        assert_eq!(scene.save(SourceKind::Reddit, &both).await.new, 2);
        assert!(scene.tombstones().await.is_empty());
    }
}

#[tokio::test]
async fn reddit_corrects_a_wrong_crosspost_parent() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let wrong = crosspost("x", &post("p", "Another post"));
        scene.save_one(SourceKind::Import, &wrong).await;
        let own = Post {
            crosspost_parent: None,
            ..wrong
        };
        let shown = "SELECT COALESCE(crosspost_parent, '') FROM posts";
        // A file that omits the parent does not remove the stored one.
        scene.save_one(SourceKind::Import, &own).await;
        assert_eq!(scene.rows(shown).await, ["t3_p"]);
        scene.save(SourceKind::Reddit, &[own]).await;
        assert_eq!(scene.rows(shown).await, [""]);
        scene.request("p").await;
        assert_eq!(scene.stored().await, ["t3_x"]);
    }
}

#[tokio::test]
async fn an_erased_author_name_marks_the_files_for_rewriting() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        scene.save(SourceKind::Reddit, &some(&["a"])).await;
        let name: topicmill_core::Fullname = "a".parse().unwrap();
        let checked = topicmill_store::Checked {
            visible: vec![name.clone()],
            author_deleted: vec![name],
            ..Default::default()
        };
        for due in [true, false] {
            let (run, purging) = (scene.begin(Stage::Purge).await, scene.store().purging());
            purging.purge(run, &checked, scene.now()).await.unwrap();
            assert_eq!(scene.rows("SELECT author FROM posts").await, ["null"]);
            assert_eq!(scene.is_rewrite_due().await, due);
            purging.rewrite().await.unwrap();
        }
    }
}
