//! Validates configured base URLs and appends path segments to them.

use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;

use topicmill_core::redact_url;

/// A rejected base URL.
#[derive(Debug, thiserror::Error)]
#[error("`{redacted}`: {reason}")]
pub struct InvalidUrl {
    redacted: String,
    #[source]
    reason: Reason,
}

/// The reason why a base URL was rejected.
#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Parse(<Url as FromStr>::Err),
    #[error("it contains a user name or password")]
    UserInfo,
    #[error("it contains a `?` or `#` part")]
    QueryOrFragment,
    #[error("plain http {}is only allowed to this machine (127.0.0.1, ::1, localhost)", .0.risk())]
    PlainHttp(Payload),
    #[error("it is not an `https` URL")]
    NotHttps,
}

/// The most sensitive part of the requests to a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Nothing secret.
    Public,
    /// A secret and tokens.
    Credentials,
}

impl Payload {
    /// Returns the risk of plain `http`, to be continued with a verb.
    fn risk(self) -> &'static str {
        match self {
            Self::Public => "",
            Self::Credentials => "would send the secret and the token unencrypted, and ",
        }
    }
}

/// Parses a base URL: `https`, or plain `http` to this machine. `payload` explains the error about plain `http`.
///
/// # Errors
/// Returns [`InvalidUrl`].
pub fn base_url(text: &str, payload: Payload) -> Result<Url, InvalidUrl> {
    check(text, payload).map_err(|reason| InvalidUrl {
        redacted: redact_url(text),
        reason,
    })
}

fn check(text: &str, payload: Payload) -> Result<Url, Reason> {
    let url = Url::parse(text).map_err(Reason::Parse)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Reason::UserInfo);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Reason::QueryOrFragment);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(Reason::PlainHttp(payload)),
        _ => Err(Reason::NotHttps),
    }
}

/// Returns true if the host of the URL is a loopback address or `localhost`.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Appends segments to the path of a base URL, percent-encoded where necessary.
pub fn append_path(url: &mut Url, segments: &[&str]) {
    url.path_segments_mut()
        .expect("an http or https URL has a path")
        .pop_if_empty()
        .extend(segments);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_only_allowed_to_this_machine() {
        for good in [
            "https://oauth.reddit.com",
            "http://127.0.0.1:8080",
            "http://[::1]:80",
            "http://localhost:3000/",
        ] {
            assert!(base_url(good, Payload::Public).is_ok(), "{good}");
        }
        for bad in [
            "oauth.reddit.com",
            "http://oauth.reddit.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "ftp://127.0.0.1",
            "https://a.example/?q=1",
            "",
        ] {
            assert!(base_url(bad, Payload::Public).is_err(), "{bad}");
        }
        let reject = |url: &str| base_url(url, Payload::Credentials).unwrap_err();
        let plain = reject("http://10.0.0.1");
        assert!(matches!(
            plain.reason,
            Reason::PlainHttp(Payload::Credentials)
        ));
        let secret = reject("https://me:hunter2@a.example").to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }
}
