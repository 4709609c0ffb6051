//! Redacts passwords and tokens from URLs before they are logged, recorded or displayed.
//!
//! The input is user-supplied text that should be a URL. Redaction works by allowlist: only parts that are known to be
//! harmless are copied, and everything else becomes `***`. A word or a path alone counts as harmless, because it may name
//! a file.

/// The replacement for redacted parts.
const REDACTED: &str = "***";

/// Redacts secrets anywhere in a URL. Text that is not a URL is kept only if it is plain.
///
/// ```
/// use topicmill_core::redact_url;
///
/// assert_eq!(redact_url("postgres://me:s3cret@host/db"), "postgres://me:***@host/db");
/// assert_eq!(redact_url("host=h password=s3cret"), "***");
/// ```
pub fn redact_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once(':') else {
        return plain_or_redacted(text);
    };
    match scheme {
        "sqlite" => redact_sqlite(rest),
        "postgres" | "postgresql" | "mysql" | "http" | "https" => match rest.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{}", redact_remote(scheme, rest)),
            None => format!("{scheme}:{}", plain_or_redacted(rest)),
        },
        _ => REDACTED.to_owned(),
    }
}

/// Returns the text if it is plain; otherwise, its replacement.
fn plain_or_redacted(text: &str) -> String {
    if is_plain(text) { text } else { REDACTED }.to_owned()
}

/// Returns true if the text contains only letters, digits and `_-./~`: nothing that could delimit a password.
fn is_plain(text: &str) -> bool {
    let is_harmless = |c: char| c.is_alphanumeric() || "_-./~".contains(c);
    text.chars().all(is_harmless)
}

/// Redacts a `SQLite` URL. A path is not secret, unless a user and password precede it.
fn redact_sqlite(rest: &str) -> String {
    let (path, query) = match rest.split_once('?') {
        Some((_, query)) if query.contains('@') => return format!("sqlite:{REDACTED}"),
        Some((path, _)) => (path, "?***"),
        None => (rest, ""),
    };
    let has_authority = path.starts_with("//") && !path.starts_with("///");
    let path = match path.rsplit_once('@') {
        Some((before, place))
            if has_authority || before.contains(':') || !path.starts_with(['/', '.']) =>
        {
            format!("{REDACTED}@{place}")
        }
        _ => path.to_owned(),
    };
    format!("sqlite:{path}{query}")
}

/// Redacts the part after `//`: `user:password@host:port/path?name=value#fragment`.
fn redact_remote(scheme: &str, rest: &str) -> String {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (main, tail) = rest.split_at(end);
    // Ambiguous: a password with a `?`, or a parameter with an `@`.
    if tail.contains('@') {
        return REDACTED.to_owned();
    }
    // Split at the last `@`, because passwords may contain an unescaped `@`.
    let (user, place) = match main.rsplit_once('@') {
        Some((userinfo, place)) => (redact_userinfo(scheme, userinfo), place),
        None => (String::new(), main),
    };
    let (host, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    if !is_host(host) {
        return REDACTED.to_owned();
    }
    let path = match path.strip_prefix('/') {
        Some(path) => format!("/{}", plain_or_redacted(path)),
        None => String::new(),
    };
    let tail = tail
        .split_at_checked(1)
        .map_or_else(String::new, |(mark, _)| format!("{mark}{REDACTED}"));
    format!("{user}{host}{path}{tail}")
}

/// Redacts the user part. A database user is not secret, but in a web URL the user may be a token.
fn redact_userinfo(scheme: &str, userinfo: &str) -> String {
    let (user, password) = match userinfo.split_once(':') {
        Some((user, _)) => (user, ":***"),
        None => (userinfo, ""),
    };
    if !user.is_empty() && is_plain(user) && scheme.starts_with("postgres") {
        format!("{user}{password}@")
    } else {
        format!("{REDACTED}@")
    }
}

/// Returns true for a comma-separated list of hosts with optional ports. The slashes of a socket folder are
/// percent-encoded.
fn is_host(text: &str) -> bool {
    let host_and_port = |text: &str| {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (text, ""),
        };
        let name = host.replace("%2F", "/").replace("%2f", "/");
        let address = host.strip_prefix('[');
        let address = address.and_then(|host| host.strip_suffix(']'));
        let is_in_address = |c: char| c.is_ascii_hexdigit() || ":.".contains(c);
        let is_address = |text: &str| text.chars().all(is_in_address);
        (is_plain(&name) || address.is_some_and(is_address))
            && port.bytes().all(|b| b.is_ascii_digit())
    };
    text.split(',').all(host_and_port)
}

#[cfg(test)]
mod tests {
    use crate::table;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmless_urls_are_unchanged() {
        for shown in [
            "sqlite:topicmill.db",
            "sqlite:///srv/a b/x.db",
            "sqlite::memory:",
            "sqlite:/home/me@work/x.db",
            "topicmill.db",
            "postgres:db",
            "mysql://host/db",
            "postgres://me@host/db",
            "postgres://a.example:5432,b.example/db",
            "postgres://me@[::1]:5432/db",
            "postgres://%2Frun%2Fpostgresql/db",
            "https://oauth.reddit.com",
            "http://127.0.0.1:8080/x/",
        ] {
            assert_eq!(redact_url(shown), shown);
        }
    }

    #[test]
    fn passwords_are_redacted() {
        for (given, shown) in table! {
            "postgres://me:s3@cr/et@host:5432/db", "postgres://me:***@host:5432/db";
            "postgres://me:s3?cret@h/db", "postgres://***";
            "postgres://me:s3#cret@h/db", "postgres://***";
            "postgres://me:s3%40cret%40h/db", "postgres://***";
            "postgres://h/db?user=me&password=s3cret&sslpassword=x", "postgres://h/db?***";
            "postgres://h/db?sslmode=require;password=s3cret", "postgres://h/db?***";
            "postgres://h/db?%70assword=s3cret", "postgres://h/db?***";
            "postgres://h/db?s3cret", "postgres://h/db?***";
            "postgres://h/db?user=me%26password=s3cret", "postgres://h/db?***";
            "postgres://h/db?password=s3@cret", "postgres://***";
            "postgres://h/db#s3cret", "postgres://h/db#***";
            "postgres://h/db;password=s3cret", "postgres://h/***";
            "postgres://h/db?sslkey=/s3cret", "postgres://h/db?***";
            "postgres:/me:s3cret@h/db", "postgres:***";
            "POSTGRES://me:s3cret@h/db", "***";
            "me:s3cret@h", "***";
            "s3cret@h", "***";
            " postgres://me:s3cret@h/db", "***";
            "postgres:me:s3cret@h/db", "postgres:***";
            "https://me:s3cret@a.example:x", "https://***";
            "host=h user=me password=s3cret", "***";
            "sqlite://me:s3cret@h/x.db", "sqlite:***@h/x.db";
            "sqlite://s3cret@h/x.db", "sqlite:***@h/x.db";
            "sqlite:x.db?password=s3cret", "sqlite:x.db?***";
            "https://s3cret@a.example/", "https://***@a.example/";
            "https://me:s3cret@a.example/", "https://***@a.example/";
            "https://a.example/?key=s3cret", "https://a.example/?***";
        } {
            assert_eq!(redact_url(given), shown, "{given}");
        }
    }

    /// Marks the secret in generated URLs.
    const SENTINEL: &str = "hush0secret";

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn passwords_never_leak_from_any_url(
            scheme in "(postgres|postgresql|http|https|sqlite|mysql|[a-z]{1,6})",
            slashes in "(:|:/|://|:///|)",
            user in "[a-z.%0-9-]{0,6}",
            before in "[ -~]{0,6}",
            after in "[ -~]{0,6}",
            host in "[a-z0-9.\\[\\]:,-]{0,8}",
            path in "[ -~]{0,8}",
        ) {
            // Excludes `sqlite:` followed by a path, because a path contains no password.
            prop_assume!(!(scheme == "sqlite" && slashes.is_empty() && user.is_empty()));
            let secret = format!("{before}{SENTINEL}{after}");
            for url in [
                format!("{scheme}{slashes}{user}:{secret}@{host}/{path}"),
                format!("{user}:{secret}@{host}/{path}"),
                format!("{user}:{secret}@{host}"),
            ] {
                prop_assert!(!redact_url(&url).contains(SENTINEL), "{url} becomes {}", redact_url(&url));
            }
        }

        #[test]
        fn parameters_never_leak_from_any_url(
            scheme in "(postgres|postgresql|http|https|mysql|sqlite)",
            user in "([a-z]{1,4}(:[a-z]{0,4})?@)?",
            path in "[a-z0-9_.-]{0,8}",
            name in "(password|sslpassword|sslkey|%70assword|pass%77ord|PASSWORD|token|[a-z%0-9]{1,12})",
            before in "[ -~]{0,6}",
            after in "[ -~]{0,6}",
            other in "(sslmode=require&|mode=ro&|a=b;|&)?",
        ) {
            let url = format!("{scheme}://{user}h/{path}?{other}{name}={before}{SENTINEL}{after}");
            prop_assert!(!redact_url(&url).contains(SENTINEL), "{url} becomes {}", redact_url(&url));
        }
    }
}
