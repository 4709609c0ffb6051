//! Reads responses of bounded size, and parses their status and rate-limit headers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

/// The largest accepted body. A page of 100 posts of 40,000 characters each is 4 MB.
pub const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// The largest body that is parsed as an error message.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// Maximum number of displayed characters of an error message.
const MAX_MESSAGE_CHARS: usize = 100;

/// The shortest wait after throttling. Reddit sends `retry-after: 0`, and a reset of 0 with nothing remaining; an
/// immediate retry would get another 429.
pub const MIN_WAIT: Duration = Duration::from_secs(1);

/// The longest rate-limit window; a larger number must be wrong and could overflow a date.
pub const MAX_WINDOW: Duration = Duration::from_hours(24);

/// The longest wait that a response can request. Every wait budget is shorter, and a longer wait could overflow a date.
pub const MAX_WAIT: Duration = Duration::from_hours(24 * 366);

/// A response, read completely.
#[derive(Debug)]
pub struct HttpResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Decompressed body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Sends a request and reads the response; returns `None` if the body exceeds [`MAX_RESPONSE_BYTES`].
    ///
    /// # Errors
    /// When the request cannot be sent, or the response is cut short.
    pub async fn fetch(request: RequestBuilder) -> Result<Option<Self>, reqwest::Error> {
        let mut response = request.send().await?;
        let declared = response.content_length().unwrap_or(0);
        // This is only a shortcut: the header may be missing or wrong.
        if declared > MAX_RESPONSE_BYTES as u64 {
            return Ok(None);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            // Counts decompressed bytes, to bound decompression bombs.
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

    /// Returns the status that the response means. For an error sent with status 200, such as
    /// `{"message": "Too Many Requests", "error": 429}`, this is the status of the error.
    pub fn meant_status(&self) -> u16 {
        let error = || self.error_json()?.get("error")?.as_u64()?.try_into().ok();
        match error() {
            Some(error @ 400..=599) if self.status.is_success() => error,
            _ => self.status.as_u16(),
        }
    }

    /// Returns the `message` of a JSON error, escaped to one line and truncated.
    pub fn message(&self) -> Option<String> {
        let error = self.error_json()?;
        let message = error.get("message")?.as_str()?.trim();
        let mut line = String::new();
        for c in message.chars().take(MAX_MESSAGE_CHARS) {
            match c {
                // The message is displayed between backticks.
                '"' | '\'' => line.push(c),
                _ => line.extend(c.escape_debug()),
            }
        }
        (!line.is_empty()).then(|| line.chars().take(MAX_MESSAGE_CHARS).collect())
    }

    /// Parses the body as JSON if it is short enough for an error message.
    fn error_json(&self) -> Option<Value> {
        let is_short = self.body.len() <= MAX_ERROR_BYTES;
        is_short.then(|| serde_json::from_slice(&self.body).ok())?
    }
}

/// Returns the wait that a 429 requests: `Retry-After`, otherwise the time until the quota resets.
pub fn rate_limit_wait(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    retry_after(headers, now).or_else(|| reset(headers, now).map(|reset| reset.max(MIN_WAIT)))
}

/// Parses `Retry-After` in either form: seconds or a date.
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(secs) = text.parse::<f64>() {
        // The number may be negative or infinite.
        let is_wait = secs.is_finite() && secs >= 0.0;
        Duration::from_secs_f64(is_wait.then(|| secs.min(MAX_WAIT.as_secs_f64()))?)
    } else {
        let until = DateTime::parse_from_rfc2822(text).ok()?;
        // A date in the past becomes the shortest wait.
        (until.to_utc() - now).to_std().unwrap_or_default()
    };
    Some(wait.clamp(MIN_WAIT, MAX_WAIT))
}

/// Parses `X-Ratelimit-Reset`, the time until the window ends: seconds from now, or a Unix time in seconds or
/// milliseconds.
pub fn reset(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    /// Larger than any wait in seconds, smaller than any Unix time since 2001.
    const MIN_UNIX_TIME: f64 = 1e9;
    /// Larger than any Unix time in seconds until the year 5138.
    const MIN_UNIX_MILLIS: f64 = 1e11;
    let until_reset = match number(headers, "x-ratelimit-reset")? {
        secs @ ..MIN_UNIX_TIME => secs,
        secs @ ..MIN_UNIX_MILLIS => secs - now.timestamp() as f64,
        millis => (millis / 1_000.0).floor() - now.timestamp() as f64,
    };
    let secs = until_reset.clamp(0.0, MAX_WINDOW.as_secs_f64());
    Some(Duration::from_secs_f64(secs))
}

/// Parses a numeric header, which may be an integer or a float. Negative numbers become 0.
pub fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    let number: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line_with_plain_quotes() {
        let message = |message: &str| {
            let response = HttpResponse {
                status: StatusCode::FORBIDDEN,
                headers: HeaderMap::new(),
                body: serde_json::json!({ "message": message }).to_string().into(),
            };
            response.message()
        };
        let shown = message(" You're \"blocked\":\n\u{202e}wait\u{1b}[m\\ ");
        let escaped = r#"You're "blocked":\n\u{202e}wait\u{1b}[m\\"#;
        assert_eq!(shown.as_deref(), Some(escaped));
        assert_eq!(message(&"\u{1}".repeat(200)).unwrap().len(), 100);
        assert_eq!(message("\n"), None);
    }

    #[test]
    fn retry_after_is_bounded() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        for (given, wait) in [
            ("0", Some(MIN_WAIT)),
            ("7.5", Some(Duration::from_millis(7_500))),
            // The largest `Duration`, which overflows when added to a time.
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
    fn reset_header_is_parsed_in_all_forms() {
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
