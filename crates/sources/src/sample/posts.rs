//! Loads the sample Reddit's posts and comments from the adjacent files, in the wire format of Reddit's API.

use serde::Deserialize;
use serde_json::{Value, json};

use topicmill_core::reddit::post_text;
use topicmill_core::{ThingKind, Timestamp};

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

/// Subreddits and the comments on their posts.
const COMMENTS: [(&str, &str); 2] = [
    ("climate", include_str!("climate-comments.ndjson")),
    ("food", include_str!("food-comments.ndjson")),
];

/// The first id, of seven characters (`rk…`), as on Reddit today.
const FIRST_ID: u64 = 60_000_000_000;

/// Ids per file: the first half for its lines, the second half for the parents of its crossposts.
const IDS_PER_FILE: u64 = 10_000;

/// A post or a comment in the wire format, with the sort keys for listings.
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

/// A line in a file of comments. Posts and comments are named by their lines, from 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommentLine {
    post: usize,
    reply_to: Option<usize>,
    body: String,
    author: String,
    score: i64,
    minutes_later: i64,
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
    /// Returns true for a post or a comment.
    pub fn is(&self, kind: ThingKind) -> bool {
        (kind == ThingKind::Comment) == self.name.starts_with("t1_")
    }

    pub fn votes_per_hour(&self) -> i64 {
        self.score * 60 / self.age_minutes.max(1)
    }

    /// Returns the rank from Reddit's published formula: ten times the votes count as much as being 12.5 hours newer.
    pub fn hotness(&self) -> f64 {
        (self.score.max(1) as f64).log10() + self.created as f64 / 45_000.0
    }
}

/// Returns the text of every post.
pub fn texts() -> Vec<String> {
    let lines = FILES.iter().flat_map(|(_, text)| text.lines());
    lines
        .map(|line| {
            let line: Line = parse(line);
            post_text(&line.title, &line.selftext)
        })
        .collect()
}

fn parse<'de, T: Deserialize<'de>>(line: &'de str) -> T {
    serde_json::from_str(line).expect("a test reads every line of the sample")
}

/// Returns all subreddits with their posts and comments. At `now`, each post has the age that its line states.
pub(super) fn load(now: Timestamp) -> Vec<(&'static str, Vec<Entry>)> {
    let mut subreddits = Vec::new();
    for (file, (subreddit, posts)) in (0..).zip(FILES) {
        let first_id = FIRST_ID + file * IDS_PER_FILE;
        let mut entries = Vec::new();
        for (id, line) in (first_id..).zip(posts.lines()) {
            entries.push(entry(subreddit, id, &parse(line), now));
        }
        if let Some((_, comments)) = COMMENTS.iter().find(|(name, _)| *name == subreddit) {
            for (id, line) in (first_id..).zip(comments.lines()) {
                entries.push(reply(&entries, first_id, id, &parse(line)));
            }
        }
        subreddits.push((subreddit, entries));
    }
    subreddits
}

fn entry(subreddit: &str, id: u64, line: &Line, now: Timestamp) -> Entry {
    let created = now.as_datetime().timestamp() - line.age_minutes * 60;
    let permalink = permalink(subreddit, id, &line.title);
    let parent = line.crosspost_of.as_ref();
    let parent = parent.map(|parent| parent_wire(parent, id + IDS_PER_FILE / 2, created));
    let is_self = line.url.is_none() && parent.is_none();
    let url = match (&line.url, &parent) {
        (Some(url), _) => url.clone(),
        (None, Some(parent)) => permalink_of(parent).to_owned(),
        (None, None) => format!("https://www.reddit.com{permalink}"),
    };
    let name = format!("t3_{}", base36(id));
    let mut wire = json!({
        "name": name, "id": base36(id), "subreddit": subreddit, "title": line.title, "selftext": line.selftext,
        "author": line.author, "permalink": permalink, "url": url, "is_self": is_self, "score": line.score,
        "upvote_ratio": line.upvote_ratio, "num_comments": line.num_comments, "link_flair_text": line.flair,
        "over_18": line.over_18, "stickied": line.stickied, "removed_by_category": null,
        "created_utc": created as f64,
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
        "name": format!("t3_{}", base36(id)), "id": base36(id), "subreddit": parent.subreddit, "title": parent.title,
        "selftext": parent.selftext, "author": parent.author,
        "permalink": permalink(&parent.subreddit, id, &parent.title), "is_self": true, "created_utc": created - 3600,
    })
}

/// Returns a comment on one of the subreddit's posts; `first_id` is the id of the first comment.
fn reply(posts: &[Entry], first_id: u64, id: u64, line: &CommentLine) -> Entry {
    let post = &posts[line.post - 1];
    let name = format!("t1_{}", base36(id));
    let parent = line.reply_to.map(|line| first_id + line as u64 - 1);
    let parent = parent.map_or_else(|| post.name.clone(), |id| format!("t1_{}", base36(id)));
    let created = post.created + line.minutes_later * 60;
    let wire = json!({
        "name": name, "id": base36(id), "subreddit": post.wire["subreddit"], "link_id": post.name, "parent_id": parent,
        "body": line.body, "author": line.author, "is_submitter": line.author == post.wire["author"],
        "permalink": format!("{}{}/", permalink_of(&post.wire), base36(id)),
        "score": line.score, "created_utc": created, "replies": "",
    });
    Entry {
        wire,
        name,
        score: line.score,
        created,
        age_minutes: post.age_minutes - line.minutes_later,
        stickied: false,
    }
}

fn permalink(subreddit: &str, id: u64, title: &str) -> String {
    let title = title.to_lowercase();
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let slug: String = words.join("_").chars().take(50).collect();
    format!("/r/{subreddit}/comments/{}/{slug}/", base36(id))
}

fn permalink_of(wire: &Value) -> &str {
    let permalink = wire["permalink"].as_str();
    permalink.expect("each post of the sample has one")
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
    fn every_line_is_a_thing_with_a_unique_id() {
        let mut seen = HashSet::new();
        for (subreddit, entries) in load(now()) {
            let comments = if ["climate", "food"].contains(&subreddit) {
                20
            } else {
                0
            };
            assert_eq!(entries.len(), 32 + comments, "r/{subreddit}");
            for entry in entries {
                let fields = serde_json::from_value(entry.wire).unwrap();
                let post = decode_post(fields, SourceKind::Sample, None).unwrap();
                assert_eq!(post.subreddit, subreddit);
                assert!(post.created_at <= now());
                assert!(
                    post.reply
                        .parent
                        .is_none_or(|parent| seen.contains(&parent))
                );
                assert!(seen.insert(post.fullname));
            }
        }
    }
}
