//! Validates configured base URLs and appends path segments to them.

use std::net::IpAddr;

use reqwest::Url;

use topicmill_core::redact_url;

/// A rejected base URL.
#[derive(Debug, thiserror::Error)]
#[error("`{redacted}`: {reason}")]
pub struct InvalidUrl {
    redacted: String,
    reason: String,
}

/// Parses a base URL: `https`, or plain `http` to this machine.
///
/// `danger` is inserted into the error about plain `http`, such as `"would send the secret unencrypted, and "`.
///
/// # Errors
/// Returns [`InvalidUrl`].
pub fn base_url(text: &str, danger: &str) -> Result<Url, InvalidUrl> {
    let reject = |reason: &str| InvalidUrl {
        redacted: redact_url(text),
        reason: reason.to_owned(),
    };
    let url = Url::parse(text).map_err(|error| reject(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(reject("it contains a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(reject("it contains a `?` or `#` part"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(reject(&format!(
            "plain http {danger}is only allowed to this machine (127.0.0.1, ::1, localhost)"
        ))),
        _ => Err(reject("it is not an `https` URL")),
    }
}

/// Returns true if the host of the URL is a loopback address or `localhost`.
pub fn is_loopback(url: &Url) -> bool {
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
            assert!(base_url(good, "").is_ok(), "{good}");
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
            assert!(base_url(bad, "").is_err(), "{bad}");
        }
        let reject = |url: &str| {
            base_url(url, "would be read, and ")
                .unwrap_err()
                .to_string()
        };
        let plain = reject("http://10.0.0.1");
        assert!(
            plain.contains("would be read, and is only allowed"),
            "{plain}"
        );
        let secret = reject("https://me:hunter2@a.example");
        assert!(!secret.contains("hunter2"), "{secret}");
    }
}
