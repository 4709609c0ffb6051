//! Counts what a client does: requests by status, waits by cause, and the quota as the site last told it.
//!
//! Every request and every wait passes here once, so the sums agree with what the server saw. Nothing that
//! could be secret or a post's text enters.

use std::sync::Mutex;
use std::time::Duration;

use topicmill_core::record::{Traffic, Waited};

/// Why a request had to wait: the fields of [`Waits`](topicmill_core::record::Waits), in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    OwnPace,
    TheirQuota,
    RetryAfter,
    Backoff,
}

/// Counts the traffic of one client.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Traffic>);

impl Meter {
    /// Counts something.
    pub fn note(&self, count: impl FnOnce(&mut Traffic)) {
        count(&mut self.0.lock().expect("no holder of this lock panics"));
    }

    /// Counts a request that leaves.
    pub fn sent(&self, for_token: bool) {
        self.note(|traffic| {
            traffic.requests += 1;
            traffic.token_requests += u64::from(for_token);
        });
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        self.note(|traffic| *traffic.by_status.entry(status).or_default() += 1);
    }

    pub(crate) fn waited(&self, cause: Cause, wait: Duration) {
        self.note(|Traffic { waits, .. }| {
            waits.each_mut()[cause as usize].add(Waited {
                times: 1,
                sum: wait,
            });
        });
    }

    /// Returns a copy of the counts.
    pub fn so_far(&self) -> Traffic {
        let mut traffic = Traffic::default();
        self.note(|so_far| traffic.clone_from(so_far));
        traffic
    }
}
