//! [`Run`] holds what every stage receives: the database, the clock, the cancellation token and the run's id.

use tokio_util::sync::CancellationToken;

use topicmill_core::Timestamp;
use topicmill_core::clock::SharedClock;
use topicmill_store::{RunId, Store};

/// One run of a stage: the context in which the stage works.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The database.
    pub store: &'a Store,
    /// The clock for dates, waits and leases.
    pub clock: &'a SharedClock,
    /// Cancelled by the first signal: work in progress is written, and no more is started.
    pub stop: &'a CancellationToken,
    /// The name of this process (in tests, of a thread); see [`worker_name`](topicmill_store::worker_name).
    pub worker: &'a str,
    /// The id of the run that the stage's rows belong to.
    pub id: RunId,
}

impl Run<'_> {
    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now().into()
    }
}
