//! What a client did: requests by status, waits by cause, and the quota as the site last told it.
//!
//! Every request and every wait passes here once, so the sums agree with what the server saw. Nothing that
//! could be secret or a post's text enters.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;

use topicmill_core::Timestamp;

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
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.retries += other.retries;
        self.token_requests += other.token_requests;
        for (status, requests) in &other.by_status {
            *self.by_status.entry(*status).or_default() += requests;
        }
        self.no_answer += other.no_answer;
        let mut waits = other.waits;
        for (waited, other) in self.waits.each().into_iter().zip(waits.each()) {
            waited.add(*other);
        }
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
    pub fn total(mut self) -> Waited {
        let mut sum = Waited::default();
        self.each().into_iter().for_each(|waited| sum.add(*waited));
        sum
    }

    /// In the order of [`Cause`].
    fn each(&mut self) -> [&mut Waited; 4] {
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
            waits.each()[cause as usize].add(Waited {
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
