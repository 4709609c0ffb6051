//! Checks the URL of a PostgreSQL database, and parses it into the driver's options.

use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::malformed;
use crate::Result;

/// URL parameters that sqlx 0.9 accepts for PostgreSQL (`options/parse.rs`); it ignores others.
const PARAMETERS: &str = "sslmode, ssl-mode, sslrootcert, ssl-root-cert, ssl-ca, sslcert, ssl-cert, sslkey, ssl-key, \
    statement-cache-capacity, host, hostaddr, port, dbname, user, password, application_name, \
    options";

/// Rejects a URL that seems to ask for TLS with a parameter that the driver ignores, and warns about other such
/// parameters. The driver's own warning is suppressed, because it contains the value.
pub(super) fn check_parameters(url: &str) -> Result<()> {
    let unknown = unknown_parameters(url);
    let is_about_tls = |name: &String| name.to_ascii_lowercase().contains("ssl");
    if unknown.iter().any(is_about_tls) {
        let hint = "the server would be reached without TLS, because the driver ignores a parameter with `ssl` in its \
                    name: write `sslmode=require`, or a stricter mode";
        return Err(malformed(url, hint));
    }
    if !unknown.is_empty() {
        tracing::warn!(
            "ignoring an unknown parameter in the database URL; known ones are: {PARAMETERS}"
        );
    }
    Ok(())
}

/// Parses a URL into the driver's options, with a name that identifies our sessions on the server.
pub(super) fn driver_options(url: &str) -> Result<PgConnectOptions> {
    let options = parse_url(url)?.application_name("topicmill");
    Ok(options.disable_statement_logging())
}

/// Returns the parameters of a URL that the driver ignores.
fn unknown_parameters(url: &str) -> Vec<String> {
    let Ok(url) = url::Url::parse(url) else {
        return Vec::new();
    };
    let names = url.query_pairs().map(|(name, _)| name.into_owned());
    let is_known = |name: &str| PARAMETERS.split(", ").any(|known| known == name);
    names
        .filter(|name| !is_known(name) && !name.starts_with("options["))
        .collect()
}

/// Returns true if an `@` follows the part that the driver reads as the host: a `/`, `#` or `?` in the password is not
/// escaped.
pub(super) fn has_unescaped_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once(['/', '#', '?'])
        .is_some_and(|(_, rest)| rest.contains('@'))
}

/// Parses a URL into the driver's options.
fn parse_url(url: &str) -> Result<PgConnectOptions> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (authority, query) = (rest.split(['/', '?']).next(), rest.split_once('?'));
    let authority = authority.unwrap_or_default();
    let parameters = query.map_or("", |(_, query)| query);
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.contains(',') {
        let hint = "it names several hosts, but the driver connects to one: name one host";
        return Err(malformed(url, hint));
    }
    if parameters.contains("sslrootcert=system") {
        let hint =
            "`sslrootcert` is the path of a file: without it, Mozilla's certificates are trusted";
        return Err(malformed(url, hint));
    }
    let mut accepted = url.to_owned();
    // The parser rejects a user without a host, even if a parameter names the host or the folder of the socket.
    if host.is_empty() && authority.ends_with('@') && parameters.contains("host=") {
        let after = &rest[authority.len()..];
        accepted = format!("{scheme}://{authority}localhost{after}");
    }
    // The driver would keep the brackets of an IPv6 address in the host name, even when it searches the password file.
    // The `host` parameter overrides that host name.
    if let Ok(parsed) = url::Url::parse(url)
        && let Some(address) = parsed.host_str().and_then(|host| host.strip_prefix('['))
        && let Some(address) = address.strip_suffix(']')
    {
        accepted.push(if url.contains('?') { '&' } else { '?' });
        accepted.push_str("host=");
        accepted.push_str(address);
    }
    PgConnectOptions::from_str(&accepted).map_err(|error| malformed(url, url_advice(&error)))
}

/// Returns advice for a URL that cannot be parsed, without the driver's message, which quotes values.
fn url_advice(error: &sqlx::Error) -> &'static str {
    let message = error.to_string();
    if message.contains("ssl_mode") {
        "its `sslmode` must be disable, allow, prefer, require, verify-ca or verify-full"
    } else if message.contains("port number") {
        "its port is not a number from 1 to 65535, or the password has a `/`, `#` or `?` that is not escaped as \
         `%2F`, `%23` or `%3F`"
    } else if message.contains("empty host") {
        "name the host between `@` and `/`; put an IPv6 address in brackets, as in \
         `postgres://user:password@[::1]/database`"
    } else {
        "the URL is not well formed; escape special characters in the password (`@` is `%40`, `#` is `%23`)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_used_or_its_mistake_named() {
        for (url, host) in [
            ("postgres://me:pw@[::1]:5433/posts", "::1"),
            ("postgres://me:pw@host.example/posts", "host.example"),
            (
                "postgres://me@/posts?host=pg.example&port=5433",
                "pg.example",
            ),
        ] {
            assert_eq!(parse_url(url).unwrap().get_host(), host);
        }
        for (url, word) in [
            ("postgres://me@a:1,b:2/posts", "several hosts"),
            ("postgres://me@a/posts?sslrootcert=system", "`sslrootcert`"),
        ] {
            let error = parse_url(url).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
