//! [`Worker`] holds the handles that every stage receives: the database, clock, cancellation token and run id.

use tokio_util::sync::CancellationToken;

use topicmill_core::clock::SharedClock;
use topicmill_store::{RunId, Store};

/// The context in which one run of a stage works.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    /// The database.
    pub store: &'a Store,
    /// The clock for dates, waits and leases.
    pub clock: &'a SharedClock,
    /// Cancelled by the first signal: work in progress is written, and no more is started.
    pub stop: &'a CancellationToken,
    /// The name of this process (in tests, of a thread); see [`worker_name`](topicmill_store::worker_name).
    pub name: &'a str,
    /// The run that the stage's rows belong to.
    pub run: RunId,
}
