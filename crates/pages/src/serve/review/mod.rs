//! The review page, on which annotators label posts one at a time. Answers are stored in the `gold` table.
//!
//! Close calls, which improve labels most, are mixed with randomly sampled posts, which allow unbiased estimates of
//! quality. To avoid anchoring, the page hides the predicted label until the annotator has answered. With a filter,
//! annotators choose posts by the predicted label and its score; those answers count neither as random nor as close
//! calls.

mod disagreements;
mod filter;
mod fitting;
mod form;
mod notice;
mod page;
mod progress;
mod queue;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use tokio_util::task::TaskTracker;

use self::fitting::Fitting;
pub use self::fitting::{FitOutcome, Fitter};
use self::queue::ReviewQueue;
use super::pages::{PageError, file};
use crate::display;
use topicmill_core::LabelSet;
use topicmill_core::clock::SharedClock;
use topicmill_store::{Store, StoreError, Target};

/// Maximum number of characters in an annotator's name.
const NAME: usize = 60;
/// Maximum number of characters in an answered post's title.
const SHORT_TITLE: usize = 60;

/// Options for the review page.
#[derive(Debug, Clone)]
pub struct ReviewOptions {
    /// Read-write connection to the database.
    pub store: Store,
    /// Default name for the annotator; `None` to ask for it.
    pub annotator: Option<String>,
    /// Share of randomly sampled posts among the questions, 0 to 1.
    pub random_share: f64,
    /// Runs fits for the "fit now" button; `None` hides the button.
    pub fitter: Option<Arc<dyn Fitter>>,
}

struct Review {
    queue: ReviewQueue,
    fitting: Arc<Fitting>,
    annotator: Option<String>,
    /// CSRF token that forms must send.
    token: String,
}

type Shared = Arc<Review>;

/// The current model and label set.
struct CurrentLabels {
    target: Target,
    set: LabelSet,
}

/// Returns the routes under `/review`; without options, a page that explains how to enable reviewing. Fits are spawned
/// in `tasks`.
pub fn router<S: Clone + Send + Sync + 'static>(
    options: Option<ReviewOptions>,
    clock: &SharedClock,
    tasks: TaskTracker,
) -> Router<S> {
    let Some(options) = options else {
        return Router::new().route("/review", get(disabled));
    };
    let review = Arc::new(Review {
        queue: ReviewQueue::new(options.store, Arc::clone(clock), options.random_share),
        fitting: Arc::new(Fitting::new(options.fitter, tasks)),
        annotator: options.annotator,
        token: csrf_token(),
    });
    Router::new()
        .route("/review", get(page::page))
        .route("/review/answer", post(form::answer))
        .route("/review/skip", post(form::skip))
        .route("/review/undo", post(form::undo))
        .route("/review/again", post(form::again))
        .route("/review/reopen", post(form::reopen))
        .route("/review/fit", get(page::fit_state).post(form::fit_now))
        .route("/review/disagreements", get(disagreements::page))
        .route("/review/review.js", get(script))
        .route("/review/review.css", get(style))
        .with_state(review)
}

impl Review {
    /// Returns the annotator's name: the one in the page's address, or the default.
    fn annotator(&self, in_address: Option<&str>) -> Option<String> {
        name(in_address).or_else(|| self.annotator.clone())
    }

    /// Returns the current labels; `None` before the first label.
    async fn current_labels(&self) -> Result<Option<CurrentLabels>, StoreError> {
        let current = self.queue.store.labels().current().await?;
        Ok(current.map(|(target, set)| CurrentLabels { target, set }))
    }
}

/// Returns 128 unpredictable bits in hexadecimal.
fn csrf_token() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    topicmill_core::hex(&bits)
}

async fn disabled() -> PageError {
    let message = "reviewing is disabled; run `topicmill serve --review` to label posts here";
    PageError(StatusCode::NOT_FOUND, message.to_owned())
}

async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("review.js"))
}

async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("review.css"))
}

/// Sanitises an annotator's name; `None` if nothing is left of it.
fn name(text: Option<&str>) -> Option<String> {
    let name = display::single_line(text?, NAME);
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns an id for the labels to choose from. A fit does not change the labels, so this is the hash of the unfitted
/// label set.
fn offered(set: &LabelSet) -> String {
    match &set.fitted {
        Some(fitted) => fitted.base.clone(),
        None => set.hash(),
    }
}
