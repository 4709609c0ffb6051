//! Counts the traffic of a client: requests by status, waits by cause, and the site's last reported quota.
//!
//! Each request and wait is counted exactly once, so that the sums match the server's. Counts contain no secrets and no
//! post text.

use std::sync::Mutex;
use std::time::Duration;

use topicmill_core::record::{Traffic, WaitTotal};

/// The cause of a wait: the fields of [`Waits`](topicmill_core::record::Waits), in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitCause {
    OwnPace,
    SiteQuota,
    RetryAfter,
    Backoff,
}

/// Counts the traffic of one client.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Traffic>);

impl Meter {
    /// Updates the counts.
    pub fn update(&self, count: impl FnOnce(&mut Traffic)) {
        count(&mut self.0.lock().expect("no holder of this lock panics"));
    }

    /// Counts a sent request.
    pub fn count_request(&self, for_token: bool) {
        self.update(|traffic| {
            traffic.requests += 1;
            traffic.token_requests += u64::from(for_token);
        });
    }

    /// Counts a response by status.
    pub fn count_response(&self, status: u16) {
        self.update(|traffic| *traffic.by_status.entry(status).or_default() += 1);
    }

    pub(crate) fn count_wait(&self, cause: WaitCause, wait: Duration) {
        self.update(|Traffic { waits, .. }| {
            waits.each_mut()[cause as usize].add(WaitTotal {
                times: 1,
                sum: wait,
            });
        });
    }

    /// Returns a copy of the counts.
    pub fn snapshot(&self) -> Traffic {
        let mut traffic = Traffic::default();
        self.update(|so_far| traffic.clone_from(so_far));
        traffic
    }
}
