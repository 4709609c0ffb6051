//! Who keeps the quota for several processes.
//!
//! A site counts every request of a client id, whichever process sent it, so processes that collect side by
//! side need one place where slots are taken. Which place that is, is not this module's to know: the caller
//! hands in two closures, and the client asks the first before each request and tells the second of every
//! answer that holds everybody. A keeper that fails ends the request, because to send it all the same could
//! exceed the quota.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use topicmill_core::{FailureKind, QuotaReservation, QuotaTerms};

/// A failure of the keeper.
#[derive(Debug, thiserror::Error)]
#[error("keep the quota that all runs with this client id share: {source}")]
pub struct SharedQuotaError {
    /// The kind of what it failed with.
    pub kind: FailureKind,
    /// What it failed with.
    pub source: Box<dyn Error + Send + Sync>,
}

/// What the keeper will have answered.
pub type QuotaFuture<T> = Pin<Box<dyn Future<Output = Result<T, SharedQuotaError>> + Send>>;

/// Takes the next slot.
pub type Reserve = Box<dyn Fn(QuotaTerms) -> QuotaFuture<QuotaReservation> + Send + Sync>;
/// Lets nobody through for that long.
pub type Throttle = Box<dyn Fn(Duration) -> QuotaFuture<()> + Send + Sync>;

/// Keeps the quota of one client id for all processes.
pub struct SharedQuota {
    /// Asked before each request.
    pub reserve: Reserve,
    /// Told of each answer that holds everybody.
    pub throttle: Throttle,
}

impl fmt::Debug for SharedQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQuota").finish_non_exhaustive()
    }
}
