//! The same things as JSON, under `/api`, as `openapi.json` describes them.

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
use super::ask;
use super::listing::{self, Parameters, head};
use super::pages::Failed;
use super::pages::post::{PostName, find};
use topicmill_store::Table;
use topicmill_tables::csv::to_csv;

pub const OPENAPI: &str = include_str!("openapi.json");

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

async fn overview(State(serving): State<Shared>) -> Result<Json<Value>, Failed> {
    serving.index.ready().await?;
    let columns = serving.index.columns();
    let standing = serving.index.standing();
    let outcomes: Vec<Value> = columns
        .count_outcomes()
        .into_iter()
        .map(|(outcome, posts)| json!({ "outcome": outcome, "posts": posts }))
        .collect();
    let time = |secs| chrono::DateTime::from_timestamp(secs, 0);
    let (first, last) = columns.span().unzip();
    let runs = serving.store.runs().recent_runs(None, 5).await?;
    Ok(Json(json!({
        "posts": standing.posts,
        "searched": standing.searched,
        "first": first.and_then(time),
        "last": last.and_then(time),
        "outcomes": outcomes,
        "runs": runs,
    })))
}

async fn labels(State(serving): State<Shared>) -> Result<Json<Value>, Failed> {
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
            json!({ "label": label.slug, "words": label.label, "posts": count.map_or(0, |(_, posts)| *posts) })
        })
        .collect();
    Ok(Json(
        json!({ "label_set": set.name, "version": set.hash().chars().take(12).collect::<String>(), "labels": labels }),
    ))
}

async fn posts(
    State(serving): State<Shared>,
    asked: Parameters,
) -> Result<Json<listing::PostList>, Failed> {
    Ok(Json(listing::list(&serving, &asked).await?))
}

async fn post(State(serving): State<Shared>, named: PostName) -> Result<Response, Failed> {
    Ok(Json(find(&serving, named).await?).into_response())
}

async fn sql(State(serving): State<Shared>, asked: Parameters) -> Result<Response, Failed> {
    let sql = asked.get("query").ok_or_else(|| {
        Failed::wrong("`query` is missing: give it one statement that reads".into())
    })?;
    let format = asked.get("format").unwrap_or("json");
    if !["json", "csv"].contains(&format) {
        return Err(Failed::wrong(format!(
            "`format={}` is none of json, csv",
            head(format)
        )));
    }
    let answer = ask::answer(&serving, sql, ask::ROWS).await?;
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

/// A body that counts as unread until its last piece is taken, so that slow clients do not fill the memory together.
fn metered(serving: &Shared, mut bytes: Bytes) -> Result<Body, Failed> {
    let kib = u32::try_from(bytes.len() / 1024).unwrap_or(u32::MAX);
    let unread = Arc::clone(&serving.unread).try_acquire_many_owned(kib);
    let unread = unread.map_err(|_| {
        let said = "other clients have not read their answers yet; ask again in a moment";
        Failed(StatusCode::SERVICE_UNAVAILABLE, said.to_owned())
    })?;
    let pieces = std::iter::from_fn(move || {
        let _held = &unread;
        (!bytes.is_empty()).then(|| bytes.split_to(PIECE.min(bytes.len())))
    });
    Ok(Body::from_stream(stream::iter(
        pieces.map(Ok::<_, Infallible>),
    )))
}

/// Bytes that are given to a connection at once.
const PIECE: usize = 64 * 1024;
/// Why writing a CSV into memory does not fail.
const FITS: &str = "memory takes what is written";

/// A table as a file for spreadsheets, none of whose cells is computed.
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
