//! Defines the rate-limit quota that several processes share through the database.

use std::time::Duration;

/// The rate limit that applies to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaTerms {
    /// Time between two requests.
    pub interval: Duration,
    /// Maximum number of requests in one burst after an idle period.
    pub burst: u32,
    /// The longest accepted wait; if the wait would be longer, nothing is reserved.
    pub max_wait: Duration,
}

/// A reserved request, or, if nothing was reserved, the wait that exceeds [`QuotaTerms::max_wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReservation {
    /// Time until the request may be sent.
    pub wait: Duration,
    /// True if the wait comes from a response that throttles all processes, rather than from the rate limit.
    pub is_throttled: bool,
}
