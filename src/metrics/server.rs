//! The metrics listener: serves GET /metrics and GET /healthz, and nothing else.

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

use super::database::DatabaseFigures;
use super::{Metrics, exposition};
use topicmill_core::clock::SharedClock;
use topicmill_pages::listener::{self, BindError};
use topicmill_store::Store;

/// Lifetime of cached database figures. Prometheus scrapes every 15 seconds or less often; several Prometheus servers,
/// or a person with a browser, must not load the database more than one server does.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Timeout for the database, less than the scrape timeout of 10 seconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A running listener, which stops on drop.
#[derive(Debug)]
pub struct Listening {
    /// The address that it listens on.
    pub address: SocketAddr,
    task: AbortOnDropHandle<()>,
    store: Store,
}

impl Listening {
    /// Stops the listener and closes its database connections: closing the last connection to a SQLite file checkpoints
    /// its WAL.
    pub async fn close(self) {
        drop(self.task);
        if let Err(error) = self.store.close().await {
            tracing::debug!("the database was not closed: {error}");
        }
    }
}

struct ServerState {
    metrics: Arc<Metrics>,
    store: Store,
    clock: SharedClock,
    max_attempts: u32,
    cached: Mutex<Option<CachedFigures>>,
}

/// The result of the last read.
struct CachedFigures {
    read_at: Duration,
    /// `None` if the database did not respond.
    figures: Option<DatabaseFigures>,
}

/// Starts listening, in a separate task, until the result is dropped. Open `store` read-only, so that no stage waits
/// for one of its connections. Posts that failed `max_attempts` times count as parked.
///
/// # Errors
/// [`BindError`].
pub async fn serve(
    listen: SocketAddr,
    metrics: Arc<Metrics>,
    store: Store,
    clock: SharedClock,
    max_attempts: u32,
) -> Result<Listening, BindError> {
    let (listener, address) = listener::bind(listen, "--metrics-listen").await?;
    let state = ServerState {
        metrics,
        store: store.clone(),
        clock,
        max_attempts,
        cached: Mutex::default(),
    };
    let router = Router::new()
        .route("/metrics", get(serve_metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(state));
    let task = tokio::spawn(listener::serve(listener, router, std::future::pending()));
    Ok(Listening {
        address,
        task: AbortOnDropHandle::new(task),
        store,
    })
}

async fn serve_metrics(State(state): State<Arc<ServerState>>) -> impl IntoResponse {
    // One request reads the database at a time; concurrent ones get the same result.
    let mut cached = state.cached.lock().await;
    let now = state.clock.elapsed();
    let is_stale = |last: &CachedFigures| now.saturating_sub(last.read_at) >= CACHE_TTL;
    if cached.as_ref().is_none_or(is_stale) {
        let figures = read_database(&state).await;
        let read_at = state.clock.elapsed();
        *cached = Some(CachedFigures { read_at, figures });
    }
    let database = cached.as_ref().and_then(|last| last.figures.as_ref());
    let headers = [
        (CONTENT_TYPE, exposition::CONTENT_TYPE),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, state.metrics.text(database))
}

async fn read_database(state: &ServerState) -> Option<DatabaseFigures> {
    let figures = DatabaseFigures::read(&state.store, state.max_attempts, state.clock.now());
    let read = tokio::select! {
        read = figures => read.map_err(|error| error.to_string()),
        () = state.clock.sleep(TIMEOUT) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
    };
    read.inspect_err(|error| tracing::warn!("metrics without database figures: {error}"))
        .ok()
}
