//! Checks the proxy variables: the HTTP library ignores a malformed value, and would connect without the proxy.

use std::error::Error;
use std::ffi::OsString;

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

/// Returns true if the HTTP library uses this value. A value without a scheme stands for `http://`.
fn is_proxy(value: &str) -> bool {
    let Ok(uri) = value.parse::<Uri>() else {
        return false;
    };
    let scheme = uri.scheme_str().unwrap_or("http");
    ["http", "https"].contains(&scheme) && uri.host().is_some_and(|host| !host.is_empty())
}

/// Returns the reason if a server's or a proxy's certificate was rejected.
pub fn certificate_problem(error: &reqwest::Error) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(next) = cause {
        let inner = next.downcast_ref::<std::io::Error>();
        let inner = inner.and_then(std::io::Error::get_ref);
        let tls = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => next.downcast_ref::<rustls::Error>(),
        };
        if let Some(rustls::Error::InvalidCertificate(why)) = tls {
            return Some(why.to_string());
        }
        cause = next.source();
    }
    None
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
}
