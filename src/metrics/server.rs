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
use super::database::DatabaseFigures;
use super::exposition;
use topicmill_core::clock::SharedClock;
use topicmill_pages::listener::{BindError, LimitedListener};
use topicmill_store::Store;

/// Whoever asks more often than this gets what the database said before: Prometheus asks every 15 seconds or more seldom,
/// and several of them, or a person with a browser, must cost the database no more than one does.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Less than the 10 seconds that Prometheus waits.
const TIMEOUT: Duration = Duration::from_secs(5);

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

struct ServerState {
    metrics: Arc<Metrics>,
    store: Option<Store>,
    clock: SharedClock,
    max_attempts: u32,
    last: Mutex<Option<DatabaseReading>>,
}

/// What the database said.
struct DatabaseReading {
    /// When it was state.
    at: Duration,
    took: Duration,
    /// Nothing, where it did not answer.
    read: Option<DatabaseFigures>,
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
    let (listener, address) = Patient::bind(listen, "--metrics-listen").await?;
    let state = ServerState {
        metrics,
        store: store.clone(),
        clock,
        max_attempts,
        last: Mutex::default(),
    };
    let router = Router::new()
        .route("/metrics", get(serve_metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(state));
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

async fn serve_metrics(State(state): State<Arc<ServerState>>) -> impl IntoResponse {
    // One asks the database at a time; who comes meanwhile gets the same answer.
    let mut last = state.last.lock().await;
    if let Some(store) = &state.store {
        let now = state.clock.elapsed();
        let is_fresh = |answer: &DatabaseReading| now.saturating_sub(answer.at) < CACHE_TTL;
        if !last.as_ref().is_some_and(is_fresh) {
            *last = Some(read_database(&state, store).await);
        }
    }
    let database = last.as_ref().and_then(|answer| answer.read.as_ref());
    let answered = last.as_ref();
    let answered = answered.map(|answer| (answer.read.is_some(), answer.took));
    let headers = [
        (CONTENT_TYPE, exposition::CONTENT_TYPE),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, state.metrics.text(database, answered))
}

async fn read_database(state: &ServerState, store: &Store) -> DatabaseReading {
    let at = state.clock.elapsed();
    let read = tokio::select! {
        read = DatabaseFigures::read(store, state.max_attempts, state.clock.now()) => read.inspect_err(|error| {
            tracing::warn!("metrics lack what the database says: {error}");
        }).ok(),
        () = state.clock.sleep(TIMEOUT) => {
            tracing::warn!("metrics lack what the database says: it did not answer within {} s", TIMEOUT.as_secs());
            None
        }
    };
    let now = state.clock.elapsed();
    DatabaseReading {
        at: now,
        took: now.saturating_sub(at),
        read,
    }
}
