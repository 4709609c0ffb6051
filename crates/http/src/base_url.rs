//! Which addresses may be asked.

use std::net::IpAddr;

use reqwest::Url;

use topicmill_core::redact_url;

/// A base URL that must not be used: as given, without its secrets, and why.
pub type InvalidUrl = (String, String);

/// A base URL: `https`, or plain `http` to this machine. `danger` says what plain `http` to another one would do.
///
/// # Errors
/// The URL without its secrets, and why it is refused.
pub fn base_url(text: &str, danger: &str) -> Result<Url, InvalidUrl> {
    let refuse = |reason: &str| (redact_url(text), reason.to_owned());
    let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it holds a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("it has a `?` or `#` part"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(refuse(&format!(
            "plain http {danger}is allowed to this machine only (127.0.0.1, ::1, localhost)"
        ))),
        _ => Err(refuse("it is not an `https` URL")),
    }
}

/// Whether a URL leads to this machine and nowhere else.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Adds segments to the path of a base URL, encoded where they need it.
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
    fn plain_http_leads_to_this_machine_only() {
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
        let (_, reason) = base_url("http://10.0.0.1", "would be read, and ").unwrap_err();
        assert!(reason.contains("would be read, and is allowed"), "{reason}");
        let (url, reason) = base_url("https://me:hunter2@a.example", "").unwrap_err();
        assert!(
            !format!("{url} {reason}").contains("hunter2"),
            "{url} {reason}"
        );
    }
}
