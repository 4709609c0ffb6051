//! A store with posts, labelled by scripted engines in place of a model.

use tempfile::TempDir;

use tokio_util::sync::CancellationToken;

use super::*;
use topicmill_core::clock::{SharedClock, SystemClock};
use topicmill_store::RunId;

pub(super) const LEASE: Duration = Duration::from_mins(5);

pub(super) const MAX_ATTEMPTS: u32 = 3;

pub(super) fn options() -> Options {
    Options {
        lease: LEASE,
        max_attempts: MAX_ATTEMPTS,
        limit: None,
        retry_failed: false,
        watch: false,
        pipeline_file: None,
        make_current: MakeCurrent::Always,
        settings: RunSettings::default(),
    }
}

/// A scripted engine that calls a hook with the batch number before each batch. An error from the hook fails the batch.
pub(super) struct HookedEngine<F> {
    pub batches: usize,
    pub hook: F,
}

impl<F: FnMut(usize) -> Result<(), EngineError> + Send> Engine for HookedEngine<F> {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        self.batches += 1;
        (self.hook)(self.batches)?;
        ScriptedEngine::default().infer(batch)
    }
}

/// An engine that returns NaN for a text that contains the word `17`.
pub(super) fn poisoned() -> ScriptedEngine {
    let encoder = labeler(Box::new(ScriptedEngine::default())).encoder();
    let text = encoder.encode_whole("17").unwrap();
    let (word, _) = encoder.single(&text).ids().nth(1).unwrap();
    ScriptedEngine {
        nan_id: i64::from(word),
        ..ScriptedEngine::default()
    }
}

pub(super) fn labeler(engine: Box<dyn Engine>) -> Labeler {
    Labeler::load(nli_folder(), engine, 512).unwrap()
}

pub(super) fn models(engine: Box<dyn Engine>) -> Models {
    labeler(engine).into()
}

/// Models with a second engine that shortlists labels.
pub(super) fn shortlisted(small: impl Engine + 'static, labels: usize) -> Models {
    let large = labeler(Box::new(ScriptedEngine::default()));
    // Its classes are reversed, so it ranks the labels in a different order, as a different graph would.
    let small = Labeler::load(other_folder(), Box::new(small), 512).unwrap();
    let small = Some(Shortlist::new(small, labels));
    Models { large, small }
}

/// An NLI model with the classes of the scripted engine in reverse order.
pub(super) fn other_folder() -> ModelFolder {
    let mut folder = nli_folder();
    folder.manifest_hash = "small".into();
    folder.kind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 0,
        contradiction: 2,
        neutral: Some(1),
    });
    folder
}

pub(super) struct Scene {
    pub(super) _folder: TempDir,
    pub(super) store: Store,
    pub(super) clock: SharedClock,
    pub(super) stop: CancellationToken,
    pub(super) run: RunId,
}

impl Scene {
    /// Creates a store with posts of different lengths.
    pub(super) async fn with_posts(n: usize) -> Self {
        let clock = SystemClock::shared();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let store = Store::open(&url, Access::Create).await.unwrap();
        let now: Timestamp = clock.now().into();
        let run = store.runs().begin_run(Stage::Classify, "w", now).await;
        let run = run.unwrap();
        let scene = Self {
            _folder: folder,
            store,
            clock,
            stop: CancellationToken::new(),
            run,
        };
        let title = |i: usize| format!("post {i} {}", "word ".repeat(i * 7 % 40));
        let posts = (0..n).map(|i| (format!("p{i:04}"), title(i)));
        scene.add(posts).await;
        scene
    }

    /// Stores posts with these names and titles.
    pub(super) async fn add(&self, posts: impl Iterator<Item = (String, String)>) {
        let now: Timestamp = self.clock.now().into();
        let posts: Vec<Post> = posts
            .map(|(fullname, title)| Post {
                fullname: fullname.parse().unwrap(),
                subreddit: "food".into(),
                title,
                selftext: String::new(),
                reply: topicmill_core::Reply::default(),
                crosspost_parent: None,
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
                removal: None,
                created_at: now,
                source: SourceKind::Import,
            })
            .collect();
        let page = Page {
            run: self.run,
            source: SourceKind::Import,
            topic: None,
            subreddit: "",
            listing: None,
            after: None,
            newest: None,
            read_from: None,
            posts: AuthorPolicy::Stored.prepare(posts),
            now,
        };
        self.store.posts().save_pages(&[page], None).await.unwrap();
    }

    pub(super) async fn label<F>(&self, hook: F) -> (Result<(), StageError>, ClassifyCounts)
    where
        F: FnMut(usize) -> Result<(), EngineError> + Send + 'static,
    {
        let engine = HookedEngine { batches: 0, hook };
        let labels = set(&["food", "music", "travel"]);
        self.label_with(vec![Box::new(engine)], &labels, options())
            .await
    }

    /// Labels with a label set and a scripted engine and returns the counts.
    pub(super) async fn label_as(&self, labels: &LabelSet) -> ClassifyCounts {
        let engine = Box::new(ScriptedEngine::default());
        let (ended, done) = self.label_with(vec![engine], labels, options()).await;
        ended.unwrap();
        done
    }

    pub(super) async fn label_with(
        &self,
        engines: Vec<Box<dyn Engine>>,
        labels: &LabelSet,
        options: Options,
    ) -> (Result<(), StageError>, ClassifyCounts) {
        let models = engines.into_iter().map(models).collect();
        self.label_by(models, labels, options).await
    }

    pub(super) async fn label_by(
        &self,
        models: Vec<Models>,
        labels: &LabelSet,
        options: Options,
    ) -> (Result<(), StageError>, ClassifyCounts) {
        let run = Run {
            store: &self.store,
            clock: &self.clock,
            stop: &self.stop,
            worker: "w",
            id: self.run,
        };
        let mut done = ClassifyCounts::default();
        let ended = label(&run, models, labels, &options, &|_| {}, &mut done).await;
        (ended, done)
    }

    pub(super) async fn count(&self, table: &str) -> u64 {
        let table = self
            .store
            .query(&format!("SELECT COUNT(*) FROM {table}"))
            .await
            .unwrap();
        table.rows[0][0].as_u64().unwrap()
    }

    /// Asserts that every post has one classification with all its scores, and that the backlog and the leases are
    /// empty.
    pub(super) async fn assert_complete(&self, posts: u64) {
        assert_eq!(self.count("classifications").await, posts);
        assert_eq!(self.count("label_scores").await, 3 * posts);
        assert_eq!(self.count("backlog").await, 0);
        assert_eq!(self.count("leases").await, 0);
    }
}
