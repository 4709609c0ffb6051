//! The listener: answers GET /metrics and GET /healthz, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::Metrics;
use super::database::Read;
use super::sheet;
use topicmill_core::clock::SharedClock;
use topicmill_pages::listener::{BindError, LimitedListener};
use topicmill_store::Store;

/// Whoever asks more often than this gets what the database said before: Prometheus asks every 15 seconds or more seldom,
/// and several of them, or a person with a browser, must cost the database no more than one does.
const FRESH: Duration = Duration::from_secs(5);
/// Less than the 10 seconds that Prometheus waits.
const LONGEST: Duration = Duration::from_secs(5);

/// A listener, which ends when this is dropped.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    task: AbortOnDropHandle<()>,
    store: Option<Store>,
}

impl Listening {
    /// Ends it, and closes its connections to the database: the last one that closes a SQLite file folds its log.
    pub async fn close(self) {
        drop(self.task);
        if let Some(store) = self.store
            && let Err(error) = store.close().await
        {
            tracing::debug!("the database was not closed: {error}");
        }
    }
}

struct Asked {
    metrics: Arc<Metrics>,
    store: Option<Store>,
    clock: SharedClock,
    max_attempts: u32,
    last: Mutex<Option<Answer>>,
}

/// What the database said.
struct Answer {
    /// When it was asked.
    at: Duration,
    took: Duration,
    /// Nothing, where it did not answer.
    read: Option<Read>,
}

/// Listens, and answers from now on in a task of its own, until the result is dropped. `store` should be opened for reading
/// only, so that no work waits for one of its connections; posts that failed `max_attempts` times are set aside.
///
/// # Errors
/// [`BindError`].
pub async fn serve(
    listen: SocketAddr,
    metrics: Arc<Metrics>,
    store: Option<Store>,
    clock: SharedClock,
    max_attempts: u32,
) -> Result<Listening, BindError> {
    let (listener, address) = LimitedListener::bind(listen, "--metrics-listen").await?;
    let asked = Asked {
        metrics,
        store: store.clone(),
        clock,
        max_attempts,
        last: Mutex::default(),
    };
    let router = Router::new()
        .route("/metrics", get(answer))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(asked));
    let serving = axum::serve(listener, router);
    let task = tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::warn!("metrics are not served any more: {error}");
        }
    });
    Ok(Listening {
        address,
        task: AbortOnDropHandle::new(task),
        store,
    })
}

async fn answer(State(asked): State<Arc<Asked>>) -> impl IntoResponse {
    // One asks the database at a time; who comes meanwhile gets the same answer.
    let mut last = asked.last.lock().await;
    if let Some(store) = &asked.store {
        let now = asked.clock.elapsed();
        let is_fresh = |answer: &Answer| now.saturating_sub(answer.at) < FRESH;
        if !last.as_ref().is_some_and(is_fresh) {
            *last = Some(ask(&asked, store).await);
        }
    }
    let database = last.as_ref().and_then(|answer| answer.read.as_ref());
    let answered = last.as_ref();
    let answered = answered.map(|answer| (answer.read.is_some(), answer.took));
    let headers = [
        (CONTENT_TYPE, sheet::CONTENT_TYPE),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asked.metrics.text(database, answered))
}

async fn ask(asked: &Asked, store: &Store) -> Answer {
    let at = asked.clock.elapsed();
    let read = tokio::select! {
        read = Read::of(store, asked.max_attempts, asked.clock.now()) => read.inspect_err(|error| {
            tracing::warn!("metrics lack what the database says: {error}");
        }).ok(),
        () = asked.clock.sleep(LONGEST) => {
            tracing::warn!("metrics lack what the database says: it did not answer within {} s", LONGEST.as_secs());
            None
        }
    };
    let now = asked.clock.elapsed();
    Answer {
        at: now,
        took: now.saturating_sub(at),
        read,
    }
}
