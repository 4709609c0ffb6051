//! Defines the interface of a quota that several processes share.
//!
//! A site counts all requests made with a client id, whichever process sends them, so concurrent processes must reserve
//! requests in one place. The caller provides that place as two callbacks. The client calls `reserve` before each
//! request, and `throttle` after each response that throttles all processes. If a callback fails, the request fails,
//! because sending it could exceed the quota.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use topicmill_core::{FailureKind, QuotaReservation, QuotaTerms};

/// An error from the shared quota.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the quota that all runs with this client id share: {source}")]
pub struct SharedQuotaError {
    /// Kind of the cause.
    pub kind: FailureKind,
    /// Cause.
    pub source: Box<dyn Error + Send + Sync>,
}

/// The result of a callback.
pub type QuotaFuture<T> = Pin<Box<dyn Future<Output = Result<T, SharedQuotaError>> + Send>>;

/// Reserves the next request.
pub type Reserve = Box<dyn Fn(QuotaTerms) -> QuotaFuture<QuotaReservation> + Send + Sync>;
/// Blocks requests from all processes for a duration.
pub type Throttle = Box<dyn Fn(Duration) -> QuotaFuture<()> + Send + Sync>;

/// The quota of one client id, shared by all processes.
pub struct SharedQuota {
    /// Called before each request.
    pub reserve: Reserve,
    /// Called after each response that throttles all processes.
    pub throttle: Throttle,
}

impl fmt::Debug for SharedQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQuota").finish_non_exhaustive()
    }
}
