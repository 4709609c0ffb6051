//! Tests tokens: requested once, renewed, and rejected.

use super::*;

#[tokio::test]
async fn an_account_logs_in_with_its_password() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(body_string(
            "grant_type=password&username=me&password=p%26w",
        ))
        .respond_with(
            status(200)
                .set_body_json(json!({"access_token": "abc", "expires_in": 86400, "scope": "*"})),
        )
        .expect(1)
        .mount(&server)
        .await;
    let mut settings = settings(&server.uri());
    (settings.username, settings.password) = ("me".to_owned(), "p&w".to_owned());
    let (reddit, _) = client_with(settings);
    mount_listing(&server, page(&["a1"]), 1).await;
    let credentials = reddit.check_credentials("climate").await.unwrap();
    assert_eq!(credentials.scope, "*");
    assert_eq!(
        credentials.ends_at,
        Timestamp::from_epoch_secs(1_790_086_400).unwrap()
    );
}

#[tokio::test]
async fn concurrent_tasks_share_one_token() {
    let server = server().await;
    mount_listing(&server, page(&["a1"]), u64::MAX).await;
    let (reddit, _) = client(&server.uri());
    read_concurrently(&reddit, 16).await;
    assert_eq!(
        (
            requests(&server, "POST").await,
            requests(&server, "GET").await
        ),
        (1, 16)
    );
    assert_eq!(
        (reddit.traffic().requests, reddit.traffic().token_requests),
        (17, 1)
    );
}

async fn read_concurrently(reddit: &Arc<Reddit>, tasks: usize) {
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let reddit = reddit.clone();
            tokio::spawn(async move { read(&reddit).await.map(|page| page.posts.len()) })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 1);
    }
}

#[tokio::test]
async fn a_burst_of_rejected_tokens_causes_one_refresh() {
    let server = MockServer::start().await;
    mount_token(&server, "token-1", 1).await;
    mount_token(&server, "token-2", u64::MAX).await;
    let get = |token: &str| {
        Mock::given(method("GET")).and(header("authorization", format!("Bearer {token}")))
    };
    get("token-1")
        .respond_with(status(401))
        .mount(&server)
        .await;
    get("token-2")
        .respond_with(page(&["a1"]))
        .mount(&server)
        .await;
    let (reddit, clock) = client(&server.uri());
    read_concurrently(&reddit, 16).await;
    assert_eq!(requests(&server, "POST").await, 2);
    assert_eq!(clock.sleeps(), []);
}

#[tokio::test]
async fn wrong_credentials_are_sent_once() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(status(401))
        .expect(1)
        .mount(&server)
        .await;
    let (reddit, _) = client(&server.uri());
    for _ in 0..3 {
        let error = read(&reddit).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Auth);
        assert!(
            error.to_string().contains("reddit.client_secret"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_429_from_the_token_endpoint_is_retried_after_a_wait() {
    let server = MockServer::start().await;
    let busy = status(429).insert_header("retry-after", "7");
    Mock::given(method("POST"))
        .respond_with(busy)
        .up_to_n_times(1)
        .mount(&server)
        .await;
    mount_token(&server, "token-1", 1).await;
    mount_listing(&server, page(&["a1"]), 1).await;
    let (reddit, clock) = client(&server.uri());
    read(&reddit).await.unwrap();
    assert_eq!(clock.sleeps(), [secs(7)]);
}

#[tokio::test]
async fn a_long_retry_after_from_the_token_endpoint_is_not_retried() {
    let server = MockServer::start().await;
    let busy = status(429).insert_header("retry-after", "3600");
    Mock::given(method("POST"))
        .respond_with(busy)
        .mount(&server)
        .await;
    let (reddit, clock) = client(&server.uri());
    for _ in 0..3 {
        assert_eq!(
            read(&reddit).await.unwrap_err().outcome(),
            Outcome::RateLimited
        );
    }
    assert_eq!(
        (clock.sleeps(), requests(&server, "POST").await),
        (vec![], 1)
    );
}
