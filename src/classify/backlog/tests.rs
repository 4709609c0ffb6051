//! The loop over a real SQLite file with a scripted engine: what is written, what is given back, and what is
//! refused when things go wrong on the way.

use tempfile::TempDir;

use super::*;
use crate::classify::batch::Batch;
use crate::classify::engine::{Engine, EngineError, Logits};
use crate::classify::scripted::{Scripted, nli_folder, set};
use crate::clock::{Clock, ManualClock};
use crate::domain::{Post, SourceKind, Stage, Timestamp};
use crate::store::{Access, Page};

const LEASE: Duration = Duration::from_mins(5);

/// An engine that asks before each batch, with the number of batches so far, whether it may go on.
struct Asking<F>(Scripted, usize, F);

impl<F: FnMut(usize) -> Result<(), EngineError> + Send> Engine for Asking<F> {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        self.1 += 1;
        (self.2)(self.1)?;
        self.0.infer(batch)
    }
}

struct Scene {
    _folder: TempDir,
    store: Store,
    clock: SharedClock,
    stop: CancellationToken,
    run: RunId,
}

impl Scene {
    /// A store with posts of different lengths.
    async fn with_posts(n: usize, clock: SharedClock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let store = Store::open(&url, Access::Create).await.unwrap();
        let now: Timestamp = clock.now().into();
        let run = store.begin_run(Stage::Classify, "w", now).await.unwrap();
        let posts: Vec<Post> = (0..n)
            .map(|i| Post {
                fullname: format!("p{i:04}").parse().unwrap(),
                subreddit: "food".into(),
                title: format!("post {i} {}", "word ".repeat(i * 7 % 40)),
                selftext: String::new(),
                url: None,
                permalink: None,
                author: None,
                score: None,
                score_is_placeholder: false,
                upvote_ratio: None,
                num_comments: None,
                flair: None,
                over_18: false,
                is_self: true,
                stickied: false,
                removed: false,
                created_at: now,
                source: SourceKind::Import,
            })
            .collect();
        let page = Page {
            run,
            source: SourceKind::Import,
            topic: None,
            subreddit: "",
            listing: None,
            ranks: &[],
            after: None,
            newest: None,
            posts: &posts,
            now,
        };
        store.save_page(&page).await.unwrap();
        Self {
            _folder: folder,
            store,
            clock,
            stop: CancellationToken::new(),
            run,
        }
    }

    async fn label<F>(&self, ask: F) -> (Result<(), BacklogError>, Labelled)
    where
        F: FnMut(usize) -> Result<(), EngineError> + Send + 'static,
    {
        let engine = Asking(Scripted::default(), 0, ask);
        let labeler = Labeler::load(nli_folder(), Box::new(engine), 512).unwrap();
        let worker = Worker {
            store: &self.store,
            clock: &self.clock,
            stop: &self.stop,
            name: "w",
            run: self.run,
        };
        let options = Options {
            lease: LEASE,
            max_attempts: 3,
            limit: None,
        };
        let mut done = Labelled::default();
        let labels = set(&["food", "music", "travel"]);
        let ended = label(&worker, labeler, &labels, &options, &|_| {}, &mut done).await;
        (ended, done)
    }

    async fn count(&self, of: &str) -> u64 {
        let table = self
            .store
            .query(&format!("SELECT COUNT(*) FROM {of}"))
            .await
            .unwrap();
        table.rows[0][0].as_u64().unwrap()
    }

    /// Every post has one classification with all its scores, and nothing is left over.
    async fn assert_whole(&self, posts: u64) {
        assert_eq!(self.count("classifications").await, posts);
        assert_eq!(self.count("label_scores").await, 3 * posts);
        assert_eq!(self.count("backlog").await, 0);
        assert_eq!(self.count("leases").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_post_is_labelled_once() {
    let scene = Scene::with_posts(2_000, crate::clock::SystemClock::shared()).await;
    let (ended, done) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    assert_eq!(
        (done.posts, done.pairs, done.failed, done.refused),
        (2_000, 6_000, 0, 0)
    );
    scene.assert_whole(2_000).await;
    let (ended, again) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    assert_eq!(again.posts, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_however_long_a_window_takes() {
    let clock = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
    let scene = Scene::with_posts(1_500, clock.clone()).await;
    // The hand-moved clock makes each heartbeat the next one's time: hours pass while this runs.
    let (ended, done) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    assert!(clock.elapsed() > LEASE, "{:?}", clock.elapsed());
    assert_eq!((done.posts, done.refused), (1_500, 0));
    scene.assert_whole(1_500).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_breaks_loses_nothing_that_was_scored() {
    let scene = Scene::with_posts(600, crate::clock::SystemClock::shared()).await;
    let broken = |batch| match batch {
        0..20 => Ok(()),
        _ => Err(EngineError::Run("the device is gone".into())),
    };
    let (ended, done) = scene.label(broken).await;
    assert!(matches!(ended, Err(BacklogError::Labeler(_))), "{ended:?}");
    assert!(done.posts > 0 && done.posts < 600, "{done:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    assert_eq!(scene.count("leases").await, 0, "the rest was given back");
    let (ended, rest) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    assert_eq!(done.posts + rest.posts, 600);
    scene.assert_whole(600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_writes_what_is_scored_and_gives_the_rest_back() {
    let scene = Scene::with_posts(600, crate::clock::SystemClock::shared()).await;
    let stop = scene.stop.clone();
    let stopping = move |batch| {
        if batch == 10 {
            stop.cancel();
        }
        Ok(())
    };
    let (ended, done) = scene.label(stopping).await;
    ended.unwrap();
    assert!(done.posts > 0 && done.posts < 600, "{done:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    assert_eq!(scene.count("leases").await, 0);
    assert_eq!(scene.count("backlog").await, 600 - done.posts);
    assert_eq!(scene.count("backlog WHERE attempts > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_that_another_worker_took_over_are_refused_and_counted() {
    let scene = Scene::with_posts(900, crate::clock::SystemClock::shared()).await;
    let (store, runtime) = (scene.store.clone(), tokio::runtime::Handle::current());
    let robbed = move |batch| {
        if batch == 2 {
            // What taking over an expired lease does: its row is deleted.
            for (lease, _) in runtime.block_on(store.lease_holders()).unwrap() {
                runtime.block_on(store.release(lease)).unwrap();
            }
        }
        Ok(())
    };
    let (ended, done) = scene.label(robbed).await;
    ended.unwrap();
    assert!(done.refused > 0, "{done:?}");
    assert_eq!(scene.count("classifications").await, done.posts);
    let (ended, _) = scene.label(|_| Ok(())).await;
    ended.unwrap();
    scene.assert_whole(900).await;
}

#[test]
fn a_window_shrinks_as_labels_grow() {
    assert_eq!(window_posts(1, 16), 1_024);
    assert_eq!(window_posts(16, 16), 256);
    assert_eq!(window_posts(1, 10_000), 10);
    assert_eq!(window_posts(10_000, 10_000), 1);
}

#[test]
fn a_dead_process_of_this_machine_is_known_and_others_are_left_alone() {
    let me = worker_name();
    assert!(!died(&me, &me), "this process lives");
    let (here, _) = me.rsplit_once(':').unwrap();
    // Beyond the largest process id that Linux gives out.
    let gone = format!("{here}:4194305");
    assert_eq!(
        died(&gone, &me),
        std::path::Path::new("/proc/self").exists()
    );
    assert!(!died("elsewhere:1:4194305", &me));
    assert!(!died("nonsense", &me));
}
