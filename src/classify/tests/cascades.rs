//! A small model that labels what it is sure of, and leaves the rest to the large one.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use topicmill_score::Keep;
use topicmill_score::folder::EmbeddingHead;

fn small_folder() -> ModelFolder {
    let mut folder = other_folder();
    folder.name = "small".into();
    folder
}

/// A cascade whose small model keeps what it is so sure of.
fn keeping(small: ModelFolder, engines: [Box<dyn Engine>; 2], least: f64) -> Cascade {
    let [large, of_small] = engines;
    let keep = Keep {
        least,
        temperature: 4.0,
    };
    let task = SmallTask {
        shortlist: None,
        keep: Some(keep),
    };
    let small = Labeler::load(small, of_small, 512).unwrap();
    Cascade {
        large: labeler(large),
        small: Some(SmallModel::new(small, task)),
    }
}

fn scripted() -> [Box<dyn Engine>; 2] {
    [Box::<Scripted>::default(), Box::<Scripted>::default()]
}

/// By post: who decided, and the scores.
async fn labels_of(scene: &Scene, model: &str, set: &str) -> BTreeMap<String, (bool, String)> {
    let sql = format!(
        "SELECT c.fullname, c.by_small, p.scores FROM classifications c \
           JOIN packed_scores p ON p.fullname = c.fullname AND p.model_id = c.model_id AND p.label_set_id = c.label_set_id \
           JOIN models m ON m.id = c.model_id JOIN label_sets s ON s.id = c.label_set_id \
          WHERE m.name LIKE '{model}' AND s.hash = '{set}'"
    );
    let rows = scene.store.query(&sql).await.unwrap().rows;
    let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    rows.iter()
        .map(|row| {
            let by_small = [json!(true), json!(1)].contains(&row[1]);
            (text(&row[0]), (by_small, text(&row[2])))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_small_model_keeps_has_its_scores_and_the_rest_those_of_the_large_one() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(600, crate::clock::SystemClock::shared()).await;
    let again = [
        ("again1", "post 0 "),
        ("again2", "post 1 word word word word word word word "),
    ];
    let again = again.map(|(name, title)| (name.to_owned(), title.to_owned()));
    scene.add(again.into_iter()).await;
    let both = || {
        (0..2)
            .map(|_| keeping(small_folder(), scripted(), 0.6))
            .collect()
    };
    let (ended, done) = scene.label_by(both(), &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.failed), (602, 0));
    assert!((50..550).contains(&done.by_small), "{}", done.by_small);
    let cascade = labels_of(&scene, "%+cascade-0.6-t4-small", &labels.hash()).await;
    assert_eq!(cascade.len(), 602);
    let kept = cascade.values().filter(|(by_small, _)| *by_small).count() as u64;
    assert_eq!(kept, done.by_small);
    assert_eq!(done.pairs + done.pairs_reused, 3 * (602 - kept));
    // Nothing that the small model computed is stored as the large one's, nor under its own name.
    let sent = "(SELECT DISTINCT text_hash FROM classifications WHERE NOT by_small)";
    let pairs = scene.count("pair_logits").await;
    assert_eq!(pairs, 3 * scene.count(sent).await);
    let kept_texts =
        "pair_logits WHERE text_hash IN (SELECT text_hash FROM classifications WHERE by_small)";
    assert_eq!(scene.count(kept_texts).await, 0);
    let named = |by: &str| format!("deciding_models WHERE is_current AND decided_by = '{by}'");
    assert_eq!(scene.count(&named("small")).await, kept);
    assert_eq!(
        scene.count(&named("minilm-reddit-topics")).await,
        602 - kept
    );
    let (ended, done) = scene.label_by(both(), &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.pairs), (0, 0), "it is done already");

    // Each model alone gives the same scores; the large one computes only what it was spared.
    let warm = LabelSet {
        temperature: 4.0,
        ..labels.clone()
    };
    let alone = Labeler::load(small_folder(), Box::<Scripted>::default(), 512).unwrap();
    let (ended, _) = scene.label_by(vec![alone.into()], &warm, options()).await;
    ended.unwrap();
    let done = scene.label_as(&labels).await;
    assert_eq!((done.posts, done.by_small), (602, 0));
    assert_eq!(done.pairs, 3 * 600 - pairs);
    let of_small = labels_of(&scene, "small", &warm.hash()).await;
    let of_large = labels_of(&scene, "minilm-reddit-topics", &labels.hash()).await;
    for (post, (by_small, scores)) in &cascade {
        let alone = if *by_small { &of_small } else { &of_large };
        assert_eq!(*scores, alone[post].1, "{post}");
    }
    // With another certainty it is another model, which says how the two compare.
    let all = vec![keeping(small_folder(), scripted(), 0.01)];
    let (ended, done) = scene.label_by(all, &labels, options()).await;
    ended.unwrap();
    assert_eq!((done.posts, done.by_small, done.pairs), (602, 602, 0));
    assert_eq!(done.without_shortlist.unwrap().posts, 602);
    assert_eq!(
        scene.count("leases").await + scene.count("backlog").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_post_may_change_who_decides() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(60, crate::clock::SystemClock::shared()).await;
    let label = async || {
        let cascade = keeping(small_folder(), scripted(), 0.6);
        let (ended, done) = scene.label_by(vec![cascade], &labels, options()).await;
        ended.unwrap();
        done
    };
    label().await;
    let texts = "SELECT p.fullname, p.title, c.by_small FROM posts p JOIN classifications c ON c.fullname = p.fullname \
                  ORDER BY c.by_small, p.fullname";
    let rows = scene.store.query(texts).await.unwrap().rows;
    let (sent, kept) = (&rows[0], &rows[rows.len() - 1]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let swapped = [(&kept[0], &sent[1]), (&sent[0], &kept[1])];
    let bare = |name: String| name.trim_start_matches("t3_").to_owned();
    let swapped = swapped.map(|(name, title)| (bare(text(name)), text(title)));
    scene.add(swapped.into_iter()).await;
    let done = label().await;
    assert_eq!((done.posts, done.by_small), (2, 1));
    for (name, by_small) in [(&kept[0], "NOT by_small"), (&sent[0], "by_small")] {
        let changed = format!(
            "classifications WHERE {by_small} AND fullname = '{}'",
            text(name)
        );
        assert_eq!(scene.count(&changed).await, 1, "{changed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_the_large_model_cannot_score_fails_only_where_it_is_sent() {
    let labels = set(&["food", "music", "travel"]);
    let encoder = labeler(Box::new(Scripted::default())).encoder();
    let word = encoder.single(&encoder.encode_whole("17").unwrap()).ids[1];
    let poisoned = || -> Box<dyn Engine> {
        Box::new(Scripted {
            poison: i64::from(word),
            ..Scripted::default()
        })
    };
    let options = || Options {
        limit: Some(50),
        ..options()
    };
    for (least, [large, small], failed) in [
        (0.01, [poisoned(), Box::<Scripted>::default()], 0),
        (1.0, [poisoned(), Box::<Scripted>::default()], 1),
        (0.01, [Box::<Scripted>::default(), poisoned()], 1),
    ] {
        let scene = Scene::with_posts(50, crate::clock::SystemClock::shared()).await;
        let cascades = vec![keeping(small_folder(), [large, small], least)];
        let (ended, done) = scene.label_by(cascades, &labels, options()).await;
        ended.unwrap();
        assert_eq!((done.posts, done.failed), (50 - failed, failed), "{least}");
        assert_eq!(scene.count("leases").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_embedding_model_reads_no_text_whose_vector_is_stored() {
    let labels = set(&["food", "music", "travel"]);
    let scene = Scene::with_posts(300, crate::clock::SystemClock::shared()).await;
    let folder = || {
        let mut folder = small_folder();
        folder.kind = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 20.0,
            sigmoid_scale: 1.0,
            sigmoid_bias: 0.0,
            learned: Arc::default(),
        });
        folder
    };
    let batches = Arc::new(AtomicU64::new(0));
    let counted = || -> Box<dyn Engine> {
        let count = Arc::clone(&batches);
        Box::new(Asking(Scripted::default(), 0, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }))
    };
    let run = async |set: &LabelSet| {
        batches.store(0, Ordering::Relaxed);
        let engines = [Box::<Scripted>::default() as Box<dyn Engine>, counted()];
        let cascades = vec![keeping(folder(), engines, 0.95)];
        let (ended, done) = scene.label_by(cascades, set, options()).await;
        ended.unwrap();
        (done, batches.load(Ordering::Relaxed))
    };
    let (first, read) = run(&labels).await;
    assert!(first.posts == 300 && read > 2, "{read}");
    let before = labels_of(&scene, "%cascade%", &labels.hash()).await;
    // Labelled by itself, the small model stores its vectors.
    let alone = Labeler::load(folder(), Box::<Scripted>::default(), 512).unwrap();
    let (ended, _) = scene.label_by(vec![alone.into()], &labels, options()).await;
    ended.unwrap();
    assert_eq!(scene.count("text_vectors").await, 300);
    let warmer = LabelSet {
        name: "other".into(),
        threshold: 0.01,
        ..labels.clone()
    };
    let (done, read) = run(&warmer).await;
    assert_eq!((done.posts, done.by_small), (300, first.by_small));
    assert_eq!(read, 1, "the labels alone");
    assert_eq!(labels_of(&scene, "%cascade%", &warmer.hash()).await, before);
}
