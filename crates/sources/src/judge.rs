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

/// A refusal, which a retry does not change.
pub(super) struct Refusal {
    outcome: Outcome,
    /// Description and advice.
    detail: String,
}

impl Refusal {
    pub(super) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { outcome, detail }
    }
}

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
        let status = response.meant_status();
        match status {
            200..=299 => self.decode(response, decode),
            // An archive needs no token.
            401 if self.kind.is_live() => {
                RetryDecision::Fail(SourceError::Unauthorized(self.what.to_owned()))
            }
            429 => RetryDecision::Retry(RetryableFailure {
                detail: self.with_message("too many requests (429)", response),
                wait: shortened(rate_limit_wait(&response.headers, self.now)),
                is_rate_limit: true,
                ..RetryableFailure::default()
            }),
            408 | 500.. => RetryDecision::Retry(RetryableFailure {
                detail: self.with_message(&format!("status {status}"), response),
                wait: shortened(retry_after(&response.headers, self.now)),
                ..RetryableFailure::default()
            }),
            _ => {
                let is_redirect = (300..=399).contains(&status);
                let target = is_redirect.then(|| self.redirect_target(response));
                let target = target.as_deref();
                let Refusal { outcome, detail } = refusal(response, status, target)
                    .unwrap_or_else(|| self.usual_refusal(response, status, target));
                RetryDecision::Fail(SourceError::Refused {
                    site: site_for(self.kind),
                    what: self.what.to_owned(),
                    outcome,
                    status,
                    detail,
                })
            }
        }
    }

    /// Decodes the body of a response whose status reports success.
    fn decode<T>(
        &self,
        response: &HttpResponse,
        decode: impl FnOnce(&[u8]) -> Result<T, ListingError>,
    ) -> RetryDecision<T, SourceError> {
        let site = site_for(self.kind);
        let retry = |detail| {
            RetryDecision::Retry(RetryableFailure {
                detail,
                ..RetryableFailure::default()
            })
        };
        // During maintenance, a web page has the status 200.
        if is_web_page(response) {
            return retry(format!(
                "the response is a web page instead of JSON; check `{}.api_url` and the network",
                site.section
            ));
        }
        match decode(&response.body) {
            Ok(decoded) => RetryDecision::Accept(decoded),
            // Truncated JSON may be due to a broken connection. A retry would not change the structure of valid JSON.
            Err(error @ ListingError::Json(_)) => retry(error.to_string()),
            Err(ListingError::Shape(source)) => {
                let what = self.what.to_owned();
                let source = source.filter(|_| !self.is_secret);
                RetryDecision::Fail(SourceError::UnexpectedShape { site, what, source })
            }
        }
    }

    /// Returns the target of a redirect; `elsewhere` if it is missing or may contain a secret.
    fn redirect_target(&self, response: &HttpResponse) -> String {
        let location = response.headers.get(LOCATION).filter(|_| !self.is_secret);
        let target = location.and_then(|location| location.to_str().ok());
        target.unwrap_or("elsewhere").chars().take(100).collect()
    }

    /// Returns the meaning of a status for every source. `target` is that of a redirect.
    fn usual_refusal(&self, response: &HttpResponse, status: u16, target: Option<&str>) -> Refusal {
        if let Some(target) = target {
            let section = site_for(self.kind).section;
            let detail = format!("it redirects to `{target}`; check `{section}.api_url`");
            return Refusal::new(Outcome::Server, detail);
        }
        let (outcome, text) = match status {
            404 => (Outcome::Missing, "it does not exist"),
            451 => (
                Outcome::Banned,
                "blocked for legal reasons at this location",
            ),
            _ => (Outcome::Server, "the request was rejected"),
        };
        Refusal::new(outcome, self.with_message(text, response))
    }

    /// Returns a text with the message of an error response.
    fn with_message(&self, text: &str, response: &HttpResponse) -> String {
        match response.message() {
            Some(message) if !self.is_secret => format!("{text}: `{message}`"),
            _ => text.to_owned(),
        }
    }
}

/// Limits a wait to [`LONGEST_WAIT`].
fn shortened(wait: Option<Duration>) -> Option<Duration> {
    wait.map(|wait| wait.min(LONGEST_WAIT))
}

/// Returns true if the response is a web page instead of JSON.
fn is_web_page(response: &HttpResponse) -> bool {
    let content_type = response.headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
        || response.body.trim_ascii_start().starts_with(b"<")
}
