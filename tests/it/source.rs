//! Tests the Reddit client against a fake server and the sample Reddit.

mod retries;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use topicmill_core::clock::ManualClock;
use topicmill_core::record::WaitTotal;
use topicmill_core::table;
use topicmill_core::{Listing, Outcome, SourceKind, Timestamp};
use topicmill_sources::reddit::{Reddit, RedditSettings};
use topicmill_sources::sample::SampleReddit;
use topicmill_sources::source::Paging;
use topicmill_sources::{ListingPage, Source, SourceError, SourceSettings, open};
use wiremock::matchers::{body_string, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::program::{Program, finished, on_reddit};
use crate::support::reddit::{
    client, client_with, mount_listing, mount_token, page, page_json, read, read_page, requests,
    server, settings,
};
use crate::support::wire::{Act, Wire, head, json_answer};

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
        .page(
            ("climate", topicmill_core::ThingKind::Post),
            Listing::Top,
            500,
            Some("t3_xyz"),
        )
        .await
        .unwrap();
    assert_eq!(page.posts.len(), 2);
    assert_eq!(page.posts[0].source, SourceKind::Reddit);
    assert_eq!(clock.sleeps(), []);
}

#[test]
fn invalid_settings_are_rejected_by_name() {
    type Change = fn(&mut RedditSettings);
    let changes: [(&str, Change); 11] = table! {
        "user_agent", |s| s.client.user_agent = "Mozilla/5.0".into();
        "api_url", |s| s.api_url = "http://oauth.reddit.com".into();
        "auth_url", |s| s.auth_url = "reddit".into();
        "client_id", |s| s.client_id.clear();
        "requests_per_minute", |s| s.client.requests_per_minute = 0;
        "tries", |s| s.client.tries = 0;
        "tries", |s| s.client.tries = 1_000;
        "wait_budget_secs", |s| { s.client.wait_budget = secs(u64::MAX); };
        "read_timeout_secs", |s| s.client.timeouts.read = secs(0);
        "connect_timeout_secs", |s| { s.client.timeouts.connect = secs(0); };
        "total_timeout_secs", |s| s.client.timeouts.total = secs(0);
    };
    for (setting, change) in changes {
        let mut settings = settings("http://127.0.0.1:9");
        change(&mut settings);
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let error = Reddit::new(settings, SourceKind::Reddit, clock)
            .err()
            .unwrap();
        let message = error.to_string();
        assert!(message.contains(&format!("reddit.{setting}")), "{message}");
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
        let page = read_page(reddit, subreddit, listing, after.as_deref()).await;
        pages.push(page.unwrap());
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
            // 25 and two stickied.
            assert_eq!(pages[0].posts.len(), 27);
        }
        if *listing == Listing::New {
            assert!(posts.is_sorted_by_key(|post| std::cmp::Reverse(post.created_at)));
        }
    }
    assert_eq!(clock.sleeps(), []);
}

#[tokio::test]
async fn a_thread_counts_the_comments_that_reddit_leaves_out() {
    let list = |children: &[Value]| json!({"kind": "Listing", "data": {"children": children}});
    let comment = |id: &str, replies: Value| {
        json!({"kind": "t1", "data": {
            "id": id, "link_id": "t3_a", "parent_id": "t3_a", "body": "Yes.", "subreddit": "climate",
            "created_utc": 1.5e9, "replies": replies,
        }})
    };
    let more = |count: u64| json!({"kind": "more", "data": {"count": count, "children": []}});
    let replies = list(&[comment("c2", json!("")), more(7)]);
    let thread = json!([list(&[]), list(&[comment("c1", replies), more(0)])]);
    let server = server().await;
    Mock::given(path("/comments/a"))
        .and(query_param("limit", "500"))
        .respond_with(status(200).set_body_json(thread))
        .mount(&server)
        .await;
    let (reddit, _) = client(&server.uri());
    let page = reddit.thread(&"t3_a".parse().unwrap()).await.unwrap();
    let names: Vec<_> = page
        .posts
        .iter()
        .map(|post| post.fullname.as_str())
        .collect();
    assert_eq!((names, page.left_out), (vec!["t1_c1", "t1_c2"], 8));
    assert_eq!(page.rejected, []);
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
        let page = read_page(&reddit, subreddit, Listing::Hot, None).await;
        assert_eq!(page.unwrap_err().outcome(), outcome, "{subreddit}");
    }
    for subreddit in ["nba", "Teachers", "teachers"] {
        let page = read_page(&reddit, subreddit, Listing::Hot, None).await;
        page.unwrap();
    }
}
