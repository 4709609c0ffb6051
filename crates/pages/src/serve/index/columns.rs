//! The columns that lists are filtered and sorted by, for all posts, in memory: 48 bytes per post.
//!
//! Every list is one scan over all posts, which takes a few milliseconds per million. No combination of filters needs a
//! database index, and counts are exact.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use chrono::DateTime;
use serde_json::Value;

use topicmill_core::{Fullname, TextHash};
use topicmill_store::{Part, QueryRequest, Result, Store, StoreError, part_channel};

/// The number of a missing text.
const NONE: u32 = u32::MAX;
/// The value for an unknown Reddit score.
const NO_VOTES: i32 = i32::MIN;
/// The value for a text that retention purged.
const NO_TEXT: u64 = 0;

/// An interner: maps repeated texts to numbers.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Interner {
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("posts are fewer than 2^32");
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the texts, by number.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns for each number if its text matches; the last element is for [`NONE`].
    fn matching(&self, is_wanted: impl Fn(Option<&str>) -> bool) -> Vec<bool> {
        let texts = self.texts.iter().map(|text| Some(text.as_str()));
        texts.chain([None]).map(is_wanted).collect()
    }
}

fn is_among(number: u32, wanted: Option<&[bool]>) -> bool {
    wanted.is_none_or(|wanted| wanted[(number as usize).min(wanted.len() - 1)])
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Newest first.
    #[default]
    Newest,
    /// Highest score of the best label first.
    Surest,
    /// Smallest margin between the two best labels first.
    Closest,
    /// Highest Reddit score first.
    Reddit,
}

impl Sort {
    /// All orders, each with its URL value and display name.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Newest, "newest", "newest"),
        (Self::Surest, "surest", "highest label score"),
        (Self::Closest, "closest", "closest call"),
        (Self::Reddit, "reddit_score", "Reddit score"),
    ];
}

/// Filters and order of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowFilter {
    /// A slug, `other`, `unsure`, `unlabelled` or `labelled`.
    pub outcome: Option<String>,
    /// Slug of the topic.
    pub topic: Option<String>,
    /// Name of the subreddit, in any case.
    pub subreddit: Option<String>,
    /// Earliest Unix timestamp, inclusive.
    pub since: Option<i64>,
    /// Latest Unix timestamp, exclusive.
    pub until: Option<i64>,
    /// Lowest score of the best label.
    pub min_score: Option<f32>,
    /// Order of the list.
    pub sort: Sort,
}

/// A position in a sorted list: (sort rank, key of the post).
pub type RowPosition = (i64, i64);

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SelectedRows {
    /// Positions of the posts on the page.
    pub keys: Vec<RowPosition>,
    /// True if there are more pages.
    pub more: bool,
    /// Number of posts that match the filter.
    pub total: u64,
}

/// A post, with interned names and Unix timestamps.
#[derive(Debug)]
struct Row {
    key: i64,
    created: i64,
    /// First half of its text hash.
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
    /// Fullnames without a base-36 number, by key.
    irregular: HashMap<i64, String>,
    pub subreddits: Interner,
    pub topics: Interner,
    pub outcomes: Interner,
}

impl Columns {
    /// Reads the columns with one statement.
    pub async fn read(store: &Store) -> Result<Self> {
        // Keys of -1 match no row.
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
        let (asked, columns) =
            futures_util::future::join(store.run_query(request, into), take).await;
        asked?;
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

    /// Returns the fullname of a post by its key.
    pub fn fullname(&self, key: i64) -> Option<Fullname> {
        let irregular = self.irregular.get(&key).cloned();
        irregular.unwrap_or_else(|| name(key)).parse().ok()
    }

    /// Returns the number of posts.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of posts with a text.
    pub fn texts(&self) -> usize {
        self.rows.iter().filter(|row| row.text != NO_TEXT).count()
    }

    /// Returns (key, first half of the text hash) of up to `most` posts with a text, newest first.
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

    /// Selects a page of up to `limit` posts after the position `after` that match the filter and, if given, have keys
    /// in `among`.
    pub fn select(
        &self,
        filter: &RowFilter,
        among: Option<&[i64]>,
        after: Option<RowPosition>,
        limit: usize,
    ) -> SelectedRows {
        let RowFilter { sort, .. } = *filter;
        let outcomes = filter.outcome.as_deref().map(|wanted| {
            self.outcomes.matching(|outcome| match outcome {
                None => wanted == "unlabelled",
                Some(label) if wanted == "labelled" => label != "other" && label != "unsure",
                outcome => outcome == Some(wanted),
            })
        });
        let topics = filter.topic.as_deref();
        let topics = topics.map(|wanted| self.topics.matching(|topic| topic == Some(wanted)));
        let subreddits = filter.subreddit.as_deref().map(|wanted| {
            let is_wanted = |name: &str| name.eq_ignore_ascii_case(wanted);
            self.subreddits.matching(|name| name.is_some_and(is_wanted))
        });
        let since = filter.since.unwrap_or(i64::MIN);
        let until = filter.until.unwrap_or(i64::MAX);
        let passes = |row: &Row| {
            is_among(row.outcome, outcomes.as_deref())
                && is_among(row.topic, topics.as_deref())
                && is_among(row.subreddit, subreddits.as_deref())
                && (since..until).contains(&row.created)
                && filter
                    .min_score
                    .is_none_or(|least| row.outcome != NONE && row.score >= least)
                && row.is_ranked(sort)
        };
        // One more than the limit, to detect further pages.
        let mut best: BinaryHeap<Reverse<RowPosition>> = BinaryHeap::with_capacity(limit + 2);
        let mut total = 0;
        let consider = |row: &Row| {
            if !passes(row) {
                return;
            }
            total += 1;
            let place = (row.rank(sort), row.key);
            // Paging by position instead of offset, so that new posts do not shift later pages.
            let is_shown = after.is_some_and(|after| place >= after);
            let is_worse = best.len() > limit && best.peek() < Some(&Reverse(place));
            if !is_shown && !is_worse {
                best.push(Reverse(place));
                if best.len() > limit + 1 {
                    best.pop();
                }
            }
        };
        match among {
            // Newer posts usually have higher keys, so reverse order needs fewer heap operations.
            None => self.rows.iter().rev().for_each(consider),
            Some(among) => {
                let place = |key| self.rows.binary_search_by_key(key, |row| row.key).ok();
                // A post may have been purged since the search.
                let found = among.iter().filter_map(place);
                found.map(|at| &self.rows[at]).for_each(consider);
            }
        }
        let best = best.into_sorted_vec().into_iter();
        let mut keys: Vec<RowPosition> = best.map(|place| place.0).collect();
        let more = keys.len() > limit;
        keys.truncate(limit);
        SelectedRows { keys, more, total }
    }
}

/// Returns the base-36 id of a fullname as a number. Irregular fullnames, which files may have, get a negative hash
/// instead.
pub fn key(fullname: &str) -> i64 {
    let id = fullname.strip_prefix("t3_");
    let key = id.and_then(|id| i64::from_str_radix(id, 36).ok());
    // Leading zeros and upper case are irregular, because they would collide.
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

/// Parses a time in the format of SQLite or PostgreSQL as a Unix timestamp.
fn seconds(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text)
        // PostgreSQL prints the UTC offset as `+00`.
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn columns() -> Columns {
        let mut columns = Columns::default();
        for n in 0..200_i32 {
            let of = |names: &[&str]| names[usize::try_from(n).unwrap() % names.len()].to_owned();
            let fullname = format!("t3_{}{n:03}", of(&["z", "1a", "9", "zz1"]));
            let label = of(&["games", "food", "other", "unsure", ""]);
            let label = Some(label).filter(|label| !label.is_empty());
            let score = |n: i32| label.as_ref().map(|_| f64::from(n % 100) / 100.0);
            let row = json!([
                fullname,
                format!("1970-01-01T00:{:02}:{:02}+00:00", n / 180, n / 3 % 60),
                of(&["Food", "gaming"]),
                (n % 3 == 0).then_some("games"),
                (n % 4 != 0).then_some(n - 50),
                "00000000000000070000000000000000",
                label,
                score(n),
                score(n * 7),
            ]);
            columns.add(row.as_array().unwrap()).unwrap();
        }
        columns.rows.sort_unstable_by_key(|row| row.key);
        columns
    }

    #[test]
    fn pages_cover_the_whole_list_in_every_order() {
        let columns = columns();
        for (sort, ..) in Sort::ALL {
            let filter = RowFilter {
                sort,
                subreddit: Some("food".into()),
                ..RowFilter::default()
            };
            let all = columns.select(&filter, None, None, 1_000);
            assert!(!all.more && all.total == all.keys.len() as u64 && all.total > 40);
            assert!(all.keys.is_sorted_by(|a, b| a > b), "{sort:?}");
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let page = columns.select(&filter, None, after, 7);
                assert_eq!(page.total, all.total);
                paged.extend(page.keys.iter().copied());
                after = page.keys.last().copied();
                if !page.more {
                    break;
                }
            }
            assert_eq!(paged, all.keys, "{sort:?}");
        }
    }

    #[test]
    fn filters_select_matching_posts() {
        let columns = columns();
        let total = |filter: RowFilter| columns.select(&filter, None, None, 5).total;
        for (outcome, posts) in [
            ("games", 40),
            ("labelled", 80),
            ("unlabelled", 40),
            ("unsure", 40),
            ("no such", 0),
        ] {
            let filter = RowFilter {
                outcome: Some(outcome.into()),
                ..RowFilter::default()
            };
            assert_eq!(total(filter), posts, "{outcome}");
        }
        let topic = RowFilter {
            topic: Some("games".into()),
            since: Some(10),
            until: Some(20),
            ..RowFilter::default()
        };
        assert_eq!(total(topic), 10);
        let least = RowFilter {
            min_score: Some(0.9),
            ..RowFilter::default()
        };
        assert_eq!(total(least), 16);
    }

    #[test]
    fn a_search_selects_only_matching_posts() {
        let columns = columns();
        let all = columns.select(&RowFilter::default(), None, None, 500);
        let mut some: Vec<i64> = all.keys.iter().step_by(7).map(|(_, key)| *key).collect();
        let wanted = some.len() as u64;
        // Unknown keys.
        some.extend([2, i64::MAX]);
        let found = columns.select(&RowFilter::default(), Some(&some), None, 500);
        assert_eq!(found.total, wanted);
        let kept = all.keys.into_iter().filter(|(_, key)| some.contains(key));
        assert_eq!(found.keys, kept.collect::<Vec<_>>());
    }

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
    fn times_of_both_databases_are_parsed() {
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
