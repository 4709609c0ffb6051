//! A web server that shows what is stored, as HTML pages and as JSON.
//!
//! Requests come from this machine or from clients with the token. `guard` authorises them, `index` keeps the columns
//! and the full-text index of lists in memory, and `pages` and `api` respond. Only `review` writes to the database: it
//! stores answers through a read-write connection, and starts fits that the main program runs.

mod api;
mod guard;
mod index;
mod listing;
mod pages;
mod query;
mod review;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::guard::Guard;
use self::index::Index;
pub use self::review::{FitOutcome, Fitter, ReviewOptions};
use crate::listener::{BindError, LimitedListener};
use topicmill_core::FailureKind;
use topicmill_core::clock::SharedClock;
use topicmill_score::Label;
use topicmill_store::{Store, StoreError};

/// The largest request body in bytes; forms are much smaller.
const BODY: usize = 64 * 1024;
/// Time limit for pending responses after a shutdown signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent user queries, which keeps pages responsive.
const QUERIES: usize = 2;
/// Maximum total size, in KiB, of query results that clients have not read yet.
const UNREAD_KIB: usize = 256 * 1024;
/// Minimum number of characters in a token: a token of 16 random characters cannot be guessed.
const SHORTEST_TOKEN: usize = 16;
/// The default number of posts in the full-text index, newest first. A million posts take half a gigabyte of memory.
pub const DEFAULT_SEARCHED_POSTS: usize = 2_000_000;

/// An error that ends the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The address is reachable from other machines, but there is no token.
    #[error(
        "listening on {0}, which other machines can reach, requires a token: write one of {SHORTEST_TOKEN} characters \
         or more to a file and pass it with --token-file, set TOPICMILL__SERVE__TOKEN, or listen on 127.0.0.1"
    )]
    NoToken(SocketAddr),
    /// The token is short enough to be guessed.
    #[error(
        "the token has {0} characters, but needs at least {SHORTEST_TOKEN}: generate one with `openssl rand -hex 16`"
    )]
    ShortToken(usize),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The HTTP server failed.
    #[error("cannot serve pages: {0}")]
    Ended(#[source] std::io::Error),
}

impl ServeError {
    /// Returns the kind of error, which determines the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Bind(_) | Self::NoToken(_) | Self::ShortToken(_) => FailureKind::Usage,
            Self::Store(error) => error.kind(),
            Self::Ended(_) => FailureKind::Unfinished,
        }
    }
}

/// Options for the server.
#[derive(Clone)]
pub struct ServeOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The token that clients must send; required unless the address is a loopback address.
    pub token: Option<String>,
    /// Display name for the database, without a password.
    pub database: String,
    /// True if user queries may run as a PostgreSQL superuser.
    pub any_user: bool,
    /// Maximum number of posts in the full-text index, newest first.
    pub searched: usize,
    /// Options for the review page; `None` disables it.
    pub review: Option<ReviewOptions>,
}

/// State shared by all request handlers.
pub struct Serving {
    /// Read-only connection to the database.
    pub store: Store,
    /// Source of the current time.
    pub clock: SharedClock,
    /// In-memory columns and full-text index.
    index: Arc<Index>,
    database: String,
    any_user: bool,
    queries: Semaphore,
    /// Number of KiB that unread query results may still use.
    unread: Arc<Semaphore>,
    overview: pages::overview::RenderedReport,
    stop: CancellationToken,
}

impl Serving {
    /// Returns the labels in the current label set; empty if no label set is current.
    async fn current_labels(&self) -> Result<Vec<Label>, StoreError> {
        let labels = self.store.labels();
        Ok(match labels.current_target().await? {
            Some(target) => labels.label_set(target.label_set).await?.labels,
            None => Vec::new(),
        })
    }
}

/// State shared by all requests.
pub type Shared = Arc<Serving>;

/// A server that is bound to an address.
pub struct Server {
    listener: LimitedListener,
    address: SocketAddr,
    serving: Shared,
    guard: Arc<Guard>,
    review: Option<ReviewOptions>,
}

impl Server {
    /// Binds to the address, without accepting connections yet.
    ///
    /// # Errors
    /// Returns [`ServeError`] if a required token is missing or too short, or if the address cannot be bound.
    pub async fn bind(
        options: ServeOptions,
        store: Store,
        clock: SharedClock,
        stop: CancellationToken,
    ) -> Result<Self, ServeError> {
        let ServeOptions { listen, token, .. } = options;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(ServeError::NoToken(listen));
        }
        if let Some(token) = &token
            && token.chars().count() < SHORTEST_TOKEN
        {
            return Err(ServeError::ShortToken(token.chars().count()));
        }
        let (listener, address) = LimitedListener::bind(listen, "--listen").await?;
        let serving = Serving {
            index: Arc::new(Index::new(options.searched)?),
            store,
            clock,
            database: options.database,
            any_user: options.any_user,
            queries: Semaphore::new(QUERIES),
            unread: Arc::new(Semaphore::new(UNREAD_KIB)),
            overview: watch::Sender::new(None),
            stop,
        };
        Ok(Self {
            listener,
            address,
            serving: Arc::new(serving),
            guard: Arc::new(Guard::new(token)),
            review: options.review,
        })
    }

    /// Returns the URL to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves requests until cancelled, then finishes pending responses for a few seconds.
    ///
    /// # Errors
    /// Returns [`ServeError::Ended`] if the HTTP server fails.
    pub async fn run(self) -> Result<(), ServeError> {
        let stop = self.serving.stop.clone();
        let clock = Arc::clone(&self.serving.clock);
        // These are separate tasks so that a long search delays neither connections nor shutdown.
        let index = Arc::clone(&self.serving.index);
        let refreshing =
            tokio::spawn(index.refresh_forever(self.serving.store.clone(), Arc::clone(&clock)));
        let refreshing = AbortOnDropHandle::new(refreshing);
        let rendering = tokio::spawn(pages::overview::render_forever(Arc::clone(&self.serving)));
        let rendering = AbortOnDropHandle::new(rendering);
        let fits = TaskTracker::new();
        let review = review::router(self.review, &self.serving.clock, fits.clone());
        let router = router(Arc::clone(&self.serving), self.guard, review);
        let stopped = stop.clone().cancelled_owned();
        let serving = axum::serve(self.listener, router)
            .with_graceful_shutdown(stopped)
            .into_future();
        let late = async {
            stop.cancelled().await;
            clock.sleep(SHUTDOWN_TIMEOUT).await;
        };
        let ended = tokio::select! {
            ended = serving => ended.map_err(ServeError::Ended),
            ended = refreshing => unreachable!("the index task never ends: {ended:?}"),
            ended = rendering => unreachable!("the overview task never ends: {ended:?}"),
            () = late => Ok(()),
        };
        // The server waits because a cancelled fit still stores its work in progress.
        if stop.is_cancelled() {
            fits.close();
            fits.wait().await;
        }
        ended
    }
}

fn router(serving: Shared, guard: Arc<Guard>, review: Router<Shared>) -> Router {
    let router = Router::new()
        .route("/healthz", get(pages::healthz))
        .route("/style.css", get(pages::style))
        .route("/icon.svg", get(pages::icon))
        .route("/login", get(guard::login_page).post(guard::login))
        .route("/", get(pages::overview::page))
        .route("/posts", get(pages::posts::page))
        .route("/posts/{fullname}", get(pages::post::page))
        .route("/sql", get(pages::sql::page))
        .merge(api::router())
        .merge(review)
        .fallback(pages::nothing_here)
        .method_not_allowed_fallback(pages::wrong_method);
    // The last layer runs first.
    router
        .layer(DefaultBodyLimit::max(BODY))
        .layer(Extension(Arc::clone(&guard)))
        .layer(from_fn_with_state(guard, guard::authorize))
        .layer(from_fn(guard::finish_response))
        .with_state(serving)
}
