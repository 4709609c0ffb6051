//! Sends the rows of a query to its receiver, in parts of JSON values.

use std::time::Duration;

use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::postgres::{PgColumn, PgRow};
use sqlx::{Column, Row, TypeInfo, ValueRef};

use crate::query::{Part, PartBuilder, PartSender, QueryEnd, QueryRequest, names};

/// The reason why a statement did not complete.
pub enum Interrupted {
    /// The server or the connection failed.
    Server(sqlx::Error),
    /// The receiver took no rows within this time.
    ReceiverTimeout(Duration),
}

impl From<sqlx::Error> for Interrupted {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error)
    }
}

/// Sends rows in parts, up to the limit.
pub struct PartWriter<'p> {
    width: usize,
    left: u64,
    receive_timeout: Option<Duration>,
    builder: PartBuilder,
    into: &'p PartSender,
}

impl<'p> PartWriter<'p> {
    /// Sends the column names.
    pub async fn begin(columns: &[PgColumn], request: &QueryRequest, into: &'p PartSender) -> Self {
        let columns = names(columns.iter().map(Column::name));
        let width = columns.len();
        // A dropped receiver is noticed when the first rows are sent.
        drop(into.send(Part::Columns(columns)).await);
        Self {
            width,
            left: request.limit.unwrap_or(u64::MAX),
            receive_timeout: request.receive_timeout,
            builder: PartBuilder::default(),
            into,
        }
    }

    /// Sends the rows of a result, up to the limit.
    pub async fn send_rows(
        mut self,
        mut rows: impl futures_util::Stream<Item = sqlx::Result<PgRow>> + Unpin,
    ) -> Result<QueryEnd, Interrupted> {
        let mut end = QueryEnd::Complete;
        while let Some(row) = rows.try_next().await? {
            // One more row than the limit is read, to detect further rows.
            if self.left == 0 {
                end = QueryEnd::Truncated;
                break;
            }
            self.left -= 1;
            let values = (0..self.width).map(|i| value(&row, i)).collect();
            if let Some(part) = self.builder.add(values)
                && !self.send(part).await?
            {
                return Ok(QueryEnd::Cancelled);
            }
        }
        let rest = self.builder.rest();
        // A dropped receiver is not an error here.
        self.send(rest).await?;
        Ok(end)
    }

    /// Sends a part; false if the receiver was dropped.
    async fn send(&self, part: Part) -> Result<bool, Interrupted> {
        let sending = self.into.send(part);
        let Some(receive_timeout) = self.receive_timeout else {
            return Ok(sending.await.is_ok());
        };
        let sent = tokio::time::timeout(receive_timeout, sending).await;
        sent.map(|sent| sent.is_ok())
            .map_err(|_| Interrupted::ReceiverTimeout(receive_timeout))
    }
}

/// Converts a value from the server's text form to JSON.
fn value(row: &PgRow, i: usize) -> Value {
    // Missing if another session has just made a function return fewer columns.
    let Ok(raw) = row.try_get_raw(i) else {
        return Value::Null;
    };
    // An error for NULL, and for text that is not UTF-8, such as a `"char"` of an old server.
    let Ok(text) = raw.as_str() else {
        return Value::Null;
    };
    match raw.type_info().name() {
        "BOOL" => Value::from(text == "t"),
        // NaN and infinity are not JSON numbers, so they remain text.
        "FLOAT4" | "FLOAT8" => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => Value::from(text),
        },
        // JSON numbers; NaN remains text here too.
        "INT2" | "INT4" | "INT8" | "NUMERIC" => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        }
        "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        "BYTEA" => Value::from(text.trim_start_matches("\\x")),
        _ => Value::from(text),
    }
}
