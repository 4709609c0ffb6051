//! Who may ask, and what browsers may do with the answers.
//!
//! Without a token, only this machine can ask, and only under a name of its own: a page elsewhere whose name is turned to this
//! machine's address (DNS rebinding) sends its own name along and is refused. With a token, whoever has it may ask, under any
//! name. What changes something must come from a page of this server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::pages::{Failed, LoginPage, failure, html};

/// Longer than everything that a page does.
const LONGEST: Duration = Duration::from_secs(45);
const TOKEN_COOKIE: &str = "topicmill_token";
/// A browser loads nothing from elsewhere, runs no script that stands in a page, and shows the page in no frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Texts that are purged here must not stay in a browser's files.
const NOT_KEPT: &str = "no-store";

pub struct Guard {
    /// The hash of the token: what the cookie holds, and what is compared.
    token: Option<String>,
}

impl Guard {
    pub fn new(token: Option<String>) -> Self {
        Self {
            token: token.map(|token| digest(&token)),
        }
    }

    fn is_let_in(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, given)| digest(given.trim()));
        let cookies = headers.get_all(COOKIE).into_iter();
        let mut cookies = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        let cookie = cookies.find(|(name, _)| *name == TOKEN_COOKIE);
        bearer.is_some_and(|given| are_equal(&given, token))
            || cookie.is_some_and(|(_, given)| are_equal(given, token))
    }

    /// The cookie that lets a browser in, if the token is right.
    fn cookie(&self, given: &str) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        are_equal(&digest(given.trim()), token).then(|| {
            // Not `Secure`: the server speaks plain HTTP, and a browser would not send such a cookie back.
            let cookie = format!("{TOKEN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict");
            HeaderValue::from_str(&cookie).expect("hexadecimal digits are visible")
        })
    }
}

/// What a token is compared by: of one length whatever the token is, and no token itself.
fn digest(token: &str) -> String {
    let digest = Sha256::digest(format!("topicmill serve {token}"));
    topicmill_core::hex(&digest)
}

/// Compares every byte, so that the time that it takes says nothing about where two differ.
fn are_equal(a: &str, b: &str) -> bool {
    let differ = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differ) == 0
}

/// Whether a name is this machine's for itself.
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

/// Whether a request that changes something comes from a page of this server, or from no page at all.
fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let site = text(HeaderName::from_static("sec-fetch-site"));
    if let Some(site) = site {
        return site == "same-origin" || site == "none";
    }
    match text(ORIGIN) {
        // Browsers of today send one of the two with such a request, so this is a program such as curl.
        None => true,
        Some(origin) => {
            let origin = origin.parse::<Uri>().ok();
            let authority = origin.as_ref().and_then(Uri::authority);
            authority.is_some_and(|from| Some(from.as_str()) == text(HOST))
        }
    }
}

/// Whether a page of another site, or of another server on this machine, had a browser ask.
fn is_for_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    matches!(site, Some(b"cross-site" | b"same-site"))
}

/// Whether the server works for this address: links from elsewhere may open pages, and no more.
fn is_work(uri: &Uri) -> bool {
    let path = uri.path();
    path.starts_with("/api/")
        || path.starts_with("/review")
        || (path == "/sql" && uri.query().is_some())
}

/// Lets a request in, or says why not.
pub async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    // A request without the header `Host` may have the name in its address, as HTTP/2 has.
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
    let path = request.uri().path().to_owned();
    if guard.token.is_none() && !host.is_some_and(is_loopback) {
        let said = "this server answers under the names of this machine: open it as http://127.0.0.1 or http://localhost \
                    with its port, or start it with a token";
        return failure(&path, StatusCode::FORBIDDEN, said);
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && !is_from_here(headers) {
        let said = "another site's page sent this; open this server's own page";
        return failure(&path, StatusCode::FORBIDDEN, said);
    }
    if is_work(request.uri()) && is_for_another_site(headers) {
        let said =
            "another site's page asked for this; open this server's own page, or type the address";
        return failure(&path, StatusCode::FORBIDDEN, said);
    }
    // What a person without the token needs: the form, how it looks, and whether the server lives.
    let is_open = matches!(
        path.as_str(),
        "/login" | "/style.css" | "/icon.svg" | "/healthz"
    );
    if is_open || guard.is_let_in(headers) {
        let answering = tokio::time::timeout(LONGEST, next.run(request));
        return answering.await.unwrap_or_else(|_| {
            failure(
                &path,
                StatusCode::SERVICE_UNAVAILABLE,
                "this takes too long; ask for less",
            )
        });
    }
    refused(&path)
}

fn refused(path: &str) -> Response {
    let mut response = if path.starts_with("/api") {
        failure(
            path,
            StatusCode::UNAUTHORIZED,
            "send the token, as `Authorization: Bearer TOKEN`",
        )
    } else {
        html(StatusCode::UNAUTHORIZED, &LoginPage { was_wrong: false })
    };
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// What the form sends.
#[derive(Deserialize)]
pub struct Token {
    token: String,
}

pub async fn login_page() -> Response {
    html(StatusCode::OK, &LoginPage { was_wrong: false })
}

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

/// Writes what failed, and adds to every answer what browsers may do with it.
pub async fn protect(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(Failed(status, said)) = response.extensions_mut().remove() {
        response = failure(&path, status, &said);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        // Only where the page did not set it: style sheets may be kept for a minute.
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static(NOT_KEPT));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_refused() {
        let from = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            is_from_here(&pairs.collect())
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
