//! What Reddit's answers mean: take it, ask again, or never ask again. Pure: the waiting itself is the client's.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::WWW_AUTHENTICATE;
use serde_json::Value;

use crate::domain::Outcome;
use crate::source::error::SourceError;
use crate::source::http::{Answer, Meaning, Site, Trouble, Verdict};
use crate::source::listing::ListingError;

/// How the answers to one question are judged.
pub(super) struct Judge<'a> {
    pub site: Site,
    /// What was asked for.
    pub what: &'a str,
    pub now: DateTime<Utc>,
    /// A wait that an answer asks for counts as this at most.
    pub longest: Duration,
}

impl Judge<'_> {
    /// Judges an answer by its status, its headers and what its body says of the reason.
    pub(super) fn judge<T>(
        &self,
        answer: &Answer,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Verdict<T, SourceError> {
        let again = |detail: String, wait: Option<Duration>, is_rate_limit| {
            Verdict::Again(Trouble {
                detail,
                wait: wait.map(|wait| wait.min(self.longest)),
                is_rate_limit,
                ..Trouble::default()
            })
        };
        let status = answer.status.as_u16();
        let (outcome, detail) = match answer.meaning(self.now) {
            Meaning::Good => {
                return match decode(&answer.body) {
                    Ok(decoded) => Verdict::Take(decoded),
                    Err(error @ ListingError::Json(_)) => again(error.to_string(), None, false),
                    Err(ListingError::Shape(source)) => Verdict::Never(SourceError::Shape {
                        site: self.site,
                        what: self.what.to_owned(),
                        source: Some(source),
                    }),
                };
            }
            Meaning::TooMany(wait) => {
                return again("too many requests (429)".to_owned(), wait, true);
            }
            Meaning::Trouble(wait) => return again(format!("status {status}"), wait, false),
            Meaning::Refused if status == 401 => {
                return Verdict::Never(SourceError::Unauthorized(self.what.to_owned()));
            }
            Meaning::WebPage => (
                Outcome::EdgeBlocked,
                "a web page came in place of JSON; check `reddit.api_url` and the way to the internet"
                    .to_owned(),
            ),
            Meaning::Redirect(to) => redirected(&to),
            Meaning::Refused => {
                let (outcome, detail) = refused(status, answer);
                (outcome, detail.to_owned())
            }
        };
        Verdict::Never(SourceError::Refused {
            site: self.site,
            what: self.what.to_owned(),
            outcome,
            status,
            detail,
        })
    }
}

fn redirected(location: &str) -> (Outcome, String) {
    let path = location.split_once("://").map_or(location, |(_, rest)| {
        rest.find('/').map_or("", |slash| &rest[slash..])
    });
    if path.starts_with("/subreddits/search") {
        let detail = "there is no subreddit of that name".to_owned();
        return (Outcome::Missing, detail);
    }
    let detail = format!(
        "a redirect to `{location}`, which is not followed because the token would go with it; \
         check `reddit.api_url`"
    );
    (Outcome::Server, detail)
}

/// Why it is refused. A JSON 403 is the API answering, anything else the edge in front of it.
fn refused(status: u16, answer: &Answer) -> (Outcome, &'static str) {
    let body: Option<Value> = serde_json::from_slice(&answer.body)
        .ok()
        .filter(Value::is_object);
    let reason = body.as_ref().and_then(|body| body.get("reason")?.as_str());
    let reason = reason.map(str::to_ascii_lowercase);
    let challenge = answer.headers.get(WWW_AUTHENTICATE);
    let scope =
        challenge.is_some_and(|c| c.as_bytes().windows(18).any(|w| w == b"insufficient_scope"));
    match (status, reason.as_deref()) {
        (403 | 404, Some("banned")) => (Outcome::Banned, "Reddit has closed it"),
        (404, _) => (Outcome::Missing, "there is nothing of that name"),
        (451, _) => (
            Outcome::Banned,
            "closed for legal reasons where this machine is",
        ),
        (403, _) if body.is_none() => (
            Outcome::EdgeBlocked,
            "blocked before the API; check `reddit.user_agent`, and whether Reddit allows this network",
        ),
        (403, Some("quarantined")) => (Outcome::Quarantined, "it is quarantined"),
        (403, Some("gated")) => (Outcome::Gated, "it asks its readers for consent first"),
        (403, Some("private")) => (Outcome::Private, "only its members may read it"),
        (403, _) if scope => (
            Outcome::Auth,
            "the token may not read; give the application the scope `read`",
        ),
        (403, _) => (
            Outcome::Private,
            "it may not be read, and Reddit does not say why",
        ),
        _ => (Outcome::Server, "the request was not understood"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::StatusCode;

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

    fn judged(
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Verdict<(), SourceError> {
        let judge = Judge {
            site: Site {
                name: "Reddit",
                section: "reddit",
            },
            what: "r/climate",
            now: DateTime::UNIX_EPOCH,
            longest: HOUR,
        };
        judge.judge(&answer(status, headers, body), |_| Ok(()))
    }

    fn outcome_of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Outcome {
        match judged(status, headers, body) {
            Verdict::Never(error) => error.outcome(),
            _ => panic!("{status} was not refused"),
        }
    }

    fn wait(status: u16, headers: &[(&'static str, &str)]) -> Option<f64> {
        match judged(status, headers, "") {
            Verdict::Again(trouble) => trouble.wait.map(|wait| wait.as_secs_f64()),
            _ => panic!("{status} is not asked again"),
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
            assert_eq!(outcome_of(403, &[], &body), outcome, "{reason}");
        }
        assert_eq!(outcome_of(403, &[], "{\"error\": 403}"), Outcome::Private);
        assert_eq!(
            outcome_of(403, &[], "<html>whoa there, pardner"),
            Outcome::EdgeBlocked
        );
        assert_eq!(outcome_of(403, &[], ""), Outcome::EdgeBlocked);
        let challenge = [(
            "www-authenticate",
            "Bearer realm=\"reddit\", error=\"insufficient_scope\"",
        )];
        assert_eq!(
            outcome_of(403, &challenge, "{\"error\": 403}"),
            Outcome::Auth
        );
        assert_eq!(
            outcome_of(404, &[], "{\"reason\": \"banned\"}"),
            Outcome::Banned
        );
        assert_eq!(outcome_of(404, &[], "<html>"), Outcome::Missing);
        assert_eq!(outcome_of(451, &[], ""), Outcome::Banned);
        assert_eq!(outcome_of(400, &[], "{}"), Outcome::Server);
        assert_eq!(
            outcome_of(200, &[], "\n<!doctype html>"),
            Outcome::EdgeBlocked
        );
    }

    #[test]
    fn a_redirect_to_the_search_is_a_missing_subreddit() {
        for to in [
            "/subreddits/search?q=x",
            "https://www.reddit.com/subreddits/search.json?q=x",
        ] {
            assert_eq!(
                outcome_of(302, &[("location", to)], ""),
                Outcome::Missing,
                "{to}"
            );
        }
        let elsewhere = [("location", "https://evil.example/subreddits/")];
        assert_eq!(outcome_of(301, &elsewhere, ""), Outcome::Server);
        assert_eq!(outcome_of(302, &[], ""), Outcome::Server);
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
}
