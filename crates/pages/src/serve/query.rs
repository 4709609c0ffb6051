//! Runs users' read-only SQL queries, with limits on rows, bytes, time and concurrency.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;

use super::Serving;
use super::pages::PageError;
use topicmill_store::{Part, QueryEnd, QueryRequest, StoreError, Table};

/// Time limit for a query.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of rows in a result.
pub const MAX_ROWS: u64 = 10_000;
/// Maximum number of bytes in a row, and approximate maximum for a result.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Time limit for waiting for earlier queries.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the database to cancel a query.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a query.
pub struct QueryResult {
    /// Columns and rows.
    pub table: Table,
    /// True if the result was truncated.
    pub is_cut: bool,
}

/// Runs a query and returns at most `rows` rows.
pub async fn run_query(serving: &Serving, sql: &str, rows: u64) -> Result<QueryResult, PageError> {
    let turn = tokio::select! {
        turn = serving.queries.acquire() => turn,
        () = serving.clock.sleep(QUEUE_TIMEOUT) => {
            let message = "too many queries are running; try again in a few seconds";
            return Err(PageError(StatusCode::SERVICE_UNAVAILABLE, message.to_owned()));
        }
    };
    let _turn = turn.expect("the semaphore is never closed");
    let stop = serving.stop.child_token();
    // This cancels the query if the client disconnects.
    let _stop_when_dropped = stop.clone().drop_guard();
    let request = QueryRequest {
        sql: sql.to_owned(),
        limit: Some(rows),
        timeout: Some(TIMEOUT),
        receive_timeout: Some(TIMEOUT),
        max_row_bytes: Some(MAX_BYTES),
        allow_superuser: serving.any_user,
        stop: stop.clone(),
    };
    let (into, mut parts) = topicmill_store::part_channel();
    let has_begun = AtomicBool::new(false);
    let take = async {
        let (mut table, mut is_full, mut bytes) = (Table::default(), false, 0);
        while let Some(part) = parts.recv().await {
            has_begun.store(true, Relaxed);
            match part {
                Part::Columns(columns) => table.columns = columns,
                Part::Rows(rows) => {
                    bytes += rows
                        .iter()
                        .flatten()
                        .map(topicmill_store::value_bytes)
                        .sum::<usize>();
                    table.rows.extend(rows);
                }
            }
            if bytes >= MAX_BYTES {
                is_full = true;
                stop.cancel();
            }
        }
        (table, is_full)
    };
    let running = futures_util::future::join(serving.store.run_query(request, into), take);
    let mut running = std::pin::pin!(running);
    let late = serving.clock.sleep(TIMEOUT);
    let (end, (table, is_full)) = tokio::select! {
        result = &mut running => result,
        () = late => {
            stop.cancel();
            tokio::select! {
                // This waits for the cancellation so that the next query does not start before it.
                _ = running => {}
                () = serving.clock.sleep(CANCEL_TIMEOUT) => {}
            }
            // If not even the columns have arrived, the database is slow or unreachable; otherwise the query is slow.
            return Err(if has_begun.load(Relaxed) {
                PageError::bad_request(format!(
                    "the query took longer than {} s and was cancelled; narrow it, or run it with `topicmill sql`",
                    TIMEOUT.as_secs()
                ))
            } else {
                StoreError::NotResponding.into()
            });
        }
    };
    Ok(QueryResult {
        is_cut: is_full || end? == QueryEnd::Truncated,
        table,
    })
}
