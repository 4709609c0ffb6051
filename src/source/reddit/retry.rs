//! What an answer means, and how long to wait before asking again.
//!
//! What enters is an [`Answer`]; what leaves is a [`Verdict`]: take it, ask again, or never ask again. Pure:
//! the waiting itself is the client's.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use chrono::{DateTime, Utc};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::Value;

use super::quota;
use crate::domain::Outcome;

/// The shortest wait that an answer can ask for. Reddit sends `retry-after: 0`, and a reset of 0 with
/// nothing remaining; to ask again at once would draw the next 429.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// An answer as it came, read to its end.
#[derive(Debug)]
pub(in crate::source) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// What to do about an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Read its body.
    Take,
    /// The token is not good, or no longer.
    Unauthorized,
    /// Asking again may help; after this wait where the answer named one.
    Retry {
        outcome: Outcome,
        detail: String,
        wait: Option<Duration>,
    },
    /// Asking again will not help.
    Refuse { outcome: Outcome, detail: String },
}

/// Judges an answer by its status, its headers and what its body says of the reason. A wait that it asks for
/// counts as `longest` at most.
pub(super) fn judge(answer: &Answer, now: DateTime<Utc>, longest: Duration) -> Verdict {
    let refuse = |outcome, detail: &str| Verdict::Refuse {
        outcome,
        detail: detail.to_owned(),
    };
    match answer.status.as_u16() {
        200..=299 if is_web_page(answer) => refuse(
            Outcome::EdgeBlocked,
            "a web page came in place of JSON; check `reddit.api_url` and the way to the internet",
        ),
        200..=299 => Verdict::Take,
        300..=399 => judge_redirect(answer),
        401 => Verdict::Unauthorized,
        403 => judge_forbidden(answer),
        404 if reason(answer).as_deref() == Some("banned") => {
            refuse(Outcome::Banned, "Reddit has closed it")
        }
        404 => refuse(Outcome::Missing, "there is nothing of that name"),
        429 => Verdict::Retry {
            outcome: Outcome::RateLimited,
            detail: "too many requests (429)".to_owned(),
            wait: asked_wait(&answer.headers, now).map(|wait| wait.min(longest)),
        },
        451 => refuse(
            Outcome::Banned,
            "closed for legal reasons where this machine is",
        ),
        status if status == 408 || status >= 500 => Verdict::Retry {
            outcome: Outcome::Server,
            detail: format!("status {status}"),
            wait: retry_after(&answer.headers, now).map(|wait| wait.min(longest)),
        },
        _ => refuse(Outcome::Server, "the request was not understood"),
    }
}

/// The waits between that many tries of one request, growing and jittered so that many clients spread out.
pub(in crate::source) fn backoff(tries: u32) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new()
        .with_min_delay(SHORTEST_WAIT)
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(tries.saturating_sub(1) as usize)
        .with_jitter()
        .build()
}

fn judge_redirect(answer: &Answer) -> Verdict {
    let location = answer.headers.get(LOCATION);
    let location = location
        .and_then(|to| to.to_str().ok())
        .unwrap_or("nowhere");
    let path = location.split_once("://").map_or(location, |(_, rest)| {
        rest.find('/').map_or("", |slash| &rest[slash..])
    });
    if path.starts_with("/subreddits/search") {
        return Verdict::Refuse {
            outcome: Outcome::Missing,
            detail: "there is no subreddit of that name".to_owned(),
        };
    }
    let location: String = location.chars().take(100).collect();
    Verdict::Refuse {
        outcome: Outcome::Server,
        detail: format!(
            "a redirect to `{location}`, which is not followed because the token would go with it; \
             check `reddit.api_url`"
        ),
    }
}

/// A JSON 403 is the API answering, anything else the edge in front of it.
fn judge_forbidden(answer: &Answer) -> Verdict {
    let challenge = answer.headers.get(WWW_AUTHENTICATE);
    let scope =
        challenge.is_some_and(|c| c.as_bytes().windows(18).any(|w| w == b"insufficient_scope"));
    let (outcome, detail) = match (body_object(answer), reason(answer).as_deref()) {
        (None, _) => (
            Outcome::EdgeBlocked,
            "blocked before the API; check `reddit.user_agent`, and whether Reddit allows this network",
        ),
        (_, Some("quarantined")) => (Outcome::Quarantined, "it is quarantined"),
        (_, Some("gated")) => (Outcome::Gated, "it asks its readers for consent first"),
        (_, Some("banned")) => (Outcome::Banned, "Reddit has closed it"),
        (_, Some("private")) => (Outcome::Private, "only its members may read it"),
        _ if scope => (
            Outcome::Auth,
            "the token may not read; give the application the scope `read`",
        ),
        _ => (
            Outcome::Private,
            "it may not be read, and Reddit does not say why",
        ),
    };
    Verdict::Refuse {
        outcome,
        detail: detail.to_owned(),
    }
}

fn body_object(answer: &Answer) -> Option<Value> {
    serde_json::from_slice(&answer.body)
        .ok()
        .filter(Value::is_object)
}

fn reason(answer: &Answer) -> Option<String> {
    let body = body_object(answer)?;
    body.get("reason")?.as_str().map(str::to_ascii_lowercase)
}

pub(in crate::source) fn is_web_page(answer: &Answer) -> bool {
    let html = answer
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    html || answer.body.trim_ascii_start().starts_with(b"<")
}

/// The wait that a 429 asks for: `Retry-After`, else the reset of the quota.
pub(in crate::source) fn asked_wait(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    retry_after(headers, now)
        .or_else(|| quota::reset(headers).map(|reset| reset.max(SHORTEST_WAIT)))
}

/// `Retry-After` in either of its forms: seconds, or a date.
pub(in crate::source) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(secs) = text.parse::<f64>() {
        Duration::try_from_secs_f64(secs).ok()?
    } else {
        let until = DateTime::parse_from_rfc2822(text).ok()?;
        (until.to_utc() - now).to_std().unwrap_or_default()
    };
    Some(wait.max(SHORTEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: body.as_bytes().to_vec(),
        }
    }

    fn refused(status: u16, headers: &[(&'static str, &str)], body: &str) -> Outcome {
        match judge(&answer(status, headers, body), DateTime::UNIX_EPOCH, HOUR) {
            Verdict::Refuse { outcome, .. } => outcome,
            other => panic!("{status} was judged {other:?}"),
        }
    }

    fn wait(status: u16, headers: &[(&'static str, &str)]) -> Option<f64> {
        match judge(&answer(status, headers, ""), DateTime::UNIX_EPOCH, HOUR) {
            Verdict::Retry { wait, .. } => wait.map(|wait| wait.as_secs_f64()),
            other => panic!("{status} was judged {other:?}"),
        }
    }

    #[test]
    fn a_refusal_has_the_outcome_that_reddit_means() {
        for (reason, outcome) in [
            ("private", Outcome::Private),
            ("quarantined", Outcome::Quarantined),
            ("gated", Outcome::Gated),
            ("banned", Outcome::Banned),
            ("something new", Outcome::Private),
        ] {
            let body =
                format!("{{\"reason\": \"{reason}\", \"message\": \"Forbidden\", \"error\": 403}}");
            assert_eq!(refused(403, &[], &body), outcome, "{reason}");
        }
        assert_eq!(refused(403, &[], "{\"error\": 403}"), Outcome::Private);
        assert_eq!(
            refused(403, &[], "<html>whoa there, pardner"),
            Outcome::EdgeBlocked
        );
        assert_eq!(refused(403, &[], ""), Outcome::EdgeBlocked);
        let challenge = [(
            "www-authenticate",
            "Bearer realm=\"reddit\", error=\"insufficient_scope\"",
        )];
        assert_eq!(refused(403, &challenge, "{\"error\": 403}"), Outcome::Auth);
        assert_eq!(
            refused(404, &[], "{\"reason\": \"banned\"}"),
            Outcome::Banned
        );
        assert_eq!(refused(404, &[], "<html>"), Outcome::Missing);
        assert_eq!(refused(451, &[], ""), Outcome::Banned);
        assert_eq!(refused(400, &[], "{}"), Outcome::Server);
        assert_eq!(refused(200, &[], "\n<!doctype html>"), Outcome::EdgeBlocked);
    }

    #[test]
    fn a_redirect_to_the_search_is_a_missing_subreddit() {
        for to in [
            "/subreddits/search?q=x",
            "https://www.reddit.com/subreddits/search.json?q=x",
        ] {
            assert_eq!(
                refused(302, &[("location", to)], ""),
                Outcome::Missing,
                "{to}"
            );
        }
        let elsewhere = [("location", "https://evil.example/subreddits/")];
        assert_eq!(refused(301, &elsewhere, ""), Outcome::Server);
        assert_eq!(refused(302, &[], ""), Outcome::Server);
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for status in [408, 429, 500, 502, 503, 504, 520, 522] {
            assert_eq!(wait(status, &[]), None, "{status}");
        }
    }

    #[test]
    fn a_429_says_how_long_to_wait() {
        assert_eq!(wait(429, &[("retry-after", "4")]), Some(4.0));
        assert_eq!(wait(429, &[("retry-after", "0")]), Some(1.0));
        assert_eq!(wait(429, &[("x-ratelimit-reset", "37")]), Some(37.0));
        assert_eq!(wait(429, &[("x-ratelimit-reset", "0")]), Some(1.0));
        let both = [("retry-after", "4"), ("x-ratelimit-reset", "37")];
        assert_eq!(wait(429, &both), Some(4.0));
        assert_eq!(
            wait(429, &[("retry-after", "Thu, 01 Jan 1970 00:00:09 GMT")]),
            Some(9.0)
        );
        assert_eq!(wait(429, &[("retry-after", "-5")]), None);
        for long in ["86400", "1e18", "Fri, 02 Jan 1970 00:00:00 GMT"] {
            assert_eq!(wait(429, &[("retry-after", long)]), Some(3600.0), "{long}");
            assert_eq!(wait(503, &[("retry-after", long)]), Some(3600.0), "{long}");
        }
        assert_eq!(
            wait(503, &[("retry-after", "7"), ("x-ratelimit-reset", "37")]),
            Some(7.0)
        );
    }

    #[test]
    fn backoff_doubles_from_a_second_and_ends() {
        let waits: Vec<f64> = backoff(5).map(|wait| wait.as_secs_f64()).collect();
        assert_eq!(waits.len(), 4);
        assert_eq!((backoff(1).count(), backoff(3).count()), (0, 2));
        for (wait, base) in waits.iter().zip([1.0, 2.0, 4.0, 8.0]) {
            assert!((base..=2.0 * base).contains(wait), "{waits:?}");
        }
    }
}
