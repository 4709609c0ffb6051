//! Replays recorded exchanges to the real client and prints each outcome:
//!
//! ```sh
//! cargo run -p topicmill-sources --example replay exchanges.ndjson
//! ```
//!
//! The file contains one exchange per line: a JSON object with `method`, `url`, `status`, `headers` and `body`. To read
//! a compressed file: `zcat FILE | cargo run -p topicmill-sources --example replay /dev/stdin`. Neither bodies nor
//! subreddit names are printed, so the output can be shared.
#![expect(clippy::print_stdout, reason = "an interactive program")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

#[path = "../../../tests/it/support/replay.rs"]
mod replay;

use replay::Exchange;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("pass a file of recorded exchanges, one JSON object per line")?;
    let lines = BufReader::new(std::fs::File::open(path)?).lines();
    let mut summary: BTreeMap<(u16, String), u64> = BTreeMap::new();
    for (number, line) in (1..).zip(lines) {
        let exchange: Exchange = serde_json::from_str(&line?)
            .map_err(|error| format!("line {number} is not an exchange: {error}"))?;
        let (method, status) = (exchange.method.clone(), exchange.status);
        let outcome = replay::replay(exchange).await;
        println!("{number:>4}  {method:<4}  {status}  {outcome}");
        *summary.entry((status, kind(&outcome))).or_default() += 1;
    }
    println!("\nstatus  outcome                     exchanges");
    for ((status, outcome), n) in summary {
        println!("{status:<6}  {outcome:<26}  {n:>9}");
    }
    Ok(())
}

/// Returns an outcome without its numbers.
fn kind(outcome: &str) -> String {
    let Some((ok, rest)) = outcome.split_once(": ") else {
        return outcome.to_owned();
    };
    let rest: String = rest
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect::<String>()
        .replace(", more", "");
    let posts = if outcome.contains(": 0 posts") {
        ", without posts"
    } else {
        ""
    };
    let what = match rest.trim() {
        "posts,  rejected" => "a listing".to_owned(),
        other => other.replace("  ", " "),
    };
    format!("{ok}: {what}{posts}")
}
