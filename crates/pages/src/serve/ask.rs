//! The SQL of users: one statement that reads, with a limit on its rows, its bytes, its time, and on how many run at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;

use super::Serving;
use super::pages::Failed;
use topicmill_store::{Answered, Inquiry, Part, StoreError, Table};

/// How long a query may take.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Rows of an answer, at most.
pub const ROWS: u64 = 10_000;
/// Bytes of an answer, about, and of one row of it, at most.
const BYTES: usize = 16 * 1024 * 1024;
/// How long a query waits for those before it.
const TURN: Duration = Duration::from_secs(5);
/// How long the database may take to end a query whose time is up.
const ENDING: Duration = Duration::from_secs(5);

pub struct QueryAnswer {
    pub table: Table,
    /// There are more rows.
    pub is_cut: bool,
}

pub async fn answer(serving: &Serving, sql: &str, rows: u64) -> Result<QueryAnswer, Failed> {
    let turn = tokio::select! {
        turn = serving.queries.acquire() => turn,
        () = serving.clock.sleep(TURN) => {
            let said = "other queries are being answered; ask again in a moment";
            return Err(Failed(StatusCode::SERVICE_UNAVAILABLE, said.to_owned()));
        }
    };
    let _turn = turn.expect("nobody closes the semaphore");
    let stop = serving.stop.child_token();
    // Whoever asked may go away, and this is dropped with the connection.
    let _stop_when_dropped = stop.clone().drop_guard();
    let inquiry = Inquiry {
        sql: sql.to_owned(),
        limit: Some(rows),
        at_most: Some(LIMIT),
        patience: Some(LIMIT),
        longest: Some(BYTES),
        any_user: serving.any_user,
        stop: stop.clone(),
    };
    let (into, mut parts) = topicmill_store::parts();
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
                        .map(topicmill_store::weight)
                        .sum::<usize>();
                    table.rows.extend(rows);
                }
            }
            if bytes >= BYTES {
                is_full = true;
                stop.cancel();
            }
        }
        (table, is_full)
    };
    let asking = futures_util::future::join(serving.store.ask(inquiry, into), take);
    let mut asking = std::pin::pin!(asking);
    let late = serving.clock.sleep(LIMIT);
    let (asked, (table, is_full)) = tokio::select! {
        answered = &mut asking => answered,
        () = late => {
            stop.cancel();
            tokio::select! {
                // The database must have ended the query before its turn is given to the next one.
                _ = asking => {}
                () = serving.clock.sleep(ENDING) => {}
            }
            // Before it says which columns it gives, it is the server that takes long, and not the query.
            return Err(if has_begun.load(Relaxed) {
                Failed::wrong(format!(
                    "the query took longer than {} s and was ended; ask for less, or run it with `topicmill sql`",
                    LIMIT.as_secs()
                ))
            } else {
                StoreError::Away.into()
            });
        }
    };
    Ok(QueryAnswer {
        is_cut: is_full || asked? == Answered::Cut,
        table,
    })
}
