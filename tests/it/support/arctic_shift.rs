//! A fake archive on a real socket. It reads a post when it is posted and again after 36 hours, and returns the latest
//! reading up to its own time, which may lag behind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use topicmill_core::ThingKind;
use topicmill_core::clock::ManualClock;
use topicmill_http::ClientSettings;
use topicmill_sources::arctic_shift::{ArcticShift, ArcticShiftSettings, BUSY_SUBREDDIT};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

/// The creation time of the first fixture post, in Unix seconds.
pub const START: i64 = 1_789_000_000;
/// The current time of the clients, in Unix seconds: long after the posts.
pub const NOW: i64 = 1_790_000_000;

/// The meaning of `after` and `before` for posts from exactly that second, which the archive does not document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    Inclusive,
    Exclusive,
}

/// The time between a post and its second reading, in seconds: a little over 36 hours.
pub const SECOND_READING: i64 = 130_000;

/// A row, and the time since which the archive returns it.
struct Reading {
    since: i64,
    row: Value,
}

/// The archive's rows and its behaviour.
pub struct ArchiveState {
    /// The readings of each post, in order of time.
    posts: Mutex<BTreeMap<String, Vec<Reading>>>,
    now: AtomicI64,
    lag: AtomicI64,
    /// Pages with more rows time out.
    slow_above: AtomicUsize,
    /// Responses to send instead of rows, in order.
    troubles: Mutex<VecDeque<ResponseTemplate>>,
    bounds: Bounds,
    /// The most rows on a page that was requested with `limit=auto`.
    auto: usize,
}

impl ArchiveState {
    /// Adds rows that the archive returns at any time.
    pub fn add_rows(&self, rows: impl IntoIterator<Item = Value>) {
        for row in rows {
            self.add_reading(i64::MIN, row);
        }
    }

    /// Adds a post, such as one of [`row`], which the archive reads `late` seconds after it was posted, and again after
    /// 36 hours, when these of its fields have changed.
    pub fn add_post(&self, post: &Value, late: i64, changed: &Value) {
        let posted = posted_at(post);
        let first = json!({
            "score": 1, "num_comments": 0, "upvote_ratio": 1.0, "retrieved_on": posted + late, "_meta": null,
        });
        self.add_reading(posted + late, with(post, &first));
        let mut second = with(post, changed);
        second["_meta"]["retrieved_2nd_on"] = json!(posted + SECOND_READING);
        self.add_reading(posted + late.max(SECOND_READING), second);
    }

    fn add_reading(&self, since: i64, row: Value) {
        let id = row["id"]
            .as_str()
            .or_else(|| row["name"].as_str())
            .unwrap_or_default();
        let mut posts = self.posts.lock().unwrap();
        posts
            .entry(id.to_owned())
            .or_default()
            .push(Reading { since, row });
    }

    /// Sets the archive's clock, in seconds since [`START`].
    pub fn set_now(&self, secs: i64) {
        self.now.store(START + secs, Ordering::Relaxed);
    }

    /// Makes the archive return nothing that it read in the last `secs` seconds.
    pub fn set_lag(&self, secs: i64) {
        self.lag.store(secs, Ordering::Relaxed);
    }

    /// Makes pages of more than `rows` rows time out.
    pub fn set_slow_above(&self, rows: usize) {
        self.slow_above.store(rows, Ordering::Relaxed);
    }

    /// Sends this response to each of the next `times` requests.
    pub fn respond_instead(&self, answer: ResponseTemplate, times: usize) {
        let answers = std::iter::repeat_n(answer, times);
        self.troubles.lock().unwrap().extend(answers);
    }

    /// The latest time at which the archive has read anything.
    fn read_until(&self) -> i64 {
        self.now.load(Ordering::Relaxed) - self.lag.load(Ordering::Relaxed)
    }

    /// Returns the latest reading of each post, or of each comment.
    fn rows(&self, kind: ThingKind) -> Vec<Value> {
        let until = self.read_until();
        let posts = self.posts.lock().unwrap();
        let latest = posts.values().filter_map(|readings| {
            let seen = readings.iter().filter(|reading| reading.since <= until);
            seen.max_by_key(|reading| reading.since)
        });
        let latest = latest.map(|reading| reading.row.clone());
        latest
            .filter(|row| row.get("parent_id").is_some() == (kind == ThingKind::Comment))
            .collect()
    }

    fn search(&self, query: &BTreeMap<String, String>, kind: ThingKind) -> ResponseTemplate {
        let border = |name: &str| query.get(name).map(|secs| secs.parse::<i64>().unwrap());
        let slack = i64::from(self.bounds == Bounds::Inclusive);
        let (after, before) = (border("after"), border("before"));
        let limit = match query["limit"].as_str() {
            "auto" => self.auto,
            number => number.parse().unwrap(),
        };
        assert!((1..=100).contains(&limit) || query["limit"] == "auto");
        assert!(!query.contains_key("fields"), "`fields` may drop `_meta`");
        if limit > self.slow_above.load(Ordering::Relaxed) {
            return timeout();
        }
        let mut rows = self.rows(kind);
        if query["subreddit"] == BUSY_SUBREDDIT {
            let fields = json!({"subreddit": BUSY_SUBREDDIT});
            rows.push(row_with("busy", self.read_until() - 30 - START, &fields));
        }
        let mut found: Vec<(i64, Value)> = rows
            .into_iter()
            .filter(|row| {
                let subreddit = row["subreddit"].as_str().unwrap();
                subreddit.eq_ignore_ascii_case(&query["subreddit"])
            })
            .map(|row| (posted_at(&row), row))
            .filter(|(at, _)| after.is_none_or(|after| *at > after - slack))
            .filter(|(at, _)| before.is_none_or(|before| *at < before + slack))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        if query["sort"] == "desc" {
            found.reverse();
        }
        let found: Vec<Value> = found.into_iter().map(|(_, row)| row).take(limit).collect();
        page(&json!(found))
    }

    /// Returns the comments on a post, each inside the one that it replies to.
    fn tree(&self, post: &str) -> ResponseTemplate {
        fn under(rows: &[Value], parent: &str) -> Vec<Value> {
            let replies = rows.iter().filter(|row| row["parent_id"] == parent);
            let thing = |row: &Value| {
                let children = under(rows, &format!("t1_{}", row["id"].as_str().unwrap()));
                let mut data = row.clone();
                data["replies"] = if children.is_empty() {
                    json!("")
                } else {
                    json!({"kind": "Listing", "data": {"children": children}})
                };
                json!({"kind": "t1", "data": data})
            };
            replies.map(thing).collect()
        }
        page(&json!(under(
            &self.rows(ThingKind::Comment),
            &format!("t3_{post}")
        )))
    }

    fn by_ids(&self, query: &BTreeMap<String, String>, kind: ThingKind) -> ResponseTemplate {
        let ids: Vec<&str> = query["ids"].split(',').collect();
        assert!(ids.len() <= 500, "{} ids", ids.len());
        let is_asked = |row: &Value| {
            let id = row["id"].as_str().unwrap_or_default();
            ids.iter()
                .any(|asked| asked.trim_start_matches("t3_") == id)
        };
        page(&json!(
            self.rows(kind)
                .into_iter()
                .filter(is_asked)
                .collect::<Vec<_>>()
        ))
    }
}

/// Returns a response with rows.
fn page(rows: &Value) -> ResponseTemplate {
    ResponseTemplate::new(200)
        .set_body_json(json!({"data": rows}))
        .insert_header("X-RateLimit-Remaining", "2000")
        .insert_header("X-RateLimit-Reset", "60")
}

/// Returns the archive's response to a request that takes too long.
pub fn timeout() -> ResponseTemplate {
    ResponseTemplate::new(422)
        .set_body_json(json!({"data": null, "error": "Timeout. Maybe slow down a bit"}))
}

/// Returns a row's `created_utc`, a number or a string, in whole seconds.
#[expect(clippy::cast_possible_truncation, reason = "fractions do not count")]
fn posted_at(row: &Value) -> i64 {
    match &row["created_utc"] {
        Value::String(text) => text.parse().unwrap(),
        number => number.as_f64().unwrap() as i64,
    }
}

struct Responder(Arc<ArchiveState>);

impl Respond for Responder {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        if let Some(trouble) = self.0.troubles.lock().unwrap().pop_front() {
            return trouble;
        }
        let query = request.url.query_pairs().into_owned().collect();
        match request.url.path() {
            "/api/posts/search" => self.0.search(&query, ThingKind::Post),
            "/api/posts/ids" => self.0.by_ids(&query, ThingKind::Post),
            "/api/comments/search" => self.0.search(&query, ThingKind::Comment),
            "/api/comments/ids" => self.0.by_ids(&query, ThingKind::Comment),
            "/api/comments/tree" => self.0.tree(&query["link_id"]),
            _ => ResponseTemplate::new(404),
        }
    }
}

/// A running archive.
pub struct Archive {
    pub server: MockServer,
    pub state: Arc<ArchiveState>,
}

impl Archive {
    pub async fn start(bounds: Bounds) -> Self {
        Self::with(bounds, 1_000).await
    }

    pub async fn with(bounds: Bounds, auto: usize) -> Self {
        let state = Arc::new(ArchiveState {
            posts: Mutex::default(),
            now: AtomicI64::new(NOW),
            lag: AtomicI64::new(0),
            slow_above: AtomicUsize::new(usize::MAX),
            troubles: Mutex::default(),
            bounds,
            auto,
        });
        let server = MockServer::start().await;
        Mock::given(method("GET"))
            .respond_with(Responder(state.clone()))
            .mount(&server)
            .await;
        Self { server, state }
    }

    /// Returns the query of each request: subreddit, order, bound minus [`START`], and limit. The request that measures
    /// the archive's lag is left out.
    pub async fn requested_pages(&self) -> Vec<String> {
        let requests = self.searches().await;
        let words = |request: &Request| -> String {
            let words = request.url.query_pairs().map(|(name, value)| {
                match (name.as_ref(), value.parse::<i64>()) {
                    ("after" | "before", Ok(secs)) => format!("{name}={}", secs - START),
                    _ => value.into_owned(),
                }
            });
            words.collect::<Vec<_>>().join(" ")
        };
        requests.iter().map(words).collect()
    }

    pub async fn requests(&self) -> usize {
        self.searches().await.len()
    }

    async fn searches(&self) -> Vec<Request> {
        let mut requests = self.server.received_requests().await.unwrap();
        let is_lag = |request: &Request| {
            let mut pairs = request.url.query_pairs();
            pairs.any(|(_, value)| value == BUSY_SUBREDDIT)
        };
        requests.retain(|request| !is_lag(request));
        requests
    }
}

/// Returns client settings for `base_url`.
pub fn settings(base_url: &str) -> ArcticShiftSettings {
    ArcticShiftSettings {
        api_url: base_url.to_owned(),
        client: ClientSettings {
            user_agent: String::new(),
            requests_per_minute: 60,
            ..super::reddit::settings(base_url).client
        },
    }
}

/// Returns a client for `base_url` and its clock.
pub fn client(base_url: &str) -> (ArcticShift, Arc<ManualClock>) {
    let now = chrono::DateTime::from_timestamp(NOW, 0).expect("a valid time");
    let clock = ManualClock::at(now);
    let archive = ArcticShift::new(&settings(base_url), clock.clone()).expect("good settings");
    (archive, clock)
}

/// Returns a post of `r/climate`, created `secs` seconds after [`START`], and later retrieved twice by the archive.
pub fn row(id: &str, secs: i64) -> Value {
    json!({
        "id": id, "subreddit": "climate", "title": format!("Title {id}"), "selftext": "A text",
        "is_self": true, "author": "someone", "permalink": format!("/r/climate/comments/{id}/"),
        "created_utc": START + secs, "score": 40, "num_comments": 7, "upvote_ratio": 0.9,
        "retrieved_on": START + secs + 20, "_meta": {"retrieved_2nd_on": START + secs + SECOND_READING},
    })
}

/// Returns the post of [`row`] with these fields added or replaced.
pub fn row_with(id: &str, secs: i64, fields: &Value) -> Value {
    with(&row(id, secs), fields)
}

fn with(row: &Value, fields: &Value) -> Value {
    let mut row = row.clone();
    for (name, value) in fields.as_object().unwrap() {
        row[name] = value.clone();
    }
    row
}

/// Returns posts one minute apart.
pub fn minutes(range: std::ops::Range<i64>) -> Vec<Value> {
    range
        .map(|minute| row(&format!("m{minute}"), 60 * minute))
        .collect()
}
