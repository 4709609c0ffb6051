//! Error pages, and the errors of requests that they show.

use askama::Template;
use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{HEALTH, html};
use topicmill_store::StoreError;

/// Seconds after which a client may retry while the database is not usable. Few, because a retry costs little.
const RETRY_SECS: &str = "5";

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
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECS));
    }
    response
}

/// A request error, with its status and message. [`finish_response`](crate::serve::finish::finish_response) renders it
/// as HTML or JSON.
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
