//! HTML pages, with one module per page. This module contains what they share: rendering, error pages and static files.

pub mod line;
pub mod overview;
pub mod post;
pub mod posts;

use std::time::Duration;

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

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

#[derive(Template)]
#[template(path = "serve/message.html")]
struct MessagePage<'m> {
    title: &'m str,
    message: &'m str,
}

/// Returns an error response: JSON for health checks, HTML for other paths.
pub fn error_response(path: &str, status: StatusCode, message: &str) -> Response {
    let mut response = if path == HEALTH {
        (status, Json(json!({ "error": message }))).into_response()
    } else {
        let title = match status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::BAD_REQUEST => "Invalid request",
            StatusCode::SERVICE_UNAVAILABLE => "Temporarily unavailable",
            StatusCode::INTERNAL_SERVER_ERROR => "Internal error",
            StatusCode::FORBIDDEN => "Not allowed",
            _ => status.canonical_reason().unwrap_or("Error"),
        };
        html(status, &MessagePage { title, message })
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

/// A request error, with its status and message. [`finish_response`](super::finish::finish_response) renders it as HTML
/// or JSON.
#[derive(Debug, Clone)]
pub struct PageError(pub StatusCode, pub String);

impl PageError {
    /// Returns an error for an invalid request.
    pub fn bad_request(message: String) -> Self {
        Self(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Denied(_) => StatusCode::FORBIDDEN,
            StoreError::Newer { .. }
            | StoreError::Replaced(_)
            | StoreError::NoTables(_)
            | StoreError::NotMigrated(_)
            | StoreError::Open { .. }
            | StoreError::NotResponding => StatusCode::SERVICE_UNAVAILABLE,
            error if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!("cannot respond to a request: {error}");
        }
        Self(status, error.to_string())
    }
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

/// Responds to unknown paths.
pub async fn nothing_here(uri: Uri) -> Response {
    let message = "this page does not exist; use the links above";
    error_response(uri.path(), StatusCode::NOT_FOUND, message)
}

/// Responds to unsupported methods.
pub async fn wrong_method(uri: Uri) -> Response {
    let message = "this page does not support the method of the request";
    error_response(uri.path(), StatusCode::METHOD_NOT_ALLOWED, message)
}
