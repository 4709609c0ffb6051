//! The first page: the report of everything, as it is now. Making it takes seconds where there are a million posts, so it is
//! made anew behind the scenes when something was written, and only the first one is waited for. Titles of posts that are gone
//! since are left out at once.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::watch;

use super::{Failed, html};
use crate::display;
use crate::report::{self, Report, ReportOptions};
use crate::serve::Shared;
use crate::serve::listing::address;
use topicmill_store::StoreError;

/// Making reports takes at most one part in ten of the time while something writes all the time.
const REST: u32 = 9;
/// And a report is no older than it has to be: one of a million posts takes some seconds.
const LONGEST_REST: Duration = Duration::from_mins(2);

/// The latest report with the inside of its page, or why there is none yet.
pub type DrawnReport = watch::Sender<Option<Result<Arc<(Report, String)>, Failed>>>;

#[derive(Template)]
#[template(path = "serve/report.html")]
struct ReportPage<'b> {
    body: &'b str,
    outcomes: Vec<Row>,
}

struct Row {
    name: String,
    href: String,
    posts: String,
}

/// Makes reports for as long as it is polled.
pub async fn keep(serving: Shared) {
    let mut changes = serving.index.changes();
    loop {
        // The sender lives as long as the index does.
        let _ = changes.changed().await;
        let began = serving.clock.elapsed();
        match draw(&serving).await {
            Ok(body) => drop(serving.drawn.send_replace(Some(Ok(body.into())))),
            Err(error) => {
                tracing::warn!("the overview stays as it is: {error}");
                serving.drawn.send_if_modified(|drawn| {
                    let is_first = !matches!(drawn, Some(Ok(_)));
                    if is_first {
                        *drawn = Some(Err(error.into()));
                    }
                    is_first
                });
            }
        }
        let took = serving.clock.elapsed().saturating_sub(began);
        serving.clock.sleep((took * REST).min(LONGEST_REST)).await;
    }
}

async fn draw(serving: &Shared) -> Result<(Report, String), StoreError> {
    let now = serving.clock.now().into();
    let options = ReportOptions::all_posts(&serving.store, &serving.database, now).await?;
    let report = report::gather(&serving.store, &options).await?;
    let body = report::render_body(&report);
    Ok((report, body))
}

pub async fn page(State(serving): State<Shared>) -> Result<Response, Failed> {
    serving.index.ready().await?;
    let mut drawn = serving.drawn.subscribe();
    let drawn = drawn.wait_for(Option::is_some).await;
    let drawn = drawn
        .expect("the sender lives as long as the server")
        .clone();
    let drawn = drawn.expect("it was waited for")?;
    let fresh = report::without_stale_quotes(&serving.store, &drawn.0).await?;
    let fresh = fresh.as_ref().map(report::render_body);
    let page = ReportPage {
        body: fresh.as_deref().unwrap_or(&drawn.1),
        outcomes: outcomes(&serving).await?,
    };
    Ok(html(StatusCode::OK, &page))
}

/// How many posts each outcome has: the labels first, the largest first.
async fn outcomes(serving: &Shared) -> Result<Vec<Row>, Failed> {
    let labels = serving.current_labels().await?;
    let mut counts = serving.index.columns().count_outcomes();
    let is_none = |outcome: &str| ["other", "unsure", "unlabelled"].contains(&outcome);
    counts.sort_by_key(|(outcome, posts)| (is_none(outcome), Reverse(*posts)));
    let row = |(outcome, posts): &(String, u64)| {
        let label = labels.iter().find(|label| label.slug == *outcome);
        let name = match (outcome.as_str(), label) {
            (_, Some(label)) => &label.label,
            ("unlabelled", None) => "not labelled yet",
            (slug, None) => slug,
        };
        Row {
            name: display::single_line(name, 60),
            href: address("/posts", [("outcome", outcome.as_str())].into_iter()),
            posts: display::thousands(*posts),
        }
    };
    let shown = counts.iter().filter(|(_, posts)| *posts > 0);
    Ok(shown.map(row).collect())
}
