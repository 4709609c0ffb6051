//! HTML pages, with one module per page. This module contains what they share: rendering, parameters and static files.

mod errors;
pub mod line;
pub mod overview;
pub mod post;
pub mod posts;

use std::time::Duration;

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

pub use self::errors::{PageError, error_response, nothing_here, wrong_method};
use super::Shared;
use crate::display;
use topicmill_core::{Label, ThingKind};
use topicmill_store::{Store, StoreError};

/// The path for health checks.
pub const HEALTH: &str = "/healthz";
/// Timeout for the database in a health check, shorter than the timeouts of usual monitors.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(4);
/// The style sheet for the served pages, in addition to the shared one.
const STYLE: &str = include_str!("../style.css");
/// The favicon.
const ICON: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><path fill='#3b6fd8' \
     d='M1 2h14v3H1zM1 7h9v3H1zM1 12h5v3H1z'/></svg>";

/// Renders a template as a response.
pub fn html<T: Template>(status: StatusCode, page: &T) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            tracing::error!("cannot render a page: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Builds a URL from a path and query parameters.
pub fn address<'a>(path: &str, pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut url = url::Url::parse("http://localhost").expect("the address is well formed");
    url.set_path(path);
    url.query_pairs_mut().extend_pairs(pairs);
    match url.query() {
        None | Some("") => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    }
}

/// Returns the display name of an outcome in a list.
pub fn outcome_name(outcome: &str, labels: &[Label]) -> String {
    let label = labels.iter().find(|label| label.slug == outcome);
    match (label, outcome) {
        (Some(label), _) => label.label.clone(),
        (None, "labelled") => "any label".to_owned(),
        (None, "unlabelled") => "without a label".to_owned(),
        (None, slug) => slug.to_owned(),
    }
}

/// Returns the plural of the other kind and the URL of its page, if there are comments.
pub async fn other_kind(
    store: &Store,
    kind: ThingKind,
    link: impl Fn(&'static str) -> String,
) -> Result<Option<(&'static str, String)>, StoreError> {
    let other = match kind {
        ThingKind::Comment => ThingKind::Post,
        ThingKind::Post if store.posts().has_comments().await? => ThingKind::Comment,
        ThingKind::Post => return Ok(None),
    };
    Ok(Some((other.plural(), link(other.plural()))))
}

/// Parses the query parameter `kind`; an empty one means posts.
pub fn parse_kind(text: &str) -> Result<ThingKind, PageError> {
    match text.trim() {
        "" => Ok(ThingKind::Post),
        word => ThingKind::of_plural(word).ok_or_else(|| {
            let word = shortened(word);
            PageError::bad_request(format!("`kind={word}` is not `posts` or `comments`"))
        }),
    }
}

/// Truncates user input for an error message.
pub fn shortened(text: &str) -> String {
    display::single_line(text, 60)
}

/// The login form.
#[derive(Template)]
#[template(path = "serve/login.html")]
pub struct LoginPage {
    /// True if a wrong token was sent.
    pub was_wrong: bool,
}

/// Responds to health checks: 200 if the database is usable, 503 otherwise.
pub async fn healthz(State(serving): State<Shared>) -> Response {
    let usable = tokio::select! {
        usable = serving.store.check_usable() => usable,
        () = serving.clock.sleep(HEALTH_TIMEOUT) => Err(StoreError::NotResponding),
    };
    match usable {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        // Clients that have no token must not see the database's name.
        Err(error) => {
            tracing::warn!("health check failed: {error}");
            let message = "the database is not usable; see the server log";
            error_response(HEALTH, StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }
}

/// Returns the style sheet.
pub async fn style() -> Response {
    file("text/css; charset=utf-8", [display::STYLE, STYLE].concat())
}

/// Returns the favicon.
pub async fn icon() -> Response {
    file("image/svg+xml", ICON)
}

/// Returns a static file.
pub fn file(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "max-age=60")], text).into_response()
}
