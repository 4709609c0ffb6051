//! Checks the proxy variables: the HTTP library ignores a malformed value, and would connect without the proxy.

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

/// Returns true if the HTTP library uses this value as it is meant. A value without a scheme stands for `http://`. The
/// library connects to the default port instead of an invalid one, and sends only a part of a password that contains
/// `@`.
fn is_proxy(value: &str) -> bool {
    let Ok(uri) = value.parse::<Uri>() else {
        return false;
    };
    let Some(authority) = uri.authority() else {
        return false;
    };
    let (host, port) = (authority.host(), authority.port_u16());
    let whole = authority.as_str();
    let (login, server) = whole.rsplit_once('@').unwrap_or(("", whole));
    ["http", "https"].contains(&uri.scheme_str().unwrap_or("http"))
        && !host.is_empty()
        && !login.contains('@')
        && (server.len() == host.len() || port.is_some_and(|port| port > 0))
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
}
