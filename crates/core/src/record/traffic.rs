//! Defines the traffic counts of an HTTP client: requests by status, waits by cause, and the remaining quota.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The traffic of a client, for the run record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Requests sent, including retries and token requests.
    pub requests: u64,
    /// Retries.
    pub retries: u64,
    /// Token requests.
    pub token_requests: u64,
    /// Responses by HTTP status.
    pub by_status: BTreeMap<u16, u64>,
    /// Requests without a complete response: the connection failed, was dropped or timed out.
    pub no_answer: u64,
    /// Waits by cause.
    pub waits: Waits,
    /// Remaining quota as last reported by the site.
    pub quota: Option<QuotaLeft>,
    /// Requests repeated with a smaller page, for sources that support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smaller: Option<u64>,
}

impl Traffic {
    /// Adds the traffic of a later client.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.retries += other.retries;
        self.token_requests += other.token_requests;
        for (status, requests) in &other.by_status {
            *self.by_status.entry(*status).or_default() += requests;
        }
        self.no_answer += other.no_answer;
        self.waits += other.waits;
        self.quota = other.quota.or(self.quota);
        if let Some(smaller) = other.smaller {
            *self.smaller.get_or_insert(0) += smaller;
        }
    }
}

/// Waits by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// Waits for the configured `requests_per_minute`, which all processes with the same database share.
    pub own_pace: WaitTotal,
    /// Waits for the site's rate-limit window, from the `X-Ratelimit-*` headers.
    pub their_quota: WaitTotal,
    /// Waits for the `Retry-After` of this request or another one.
    pub retry_after: WaitTotal,
    /// Exponential backoff before a retry, without `Retry-After`.
    pub backoff: WaitTotal,
}

impl Waits {
    /// Returns the sum over all causes.
    pub fn total(self) -> WaitTotal {
        let mut total = self.own_pace;
        total += self.their_quota;
        total += self.retry_after;
        total += self.backoff;
        total
    }
}

impl AddAssign for Waits {
    fn add_assign(&mut self, other: Self) {
        self.own_pace += other.own_pace;
        self.their_quota += other.their_quota;
        self.retry_after += other.retry_after;
        self.backoff += other.backoff;
    }
}

/// The number and total duration of waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitTotal {
    /// Number of waits.
    pub times: u64,
    /// Total duration.
    #[serde(rename = "secs", with = "secs")]
    pub sum: Duration,
}

impl AddAssign for WaitTotal {
    fn add_assign(&mut self, other: Self) {
        self.times += other.times;
        self.sum += other.sum;
    }
}

/// Serialises a duration as fractional seconds.
mod secs {
    use super::{Deserialize, Duration};

    pub fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let secs = f64::deserialize(from)?;
        Duration::try_from_secs_f64(secs).map_err(serde::de::Error::custom)
    }
}

/// The site's quota as reported in a response.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QuotaLeft {
    /// Requests remaining in the window.
    pub remaining: f64,
    /// Requests used in the window.
    pub used: f64,
    /// Start of the next window.
    pub resets_at: Timestamp,
}
