//! The first page: how many posts there are, and what became of them.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::line::percent;
use super::{At, PageError, html};
use crate::look;
use crate::serve::Shared;
use crate::serve::listing::address;
use crate::store::RunRow;

/// Runs shown.
const RUNS: u32 = 6;

#[derive(Template)]
#[template(path = "serve/overview.html")]
struct Overview {
    at: At,
    finding: String,
    figures: Vec<(String, &'static str)>,
    outcomes: Vec<Row>,
    runs: Vec<RunLine>,
    set: Option<String>,
}

struct Row {
    name: String,
    href: String,
    posts: String,
    share: String,
    percent: f64,
    is_label: bool,
}

struct RunLine {
    stage: String,
    status: String,
    is_well: bool,
    began: String,
    posts: String,
}

/// Shows it.
pub async fn page(State(serving): State<Shared>) -> Result<Response, PageError> {
    serving.index.ready().await;
    let columns = serving.index.columns();
    let target = serving.store.current_target().await?;
    let set = match target {
        Some(target) => Some(serving.store.label_set(target.label_set).await?),
        None => None,
    };
    let runs = serving.store.recent_runs(None, RUNS).await?;
    let mut counts = columns.count_outcomes();
    let is_label = |outcome: &str| !["other", "unsure", "unlabelled"].contains(&outcome);
    counts.sort_by_key(|(outcome, posts)| (!is_label(outcome), std::cmp::Reverse(*posts)));
    let of = |wanted: &str| {
        let found = counts.iter().find(|(outcome, _)| outcome == wanted);
        found.map_or(0, |(_, posts)| *posts)
    };
    let total = columns.len() as u64;
    let unlabelled = of("unlabelled");
    let labelled: u64 = counts
        .iter()
        .filter(|(outcome, _)| is_label(outcome))
        .map(|(_, posts)| posts)
        .sum();
    let words = |slug: &str| {
        let labels = set.iter().flat_map(|set| &set.labels);
        let mut found = labels.filter(|label| label.slug == slug);
        found
            .next()
            .map_or(slug.to_owned(), |label| label.label.clone())
    };
    let most = counts
        .first()
        .filter(|(outcome, posts)| is_label(outcome) && *posts > 0);
    let finding = match most {
        _ if total == 0 => "No post is stored yet".to_owned(),
        None if unlabelled == total => "No post has a label yet".to_owned(),
        None => "No post has one of the labels".to_owned(),
        Some((slug, posts)) => format!(
            "{} is the largest label, with {} of the labelled posts",
            look::line(&capital(&words(slug)), 60),
            look::percent(share(*posts, labelled))
        ),
    };
    let largest = counts.iter().map(|(_, posts)| *posts).max().unwrap_or(0);
    let outcomes = counts
        .iter()
        .filter(|(outcome, posts)| is_label(outcome) || *posts > 0)
        .map(|(outcome, posts)| Row {
            name: look::line(&words(outcome), 60),
            href: address("/posts", [("outcome", outcome.as_str())].into_iter()),
            posts: look::whole(*posts),
            share: look::percent(share(*posts, total)),
            percent: percent(share(*posts, largest)),
            is_label: is_label(outcome),
        })
        .collect();
    let figures = vec![
        (look::whole(total), "posts"),
        (look::percent(share(labelled, total)), "have a label"),
        (look::percent(share(of("other"), total)), "are other"),
        (look::percent(share(of("unsure"), total)), "are unsure"),
        (look::whole(unlabelled), "not labelled yet"),
    ];
    let page = Overview {
        at: At::Overview,
        finding,
        figures,
        outcomes,
        runs: runs.iter().map(run_line).collect(),
        set: set.map(|set| look::line(&set.name, 60)),
    };
    Ok(html(StatusCode::OK, &page))
}

fn run_line(run: &RunRow) -> RunLine {
    let posts = run.counts.get("posts").and_then(serde_json::Value::as_u64);
    RunLine {
        stage: run.stage.clone(),
        status: run.status.clone(),
        is_well: ["done", "running"].contains(&run.status.as_str()),
        began: run
            .started_at
            .as_datetime()
            .format("%-d %b %Y, %H:%M")
            .to_string(),
        posts: posts.map_or(String::new(), look::whole),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// A sentence begins with a capital letter.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
