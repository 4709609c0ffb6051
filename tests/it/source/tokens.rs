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
async fn concurrent_tasks_share_one_token_and_one_rate_limit() {
    let server = server().await;
    mount_listing(&server, page(&["a1"]), u64::MAX).await;
    let (reddit, clock) = client(&server.uri());
    read_concurrently(&reddit, 150).await;
    assert_eq!(requests(&server, "POST").await, 1);
    assert_eq!(requests(&server, "GET").await, 150);
    let traffic = reddit.traffic();
    assert_eq!((traffic.requests, traffic.token_requests), (151, 1));
    // 100 of the 151 requests may be sent immediately.
    assert_eq!(clock.sleeps(), [Duration::from_millis(600); 51]);
    assert_eq!(traffic.waits.own_pace.times, 51);
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
        let message = error.to_string();
        assert!(message.contains("reddit.client_secret"), "{message}");
    }
}

#[tokio::test]
async fn a_429_from_the_token_endpoint_is_retried_within_the_wait_budget() {
    for (given, sleeps) in [("7", vec![secs(7)]), ("3600", vec![])] {
        let server = MockServer::start().await;
        let busy = status(429).insert_header("retry-after", given);
        Mock::given(method("POST"))
            .respond_with(busy)
            .up_to_n_times(1)
            .mount(&server)
            .await;
        mount_token(&server, "token-1", 1).await;
        mount_listing(&server, page(&["a1"]), 1).await;
        let (reddit, clock) = client(&server.uri());
        if sleeps.is_empty() {
            for _ in 0..3 {
                let error = read(&reddit).await.unwrap_err();
                assert_eq!(error.outcome(), Outcome::RateLimited);
            }
            assert_eq!(requests(&server, "POST").await, 1);
        } else {
            read(&reddit).await.unwrap();
        }
        assert_eq!(clock.sleeps(), sleeps);
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let server = server().await;
    mount_listing(&server, page(&["a1"]), u64::MAX).await;
    let (reddit, clock) = client(&server.uri());
    for (advance, tokens) in [(0, 1), (3_539, 1), (1, 2), (3_539, 2), (1, 3)] {
        clock.advance(secs(advance));
        read(&reddit).await.unwrap();
        assert_eq!(requests(&server, "POST").await, tokens);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permanently_rejected_tokens_end_the_run_with_exit_3() {
    let server = server().await;
    mount_listing(&server, status(401), u64::MAX).await;
    let program = Program::new();
    let mut command = program.command("collect");
    finished(on_reddit(&mut command, &server.uri()).output().unwrap()).expect_exit(3, "auth");
    let tokens = requests(&server, "POST").await;
    assert!(tokens <= 2, "{tokens} tokens");
}
