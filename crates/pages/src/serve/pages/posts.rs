//! The list of posts: searched, filtered, sorted, page by page.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::line::PostLine;
use super::{Failed, html};
use crate::display;
use crate::serve::Shared;
use crate::serve::index::{SearchProgress, Sort, has_words};
use crate::serve::listing::{self, Parameters};

/// Topics and subreddits that a form offers.
const OFFERED: usize = 300;

#[derive(Template)]
#[template(path = "serve/posts.html")]
struct Posts {
    asked: Parameters,
    /// Whether more than the search is asked for.
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

pub async fn page(State(serving): State<Shared>, asked: Parameters) -> Result<Response, Failed> {
    let listed = listing::list(&serving, &asked).await?;
    // `list` does not wait for it where the search has no word.
    serving.index.ready().await?;
    let standing = serving.index.standing();
    let is_filtered = asked
        .pairs()
        .any(|(name, _)| !["sort", "limit"].contains(&name));
    // A form sends the order along, whether or not somebody chose it.
    let is_open = asked.pairs().any(|(name, word)| {
        !["q", "limit"].contains(&name) && (name, word) != ("sort", Sort::ALL[0].1)
    });
    let hint = hint(asked.text("q"), standing, listed.total_is_cut);
    let columns = serving.index.columns();
    let mut subreddits: Vec<String> = columns.subreddits.texts().to_vec();
    subreddits.sort_unstable();
    subreddits.truncate(OFFERED);
    let page = Posts {
        outcomes: outcomes(&serving, &asked).await?,
        topics: choices(columns.topics.texts(), asked.get("topic")),
        subreddits,
        sorts: sorts(&asked),
        total: display::thousands(listed.total),
        all: display::thousands(standing.posts as u64),
        hint,
        lines: listed.posts.iter().map(PostLine::new).collect(),
        next: listed.next.map(|next| asked.address("/posts", Some(&next))),
        is_first: asked.get("after").is_none(),
        is_filtered,
        first: asked.address("/posts", None),
        is_open,
        asked,
    };
    Ok(html(StatusCode::OK, &page))
}

/// What to know of a search.
fn hint(q: &str, standing: SearchProgress, is_cut: bool) -> Option<String> {
    if q.is_empty() {
        return None;
    }
    if !has_words(q) {
        return Some(
            "There is no word in this search. It looks for whole words; signs alone are none."
                .into(),
        );
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
        let said = if searched < to_search {
            "so far; the others follow in a moment"
        } else {
            "; `--search-posts` says how many"
        };
        return Some(
            format!("The newest {shown} of {all} posts are searched {said}.").replace(" ;", ";"),
        );
    }
    is_cut.then(|| {
        "More posts match. The list has the newest of them; add a word to see fewer.".into()
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

fn sorts(asked: &Parameters) -> Vec<Choice> {
    let chosen = listing::sort(asked).unwrap_or_default();
    let choices = Sort::ALL.iter().map(|(sort, value, words)| Choice {
        value: (*value).to_owned(),
        words: (*words).to_owned(),
        chosen: *sort == chosen,
    });
    choices.collect()
}

async fn outcomes(serving: &Shared, asked: &Parameters) -> Result<Vec<Choice>, Failed> {
    let chosen = asked.get("label").or(asked.get("outcome"));
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
