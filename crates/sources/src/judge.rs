//! Decides what to do with a response: accept it, retry, or fail. Does no I/O; the client does the waiting.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::error::SourceError;
use super::listing::ListingError;
use super::page::site_for;
use topicmill_core::{Outcome, SourceKind};
use topicmill_http::{HttpResponse, ResponseClass, RetryDecision, RetryableFailure};

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
}

impl Judge<'_> {
    /// Decides about a response by its status, headers and body. `refusal` receives the status and a redirect's target; it
    /// returns `None` if they have no special meaning for the source.
    pub(super) fn decide<T>(
        &self,
        answer: &HttpResponse,
        decode: impl FnOnce(&[u8]) -> Result<T, ListingError>,
        refusal: impl FnOnce(u16, Option<&str>) -> Option<Refusal>,
    ) -> RetryDecision<T, SourceError> {
        let retry = |detail: String, wait: Option<Duration>, is_rate_limit| {
            RetryDecision::Retry(RetryableFailure {
                detail,
                wait: wait.map(|wait| wait.min(LONGEST_WAIT)),
                is_rate_limit,
                ..RetryableFailure::default()
            })
        };
        let site = site_for(self.kind);
        let status = answer.status();
        let with_message = |text: &str| match answer.message() {
            Some(message) => format!("{text}: `{message}`"),
            None => text.to_owned(),
        };
        let (outcome, detail) = match answer.classify(self.now) {
            ResponseClass::Data => match decode(&answer.body) {
                Ok(decoded) => return RetryDecision::Accept(decoded),
                // Truncated JSON may be due to a broken connection. A retry would not change the structure of valid
                // JSON.
                Err(error @ ListingError::Json(_)) => return retry(error.to_string(), None, false),
                Err(ListingError::Shape(source)) => {
                    return RetryDecision::Fail(SourceError::UnexpectedShape {
                        site,
                        what: self.what.to_owned(),
                        source,
                    });
                }
            },
            ResponseClass::RateLimited(wait) => {
                return retry(with_message("too many requests (429)"), wait, true);
            }
            ResponseClass::ServerError(wait) => {
                return retry(with_message(&format!("status {status}")), wait, false);
            }
            ResponseClass::WebPage => (
                Outcome::EdgeBlocked,
                format!(
                    "the response is a web page instead of JSON; check `{}.api_url` and the network",
                    site.section
                ),
            ),
            ResponseClass::Redirect(to) => refusal(status, Some(&to)).unwrap_or_else(|| {
                let section = site.section;
                let detail = format!("it redirects to `{to}`; check `{section}.api_url`");
                (Outcome::Server, detail)
            }),
            ResponseClass::ClientError => refusal(status, None).unwrap_or_else(|| {
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
            what: self.what.to_owned(),
            outcome,
            status,
            detail,
        })
    }
}
