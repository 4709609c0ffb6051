//! The review page's filter: a label and a range of scores, as query parameters.

use serde::Deserialize;

use crate::display;
use crate::report::capital;
use crate::serve::pages::address;
use topicmill_core::{LabelSet, ThingKind};
use topicmill_store::{FilterLabel, ReviewFilter};

/// Value of `label` for posts that are `other` or `unsure`, unless a label has this slug.
pub const NO_LABEL: &str = "none";

/// The filter's query parameters. An empty parameter selects everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FilterQuery {
    /// `comments` for comments, otherwise posts.
    pub kind: String,
    pub label: String,
    pub from: String,
    pub to: String,
}

impl FilterQuery {
    /// Returns the filter; `None` if it selects every post. Anything that is not a number from 0 to 1 is ignored.
    pub fn filter(&self, set: &LabelSet) -> Option<ReviewFilter> {
        let score = |text: &str| {
            let number: f64 = text.trim().parse().ok()?;
            (0.0..=1.0).contains(&number).then_some(number)
        };
        let (low, high) = (score(&self.from), score(&self.to));
        let label = match set.label(&self.label) {
            Some(label) => FilterLabel::Slug(label.slug.clone()),
            None if self.label == NO_LABEL => FilterLabel::Missing,
            None => FilterLabel::Any,
        };
        let kind = self.kind();
        if (kind, &label) == (ThingKind::Post, &FilterLabel::Any) && low.or(high).is_none() {
            return None;
        }
        Some(ReviewFilter {
            kind,
            label,
            low: low.unwrap_or(0.0),
            high: high.unwrap_or(1.0),
        })
    }

    /// Returns the kind of things to review.
    pub fn kind(&self) -> ThingKind {
        ThingKind::of_plural(&self.kind).unwrap_or_default()
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
    match (filter.low, filter.high) {
        (0.0, 1.0) => posts,
        (low, high) => format!(
            "{posts} with a score of {} to {}",
            display::score(low),
            display::score(high)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::table;
    use topicmill_core::{Label, Mode};

    #[test]
    fn parameters_select_a_label_and_a_range() {
        let set = LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: vec![Label {
                slug: "food".into(),
                label: "food and cooking".into(),
                descriptions: vec![],
            }],
            background: None,
            fitted: None,
        };
        let described = |label: &str, from: &str, to: &str| {
            let query = FilterQuery {
                kind: String::new(),
                label: label.to_owned(),
                from: from.to_owned(),
                to: to.to_owned(),
            };
            let filter = query.filter(&set);
            (filter.map(|filter| describe(&filter, &set)), query.query())
        };
        for (parameters, expected, query) in table! {
            ("", "", ""), None, "";
            ("sailing", "2", "x"), None, "?label=sailing&from=2&to=x";
            ("food", "", " 0.5 "), Some("Posts labelled food and cooking with a score of 0.00 to 0.50"),
                "?label=food&to=0.5";
            ("none", "", ""), Some("Posts without a label"), "?label=none";
            ("", "0.9", ""), Some("Posts with a score of 0.90 to 1.00"), "?from=0.9";
        } {
            let (label, from, to) = parameters;
            let found = described(label, from, to);
            assert_eq!(found, (expected.map(str::to_owned), query.to_owned()));
        }
    }
}
