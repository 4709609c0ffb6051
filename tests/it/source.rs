//! Tests the Reddit client against a fake server and the sample Reddit.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use topicmill_core::clock::ManualClock;
use topicmill_core::record::WaitTotal;
use topicmill_core::{Listing, Outcome, SourceKind, Timestamp};
use topicmill_sources::page::{ListingSource as _, Paging};
use topicmill_sources::reddit::Reddit;
use topicmill_sources::sample::SampleReddit;
use topicmill_sources::{ListingPage, Source, SourceError, SourceSettings, open};
use wiremock::matchers::{body_string, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::reddit::{
    client, client_with, mount_listing, mount_token, page, page_json, requests, server, settings,
};

async fn read(reddit: &Reddit) -> Result<ListingPage, SourceError> {
    reddit.page("climate", Listing::Hot, 100, None).await
}

fn status(code: u16) -> ResponseTemplate {
    ResponseTemplate::new(code)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test]
async fn every_source_in_the_registry_opens_as_described() {
    for kind in SourceKind::ALL {
        let nobody = "http://127.0.0.1:9";
        let settings = SourceSettings {
            reddit: settings(nobody),
            arctic_shift: crate::support::arctic_shift::settings(nobody),
        };
        let clock = ManualClock::at(now().into());
        let about = kind.traits();
        match open(*kind, settings, clock).await {
            Ok(source) => {
                assert_eq!(source.kind(), *kind);
                assert!(!about.listings.is_empty(), "{kind}");
                let archived = matches!(source.paging(), Paging::Archive(_));
                assert_eq!(archived, !about.is_live, "{kind}");
                assert_eq!(source.shared_quota().is_some(), about.needs_key, "{kind}");
            }
            Err(error) => {
                assert!(matches!(error, SourceError::NotCollectable), "{error}");
                assert!(about.listings.is_empty(), "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn listing_requests_have_the_form_that_reddit_expects() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/api/v1/access_token"))
        .and(header("authorization", "Basic YW4taWQ6YS1zZWNyZXQ="))
        .and(header("user-agent", "linux:topicmill:v0 (by /u/tester)"))
        .and(body_string("grant_type=client_credentials"))
        .respond_with(status(200).set_body_json(json!({"access_token": "abc", "expires_in": 3600})))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(method("GET"))
        .and(path("/r/climate/top"))
        .and(header("authorization", "Bearer abc"))
        .and(header("user-agent", "linux:topicmill:v0 (by /u/tester)"))
        .and(query_param("raw_json", "1"))
        .and(query_param("limit", "100"))
        .and(query_param("t", "day"))
        .and(query_param("after", "t3_xyz"))
        .respond_with(page(&["a1", "a2"]))
        .expect(1)
        .mount(&server)
        .await;
    let (reddit, clock) = client(&server.uri());
    let page = reddit
        .page("climate", Listing::Top, 500, Some("t3_xyz"))
        .await
        .unwrap();
    assert_eq!(page.posts.len(), 2);
    assert_eq!(page.posts[0].source, SourceKind::Reddit);
    assert_eq!(clock.sleeps(), []);
}

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
    read_at_once(&reddit, 16).await;
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

async fn read_at_once(reddit: &Arc<Reddit>, tasks: usize) {
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
    read_at_once(&reddit, 16).await;
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
async fn a_429_from_the_token_endpoint_is_waited_for() {
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
async fn a_wait_above_the_budget_gives_up_at_once() {
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
    // Plenty left: no wait. Ten left for a minute: 6 s. None left: until the reset, or 1 s without one.
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
        error.to_string().contains("for r/climate, tried 5×"),
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
    assert!(
        read(&reddit).await.is_ok(),
        "the next topic is not held back"
    );
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

/// A server that sends each connection the next of these byte strings and hangs up.
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

#[tokio::test]
async fn permanent_errors_are_not_retried_and_have_their_outcome() {
    let because = |code: u16, reason: &str| {
        status(code).set_body_json(json!({"reason": reason, "message": "x", "error": code}))
    };
    let html = |code: u16| status(code).set_body_raw("<html>no</html>", "text/html; charset=UTF-8");
    let redirect = |to: &str| status(302).insert_header("location", to);
    for (answer, outcome) in [
        (because(403, "private"), Outcome::Private),
        (because(403, "quarantined"), Outcome::Quarantined),
        (because(403, "gated"), Outcome::Gated),
        (because(404, "banned"), Outcome::Banned),
        (because(404, "anything"), Outcome::Missing),
        (html(403), Outcome::EdgeBlocked),
        (html(404), Outcome::Missing),
        (html(451), Outcome::Banned),
        (html(200), Outcome::EdgeBlocked),
        (
            status(200).set_body_json(json!({"kind": "wiki"})),
            Outcome::Server,
        ),
        (
            redirect("https://www.reddit.com/subreddits/search?q=x"),
            Outcome::Missing,
        ),
    ] {
        let server = server().await;
        mount_listing(&server, answer, u64::MAX).await;
        let (reddit, clock) = client(&server.uri());
        assert_eq!(read(&reddit).await.unwrap_err().outcome(), outcome);
        assert_eq!(
            (clock.sleeps(), requests(&server, "GET").await),
            (vec![], 1),
            "{outcome}"
        );
    }
}

#[tokio::test]
async fn an_invalid_subreddit_name_sends_no_request() {
    let server = server().await;
    let (reddit, _) = client(&server.uri());
    let error = reddit
        .page("../api/v1/me", Listing::Hot, 5, None)
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Missing);
    assert_eq!(reddit.traffic().requests, 0);
}

#[tokio::test]
async fn invalid_settings_are_rejected_with_an_example() {
    let refused = |change: &dyn Fn(&mut topicmill_sources::reddit::RedditSettings)| {
        let mut settings = settings("http://127.0.0.1:9");
        change(&mut settings);
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        Reddit::new(settings, SourceKind::Reddit, clock)
            .err()
            .expect("refused")
            .to_string()
    };
    let message = refused(&|s| s.client.user_agent = "Mozilla/5.0".to_owned());
    assert!(
        message.contains("linux:topicmill:v0.1.0 (by /u/your_name)"),
        "{message}"
    );
    let message = refused(&|s| s.api_url = "http://oauth.reddit.com".to_owned());
    assert!(
        message.contains("`reddit.api_url`") && message.contains("127.0.0.1"),
        "{message}"
    );
    let message = refused(&|s| s.auth_url = "reddit".to_owned());
    assert!(
        message.contains("`reddit.auth_url`") && message.contains("https://"),
        "{message}"
    );
    assert!(refused(&|s| s.client_id.clear()).contains("--source sample"));
    let message = refused(&|s| s.client.requests_per_minute = 0);
    assert!(
        message.contains("`reddit.requests_per_minute`") && message.contains("between 1 and"),
        "{message}"
    );
    for (setting, message) in [
        ("tries", refused(&|s| s.client.tries = 0)),
        ("tries", refused(&|s| s.client.tries = 1_000)),
        (
            "retry_after_cap_secs",
            refused(&|s| s.retry_after_cap = Duration::ZERO),
        ),
        (
            "token_margin_secs",
            refused(&|s| s.token_margin = secs(86_400)),
        ),
        (
            "wait_budget_secs",
            refused(&|s| s.client.wait_budget = secs(u64::MAX)),
        ),
        (
            "read_timeout_secs",
            refused(&|s| s.client.timeouts.read = Duration::ZERO),
        ),
        (
            "connect_timeout_secs",
            refused(&|s| s.client.timeouts.connect = Duration::ZERO),
        ),
        (
            "total_timeout_secs",
            refused(&|s| s.client.timeouts.total = Duration::ZERO),
        ),
    ] {
        assert!(
            message.contains(&format!("`reddit.{setting}`")),
            "{message}"
        );
    }
}

#[test]
fn secrets_are_not_in_the_debug_form() {
    let mut settings = settings("http://127.0.0.1:9");
    settings.password = "hunter2".to_owned();
    let shown = format!("{settings:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("a-secret"),
        "{shown}"
    );
}

fn now() -> Timestamp {
    Timestamp::from_epoch_secs(1_790_000_000).unwrap()
}

/// Reads every page of a listing, as the collector does.
async fn pages(reddit: &Reddit, subreddit: &str, listing: Listing) -> Vec<ListingPage> {
    let mut pages: Vec<ListingPage> = Vec::new();
    loop {
        let after = pages.last().and_then(|page| page.after.clone());
        pages.push(
            reddit
                .page(subreddit, listing, 100, after.as_deref())
                .await
                .unwrap(),
        );
        if pages.last().is_some_and(|page| page.after.is_none()) {
            return pages;
        }
    }
}

#[tokio::test]
async fn the_sample_reddit_serves_pages_with_stickied_posts_first() {
    let sample = SampleReddit::start(now()).await.unwrap();
    let (reddit, clock) = client(&sample.api_url());
    for listing in Listing::ALL {
        let pages = pages(&reddit, "climate", *listing).await;
        assert_eq!(pages.len(), 2, "{listing}");
        let posts: Vec<_> = pages.iter().flat_map(|page| &page.posts).collect();
        let mut names: Vec<_> = posts.iter().map(|post| &post.fullname).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 32, "{listing}");
        if *listing == Listing::Hot {
            assert!(posts[0].stickied && posts[1].stickied && !posts[2].stickied);
            assert_eq!(pages[0].posts.len(), 27, "25 and two stickied");
        }
        if *listing == Listing::New {
            assert!(posts.is_sorted_by_key(|post| std::cmp::Reverse(post.created_at)));
        }
    }
    assert_eq!(clock.sleeps(), []);
}

#[tokio::test]
async fn the_sample_reddit_returns_the_errors_of_the_real_one() {
    let sample = SampleReddit::start(now()).await.unwrap();
    let (reddit, _) = client(&sample.api_url());
    for (subreddit, outcome) in [
        ("sports", Outcome::Missing),
        ("education", Outcome::Private),
        ("no_such_thing", Outcome::Missing),
    ] {
        let error = reddit
            .page(subreddit, Listing::Hot, 10, None)
            .await
            .unwrap_err();
        assert_eq!(error.outcome(), outcome, "{subreddit}");
    }
    for subreddit in ["nba", "Teachers", "teachers"] {
        assert!(reddit.page(subreddit, Listing::Hot, 10, None).await.is_ok());
    }
}
