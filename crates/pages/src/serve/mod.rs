//! A web server that shows what is stored as HTML pages.
//!
//! Requests come from this machine or from clients with the token. `guard` authorises them, `pages` responds with what
//! the database contains at that moment, and `finish` completes the responses. Only `review` writes to the database: it
//! stores answers through a read-write connection, and starts fits that the main program runs.

mod finish;
mod guard;
mod pages;
mod review;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::guard::Guard;
use self::pages::PageError;
pub use self::review::{FitOutcome, Fitter, ReviewOptions};
use crate::listener::{self, BindError};
use topicmill_core::clock::SharedClock;
use topicmill_store::Store;

/// The largest request body in bytes; forms are much smaller.
const BODY: usize = 64 * 1024;
/// Time limit for pending responses after a shutdown signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum number of characters in a token: a token of 16 random characters cannot be guessed.
const SHORTEST_TOKEN: usize = 16;

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
    /// Options for the review page; `None` disables it.
    pub review: Option<ReviewOptions>,
}

/// State shared by all request handlers.
pub struct Serving {
    /// Read-only connection to the database.
    store: Store,
    /// Source of the current time.
    clock: SharedClock,
    database: String,
    overview: Mutex<Option<Arc<pages::overview::RenderedReport>>>,
}

/// The handle that each request handler gets.
pub type Shared = Arc<Serving>;

/// A server that is bound to an address.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    serving: Shared,
    guard: Arc<Guard>,
    review: Option<ReviewOptions>,
    stop: CancellationToken,
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
        if options.token.is_none() && !options.listen.ip().is_loopback() {
            return Err(ServeError::NoToken(options.listen));
        }
        if let Some(token) = &options.token
            && token.chars().count() < SHORTEST_TOKEN
        {
            return Err(ServeError::ShortToken(token.chars().count()));
        }
        let (listener, address) = listener::bind(options.listen, "--listen").await?;
        let serving = Serving {
            store,
            clock,
            database: options.database,
            overview: Mutex::default(),
        };
        Ok(Self {
            listener,
            address,
            serving: Arc::new(serving),
            guard: Arc::new(Guard::new(options.token)),
            review: options.review,
            stop,
        })
    }

    /// Returns the URL to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves requests until cancelled, then finishes pending responses for a few seconds.
    pub async fn run(self) {
        let (stop, clock) = (self.stop, Arc::clone(&self.serving.clock));
        let fits = TaskTracker::new();
        let review = review::router(self.review, &clock, fits.clone());
        let router = router(self.serving, self.guard, review);
        let stopped = stop.clone().cancelled_owned();
        tokio::select! {
            () = listener::serve(self.listener, router, stopped) => {}
            () = async {
                stop.cancelled().await;
                clock.sleep(SHUTDOWN_TIMEOUT).await;
            } => {}
        }
        // The server waits because a cancelled fit still stores its work in progress.
        fits.close();
        fits.wait().await;
    }
}

/// Makes each request read the latest state: on SQLite, a reader without access to the folder would miss later writes.
async fn refresh(State(serving): State<Shared>, request: Request, next: Next) -> Response {
    match serving.store.refresh() {
        // A health check reports it without the database's name.
        Err(error) if request.uri().path() != "/healthz" => PageError::from(error).into_response(),
        _ => next.run(request).await,
    }
}

fn router(serving: Shared, guard: Arc<Guard>, review: Router<Shared>) -> Router {
    let router = Router::new()
        .route(pages::HEALTH, get(pages::healthz))
        .route("/style.css", get(pages::style))
        .route("/icon.svg", get(pages::icon))
        .route("/login", get(guard::login_page).post(guard::login))
        .route("/", get(pages::overview::page))
        .route("/posts", get(pages::posts::page))
        .route("/posts/{fullname}", get(pages::post::page))
        .merge(review)
        .fallback(pages::nothing_here)
        .method_not_allowed_fallback(pages::wrong_method);
    // The last layer runs first.
    router
        .layer(from_fn_with_state(Arc::clone(&serving), refresh))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(Extension(Arc::clone(&guard)))
        .layer(from_fn_with_state(guard, guard::authorize))
        .layer(from_fn(finish::finish_response))
        .with_state(serving)
}
