//! The sample Reddit: sixteen small subreddits served on the loopback interface, for a first try without a
//! key and for tests.
//!
//! It speaks the real protocol, so that what works here works there: a token first, pages with `after`,
//! stickied posts in front of a hot listing and not counted, quota headers, HTML-escaped text unless
//! `raw_json=1`. Two of the subreddits that the shipped pipeline prefers cannot be read, as happens on the
//! real one: `r/sports` is missing and `r/education` private, and their posts are those of the fallbacks.
//!
//! `/api/info` answers, too, and a test may say which posts are gone ([`SampleReddit::mark`]).
//!
//! The posts are invented and lie in `sample/`, one a line, each with an age instead of a time: they are
//! always as old as that when the server starts. Ids follow from file and line, so that a second run finds
//! the posts of the first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::domain::{Listing, PurgeReason, Timestamp};
use crate::source::reddit::Fate;

/// Subreddits and their posts. The order decides the ids: append, never insert.
const FILES: [(&str, &str); 16] = [
    ("climate", include_str!("sample/climate.ndjson")),
    ("technology", include_str!("sample/technology.ndjson")),
    ("nba", include_str!("sample/sports.ndjson")),
    ("personalfinance", include_str!("sample/finance.ndjson")),
    ("Health", include_str!("sample/health.ndjson")),
    ("Teachers", include_str!("sample/education.ndjson")),
    ("gaming", include_str!("sample/gaming.ndjson")),
    ("politics", include_str!("sample/politics.ndjson")),
    ("science", include_str!("sample/science.ndjson")),
    ("movies", include_str!("sample/movies.ndjson")),
    ("Music", include_str!("sample/music.ndjson")),
    ("books", include_str!("sample/books.ndjson")),
    ("food", include_str!("sample/food.ndjson")),
    ("travel", include_str!("sample/travel.ndjson")),
    ("relationships", include_str!("sample/relationships.ndjson")),
    ("history", include_str!("sample/history.ndjson")),
];

/// A subreddit that exists and answers members only.
const PRIVATE: &str = "education";

/// Fewer than Reddit's 100, so that paging shows.
const PAGE_LIMIT: usize = 25;

/// As Reddit has it; ids behind it are passed over in silence.
const INFO_LIMIT: usize = 100;

/// Requests in a window that never ends; a whole demo takes about forty.
const WINDOW: u32 = 996;

/// The one token. It opens nothing but this server.
const TOKEN: &str = "sample-reddit-token";

/// Ids as long as today's: `rk…`, seven characters.
const FIRST_ID: u64 = 60_000_000_000;

/// Ids of one file: its lines, and behind them the parents of its crossposts.
const IDS_PER_FILE: u64 = 10_000;

/// Why the lock of the marks can be taken.
const NO_PANIC: &str = "no holder of this lock panics";

/// A running sample Reddit; stops when dropped.
#[derive(Debug)]
pub struct SampleReddit {
    address: SocketAddr,
    sample: Arc<Sample>,
    _stop: DropGuard,
}

impl SampleReddit {
    /// Starts serving on a free port of 127.0.0.1, with posts as old as their ages at `now`.
    ///
    /// Needs a tokio runtime, on which the server runs.
    ///
    /// # Errors
    /// When the loopback interface has no port to give.
    pub async fn start(now: Timestamp) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let sample = Arc::new(Sample {
            subreddits: load(now),
            requests: AtomicU32::new(0),
            marked: Mutex::default(),
        });
        let router = router(sample.clone());
        let server = axum::serve(listener, router).with_graceful_shutdown(stopped);
        tokio::spawn(server.into_future());
        Ok(Self {
            address,
            sample,
            _stop: stop.drop_guard(),
        })
    }

    /// From now on a post fares like this, on listings and in `/api/info`.
    pub fn mark(&self, fullname: &str, fate: Fate) {
        let mut marked = self.sample.marked.lock().expect(NO_PANIC);
        marked.insert(fullname.to_owned(), fate);
    }

    /// Base URL of the token endpoint.
    pub fn auth_url(&self) -> String {
        self.api_url()
    }

    /// Base URL of the API.
    pub fn api_url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// What the server knows.
#[derive(Debug)]
struct Sample {
    subreddits: Vec<(&'static str, Vec<Entry>)>,
    requests: AtomicU32,
    marked: Mutex<HashMap<String, Fate>>,
}

/// A post in its wire form, and what the listings are ordered by.
#[derive(Debug)]
struct Entry {
    wire: Value,
    name: String,
    score: i64,
    created: i64,
    age_minutes: i64,
    stickied: bool,
}

/// A line of a file of `sample/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    title: String,
    #[serde(default)]
    selftext: String,
    author: String,
    score: i64,
    upvote_ratio: f64,
    num_comments: i64,
    age_minutes: i64,
    flair: Option<String>,
    url: Option<String>,
    #[serde(default)]
    over_18: bool,
    #[serde(default)]
    stickied: bool,
    #[serde(default)]
    removed: bool,
    crosspost_of: Option<Parent>,
}

/// The post that a crosspost repeats.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parent {
    subreddit: String,
    title: String,
    #[serde(default)]
    selftext: String,
    author: String,
}

#[derive(Deserialize)]
struct TokenRequest {
    grant_type: String,
}

#[derive(Deserialize)]
struct InfoRequest {
    id: String,
    raw_json: Option<String>,
}

#[derive(Deserialize)]
struct PageRequest {
    limit: Option<usize>,
    after: Option<String>,
    raw_json: Option<String>,
}

fn router(sample: Arc<Sample>) -> Router {
    Router::new()
        .route("/api/v1/access_token", post(token))
        .route("/api/info", get(info))
        .route("/r/{subreddit}/{listing}", get(listing))
        .fallback(|| async { not_found() })
        .with_state(sample)
}

async fn token(headers: HeaderMap, Form(request): Form<TokenRequest>) -> Response {
    if credentials(&headers, "Basic ").is_none() {
        return unauthorized();
    }
    if !matches!(
        request.grant_type.as_str(),
        "client_credentials" | "password"
    ) {
        return Json(json!({"error": "unsupported_grant_type"})).into_response();
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
    let Ok(order) = listing.parse::<Listing>() else {
        return not_found();
    };
    let answer = match sample.entries(&subreddit) {
        Some(entries) => Json(sample.page(entries, order, &request)).into_response(),
        None if subreddit.eq_ignore_ascii_case(PRIVATE) => {
            let body = json!({"reason": "private", "message": "Forbidden", "error": 403});
            (StatusCode::FORBIDDEN, Json(body)).into_response()
        }
        None => {
            // Reddit has no 404 for a subreddit that does not exist: it leads to its search.
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
    let known: Vec<&Entry> = known.collect();
    let children = sample.children(&known, request.raw_json.as_deref());
    (sample.quota_headers(), Json(listing_of(None, &children))).into_response()
}

fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    given.strip_prefix(scheme).filter(|given| !given.is_empty())
}

fn unauthorized() -> Response {
    (
        StatusCode::UNAUTHORIZED,
        [(
            WWW_AUTHENTICATE,
            "Bearer realm=\"reddit\", error=\"invalid_token\"",
        )],
        Json(json!({"message": "Unauthorized", "error": 401})),
    )
        .into_response()
}

fn not_found() -> Response {
    let kind = [(CONTENT_TYPE, "text/html; charset=UTF-8")];
    (
        StatusCode::NOT_FOUND,
        kind,
        "<!doctype html><title>page not found</title>",
    )
        .into_response()
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

    /// One page of a subreddit's posts.
    fn page(&self, entries: &[Entry], order: Listing, request: &PageRequest) -> Value {
        let mut ordered: Vec<&Entry> = entries.iter().collect();
        match order {
            Listing::Hot => ordered.sort_by(|a, b| b.hotness().total_cmp(&a.hotness())),
            Listing::New => ordered.sort_by_key(|entry| Reverse(entry.created)),
            Listing::Top => ordered.sort_by_key(|entry| Reverse(entry.score)),
            Listing::Rising => {
                ordered.sort_by_key(|entry| Reverse(entry.votes_per_hour()));
            }
        }
        // As on Reddit: what is stickied comes on top of the limit, on the first page only.
        let in_front = |entry: &&Entry| order == Listing::Hot && entry.stickied;
        let (stickied, rest): (Vec<&Entry>, Vec<&Entry>) = ordered.into_iter().partition(in_front);

        let start = match request.after.as_deref() {
            None => 0,
            Some(after) => rest
                .iter()
                .position(|entry| entry.name == after)
                .map_or(rest.len(), |at| at + 1),
        };
        let end = rest
            .len()
            .min(start + request.limit.unwrap_or(PAGE_LIMIT).clamp(1, PAGE_LIMIT));
        let first = if request.after.is_none() {
            stickied
        } else {
            Vec::new()
        };
        let shown: Vec<&Entry> = first.iter().chain(&rest[start..end]).copied().collect();
        let children = self.children(&shown, request.raw_json.as_deref());
        let after = (end < rest.len()).then(|| rest[end - 1].name.as_str());
        listing_of(after, &children)
    }

    /// Posts as things, less those that are marked as missing.
    fn children(&self, entries: &[&Entry], raw_json: Option<&str>) -> Vec<Value> {
        let marked = self.marked.lock().expect(NO_PANIC);
        let of = |entry: &&Entry| {
            let mut data = marked_as(entry.wire.clone(), marked.get(&entry.name))?;
            if raw_json != Some("1") {
                escape_html(&mut data);
            }
            Some(json!({"kind": "t3", "data": data}))
        };
        entries.iter().filter_map(of).collect()
    }
}

fn listing_of(after: Option<&str>, children: &[Value]) -> Value {
    json!({"kind": "Listing", "data": {
        "after": after, "before": null, "dist": children.len(), "modhash": null, "geo_filter": "",
        "children": children,
    }})
}

/// What Reddit puts in place of a post that fares like this.
fn marked_as(mut wire: Value, fate: Option<&Fate>) -> Option<Value> {
    let (category, body) = match fate {
        None | Some(Fate::Alive) => return Some(wire),
        Some(Fate::Authorless) => {
            wire["author"] = json!("[deleted]");
            return Some(wire);
        }
        Some(Fate::Gone(PurgeReason::Missing | PurgeReason::Requested | PurgeReason::Shown)) => {
            return None;
        }
        Some(Fate::Gone(PurgeReason::Deleted)) => ("deleted", "[deleted]"),
        Some(Fate::Gone(PurgeReason::Removed)) => ("moderator", "[removed]"),
    };
    wire["removed_by_category"] = json!(category);
    wire["selftext"] = json!(body);
    wire["author"] = json!("[deleted]");
    Some(wire)
}

impl Entry {
    fn votes_per_hour(&self) -> i64 {
        self.score * 60 / self.age_minutes.max(1)
    }

    /// The formula that Reddit once published: ten times the votes weigh as much as twelve and a half hours.
    #[expect(clippy::cast_precision_loss, reason = "an order, not a sum")]
    fn hotness(&self) -> f64 {
        (self.score.max(1) as f64).log10() + self.created as f64 / 45_000.0
    }
}

/// As the API does to every text unless asked not to.
fn escape_html(value: &mut Value) {
    match value {
        Value::String(text) => {
            // The ampersand first: the entities of the others have one, too.
            *text = text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
        }
        Value::Array(items) => items.iter_mut().for_each(escape_html),
        Value::Object(fields) => fields.values_mut().for_each(escape_html),
        _ => {}
    }
}

fn load(now: Timestamp) -> Vec<(&'static str, Vec<Entry>)> {
    let ids = (0..).map(|file| FIRST_ID + file * IDS_PER_FILE);
    let entries = |(subreddit, text): (&'static str, &str), first_id: u64| {
        let lines = text.lines().zip(first_id..);
        let lines = lines.map(|(line, id)| {
            let line = serde_json::from_str(line).expect("a test reads every line of the sample");
            entry(subreddit, id, &line, now)
        });
        (subreddit, lines.collect())
    };
    FILES
        .into_iter()
        .zip(ids)
        .map(|(file, first_id)| entries(file, first_id))
        .collect()
}

fn entry(subreddit: &str, id: u64, line: &Line, now: Timestamp) -> Entry {
    let created = now.as_datetime().timestamp() - line.age_minutes * 60;
    let permalink = permalink(subreddit, id, &line.title);
    let parent = line.crosspost_of.as_ref();
    let parent = parent.map(|parent| parent_wire(parent, id + IDS_PER_FILE / 2, created));
    let is_self = line.url.is_none() && parent.is_none();
    let url = match (&line.url, &parent) {
        (Some(url), _) => url.clone(),
        (None, Some(parent)) => parent["permalink"].as_str().unwrap_or_default().to_owned(),
        (None, None) => format!("https://www.reddit.com{permalink}"),
    };
    let deleted = line.selftext == "[deleted]";
    let removed_by = line
        .removed
        .then_some(if deleted { "deleted" } else { "moderator" });
    let name = fullname(id);
    #[expect(clippy::cast_precision_loss, reason = "seconds of this century")]
    let created_utc = created as f64;
    let mut wire = json!({
        "name": name,
        "id": base36(id),
        "subreddit": subreddit,
        "subreddit_name_prefixed": format!("r/{subreddit}"),
        "title": line.title,
        "selftext": line.selftext,
        "author": if deleted { "[deleted]" } else { line.author.as_str() },
        "permalink": permalink,
        "url": url,
        "is_self": is_self,
        "score": line.score,
        "ups": line.score,
        "downs": 0,
        "upvote_ratio": line.upvote_ratio,
        "num_comments": line.num_comments,
        "link_flair_text": line.flair,
        "over_18": line.over_18,
        "stickied": line.stickied,
        "removed_by_category": removed_by,
        "created_utc": created_utc,
        "edited": false,
        "distinguished": null,
        "locked": false,
    });
    if let Some(parent) = parent {
        wire["crosspost_parent"] = parent["name"].clone();
        wire["crosspost_parent_list"] = json!([parent]);
    }
    Entry {
        wire,
        name,
        score: line.score,
        created,
        age_minutes: line.age_minutes,
        stickied: line.stickied,
    }
}

fn parent_wire(parent: &Parent, id: u64, created: i64) -> Value {
    json!({
        "name": fullname(id),
        "id": base36(id),
        "subreddit": parent.subreddit,
        "title": parent.title,
        "selftext": parent.selftext,
        "author": parent.author,
        "permalink": permalink(&parent.subreddit, id, &parent.title),
        "is_self": true,
        "created_utc": created - 3600,
    })
}

fn fullname(id: u64) -> String {
    format!("t3_{}", base36(id))
}

fn permalink(subreddit: &str, id: u64, title: &str) -> String {
    let words = title.to_lowercase();
    let words: Vec<&str> = words
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .collect();
    let slug: String = words.join("_").chars().take(50).collect();
    format!("/r/{subreddit}/comments/{}/{slug}/", base36(id))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        let digit = u32::try_from(number % 36).expect("less than 36");
        digits.push(char::from_digit(digit, 36).expect("less than 36"));
        number /= 36;
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::domain::SourceKind;
    use crate::source::post::post_from_value;

    fn now() -> Timestamp {
        Timestamp::from_epoch_secs(1_790_000_000).unwrap()
    }

    #[test]
    fn every_line_is_a_post_with_an_id_of_its_own() {
        let mut seen = HashSet::new();
        for (subreddit, entries) in load(now()) {
            assert_eq!(entries.len(), 32, "r/{subreddit}");
            for entry in entries {
                let post = post_from_value(&entry.wire, SourceKind::Sample).unwrap();
                assert_eq!(post.subreddit, subreddit);
                assert!(post.created_at <= now());
                assert!(seen.insert(post.fullname));
            }
        }
    }

    #[test]
    fn ids_do_not_depend_on_the_time() {
        let ids = |now| -> Vec<String> {
            let all = load(now).into_iter().flat_map(|(_, entries)| entries);
            all.map(|entry| entry.name).collect()
        };
        let later = Timestamp::from_epoch_secs(1_800_000_000).unwrap();
        assert_eq!(ids(now()), ids(later));
    }

    #[test]
    fn the_sample_has_every_kind_of_post() {
        let all: Vec<_> = load(now())
            .into_iter()
            .flat_map(|(_, entries)| entries)
            .collect();
        let posts: Vec<_> = all
            .iter()
            .map(|entry| post_from_value(&entry.wire, SourceKind::Sample).unwrap())
            .collect();
        assert!(posts.iter().any(|post| post.stickied));
        assert!(posts.iter().any(|post| post.removed));
        assert!(posts.iter().any(|post| post.url.is_some()));
        assert!(posts.iter().any(|post| post.author.is_none()));
        let crossposts = all
            .iter()
            .zip(&posts)
            .filter(|(entry, _)| entry.wire["selftext"] == "");
        assert!(
            crossposts
                .into_iter()
                .any(|(_, post)| !post.selftext.is_empty())
        );
    }

    #[test]
    fn numbers_are_written_in_base_36() {
        assert_eq!(
            (base36(0), base36(35), base36(36)),
            ("0".into(), "z".into(), "10".into())
        );
        assert_eq!(base36(FIRST_ID).len(), 7);
    }
}
