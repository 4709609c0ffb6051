//! Shares one request quota among all processes that use the same client id and database.
//!
//! The HTTP client does not depend on the store, so it receives closures. A store error ends the run, because processes
//! that each count their own requests could together exceed the quota.

use std::sync::Arc;
use std::time::Duration;

use topicmill_core::clock::SharedClock;
use topicmill_core::{QuotaReservation, QuotaTerms};
use topicmill_http::shared_quota::{SharedQuota, SharedQuotaError};
use topicmill_sources::Source;
use topicmill_store::{Store, StoreError};

/// Makes a client reserve its requests in the database from now on.
pub(super) fn share(source: &dyn Source, store: &Store, clock: &SharedClock) {
    let Some(id) = source.shared_quota() else {
        return;
    };
    let (store, clock) = (store.clone(), clock.clone());
    let reserving = Arc::new(StoredQuota { id, store, clock });
    let throttling = Arc::clone(&reserving);
    source.http().share_quota(SharedQuota {
        reserve: Box::new(move |terms| Box::pin(Arc::clone(&reserving).reserve(terms))),
        throttle: Box::new(move |wait| Box::pin(Arc::clone(&throttling).throttle(wait))),
    });
}

/// The quota of a client id, as a row in the database.
struct StoredQuota {
    id: String,
    store: Store,
    clock: SharedClock,
}

impl StoredQuota {
    async fn reserve(
        self: Arc<Self>,
        terms: QuotaTerms,
    ) -> Result<QuotaReservation, SharedQuotaError> {
        let (quotas, now) = (self.store.quotas(), self.clock.now());
        let reserved = quotas.reserve_request(&self.id, terms, now).await;
        reserved.map_err(failed)
    }

    async fn throttle(self: Arc<Self>, wait: Duration) -> Result<(), SharedQuotaError> {
        let (quotas, now) = (self.store.quotas(), self.clock.now());
        let throttled = quotas.throttle_quota(&self.id, wait, now).await;
        throttled.map_err(failed)
    }
}

fn failed(error: StoreError) -> SharedQuotaError {
    SharedQuotaError {
        kind: error.kind(),
        source: error.into(),
    }
}
