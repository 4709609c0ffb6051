//! The JSON API under `/api`, described in `openapi.json`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};

use super::Shared;
use super::listing::{self, Parameters, head};
use super::pages::PageError;
use super::pages::post::{PostName, find};
use super::query;
use topicmill_store::Table;
use topicmill_tables::csv::to_csv;

/// The `OpenAPI` description.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Returns the API's routes.
pub fn router() -> Router<Shared> {
    Router::new()
        .route("/api/openapi.json", get(openapi))
        .route("/api/overview", get(overview))
        .route("/api/labels", get(labels))
        .route("/api/posts", get(posts))
        .route("/api/posts/{fullname}", get(post))
        .route("/api/sql", get(sql))
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn overview(State(serving): State<Shared>) -> Result<Json<Value>, PageError> {
    serving.index.ready().await?;
    let columns = serving.index.columns();
    let progress = serving.index.progress();
    let outcomes: Vec<Value> = columns
        .count_outcomes()
        .into_iter()
        .map(|(outcome, posts)| json!({ "outcome": outcome, "posts": posts }))
        .collect();
    let time = |secs| chrono::DateTime::from_timestamp(secs, 0);
    let (first, last) = columns.span().unzip();
    let runs = serving.store.runs().recent_runs(None, 5).await?;
    Ok(Json(json!({
        "posts": progress.posts,
        "searched": progress.searched,
        "first": first.and_then(time),
        "last": last.and_then(time),
        "outcomes": outcomes,
        "runs": runs,
    })))
}

async fn labels(State(serving): State<Shared>) -> Result<Json<Value>, PageError> {
    let Some(target) = serving.store.labels().current_target().await? else {
        return Ok(Json(json!({ "label_set": null, "labels": [] })));
    };
    let set = serving.store.labels().label_set(target.label_set).await?;
    serving.index.ready().await?;
    let counts = serving.index.columns().count_outcomes();
    let labels: Vec<Value> = set
        .labels
        .iter()
        .map(|label| {
            let count = counts.iter().find(|(outcome, _)| *outcome == label.slug);
            json!({ "label": label.slug, "label_name": label.label, "posts": count.map_or(0, |(_, posts)| *posts) })
        })
        .collect();
    Ok(Json(
        json!({ "label_set": set.name, "version": set.hash().chars().take(12).collect::<String>(), "labels": labels }),
    ))
}

async fn posts(
    State(serving): State<Shared>,
    parameters: Parameters,
) -> Result<Json<listing::PostList>, PageError> {
    Ok(Json(listing::list(&serving, &parameters).await?))
}

async fn post(State(serving): State<Shared>, named: PostName) -> Result<Response, PageError> {
    Ok(Json(find(&serving, named).await?).into_response())
}

async fn sql(State(serving): State<Shared>, parameters: Parameters) -> Result<Response, PageError> {
    let sql = parameters.get("query").ok_or_else(|| {
        PageError::bad_request(
            "the parameter `query` is missing: pass one read-only SQL statement".into(),
        )
    })?;
    let format = parameters.get("format").unwrap_or("json");
    if !["json", "csv"].contains(&format) {
        return Err(PageError::bad_request(format!(
            "`format={}` is not one of json, csv",
            head(format)
        )));
    }
    let answer = query::run_query(&serving, sql, query::MAX_ROWS).await?;
    let response = if format == "csv" {
        csv(&answer.table, answer.is_cut)
    } else {
        let json = json!({
            "columns": answer.table.columns,
            "rows": answer.table.rows,
            "is_cut": answer.is_cut,
        });
        Json(json).into_response()
    };
    let (mut head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.expect(FITS);
    head.headers.insert(CONTENT_LENGTH, bytes.len().into());
    Ok(Response::from_parts(head, metered(&serving, bytes)?))
}

/// Returns a body that counts as unread until its last chunk has been sent, to limit the memory that slow clients use.
fn metered(serving: &Shared, mut bytes: Bytes) -> Result<Body, PageError> {
    let kib = u32::try_from(bytes.len() / 1024).unwrap_or(u32::MAX);
    let unread = Arc::clone(&serving.unread).try_acquire_many_owned(kib);
    let unread = unread.map_err(|_| {
        let message = "other clients are still downloading results; try again in a few seconds";
        PageError(StatusCode::SERVICE_UNAVAILABLE, message.to_owned())
    })?;
    let pieces = std::iter::from_fn(move || {
        let _permit = &unread;
        (!bytes.is_empty()).then(|| bytes.split_to(PIECE.min(bytes.len())))
    });
    Ok(Body::from_stream(stream::iter(
        pieces.map(Ok::<_, Infallible>),
    )))
}

/// Number of bytes in a response chunk.
const PIECE: usize = 64 * 1024;
/// The reason why reading a body from memory cannot fail.
const FITS: &str = "a body in memory can be read";

/// Returns a table as a CSV download. Escapes cells that a spreadsheet would run as formulas.
fn csv(table: &Table, is_cut: bool) -> Response {
    let names = table.columns.iter().cloned().map(Value::from).collect();
    let bytes = to_csv([&names].into_iter().chain(&table.rows), true);
    let name = if is_cut {
        "answer-cut.csv"
    } else {
        "answer.csv"
    };
    let disposition = format!("attachment; filename=\"{name}\"");
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, disposition),
    ];
    (headers, bytes).into_response()
}
