//! The page with the list of posts: search, filters, sorting and pagination.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::line::PostLine;
use super::{PageError, html};
use crate::display;
use crate::serve::Shared;
use crate::serve::index::{SearchProgress, Sort, has_words};
use crate::serve::listing::{self, Parameters};

/// The most topics and subreddits that the form offers.
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
    let standing = serving.index.progress();
    let is_filtered = parameters
        .pairs()
        .any(|(name, _)| !["sort", "limit"].contains(&name));
    // Forms always send the sort order.
    let is_open = parameters.pairs().any(|(name, word)| {
        !["q", "limit"].contains(&name) && (name, word) != ("sort", Sort::ALL[0].1)
    });
    let hint = hint(parameters.text("q"), standing, listed.total_is_cut);
    let columns = serving.index.columns();
    let mut subreddits: Vec<String> = columns.subreddits.texts().to_vec();
    subreddits.sort_unstable();
    subreddits.truncate(OFFERED);
    let page = Posts {
        outcomes: outcomes(&serving, &parameters).await?,
        topics: choices(columns.topics.texts(), parameters.get("topic")),
        subreddits,
        sorts: sorts(&parameters),
        total: display::thousands(listed.total),
        all: display::thousands(standing.posts as u64),
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

/// Returns a hint about the search, if any.
fn hint(q: &str, standing: SearchProgress, is_cut: bool) -> Option<String> {
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
    } = standing;
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
