//! The overview page, which is the report on all posts.
//!
//! Rendering takes seconds with a million posts, so a background task renders the report again after writes, and
//! requests wait only for the first report. Each response omits quotes from posts that have since been purged or edited
//! and shows the current label quality.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::watch;

use super::{PageError, html};
use crate::display;
use crate::report::{self, Report, ReportOptions};
use crate::serve::Shared;
use crate::serve::listing::address;
use topicmill_review::quality;
use topicmill_store::StoreError;

/// The URL for the review page.
const REVIEW: &str = "/review";
/// The pause after rendering, as a multiple of the rendering time. Under constant writes, rendering takes a tenth of
/// the time.
const PAUSE_FACTOR: u32 = 9;
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_mins(2);

/// The latest report with its HTML, or the error if there is none.
pub type RenderedReport = watch::Sender<Option<Result<Arc<(Report, String)>, PageError>>>;

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

/// Renders the report after each change; never returns.
pub async fn render_forever(serving: Shared) {
    let mut changes = serving.index.changes();
    loop {
        // This cannot fail because the sender lives as long as the index.
        let _ = changes.changed().await;
        let began = serving.clock.elapsed();
        match render(&serving).await {
            Ok(body) => drop(serving.overview.send_replace(Some(Ok(body.into())))),
            Err(error) => {
                tracing::warn!(
                    "cannot update the overview, so the previous report is still shown: {error}"
                );
                serving.overview.send_if_modified(|rendered| {
                    let is_first = !matches!(rendered, Some(Ok(_)));
                    if is_first {
                        *rendered = Some(Err(error.into()));
                    }
                    is_first
                });
            }
        }
        let took = serving.clock.elapsed().saturating_sub(began);
        serving
            .clock
            .sleep((took * PAUSE_FACTOR).min(MAX_PAUSE))
            .await;
    }
}

async fn render(serving: &Shared) -> Result<(Report, String), StoreError> {
    let now = serving.clock.now().into();
    let options = ReportOptions::all_posts(&serving.store, &serving.database, now).await?;
    let report = report::gather(&serving.store, &options).await?;
    let body = report::render_body(&report, Some(REVIEW));
    Ok((report, body))
}

/// Renders the page.
pub async fn page(State(serving): State<Shared>) -> Result<Response, PageError> {
    serving.index.ready().await?;
    let mut rendered = serving.overview.subscribe();
    let rendered = rendered.wait_for(Option::is_some).await;
    let rendered = rendered
        .expect("the sender lives as long as the server")
        .clone();
    let rendered = rendered.expect("`wait_for` returned a value")?;
    let mut fresh = report::without_stale_quotes(&serving.store, &rendered.0).await?;
    // New answers do not trigger a new report, so the quality is measured here.
    let quality = quality::of_current_labels(&serving.store).await?;
    if quality != rendered.0.quality {
        let report = fresh.unwrap_or_else(|| rendered.0.clone());
        fresh = Some(Report { quality, ..report });
    }
    let fresh = fresh.map(|report| report::render_body(&report, Some(REVIEW)));
    let page = ReportPage {
        body: fresh.as_deref().unwrap_or(&rendered.1),
        outcomes: outcomes(&serving).await?,
    };
    Ok(html(StatusCode::OK, &page))
}

/// Returns the outcomes with their post counts: labels first, each group sorted by size.
async fn outcomes(serving: &Shared) -> Result<Vec<Row>, PageError> {
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
