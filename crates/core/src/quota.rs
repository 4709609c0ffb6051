//! What processes agree on that share a quota.

use std::time::Duration;

/// The limit under which a slot of a shared quota is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaTerms {
    /// Time between two slots.
    pub interval: Duration,
    /// Slots that may be taken at once after a rest.
    pub burst: u32,
    /// A slot further ahead than this is not wanted, and not taken.
    pub max_wait: Duration,
}

/// A slot of a shared quota: taken, unless it lies further ahead than the terms allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReservation {
    /// How long until it comes.
    pub wait: Duration,
    /// Whether that is because some process was told to wait.
    pub is_throttled: bool,
}
