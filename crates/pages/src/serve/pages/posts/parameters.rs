//! The query parameters of the list of posts: parses them, and makes links in which one of them is changed.

use std::collections::HashMap;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, Utc};

use crate::serve::pages::{PageError, address, parse_kind, shortened};
use topicmill_core::{Fullname, Label, Timestamp};
use topicmill_store::browse::{OutcomeFilter, PostFilter, PostOrder, PostSummary};

/// Maximum number of characters in a search.
const LONGEST_SEARCH: usize = 1_000;
/// The names of the parameters, except `after`, the position of the previous page's last post.
const NAMES: &str = "q kind outcome topic subreddit since until sort";
/// The value of `sort` for the highest score first.
const BY_SCORE: &str = "score";

/// The query parameters. Empty parameters are ignored.
pub(super) struct Parameters(pub HashMap<String, String>);

impl Parameters {
    /// Returns the value of a parameter, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        let word = self.0.get(name)?.trim();
        Some(word).filter(|word| !word.is_empty())
    }

    /// Returns the value of a parameter, or an empty string.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns true if the highest score comes first.
    pub fn is_by_score(&self) -> bool {
        self.get("sort") == Some(BY_SCORE)
    }

    /// Returns true if only some posts are listed.
    pub fn is_filtered(&self) -> bool {
        let names = NAMES.split(' ');
        let mut filters = names.filter(|name| !["kind", "sort"].contains(name));
        filters.any(|name| self.get(name).is_some())
    }

    /// Returns the URL of the list with one parameter replaced or removed.
    pub fn link(&self, name: &'static str, value: Option<&str>) -> String {
        let others = NAMES.split(' ').filter(|other| *other != name);
        let others = others.filter_map(|other| Some((other, self.get(other)?)));
        address("/posts", others.chain(value.map(|value| (name, value))))
    }

    /// Returns the filter; an error if a parameter is invalid.
    pub fn filter(&self, labels: &[Label]) -> Result<PostFilter, PageError> {
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

    /// Returns the outcome to filter by; an error that lists the known ones.
    fn outcome(&self, labels: &[Label]) -> Result<Option<OutcomeFilter>, PageError> {
        let slugs: Vec<&str> = labels.iter().map(|label| label.slug.as_str()).collect();
        let known = slugs.join(", ");
        let outcomes = format!("an outcome: {known}, other, unsure, labelled or unlabelled");
        self.parse("outcome", &outcomes, |word| match word {
            "labelled" => Some(OutcomeFilter::Labelled),
            "unlabelled" => Some(OutcomeFilter::Unlabelled),
            "other" => Some(OutcomeFilter::Other),
            "unsure" => Some(OutcomeFilter::Unsure),
            slug if slugs.contains(&slug) => Some(OutcomeFilter::Label(slug.to_owned())),
            _ => None,
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
    pub fn next(&self, last: &PostSummary) -> String {
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
