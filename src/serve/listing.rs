//! What somebody asks for of the list of posts, from the words of an address to a page of posts.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use chrono::{DateTime, NaiveDate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The words of an address; an empty one is as good as none.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Asked {
    pub q: Option<String>,
    pub outcome: Option<String>,
    pub label: Option<String>,
    pub topic: Option<String>,
    pub subreddit: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    pub min_score: Option<String>,
    pub sort: Option<String>,
    pub after: Option<String>,
    pub limit: Option<String>,
}

impl Asked {
    /// Those that say something, by their names, but for where the page begins.
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("q", &self.q),
            ("outcome", &self.outcome),
            ("label", &self.label),
            ("topic", &self.topic),
            ("subreddit", &self.subreddit),
            ("since", &self.since),
            ("until", &self.until),
            ("min_score", &self.min_score),
            ("sort", &self.sort),
            ("limit", &self.limit),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, given(value)?)))
            .collect()
    }

    /// The address of the page behind this one.
    pub fn address(&self, path: &str, after: Option<&str>) -> String {
        address(
            path,
            self.pairs()
                .into_iter()
                .chain(after.map(|after| ("after", after))),
        )
    }
}

/// A path with words behind it, as an address has them.
pub fn address<'a>(path: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut url = reqwest::Url::parse("http://localhost").expect("the address is well formed");
    url.set_path(path);
    let pairs: Vec<_> = pairs.collect();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let query = url.query().map(|query| format!("?{query}"));
    format!("{}{}", url.path(), query.unwrap_or_default())
}

/// What stands behind the `?` of an address. Of a word that stands there twice the last one counts.
pub struct Words<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Words<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // Into a map first: a struct would refuse a word that stands there twice.
        let words = Query::<HashMap<String, String>>::try_from_uri(&parts.uri);
        let words = words.map_or_else(|_| HashMap::new(), |Query(words)| words);
        let words = words
            .into_iter()
            .map(|(name, word)| (name, Value::from(word)));
        let asked = serde_json::from_value(Value::Object(words.collect()));
        Ok(Self(asked.expect("every word is an optional text")))
    }
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
    let search = given(&asked.q).map(str::to_owned);
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
    let after = match given(&asked.after) {
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

/// What a word says, if it says anything.
#[expect(
    clippy::ref_option,
    reason = "a field of what was asked, as it stands there"
)]
pub fn given(word: &Option<String>) -> Option<&str> {
    word.as_deref()
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

fn filter(asked: &Asked) -> Result<Filter, String> {
    let owned = |word: &Option<String>| given(word).map(str::to_owned);
    let outcome = match (given(&asked.outcome), given(&asked.label)) {
        // No post has two outcomes, and none an empty one.
        (Some(outcome), Some(label)) if outcome != label && outcome != "labelled" => Some(""),
        (outcome, label) => label.or(outcome),
    };
    let outcome = outcome.map(str::to_owned);
    let subreddit = given(&asked.subreddit).map(|name| {
        let name = name.trim_start_matches('/');
        name.strip_prefix("r/").unwrap_or(name).to_owned()
    });
    let since = given(&asked.since)
        .map(|text| moment("since", text, 0))
        .transpose()?;
    let until = given(&asked.until)
        .map(|text| moment("until", text, 1))
        .transpose()?;
    let min_score = match given(&asked.min_score) {
        None => None,
        Some(text) => Some(score(text)?),
    };
    Ok(Filter {
        outcome,
        topic: owned(&asked.topic),
        subreddit,
        since,
        until,
        min_score,
        sort: sort(asked)?,
    })
}

/// The order that is asked for.
pub fn sort(asked: &Asked) -> Result<Sort, String> {
    let Some(word) = given(&asked.sort) else {
        return Ok(Sort::default());
    };
    let found = Sort::ALL.iter().find(|(_, known, _)| *known == word);
    found.map(|(sort, ..)| *sort).ok_or_else(|| {
        let known: Vec<&str> = Sort::ALL.iter().map(|(_, word, _)| *word).collect();
        format!("`sort={}` is none of {}", head(word), known.join(", "))
    })
}

fn limit(asked: &Asked) -> Result<usize, String> {
    let Some(text) = given(&asked.limit) else {
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
