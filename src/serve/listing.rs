//! What somebody asks for of the list of posts, from the words of an address to a page of posts.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use chrono::{DateTime, NaiveDate};
use serde::Serialize;

use super::Serving;
use super::index::{Filter, Place, Sort, has_words, key};
use super::pages::Failed;
use crate::store::StoreError;
use crate::store::browsed::ListedPost;

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
pub struct Asked(HashMap<String, String>);

impl Asked {
    /// What a word says, if it says anything.
    pub fn get(&self, name: &str) -> Option<&str> {
        let word = self.0.get(name)?.trim();
        Some(word).filter(|word| !word.is_empty())
    }

    /// The same; empty where it says nothing.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Those of a list that say something.
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

impl<S: Sync> FromRequestParts<S> for Asked {
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
    let mut url = reqwest::Url::parse("http://localhost").expect("the address is well formed");
    url.set_path(path);
    let pairs: Vec<_> = pairs.collect();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let query = url.query().map(|query| format!("?{query}"));
    format!("{}{}", url.path(), query.unwrap_or_default())
}

/// A page of posts.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// All posts that pass the filters.
    pub total: u64,
    /// Whether a search matched more posts than are counted; the newest ones count.
    pub total_is_cut: bool,
    /// The posts, in order.
    pub posts: Vec<ListedPost>,
    /// Where the next page begins, for `after`; none on the last page.
    pub next: Option<String>,
}

/// Reads a page.
pub async fn list(serving: &Serving, asked: &Asked) -> Result<Listed, Failed> {
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
            return Ok(Listed {
                total: 0,
                total_is_cut: false,
                posts: Vec::new(),
                next: None,
            });
        }
    }
    serving.index.ready().await?;
    let after = match asked.get("after") {
        None => None,
        Some(text) => Some(place(text).map_err(Failed::wrong)?),
    };
    let found = serving.index.find(filter, search, after, limit).await?;
    let posts = read(serving, &found.names).await?;
    let last = found.chosen.keys.last().zip(found.names.last());
    let next = last.filter(|_| found.chosen.more);
    Ok(Listed {
        total: found.chosen.total,
        total_is_cut: found.is_cut,
        posts,
        next: next.map(|((rank, _), name)| format!("{rank}.{name}")),
    })
}

/// The posts of these names in their order; those that were purged in between are left out.
async fn read(serving: &Serving, names: &[String]) -> Result<Vec<ListedPost>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let target = serving.store.current_target().await?;
    let posts = serving.store.listed(target, names).await?;
    let mut posts: HashMap<String, ListedPost> = posts
        .into_iter()
        .map(|post| (post.fullname.clone(), post))
        .collect();
    Ok(names.iter().filter_map(|name| posts.remove(name)).collect())
}

fn filter(asked: &Asked) -> Result<Filter, String> {
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
    let since = asked
        .get("since")
        .map(|text| moment("since", text, 0))
        .transpose()?;
    let until = asked
        .get("until")
        .map(|text| moment("until", text, 1))
        .transpose()?;
    let min_score = match asked.get("min_score") {
        None => None,
        Some(text) => Some(score(text)?),
    };
    Ok(Filter {
        outcome,
        topic: asked.get("topic").map(str::to_owned),
        subreddit,
        since,
        until,
        min_score,
        sort: sort(asked)?,
    })
}

/// The order that is asked for.
pub fn sort(asked: &Asked) -> Result<Sort, String> {
    let Some(word) = asked.get("sort") else {
        return Ok(Sort::default());
    };
    let found = Sort::ALL.iter().find(|(_, known, _)| *known == word);
    found.map(|(sort, ..)| *sort).ok_or_else(|| {
        let known: Vec<&str> = Sort::ALL.iter().map(|(_, word, _)| *word).collect();
        format!("`sort={}` is none of {}", head(word), known.join(", "))
    })
}

fn limit(asked: &Asked) -> Result<usize, String> {
    let Some(text) = asked.get("limit") else {
        return Ok(PAGE);
    };
    let limit: Option<usize> = text.parse().ok();
    limit
        .filter(|limit| (1..=LONGEST_PAGE).contains(limit))
        .ok_or_else(|| {
            format!(
                "`limit={}` is no number from 1 to {LONGEST_PAGE}",
                head(text)
            )
        })
}

fn score(text: &str) -> Result<f32, String> {
    let score: Option<f32> = text.parse().ok();
    score
        .filter(|score| (0.0..=1.0).contains(score))
        .ok_or_else(|| {
            format!(
                "`min_score={}` is no score: give a number from 0 to 1",
                head(text)
            )
        })
}

/// The second of 1970 that a day or a time is; `days` are added to a day.
fn moment(name: &str, text: &str, days: u64) -> Result<i64, String> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        // A day given as `until` is meant with all its hours.
        let day = day.checked_add_days(chrono::Days::new(days)).unwrap_or(day);
        let midnight = day.and_hms_opt(0, 0, 0).expect("every day has a midnight");
        return Ok(midnight.and_utc().timestamp());
    }
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.timestamp()).map_err(|_| {
        format!(
            "`{name}={}` is no day like 2026-11-20 and no time like 2026-11-20T08:00:00Z",
            head(text)
        )
    })
}

fn place(text: &str) -> Result<Place, String> {
    let place = text.split_once('.');
    let place = place.and_then(|(rank, name)| Some((rank.parse().ok()?, key(name))));
    place.ok_or_else(|| {
        format!(
            "`after={}` is no place of a list: take it from `next` of the page before",
            head(text)
        )
    })
}

/// As much of what somebody sent as an answer repeats.
pub fn head(text: &str) -> String {
    crate::look::line(text, 60)
}
