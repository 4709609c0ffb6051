//! Of every post what lists are filtered and sorted by, in columns: 46 bytes a post.
//!
//! A list is chosen by one walk over the columns, whatever is asked for: 1,000,000 posts take some milliseconds, so that no
//! combination of filters needs an index of the database, and the count of what passes is exact.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::domain::TextHash;

/// Digits of an id that fit into a key: 36^12 is less than 2^63.
const DIGITS: usize = 12;
/// The number of a text that is not there.
const NONE: u32 = u32::MAX;
/// No votes are known.
const NO_VOTES: i32 = i32::MIN;
/// Retention took the text.
const NO_TEXT: u64 = 0;

/// Numbers for texts that come often.
#[derive(Debug, Default)]
pub struct Names {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("posts are fewer than 2^32");
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// All of them.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// The newest first.
    #[default]
    Newest,
    /// The highest scores first.
    Surest,
    /// The smallest margins first.
    Closest,
    /// The highest scores on Reddit first.
    Reddit,
}

impl Sort {
    /// All, with the words that addresses have for them, and those that people read.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Newest, "newest", "newest"),
        (Self::Surest, "surest", "surest label"),
        (Self::Closest, "closest", "closest call"),
        (Self::Reddit, "reddit_score", "Reddit score"),
    ];
}

/// Which posts a list has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// A slug, `other`, `unsure`, `unlabelled` or `labelled`.
    pub outcome: Option<String>,
    /// The topic that posts were collected for.
    pub topic: Option<String>,
    /// Where they were posted, in any case of letters.
    pub subreddit: Option<String>,
    /// Posted at this second of 1970 or later.
    pub since: Option<i64>,
    /// Posted before this second.
    pub until: Option<i64>,
    /// The best score is this or higher.
    pub min_score: Option<f32>,
    /// How they are sorted.
    pub sort: Sort,
}

/// A post as it comes out of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlined<'p> {
    pub fullname: &'p str,
    /// The second of 1970 at which it was posted.
    pub created: i64,
    pub subreddit: &'p str,
    pub topic: Option<&'p str>,
    pub reddit_score: Option<i64>,
    /// The first half of the hash of its text; 0 where retention took the text.
    pub text: u64,
    pub label: Option<OutlinedLabel<'p>>,
}

/// Its label for this text.
#[derive(Debug, Clone, PartialEq)]
pub struct OutlinedLabel<'p> {
    /// A slug, `other` or `unsure`.
    pub outcome: &'p str,
    pub score: f64,
    pub margin: f64,
}

/// A place in a sorted list: what it is sorted by, and the key of the post.
pub type Place = (i64, i64);

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chosen {
    /// Keys, in order.
    pub keys: Vec<Place>,
    /// Whether there are more behind them.
    pub more: bool,
    /// All that pass.
    pub total: u64,
}

/// The columns.
#[derive(Debug, Default)]
pub struct Columns {
    keys: Vec<i64>,
    created: Vec<i64>,
    subreddit: Vec<u32>,
    topic: Vec<u32>,
    outcome: Vec<u32>,
    score: Vec<f32>,
    margin: Vec<f32>,
    votes: Vec<i32>,
    text: Vec<u64>,
    /// How many of them there are.
    texts: usize,
    /// Names that are no numbers of twelve digits.
    odd: HashMap<i64, String>,
    /// Subreddits.
    pub subreddits: Names,
    /// Topics.
    pub topics: Names,
    /// Outcomes.
    pub outcomes: Names,
}

impl Columns {
    /// Adds a post.
    pub fn add(&mut self, post: &Outlined<'_>) {
        let key = self.key_for(post.fullname);
        self.keys.push(key);
        self.created.push(post.created);
        self.subreddit.push(self.subreddits.number(post.subreddit));
        let topic = post.topic.map_or(NONE, |topic| self.topics.number(topic));
        self.topic.push(topic);
        let votes = post.reddit_score.map(|votes| {
            // The lowest number of all stands for no votes.
            i32::try_from(votes).unwrap_or(if votes < 0 { i32::MIN + 1 } else { i32::MAX })
        });
        self.votes.push(votes.unwrap_or(NO_VOTES));
        self.text.push(post.text);
        self.texts += usize::from(post.text != NO_TEXT);
        let (outcome, score, margin) = match &post.label {
            None => (NONE, 0.0, 0.0),
            Some(label) => {
                let outcome = self.outcomes.number(label.outcome);
                (outcome, label.score, label.margin)
            }
        };
        self.outcome.push(outcome);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "seven digits are enough to sort by"
        )]
        {
            self.score.push(score as f32);
            self.margin.push(margin as f32);
        }
    }

    /// Puts the posts into the order of their keys, after the last ones were added.
    pub fn sort(&mut self) {
        // Posts may come in this order anyway; then nothing has to be moved.
        if self.keys.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_unstable_by_key(|at| self.keys[*at]);
        reorder(&mut self.keys, &order);
        reorder(&mut self.created, &order);
        reorder(&mut self.subreddit, &order);
        reorder(&mut self.topic, &order);
        reorder(&mut self.outcome, &order);
        reorder(&mut self.score, &order);
        reorder(&mut self.margin, &order);
        reorder(&mut self.votes, &order);
        reorder(&mut self.text, &order);
    }

    fn key_for(&mut self, fullname: &str) -> i64 {
        if let Some(key) = key(fullname) {
            return key;
        }
        // No post on Reddit has such a name, but a file may. Keys below zero are not taken by others.
        let hash = TextHash::of(fullname);
        let half = hash.as_bytes().first_chunk().expect("it has 16 bytes");
        let mut key = i64::from_be_bytes(*half) | i64::MIN;
        while self.odd.contains_key(&key) {
            key = key.wrapping_add(1) | i64::MIN;
        }
        self.odd.insert(key, fullname.to_owned());
        key
    }

    /// The name of a post by its key.
    pub fn fullname(&self, key: i64) -> String {
        match self.odd.get(&key) {
            Some(name) => name.clone(),
            None => name(key),
        }
    }

    /// The key of a post that is there under this name.
    pub fn key(&self, fullname: &str) -> Option<i64> {
        let odd = || self.odd.iter().find(|(_, name)| *name == fullname);
        key(fullname).or_else(|| odd().map(|(key, _)| *key))
    }

    /// How many posts there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many posts have a text.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// Keys of up to `most` posts that have a text, with the halves of its hash, from the newest post on.
    pub fn newest_texts(&self, most: usize) -> Vec<(i64, u64)> {
        let places = self.created.iter().zip(&self.keys).zip(&self.text);
        let mut places: Vec<(i64, i64, u64)> = places
            .filter(|(_, text)| **text != NO_TEXT)
            .map(|((created, key), text)| (*created, *key, *text))
            .collect();
        places.sort_unstable_by_key(|place| Reverse(*place));
        places.truncate(most);
        let texts = places.into_iter();
        texts.map(|(_, key, text)| (key, text)).collect()
    }

    /// How many posts each outcome has; those without a label come under `unlabelled`.
    pub fn count_outcomes(&self) -> Vec<(String, u64)> {
        let mut counts = vec![0_u64; self.outcomes.texts().len() + 1];
        let last = counts.len() - 1;
        for outcome in &self.outcome {
            counts[(*outcome as usize).min(last)] += 1;
        }
        let names = self.outcomes.texts().iter().cloned();
        names.chain(["unlabelled".to_owned()]).zip(counts).collect()
    }

    /// The times of the first and of the last post.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.created.iter().min(), self.created.iter().max());
        first.copied().zip(last.copied())
    }

    /// A page of up to `limit` posts behind `after`, of those that pass and, if that is given, whose keys are `among` these,
    /// which are sorted.
    pub fn choose(
        &self,
        filter: &Filter,
        among: Option<&[i64]>,
        after: Option<Place>,
        limit: usize,
    ) -> Chosen {
        let Some(passes) = Passes::new(self, filter) else {
            return Chosen::default();
        };
        let mut best = Best::new(limit, after);
        let mut look = |at: usize| {
            if passes.is_at(self, at) {
                best.offer((self.rank(filter.sort, at), self.keys[at]));
            }
        };
        match among {
            // The newest posts have the highest keys, as a rule: what comes first is offered first.
            None => (0..self.keys.len()).rev().for_each(look),
            Some(among) => {
                let mut from = 0;
                for key in among {
                    from += gallop(&self.keys[from..], *key);
                    match self.keys.get(from) {
                        None => break,
                        Some(found) if found == key => look(from),
                        // It was purged since it was searched.
                        Some(_) => {}
                    }
                }
            }
        }
        best.chosen()
    }

    /// What a post is sorted by, the largest first.
    fn rank(&self, sort: Sort, at: usize) -> i64 {
        match sort {
            Sort::Newest => self.created[at],
            // The bits of floats that are not negative are in the order of their values.
            Sort::Surest => i64::from(self.score[at].max(0.0).to_bits()),
            Sort::Closest => -i64::from(self.margin[at].max(0.0).to_bits()),
            Sort::Reddit => i64::from(self.votes[at]),
        }
    }
}

fn reorder<T: Copy>(column: &mut Vec<T>, order: &[usize]) {
    *column = order.iter().map(|at| column[*at]).collect();
}

/// How many numbers of a sorted list are smaller than one that is not far from its beginning.
fn gallop(sorted: &[i64], wanted: i64) -> usize {
    let mut step = 1;
    while step < sorted.len() && sorted[step] < wanted {
        step *= 2;
    }
    let (from, to) = (step / 2, sorted.len().min(step + 1));
    from + sorted[from..to].partition_point(|key| *key < wanted)
}

/// The first places behind one, of those that are offered.
struct Best {
    heap: BinaryHeap<Reverse<Place>>,
    limit: usize,
    after: Option<Place>,
    total: u64,
}

impl Best {
    fn new(limit: usize, after: Option<Place>) -> Self {
        Self {
            // One more than asked for says that there are more.
            heap: BinaryHeap::with_capacity(limit + 1),
            limit,
            after,
            total: 0,
        }
    }

    fn offer(&mut self, place: Place) {
        self.total += 1;
        // By its place and not by how many posts come before it: new posts do not shift the pages behind.
        if self.after.is_some_and(|after| place >= after) {
            return;
        }
        if self.heap.len() <= self.limit {
            return self.heap.push(Reverse(place));
        }
        if let Some(mut worst) = self.heap.peek_mut()
            && place > worst.0
        {
            *worst = Reverse(place);
        }
    }

    fn chosen(self) -> Chosen {
        let mut keys: Vec<Place> = self.heap.into_iter().map(|place| place.0).collect();
        keys.sort_unstable_by_key(|place| Reverse(*place));
        let more = keys.len() > self.limit;
        keys.truncate(self.limit);
        Chosen {
            keys,
            more,
            total: self.total,
        }
    }
}

/// A filter in numbers.
struct Passes {
    outcomes: Option<Vec<bool>>,
    topic: Option<u32>,
    subreddits: Option<Vec<bool>>,
    since: i64,
    until: i64,
    min_score: Option<f32>,
    sort: Sort,
}

impl Passes {
    /// `None` where nothing can pass.
    fn new(columns: &Columns, filter: &Filter) -> Option<Self> {
        let outcomes = filter.outcome.as_deref().map(|wanted| {
            let texts = columns.outcomes.texts().iter();
            let mut those: Vec<bool> = texts
                .map(|text| match wanted {
                    "labelled" => text != "other" && text != "unsure",
                    wanted => text == wanted,
                })
                .collect();
            those.push(wanted == "unlabelled");
            those
        });
        let topic = match filter.topic.as_deref() {
            None => None,
            Some(topic) => Some(*columns.topics.numbers.get(topic)?),
        };
        let subreddits = filter.subreddit.as_deref().map(|wanted| {
            let texts = columns.subreddits.texts().iter();
            texts
                .map(|text| text.eq_ignore_ascii_case(wanted))
                .collect()
        });
        Some(Self {
            outcomes,
            topic,
            subreddits,
            since: filter.since.unwrap_or(i64::MIN),
            until: filter.until.unwrap_or(i64::MAX),
            min_score: filter.min_score,
            sort: filter.sort,
        })
    }

    fn is_at(&self, columns: &Columns, at: usize) -> bool {
        let outcome = columns.outcome[at];
        if let Some(those) = &self.outcomes
            && !those[(outcome as usize).min(those.len() - 1)]
        {
            return false;
        }
        if self.topic.is_some_and(|topic| topic != columns.topic[at]) {
            return false;
        }
        if let Some(those) = &self.subreddits
            && !those[columns.subreddit[at] as usize]
        {
            return false;
        }
        let created = columns.created[at];
        if created < self.since || created >= self.until {
            return false;
        }
        let has_label = outcome != NONE;
        if let Some(least) = self.min_score
            && !(has_label && columns.score[at] >= least)
        {
            return false;
        }
        match self.sort {
            Sort::Newest => true,
            Sort::Surest | Sort::Closest => has_label,
            Sort::Reddit => columns.votes[at] != NO_VOTES,
        }
    }
}

/// The number that an id is.
fn key(fullname: &str) -> Option<i64> {
    let id = fullname.strip_prefix("t3_")?;
    let is_plain = (1..=DIGITS).contains(&id.len())
        // `t3_01` and `t3_1` would be one number, and upper case another spelling of it.
        && !id.starts_with('0')
        && !id.bytes().any(|byte| byte.is_ascii_uppercase());
    if !is_plain || id.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(id, 36).ok()
}

/// The id that a number is.
fn name(key: i64) -> String {
    let mut rest = key.unsigned_abs();
    let mut digits = Vec::with_capacity(DIGITS);
    while rest > 0 {
        let digit = u32::try_from(rest % 36).expect("less than 36");
        digits.push(char::from_digit(digit, 36).expect("less than 36"));
        rest /= 36;
    }
    let id: String = digits.into_iter().rev().collect();
    format!("t3_{id}")
}

#[cfg(test)]
mod tests;
