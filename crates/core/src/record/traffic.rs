//! What a client of a site did: requests by status, waits by cause, and what is left of the quota.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What a client has done so far, for the run's record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Requests sent, tries again and those for tokens included.
    pub requests: u64,
    /// How many of them were tries again.
    pub retries: u64,
    /// How many of them asked for a token.
    pub token_requests: u64,
    /// Answers by their status.
    pub by_status: BTreeMap<u16, u64>,
    /// Requests without a whole answer: the connection failed, broke off, or took too long.
    pub no_answer: u64,
    /// Waits by their cause.
    pub waits: Waits,
    /// What was left of the quota when the site last told.
    pub quota: Option<QuotaLeft>,
    /// Requests that were sent again for a smaller page, where a source does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smaller: Option<u64>,
}

impl Traffic {
    /// Adds what another client did after this one.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.retries += other.retries;
        self.token_requests += other.token_requests;
        for (status, requests) in &other.by_status {
            *self.by_status.entry(*status).or_default() += requests;
        }
        self.no_answer += other.no_answer;
        let mut waits = other.waits;
        for (waited, other) in self.waits.each_mut().into_iter().zip(waits.each_mut()) {
            waited.add(*other);
        }
        self.quota = other.quota.or(self.quota);
        self.smaller = match (self.smaller, other.smaller) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
    }
}

/// Waits by their cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// For our own limit, `requests_per_minute`, which all processes with one database share.
    pub own_pace: WaitTotal,
    /// For the site's window, as the `X-Ratelimit-*` headers tell it.
    pub their_quota: WaitTotal,
    /// Because an answer said how long, and while that held for all.
    pub retry_after: WaitTotal,
    /// Before another try, where no answer said how long.
    pub backoff: WaitTotal,
}

impl Waits {
    /// All of them.
    pub fn total(mut self) -> WaitTotal {
        let mut sum = WaitTotal::default();
        self.each_mut()
            .into_iter()
            .for_each(|waited| sum.add(*waited));
        sum
    }

    /// In the order of the fields.
    pub fn each_mut(&mut self) -> [&mut WaitTotal; 4] {
        let Self {
            own_pace,
            their_quota,
            retry_after,
            backoff,
        } = self;
        [own_pace, their_quota, retry_after, backoff]
    }
}

/// Waits of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitTotal {
    /// How many.
    pub times: u64,
    /// How long they were together.
    #[serde(rename = "secs", with = "secs")]
    pub sum: Duration,
}

impl WaitTotal {
    /// Adds other waits.
    pub fn add(&mut self, other: Self) {
        self.times += other.times;
        self.sum += other.sum;
    }
}

/// A duration as seconds, whole or not.
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

/// The site's quota as an answer told it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QuotaLeft {
    /// Requests left in the window.
    pub remaining: f64,
    /// Requests made in it.
    pub used: f64,
    /// When the next window begins.
    pub resets_at: Timestamp,
}
