//! Maps Reddit's refusals to outcomes.

use reqwest::header::WWW_AUTHENTICATE;
use serde_json::Value;

use crate::classify::Refusal;
use topicmill_core::Outcome;
use topicmill_http::HttpResponse;

/// Returns the meaning of a refusal if it is more specific than its HTTP status. A 403 in JSON comes from the API; any
/// other 403 comes from the edge in front of it.
pub(super) fn refusal(
    answer: &HttpResponse,
    status: u16,
    redirect: Option<&str>,
) -> Option<Refusal> {
    if let Some(location) = redirect {
        let path = location.split_once("://").map_or(location, |(_, rest)| {
            rest.find('/').map_or("", |slash| &rest[slash..])
        });
        let detail = "there is no subreddit with that name".to_owned();
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
        (403 | 404, Some("banned")) => (Outcome::Banned, "Reddit has banned it"),
        (403, _) if body.is_none() => (
            Outcome::EdgeBlocked,
            "blocked before the API; check `reddit.user_agent`, and whether Reddit allows this network",
        ),
        (403, Some("quarantined")) => (Outcome::Quarantined, "it is quarantined"),
        (403, Some("gated")) => (Outcome::Gated, "it requires its readers' consent"),
        (403, Some("private")) => (Outcome::Private, "only its members may read it"),
        (403, _) if scope => (
            Outcome::Auth,
            "the token has no permission to read; grant the application the `read` scope",
        ),
        (403, _) => (Outcome::Private, "it cannot be read, for an unknown reason"),
        _ => return None,
    };
    Some((outcome, detail.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::ResponseClassifier;
    use crate::error::SourceError;
    use chrono::DateTime;
    use reqwest::StatusCode;
    use std::time::Duration;
    use topicmill_core::SourceKind;
    use topicmill_http::RetryDecision;

    fn classified(
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> RetryDecision<(), SourceError> {
        let classifier = ResponseClassifier {
            kind: SourceKind::Reddit,
            what: "r/climate",
            now: DateTime::UNIX_EPOCH,
            longest: Duration::from_hours(1),
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let answer = HttpResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: body.as_bytes().to_vec(),
        };
        let refusal = |status, redirect: Option<&str>| refusal(&answer, status, redirect);
        classifier.classify(&answer, |_| Ok(()), refusal)
    }

    #[test]
    fn a_refusal_has_the_outcome_that_reddit_means() {
        let scope = (
            "www-authenticate",
            "Bearer realm=\"reddit\", error=\"insufficient_scope\"",
        );
        let other = ("www-authenticate", "Bearer realm=\"reddit\"");
        let elsewhere = ("location", "https://evil.example/subreddits/");
        for (status, header, body, outcome) in [
            (403, other, "{\"reason\": \"new\"}", Outcome::Private),
            (403, scope, "{}", Outcome::Auth),
            (400, other, "{}", Outcome::Server),
            (301, elsewhere, "", Outcome::Server),
        ] {
            match classified(status, &[header], body) {
                RetryDecision::Fail(error) => {
                    assert_eq!(error.outcome(), outcome, "{status} {body}");
                }
                _ => panic!("{status} was not refused"),
            }
        }
    }

    #[test]
    fn a_wait_is_as_long_as_the_response_requests_and_the_settings_allow() {
        let (after, reset) = ("retry-after", "x-ratelimit-reset");
        for (status, headers, wait) in [
            (429, &[(after, "4"), (reset, "37")][..], Some(4)),
            (429, &[(reset, "37")], Some(37)),
            (429, &[(reset, "0")], Some(1)),
            (503, &[(after, "7"), (reset, "37")], Some(7)),
            (503, &[(reset, "37")], None),
            (429, &[(after, "1e18")], Some(3_600)),
            // An error sent with status 200.
            (200, &[(after, "4")], Some(4)),
            (
                503,
                &[(after, "Fri, 02 Jan 1970 00:00:00 GMT")],
                Some(3_600),
            ),
        ] {
            match classified(
                status,
                headers,
                r#"{"message": "Too Many\n Requests", "error": 429}"#,
            ) {
                RetryDecision::Retry(failure) => {
                    assert_eq!(failure.wait, wait.map(Duration::from_secs), "{headers:?}");
                }
                _ => panic!("{status} was not retried"),
            }
        }
    }
}
