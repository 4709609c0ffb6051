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

/// Whatever the keeper failed with.
pub type KeeperError = Box<dyn Error + Send + Sync>;

/// What the keeper will have answered.
pub type Kept<T> = Pin<Box<dyn Future<Output = Result<T, KeeperError>> + Send>>;

/// The limit that a slot is asked for under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Time between two slots.
    pub interval: Duration,
    /// Slots that may be taken at once after a rest.
    pub burst: u32,
    /// A slot further ahead than this is not wanted, and not taken.
    pub patience: Duration,
}

/// A slot: taken, unless it lies further ahead than the terms allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// How long until it comes.
    pub wait: Duration,
    /// Whether that is because some process was told to wait.
    pub held: bool,
}

/// Takes the next slot.
pub type Reserve = Box<dyn Fn(Terms) -> Kept<Slot> + Send + Sync>;
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
