//! The page with the list of posts: search, filters, sorting and pagination.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, Utc};

use super::line::PostLine;
use super::{PageError, address, html, other_kind, outcome_name, parse_kind, shortened};
use crate::display;
use crate::serve::Shared;
use topicmill_core::{Fullname, Label, ThingKind, Timestamp};
use topicmill_store::browse::{OutcomeFilter, PostCounts, PostFilter, PostOrder, PostSummary};

/// Number of posts per page.
const PAGE: usize = 50;
/// Maximum number of characters in a search.
const LONGEST_SEARCH: usize = 1_000;
/// Maximum number of values in a facet.
const FACET_VALUES: usize = 100;
/// The query parameters, except `after`, the position of the previous page's last post.
const NAMES: [&str; 8] = [
    "q",
    "kind",
    "outcome",
    "topic",
    "subreddit",
    "since",
    "until",
    "sort",
];
/// The value of `sort` for the highest score first.
const BY_SCORE: &str = "score";

/// The query parameters. Empty parameters are ignored.
struct Parameters(HashMap<String, String>);

impl Parameters {
    fn get(&self, name: &str) -> Option<&str> {
        let word = self.0.get(name)?.trim();
        Some(word).filter(|word| !word.is_empty())
    }

    /// Returns the value of a parameter, or an empty string.
    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    fn is_by_score(&self) -> bool {
        self.get("sort") == Some(BY_SCORE)
    }

    /// Returns the URL of the list with one parameter replaced or removed.
    fn link(&self, name: &'static str, value: Option<&str>) -> String {
        let others = NAMES.into_iter().filter(|other| *other != name);
        let others = others.filter_map(|other| Some((other, self.get(other)?)));
        address("/posts", others.chain(value.map(|value| (name, value))))
    }

    /// Returns a facet of values with their numbers of posts, if they are counted. `words` formats a value.
    fn facet(
        &self,
        name: &'static str,
        counts: impl IntoIterator<Item = (String, Option<u64>)>,
        words: impl Fn(&str) -> String,
    ) -> Facet {
        let view = |(value, posts): (String, Option<u64>)| {
            let chosen = self.get(name) == Some(value.as_str());
            FacetValue {
                words: display::single_line(&words(&value), 60),
                posts: posts.map(display::thousands).unwrap_or_default(),
                href: self.link(name, (!chosen).then_some(value.as_str())),
                chosen,
            }
        };
        let mut values: Vec<FacetValue> = counts.into_iter().map(view).collect();
        let left_out = values.len().saturating_sub(FACET_VALUES);
        values.truncate(FACET_VALUES);
        Facet {
            name,
            values,
            left_out,
        }
    }

    /// Returns the filter; an error if a parameter is invalid.
    fn filter(&self, labels: &[Label]) -> Result<PostFilter, PageError> {
        let search = self.text("q");
        if search.chars().count() > LONGEST_SEARCH {
            return Err(PageError::bad_request(format!(
                "the search is longer than {LONGEST_SEARCH} characters; shorten it"
            )));
        }
        let is_space = |c: char| c.is_whitespace() || c.is_control();
        let words = search.split(is_space).filter(|word| !word.is_empty());
        let subreddit = self.get("subreddit").map(|name| {
            let name = name.trim_start_matches('/');
            name.strip_prefix("r/").unwrap_or(name).to_owned()
        });
        let time = "a date such as 2026-11-20 or a time such as 2026-11-20T08:00:00Z";
        Ok(PostFilter {
            kind: parse_kind(self.text("kind"))?,
            outcome: self.outcome(labels)?,
            topic: self.get("topic").map(str::to_owned),
            subreddit,
            since: self.parse("since", time, |text| parse_time(text, 0))?,
            // If `until` is a date, the whole day is included.
            until: self.parse("until", time, |text| parse_time(text, 1))?,
            words: words.map(str::to_owned).collect(),
            order: self.order()?,
        })
    }

    fn outcome(&self, labels: &[Label]) -> Result<Option<OutcomeFilter>, PageError> {
        let slugs: Vec<&str> = labels.iter().map(|label| label.slug.as_str()).collect();
        let outcomes = format!(
            "an outcome: {}, other, unsure, labelled or unlabelled",
            slugs.join(", ")
        );
        self.parse("outcome", &outcomes, |word| match word {
            "labelled" => Some(OutcomeFilter::Labelled),
            "unlabelled" => Some(OutcomeFilter::Unlabelled),
            "other" => Some(OutcomeFilter::Other),
            "unsure" => Some(OutcomeFilter::Unsure),
            slug => slugs
                .contains(&slug)
                .then(|| OutcomeFilter::Label(slug.to_owned())),
        })
    }

    /// Returns the order, with the position of the previous page's last post.
    fn order(&self) -> Result<PostOrder, PageError> {
        let link = "a link from the previous page";
        Ok(if self.is_by_score() {
            PostOrder::Score(self.parse("after", link, |text| {
                let (score, name) = text.split_once(':')?;
                Some((score.parse().ok()?, name.parse().ok()?))
            })?)
        } else {
            PostOrder::Newest(self.parse("after", link, |text| {
                let (secs, name) = text.split_once(':')?;
                let time = Timestamp::from_epoch_secs(secs.parse().ok()?)?;
                Some((storable(time)?, name.parse().ok()?))
            })?)
        })
    }

    /// Parses a parameter; returns an error if it is not `what`.
    fn parse<T>(
        &self,
        name: &str,
        what: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, PageError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let value = parse(text).ok_or_else(|| {
            let text = shortened(text);
            PageError::bad_request(format!("`{name}={text}` is not {what}"))
        })?;
        Ok(Some(value))
    }

    /// Returns the URL of the page after a post.
    fn next(&self, last: &PostSummary) -> String {
        let name: &Fullname = &last.fullname;
        let after = if self.is_by_score() {
            format!("{}:{name}", last.score.unwrap_or_default())
        } else {
            format!("{}:{name}", last.created_at.as_datetime().timestamp())
        };
        self.link("after", Some(&after))
    }
}

/// Parses a date or a time; `days` are added to a date.
fn parse_time(text: &str, days: u64) -> Option<Timestamp> {
    let time = match text.parse::<NaiveDate>() {
        Ok(day) => {
            let day = day.checked_add_days(Days::new(days))?;
            day.and_time(NaiveTime::MIN).and_utc()
        }
        Err(_) => DateTime::parse_from_rfc3339(text).ok()?.with_timezone(&Utc),
    };
    storable(time.into())
}

/// Returns a time that both databases can store: years have four digits.
fn storable(time: Timestamp) -> Option<Timestamp> {
    let years = 0..=9_999;
    Some(time).filter(|time| years.contains(&time.as_datetime().year()))
}

#[derive(Template)]
#[template(path = "serve/posts.html")]
struct Posts {
    parameters: Parameters,
    is_open: bool,
    is_filtered: bool,
    facets: Vec<Facet>,
    all: String,
    /// `posts` or `comments`.
    listed: &'static str,
    /// The other of the two, and the URL of its list, if there are comments.
    others: Option<(&'static str, String)>,
    lines: Vec<PostLine>,
    next: Option<String>,
    first: Option<String>,
}

/// A parameter with its most frequent values.
struct Facet {
    name: &'static str,
    values: Vec<FacetValue>,
    /// Number of less frequent values.
    left_out: usize,
}

/// A value with its number of posts among all posts if they are counted, and the URL for the list filtered by it.
struct FacetValue {
    words: String,
    posts: String,
    href: String,
    /// True if it currently filters the list; the URL then removes the filter.
    chosen: bool,
}

/// Returns the outcomes to filter by, with their numbers of posts; comments are not counted by outcome.
fn outcome_counts(
    kind: ThingKind,
    counts: &PostCounts,
    labels: &[Label],
) -> Vec<(String, Option<u64>)> {
    if kind == ThingKind::Post {
        let outcomes = counts.all_outcomes().into_iter();
        return outcomes.map(|(slug, posts)| (slug, Some(posts))).collect();
    }
    let labels = labels.iter().map(|label| label.slug.as_str());
    let outcomes = labels.chain(["other", "unsure", "unlabelled"]);
    outcomes.map(|slug| (slug.to_owned(), None)).collect()
}

/// Renders the page.
pub async fn page(
    State(serving): State<Shared>,
    Query(parameters): Query<HashMap<String, String>>,
) -> Result<Response, PageError> {
    let parameters = Parameters(parameters);
    let current = serving.store.labels().current().await?;
    let labels = current.as_ref().map_or(&[][..], |(_, set)| &set.labels);
    let target = current.as_ref().map(|(target, _)| *target);
    let filter = parameters.filter(labels)?;
    let store = serving.store.posts();
    // One more post shows whether there is a next page.
    let limit = u32::try_from(PAGE + 1).expect("a page is small");
    let (mut posts, counts) = tokio::try_join!(
        store.list_posts(target, &filter, limit),
        store.count_posts(filter.kind)
    )?;
    let has_more = posts.len() > PAGE;
    posts.truncate(PAGE);
    let outcomes = outcome_counts(filter.kind, &counts, labels);
    let topics = counts.topics.into_iter();
    let topics = topics.map(|(topic, posts)| (topic, Some(posts)));
    let facets = [
        parameters.facet("outcome", outcomes, |slug| outcome_name(slug, labels)),
        parameters.facet("topic", topics, str::to_owned),
    ];
    let is_useful =
        |facet: &Facet| facet.values.len() > 1 || facet.values.iter().any(|value| value.chosen);
    let link = |others: &str| parameters.link("kind", Some(others));
    let others = other_kind(&serving.store, filter.kind, link).await?;
    let is_set = |names: &[&str]| names.iter().any(|name| parameters.get(name).is_some());
    let page = Posts {
        // Forms always send the order.
        is_open: is_set(&["subreddit", "since", "until"]) || parameters.is_by_score(),
        is_filtered: NAMES
            .iter()
            .any(|name| !["kind", "sort"].contains(name) && parameters.get(name).is_some()),
        facets: facets.into_iter().filter(is_useful).collect(),
        all: display::thousands(counts.posts),
        listed: filter.kind.plural(),
        others,
        next: match posts.last() {
            Some(last) if has_more => Some(parameters.next(last)),
            _ => None,
        },
        lines: posts.iter().map(PostLine::new).collect(),
        first: is_set(&["after"]).then(|| parameters.link("after", None)),
        parameters,
    };
    Ok(html(StatusCode::OK, &page))
}
