//! Parses query parameters and returns a page of matching posts.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use chrono::{DateTime, NaiveDate};
use serde::Serialize;

use super::Serving;
use super::index::{Facets, RowFilter, RowPosition, Sort, has_words, key};
use super::pages::PageError;
use topicmill_core::Fullname;
use topicmill_store::StoreError;
use topicmill_store::browse::PostSummary;

/// The default number of posts per page.
const PAGE: usize = 50;
/// Maximum number of posts per page.
const LONGEST_PAGE: usize = 200;
/// Maximum number of characters in a search.
const LONGEST_SEARCH: usize = 1_000;

/// The query parameters for a list, except `after`.
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

/// Query parameters. Empty parameters are ignored; if a parameter is repeated, its last value is used.
#[derive(Debug, Clone, Default)]
pub struct Parameters(HashMap<String, String>);

impl Parameters {
    /// Returns the trimmed value of a parameter if it is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let word = self.0.get(name)?.trim();
        Some(word).filter(|word| !word.is_empty())
    }

    /// Returns the value of a parameter, or an empty string.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns the parameters for the list, except `after`.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let pair = |name: &'static str| Some((name, self.get(name)?));
        NAMES.into_iter().filter_map(pair)
    }

    /// Returns the URL for the list with some parameters replaced or removed.
    pub fn changed(&self, path: &str, changes: &[(&'static str, Option<&str>)]) -> String {
        let is_kept = |name| changes.iter().all(|(other, _)| *other != name);
        let kept = self.pairs().filter(|(name, _)| is_kept(*name));
        let new = changes.iter();
        let new = new.filter_map(|(name, value)| Some((*name, (*value)?)));
        address(path, kept.chain(new))
    }

    /// Returns the URL for a page in the list; `after` is the cursor.
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

/// Builds a URL from a path and query parameters.
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

/// A page of posts.
#[derive(Debug, Serialize)]
pub struct PostList {
    /// Number of posts that match.
    pub total: u64,
    /// True if a search matched more posts than are counted; only the newest are counted.
    pub total_is_cut: bool,
    /// The posts on the page.
    pub posts: Vec<PostSummary>,
    /// Value of `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Returns the page of posts that the parameters select.
pub async fn list(serving: &Serving, parameters: &Parameters) -> Result<PostList, PageError> {
    let filter = filter(parameters).map_err(PageError::bad_request)?;
    let limit = limit(parameters).map_err(PageError::bad_request)?;
    let search = parameters.get("q").map(str::to_owned);
    if let Some(search) = &search {
        if search.chars().count() > LONGEST_SEARCH {
            let message =
                format!("the search is longer than {LONGEST_SEARCH} characters; shorten it");
            return Err(PageError::bad_request(message));
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
    let wrong = "not a valid cursor: use `next` from the previous page";
    let after = parse_parameter(parameters, "after", wrong, parse_cursor)
        .map_err(PageError::bad_request)?;
    let found = serving.index.find(filter, search, after, limit).await?;
    let posts = read(serving, &found.names).await?;
    let last = found.selected.keys.last().zip(found.names.last());
    let next = last.filter(|_| found.selected.more);
    Ok(PostList {
        total: found.selected.total,
        total_is_cut: found.is_cut,
        posts,
        next: next.map(|((rank, _), name)| format!("{rank}.{name}")),
    })
}

/// Returns the facet values for the list that the parameters select.
pub async fn facets(serving: &Serving, parameters: &Parameters) -> Result<Facets, PageError> {
    let filter = filter(parameters).map_err(PageError::bad_request)?;
    let search = parameters.get("q").map(str::to_owned);
    Ok(serving.index.facets(filter, search).await?)
}

/// Rejects an unknown outcome because an empty list would be misleading.
async fn check_outcome(serving: &Serving, outcome: &str) -> Result<(), PageError> {
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
    Err(PageError::bad_request(format!(
        "`{}` is not an outcome; the outcomes are {}, other, unsure, labelled and unlabelled",
        head(outcome),
        known.join(", ")
    )))
}

/// Reads posts in the order of `names`, except posts that have since been purged.
async fn read(serving: &Serving, names: &[Fullname]) -> Result<Vec<PostSummary>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let target = serving.store.labels().current_target().await?;
    let posts = serving.store.posts().post_summaries(target, names).await?;
    let mut posts: HashMap<Fullname, PostSummary> = posts
        .into_iter()
        .map(|post| (post.fullname.clone(), post))
        .collect();
    Ok(names.iter().filter_map(|name| posts.remove(name)).collect())
}

fn filter(parameters: &Parameters) -> Result<RowFilter, String> {
    let outcome = match (parameters.get("outcome"), parameters.get("label")) {
        // No post has two different outcomes; the empty outcome matches no post.
        (Some(outcome), Some(label)) if outcome != label && outcome != "labelled" => Some(""),
        (outcome, label) => label.or(outcome),
    };
    let outcome = outcome.map(str::to_owned);
    let subreddit = parameters.get("subreddit").map(|name| {
        let name = name.trim_start_matches('/');
        name.strip_prefix("r/").unwrap_or(name).to_owned()
    });
    let time = "not a date such as 2026-11-20 or a time such as 2026-11-20T08:00:00Z";
    let least = |text: &str| {
        text.parse::<f32>()
            .ok()
            .filter(|least| (0.0..=1.0).contains(least))
    };
    Ok(RowFilter {
        outcome,
        topic: parameters.get("topic").map(str::to_owned),
        subreddit,
        since: parse_parameter(parameters, "since", time, |text| moment(text, 0))?,
        // If `until` is a date, the whole day is included.
        until: parse_parameter(parameters, "until", time, |text| moment(text, 1))?,
        min_score: parse_parameter(parameters, "min_score", "not a number from 0 to 1", least)?,
        sort: sort(parameters)?,
    })
}

/// Parses a parameter, or returns an error message.
fn parse_parameter<T>(
    parameters: &Parameters,
    name: &str,
    wrong: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let parsed = parameters.get(name).map(|text| {
        let wrong = || format!("`{name}={}` is {wrong}", head(text));
        parse(text).ok_or_else(wrong)
    });
    parsed.transpose()
}

/// Returns the sort order.
pub fn sort(parameters: &Parameters) -> Result<Sort, String> {
    let known: Vec<&str> = Sort::ALL.iter().map(|(_, word, _)| *word).collect();
    let find = |word: &str| {
        let found = Sort::ALL.iter().find(|(_, known, _)| *known == word);
        found.map(|(sort, ..)| *sort)
    };
    let wrong = format!("not one of {}", known.join(", "));
    Ok(parse_parameter(parameters, "sort", &wrong, find)?.unwrap_or_default())
}

fn limit(parameters: &Parameters) -> Result<usize, String> {
    let wrong = format!("not a number from 1 to {LONGEST_PAGE}");
    let range = 1..=LONGEST_PAGE;
    let parse = |text: &str| {
        text.parse::<usize>()
            .ok()
            .filter(|limit| range.contains(limit))
    };
    Ok(parse_parameter(parameters, "limit", &wrong, parse)?.unwrap_or(PAGE))
}

/// Parses a date or a time as a Unix timestamp; `days` are added to a date.
fn moment(text: &str, days: u64) -> Option<i64> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        let day = day.checked_add_days(chrono::Days::new(days)).unwrap_or(day);
        let midnight = day.and_hms_opt(0, 0, 0).expect("every day has a midnight");
        return Some(midnight.and_utc().timestamp());
    }
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some(time.timestamp())
}

fn parse_cursor(text: &str) -> Option<RowPosition> {
    let (rank, name) = text.split_once('.')?;
    Some((rank.parse().ok()?, key(name)))
}

/// Truncates user input for an error message.
pub fn head(text: &str) -> String {
    crate::display::single_line(text, 60)
}
