//! What a client did: requests by status, waits by cause, and the quota as the site last told it.
//!
//! Every request and every wait passes here once, so the sums agree with what the server saw. Nothing that
//! could be secret or a post's text enters.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;

use crate::domain::Timestamp;

/// What a client has done so far, for the run's record.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
}

impl Traffic {
    /// Adds what another client did after this one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.retries += other.retries;
        self.token_requests += other.token_requests;
        for (status, requests) in &other.by_status {
            *self.by_status.entry(*status).or_default() += requests;
        }
        self.no_answer += other.no_answer;
        self.waits.own_pace.add(other.waits.own_pace);
        self.waits.their_quota.add(other.waits.their_quota);
        self.waits.retry_after.add(other.waits.retry_after);
        self.waits.backoff.add(other.waits.backoff);
        self.quota = other.quota.or(self.quota);
    }
}

/// Waits by their cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// For our own limit, `requests_per_minute`, which all processes with one database share.
    pub own_pace: Waited,
    /// For the site's window, as the `X-Ratelimit-*` headers tell it.
    pub their_quota: Waited,
    /// Because an answer said how long, and while that held for all.
    pub retry_after: Waited,
    /// Before another try, where no answer said how long.
    pub backoff: Waited,
}

impl Waits {
    /// All of them.
    pub fn total(&self) -> Waited {
        let all = [
            self.own_pace,
            self.their_quota,
            self.retry_after,
            self.backoff,
        ];
        let mut sum = Waited::default();
        for one in all {
            sum.add(one);
        }
        sum
    }
}

/// Waits of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// How many.
    pub times: u64,
    /// How long they were together.
    #[serde(rename = "secs", serialize_with = "as_secs")]
    pub sum: Duration,
}

impl Waited {
    fn add(&mut self, other: Self) {
        self.times += other.times;
        self.sum += other.sum;
    }
}

fn as_secs<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

/// The site's quota as an answer told it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QuotaLeft {
    /// Requests left in the window.
    pub remaining: f64,
    /// Requests made in it.
    pub used: f64,
    /// When the next window begins.
    pub resets_at: Timestamp,
}

/// Why a request had to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    OwnPace,
    TheirQuota,
    RetryAfter,
    Backoff,
}

/// Counts the traffic of one client.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Traffic>);

impl Meter {
    pub(crate) fn sent(&self, for_token: bool) {
        let mut traffic = self.lock();
        traffic.requests += 1;
        traffic.token_requests += u64::from(for_token);
    }

    pub(crate) fn answered(&self, status: u16) {
        *self.lock().by_status.entry(status).or_default() += 1;
    }

    pub(crate) fn lost(&self) {
        self.lock().no_answer += 1;
    }

    pub(crate) fn retried(&self) {
        self.lock().retries += 1;
    }

    pub(crate) fn waited(&self, cause: Cause, wait: Duration) {
        let waits = &mut self.lock().waits;
        let waited = match cause {
            Cause::OwnPace => &mut waits.own_pace,
            Cause::TheirQuota => &mut waits.their_quota,
            Cause::RetryAfter => &mut waits.retry_after,
            Cause::Backoff => &mut waits.backoff,
        };
        waited.times += 1;
        waited.sum += wait;
    }

    pub(crate) fn told(&self, left: QuotaLeft) {
        self.lock().quota = Some(left);
    }

    pub(crate) fn so_far(&self) -> Traffic {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn traffic_is_counted_by_status_and_by_cause() {
        let meter = Meter::default();
        meter.sent(true);
        meter.answered(200);
        meter.sent(false);
        meter.answered(429);
        meter.waited(Cause::RetryAfter, Duration::from_millis(1_500));
        meter.retried();
        meter.sent(false);
        meter.lost();
        meter.waited(Cause::Backoff, Duration::from_secs(1));
        meter.waited(Cause::OwnPace, Duration::from_millis(600));
        meter.waited(Cause::TheirQuota, Duration::from_secs(2));
        let traffic = meter.so_far();
        assert_eq!(
            traffic.waits.total(),
            Waited {
                times: 4,
                sum: Duration::from_millis(5_100)
            }
        );
        let none = json!({"times": 0, "secs": 0.0});
        let mut shown = json!(traffic);
        assert_eq!(shown["waits"]["own_pace"]["secs"], 0.6);
        assert_eq!(shown["waits"]["their_quota"]["secs"], 2.0);
        assert_ne!(shown["waits"]["retry_after"], none);
        shown["waits"].take();
        assert_eq!(
            shown,
            json!({
                "requests": 3, "retries": 1, "token_requests": 1, "by_status": {"200": 1, "429": 1},
                "no_answer": 1, "waits": null, "quota": null,
            })
        );
    }
}
