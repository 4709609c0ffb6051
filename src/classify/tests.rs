//! Labels a SQLite database with a scripted engine, and checks what is written, released and rejected after failures.

mod scene;
mod shortlist;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::scene::*;
use super::*;
use topicmill_core::model_kind::NliClasses;
use topicmill_core::test_examples::set;
use topicmill_core::{AuthorPolicy, Mode, ModelKind, Post, SourceKind, Stage, Timestamp};
use topicmill_score::batch::Batch;
use topicmill_score::engine::{Engine, EngineError, Logits};
use topicmill_score::folder::ModelFolder;
use topicmill_score::test_engine::{ScriptedEngine, nli_folder};
use topicmill_score::{Labeler, Shortlist};
use topicmill_store::{Access, Page};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_backlog_is_shared_among_the_engines_of_a_process() {
    assert_shared(100, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_limit_is_shared_among_the_engines_of_a_process() {
    assert_shared(5_000, Some(100)).await;
}

/// Labels a hundred posts with two engines, and checks that both get some.
async fn assert_shared(posts: usize, limit: Option<u64>) {
    let scene = Scene::with_posts(posts).await;
    let (to_one, from_other) = std::sync::mpsc::channel();
    let (to_other, from_one) = std::sync::mpsc::channel();
    // Each engine waits in its first batch until the other also has posts.
    let both = Arc::new(AtomicU64::new(0));
    let meets = |to: std::sync::mpsc::Sender<()>, from: std::sync::mpsc::Receiver<()>| {
        let met = Arc::clone(&both);
        let hook = move |batch: usize| {
            if batch > 1 {
                return Ok(());
            }
            // The other engine may have ended already.
            let _ = to.send(());
            if from.recv_timeout(Duration::from_secs(10)).is_ok() {
                met.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        Box::new(HookedEngine { batches: 0, hook }) as Box<dyn Engine>
    };
    let engines = vec![meets(to_one, from_one), meets(to_other, from_other)];
    let labels = set(&["food", "music", "travel"]);
    let options = Options { limit, ..options() };
    let (ended, done) = scene.label_with(engines, &labels, options).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed), (100, 0));
    assert_eq!(
        both.load(Ordering::Relaxed),
        2,
        "both engines have posts at the same time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_failure_loses_no_scored_post() {
    let scene = Scene::with_posts(600).await;
    let broken = |batch| match batch {
        0..20 => Ok(()),
        _ => Err(EngineError::Run("the device is gone".into())),
    };
    let (ended, done) = scene.label(broken).await;
    assert!(matches!(ended, Err(StageError::Labeler(_))), "{ended:?}");
    assert!(done.posts > 0 && done.posts < 600, "{done:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    assert_eq!(scene.count("leases").await, 0, "the rest is released");
    let (ended, rest) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    assert_eq!(done.posts + rest.posts, 600);
    scene.assert_complete(600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_under_a_lost_lease_are_rejected_and_counted() {
    let scene = Scene::with_posts(900).await;
    let (store, runtime) = (scene.store.clone(), tokio::runtime::Handle::current());
    let losing_leases = move |batch| {
        if batch == 2 {
            // Delete the lease row, as when another worker reclaims an expired lease.
            for (lease, _) in runtime.block_on(store.backlog().lease_holders()).unwrap() {
                runtime.block_on(store.backlog().release(lease)).unwrap();
            }
        }
        Ok(())
    };
    let (ended, done) = scene.label(losing_leases).await;
    ended.unwrap();
    assert!(done.refused > 0, "{done:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    let (ended, _) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    scene.assert_complete(900).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_label_set_costs_only_its_new_pairs() {
    let scene = Scene::with_posts(700).await;
    let done = scene.label_as(&set(&["food", "music", "travel"])).await;
    assert_eq!((done.posts, done.pairs, done.pairs_reused), (700, 2_100, 0));

    let more = scene
        .label_as(&set(&["food", "books", "music", "travel"]))
        .await;
    assert_eq!(
        (more.posts, more.pairs, more.pairs_reused),
        (700, 700, 2_100)
    );
    let fewer = scene.label_as(&set(&["travel", "food"])).await;
    assert_eq!(
        (fewer.posts, fewer.pairs, fewer.pairs_reused),
        (700, 0, 1_400)
    );
    let mut multi = set(&["food", "music", "travel"]);
    (multi.mode, multi.threshold) = (Mode::Multi, 0.5);
    let other_mode = scene.label_as(&multi).await;
    assert_eq!((other_mode.posts, other_mode.pairs), (700, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_scored_once_for_all_posts_that_have_it() {
    let scene = Scene::with_posts(0).await;
    // Some texts repeat within a window, some across windows.
    let posts = (0..6_000).map(|i| (format!("p{i:04}"), format!("text {}", i % 1_500)));
    scene.add(posts).await;
    let labels = set(&["food", "music", "travel"]);
    let done = scene.label_as(&labels).await;
    assert_eq!(
        (done.posts, done.pairs, done.pairs_reused),
        (6_000, 4_500, 13_500)
    );
    scene.assert_complete(6_000).await;
    assert_eq!(scene.count("pair_logits").await, 4_500);

    // A repost of a known text costs nothing; an edited post is scored again.
    let repost = [
        ("q1".to_owned(), "text 7".to_owned()),
        ("p0003".to_owned(), "edited".to_owned()),
    ];
    scene.add(repost.into_iter()).await;
    let done = scene.label_as(&labels).await;
    assert_eq!((done.posts, done.pairs, done.pairs_reused), (2, 3, 3));
    scene.assert_complete(6_001).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_engines_give_the_same_scores_as_one() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(3_000).await;
    let engines: Vec<Box<dyn Engine>> = (0..4)
        .map(|_| Box::new(ScriptedEngine::default()) as _)
        .collect();
    let (ended, done) = scene.label_with(engines, &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.pairs, done.refused), (3_000, 9_000, 0));
    scene.assert_complete(3_000).await;
    let alone = Scene::with_posts(3_000).await;
    alone.label_as(&labels).await;
    let scores = "SELECT fullname, label, score FROM post_scores ORDER BY 1, 2";
    let scores = [
        scene.store.query(scores).await,
        alone.store.query(scores).await,
    ];
    assert_eq!(
        scores[0].as_ref().unwrap().rows,
        scores[1].as_ref().unwrap().rows
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_fails_stops_the_others_which_write_their_results() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(9_000).await;
    let breaks = ScriptedEngine {
        batches_left: 3,
        ..ScriptedEngine::default()
    };
    let engines: Vec<Box<dyn Engine>> = vec![Box::new(breaks), Box::new(ScriptedEngine::default())];
    let (ended, done) = scene.label_with(engines, &labels, options()).await;
    assert!(matches!(ended, Err(StageError::Labeler(_))), "{ended:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    assert_eq!(scene.count("leases").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_posts_are_retried_on_request() {
    let scene = Scene::with_posts(50).await;
    let labels = set(&["food", "music"]);
    // The limit is the number of posts, because a failed post would otherwise be retried at once.
    let run = async |engine, retry_failed, posts| {
        let options = Options {
            retry_failed,
            limit: Some(posts),
            ..options()
        };
        let (ended, done) = scene
            .label_with(vec![Box::new(engine)], &labels, options)
            .await;
        ended.unwrap();
        done
    };
    for (attempt, posts) in [(1, 49), (2, 0), (3, 0)] {
        let done = run(poisoned(), false, posts + 1).await;
        let parked = u64::from(attempt == MAX_ATTEMPTS);
        assert_eq!(
            (done.posts, done.failed, done.parked),
            (posts, 1, parked),
            "{attempt}"
        );
    }
    let done = run(ScriptedEngine::default(), false, 1).await;
    assert_eq!(
        (done.posts, done.parked),
        (0, 1),
        "not retried without a request"
    );
    let done = run(ScriptedEngine::default(), true, 1).await;
    assert_eq!((done.posts, done.parked), (1, 0));
}
