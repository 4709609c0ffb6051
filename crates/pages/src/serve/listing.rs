//! What somebody asks for of the list of posts, from the words of an address to a page of posts.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use chrono::{DateTime, NaiveDate};
use serde::Serialize;

use super::Serving;
use super::index::{RowFilter, RowPlace, Sort, has_words, key};
use super::pages::Failed;
use topicmill_core::Fullname;
use topicmill_store::StoreError;
use topicmill_store::browsed::ListedPost;

/// Posts of a page, if nothing else is asked for.
const PAGE: usize = 50;
/// And at most.
const LONGEST_PAGE: usize = 200;
/// Characters of a search.
const LONGEST_SEARCH: usize = 1_000;

/// The words that say what a list has, but for where its page begins.
const NAMES: [&str; 10] = [
    "q",
    "outcome",
    "label",
    "topic",
    "subreddit",
    "since",
    "until",
    "min_score",
    "sort",
    "limit",
];

/// The words behind the `?` of an address. An empty one is as good as none, and of one that is there twice the last counts.
#[derive(Debug, Clone, Default)]
pub struct Parameters(HashMap<String, String>);

impl Parameters {
    /// What a word says, if it says anything.
    pub fn get(&self, name: &str) -> Option<&str> {
        let word = self.0.get(name)?.trim();
        Some(word).filter(|word| !word.is_empty())
    }

    /// The same; empty where it says nothing.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let pair = |name: &'static str| Some((name, self.get(name)?));
        NAMES.into_iter().filter_map(pair)
    }

    /// The address of the page behind this one.
    pub fn address(&self, path: &str, after: Option<&str>) -> String {
        let after = after.map(|after| ("after", after));
        address(path, self.pairs().chain(after))
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let words = Query::try_from_uri(&parts.uri);
        Ok(Self(
            words.map_or_else(|_| HashMap::new(), |Query(words)| words),
        ))
    }
}

/// A path with words behind it, as an address has them.
pub fn address<'a>(path: &str, pairs: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let mut url = url::Url::parse("http://localhost").expect("the address is well formed");
    url.set_path(path);
    let pairs: Vec<_> = pairs.collect();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let query = url.query().map(|query| format!("?{query}"));
    format!("{}{}", url.path(), query.unwrap_or_default())
}

#[derive(Debug, Serialize)]
pub struct PostList {
    /// All posts that pass the filters.
    pub total: u64,
    /// Whether a search matched more posts than are counted; the newest ones count.
    pub total_is_cut: bool,
    pub posts: Vec<ListedPost>,
    /// Where the next page begins, for `after`; none on the last page.
    pub next: Option<String>,
}

pub async fn list(serving: &Serving, asked: &Parameters) -> Result<PostList, Failed> {
    let filter = filter(asked).map_err(Failed::wrong)?;
    let limit = limit(asked).map_err(Failed::wrong)?;
    let search = asked.get("q").map(str::to_owned);
    if let Some(search) = &search {
        if search.chars().count() > LONGEST_SEARCH {
            let said =
                format!("the search is longer than {LONGEST_SEARCH} characters; search for less");
            return Err(Failed::wrong(said));
        }
        if !has_words(search) {
            return Ok(PostList {
                total: 0,
                total_is_cut: false,
                posts: Vec::new(),
                next: None,
            });
        }
    }
    serving.index.ready().await?;
    if let Some(outcome) = &filter.outcome {
        check_outcome(serving, outcome).await?;
    }
    let wrong = "no place of a list: take it from `next` of the page before";
    let after = parsed(asked, "after", wrong, place).map_err(Failed::wrong)?;
    let found = serving.index.find(filter, search, after, limit).await?;
    let posts = read(serving, &found.names).await?;
    let last = found.chosen.keys.last().zip(found.names.last());
    let next = last.filter(|_| found.chosen.more);
    Ok(PostList {
        total: found.chosen.total,
        total_is_cut: found.is_cut,
        posts,
        next: next.map(|((rank, _), name)| format!("{rank}.{name}")),
    })
}

/// Refuses an outcome that no post can have: an empty list would look like an answer.
async fn check_outcome(serving: &Serving, outcome: &str) -> Result<(), Failed> {
    let is_stored = || {
        let columns = serving.index.columns();
        columns
            .outcomes
            .texts()
            .iter()
            .any(|known| *known == *outcome)
    };
    if ["", "labelled", "unlabelled", "other", "unsure"].contains(&outcome) || is_stored() {
        return Ok(());
    }
    let labels = serving.current_labels().await?;
    if labels.iter().any(|label| label.slug == outcome) {
        return Ok(());
    }
    let known: Vec<&str> = labels.iter().map(|label| label.slug.as_str()).collect();
    Err(Failed::wrong(format!(
        "`{}` is no outcome: there are {}, other, unsure, labelled and unlabelled",
        head(outcome),
        known.join(", ")
    )))
}

/// The posts of these names in their order; those that were purged in between are left out.
async fn read(serving: &Serving, names: &[Fullname]) -> Result<Vec<ListedPost>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let target = serving.store.labels().current_target().await?;
    let posts = serving.store.posts().listed(target, names).await?;
    let mut posts: HashMap<Fullname, ListedPost> = posts
        .into_iter()
        .map(|post| (post.fullname.clone(), post))
        .collect();
    Ok(names.iter().filter_map(|name| posts.remove(name)).collect())
}

fn filter(asked: &Parameters) -> Result<RowFilter, String> {
    let outcome = match (asked.get("outcome"), asked.get("label")) {
        // No post has two outcomes, and none an empty one.
        (Some(outcome), Some(label)) if outcome != label && outcome != "labelled" => Some(""),
        (outcome, label) => label.or(outcome),
    };
    let outcome = outcome.map(str::to_owned);
    let subreddit = asked.get("subreddit").map(|name| {
        let name = name.trim_start_matches('/');
        name.strip_prefix("r/").unwrap_or(name).to_owned()
    });
    let time = "no day like 2026-11-20 and no time like 2026-11-20T08:00:00Z";
    let least = |text: &str| {
        text.parse::<f32>()
            .ok()
            .filter(|least| (0.0..=1.0).contains(least))
    };
    Ok(RowFilter {
        outcome,
        topic: asked.get("topic").map(str::to_owned),
        subreddit,
        since: parsed(asked, "since", time, |text| moment(text, 0))?,
        // A day given as `until` is meant with all its hours.
        until: parsed(asked, "until", time, |text| moment(text, 1))?,
        min_score: parsed(
            asked,
            "min_score",
            "no score: give a number from 0 to 1",
            least,
        )?,
        sort: sort(asked)?,
    })
}

/// What a word says, or why it says nothing.
fn parsed<T>(
    asked: &Parameters,
    name: &str,
    wrong: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let parsed = asked.get(name).map(|text| {
        let wrong = || format!("`{name}={}` is {wrong}", head(text));
        parse(text).ok_or_else(wrong)
    });
    parsed.transpose()
}

pub fn sort(asked: &Parameters) -> Result<Sort, String> {
    let known: Vec<&str> = Sort::ALL.iter().map(|(_, word, _)| *word).collect();
    let find = |word: &str| {
        let found = Sort::ALL.iter().find(|(_, known, _)| *known == word);
        found.map(|(sort, ..)| *sort)
    };
    let wrong = format!("none of {}", known.join(", "));
    Ok(parsed(asked, "sort", &wrong, find)?.unwrap_or_default())
}

fn limit(asked: &Parameters) -> Result<usize, String> {
    let wrong = format!("no number from 1 to {LONGEST_PAGE}");
    let range = 1..=LONGEST_PAGE;
    let parse = |text: &str| {
        text.parse::<usize>()
            .ok()
            .filter(|limit| range.contains(limit))
    };
    Ok(parsed(asked, "limit", &wrong, parse)?.unwrap_or(PAGE))
}

/// The second of 1970 that a day or a time is; `days` are added to a day.
fn moment(text: &str, days: u64) -> Option<i64> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        let day = day.checked_add_days(chrono::Days::new(days)).unwrap_or(day);
        let midnight = day.and_hms_opt(0, 0, 0).expect("every day has a midnight");
        return Some(midnight.and_utc().timestamp());
    }
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some(time.timestamp())
}

fn place(text: &str) -> Option<RowPlace> {
    let (rank, name) = text.split_once('.')?;
    Some((rank.parse().ok()?, key(name)))
}

/// As much of what somebody sent as an answer repeats.
pub fn head(text: &str) -> String {
    crate::display::single_line(text, 60)
}
