//! Tests the Reddit client against a fake server and the sample Reddit.

mod retries;
mod tokens;

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
