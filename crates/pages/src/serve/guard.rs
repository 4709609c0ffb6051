//! Authorises requests and sets security headers on responses.
//!
//! If no token is set, only loopback clients can connect, and the `Host` header must be a loopback name, to prevent DNS
//! rebinding. Requests that a proxy forwards are rejected, because their clients may be anywhere. If a token is set,
//! clients must send it but may use any host name. State-changing requests must be same-origin.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE,
    HOST, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::pages::{HEALTH, LoginPage, PageError, error_response, html};

const TOKEN_COOKIE: &str = "topicmill_token";
/// The content security policy: no external resources, no inline scripts, no frames.
const CONTENT_POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                              frame-ancestors 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Headers that a proxy adds to the requests of its clients.
const PROXY_HEADERS: [&str; 3] = ["x-forwarded-for", "x-real-ip", "forwarded"];
/// The cache policy, which keeps browsers from caching text that may be purged later.
const NO_STORE: &str = "no-store";

/// Checks the token in requests.
pub struct Guard {
    /// Hash of the token, which is also the cookie's value.
    token: Option<String>,
}

impl Guard {
    /// Creates a guard; without a token, it accepts only loopback hosts, and no request from a proxy.
    pub fn new(token: Option<String>) -> Self {
        Self {
            token: token.map(|token| digest(&token)),
        }
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, sent)| digest(sent.trim()));
        let cookie = headers
            .get_all(COOKIE)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find(|(name, _)| *name == TOKEN_COOKIE);
        bearer.is_some_and(|sent| constant_time_eq(&sent, token))
            || cookie.is_some_and(|(_, sent)| constant_time_eq(sent, token))
    }

    /// Returns the session cookie if the token is correct.
    fn cookie(&self, entered: &str) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        constant_time_eq(&digest(entered.trim()), token).then(|| {
            // The cookie is not `Secure` because the server speaks plain HTTP.
            let cookie = format!("{TOKEN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict");
            HeaderValue::from_str(&cookie).expect("hexadecimal digits are valid in a header")
        })
    }
}

/// Hashes a token so that comparisons have a fixed length and the cookie does not contain the token.
fn digest(token: &str) -> String {
    let digest = Sha256::digest(format!("topicmill serve {token}"));
    topicmill_core::hex(&digest)
}

/// Compares two strings in constant time.
fn constant_time_eq(a: &str, b: &str) -> bool {
    let differ = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differ) == 0
}

/// Returns true if a host is a loopback name or address.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let address = name.parse::<std::net::IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Returns true if a state-changing request is same-origin or does not come from a browser.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    if let Some(site) = text(FETCH_SITE) {
        return site == "same-origin" || site == "none";
    }
    match text(ORIGIN) {
        // Browsers send one of the two headers, so this is a different client, such as curl.
        None => true,
        Some(origin) => origin.parse::<Uri>().is_ok_and(|origin| {
            let authority = origin.authority();
            authority.is_some_and(|authority| Some(authority.as_str()) == text(HOST))
        }),
    }
}

/// Returns true if a page from a different origin sent the request.
fn is_cross_origin(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    matches!(site, Some(b"cross-site" | b"same-site"))
}

/// Forwards an authorised request, or responds with an error.
pub async fn authorize(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        // HTTP/2 has the host name in the URI.
        .or_else(|| request.uri().authority().map(Authority::as_str));
    let path = request.uri().path().to_owned();
    if guard.token.is_none() && PROXY_HEADERS.iter().any(|name| headers.contains_key(*name)) {
        let message = "a proxy forwarded this request, so it may come from anywhere: behind a proxy, set `serve.token`";
        return error_response(&path, StatusCode::FORBIDDEN, message);
    }
    if guard.token.is_none() && !host.is_some_and(is_loopback) {
        let message = "this server accepts only loopback host names: open it as http://127.0.0.1 or http://localhost \
                    with its port, or start it with a token";
        return error_response(&path, StatusCode::FORBIDDEN, message);
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && !is_same_origin(headers) {
        let message = "cross-origin request rejected: open this server's own page; a proxy must pass the Host header \
                       (nginx: `proxy_set_header Host $http_host`)";
        return error_response(&path, StatusCode::FORBIDDEN, message);
    }
    // Other sites may only link to the pages that show what is stored.
    if path.starts_with("/review") && is_cross_origin(headers) {
        let message =
            "cross-origin request rejected; open this server's own page, or type the address";
        return error_response(&path, StatusCode::FORBIDDEN, message);
    }
    // The login form, its assets and the health check need no token.
    let is_open = matches!(
        path.as_str(),
        "/login" | "/style.css" | "/icon.svg" | HEALTH
    );
    if is_open || guard.is_authorized(headers) {
        return next.run(request).await;
    }
    let mut response = html(StatusCode::UNAUTHORIZED, &LoginPage { was_wrong: false });
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// The data from the login form.
#[derive(Deserialize)]
pub struct Token {
    token: String,
}

/// Renders the login form.
pub async fn login_page() -> Response {
    html(StatusCode::OK, &LoginPage { was_wrong: false })
}

/// Sets the session cookie if the token is correct.
pub async fn login(guard: Extension<Arc<Guard>>, form: Form<Token>) -> Response {
    match guard.cookie(&form.token) {
        Some(cookie) => {
            let headers = [
                (LOCATION, HeaderValue::from_static("/")),
                (SET_COOKIE, cookie),
            ];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        None if guard.token.is_none() => (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response(),
        None => html(StatusCode::UNAUTHORIZED, &LoginPage { was_wrong: true }),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_origin_forms_are_rejected() {
        let from = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            is_same_origin(&pairs.collect())
        };
        assert!(from(&[("host", "localhost:1")]));
        assert!(from(&[
            ("host", "localhost:1"),
            ("origin", "http://localhost:1")
        ]));
        assert!(!from(&[
            ("host", "localhost:1"),
            ("origin", "http://localhost:2")
        ]));
        assert!(!from(&[("host", "localhost:1"), ("origin", "null")]));
        assert!(!from(&[
            ("host", "localhost:1"),
            ("sec-fetch-site", "cross-site")
        ]));
        assert!(!from(&[
            ("host", "localhost:1"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://localhost:1")
        ]));
    }
}
