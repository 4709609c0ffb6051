//! Checks the proxy variables: the HTTP library ignores a malformed value, and would connect without the proxy.

use std::error::Error;
use std::ffi::OsString;
use std::{fmt, io};

use http::Uri;

use super::error::HttpError;

/// The variables that name a proxy. Of each pair, the first that is set counts.
const VARIABLES: [[&str; 2]; 3] = [
    ["HTTPS_PROXY", "https_proxy"],
    ["HTTP_PROXY", "http_proxy"],
    ["ALL_PROXY", "all_proxy"],
];

/// Checks that the proxies in the environment can be used.
///
/// # Errors
/// [`HttpError::Proxy`].
pub fn check_proxies() -> Result<(), HttpError> {
    check(|name| std::env::var_os(name))
}

fn check(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), HttpError> {
    for pair in VARIABLES {
        let set = pair.iter().find_map(|name| Some((*name, variable(name)?)));
        if let Some((name, value)) = set
            && !value.is_empty()
            && !value.to_str().is_some_and(is_proxy)
        {
            return Err(HttpError::Proxy(name));
        }
    }
    Ok(())
}

/// Returns true if the HTTP library uses this value as it is meant. A value without a scheme stands for `http://`. The
/// library connects to the default port instead of an invalid one, and sends a part of a password that contains `@`.
fn is_proxy(value: &str) -> bool {
    let uri = value.parse::<Uri>().ok();
    let Some(place) = uri.as_ref().and_then(Uri::authority) else {
        return false;
    };
    let scheme = uri.as_ref().and_then(Uri::scheme_str).unwrap_or("http");
    let (login, server) = place
        .as_str()
        .rsplit_once('@')
        .unwrap_or(("", place.as_str()));
    let (host, port) = (place.host(), place.port_u16());
    ["http", "https"].contains(&scheme)
        && !host.is_empty()
        && !login.contains('@')
        && (server.len() == host.len() || port.is_some_and(|port| port > 0))
}

/// A reason why a server cannot be reached that a retry does not change.
#[derive(Debug)]
pub enum Refusal {
    /// A certificate was rejected, for this reason.
    Certificate(String),
    /// The proxy rejected the login, or requires one.
    ProxyLogin,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(
                f,
                "the TLS certificate was rejected ({why}); if your organisation's proxy signs it, name the file of its \
                 CA certificates in SSL_CERT_FILE"
            ),
            Self::ProxyLogin => f.write_str(
                "the proxy requires a user and a password: write it as `http://user:password@host:port`, and `@` in \
                 the password as `%40`",
            ),
        }
    }
}

impl Refusal {
    /// Returns the refusal among the causes of an error.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        // An I/O error's source is not the error that it wraps, but the source of that one.
        if let Some(inner) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            return Self::of(inner);
        }
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(why)) => {
                Some(Self::Certificate(why.to_string()))
            }
            // The type of this error is private.
            _ if error.to_string() == "tunnel error: proxy authorization required" => {
                Some(Self::ProxyLogin)
            }
            _ => Self::of(error.source()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_would_be_ignored_is_rejected() {
        for value in [
            "http://127.0.0.1:3128",
            "proxy:3128",
            "https://u:p%40ss@[::1]:3128/",
            "",
        ] {
            let checked = check(|name| (name == "https_proxy").then(|| value.into()));
            checked.unwrap_or_else(|error| panic!("{value}: {error}"));
        }
        for value in [
            "http//127.0.0.1:3128",
            "\"http://127.0.0.1:3128\"",
            "ftp://127.0.0.1:3128",
            "socks5://127.0.0.1:1080",
            "garbage::::",
            "http://u:p ss@proxy:3128",
            "http://",
            "/proxy",
            "http://proxy:port3128",
            "http://proxy:93128",
            "http://u:p@ss@proxy:3128",
            " http://proxy:3128",
        ] {
            for name in VARIABLES.into_iter().flatten() {
                let checked = check(|other| (other == name).then(|| value.into()));
                let error = checked.unwrap_err();
                assert!(error.to_string().contains(name), "{value}: {error}");
                assert!(!error.to_string().contains("3128"), "{error}");
            }
        }
    }
    #[test]
    fn a_rejected_certificate_is_found_in_nested_errors() {
        let rejected = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let nested = io::Error::other(io::Error::other(rejected));
        assert!(matches!(
            Refusal::of(&nested),
            Some(Refusal::Certificate(_))
        ));
        assert!(Refusal::of(&io::Error::other("reset")).is_none());
    }
}
