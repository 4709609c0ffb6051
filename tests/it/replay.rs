//! Tests the outcome of exchanges with Reddit, each a line of a file: a request, its response, and the outcome.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use topicmill_core::{Fullname, Listing};
use topicmill_http::HttpError;
use topicmill_sources::SourceError;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::engine::repository;
use crate::support::reddit::{client_with, mount_token, page, settings};

#[derive(Deserialize)]
struct Exchange {
    method: String,
    url: String,
    status: u16,
    headers: Map<String, Value>,
    body: String,
    outcome: String,
}

/// Sends the request to a server that gives the response, and returns the outcome in a few words.
async fn replay(exchange: &Exchange) -> String {
    let is_token = exchange.url.contains("/api/v1/access_token");
    let mut answer =
        ResponseTemplate::new(exchange.status).set_body_bytes(exchange.body.as_bytes());
    for (name, value) in &exchange.headers {
        let value = value.get(0).unwrap_or(value).as_str().unwrap();
        answer = answer.insert_header(name.as_str(), value);
    }
    let server = MockServer::start().await;
    let asked = Mock::given(method(exchange.method.as_str()));
    asked.respond_with(answer).mount(&server).await;
    if is_token {
        let empty = Mock::given(method("GET"));
        empty.respond_with(page(&[])).mount(&server).await;
    } else {
        mount_token(&server, "replay", u64::MAX).await;
    }
    let mut settings = settings(&server.uri());
    settings.client.tries = 3;
    settings.client.wait_budget = Duration::from_hours(1);
    let (reddit, clock) = client_with(settings);
    let outcome = if exchange.url.contains("/api/info") {
        let name: Fullname = "t3_replay".parse().unwrap();
        match reddit.posts(&[name]).await.map(|found| found.states) {
            Ok(Some(answer)) => format!("ok: states of {} posts", answer.states.len()),
            Ok(None) => "ok: unclear".to_owned(),
            Err(error) => refused(&error),
        }
    } else {
        match reddit
            .page(
                ("replay", topicmill_core::ThingKind::Post),
                Listing::Hot,
                100,
                None,
            )
            .await
        {
            Ok(_) if is_token => "ok: a token".to_owned(),
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

#[tokio::test]
async fn every_exchange_has_its_expected_outcome() {
    let text = std::fs::read_to_string(repository("tests/it/fixtures/exchanges.ndjson")).unwrap();
    assert!(text.lines().count() > 25);
    for line in text.lines() {
        let exchange: Exchange = serde_json::from_str(line).unwrap();
        let what = format!("{} {} {}", exchange.method, exchange.url, exchange.status);
        assert_eq!(replay(&exchange).await, exchange.outcome, "{what}");
    }
}
