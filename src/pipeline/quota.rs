//! One quota for all processes that collect with a client id into a database: the database keeps it.
//!
//! The source knows nothing of the store, so it is handed closures. A store that fails ends the run with its
//! own error: to go on by one's own count could exceed the quota together with the others.

use std::sync::Arc;

use topicmill_core::clock::SharedClock;
use topicmill_http::shared_quota::{SharedQuota, SharedQuotaError};
use topicmill_sources::Source;
use topicmill_store::{Store, StoreError};

/// From now on the slots of this client are those of every process with its client id and this database.
pub(super) fn share(source: &dyn Source, store: &Store, clock: &SharedClock) {
    let Some(id) = source.shared_quota() else {
        return;
    };
    let shared = Arc::new((store.clone(), clock.clone(), id));
    let for_hold = shared.clone();
    source.http().share_quota(SharedQuota {
        reserve: Box::new(move |terms| {
            let shared = shared.clone();
            Box::pin(async move {
                let (store, clock, id) = &*shared;
                store
                    .quotas()
                    .reserve_slot(id, terms, clock.now())
                    .await
                    .map_err(failed)
            })
        }),
        throttle: Box::new(move |wait| {
            let shared = for_hold.clone();
            Box::pin(async move {
                let (store, clock, id) = &*shared;
                store
                    .quotas()
                    .hold_quota(id, wait, clock.now())
                    .await
                    .map_err(failed)
            })
        }),
    });
}

fn failed(error: StoreError) -> SharedQuotaError {
    SharedQuotaError {
        kind: error.kind(),
        source: error.into(),
    }
}
