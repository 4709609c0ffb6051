//! Tests waits and retries: rate limits, transient errors, and broken connections.

use super::*;

#[tokio::test]
async fn retry_after_is_obeyed() {
    for (given, waited) in [("4", 4), ("0", 1)] {
        let server = server().await;
        mount_listing(&server, status(429).insert_header("retry-after", given), 1).await;
        mount_listing(&server, page(&["a1"]), 1).await;
        let (reddit, clock) = client(&server.uri());
        read(&reddit).await.unwrap();
        assert_eq!(clock.sleeps(), [secs(waited)]);
        let traffic = reddit.traffic();
        assert_eq!(
            (traffic.retries, traffic.waits.total()),
            (1, traffic.waits.retry_after)
        );
        assert_eq!(
            traffic.waits.retry_after,
            WaitTotal {
                times: 1,
                sum: secs(waited)
            }
        );
    }
}

#[tokio::test]
async fn a_429_without_retry_after_waits_for_the_reset() {
    let server = server().await;
    mount_listing(
        &server,
        status(429).insert_header("x-ratelimit-reset", "41"),
        1,
    )
    .await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    read(&reddit).await.unwrap();
    assert_eq!(clock.sleeps(), [secs(41)]);
}

#[tokio::test]
async fn a_wait_above_the_budget_ends_the_retries_immediately() {
    let server = server().await;
    mount_listing(&server, status(429).insert_header("retry-after", "3600"), 1).await;
    let (reddit, clock) = client(&server.uri());
    let error = read(&reddit).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::RateLimited);
    assert!(
        error.to_string().contains("3600 s for r/climate"),
        "{error}"
    );
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
async fn rate_limit_headers_set_the_pace() {
    let server = server().await;
    let output = |remaining: &str, used: &str, reset: &str| {
        page(&["a1"])
            .insert_header("x-ratelimit-remaining", remaining)
            .insert_header("x-ratelimit-used", used)
            .insert_header("x-ratelimit-reset", reset)
    };
    mount_listing(&server, output("997.0", "3", "299"), 1).await;
    mount_listing(&server, output("10", "990", "60"), 1).await;
    mount_listing(&server, output("0.0", "1000", "54"), 1).await;
    mount_listing(&server, output("0", "300", "0"), 1).await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    for _ in 0..5 {
        read(&reddit).await.unwrap();
    }
    // With ample quota left, there is no wait. With ten requests left for a minute, the wait is 6 s. With none left, it
    // lasts until the reset, or 1 s if the reset is now.
    assert_eq!(clock.sleeps(), [secs(6), secs(54), secs(1)]);
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
    assert!(
        error.to_string().contains("for r/climate; attempts: 5;"),
        "{error}"
    );
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
async fn a_truncated_body_is_fetched_again() {
    let server = server().await;
    let whole = page_json(&["a1"]).to_string();
    mount_listing(
        &server,
        status(200).set_body_string(&whole[..whole.len() / 2]),
        1,
    )
    .await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    assert_eq!(read(&reddit).await.unwrap().posts.len(), 1);
    assert_eq!(clock.sleeps().len(), 1);
}

/// Starts a server that sends the next of these responses on each connection, and closes it.
async fn raw_server(answers: Vec<String>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn a_broken_connection_is_retried() {
    let answer = |body: &str, length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n\
                {body}"
        )
    };
    let token = "{\"access_token\": \"abc\", \"expires_in\": 3600}";
    let page = page_json(&["a1"]).to_string();
    let url = raw_server(vec![
        answer(token, token.len()),
        String::new(),
        answer(&page[..40], page.len()),
        answer(&page, page.len()),
    ])
    .await;
    let (reddit, clock) = client(&url);
    assert_eq!(read(&reddit).await.unwrap().posts.len(), 1);
    assert_eq!(clock.sleeps().len(), 2);
}
