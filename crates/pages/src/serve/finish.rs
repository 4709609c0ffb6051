//! Finishes responses: renders errors, makes links relative, and sets security headers.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::pages::{PageError, error_response};

/// The content security policy: no external resources, no inline scripts, no frames.
const CONTENT_POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                              frame-ancestors 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// The cache policy, which keeps browsers from caching text that may be purged later.
const NO_STORE: &str = "no-store";

/// Makes links and redirects relative to the request's path, so that a proxy can serve the pages under any path.
async fn relative_links(path: &str, response: Response) -> Result<Response, axum::Error> {
    let depth = path.matches('/').count().saturating_sub(1);
    let mut up = match depth {
        0 => "./".to_owned(),
        _ => "../".repeat(depth),
    };
    let (mut parts, body) = response.into_parts();
    if let Some(location) = parts.headers.get_mut(LOCATION) {
        let rest = location.to_str().ok().and_then(|to| to.strip_prefix('/'));
        let relative = rest.and_then(|rest| HeaderValue::from_str(&format!("{up}{rest}")).ok());
        if let Some(relative) = relative {
            *location = relative;
        }
    }
    let kind = parts.headers.get(CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        return Ok(Response::from_parts(parts, body));
    }
    let page = to_bytes(body, usize::MAX).await?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    if !page.starts_with("<!doctype") {
        // A script inserts this part into a page at the top.
        "./".clone_into(&mut up);
    }
    for attribute in ["href", "src", "action"] {
        page = page.replace(&format!("{attribute}=\"/"), &format!("{attribute}=\"{up}"));
    }
    page = page.replace("data-poll=\"/", "data-poll=\"./");
    // The length has changed. A response to HEAD has no body, and may leave the length out.
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, page.into()))
}

/// Renders errors, makes links relative, and adds security headers to every response.
pub async fn finish_response(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(PageError(status, message)) = response.extensions_mut().remove() {
        response = error_response(&path, status, &message);
    }
    let mut response = match relative_links(&path, response).await {
        Ok(response) => response,
        Err(error) => {
            let message = error.to_string();
            error_response(&path, StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        // Style sheets set their own `max-age`.
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static(NO_STORE));
    response
}
