//! Authorises requests, and logs users in.
//!
//! If no token is set, only loopback clients can connect, and the `Host` header must be a loopback name, to prevent DNS
//! rebinding. Requests that a proxy forwards are rejected, because their clients may be anywhere. If a token is set,
//! clients must send it but may use any host name. State-changing requests must be same-origin.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::pages::{HEALTH, LoginPage, error_response, html};

const TOKEN_COOKIE: &str = "topicmill_token";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Headers that a proxy adds to the requests of its clients.
const PROXY_HEADERS: [&str; 3] = ["x-forwarded-for", "x-real-ip", "forwarded"];

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

    /// Returns the reason why a request is rejected whatever token it has; `None` if it is not.
    fn rejection(&self, request: &Request) -> Option<&'static str> {
        let headers = request.headers();
        if self.token.is_none() && PROXY_HEADERS.iter().any(|name| headers.contains_key(*name)) {
            return Some(
                "a proxy forwarded this request, so it may come from anywhere: behind a proxy, set `serve.token`",
            );
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if self.token.is_none() && !host.is_some_and(is_loopback) {
            return Some(
                "this server accepts only loopback host names: open it as http://127.0.0.1 or http://localhost with \
                 its port, or start it with a token",
            );
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads && !is_same_origin(headers) {
            return Some(
                "cross-origin request rejected: open this server's own page; a proxy must pass the Host header \
                 (nginx: `proxy_set_header Host $http_host`)",
            );
        }
        // Other sites may only link to the pages that show what is stored.
        let is_review = request.uri().path().starts_with("/review");
        (is_review && is_cross_origin(headers)).then_some(
            "cross-origin request rejected; open this server's own page, or type the address",
        )
    }

    /// Returns the session cookie if the token is correct.
    fn cookie(&self, entered: &str) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        constant_time_eq(&digest(entered.trim()), token).then(|| {
            // Without `Path`, browsers send the cookie only to pages next to the login page, and not to other programs
            // behind the same proxy. It is not `Secure` because the server speaks plain HTTP.
            let cookie = format!("{TOKEN_COOKIE}={token}; HttpOnly; SameSite=Strict");
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
    let pairs = a.bytes().zip(b.bytes());
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
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
    let path = request.uri().path();
    if let Some(message) = guard.rejection(&request) {
        return error_response(path, StatusCode::FORBIDDEN, message);
    }
    // The login form, its assets and the health check need no token.
    let is_open = matches!(path, "/login" | "/style.css" | "/icon.svg" | HEALTH);
    if is_open || guard.is_authorized(request.headers()) {
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
