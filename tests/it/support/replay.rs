//! Replays recorded exchanges: a loopback server sends each response, and the real client requests it.
//!
//! Input is one exchange, a JSON object with `method`, `url`, `status`, `headers` and `body`. Output is the outcome in
//! a few words, without any of the body. A test replays exchanges written for it; `cargo run -p topicmill-sources
//! --example replay FILE` replays recorded ones.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};
use topicmill_core::clock::ManualClock;
use topicmill_core::{Fullname, Listing, SourceKind};
use topicmill_http::{ClientSettings, HttpError, Timeouts};
use topicmill_sources::SourceError;
use topicmill_sources::page::ListingSource as _;
use topicmill_sources::reddit::{Reddit, RedditSettings};

/// A recorded request and its response.
#[derive(Debug, Clone, Deserialize)]
pub struct Exchange {
    pub method: String,
    pub url: String,
    pub status: u16,
    pub headers: Map<String, Value>,
    pub body: String,
}

impl Exchange {
    fn is_token(&self) -> bool {
        self.url.contains("/api/v1/access_token")
    }
}

/// Replays one exchange and returns its outcome.
pub async fn replay(exchange: Exchange) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("it was just bound");
    let exchange = Arc::new(exchange);
    let router = Router::new().fallback(answer).with_state(exchange.clone());
    let server = tokio::spawn(axum::serve(listener, router).into_future());
    let outcome = ask(&exchange, format!("http://{address}")).await;
    server.abort();
    outcome
}

async fn ask(exchange: &Exchange, url: String) -> String {
    let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
    let reddit = Reddit::new(settings(url), SourceKind::Reddit, clock.clone())
        .expect("the settings are valid");
    let outcome = if exchange.url.contains("/api/info") {
        let name: Fullname = "t3_replay".parse().expect("a fullname");
        match reddit.info(&[name]).await {
            Ok(Some(answer)) => format!("ok: states of {} posts", answer.states.len()),
            Ok(None) => "ok: unclear".to_owned(),
            Err(error) => refused(&error),
        }
    } else {
        match reddit.page("replay", Listing::Hot, 100, None).await {
            // The exchange was a request for a token; the listing requested next is empty.
            Ok(_) if exchange.is_token() => "ok: a token".to_owned(),
            Ok(page) => {
                let more = if page.after.is_some() { ", more" } else { "" };
                let (posts, rejected) = (page.posts.len(), page.rejected.len());
                format!("ok: {posts} posts, {rejected} rejected{more}")
            }
            Err(error) => refused(&error),
        }
    };
    match clock.sleeps().len() {
        0 => outcome,
        waits => format!("{outcome}, after {waits} waits"),
    }
}

/// Returns the outcome and the kind of an error, but not its text, which may name a subreddit.
fn refused(error: &SourceError) -> String {
    let kind = match error {
        SourceError::Token(error) => return refused(error),
        SourceError::Credentials(_) => "credentials",
        SourceError::Unauthorized(_) => "401 twice",
        SourceError::Refused { .. } => "refused",
        SourceError::Http(HttpError::WaitTooLong { .. }) => "put off",
        SourceError::Http(HttpError::GaveUp { .. }) => "given up",
        SourceError::Http(HttpError::TooLarge { .. }) => "too large",
        SourceError::UnexpectedShape { .. } => "no listing",
        _ => "settings",
    };
    format!("{} ({kind})", error.outcome())
}

async fn answer(State(exchange): State<Arc<Exchange>>, request: Request) -> Response {
    let for_token = request.uri().path().ends_with("/api/v1/access_token");
    if for_token != exchange.is_token() {
        let body = if for_token {
            r#"{"access_token": "replay", "expires_in": 3600, "scope": "*"}"#
        } else {
            r#"{"kind": "Listing", "data": {"after": null, "children": []}}"#
        };
        return Response::new(Body::from(body));
    }
    let mut answer = Response::new(Body::from(exchange.body.clone()));
    *answer.status_mut() = StatusCode::from_u16(exchange.status).expect("a recorded status");
    for (name, value) in &exchange.headers {
        // These headers describe the recorded bytes, not the ones sent now.
        let framing = [
            "content-length",
            "content-encoding",
            "transfer-encoding",
            "connection",
        ];
        if framing.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        let value = match value {
            Value::Array(all) => all.first().and_then(Value::as_str),
            other => other.as_str(),
        };
        let name = name.parse::<axum::http::HeaderName>();
        if let (Ok(name), Some(Ok(value))) = (name, value.map(str::parse)) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

fn settings(url: String) -> RedditSettings {
    let an_hour = Duration::from_hours(1);
    RedditSettings {
        auth_url: url.clone(),
        api_url: url,
        client_id: "replay".into(),
        client_secret: "replay".into(),
        username: String::new(),
        password: String::new(),
        client: ClientSettings {
            user_agent: "linux:topicmill:replay (by /u/replay)".into(),
            requests_per_minute: 100,
            wait_budget: an_hour,
            tries: 3,
            timeouts: Timeouts {
                connect: an_hour,
                read: an_hour,
                total: an_hour,
            },
        },
        retry_after_cap: an_hour,
        token_margin: Duration::from_mins(1),
    }
}
