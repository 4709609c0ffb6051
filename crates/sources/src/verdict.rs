//! Decides what to do with a response: take it, retry, or give up. Pure: the client does the waiting.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::error::SourceError;
use super::listing::ListingError;
use super::page::site_of;
use topicmill_core::{Outcome, SourceKind};
use topicmill_http::{HttpResponse, ResponseClass, RetryDecision, RetryableFailure};

/// Why an answer is refused for good, in the words of one source.
pub(super) type Refusal = (Outcome, String);

/// Judges the responses to one request.
pub(super) struct Judge<'a> {
    pub kind: SourceKind,
    /// The request, for messages.
    pub what: &'a str,
    pub now: DateTime<Utc>,
    /// A wait that an answer asks for counts as this at most.
    pub longest: Duration,
}

impl Judge<'_> {
    /// Judges an answer by its status, its headers and its body. What the source means by a redirect, whose address is
    /// given, and by a status of its own, `refusal` says where it is more than what everybody means.
    pub(super) fn judge<T>(
        &self,
        answer: &HttpResponse,
        decode: impl FnOnce(&[u8]) -> Result<T, ListingError>,
        refusal: impl FnOnce(u16, Option<&str>) -> Option<Refusal>,
    ) -> RetryDecision<T, SourceError> {
        let again = |detail: String, wait: Option<Duration>, is_rate_limit| {
            RetryDecision::Retry(RetryableFailure {
                detail,
                wait: wait.map(|wait| wait.min(self.longest)),
                is_rate_limit,
                ..RetryableFailure::default()
            })
        };
        let site = site_of(self.kind);
        let status = answer.status();
        let said = |text: &str| match answer.message() {
            Some(message) => format!("{text}: `{message}`"),
            None => text.to_owned(),
        };
        let (outcome, detail) = match answer.classify(self.now) {
            ResponseClass::Data => match decode(&answer.body) {
                Ok(decoded) => return RetryDecision::Accept(decoded),
                // Half a text may be a connection that broke off. Whole JSON of another shape will be the same next
                // time.
                Err(error @ ListingError::Json(_)) => return again(error.to_string(), None, false),
                Err(ListingError::Shape(source)) => {
                    return RetryDecision::Fail(SourceError::Shape {
                        site,
                        what: self.what.to_owned(),
                        source: Some(source),
                    });
                }
            },
            ResponseClass::RateLimited(wait) => {
                return again(said("too many requests (429)"), wait, true);
            }
            ResponseClass::ServerError(wait) => {
                return again(said(&format!("status {status}")), wait, false);
            }
            ResponseClass::WebPage => (
                Outcome::EdgeBlocked,
                format!(
                    "a web page came in place of JSON; check `{}.api_url` and the way to the internet",
                    site.section
                ),
            ),
            ResponseClass::Redirect(to) => refusal(status, Some(&to)).unwrap_or_else(|| {
                let section = site.section;
                let detail = format!(
                    "a redirect to `{to}`, which is not followed; check `{section}.api_url`"
                );
                (Outcome::Server, detail)
            }),
            ResponseClass::ClientError => refusal(status, None).unwrap_or_else(|| {
                let (outcome, detail) = match status {
                    404 => (Outcome::Missing, "there is nothing of that name"),
                    451 => (
                        Outcome::Banned,
                        "closed for legal reasons where this machine is",
                    ),
                    _ => (Outcome::Server, "the request was not understood"),
                };
                (outcome, said(detail))
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
