//! An in-memory copy of the columns used to filter and sort lists. It takes 48 bytes per post.
//!
//! Every list takes one scan over all posts: a few milliseconds per million. No combination of filters needs a database
//! index, and counts are exact.

mod select;

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::DateTime;
use serde_json::Value;

use super::filter::Sort;
use super::interner::{Interner, NONE};
use topicmill_core::{Fullname, TextHash};
use topicmill_store::{Part, QueryRequest, Result, Store, StoreError, part_channel};

/// The value for an unknown Reddit score.
const NO_VOTES: i32 = i32::MIN;
/// The text hash for text that retention has deleted.
const NO_TEXT: u64 = 0;

/// A post, with interned names and Unix timestamps.
#[derive(Debug)]
struct Row {
    key: i64,
    created: i64,
    /// First half of the post's text hash.
    text: u64,
    score: f32,
    margin: f32,
    votes: i32,
    subreddit: u32,
    topic: u32,
    outcome: u32,
}

impl Row {
    /// Returns the sort rank; larger ranks come first.
    fn rank(&self, sort: Sort) -> i64 {
        match sort {
            Sort::Newest => self.created,
            // The bits of non-negative floats sort like their values.
            Sort::Surest => i64::from(self.score.max(0.0).to_bits()),
            Sort::Closest => -i64::from(self.margin.max(0.0).to_bits()),
            Sort::Reddit => i64::from(self.votes),
        }
    }

    fn is_ranked(&self, sort: Sort) -> bool {
        match sort {
            Sort::Newest => true,
            Sort::Surest | Sort::Closest => self.outcome != NONE,
            Sort::Reddit => self.votes != NO_VOTES,
        }
    }
}

/// The columns of all posts.
#[derive(Debug, Default)]
pub struct Columns {
    /// The posts, ordered by key.
    rows: Vec<Row>,
    /// Fullnames that contain no base-36 number, by key.
    irregular: HashMap<i64, String>,
    pub subreddits: Interner,
    pub topics: Interner,
    pub outcomes: Interner,
}

impl Columns {
    /// Reads the columns with one statement.
    pub async fn read(store: &Store) -> Result<Self> {
        // No row has the key -1.
        let target = store.labels().current_target().await?;
        let (model, set) = target.map_or((-1, -1), |target| (target.model, target.label_set));
        let sql = format!(
            "SELECT p.fullname, p.created_at, p.subreddit, p.topic, p.reddit_score, CASE WHEN p.has_text THEN \
             p.text_hash END, CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END, c.score, \
             c.margin FROM posts p LEFT JOIN classifications c ON c.model_id = {model} AND c.label_set_id = {set} AND \
             c.fullname = p.fullname AND c.text_hash = p.text_hash"
        );
        // A fixed statement is safe to run as any database user.
        let request = QueryRequest {
            sql,
            allow_superuser: true,
            ..QueryRequest::default()
        };
        let (into, mut parts) = part_channel();
        let take = async {
            let mut columns = Self::default();
            while let Some(part) = parts.recv().await {
                if let Part::Rows(rows) = part {
                    rows.iter().try_for_each(|row| columns.add(row))?;
                }
            }
            columns.rows.sort_unstable_by_key(|row| row.key);
            Ok(columns)
        };
        let (end, columns) = futures_util::future::join(store.run_query(request, into), take).await;
        end?;
        columns
    }

    fn add(&mut self, row: &[Value]) -> Result<()> {
        let text = |at: usize| row[at].as_str();
        let fullname = text(0).unwrap_or_default();
        let created = text(1).and_then(seconds);
        let created = created.ok_or_else(|| StoreError::Corrupt {
            table: "posts",
            row: fullname.to_owned(),
            detail: "invalid time".to_owned(),
        })?;
        let key = key(fullname);
        if key < 0 {
            self.irregular.insert(key, fullname.to_owned());
        }
        let hash = text(5).and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok());
        // The lowest value is reserved for unknown scores.
        let votes = row[4]
            .as_i64()
            .map(|votes| i32::try_from(votes.max((NO_VOTES + 1).into())).unwrap_or(i32::MAX));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "seven digits suffice for sorting"
        )]
        let number = |at: usize| row[at].as_f64().unwrap_or_default() as f32;
        self.rows.push(Row {
            key,
            created,
            text: hash.unwrap_or(NO_TEXT),
            score: number(7),
            margin: number(8),
            votes: votes.unwrap_or(NO_VOTES),
            subreddit: self.subreddits.intern(text(2).unwrap_or_default()),
            topic: text(3).map_or(NONE, |topic| self.topics.intern(topic)),
            outcome: text(6).map_or(NONE, |outcome| self.outcomes.intern(outcome)),
        });
        Ok(())
    }

    /// Returns the fullname of the post with this key.
    pub fn fullname(&self, key: i64) -> Option<Fullname> {
        let irregular = self.irregular.get(&key).cloned();
        irregular.unwrap_or_else(|| name(key)).parse().ok()
    }

    /// Returns the number of posts.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of posts with text.
    pub fn texts(&self) -> usize {
        self.rows.iter().filter(|row| row.text != NO_TEXT).count()
    }

    /// Returns (key, first half of the text hash) for up to `most` posts with text, newest first.
    pub fn newest_texts(&self, most: usize) -> Vec<(i64, u64)> {
        let rows = self.rows.iter().filter(|row| row.text != NO_TEXT);
        let mut rows: Vec<&Row> = rows.collect();
        rows.sort_unstable_by_key(|row| Reverse((row.created, row.key)));
        let rows = rows.into_iter().take(most);
        rows.map(|row| (row.key, row.text)).collect()
    }

    /// Counts posts by outcome; posts that are not scored count as `unlabelled`.
    pub fn count_outcomes(&self) -> Vec<(String, u64)> {
        let mut counts = vec![0_u64; self.outcomes.texts().len() + 1];
        let last = counts.len() - 1;
        for row in &self.rows {
            counts[(row.outcome as usize).min(last)] += 1;
        }
        let names = self.outcomes.texts().iter().cloned();
        names.chain(["unlabelled".to_owned()]).zip(counts).collect()
    }

    /// Returns the Unix timestamps of the first and the last post.
    pub fn span(&self) -> Option<(i64, i64)> {
        let created = || self.rows.iter().map(|row| row.created);
        created().min().zip(created().max())
    }
}

/// Returns a fullname's base-36 id as a number. For an irregular fullname, which an imported file may contain, returns
/// a negative hash.
pub fn key(fullname: &str) -> i64 {
    let id = fullname.strip_prefix("t3_");
    let key = id.and_then(|id| i64::from_str_radix(id, 36).ok());
    // Leading zeros and upper case are irregular because they would collide with regular fullnames.
    key.filter(|key| name(*key) == fullname).unwrap_or_else(|| {
        let hash = TextHash::new(fullname);
        let half = hash.as_bytes().first_chunk().expect("a hash has 16 bytes");
        i64::from_be_bytes(*half) | i64::MIN
    })
}

fn name(key: i64) -> String {
    let mut rest = key.unsigned_abs();
    let mut digits = Vec::new();
    while rest > 0 {
        let digit = u32::try_from(rest % 36).expect("less than 36");
        digits.push(char::from_digit(digit, 36).expect("less than 36"));
        rest /= 36;
    }
    let id: String = digits.into_iter().rev().collect();
    format!("t3_{id}")
}

/// Parses a time in SQLite's or PostgreSQL's format as a Unix timestamp.
fn seconds(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text)
        // PostgreSQL prints the UTC offset as `+00`.
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irregular_fullnames_have_negative_keys() {
        for fullname in ["t3_1", "t3_z000000", "t3_zzzzzzzzzzzz"] {
            assert_eq!(name(key(fullname)), fullname);
        }
        let irregular = [
            "t3_0",
            "t3_01",
            "t3_-1",
            "t3_A",
            "t3_zzzzzzzzzzzzzzzz",
            "x",
            "",
        ];
        assert!(irregular.iter().all(|name| key(name) < 0));
    }

    #[test]
    fn times_from_both_databases_are_parsed() {
        for text in [
            "2026-11-04T07:06:32+00:00",
            "2026-11-04 07:06:32+00",
            "2026-11-04 08:06:32.5+01",
        ] {
            assert_eq!(seconds(text), Some(1_793_775_992), "{text}");
        }
        assert_eq!(seconds("yesterday"), None);
    }
}
