//! The sample Reddit: sixteen small subreddits, served on the loopback interface for tests and for trying topicmill
//! without a key.
//!
//! It implements Reddit's protocol, so that the same client works with both: a token, pages with `after`, stickied
//! posts at the top of a hot listing that do not count towards the limit, quota headers, and text as with `raw_json=1`.
//! Two first-choice subreddits of the built-in pipeline cannot be read, as happens on Reddit: `r/sports` is missing and
//! `r/education` is private, so their fallbacks contain the posts.
//!
//! It also serves `/api/info`, and the comments of r/climate and r/food: the newest ones, and those on a post.
//!
//! The posts and comments are fictional and are stored in `sample/`, one per line. A post has an age instead of a time:
//! it is always this old when the server starts. Ids are derived from the file and the line, so that a second run finds
//! the same posts.

mod posts;

use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::posts::texts;
use self::posts::{Entry, load};
use topicmill_core::{Listing, ThingKind, Timestamp};

/// A subreddit that only its members may read.
const PRIVATE: &str = "education";

/// The page size, smaller than Reddit's 100, so that listings have several pages.
const PAGE_LIMIT: usize = 25;

/// Maximum number of ids in a request to `/api/info`. As on Reddit, further ids are silently ignored.
const INFO_LIMIT: usize = 100;

/// Number of requests in a quota window. A new window begins after this many requests, not after a period of time; a
/// demo sends about forty.
const WINDOW: u32 = 996;

/// The only token, which is valid for this server only.
const TOKEN: &str = "sample-reddit-token";

/// A running sample Reddit; stops when dropped.
#[derive(Debug)]
pub struct SampleReddit {
    address: SocketAddr,
    _stop: DropGuard,
}

impl SampleReddit {
    /// Starts serving on a free port of 127.0.0.1, with posts that have their stated ages at `now`.
    ///
    /// Needs a tokio runtime, on which the server runs.
    ///
    /// # Errors
    /// Returns an error if the loopback interface has no free port.
    pub async fn start(now: Timestamp) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let sample = Arc::new(Sample {
            subreddits: load(now),
            requests: AtomicU32::new(0),
        });
        let server = axum::serve(listener, router(sample)).with_graceful_shutdown(stopped);
        tokio::spawn(server.into_future());
        Ok(Self {
            address,
            _stop: stop.drop_guard(),
        })
    }

    /// Base URL of the API and of the token endpoint.
    pub fn api_url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The server's state.
#[derive(Debug)]
struct Sample {
    subreddits: Vec<(&'static str, Vec<Entry>)>,
    requests: AtomicU32,
}

#[derive(Deserialize)]
struct InfoRequest {
    id: String,
}

#[derive(Deserialize)]
struct PageRequest {
    limit: Option<usize>,
    after: Option<String>,
}

fn router(sample: Arc<Sample>) -> Router {
    Router::new()
        .route("/api/v1/access_token", post(token))
        .route("/api/info", get(info))
        .route("/r/{subreddit}/{listing}", get(listing))
        .route("/comments/{id}", get(thread))
        .fallback(|| async { not_found() })
        .with_state(sample)
}

async fn token(headers: HeaderMap) -> Response {
    if credentials(&headers, "Basic ").is_none() {
        return unauthorized();
    }
    Json(json!({
        "access_token": TOKEN, "token_type": "bearer", "expires_in": 3600, "scope": "read",
    }))
    .into_response()
}

async fn listing(
    State(sample): State<Arc<Sample>>,
    Path((subreddit, listing)): Path<(String, String)>,
    Query(request): Query<PageRequest>,
    headers: HeaderMap,
) -> Response {
    if credentials(&headers, "Bearer ") != Some(TOKEN) {
        return unauthorized();
    }
    let (order, kind) = match listing.parse::<Listing>() {
        Ok(order) => (order, ThingKind::Post),
        Err(_) if listing == "comments" => (Listing::New, ThingKind::Comment),
        Err(_) => return not_found(),
    };
    let answer = match sample.entries(&subreddit) {
        Some(entries) => {
            let entries = entries.iter().filter(|entry| entry.is(kind)).collect();
            Json(page_of(entries, order, &request)).into_response()
        }
        None if subreddit.eq_ignore_ascii_case(PRIVATE) => {
            let body = json!({"reason": "private", "message": "Forbidden", "error": 403});
            (StatusCode::FORBIDDEN, Json(body)).into_response()
        }
        None => {
            // Reddit returns no 404 for a missing subreddit, but redirects to its search.
            let location = format!("https://www.reddit.com/subreddits/search?q={subreddit}");
            (StatusCode::FOUND, [(LOCATION, location)]).into_response()
        }
    };
    (sample.quota_headers(), answer).into_response()
}

async fn info(
    State(sample): State<Arc<Sample>>,
    Query(request): Query<InfoRequest>,
    headers: HeaderMap,
) -> Response {
    if credentials(&headers, "Bearer ") != Some(TOKEN) {
        return unauthorized();
    }
    let entries = || sample.subreddits.iter().flat_map(|(_, entries)| entries);
    let known = request.id.split(',').take(INFO_LIMIT);
    let known = known.filter_map(|name| entries().find(|entry| entry.name == name));
    (sample.quota_headers(), Json(listing_of(None, known))).into_response()
}

/// Returns a post and the comments on it, all on one level.
async fn thread(
    State(sample): State<Arc<Sample>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if credentials(&headers, "Bearer ") != Some(TOKEN) {
        return unauthorized();
    }
    let name = format!("t3_{id}");
    let entries = || sample.subreddits.iter().flat_map(|(_, entries)| entries);
    let Some(post) = entries().find(|entry| entry.name == name) else {
        return not_found();
    };
    let comments = entries().filter(|entry| entry.wire["link_id"] == name);
    let lists = [
        listing_of(None, [post].into_iter()),
        listing_of(None, comments),
    ];
    (sample.quota_headers(), Json(lists)).into_response()
}

fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    given.strip_prefix(scheme).filter(|given| !given.is_empty())
}

fn unauthorized() -> Response {
    let challenge = "Bearer realm=\"reddit\", error=\"invalid_token\"";
    let headers = [(WWW_AUTHENTICATE, challenge)];
    let body = Json(json!({"message": "Unauthorized", "error": 401}));
    (StatusCode::UNAUTHORIZED, headers, body).into_response()
}

fn not_found() -> Response {
    let headers = [(CONTENT_TYPE, "text/html; charset=UTF-8")];
    let page = "<!doctype html><title>page not found</title>";
    (StatusCode::NOT_FOUND, headers, page).into_response()
}

impl Sample {
    fn entries(&self, subreddit: &str) -> Option<&[Entry]> {
        let mut known = self.subreddits.iter();
        let (_, entries) = known.find(|(name, _)| name.eq_ignore_ascii_case(subreddit))?;
        Some(entries)
    }

    fn quota_headers(&self) -> [(&'static str, String); 3] {
        let used = self.requests.fetch_add(1, Ordering::Relaxed) % WINDOW + 1;
        [
            ("x-ratelimit-remaining", format!("{}.0", WINDOW - used)),
            ("x-ratelimit-used", used.to_string()),
            ("x-ratelimit-reset", "600".to_owned()),
        ]
    }
}

/// Returns a page of a subreddit's posts or comments.
fn page_of(mut ordered: Vec<&Entry>, order: Listing, request: &PageRequest) -> Value {
    match order {
        Listing::Hot => ordered.sort_by(|a, b| b.hotness().total_cmp(&a.hotness())),
        Listing::New => ordered.sort_by_key(|entry| Reverse(entry.created)),
        Listing::Top => ordered.sort_by_key(|entry| Reverse(entry.score)),
        Listing::Rising => ordered.sort_by_key(|entry| Reverse(entry.votes_per_hour())),
    }
    // As on Reddit, the first page contains the stickied posts in addition to the limit.
    let in_front = |entry: &&Entry| order == Listing::Hot && entry.stickied;
    let (stickied, rest): (Vec<&Entry>, Vec<&Entry>) = ordered.into_iter().partition(in_front);

    let start = request.after.as_deref().map_or(0, |after| {
        let place = rest.iter().position(|entry| entry.name == after);
        place.map_or(rest.len(), |place| place + 1)
    });
    let limit = request.limit.unwrap_or(PAGE_LIMIT).clamp(1, PAGE_LIMIT);
    let end = rest.len().min(start + limit);
    let is_first_page = request.after.is_none();
    let stickied = stickied.iter().filter(|_| is_first_page);
    let shown = stickied.chain(&rest[start..end]).copied();
    let after = (end < rest.len()).then(|| rest[end - 1].name.as_str());
    listing_of(after, shown)
}

fn listing_of<'a>(after: Option<&str>, entries: impl Iterator<Item = &'a Entry>) -> Value {
    let child = |entry: &Entry| json!({"kind": &entry.name[..2], "data": entry.wire});
    let children: Vec<Value> = entries.map(child).collect();
    json!({"kind": "Listing", "data": {
        "after": after, "before": null, "dist": children.len(), "modhash": null, "geo_filter": "",
        "children": children,
    }})
}
