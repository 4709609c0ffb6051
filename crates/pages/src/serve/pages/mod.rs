//! Pages for people. A file a page; here stands what they share: the frame around them, and what is shown where there is
//! nothing to show.

pub mod line;
pub mod overview;
pub mod post;
pub mod posts;
pub mod sql;

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

use super::Shared;
use crate::display;
use topicmill_store::StoreError;

/// What the served pages add to the look that all share.
const STYLE: &str = include_str!("../style.css");
/// Three bars, in the accent of both schemes.
const ICON: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><path fill='#3b6fd8' \
     d='M1 2h14v3H1zM1 7h9v3H1zM1 12h5v3H1z'/></svg>";

/// A page that is whole.
pub fn html<T: Template>(status: StatusCode, page: &T) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            tracing::error!("write a page: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "serve/login.html")]
pub struct LoginPage {
    pub was_wrong: bool,
}

#[derive(Template)]
#[template(path = "serve/message.html")]
struct MessagePage<'m> {
    title: &'m str,
    said: &'m str,
}

/// Says what went wrong: to a program as JSON, to a person as a page.
pub fn failure(path: &str, status: StatusCode, said: &str) -> Response {
    let mut response = if path == "/api" || path.starts_with("/api/") || path == "/healthz" {
        (status, Json(json!({ "error": said }))).into_response()
    } else {
        let title = match status {
            StatusCode::NOT_FOUND => "There is nothing here",
            StatusCode::BAD_REQUEST => "That cannot be answered",
            StatusCode::SERVICE_UNAVAILABLE => "Not now",
            StatusCode::INTERNAL_SERVER_ERROR => "That did not work",
            _ => "That is not allowed",
        };
        html(status, &MessagePage { title, said })
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

/// Why there is no answer. [`guard::protect`](super::guard::protect), which knows who asked, makes a page of it, or JSON.
#[derive(Debug, Clone)]
pub struct Failed(pub StatusCode, pub String);

impl Failed {
    /// What was asked makes no sense.
    pub fn wrong(said: String) -> Self {
        Self(StatusCode::BAD_REQUEST, said)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Query(_)
            | StoreError::Unanswered {
                is_transient: false,
                ..
            } => StatusCode::BAD_REQUEST,
            StoreError::Powerful { .. } | StoreError::Denied(_) => StatusCode::FORBIDDEN,
            StoreError::Newer { .. }
            | StoreError::NotMigrated(_)
            | StoreError::Open { .. }
            | StoreError::Unread(_)
            | StoreError::Away => StatusCode::SERVICE_UNAVAILABLE,
            error if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!("read a page: {error}");
        }
        Self(status, error.to_string())
    }
}

/// Whether the database answers, for whoever watches over this server.
pub async fn healthz(State(serving): State<Shared>) -> Response {
    match serving.store.usable().await {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        // What the database is called is nobody's business who has no token.
        Err(error) => {
            tracing::warn!("the health check failed: {error}");
            let said = "the database does not answer as it should; the log of the server says why";
            failure("/healthz", StatusCode::SERVICE_UNAVAILABLE, said)
        }
    }
}

pub async fn style() -> Response {
    file("text/css; charset=utf-8", [display::STYLE, STYLE].concat())
}

/// The picture in a browser's tab.
pub async fn icon() -> Response {
    file("image/svg+xml", ICON.to_owned())
}

/// A file that is the same for as long as the server runs.
pub fn file(kind: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "max-age=60")], text).into_response()
}

pub async fn nothing_here(uri: Uri) -> Response {
    let said = "this server has no such page; the links above lead to those that it has";
    failure(uri.path(), StatusCode::NOT_FOUND, said)
}

/// A path, but not this way.
pub async fn wrong_method(uri: Uri) -> Response {
    let said = "this server answers GET and HEAD here: it reads, and changes nothing";
    failure(uri.path(), StatusCode::METHOD_NOT_ALLOWED, said)
}
