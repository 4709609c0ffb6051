//! Decides what to do with a response: accept it, retry, or fail. Does no I/O; the client does the waiting.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, LOCATION};

use super::error::SourceError;
use super::listing::ListingError;
use super::page::site_for;
use topicmill_core::{Outcome, SourceKind};
use topicmill_http::{HttpResponse, RetryDecision, RetryableFailure, rate_limit_wait, retry_after};

/// Maximum wait after a response that asks for one; longer waits are shortened to this.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// The outcome of a refusal and its description.
pub(super) type Refusal = (Outcome, String);

/// Judges the responses to one request.
pub(super) struct Judge<'a> {
    pub kind: SourceKind,
    /// Description of the request.
    pub what: &'a str,
    pub now: DateTime<Utc>,
    /// True if the request contains secrets, which the response may repeat: its text is then left out.
    pub is_secret: bool,
}

impl Judge<'_> {
    /// Decides about a response by its status, headers and body. `refusal` receives the response, its status and a
    /// redirect's target; it returns `None` if they have no special meaning for the source.
    pub(super) fn decide<T>(
        &self,
        response: &HttpResponse,
        decode: impl FnOnce(&[u8]) -> Result<T, ListingError>,
        refusal: impl FnOnce(&HttpResponse, u16, Option<&str>) -> Option<Refusal>,
    ) -> RetryDecision<T, SourceError> {
        let retry = |detail: String, wait: Option<Duration>, is_rate_limit| {
            RetryDecision::Retry(RetryableFailure {
                detail,
                wait: wait.map(|wait| wait.min(LONGEST_WAIT)),
                is_rate_limit,
                ..RetryableFailure::default()
            })
        };
        let (site, what) = (site_for(self.kind), self.what.to_owned());
        let status = response.meant_status();
        let with_message = |text: &str| match response.message() {
            Some(message) if !self.is_secret => format!("{text}: `{message}`"),
            _ => text.to_owned(),
        };
        let (outcome, detail) = match status {
            // During maintenance, a web page has the status 200.
            200..=299 if is_web_page(response) => {
                let detail = format!(
                    "the response is a web page instead of JSON; check `{}.api_url` and the network",
                    site.section
                );
                return retry(detail, None, false);
            }
            200..=299 => match decode(&response.body) {
                Ok(decoded) => return RetryDecision::Accept(decoded),
                // Truncated JSON may be due to a broken connection. A retry would not change the structure of valid
                // JSON.
                Err(error @ ListingError::Json(_)) => return retry(error.to_string(), None, false),
                Err(ListingError::Shape(source)) => {
                    let source = source.filter(|_| !self.is_secret);
                    let error = SourceError::UnexpectedShape { site, what, source };
                    return RetryDecision::Fail(error);
                }
            },
            300..=399 => {
                let location = response.headers.get(LOCATION).filter(|_| !self.is_secret);
                let target = location.and_then(|location| location.to_str().ok());
                let target: String = target.unwrap_or("elsewhere").chars().take(100).collect();
                refusal(response, status, Some(&target)).unwrap_or_else(|| {
                    let section = site.section;
                    let detail = format!("it redirects to `{target}`; check `{section}.api_url`");
                    (Outcome::Server, detail)
                })
            }
            // An archive needs no token.
            401 if self.kind.is_live() => {
                return RetryDecision::Fail(SourceError::Unauthorized(what));
            }
            429 => {
                let wait = rate_limit_wait(&response.headers, self.now);
                return retry(with_message("too many requests (429)"), wait, true);
            }
            408 | 500.. => {
                let wait = retry_after(&response.headers, self.now);
                return retry(with_message(&format!("status {status}")), wait, false);
            }
            _ => refusal(response, status, None).unwrap_or_else(|| {
                let (outcome, detail) = match status {
                    404 => (Outcome::Missing, "it does not exist"),
                    451 => (
                        Outcome::Banned,
                        "blocked for legal reasons at this location",
                    ),
                    _ => (Outcome::Server, "the request was rejected"),
                };
                (outcome, with_message(detail))
            }),
        };
        RetryDecision::Fail(SourceError::Refused {
            site,
            what,
            outcome,
            status,
            detail,
        })
    }
}

/// Returns true if the response is a web page instead of JSON.
fn is_web_page(response: &HttpResponse) -> bool {
    let content_type = response.headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
        || response.body.trim_ascii_start().starts_with(b"<")
}
