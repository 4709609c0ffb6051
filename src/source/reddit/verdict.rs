//! What Reddit means by a refusal.

use reqwest::header::WWW_AUTHENTICATE;
use serde_json::Value;

use crate::domain::Outcome;
use crate::source::http::Answer;
use crate::source::verdict::Refusal;

/// What it means, where it is more than what everybody means. A JSON 403 is the API answering, anything else the edge
/// in front of it.
pub(super) fn refusal(answer: &Answer, status: u16, redirect: Option<&str>) -> Option<Refusal> {
    if let Some(location) = redirect {
        let path = location.split_once("://").map_or(location, |(_, rest)| {
            rest.find('/').map_or("", |slash| &rest[slash..])
        });
        let detail = "there is no subreddit of that name".to_owned();
        return path
            .starts_with("/subreddits/search")
            .then_some((Outcome::Missing, detail));
    }
    let body: Option<Value> = serde_json::from_slice(&answer.body)
        .ok()
        .filter(Value::is_object);
    let reason = body.as_ref().and_then(|body| body.get("reason")?.as_str());
    let reason = reason.map(str::to_ascii_lowercase);
    let challenge = answer.headers.get(WWW_AUTHENTICATE);
    let scope =
        challenge.is_some_and(|c| c.as_bytes().windows(18).any(|w| w == b"insufficient_scope"));
    let (outcome, detail) = match (status, reason.as_deref()) {
        (403 | 404, Some("banned")) => (Outcome::Banned, "Reddit has closed it"),
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
        _ => return None,
    };
    Some((outcome, detail.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::SourceKind;
    use crate::source::error::SourceError;
    use crate::source::http::Judgement;
    use crate::source::verdict::Judge;
    use chrono::DateTime;
    use reqwest::StatusCode;
    use std::time::Duration;

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
    ) -> Judgement<(), SourceError> {
        let judge = Judge {
            kind: SourceKind::Reddit,
            what: "r/climate",
            now: DateTime::UNIX_EPOCH,
            longest: HOUR,
        };
        let answer = answer(status, headers, body);
        let refusal = |status, redirect: Option<&str>| refusal(&answer, status, redirect);
        judge.judge(&answer, |_| Ok(()), refusal)
    }

    fn outcome_of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Outcome {
        match judged(status, headers, body) {
            Judgement::Never(error) => error.outcome(),
            _ => panic!("{status} was not refused"),
        }
    }

    fn wait(status: u16, headers: &[(&'static str, &str)]) -> Option<f64> {
        match judged(status, headers, "") {
            Judgement::Again(trouble) => trouble.wait.map(|wait| wait.as_secs_f64()),
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
