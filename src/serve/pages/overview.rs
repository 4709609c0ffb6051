//! The first page: the report of everything, as it is now. Making it takes seconds where there are a million posts, so it is
//! made anew behind the scenes when something was written, and nobody waits for it: until the first one is there, the page has
//! how many posts there are, and what became of them.

use std::cmp::Reverse;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::line::percent;
use super::{At, PageError, html};
use crate::look;
use crate::report::{self, ReportOptions};
use crate::serve::Shared;
use crate::serve::index::Columns;
use crate::serve::listing::address;
use crate::store::{RunRow, StoreError};
use topicmill_score::LabelSet;

/// Making reports takes at most one part in ten of the time while something writes all the time.
const REST: u32 = 9;
/// And a report is no older than it has to be: one of a million posts takes some seconds.
const LONGEST_REST: Duration = Duration::from_mins(2);

/// The latest report, as the inside of a page.
#[derive(Default)]
pub struct Drawn(RwLock<Option<Arc<str>>>);

#[derive(Template)]
#[template(path = "serve/report.html")]
struct ReportPage<'b> {
    at: At,
    body: &'b str,
    outcomes: Vec<Row>,
}

/// Makes reports for as long as it is polled.
pub async fn keep(serving: Shared) {
    let mut changes = serving.index.changes();
    loop {
        // The sender lives as long as the index does.
        let _ = changes.changed().await;
        let began = serving.clock.elapsed();
        match draw(&serving).await {
            Ok(body) => {
                let mut drawn = serving
                    .drawn
                    .0
                    .write()
                    .expect("no holder of this lock panics");
                *drawn = Some(body.into());
            }
            Err(error) => tracing::warn!("the overview stays as it is: {error}"),
        }
        let took = serving.clock.elapsed().saturating_sub(began);
        serving.clock.sleep((took * REST).min(LONGEST_REST)).await;
    }
}

async fn draw(serving: &Shared) -> Result<String, StoreError> {
    let now = serving.clock.now().into();
    let options = ReportOptions::of_all(&serving.store, &serving.database, now).await?;
    let report = report::gather(&serving.store, &options).await?;
    Ok(report::render_body(&report))
}

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
    serving.index.ready().await?;
    let set = match serving.store.current_target().await? {
        Some(target) => Some(serving.store.label_set(target.label_set).await?),
        None => None,
    };
    let counts = Counts::new(&serving.index.columns());
    let outcomes = counts.rows(set.as_ref());
    let drawn = serving.drawn.0.read();
    let drawn = drawn.expect("no holder of this lock panics").clone();
    if let Some(body) = drawn {
        let page = ReportPage {
            at: At::Overview,
            body: &body,
            outcomes,
        };
        return Ok(html(StatusCode::OK, &page));
    }
    let runs = serving.store.recent_runs(None, RUNS).await?;
    let page = Overview {
        at: At::Overview,
        finding: counts.finding(set.as_ref()),
        figures: counts.figures(),
        outcomes,
        runs: runs.iter().map(run_line).collect(),
        set: set.map(|set| look::line(&set.name, 60)),
    };
    Ok(html(StatusCode::OK, &page))
}

/// How many posts each outcome has: the labels first, the largest first.
struct Counts {
    outcomes: Vec<(String, u64)>,
    total: u64,
    labelled: u64,
}

fn is_label(outcome: &str) -> bool {
    !["other", "unsure", "unlabelled"].contains(&outcome)
}

/// A slug in words.
fn words(slug: &str, set: Option<&LabelSet>) -> String {
    let mut labels = set.iter().flat_map(|set| &set.labels);
    let found = labels.find(|label| label.slug == slug);
    match (slug, found) {
        (_, Some(label)) => look::line(&label.label, 60),
        ("unlabelled", None) => "not labelled yet".to_owned(),
        (slug, None) => look::line(slug, 60),
    }
}

impl Counts {
    fn new(columns: &Columns) -> Self {
        let mut counts = columns.count_outcomes();
        counts.sort_by_key(|(outcome, posts)| (!is_label(outcome), Reverse(*posts)));
        let labels = counts.iter().filter(|(outcome, _)| is_label(outcome));
        Self {
            labelled: labels.map(|(_, posts)| posts).sum(),
            total: columns.len() as u64,
            outcomes: counts,
        }
    }

    fn of(&self, wanted: &str) -> u64 {
        let found = self.outcomes.iter().find(|(outcome, _)| outcome == wanted);
        found.map_or(0, |(_, posts)| *posts)
    }

    /// What there is to say first.
    fn finding(&self, set: Option<&LabelSet>) -> String {
        let most = self.outcomes.first();
        match most.filter(|(outcome, posts)| is_label(outcome) && *posts > 0) {
            _ if self.total == 0 => "No post is stored yet".to_owned(),
            None if self.of("unlabelled") == self.total => "No post has a label yet".to_owned(),
            None => "No post has one of the labels".to_owned(),
            Some((slug, posts)) => format!(
                "{} is the largest label, with {} of the labelled posts",
                capital(&words(slug, set)),
                look::percent(share(*posts, self.labelled))
            ),
        }
    }

    fn figures(&self) -> Vec<(String, &'static str)> {
        let percent = |posts| look::percent(share(posts, self.total));
        vec![
            (look::whole(self.total), "posts"),
            (percent(self.labelled), "have a label"),
            (percent(self.of("other")), "are other"),
            (percent(self.of("unsure")), "are unsure"),
            (look::whole(self.of("unlabelled")), "not labelled yet"),
        ]
    }

    fn rows(&self, set: Option<&LabelSet>) -> Vec<Row> {
        let largest = self.outcomes.iter().map(|(_, posts)| *posts).max();
        let row = |(outcome, posts): &(String, u64)| Row {
            name: words(outcome, set),
            href: address("/posts", [("outcome", outcome.as_str())].into_iter()),
            posts: look::whole(*posts),
            share: look::percent(share(*posts, self.total)),
            percent: percent(share(*posts, largest.unwrap_or(0))),
            is_label: is_label(outcome),
        };
        let shown = self.outcomes.iter().filter(|(_, posts)| *posts > 0);
        shown.map(row).collect()
    }
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
