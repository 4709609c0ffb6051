//! A small model that picks labels for the large one.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_shortlist_has_only_its_labels_computed_and_shares_them_with_the_model() {
    let labels = set(&["food", "music", "travel", "chess", "news"]);
    let scene = Scene::with_posts(1_200, crate::clock::SystemClock::shared()).await;
    scene
        .add(std::iter::once(("again".into(), "post 0 ".into())))
        .await;
    // Two engines, each with a model that picks for it.
    let two = || {
        (0..2)
            .map(|_| shortlisted(Scripted::default(), 2))
            .collect()
    };
    let (ended, done) = scene.label_by(two(), &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed), (1_201, 0));
    assert_eq!(done.pairs + done.pairs_reused, 2 * 1_201);
    assert!(done.pairs >= 2 * 1_200 && done.stages.shortlist_secs > 0.0);
    assert_eq!(scene.count("pair_logits").await, 2 * 1_200);
    let scored = scene.store.query(SCORED).await.unwrap();
    assert_eq!(scored.rows, [[2, 2]]);
    assert_eq!(
        done.without_shortlist,
        Some(Alike { posts: 0, same: 0 }),
        "the model has labelled nothing yet"
    );

    // Without it the model computes the rest, and labels everything anew.
    let done = scene.label_as(&labels).await;
    assert_eq!((done.posts, done.pairs), (1_201, 3 * 1_200));
    assert_eq!(done.without_shortlist, None);
    assert!(done.stages.shortlist_secs <= 0.0, "nobody picked any");
    // And what was computed without it need not be computed for another one.
    let three = vec![shortlisted(Scripted::default(), 3)];
    let (ended, done) = scene.label_by(three, &labels, options()).await;
    ended.unwrap();
    assert_eq!(
        (done.posts, done.pairs, done.pairs_reused),
        (1_201, 0, 3 * 1_201)
    );
    let alike = done.without_shortlist.unwrap();
    assert_eq!(alike.posts, 1_201);
    assert!((1..1_201).contains(&alike.same), "{alike:?}");
    // Each of the three has labels of its own.
    assert_eq!(scene.count("classifications").await, 3 * 1_201);
    let (ended, done) = scene.label_by(two(), &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.pairs), (0, 0), "it is done already");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_pairs_depend_on_each_other_a_shortlist_keeps_its_own() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(30, crate::clock::SystemClock::shared()).await;
    let of_bytes = || {
        let mut folder = nli_folder();
        folder.precision = "int8".into();
        Models::from(Labeler::load(folder, Box::new(Scripted::default()), 512).unwrap())
    };
    let run = async |models| {
        let (ended, done) = scene.label_by(vec![models], &labels, options()).await;
        ended.unwrap();
        (done.pairs, done.pairs_reused)
    };
    let mut large = of_bytes();
    let small = Labeler::load(other_folder(), Box::new(Scripted::default()), 512).unwrap();
    large.small = Some(Shortlist::new(small, 2));
    assert_eq!(run(large).await, (60, 0));
    assert_eq!(run(of_bytes()).await, (90, 0));
    assert_eq!(scene.count("pair_logits").await, 150);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_no_labels_can_be_picked_for_fails_alone() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(50, crate::clock::SystemClock::shared()).await;
    let encoder = labeler(Box::new(Scripted::default())).encoder();
    let word = encoder.single(&encoder.encode_whole("17").unwrap()).ids[1];
    let poisoned = Scripted {
        poison: i64::from(word),
        ..Scripted::default()
    };
    let options = Options {
        limit: Some(50),
        ..options()
    };
    let labelers = vec![shortlisted(poisoned, 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed, done.pairs), (49, 1, 98));
    let error = "backlog WHERE attempts = 1 AND error LIKE 'read it with the small model:%'";
    assert_eq!(scene.count(error).await, 1);
    assert_eq!(scene.count("leases").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_heard_while_labels_are_picked_and_a_broken_model_ends_the_run() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(600, crate::clock::SystemClock::shared()).await;
    let broken = Scripted {
        life: 5,
        ..Scripted::default()
    };
    let labelers = vec![shortlisted(broken, 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options()).await;
    assert!(matches!(ended, Err(BacklogError::Labeler(_))), "{ended:?}");
    assert_eq!((done.posts, scene.count("leases").await), (0, 0));

    let (stop, batches) = (scene.stop.clone(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&batches);
    let stopping = move |batch| {
        if batch == 5 {
            stop.cancel();
        }
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let labelers = vec![shortlisted(Asking(Scripted::default(), 0, stopping), 2)];
    let (ended, done) = scene.label_by(labelers, &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed), (0, 0));
    assert_eq!(batches.load(Ordering::Relaxed), 5, "between two batches");
    assert_eq!(scene.count("leases").await, 0);
    assert_eq!(
        scene
            .count("backlog WHERE lease_id IS NULL AND attempts = 0")
            .await,
        600
    );
}
