//! What every stage works with: the database, the clock, the signal to stop, and the run that its rows belong to.

use tokio_util::sync::CancellationToken;

use topicmill_core::clock::SharedClock;
use topicmill_store::{RunId, Store};

/// One run of a stage, and what it works with.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    /// The database.
    pub store: &'a Store,
    /// For dates, waits and leases.
    pub clock: &'a SharedClock,
    /// Cancelled by the first signal: what is under way is written, and nothing else is begun.
    pub stop: &'a CancellationToken,
    /// Names this process and, in tests, a thread of it: see [`worker_name`](topicmill_store::worker_name).
    pub name: &'a str,
    /// The run that its rows belong to.
    pub run: RunId,
}
