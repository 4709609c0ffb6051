//! Shares one request quota among all processes that use the same client id and database.
//!
//! The HTTP client does not depend on the store, so it receives closures. A store error ends the run, because processes
//! that each count their own requests could together exceed the quota.

use std::sync::Arc;

use topicmill_core::clock::SharedClock;
use topicmill_http::shared_quota::{SharedQuota, SharedQuotaError};
use topicmill_sources::Source;
use topicmill_store::{Store, StoreError};

/// Makes a client reserve its requests in the database from now on.
pub(super) fn share(source: &dyn Source, store: &Store, clock: &SharedClock) {
    let Some(id) = source.shared_quota() else {
        return;
    };
    let reserving = Arc::new((store.clone(), clock.clone(), id));
    let throttling = reserving.clone();
    source.http().share_quota(SharedQuota {
        reserve: Box::new(move |terms| {
            let shared = reserving.clone();
            Box::pin(async move {
                let (store, clock, id) = &*shared;
                let reserved = store.quotas().reserve_request(id, terms, clock.now()).await;
                reserved.map_err(failed)
            })
        }),
        throttle: Box::new(move |wait| {
            let shared = throttling.clone();
            Box::pin(async move {
                let (store, clock, id) = &*shared;
                let throttled = store.quotas().throttle_quota(id, wait, clock.now()).await;
                throttled.map_err(failed)
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
