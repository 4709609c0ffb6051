//! Runs the user's read-only statements and returns columns and values of any type as JSON, part by part.
//!
//! The database itself rejects everything but a single statement that reads. This module does not parse SQL to do so.

mod batch_builder;
mod columns;
mod postgres;
mod sqlite;

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::columns::{
    BatchReceiver, BatchSender, ColumnBatch, ColumnQuery, ColumnStatement, batch_channel,
};
use super::sql::SqlStore;
use super::{Result, Store, StoreError};

/// Capacity of the channel, in parts.
const PARTS: usize = 4;
/// Maximum number of rows in a part.
const ROWS_A_PART: usize = 256;
/// Size in bytes at which a part is complete. A large row can make a part larger.
const BYTES_A_PART: usize = 64 * 1024;

/// The result of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Column names, in order.
    pub columns: Vec<String>,
    /// Rows with one value for each column: null, boolean, number or string.
    pub rows: Vec<Vec<Value>>,
}

/// A user's statement, with its limits.
#[derive(Debug, Clone, Default)]
pub struct QueryRequest {
    /// The statement.
    pub sql: String,
    /// Maximum number of rows to return.
    pub limit: Option<u64>,
    /// Time limit that the server enforces by itself, in case this process is gone by then.
    pub timeout: Option<Duration>,
    /// Time limit for the receiver to take a part. After this time, the statement is cancelled on a PostgreSQL server,
    /// because a running statement blocks others.
    pub receive_timeout: Option<Duration>,
    /// True to accept a database user with privileges beyond reading and writing tables.
    pub allow_superuser: bool,
    /// Cancels the statement, on the server too.
    pub stop: CancellationToken,
}

/// A part of a result. The columns are sent first, once.
#[derive(Debug)]
pub enum Part {
    /// Distinct column names, in order.
    Columns(Vec<String>),
    /// Rows with one value for each column: null, boolean, number or string.
    Rows(Vec<Vec<Value>>),
}

/// The way in which a query ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryEnd {
    /// After its last row.
    Complete,
    /// At the limit, with more rows available.
    Truncated,
    /// Cancelled by [`QueryRequest::stop`], or because the receiver was dropped.
    Cancelled,
}

/// The sending end of the channel for parts.
pub type PartSender = mpsc::Sender<Part>;

/// Creates a channel for the parts of a result.
pub fn part_channel() -> (PartSender, mpsc::Receiver<Part>) {
    mpsc::channel(PARTS)
}

/// Returns the approximate size of a value in memory, in bytes.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => 16 + values.iter().map(value_bytes).sum::<usize>(),
        Value::Object(pairs) => {
            let bytes = |(name, value): (&String, &Value)| name.len() + value_bytes(value);
            16 + pairs.iter().map(bytes).sum::<usize>()
        }
        _ => 8,
    }
}

/// Collects rows into parts.
#[derive(Default)]
struct PartBuilder {
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl PartBuilder {
    /// Adds a row; returns the part if it is full.
    fn add(&mut self, row: Vec<Value>) -> Option<Part> {
        self.bytes += row.iter().map(value_bytes).sum::<usize>();
        self.rows.push(row);
        let full = self.rows.len() >= ROWS_A_PART || self.bytes >= BYTES_A_PART;
        full.then(|| self.rest())
    }

    /// Returns the rows since the last part.
    fn rest(&mut self) -> Part {
        self.bytes = 0;
        Part::Rows(std::mem::take(&mut self.rows))
    }
}

fn query_error(text: impl std::fmt::Display) -> StoreError {
    StoreError::Query(format!("cannot run the query: {text}"))
}

/// Rejects NUL, which databases treat as the end of a statement.
fn check(sql: &str) -> Result<()> {
    if sql.contains('\0') {
        return Err(query_error("it contains a NUL character; remove it"));
    }
    Ok(())
}

/// Returns distinct column names: a repeated name is numbered, so that no JSON object loses a value.
fn names<'n>(columns: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        let mut name = column.to_owned();
        let mut n = 1;
        while names.contains(&name) {
            n += 1;
            name = format!("{column}_{n}");
        }
        names.push(name);
    }
    names
}

impl Store {
    /// Runs a read-only statement that is part of the program, and returns the complete result.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        let (into, mut parts) = part_channel();
        let request = QueryRequest {
            sql: sql.to_owned(),
            allow_superuser: true,
            ..QueryRequest::default()
        };
        let mut table = Table::default();
        let take = async {
            while let Some(part) = parts.recv().await {
                match part {
                    Part::Columns(columns) => table.columns = columns,
                    Part::Rows(rows) => table.rows.extend(rows),
                }
            }
        };
        // Concurrently, because the statement waits while the channel is full.
        let (ended, ()) = futures_util::future::join(self.run_query(request, into), take).await;
        ended.map(|_| table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_json_includes_its_strings() {
        let text = "x".repeat(1_000);
        let json = serde_json::json!({ "a": [text, null], "b": { "c": text } });
        let bytes = value_bytes(&json);
        assert!((2_000..2_100).contains(&bytes), "{bytes}");
        assert_eq!(value_bytes(&Value::from(text)), 1_000);
        assert_eq!(value_bytes(&Value::Null), 8);
        let mut builder = PartBuilder::default();
        let row = vec![Value::from(vec!["x".repeat(BYTES_A_PART)])];
        assert!(builder.add(row).is_some(), "it fills a part");
    }

    #[test]
    fn column_names_are_distinct() {
        let given = ["a", "a", "a_2", "a", "b"];
        assert_eq!(names(given.into_iter()), ["a", "a_2", "a_2_2", "a_3", "b"]);
    }
}
