//! An answer as it came: read within bounds, and what its status and headers ask for. Pure apart from the reading.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

/// The most that is read of one answer. A page of 100 posts of 40,000 characters each is 4 MB.
pub const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// The body of an error is shorter.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// As many characters of an error's message are shown.
const MAX_MESSAGE_CHARS: usize = 100;

/// The shortest wait that an answer can ask for. Reddit sends `retry-after: 0`, and a reset of 0 with
/// nothing remaining; to ask again at once would draw the next 429.
pub const MIN_WAIT: Duration = Duration::from_secs(1);

/// No window is longer; a larger number is none that was meant, and would overflow a date.
pub const MAX_WINDOW: Duration = Duration::from_hours(24);

/// The longest wait that an answer can ask for: a year. Nobody waits as long, and more would overflow a date.
pub const MAX_WAIT: Duration = Duration::from_hours(24 * 366);

/// An answer, read to its end.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status line's number.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// What an answer says by its status, whoever gave it.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseClass {
    /// Its body is what was asked for.
    Data,
    /// A web page in place of data.
    WebPage,
    /// It names another address, cut short where that is long.
    Redirect(String),
    /// Too many requests, and the wait that it asks for.
    RateLimited(Option<Duration>),
    /// The server has trouble, and the wait that it asks for.
    ServerError(Option<Duration>),
    /// Any other status: the same request has the same answer.
    ClientError,
}

impl HttpResponse {
    /// Sends a request and reads its answer; `None` for one above [`MAX_RESPONSE_BYTES`].
    ///
    /// # Errors
    /// When the request cannot be sent, or its answer breaks off.
    pub async fn fetch(request: RequestBuilder) -> Result<Option<Self>, reqwest::Error> {
        let mut response = request.send().await?;
        let declared = response.content_length().unwrap_or(0);
        // The header may be missing or wrong, so it only saves the reading; the bytes are counted below all the same.
        if declared > MAX_RESPONSE_BYTES as u64 {
            return Ok(None);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            // Counted after decompression, so that a small answer cannot swell without bounds.
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(Self {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body,
        }))
    }

    /// Its status; of an error that came with status 200, as `{"message": "Too Many Requests", "error": 429}`, the error's.
    pub fn status(&self) -> u16 {
        let status = self.status.as_u16();
        let told = || self.told()?.get("error")?.as_u64()?.try_into().ok();
        match told() {
            Some(error @ 400..=599) if (200..300).contains(&status) => error,
            _ => status,
        }
    }

    /// The `message` of an error, short and on one line.
    pub fn message(&self) -> Option<String> {
        let told = self.told()?;
        let message = told.get("message")?.as_str()?.trim();
        let shown = message
            .chars()
            .flat_map(char::escape_debug)
            .take(MAX_MESSAGE_CHARS);
        Some(shown.collect()).filter(|shown: &String| !shown.is_empty())
    }

    /// Its body, where that is as short as an error's.
    fn told(&self) -> Option<Value> {
        let is_short = self.body.len() <= MAX_ERROR_BYTES;
        is_short.then(|| serde_json::from_slice(&self.body).ok())?
    }

    /// What its status means, at this time of day.
    pub fn classify(&self, now: DateTime<Utc>) -> ResponseClass {
        match self.status() {
            200..=299 if self.is_web_page() => ResponseClass::WebPage,
            200..=299 => ResponseClass::Data,
            300..=399 => {
                let to = self.headers.get(LOCATION).and_then(|to| to.to_str().ok());
                ResponseClass::Redirect(to.unwrap_or("nowhere").chars().take(100).collect())
            }
            429 => ResponseClass::RateLimited(rate_limit_wait(&self.headers, now)),
            status if status == 408 || status >= 500 => {
                ResponseClass::ServerError(retry_after(&self.headers, now))
            }
            _ => ResponseClass::ClientError,
        }
    }

    fn is_web_page(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
            || self.body.trim_ascii_start().starts_with(b"<")
    }
}

/// The wait that a 429 asks for: `Retry-After`, else the reset of the quota.
fn rate_limit_wait(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    retry_after(headers, now).or_else(|| reset(headers, now).map(|reset| reset.max(MIN_WAIT)))
}

/// `Retry-After` in either of its forms: seconds, or a date.
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(secs) = text.parse::<f64>() {
        // A header may hold a negative or an endless number.
        let is_wait = secs.is_finite() && secs >= 0.0;
        Duration::from_secs_f64(is_wait.then(|| secs.min(MAX_WAIT.as_secs_f64()))?)
    } else {
        let until = DateTime::parse_from_rfc2822(text).ok()?;
        // A date in the past means no wait, and becomes the shortest one.
        (until.to_utc() - now).to_std().unwrap_or_default()
    };
    Some(wait.clamp(MIN_WAIT, MAX_WAIT))
}

/// The time until the site's window ends: a number of seconds, or a time of day in seconds or milliseconds since 1970.
pub fn reset(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    /// More seconds than any wait, fewer than any time of day since 2001.
    const A_TIME_OF_DAY: f64 = 1e9;
    let mut secs = number(headers, "x-ratelimit-reset")?;
    if secs >= A_TIME_OF_DAY {
        if secs >= 100.0 * A_TIME_OF_DAY {
            secs = (secs / 1_000.0).floor();
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 have 34 bits"
        )]
        let since_1970 = now.timestamp() as f64;
        secs = (secs - since_1970).max(0.0);
    }
    Some(Duration::from_secs_f64(secs.min(MAX_WINDOW.as_secs_f64())))
}

/// A header that is an int in one answer and a float in the next.
pub fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    let number: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_bounded_whatever_is_asked_for() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        for (given, wait) in [
            ("0", Some(MIN_WAIT)),
            ("7.5", Some(Duration::from_millis(7_500))),
            // The greatest number that a `Duration` holds: added to what a clock says it overflows.
            ("18446744073709549568", Some(MAX_WAIT)),
            ("1e300", Some(MAX_WAIT)),
            ("Thu, 01 Jan 9998 00:00:00 GMT", Some(MAX_WAIT)),
            ("-5", None),
            ("inf", None),
            ("NaN", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, given.parse().unwrap());
            assert_eq!(retry_after(&headers, now), wait, "{given}");
        }
    }

    #[test]
    fn the_end_of_a_quota_is_read_in_each_of_its_forms() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        for (given, secs) in [
            ("37", Some(37)),
            ("0", Some(0)),
            ("1790000060", Some(60)),
            ("1790000060500", Some(60)),
            ("1780000000", Some(0)),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-reset", given.parse().unwrap());
            assert_eq!(
                reset(&headers, now),
                secs.map(Duration::from_secs),
                "{given}"
            );
        }
    }
}
