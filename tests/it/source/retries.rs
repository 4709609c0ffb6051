//! Tests waits and retries: rate limits, transient errors, and broken connections.

use super::*;

#[tokio::test]
async fn the_wait_that_a_429_requests_is_obeyed() {
    let (after, reset) = ("retry-after", "x-ratelimit-reset");
    for (headers, waited) in [
        (&[(after, "4"), (reset, "37")][..], 4),
        (&[(after, "0")], 1),
        (&[(reset, "41")], 41),
        (&[(reset, "0")], 1),
    ] {
        let server = server().await;
        let busy = status(429);
        let busy = headers.iter().fold(busy, |busy, (name, value)| {
            busy.insert_header(*name, *value)
        });
        mount_listing(&server, busy, 1).await;
        mount_listing(&server, page(&["a1"]), 1).await;
        let (reddit, clock) = client(&server.uri());
        read(&reddit).await.unwrap();
        assert_eq!(clock.sleeps(), [secs(waited)]);
        let (traffic, sum) = (reddit.traffic(), secs(waited));
        assert_eq!(traffic.retries, 1);
        assert_eq!(traffic.waits.retry_after, WaitTotal { times: 1, sum });
        assert_eq!(traffic.waits.total(), traffic.waits.retry_after);
    }
}

#[tokio::test]
async fn a_wait_above_the_budget_ends_the_retries_immediately() {
    let server = server().await;
    mount_listing(&server, status(429).insert_header("retry-after", "3600"), 1).await;
    let (reddit, clock) = client(&server.uri());
    let error = read(&reddit).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::RateLimited);
    assert_eq!(
        (clock.sleeps(), requests(&server, "GET").await),
        (vec![], 1)
    );
    // Other topics get the same error without another request.
    assert_eq!(
        read(&reddit).await.unwrap_err().outcome(),
        Outcome::RateLimited
    );
    assert_eq!(requests(&server, "GET").await, 1);
}

#[tokio::test]
async fn a_429_on_the_last_try_delays_the_next_request() {
    let server = server().await;
    mount_listing(&server, status(429), 5).await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    let error = read(&reddit).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::RateLimited);
    assert_eq!(clock.sleeps().len(), 4);
    read(&reddit).await.unwrap();
    assert_eq!(clock.sleeps().len(), 5);
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let server = server().await;
    for code in [503, 520, 408, 522] {
        mount_listing(&server, status(code), 1).await;
    }
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    read(&reddit).await.unwrap();
    let sleeps = clock.sleeps();
    assert_eq!(sleeps.len(), 4);
    for (sleep, base) in sleeps.iter().zip([1, 2, 4, 8]) {
        assert!((secs(base)..=secs(2 * base)).contains(sleep), "{sleeps:?}");
    }
}

#[tokio::test]
async fn retries_stop_when_a_server_stays_down() {
    let server = server().await;
    mount_listing(&server, status(500), u64::MAX).await;
    let (reddit, _) = client(&server.uri());
    let error = read(&reddit).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Server);
    assert_eq!(requests(&server, "GET").await, 5);
}

#[tokio::test]
async fn a_long_retry_after_is_a_server_error_and_does_not_exhaust_the_quota() {
    let server = server().await;
    mount_listing(&server, status(503).insert_header("retry-after", "3600"), 1).await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    assert_eq!(read(&reddit).await.unwrap_err().outcome(), Outcome::Server);
    assert_eq!(clock.sleeps(), []);
    assert!(read(&reddit).await.is_ok(), "the next topic is not delayed");
}

#[tokio::test]
async fn a_broken_response_is_requested_again() {
    let answer = |head_line: &str| Act::Answer([&head(head_line)[..], b"{\"kind\":"].concat());
    let wire = Wire::start(move |number, _| match number {
        0 => Act::Reset,
        1 => Act::Answer(Vec::new()),
        2 => answer("content-length: 10000\r\nconnection: close\r\n"),
        3 => answer("content-length: 8\r\n"),
        _ => json_answer("200 OK", "", &page_json(&["a1"])),
    })
    .await;
    let (reddit, clock) = client(&wire.url);
    assert_eq!(read(&reddit).await.unwrap().posts.len(), 1);
    assert_eq!((wire.requests(), clock.sleeps().len()), (5, 4));
}
