//! A collector: a fake Reddit or archive, its client with a stopped clock, and a database.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use topicmill::collect::ReadOptions;
use topicmill::pipeline::{Context, RunRecord};
use topicmill::run::StageError;
use topicmill_core::clock::ManualClock;
use topicmill_core::{Topic, TopicReport};
use topicmill_sources::Source;
use topicmill_sources::arctic_shift::ArcticShift;
use topicmill_sources::reddit::Reddit;
use topicmill_store::{Access, Store};
use wiremock::MockServer;

use super::arctic_shift::{Archive, Bounds};
use super::postgres::{TestDatabase, sqlite};

/// Options that read one topic after another, so that the order of requests is known.
pub const READ_OPTIONS: ReadOptions = ReadOptions {
    concurrency: 1,
    overlap: Duration::from_mins(10),
    page_cap: 50,
    time_range: None,
};

/// A fake server, its client, and a database to collect into.
pub struct Scene<F, S> {
    pub server: F,
    pub source: S,
    pub clock: Arc<ManualClock>,
    pub context: Context,
    /// The database, if it belongs to this scene alone.
    _own: Option<TestDatabase>,
}

impl<F, S: Source> Scene<F, S> {
    fn made(server: F, (source, clock): (S, Arc<ManualClock>), store: Store) -> Self {
        let stop = CancellationToken::new();
        Self {
            server,
            source,
            context: Context::new(store, clock.clone(), stop, "w".into()),
            clock,
            _own: None,
        }
    }

    fn owning(self, database: TestDatabase) -> Self {
        Self {
            _own: Some(database),
            ..self
        }
    }

    pub fn store(&self) -> &Store {
        &self.context.store
    }

    /// Collects without author names.
    pub async fn collect_with(&self, topics: &[Topic], options: ReadOptions) -> Vec<TopicReport> {
        let (source, context) = (&self.source, &self.context);
        let collected = context.collect(source, topics, options, false, &|_| {});
        collected.await.unwrap().0
    }

    /// Collects with author names as they are, and not as hashes.
    pub async fn collect_with_authors(&self, topics: &[Topic]) -> Vec<TopicReport> {
        let (source, context) = (&self.source, &self.context);
        let collected = context.collect(source, topics, READ_OPTIONS, true, &|_| {});
        collected.await.unwrap().0
    }

    /// Collects, and returns the error that ended the run.
    pub async fn try_collect(&self, topics: &[Topic]) -> Result<(), StageError> {
        let (source, context) = (&self.source, &self.context);
        let collected = context.collect(source, topics, READ_OPTIONS, false, &|_| {});
        collected.await.map(drop)
    }

    pub async fn collect(&self, topics: &[Topic]) -> Vec<TopicReport> {
        self.collect_with(topics, READ_OPTIONS).await
    }

    /// Returns the report of the only topic.
    pub async fn collect_one(&self, topic: Topic) -> TopicReport {
        self.collect(&[topic]).await.remove(0)
    }

    /// Returns the record of the latest run.
    pub fn record(&self) -> RunRecord {
        self.context.records().pop().unwrap()
    }

    /// Returns the rows of a query, each with its values separated by spaces.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        let words = |row: Vec<Value>| -> Vec<String> {
            row.iter()
                .map(|value| match value {
                    Value::String(text) => text.clone(),
                    // SQLite has no boolean type.
                    Value::Bool(flag) => u8::from(*flag).to_string(),
                    other => other.to_string(),
                })
                .collect()
        };
        let rows = self.store().query(sql).await.unwrap().rows;
        rows.into_iter().map(|row| words(row).join(" ")).collect()
    }

    /// Returns the fullnames of the stored posts.
    pub async fn stored(&self) -> Vec<String> {
        self.rows("SELECT fullname FROM posts ORDER BY fullname")
            .await
    }
}

impl Scene<MockServer, Reddit> {
    /// Creates a fake Reddit and a SQLite database.
    pub async fn new() -> Self {
        Self::with(super::reddit::server().await).await
    }

    /// Creates a SQLite database for an existing server.
    pub async fn with(server: MockServer) -> Self {
        let database = sqlite();
        Self::on(server, &database).await.owning(database)
    }

    pub async fn of(database: &TestDatabase) -> Self {
        Self::on(super::reddit::server().await, database).await
    }

    /// Opens the database at a URL.
    pub async fn at(url: &str) -> Self {
        let store = Store::open(url, Access::Create).await.unwrap();
        Self::open(super::reddit::server().await, store.with_caller_time())
    }

    pub async fn on(server: MockServer, database: &TestDatabase) -> Self {
        Self::open(server, database.open().await)
    }

    fn open(server: MockServer, store: Store) -> Self {
        let (reddit, clock) = super::reddit::client(&server.uri());
        let reddit = Arc::into_inner(reddit).unwrap();
        Self::made(server, (reddit, clock), store)
    }
}

impl Scene<Archive, ArcticShift> {
    /// Creates a fake archive and a SQLite database.
    pub async fn new() -> Self {
        Self::with(Archive::start(Bounds::Exclusive).await).await
    }

    /// Creates a SQLite database for an existing archive.
    pub async fn with(archive: Archive) -> Self {
        let database = sqlite();
        Self::on(archive, &database).await.owning(database)
    }

    pub async fn of(database: &TestDatabase) -> Self {
        Self::on(Archive::start(Bounds::Exclusive).await, database).await
    }

    async fn on(archive: Archive, database: &TestDatabase) -> Self {
        let client = super::arctic_shift::client(&archive.server.uri());
        Self::made(archive, client, database.open().await)
    }
}
