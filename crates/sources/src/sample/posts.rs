//! Loads the sample Reddit's posts from the adjacent files, in the wire format of Reddit's API.

use serde::Deserialize;
use serde_json::{Value, json};

use topicmill_core::Timestamp;
use topicmill_core::reddit::post_text;

/// Subreddits and their posts. The order determines the ids: append, never insert.
const FILES: [(&str, &str); 16] = [
    ("climate", include_str!("climate.ndjson")),
    ("technology", include_str!("technology.ndjson")),
    ("nba", include_str!("sports.ndjson")),
    ("personalfinance", include_str!("finance.ndjson")),
    ("Health", include_str!("health.ndjson")),
    ("Teachers", include_str!("education.ndjson")),
    ("gaming", include_str!("gaming.ndjson")),
    ("politics", include_str!("politics.ndjson")),
    ("science", include_str!("science.ndjson")),
    ("movies", include_str!("movies.ndjson")),
    ("Music", include_str!("music.ndjson")),
    ("books", include_str!("books.ndjson")),
    ("food", include_str!("food.ndjson")),
    ("travel", include_str!("travel.ndjson")),
    ("relationships", include_str!("relationships.ndjson")),
    ("history", include_str!("history.ndjson")),
];

/// The first id, of seven characters (`rk…`), as on Reddit today.
const FIRST_ID: u64 = 60_000_000_000;

/// Ids per file: the first half for its lines, the second half for the parents of its crossposts.
const IDS_PER_FILE: u64 = 10_000;

/// A post in the wire format, with the sort keys for listings.
#[derive(Debug)]
pub(super) struct Entry {
    pub wire: Value,
    pub name: String,
    pub score: i64,
    pub created: i64,
    age_minutes: i64,
    pub stickied: bool,
}

/// A line in a file in `sample/`.
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
    crosspost_of: Option<Parent>,
}

/// The post that a crosspost shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parent {
    subreddit: String,
    title: String,
    #[serde(default)]
    selftext: String,
    author: String,
}

impl Entry {
    pub fn votes_per_hour(&self) -> i64 {
        self.score * 60 / self.age_minutes.max(1)
    }

    /// Returns the rank from Reddit's published formula: ten times the votes count as much as being 12.5 hours newer.
    #[expect(clippy::cast_precision_loss, reason = "an order, not a sum")]
    pub fn hotness(&self) -> f64 {
        (self.score.max(1) as f64).log10() + self.created as f64 / 45_000.0
    }
}

/// Returns the text of every post.
pub fn texts() -> Vec<String> {
    let lines = FILES.iter().flat_map(|(_, text)| text.lines());
    let text = |line| {
        let line: Line = serde_json::from_str(line).expect("a test reads every line of the sample");
        post_text(&line.title, &line.selftext)
    };
    lines.map(text).collect()
}

/// Returns all subreddits with their posts. At `now`, each post has the age that its line states.
pub(super) fn load(now: Timestamp) -> Vec<(&'static str, Vec<Entry>)> {
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
        "author": line.author,
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
        "removed_by_category": null,
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
    use crate::post::decode_post;
    use topicmill_core::SourceKind;

    fn now() -> Timestamp {
        Timestamp::from_epoch_secs(1_790_000_000).unwrap()
    }

    #[test]
    fn every_line_is_a_post_with_a_unique_id() {
        let mut seen = HashSet::new();
        for (subreddit, entries) in load(now()) {
            assert_eq!(entries.len(), 32, "r/{subreddit}");
            for entry in entries {
                let fields = serde_json::from_value(entry.wire).unwrap();
                let post = decode_post(fields, SourceKind::Sample, None).unwrap();
                assert_eq!(post.subreddit, subreddit);
                assert!(post.created_at <= now());
                assert!(seen.insert(post.fullname));
            }
        }
    }
}
