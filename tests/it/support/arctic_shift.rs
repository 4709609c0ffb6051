//! A fake archive on a real socket. Its rows are in memory and are selected by time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use topicmill_core::clock::ManualClock;
use topicmill_http::ClientSettings;
use topicmill_sources::arctic_shift::{ArcticShift, ArcticShiftSettings};
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

/// The archive's rows and its behaviour.
pub struct ArchiveState {
    rows: Mutex<Vec<Value>>,
    /// Responses to send instead of rows, in order.
    troubles: Mutex<VecDeque<ResponseTemplate>>,
    bounds: Bounds,
    /// The most rows on a page that was requested with `limit=auto`.
    auto: usize,
}

impl ArchiveState {
    pub fn add_rows(&self, rows: impl IntoIterator<Item = Value>) {
        self.rows.lock().unwrap().extend(rows);
    }

    /// Sends this response to each of the next `times` requests.
    pub fn respond_instead(&self, answer: ResponseTemplate, times: usize) {
        let answers = std::iter::repeat_n(answer, times);
        self.troubles.lock().unwrap().extend(answers);
    }

    fn search(&self, request: &Request) -> Value {
        let query: std::collections::BTreeMap<_, _> =
            request.url.query_pairs().into_owned().collect();
        let border = |name: &str| query.get(name).map(|secs| secs.parse::<i64>().unwrap());
        let slack = i64::from(self.bounds == Bounds::Inclusive);
        let (after, before) = (border("after"), border("before"));
        let limit = match query["limit"].as_str() {
            "auto" => self.auto,
            number => number.parse().unwrap(),
        };
        assert!((1..=100).contains(&limit) || query["limit"] == "auto");
        let rows = self.rows.lock().unwrap();
        let mut found: Vec<(i64, &Value)> = rows
            .iter()
            .filter(|row| {
                let subreddit = row["subreddit"].as_str().unwrap();
                subreddit.eq_ignore_ascii_case(&query["subreddit"])
            })
            .map(|row| (posted_at(row), row))
            .filter(|(at, _)| after.is_none_or(|after| *at > after - slack))
            .filter(|(at, _)| before.is_none_or(|before| *at < before + slack))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        if query["sort"] == "desc" {
            found.reverse();
        }
        let found: Vec<&Value> = found.into_iter().map(|(_, row)| row).take(limit).collect();
        json!({"data": found})
    }

    /// Returns the posts with the requested ids, which the archive limits to 500.
    fn by_ids(&self, request: &Request) -> Value {
        let (_, ids) = request.url.query_pairs().next().unwrap();
        let ids: Vec<&str> = ids.split(',').collect();
        assert!(ids.len() <= 500);
        let rows = self.rows.lock().unwrap();
        let found = rows.iter();
        let found: Vec<&Value> = found
            .filter(|row| ids.contains(&row["id"].as_str().unwrap()))
            .collect();
        json!({"data": found})
    }
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
        let answer = match request.url.path() {
            "/api/posts/search" => self.0.search(request),
            "/api/posts/ids" => self.0.by_ids(request),
            _ => return ResponseTemplate::new(404),
        };
        ResponseTemplate::new(200).set_body_json(answer)
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
            rows: Mutex::default(),
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

    /// Returns the query of each request: subreddit, order, bound minus [`START`], and limit.
    pub async fn requested_pages(&self) -> Vec<String> {
        let requests = self.server.received_requests().await.unwrap();
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
        self.server.received_requests().await.unwrap().len()
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
        "retrieved_on": START + secs + 20, "_meta": {"retrieved_2nd_on": START + secs + 130_000},
    })
}

/// Returns the post of [`row`] with these fields added or replaced.
pub fn row_with(id: &str, secs: i64, fields: &Value) -> Value {
    let mut row = row(id, secs);
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
