//! Tests the outcome of exchanges with Reddit, written for this test and replayed to the client.
//!
//! `cargo run -p topicmill-sources --example replay FILE` does the same with recorded exchanges.

use serde_json::Value;

use crate::support::engine::repository;
use crate::support::replay::{Exchange, replay};

#[tokio::test]
async fn every_exchange_has_its_expected_outcome() {
    let path = repository("tests/it/fixtures/exchanges.ndjson");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.lines().count() > 25);
    for line in text.lines() {
        let exchange: Exchange = serde_json::from_str(line).unwrap();
        let what = format!("{} {} {}", exchange.method, exchange.url, exchange.status);
        let expected: Value = serde_json::from_str(line).unwrap();
        assert_eq!(replay(exchange).await, expected["outcome"], "{what}");
    }
}
