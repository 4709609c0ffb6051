//! A small model that shortlists labels for the large one.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_text_without_a_shortlist_fails_alone() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(50).await;
    let options = Options {
        limit: Some(50),
        ..options()
    };
    let labelers = vec![shortlisted(poisoned(), 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed, done.pairs), (49, 1, 98));
    let error = "backlog WHERE attempts = 1 AND error LIKE 'scoring with the small model:%'";
    assert_eq!(scene.count(error).await, 1);
    assert_eq!(scene.count("leases").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn shortlisting_stops_on_request_and_a_failing_small_model_ends_the_run() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(600).await;
    let broken = ScriptedEngine {
        batches_left: 5,
        ..ScriptedEngine::default()
    };
    let labelers = vec![shortlisted(broken, 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options()).await;
    assert!(matches!(ended, Err(StageError::Labeler(_))), "{ended:?}");
    assert_eq!((done.posts, scene.count("leases").await), (0, 0));

    let (stop, batches) = (scene.stop.clone(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&batches);
    let hook = move |batch| {
        if batch == 5 {
            stop.cancel();
        }
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let labelers = vec![shortlisted(HookedEngine { batches: 0, hook }, 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed), (0, 0));
    assert_eq!(
        batches.load(Ordering::Relaxed),
        5,
        "it stops between two batches"
    );
    assert_eq!(scene.count("leases").await, 0);
    assert_eq!(
        scene
            .count("backlog WHERE lease_id IS NULL AND attempts = 0")
            .await,
        600
    );
}
