//! The page with the list of posts: search, filters, sorting and pagination.

mod parameters;

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;

use self::parameters::Parameters;
use super::line::PostLine;
use super::{PageError, html, other_kind, outcome_name};
use crate::display;
use crate::serve::Shared;
use topicmill_core::{Label, ThingKind};
use topicmill_store::browse::PostCounts;

/// Number of posts per page.
const PAGE: usize = 50;
/// Maximum number of values in a facet.
const FACET_VALUES: usize = 100;

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

impl Facet {
    /// Creates a facet of values with their numbers of posts, if they are counted. `words` formats a value.
    fn new(
        parameters: &Parameters,
        name: &'static str,
        counts: impl IntoIterator<Item = (String, Option<u64>)>,
        words: impl Fn(&str) -> String,
    ) -> Self {
        let view = |(value, posts): (String, Option<u64>)| {
            let chosen = parameters.get(name) == Some(value.as_str());
            FacetValue {
                words: display::single_line(&words(&value), 60),
                posts: posts.map(display::thousands).unwrap_or_default(),
                href: parameters.link(name, (!chosen).then_some(value.as_str())),
                chosen,
            }
        };
        let mut values: Vec<FacetValue> = counts.into_iter().map(view).collect();
        let left_out = values.len().saturating_sub(FACET_VALUES);
        values.truncate(FACET_VALUES);
        Self {
            name,
            values,
            left_out,
        }
    }

    /// Returns true if the facet offers a choice, or the list is filtered by it.
    fn is_useful(&self) -> bool {
        self.values.len() > 1 || self.values.iter().any(|value| value.chosen)
    }
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
    let outcome_words = |slug: &str| outcome_name(slug, labels);
    let facets = [
        Facet::new(&parameters, "outcome", outcomes, outcome_words),
        Facet::new(&parameters, "topic", topics, str::to_owned),
    ];
    let link = |others: &str| parameters.link("kind", Some(others));
    let others = other_kind(&serving.store, filter.kind, link).await?;
    let is_set = |names: &[&str]| names.iter().any(|name| parameters.get(name).is_some());
    let page = Posts {
        // Forms always send the order.
        is_open: is_set(&["subreddit", "since", "until"]) || parameters.is_by_score(),
        is_filtered: parameters.is_filtered(),
        facets: facets.into_iter().filter(Facet::is_useful).collect(),
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
