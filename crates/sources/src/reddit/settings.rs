//! The client's settings and their validation.

use std::fmt;
use std::time::Duration;

use reqwest::Url;

use crate::error::SourceError;
use topicmill_http::{ClientSettings, Payload, Timeouts};

/// Client settings, which the caller fills in from the configuration.
#[derive(Clone)]
pub struct RedditSettings {
    /// Base URL of the token endpoint, `https://www.reddit.com`.
    pub auth_url: String,
    /// Base URL of the API, `https://oauth.reddit.com`.
    pub api_url: String,
    /// Client id of the application that is registered with Reddit.
    pub client_id: String,
    /// Secret of the application; empty for an installed application.
    pub client_secret: String,
    /// Account to sign in as; empty for an application-only token.
    pub username: String,
    /// Password of the account.
    pub password: String,
    /// Settings for the HTTP client. Its user agent must have the form `<platform>:<app id>:<version> (by /u/name)`.
    pub client: ClientSettings,
}

impl fmt::Debug for RedditSettings {
    /// Omits the secrets and the account's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedditSettings")
            .field("api_url", &self.api_url)
            .field("user_agent", &self.client.user_agent)
            .finish_non_exhaustive()
    }
}

/// Checks that each number is in its valid range.
pub(super) fn check_numbers(settings: &RedditSettings) -> Result<(), SourceError> {
    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;
    // Half a second must not become 0.
    let secs = |time: Duration| {
        let rest = u64::from(time.subsec_nanos() > 0);
        time.as_secs().saturating_add(rest)
    };
    let client = &settings.client;
    let Timeouts {
        connect,
        read,
        total,
    } = client.timeouts;
    let (per_minute, tries) = (client.requests_per_minute.into(), client.tries.into());
    for (setting, given, least, most) in [
        ("reddit.requests_per_minute", per_minute, 1, 10_000),
        ("reddit.tries", tries, 1, 20),
        ("reddit.wait_budget_secs", secs(client.wait_budget), 0, DAY),
        ("reddit.connect_timeout_secs", secs(connect), 1, HOUR),
        ("reddit.read_timeout_secs", secs(read), 1, HOUR),
        ("reddit.total_timeout_secs", secs(total), 1, HOUR),
    ] {
        if !(least..=most).contains(&given) {
            return Err(SourceError::number(setting, least, most));
        }
    }
    Ok(())
}

/// Parses a base URL and checks that credentials may be sent to it.
pub(super) fn base_url(setting: &'static str, text: &str) -> Result<Url, SourceError> {
    let usual = "the defaults are `https://www.reddit.com` (auth_url) and `https://oauth.reddit.com` (api_url)";
    topicmill_http::base_url(text, Payload::Credentials)
        .map_err(|error| SourceError::Setting(format!("`{setting}` is {error}; {usual}")))
}

/// Checks a user agent against the format that Reddit requires.
pub(crate) fn check_user_agent(text: &str) -> Result<(), SourceError> {
    let well_formed = || -> Option<()> {
        let (program, name) = text.strip_suffix(')')?.split_once(" (by /u/")?;
        let mut parts = program.split(':');
        let named = parts.by_ref().take(3).filter(|part| is_word(part)).count() == 3;
        let account = (2..=20).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        // Reddit's rules forbid posing as a browser.
        let browser = text.to_ascii_lowercase().contains("mozilla");
        (named && parts.next().is_none() && account && !browser).then_some(())
    };
    well_formed().ok_or_else(|| {
        SourceError::Setting(format!(
            "`reddit.user_agent` is `{text}`: Reddit requires `<platform>:<app id>:<version> (by /u/<your account>)`, \
             such as `linux:topicmill:v0.1.0 (by /u/your_name)`, and forbids the user agent of a browser"
        ))
    })
}

fn is_word(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_user_agents_in_reddits_format_are_accepted() {
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
}
