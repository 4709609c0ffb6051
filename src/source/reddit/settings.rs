//! What the client is told, and what it refuses to start with.

use std::fmt;
use std::time::Duration;

use reqwest::Url;

use super::RedditError;
use crate::domain::redact_url;

/// What the client needs to know; plain values, filled from the configuration by the caller.
#[derive(Clone)]
pub struct Settings {
    /// Base URL of the token endpoint, `https://www.reddit.com`.
    pub auth_url: String,
    /// Base URL of the API, `https://oauth.reddit.com`.
    pub api_url: String,
    /// Id of the application as registered with Reddit.
    pub client_id: String,
    /// Its secret; empty for an installed application.
    pub client_secret: String,
    /// Empty for an application-only token, else the account to sign in as.
    pub username: String,
    /// The account's password.
    pub password: String,
    /// `<platform>:<app id>:<version> (by /u/name)`.
    pub user_agent: String,
    /// Requests a minute that the client allows itself, whatever Reddit's headers say.
    pub requests_per_minute: u32,
    /// A single wait above this gives up instead, with the outcome `rate-limited`.
    pub wait_budget: Duration,
    /// Sends of one request, the first included, before it is given up.
    pub tries: u32,
    /// The longest wait that an answer can ask for; a longer one counts as this.
    pub retry_after_cap: Duration,
    /// How long before its end a token is asked for anew.
    pub token_margin: Duration,
    /// How long a connection, a read and a whole request may take.
    pub timeouts: Timeouts,
}

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two reads of a response.
    pub read: Duration,
    /// From sending a request to the last byte of its response.
    pub total: Duration,
}

impl fmt::Debug for Settings {
    /// Without the secrets, and without the account's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("auth_url", &self.auth_url)
            .field("api_url", &self.api_url)
            .field("user_agent", &self.user_agent)
            .field("requests_per_minute", &self.requests_per_minute)
            .field("wait_budget", &self.wait_budget)
            .field("tries", &self.tries)
            .field("retry_after_cap", &self.retry_after_cap)
            .field("token_margin", &self.token_margin)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// Refuses numbers under which nothing could be read.
pub(super) fn check_numbers(settings: &Settings) -> Result<(), RedditError> {
    let upto = |most: u64, value: Duration| value <= Duration::from_secs(most);
    let above_0 = |most: u64, value: Duration| !value.is_zero() && upto(most, value);
    let Timeouts {
        connect,
        read,
        total,
    } = settings.timeouts;
    let per_minute = settings.requests_per_minute;
    for (setting, works, least, most) in [
        (
            "requests_per_minute",
            (1..=10_000).contains(&per_minute),
            1,
            10_000,
        ),
        ("tries", (1..=20).contains(&settings.tries), 1, 20),
        (
            "wait_budget_secs",
            upto(86_400, settings.wait_budget),
            0,
            86_400,
        ),
        (
            "retry_after_cap_secs",
            above_0(86_400, settings.retry_after_cap),
            1,
            86_400,
        ),
        (
            "token_margin_secs",
            upto(3_600, settings.token_margin),
            0,
            3_600,
        ),
        ("connect_timeout_secs", above_0(3_600, connect), 1, 3_600),
        ("read_timeout_secs", above_0(3_600, read), 1, 3_600),
        ("total_timeout_secs", above_0(3_600, total), 1, 3_600),
    ] {
        if !works {
            return Err(RedditError::Number {
                setting,
                least,
                most,
            });
        }
    }
    Ok(())
}

/// A base URL that may carry credentials: `https`, or plain `http` to this machine.
pub(super) fn base_url(setting: &'static str, text: &str) -> Result<Url, RedditError> {
    let refuse = |reason: &str| RedditError::BaseUrl {
        setting,
        url: redact_url(text),
        reason: reason.to_owned(),
    };
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
        "http" => Err(refuse(
            "plain http would send the secret and the token readable over the network, \
             and is allowed to this machine only (127.0.0.1, ::1, localhost)",
        )),
        _ => Err(refuse("it is not an `https` URL")),
    }
}

/// Whether a URL leads to this machine and nowhere else.
pub(in crate::source) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Checks a user agent against the form that Reddit asks for.
pub(in crate::source) fn check_user_agent(text: &str) -> Result<(), RedditError> {
    let well_formed = || -> Option<()> {
        let (program, name) = text.strip_suffix(')')?.split_once(" (by /u/")?;
        let mut parts = program.split(':');
        let named = parts.by_ref().take(3).filter(|part| is_word(part)).count() == 3;
        let account = (2..=20).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let browser = text.to_ascii_lowercase().contains("mozilla");
        (named && parts.next().is_none() && account && !browser).then_some(())
    };
    well_formed().ok_or_else(|| RedditError::UserAgent(text.to_owned()))
}

fn is_word(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Checks a subreddit's name as it may stand in a URL.
///
/// # Errors
/// [`RedditError::Subreddit`], which says what a name looks like.
pub fn check_subreddit(name: &str) -> Result<(), RedditError> {
    let valid = (2..=21).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if valid {
        Ok(())
    } else {
        Err(RedditError::Subreddit(name.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reddits_form_of_a_user_agent_passes() {
        for good in [
            "linux:topicmill:v0.1.0 (by /u/someone)",
            "server:org.example.mill:1.2 (by /u/a-b_c)",
        ] {
            assert!(check_user_agent(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "topicmill",
            "Mozilla/5.0 (X11; Linux x86_64)",
            "Mozilla/5.0:app:1 (by /u/someone)",
            "linux:topicmill (by /u/someone)",
            "linux:topicmill:v1",
            "linux::v1 (by /u/someone)",
            "linux:a:b:c (by /u/someone)",
            "linux:topicmill:v1 (by /u/)",
            "linux:topicmill:v1 (by /u/some one)",
            "linux:topicmill:v1\r\nX: y (by /u/someone)",
        ] {
            let error = check_user_agent(bad).unwrap_err().to_string();
            assert!(error.contains("(by /u/"), "{error}");
        }
    }

    #[test]
    fn plain_http_leads_to_this_machine_only() {
        for good in [
            "https://oauth.reddit.com",
            "http://127.0.0.1:8080",
            "http://127.8.8.8/x",
            "http://[::1]:80",
            "http://localhost:3000/",
        ] {
            assert!(base_url("api_url", good).is_ok(), "{good}");
        }
        for bad in [
            "oauth.reddit.com",
            "http://oauth.reddit.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "ftp://127.0.0.1",
            "https://a.example/?q=1",
            "",
        ] {
            assert!(base_url("api_url", bad).is_err(), "{bad}");
        }
        let error = base_url("api_url", "http://10.0.0.1").unwrap_err();
        assert!(
            error.to_string().contains("readable over the network"),
            "{error}"
        );
        let error = base_url("api_url", "https://me:hunter2@a.example").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_url() {
        for good in ["climate", "ab", "personalfinance", "a_b_c_1"] {
            assert!(check_subreddit(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "../api",
            "a/b",
            "a b",
            "r?x",
            "naïve",
            "a234567890123456789012",
        ] {
            assert!(check_subreddit(bad).is_err(), "{bad}");
        }
    }
}
