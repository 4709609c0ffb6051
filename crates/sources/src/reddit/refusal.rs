//! Maps Reddit's refusals to outcomes.

use reqwest::header::WWW_AUTHENTICATE;
use serde_json::Value;

use crate::judge::Refusal;
use topicmill_core::Outcome;
use topicmill_http::HttpResponse;

/// Returns the meaning of a refusal if it is more specific than its HTTP status. A 403 in JSON comes from the API; any
/// other 403 comes from the edge in front of it.
pub(super) fn refusal(
    response: &HttpResponse,
    status: u16,
    redirect: Option<&str>,
) -> Option<Refusal> {
    if let Some(location) = redirect {
        let path = location.split_once("://").map_or(location, |(_, rest)| {
            rest.find('/').map_or("", |slash| &rest[slash..])
        });
        let is_search = path.starts_with("/subreddits/search");
        return is_search
            .then(|| Refusal::new(Outcome::Missing, "there is no subreddit with that name"));
    }
    let body: Option<Value> = serde_json::from_slice(&response.body)
        .ok()
        .filter(Value::is_object);
    let reason = body.as_ref().and_then(|body| body.get("reason")?.as_str());
    let reason = reason.map(str::to_ascii_lowercase);
    let challenge = response.headers.get(WWW_AUTHENTICATE);
    let lacks_scope = challenge.is_some_and(|challenge| {
        String::from_utf8_lossy(challenge.as_bytes()).contains("insufficient_scope")
    });
    let (outcome, detail) = match (status, reason.as_deref()) {
        (403 | 404, Some("banned")) => (Outcome::Banned, "Reddit has banned it"),
        (403, _) if body.is_none() => (
            Outcome::EdgeBlocked,
            "blocked before the API; check `reddit.user_agent`, and whether Reddit allows this network",
        ),
        (403, Some("quarantined")) => (Outcome::Quarantined, "it is quarantined"),
        (403, Some("gated")) => (Outcome::Gated, "it requires its readers' consent"),
        (403, Some("private")) => (Outcome::Private, "only its members may read it"),
        (403, _) if lacks_scope => (
            Outcome::Auth,
            "the token has no permission to read; grant the application the `read` scope",
        ),
        (403, _) => (Outcome::Private, "it cannot be read, for an unknown reason"),
        _ => return None,
    };
    Some(Refusal::new(outcome, detail))
}
