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

use topicmill_core::{FailureKind, QuotaSlot, QuotaTerms};

/// A failure of the keeper.
#[derive(Debug, thiserror::Error)]
#[error("keep the quota that all runs with this client id share: {source}")]
pub struct KeeperError {
    /// The kind of what it failed with.
    pub kind: FailureKind,
    /// What it failed with.
    pub source: Box<dyn Error + Send + Sync>,
}

/// What the keeper will have answered.
pub type Kept<T> = Pin<Box<dyn Future<Output = Result<T, KeeperError>> + Send>>;

/// Takes the next slot.
pub type Reserve = Box<dyn Fn(QuotaTerms) -> Kept<QuotaSlot> + Send + Sync>;
/// Lets nobody through for that long.
pub type Hold = Box<dyn Fn(Duration) -> Kept<()> + Send + Sync>;

/// Keeps the quota of one client id for all processes.
pub struct Keeper {
    /// Asked before each request.
    pub reserve: Reserve,
    /// Told of each answer that holds everybody.
    pub hold: Hold,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}
