//! The review page's filter: a label and a range of scores, as query parameters.

use serde::Deserialize;

use crate::display;
use crate::report::capital;
use crate::serve::pages::{PageError, address, parse_kind};
use topicmill_core::{LabelSet, ThingKind};
use topicmill_store::{FilterLabel, ReviewFilter};

/// Value of `label` for posts that are `other` or `unsure`, unless a label has this slug.
pub const NO_LABEL: &str = "none";

/// The filter that selects every post. Scores may be any numbers, because those of raw mode are.
const EVERY_POST: ReviewFilter = ReviewFilter {
    kind: ThingKind::Post,
    label: FilterLabel::Any,
    low: f64::NEG_INFINITY,
    high: f64::INFINITY,
};

/// The filter's query parameters. An empty parameter selects everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FilterQuery {
    /// `posts` or `comments`; empty for posts.
    pub kind: String,
    /// The slug of a label, or [`NO_LABEL`].
    pub label: String,
    /// The lowest score.
    pub from: String,
    /// The highest score.
    pub to: String,
}

impl FilterQuery {
    /// Returns the filter; `None` if it selects every post. A label that is not in the set is ignored, and so is a
    /// score that is not a number from 0 to 1; an unknown kind is an error.
    pub fn filter(&self, set: &LabelSet) -> Result<Option<ReviewFilter>, PageError> {
        let score = |text: &str| {
            let number: f64 = text.trim().parse().ok()?;
            (0.0..=1.0).contains(&number).then_some(number)
        };
        let filter = ReviewFilter {
            kind: parse_kind(&self.kind)?,
            label: match set.label(&self.label) {
                Some(label) => FilterLabel::Slug(label.slug.clone()),
                None if self.label == NO_LABEL => FilterLabel::Missing,
                None => FilterLabel::Any,
            },
            low: score(&self.from).unwrap_or(EVERY_POST.low),
            high: score(&self.to).unwrap_or(EVERY_POST.high),
        };
        Ok(Some(filter).filter(|filter| *filter != EVERY_POST))
    }

    /// Returns the parameters that are set.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("kind", &self.kind),
            ("label", &self.label),
            ("from", &self.from),
            ("to", &self.to),
        ];
        all.into_iter()
            .map(|(name, value)| (name, value.trim()))
            .filter(|(_, value)| !value.is_empty())
    }

    /// Returns the query string, to append to a form's path.
    pub fn query(&self) -> String {
        address("", self.pairs()).trim_start_matches('/').to_owned()
    }
}

/// Describes the posts that a filter selects.
pub fn describe(filter: &ReviewFilter, set: &LabelSet) -> String {
    let posts = capital(filter.kind.plural());
    let posts = match &filter.label {
        FilterLabel::Any => posts,
        FilterLabel::Slug(slug) => {
            let words = set.label(slug).map_or(slug, |label| &label.label);
            format!("{posts} labelled {words}")
        }
        FilterLabel::Missing => format!("{posts} without a label"),
    };
    let [low, high] = [filter.low, filter.high].map(display::score);
    match (filter.low.is_finite(), filter.high.is_finite()) {
        (false, false) => posts,
        (true, false) => format!("{posts} with a score of at least {low}"),
        (false, true) => format!("{posts} with a score of at most {high}"),
        (true, true) => format!("{posts} with a score of {low} to {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::{Label, table};

    fn food() -> LabelSet {
        let mut label = Label::new("food and cooking");
        label.slug = "food".into();
        LabelSet::new("t".into(), "About {}.".into(), vec![label])
    }

    #[test]
    fn parameters_select_a_label_and_a_range() {
        let set = food();
        for ((label, from, to), expected, query) in table! {
            ("", "", ""), None, "";
            ("sailing", "2", "x"), None, "?label=sailing&from=2&to=x";
            ("food", "", " 0.5 "), Some("Posts labelled food and cooking with a score of at most 0.50"),
                "?label=food&to=0.5";
            ("none", "", ""), Some("Posts without a label"), "?label=none";
            ("", "0.9", ""), Some("Posts with a score of at least 0.90"), "?from=0.9";
            ("", "0.25", "1"), Some("Posts with a score of 0.25 to 1.00"), "?from=0.25&to=1";
        } {
            let [label, from, to] = [label, from, to].map(str::to_owned);
            let kind = String::new();
            let parameters = FilterQuery {
                kind,
                label,
                from,
                to,
            };
            let filter = parameters.filter(&set).unwrap();
            let described = filter.map(|filter| describe(&filter, &set));
            assert_eq!(described.as_deref(), expected);
            assert_eq!(parameters.query(), query);
        }
    }

    #[test]
    fn a_label_alone_selects_raw_scores_too() {
        let parameters = FilterQuery {
            label: "food".into(),
            ..FilterQuery::default()
        };
        let filter = parameters.filter(&food()).unwrap().unwrap();
        assert!(filter.low < -99.0 && filter.high > 99.0, "{filter:?}");
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let parameters = FilterQuery {
            kind: "zebra".into(),
            ..FilterQuery::default()
        };
        let PageError(_, message) = parameters.filter(&food()).unwrap_err();
        assert_eq!(message, "`kind=zebra` is not `posts` or `comments`");
    }
}
