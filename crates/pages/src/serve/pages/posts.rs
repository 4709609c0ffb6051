//! The page with the list of posts: search, facets, filters, sorting and pagination.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{Days, Months, NaiveDate};

use super::line::PostLine;
use super::{PageError, html};
use crate::display;
use crate::serve::Shared;
use crate::serve::index::{FacetCount, Facets, SearchProgress, Sort, has_words};
use crate::serve::listing::{self, Parameters};

/// Maximum number of values in a facet.
const FACET_VALUES: usize = 20;
/// Maximum number of topics and subreddits that the form offers.
const OFFERED: usize = 300;

#[derive(Template)]
#[template(path = "serve/posts.html")]
struct Posts {
    parameters: Parameters,
    /// True if the filters are expanded.
    is_open: bool,
    outcomes: Vec<Choice>,
    topics: Vec<Choice>,
    subreddits: Vec<String>,
    facets: Vec<Facet>,
    sorts: Vec<Choice>,
    total: String,
    all: String,
    hint: Option<String>,
    lines: Vec<PostLine>,
    next: Option<String>,
    is_first: bool,
    is_filtered: bool,
    first: String,
}

/// A facet with its most frequent values.
struct Facet {
    name: &'static str,
    values: Vec<FacetValue>,
    /// Number of values left out.
    more: usize,
}

/// A value, and the URL for the list filtered by it.
struct FacetValue {
    words: String,
    posts: String,
    href: String,
    /// True if it currently filters the list; the URL then removes the filter.
    chosen: bool,
}

struct Choice {
    value: String,
    words: String,
    chosen: bool,
}

/// Renders the page.
pub async fn page(
    State(serving): State<Shared>,
    parameters: Parameters,
) -> Result<Response, PageError> {
    let listed = listing::list(&serving, &parameters).await?;
    // `list` does not wait for the index if the search has no words.
    serving.index.ready().await?;
    let progress = serving.index.progress();
    let is_filtered = parameters
        .pairs()
        .any(|(name, _)| !["sort", "limit"].contains(&name));
    // The default sort order does not expand the filters: forms always send the order.
    let is_open = parameters.pairs().any(|(name, word)| {
        !["q", "limit"].contains(&name) && (name, word) != ("sort", Sort::ALL[0].1)
    });
    let hint = hint(parameters.text("q"), progress, listed.total_is_cut);
    let columns = serving.index.columns();
    let mut subreddits: Vec<String> = columns.subreddits.texts().to_vec();
    subreddits.sort_unstable();
    subreddits.truncate(OFFERED);
    let page = Posts {
        outcomes: outcomes(&serving, &parameters).await?,
        topics: choices(columns.topics.texts(), parameters.get("topic")),
        subreddits,
        facets: facets(&serving, &parameters).await?,
        sorts: sorts(&parameters),
        total: display::thousands(listed.total),
        all: display::thousands(progress.posts as u64),
        hint,
        lines: listed.posts.iter().map(PostLine::new).collect(),
        next: listed
            .next
            .map(|next| parameters.address("/posts", Some(&next))),
        is_first: parameters.get("after").is_none(),
        is_filtered,
        first: parameters.address("/posts", None),
        is_open,
        parameters,
    };
    Ok(html(StatusCode::OK, &page))
}

/// Returns a hint about the search; `None` if there is none.
fn hint(q: &str, progress: SearchProgress, is_cut: bool) -> Option<String> {
    if q.is_empty() {
        return None;
    }
    if !has_words(q) {
        return Some("The search has no words. Punctuation alone is ignored.".into());
    }
    let SearchProgress {
        posts,
        searched,
        to_search,
    } = progress;
    if searched < posts {
        let (shown, all) = (
            display::thousands(searched as u64),
            display::thousands(posts as u64),
        );
        let status = if searched < to_search {
            "so far; indexing continues"
        } else {
            "; raise the limit with `--search-posts`"
        };
        return Some(
            format!("The newest {shown} of {all} posts are searched {status}.").replace(" ;", ";"),
        );
    }
    is_cut.then(|| {
        "More posts match than are listed. These are the newest; add words to narrow the search.".into()
    })
}

/// Returns the facets with at least two values or with a value that filters the list.
async fn facets(serving: &Shared, parameters: &Parameters) -> Result<Vec<Facet>, PageError> {
    let Facets {
        outcomes,
        topics,
        subreddits,
        months,
    } = listing::facets(serving, parameters).await?;
    let labels = serving.current_labels().await?;
    let words = |outcome: &str| {
        let label = labels.iter().find(|label| label.slug == outcome);
        match (outcome, label) {
            (_, Some(label)) => label.label.clone(),
            ("unlabelled", None) => "not labelled yet".to_owned(),
            (slug, None) => slug.to_owned(),
        }
    };
    let outcome = parameters.get("label").or(parameters.get("outcome"));
    let is_chosen = |name, value: &str| {
        let chosen = parameters.get(name);
        chosen.is_some_and(|chosen| chosen.eq_ignore_ascii_case(value))
    };
    let facet = |name, counts: Vec<FacetCount>, value: &dyn Fn(&FacetCount) -> FacetValue| {
        let mut values: Vec<FacetValue> = counts.iter().map(value).collect();
        let (all, mut seen) = (values.len(), 0);
        values.retain(|value| {
            seen += 1;
            // A value that filters the list is always shown.
            seen <= FACET_VALUES || value.chosen
        });
        let more = all - values.len();
        Facet { name, values, more }
    };
    let link = |name: &'static str, value: &str, chosen: bool| {
        let value = Some(value).filter(|_| !chosen);
        parameters.changed("/posts", &[(name, value)])
    };
    let all = [
        facet("label", outcomes, &|one| {
            let chosen = outcome == Some(one.value.as_str());
            let value = Some(one.value.as_str()).filter(|_| !chosen);
            FacetValue {
                words: display::single_line(&words(&one.value), 60),
                posts: display::thousands(one.posts),
                href: parameters.changed("/posts", &[("label", None), ("outcome", value)]),
                chosen,
            }
        }),
        facet("topic", topics, &|one| {
            let chosen = parameters.get("topic") == Some(one.value.as_str());
            FacetValue {
                words: display::single_line(&one.value, 60),
                posts: display::thousands(one.posts),
                href: link("topic", &one.value, chosen),
                chosen,
            }
        }),
        facet("subreddit", subreddits, &|one| {
            let chosen = is_chosen("subreddit", &one.value)
                || is_chosen("subreddit", &format!("r/{}", one.value));
            FacetValue {
                words: format!("r/{}", display::single_line(&one.value, 40)),
                posts: display::thousands(one.posts),
                href: link("subreddit", &one.value, chosen),
                chosen,
            }
        }),
        facet("month", months, &|one| month(parameters, one)),
    ];
    let is_useful =
        |facet: &Facet| facet.values.len() > 1 || facet.values.iter().any(|value| value.chosen);
    Ok(all.into_iter().filter(is_useful).collect())
}

/// Returns a month as a filter from its first day to its last.
fn month(parameters: &Parameters, count: &FacetCount) -> FacetValue {
    let first = format!("{}-01", count.value).parse::<NaiveDate>();
    let first = first.unwrap_or_default();
    let last = first + Months::new(1) - Days::new(1);
    let [since, until] = [first, last].map(|day| day.to_string());
    let chosen = parameters.get("since") == Some(since.as_str())
        && parameters.get("until") == Some(until.as_str());
    let kept = |day| Some(day).filter(|_| !chosen);
    FacetValue {
        words: first.format("%b %Y").to_string(),
        posts: display::thousands(count.posts),
        href: parameters.changed(
            "/posts",
            &[
                ("since", kept(since.as_str())),
                ("until", kept(until.as_str())),
            ],
        ),
        chosen,
    }
}

fn choices(texts: &[String], chosen: Option<&str>) -> Vec<Choice> {
    let mut texts: Vec<&String> = texts.iter().collect();
    texts.sort_unstable();
    let choices = texts.into_iter().take(OFFERED).map(|text| Choice {
        value: text.clone(),
        words: display::single_line(text, 60),
        chosen: chosen == Some(text),
    });
    choices.collect()
}

fn sorts(parameters: &Parameters) -> Vec<Choice> {
    let chosen = listing::sort(parameters).unwrap_or_default();
    let choices = Sort::ALL.iter().map(|(sort, value, words)| Choice {
        value: (*value).to_owned(),
        words: (*words).to_owned(),
        chosen: *sort == chosen,
    });
    choices.collect()
}

async fn outcomes(serving: &Shared, parameters: &Parameters) -> Result<Vec<Choice>, PageError> {
    let chosen = parameters.get("label").or(parameters.get("outcome"));
    let choice = |value: &str, words: &str| Choice {
        value: value.to_owned(),
        words: display::single_line(words, 60),
        chosen: chosen == Some(value),
    };
    let mut all = vec![choice("labelled", "any label")];
    if let Some(target) = serving.store.labels().current_target().await? {
        let set = serving.store.labels().label_set(target.label_set).await?;
        all.extend(
            set.labels
                .iter()
                .map(|label| choice(&label.slug, &label.label)),
        );
    }
    all.extend([
        choice("other", "other"),
        choice("unsure", "unsure"),
        choice("unlabelled", "not labelled yet"),
    ]);
    Ok(all)
}
