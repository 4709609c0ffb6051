//! The overview page, which is the report on all posts.
//!
//! Rendering takes seconds with a million posts, so the report is kept until a run writes something or an annotator
//! answers. Each response omits quotes from posts that have since been purged or edited.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{PageError, address, html, outcome_name};
use crate::display;
use crate::report::{self, Report, ReportOptions};
use crate::serve::{Serving, Shared};
use topicmill_core::ThingKind;
use topicmill_store::browse::{ChangeMarker, PostCounts};
use topicmill_store::{StoreError, StoredGold};

/// The URL for the review page.
const REVIEW: &str = "/review";
/// Minimum age of a report before a new one replaces it, as a multiple of the rendering time. Under constant writes,
/// rendering takes a tenth of the time.
const PAUSE_FACTOR: u32 = 9;

/// A report and the post counts, with the state of the database that they show.
pub struct RenderedReport {
    marker: ChangeMarker,
    /// The answers; they do not change the marker.
    answers: Vec<StoredGold>,
    /// Time at which it was rendered.
    at: Duration,
    /// Duration of the rendering.
    took: Duration,
    report: Report,
    body: String,
    counts: PostCounts,
}

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

/// Returns the current report.
async fn rendered(serving: &Serving) -> Result<Arc<RenderedReport>, StoreError> {
    // While one request renders the report, the others wait for it.
    let mut rendered = serving.overview.lock().await;
    let marker = serving.store.posts().change_marker().await?;
    let answers = serving.store.gold().answers().await?;
    let at = serving.clock.elapsed();
    if let Some(last) = &*rendered
        && last.answers == answers
        && (last.marker == marker || at.saturating_sub(last.at) < last.took * PAUSE_FACTOR)
    {
        return Ok(Arc::clone(last));
    }
    let now = serving.clock.now().into();
    let options = ReportOptions::all_posts(&serving.store, &serving.database, now).await?;
    let report = report::gather(&serving.store, &options).await?;
    let new = Arc::new(RenderedReport {
        marker,
        answers,
        body: report::render_body(&report, Some(REVIEW)),
        report,
        counts: serving.store.posts().count_posts(ThingKind::Post).await?,
        took: serving.clock.elapsed().saturating_sub(at),
        at,
    });
    *rendered = Some(Arc::clone(&new));
    Ok(new)
}

/// Renders the page.
pub async fn page(State(serving): State<Shared>) -> Result<Response, PageError> {
    let rendered = rendered(&serving).await?;
    let newer = report::without_stale_quotes(&serving.store, &rendered.report).await?;
    let newer = newer.map(|report| report::render_body(&report, Some(REVIEW)));
    let current = serving.store.labels().current().await?;
    let labels = current.as_ref().map_or(&[][..], |(_, set)| &set.labels);
    let row = |(outcome, posts): (String, u64)| Row {
        name: display::single_line(&outcome_name(&outcome, labels), 60),
        href: address("/posts", [("outcome", outcome.as_str())]),
        posts: display::thousands(posts),
    };
    let outcomes = rendered.counts.all_outcomes().into_iter();
    let page = ReportPage {
        body: newer.as_deref().unwrap_or(&rendered.body),
        outcomes: outcomes.map(row).collect(),
    };
    Ok(html(StatusCode::OK, &page))
}
