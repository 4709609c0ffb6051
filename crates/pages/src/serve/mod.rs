//! A small web server to look at what is stored: pages for people, the same as JSON for programs.
//!
//! What enters are requests of a browser on this machine, or of anybody who has the token; what leaves are pages made of what
//! the database holds now. Nothing here writes to the database. `guard` decides who may ask, `index` holds what lists need,
//! `pages` and `api` answer.

mod api;
mod ask;
mod guard;
mod index;
mod listing;
mod pages;
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
use tokio_util::task::AbortOnDropHandle;

use self::guard::Guard;
use self::index::Index;
pub use self::review::ReviewOptions;
use crate::listener::{BindError, LimitedListener};
use topicmill_core::FailureKind;
use topicmill_core::clock::SharedClock;
use topicmill_score::Label;
use topicmill_store::{Store, StoreError};

/// Bytes of a body: forms have a token or a label.
const BODY: usize = 64 * 1024;
/// After a signal, how long answers that are on their way may take.
const GRACE: Duration = Duration::from_secs(3);
/// Queries of users that run at once, so that they leave room for pages.
const QUERIES: usize = 2;
/// KiB of answers to queries that clients have not read yet, all together.
const UNREAD_KIB: usize = 256 * 1024;
/// How short a token may be: 16 characters at random are more than anybody tries.
const SHORTEST_TOKEN: usize = 16;
/// Posts whose texts are searched, the newest ones: a million take half a gigabyte of memory, with what lists need.
pub const DEFAULT_SEARCHED_POSTS: usize = 2_000_000;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Others than this machine could read all posts.
    #[error(
        "listen on {0}, where other machines can ask, without a token: write one of {SHORTEST_TOKEN} characters or more to \
         a file and name it with --token-file, set TOPICMILL__SERVE__TOKEN, or listen on 127.0.0.1"
    )]
    NoToken(SocketAddr),
    /// A token that can be guessed.
    #[error(
        "take a token of {0} characters: use {SHORTEST_TOKEN} or more, such as those of `openssl rand -hex 16`"
    )]
    ShortToken(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("serve pages: {0}")]
    Ended(#[source] std::io::Error),
}

impl ServeError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Bind(_) | Self::NoToken(_) | Self::ShortToken(_) => FailureKind::Usage,
            Self::Store(error) => error.kind(),
            Self::Ended(_) => FailureKind::Unfinished,
        }
    }
}

#[derive(Clone)]
pub struct ServeOptions {
    pub listen: SocketAddr,
    /// What whoever asks must have; needed where others than this machine can ask.
    pub token: Option<String>,
    /// What the database is called on pages, without a password.
    pub database: String,
    /// Whether a superuser of PostgreSQL is good enough to run the SQL of users.
    pub any_user: bool,
    /// Newest posts whose texts are searched, at most.
    pub searched: usize,
    /// Asks people about labels, where that is wanted.
    pub asking: Option<ReviewOptions>,
}

/// What every page may use.
pub struct Serving {
    /// The database, for reading.
    pub store: Store,
    pub clock: SharedClock,
    /// What lists and searches need.
    index: Arc<Index>,
    database: String,
    any_user: bool,
    queries: Semaphore,
    /// KiB of answers to queries that may still be unread.
    unread: Arc<Semaphore>,
    drawn: pages::overview::DrawnReport,
    stop: CancellationToken,
}

impl Serving {
    /// Returns the labels that the views show; none before a label set is the current one.
    async fn current_labels(&self) -> Result<Vec<Label>, StoreError> {
        let labels = self.store.labels();
        Ok(match labels.current_target().await? {
            Some(target) => labels.label_set(target.label_set).await?.labels,
            None => Vec::new(),
        })
    }
}

/// The same, shared by all requests.
pub type Shared = Arc<Serving>;

pub struct Server {
    listener: LimitedListener,
    address: SocketAddr,
    serving: Shared,
    guard: Arc<Guard>,
    asking: Option<ReviewOptions>,
}

impl Server {
    /// Listens, and answers nobody yet.
    ///
    /// # Errors
    /// When a token is missing or short, or the address cannot be listened on.
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
            drawn: watch::Sender::new(None),
            stop,
        };
        Ok(Self {
            listener,
            address,
            serving: Arc::new(serving),
            guard: Arc::new(Guard::new(token)),
            asking: options.asking,
        })
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Answers until it is stopped; then what is on its way is finished first, for a few seconds.
    ///
    /// # Errors
    /// [`ServeError::Ended`].
    pub async fn run(self) -> Result<(), ServeError> {
        let stop = self.serving.stop.clone();
        let clock = Arc::clone(&self.serving.clock);
        // Tasks of their own: one that waits for a long search keeps no connection and no signal waiting.
        let index = Arc::clone(&self.serving.index);
        let keeping = tokio::spawn(index.keep(self.serving.store.clone(), Arc::clone(&clock)));
        let keeping = AbortOnDropHandle::new(keeping);
        let drawing = tokio::spawn(pages::overview::keep(Arc::clone(&self.serving)));
        let drawing = AbortOnDropHandle::new(drawing);
        let review = review::router(self.asking, &self.serving.clock);
        let router = router(Arc::clone(&self.serving), self.guard, review);
        let stopped = stop.clone().cancelled_owned();
        let serving = axum::serve(self.listener, router)
            .with_graceful_shutdown(stopped)
            .into_future();
        let late = async {
            stop.cancelled().await;
            clock.sleep(GRACE).await;
        };
        tokio::select! {
            ended = serving => ended.map_err(ServeError::Ended),
            ended = keeping => unreachable!("it is kept for ever: {ended:?}"),
            ended = drawing => unreachable!("it is drawn for ever: {ended:?}"),
            () = late => Ok(()),
        }
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
    // The last layer sees a request first.
    router
        .layer(DefaultBodyLimit::max(BODY))
        .layer(Extension(Arc::clone(&guard)))
        .layer(from_fn_with_state(guard, guard::admit))
        .layer(from_fn(guard::protect))
        .with_state(serving)
}
