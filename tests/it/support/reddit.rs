//! A fake Reddit: wiremock on a real socket, and a client with a fake clock.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use topicmill_core::clock::ManualClock;
use topicmill_core::{Listing, SourceKind, ThingKind};
use topicmill_http::{ClientSettings, Timeouts};
use topicmill_sources::reddit::{Reddit, RedditSettings};
use topicmill_sources::{ListingPage, SourceError};
use wiremock::matchers::{method, path, path_regex};
use wiremock::{Mock, MockServer, ResponseTemplate};

/// Returns client settings for `base_url`.
pub fn settings(base_url: &str) -> RedditSettings {
    RedditSettings {
        auth_url: base_url.to_owned(),
        api_url: base_url.to_owned(),
        client_id: "an-id".to_owned(),
        client_secret: "a-secret".to_owned(),
        username: String::new(),
        password: String::new(),
        client: ClientSettings {
            user_agent: "linux:topicmill:v0 (by /u/tester)".to_owned(),
            requests_per_minute: 100,
            wait_budget: Duration::from_mins(2),
            tries: 5,
            timeouts: Timeouts {
                connect: Duration::from_secs(10),
                read: Duration::from_secs(30),
                total: Duration::from_secs(90),
            },
        },
    }
}

/// Returns a client for `base_url` and its clock.
pub fn client(base_url: &str) -> (Arc<Reddit>, Arc<ManualClock>) {
    client_with(settings(base_url))
}

/// Returns a client with these settings.
pub fn client_with(settings: RedditSettings) -> (Arc<Reddit>, Arc<ManualClock>) {
    let start = chrono::DateTime::from_timestamp(1_790_000_000, 0).expect("a valid time");
    let clock = ManualClock::at(start);
    let reddit = Reddit::new(settings, SourceKind::Reddit, clock.clone()).expect("good settings");
    (Arc::new(reddit), clock)
}

/// Reads the first page of `r/climate`.
pub async fn read(reddit: &Reddit) -> Result<ListingPage, SourceError> {
    read_page(reddit, "climate", Listing::Hot, None).await
}

/// Reads one page of a subreddit's posts.
pub async fn read_page(
    reddit: &Reddit,
    subreddit: &str,
    listing: Listing,
    after: Option<&str>,
) -> Result<ListingPage, SourceError> {
    let posts = (subreddit, ThingKind::Post);
    reddit.page(posts, listing, 100, after).await
}

/// Starts a server that gives every client `token-1` and has no subreddit yet.
pub async fn server() -> MockServer {
    let server = MockServer::start().await;
    mount_token(&server, "token-1", u64::MAX).await;
    server
}

/// Issues a token to each of the next `times` requests for one.
pub async fn mount_token(server: &MockServer, token: &str, times: u64) {
    let grant = json!({"access_token": token, "expires_in": 3600, "scope": "read"});
    Mock::given(method("POST"))
        .and(path("/api/v1/access_token"))
        .respond_with(ResponseTemplate::new(200).set_body_json(grant))
        .up_to_n_times(times)
        .mount(server)
        .await;
}

/// Responds with `answer` to the next `times` requests for any listing. Responses are sent in the order of the calls.
pub async fn mount_listing(server: &MockServer, answer: ResponseTemplate, times: u64) {
    Mock::given(method("GET"))
        .and(path_regex("^/r/"))
        .respond_with(answer)
        .up_to_n_times(times)
        .mount(server)
        .await;
}

/// Returns a page of posts with these ids.
pub fn page(ids: &[&str]) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(page_json(ids))
}

/// Returns the JSON of [`page`].
pub fn page_json(ids: &[&str]) -> Value {
    let child = |id: &&str| {
        json!({"kind": "t3", "data": {
            "name": format!("t3_{id}"), "id": id, "subreddit": "climate", "title": "A title",
            "selftext": "A text", "is_self": true, "created_utc": 1_789_000_000.0,
        }})
    };
    let children: Vec<Value> = ids.iter().map(child).collect();
    json!({"kind": "Listing", "data": {"after": null, "children": children}})
}

/// Counts a server's requests with this method.
pub async fn requests(server: &MockServer, method: &str) -> usize {
    let requests = server.received_requests().await.unwrap_or_default();
    requests
        .iter()
        .filter(|request| request.method.as_str() == method)
        .count()
}
