//! Clients of one server whose clocks differ.

use std::time::Duration;

use chrono::TimeDelta;
use topicmill_core::Timestamp;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Claimant, CrashFilter, QuotaTerms};

use crate::crashes::begin;
use crate::purge::Scene;
use crate::support::postgres::postgres;

#[tokio::test]
async fn clock_skew_between_workers_does_not_expire_live_claims() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    scene.import(&["a", "b", "c"]).await;
    let target = scene.target().await;
    let store = database.open_on_server_time().await;
    store.backlog().enqueue_missing(target).await.unwrap();
    let right = SystemClock::shared().now();
    let [ahead, behind] = [6, -6].map(|ahead| Timestamp::from(right + TimeDelta::minutes(ahead)));
    let claimant = Claimant {
        worker: "w",
        run: begin(&store, "w").await,
        max_attempts: 3,
        lease: Duration::from_mins(1),
    };
    let backlog = store.backlog();
    let claim = async |limit, now| {
        let claim = backlog.claim(target, &claimant, CrashFilter::WithoutCrash, limit, now);
        claim.await.unwrap()
    };
    // The claim of a worker with a slow clock does not expire immediately, nor does one that it renews.
    let slow = claim(1, behind).await;
    let renewed = backlog.renew(slow.lease, behind, claimant.lease);
    assert!(renewed.await.unwrap());
    // A worker with a fast clock claims free posts, but not posts that others hold.
    let fast = claim(10, ahead).await;
    assert_eq!((slow.posts.len(), fast.posts.len()), (1, 2));
    let waiting = backlog.count_backlog(target, 3, ahead).await.unwrap();
    assert_eq!((waiting.claimed, waiting.claimable), (3, 0));
}

#[tokio::test]
async fn workers_with_clock_skew_share_one_quota() {
    let Some(database) = postgres() else { return };
    let store = database.open_on_server_time().await;
    let terms = QuotaTerms {
        interval: Duration::from_mins(1),
        burst: 1,
        max_wait: Duration::from_mins(5),
    };
    let right = SystemClock::shared().now();
    let reserve = async |ahead| {
        let now = right + TimeDelta::minutes(ahead);
        let reserved = store.quotas().reserve_request("q", terms, now);
        reserved.await.unwrap().wait
    };
    assert_eq!(reserve(0).await, Duration::ZERO);
    let second = reserve(6).await;
    assert!(second > Duration::from_secs(30), "{second:?}");
    let third = reserve(-6).await;
    assert!(third < Duration::from_secs(121), "{third:?}");
}
