//! Counts the traffic of a client: requests by status, waits by cause, and the site's last reported quota.
//!
//! Each request and wait is counted exactly once, so that the sums match the server's. Counts contain no secrets and no
//! post text.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use topicmill_core::record::{QuotaLeft, Traffic, WaitTotal};

/// The purpose of a request. All requests share one rate limit, but only data responses report the quota.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Posts or other data.
    Data,
    /// An access token.
    Token,
}

/// The cause of a wait: a field of [`Waits`](topicmill_core::record::Waits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitCause {
    OwnPace,
    TheirQuota,
    RetryAfter,
    Backoff,
}

/// Counts the traffic of one client.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Traffic>);

impl Meter {
    /// Counts a sent request.
    pub(crate) fn count_request(&self, purpose: Purpose) {
        let mut traffic = self.lock();
        traffic.requests += 1;
        traffic.token_requests += u64::from(purpose == Purpose::Token);
    }

    /// Counts a response by status.
    pub(crate) fn count_response(&self, status: u16) {
        *self.lock().by_status.entry(status).or_default() += 1;
    }

    /// Counts a request without a complete response.
    pub(crate) fn count_no_answer(&self) {
        self.lock().no_answer += 1;
    }

    pub(crate) fn count_wait(&self, cause: WaitCause, wait: Duration) {
        let waits = &mut self.lock().waits;
        let total = match cause {
            WaitCause::OwnPace => &mut waits.own_pace,
            WaitCause::TheirQuota => &mut waits.their_quota,
            WaitCause::RetryAfter => &mut waits.retry_after,
            WaitCause::Backoff => &mut waits.backoff,
        };
        *total += WaitTotal {
            times: 1,
            sum: wait,
        };
    }

    pub(crate) fn count_retry(&self) {
        self.lock().retries += 1;
    }

    /// Counts requests that are repeated with a smaller page. A count of 0 makes the run record show the number.
    pub fn count_smaller(&self, requests: u64) {
        *self.lock().smaller.get_or_insert(0) += requests;
    }

    pub(crate) fn set_quota(&self, quota: QuotaLeft) {
        self.lock().quota = Some(quota);
    }

    /// Returns a copy of the counts.
    pub fn snapshot(&self) -> Traffic {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.0.lock().expect("no holder of this lock panics")
    }
}
