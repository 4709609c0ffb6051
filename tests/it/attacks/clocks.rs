//! Clients of one server whose clocks differ.

use std::time::Duration;

use chrono::TimeDelta;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Claimant, CrashFilter, QuotaTerms};

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
    let (ahead, behind) = (right + TimeDelta::minutes(6), right - TimeDelta::minutes(6));
    let run = store
        .runs()
        .begin_run(topicmill_core::Stage::Classify, "w", right.into())
        .await
        .unwrap();
    let claimant = Claimant {
        worker: "w",
        run,
        max_attempts: 3,
        lease: Duration::from_mins(1),
    };
    // The claim of a worker with a slow clock does not expire immediately, nor does one that it renews.
    let slow = store
        .backlog()
        .claim(
            target,
            &claimant,
            CrashFilter::WithoutCrash,
            1,
            behind.into(),
        )
        .await
        .unwrap();
    assert!(
        store
            .backlog()
            .renew(slow.lease, behind.into(), claimant.lease)
            .await
            .unwrap()
    );
    // A worker with a fast clock claims free posts, but not posts that others hold.
    let fast = store
        .backlog()
        .claim(
            target,
            &claimant,
            CrashFilter::WithoutCrash,
            10,
            ahead.into(),
        )
        .await
        .unwrap();
    assert_eq!((slow.posts.len(), fast.posts.len()), (1, 2));
    let waiting = store
        .backlog()
        .count_backlog(target, 3, ahead.into())
        .await
        .unwrap();
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
    let first = store
        .quotas()
        .reserve_request("q", terms, right)
        .await
        .unwrap();
    let second = store
        .quotas()
        .reserve_request("q", terms, right + TimeDelta::minutes(6))
        .await
        .unwrap();
    assert_eq!(first.wait, Duration::ZERO);
    assert!(second.wait > Duration::from_secs(30), "{second:?}");
    let third = store
        .quotas()
        .reserve_request("q", terms, right - TimeDelta::minutes(6))
        .await
        .unwrap();
    assert!(third.wait < Duration::from_secs(121), "{third:?}");
}
