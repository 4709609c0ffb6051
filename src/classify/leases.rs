//! Leases: heartbeats, and reclaiming the posts of workers that crashed.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;

use super::retry::Retry;
use crate::run::Run;
use topicmill_store::{Lease, Store, StoreError, has_worker_exited};

/// Timeout for a renewal; a third of the lease if that is shorter.
const RENEW_TIMEOUT: Duration = Duration::from_mins(1);

/// Renews this worker's leases until dropped: after each third of the lease, and sooner after a failure.
pub(super) async fn heartbeat(
    run: &Run<'_>,
    retry: &Retry<'_>,
    lease: Duration,
    leases: &LiveLeases,
) -> Infallible {
    let mut wait = lease / 3;
    loop {
        run.clock.sleep(wait).await;
        let begun = run.clock.elapsed();
        // Concurrently and each with a timeout, so that one slow or lost response does not delay the other renewals.
        let renewals = leases.all().into_iter().map(async |id| {
            let renewed = run.store.backlog().renew(id, run.clock.now().into(), lease);
            let renewed = tokio::time::timeout(RENEW_TIMEOUT.min(lease / 3), renewed).await;
            (id, renewed.unwrap_or(Err(StoreError::NotResponding)))
        });
        let mut failed = None;
        for (id, renewed) in join_all(renewals).await {
            match renewed {
                Ok(true) => {}
                // Not logged here: the write of its posts is rejected and logged.
                Ok(false) => leases.remove(id),
                Err(error) => failed = Some(error),
            }
        }
        let took = run.clock.elapsed().saturating_sub(begun);
        wait = match failed {
            None => (lease / 3).saturating_sub(took).max(lease / 12),
            Some(error) => {
                // An outage is already logged by `retry`.
                if !(error.is_transient() && retry.is_unreachable()) {
                    tracing::warn!("a lease was not renewed: {error}");
                }
                lease / 12
            }
        };
    }
}

/// The leases that this worker holds.
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

/// Reclaims the posts of crashed processes on this machine, so that the run need not wait for their leases to expire.
pub(super) async fn reclaim_from_crashed(store: &Store, me: &str) -> Result<(), StoreError> {
    for (lease, worker) in store.backlog().lease_holders().await? {
        if has_worker_exited(&worker, me) {
            tracing::info!(lease = lease.0, %worker, "reclaiming the posts of a crashed worker");
            store.backlog().reclaim(lease).await?;
        }
    }
    Ok(())
}
