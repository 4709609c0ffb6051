//! Leases: heartbeats, and reclaiming the posts of workers that crashed.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;

use super::patience::Patience;
use crate::worker::Worker;
use topicmill_store::{Lease, Store, StoreError, died};

/// Timeout of a renewal, if a third of the lease is longer.
const RENEWS_WITHIN: Duration = Duration::from_mins(1);

/// Renews the leases of this worker until it is dropped: when a third of their time has passed, and soon again where that
/// failed.
pub(super) async fn heartbeat(
    worker: &Worker<'_>,
    patience: &Patience<'_>,
    lease: Duration,
    leases: &LiveLeases,
) -> Infallible {
    let mut wait = lease / 3;
    loop {
        worker.clock.sleep(wait).await;
        let begun = worker.clock.elapsed();
        // Side by side, and each with a limit: where answers are slow or lost, one must not keep the others from being renewed.
        let renewals = leases.all().into_iter().map(async |id| {
            let renewed = worker
                .store
                .backlog()
                .renew(id, worker.clock.now().into(), lease);
            let renewed = tokio::time::timeout(RENEWS_WITHIN.min(lease / 3), renewed).await;
            (id, renewed.unwrap_or(Err(StoreError::Away)))
        });
        let mut failed = None;
        for (id, renewed) in join_all(renewals).await {
            match renewed {
                Ok(true) => {}
                // Its posts are refused when they are written; telling twice helps nobody.
                Ok(false) => leases.remove(id),
                Err(error) => failed = Some(error),
            }
        }
        let took = worker.clock.elapsed().saturating_sub(begun);
        wait = match failed {
            None => (lease / 3).saturating_sub(took).max(lease / 12),
            Some(error) => {
                // What passes was told already where the database is away.
                if !(error.is_transient() && patience.is_away()) {
                    tracing::warn!("a lease was not renewed: {error}");
                }
                lease / 12
            }
        };
    }
}

/// The leases that this worker holds now.
#[derive(Debug, Default)]
pub(super) struct LiveLeases(Mutex<Vec<Lease>>);

impl LiveLeases {
    fn lock(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    pub(super) fn add(&self, lease: Lease) {
        self.lock().push(lease);
    }

    pub(super) fn remove(&self, lease: Lease) {
        self.lock().retain(|live| *live != lease);
    }

    pub(super) fn all(&self) -> Vec<Lease> {
        self.lock().clone()
    }
}

/// Takes back the claims of processes of this machine that were killed, so that the next run need not wait
/// for their leases to expire.
pub(super) async fn return_abandoned(store: &Store, me: &str) -> Result<(), StoreError> {
    for (lease, worker) in store.backlog().lease_holders().await? {
        if died(&worker, me) {
            tracing::info!(lease = lease.0, %worker, "taking back the posts of a worker that died");
            store.backlog().bury(lease).await?;
        }
    }
    Ok(())
}
