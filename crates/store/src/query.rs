//! Answers to statements that the user wrote: columns and values of any type, as JSON values, part by part.
//!
//! The database refuses what is no single statement that reads; nothing here reads the text to find out.

mod columns;
mod gathering;
mod postgres;
mod sqlite;

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::columns::{Batches, ColumnBatch, ColumnReading, Incoming, ReadStatement, batches};
use super::sql::SqlStore;
use super::{Result, StoreError};

/// Parts that wait for whoever takes them.
const PARTS: usize = 4;
/// Rows of a part, at most.
const ROWS_A_PART: usize = 256;
/// Bytes of a part, about: a row more than that is a part of its own.
const BYTES_A_PART: usize = 64 * 1024;

/// Rows of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Values, as long as `columns` each: null, boolean, number or string.
    pub rows: Vec<Vec<Value>>,
}

/// A statement of the user, and on what terms it is answered.
#[derive(Debug, Clone, Default)]
pub struct Inquiry {
    /// One statement.
    pub sql: String,
    /// Rows to answer with, at most.
    pub limit: Option<u64>,
    /// After which the server ends the statement by itself, should this process be gone by then.
    pub at_most: Option<Duration>,
    /// Timeout for the receiver to take one part, after which a server's statement is cancelled, because it blocks
    /// others as long as it runs.
    pub patience: Option<Duration>,
    /// Bytes of one row, at most. SQLite makes no value of more than a sixteenth of it then, and no row of more than
    /// 256 columns, so that a statement cannot fill the memory before its first row is seen.
    pub longest: Option<usize>,
    /// True if a database user with more rights than reading and writing tables is accepted.
    pub any_user: bool,
    /// Ends the statement, on the server too.
    pub stop: CancellationToken,
}

/// A part of an answer; the columns come first, once.
#[derive(Debug)]
pub enum Part {
    /// Names of the columns, in order; no two are the same.
    Columns(Vec<String>),
    /// Values, one a column each: null, boolean, number or string.
    Rows(Vec<Vec<Value>>),
}

/// The end of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// With its last row.
    Whole,
    /// At the limit; there are more rows.
    Cut,
    /// By [`Inquiry::stop`], or because nobody takes its parts any more.
    Stopped,
}

/// The receiver of the parts of a result.
pub type Parts = mpsc::Sender<Part>;

/// A channel for the parts of an answer.
pub fn parts() -> (Parts, mpsc::Receiver<Part>) {
    mpsc::channel(PARTS)
}

/// Bytes of a value in memory, about.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => 16 + values.iter().map(weight).sum::<usize>(),
        Value::Object(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| name.len() + weight(value));
            16 + pairs.sum::<usize>()
        }
        _ => 8,
    }
}

/// Rows on their way into parts.
#[derive(Default)]
struct Packing {
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl Packing {
    /// Adds a row; the part, if that filled it.
    fn add(&mut self, row: Vec<Value>) -> Option<Part> {
        self.bytes += row.iter().map(weight).sum::<usize>();
        self.rows.push(row);
        let full = self.rows.len() >= ROWS_A_PART || self.bytes >= BYTES_A_PART;
        full.then(|| self.rest())
    }

    /// Rows since the last part.
    fn rest(&mut self) -> Part {
        self.bytes = 0;
        Part::Rows(std::mem::take(&mut self.rows))
    }
}

fn refusal(text: impl std::fmt::Display) -> StoreError {
    StoreError::Query(format!("run the query: {text}"))
}

/// NUL, which SQL cannot contain and databases take for the end of the text.
fn check(sql: &str) -> Result<()> {
    if sql.contains('\0') {
        return Err(refusal("it holds a NUL character; take that out"));
    }
    Ok(())
}

/// Names of columns; one that is there already gets a number, so that no object loses a value.
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

/// The whole answer to a statement of the program's own.
async fn whole(
    sql: &str,
    ask: impl AsyncFnOnce(Inquiry, Parts) -> Result<Answered>,
) -> Result<Table> {
    let (into, mut parts) = parts();
    let inquiry = Inquiry {
        sql: sql.to_owned(),
        any_user: true,
        ..Inquiry::default()
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
    // Side by side: the channel has room for a few parts only, and then the statement waits.
    let (asked, ()) = futures_util::future::join(ask(inquiry, into), take).await;
    asked.map(|_| table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_json_weighs_as_much_as_texts() {
        let text = "x".repeat(1_000);
        let json = serde_json::json!({ "a": [text, null], "b": { "c": text } });
        assert!((2_000..2_100).contains(&weight(&json)), "{}", weight(&json));
        assert_eq!(weight(&Value::from(text)), 1_000);
        assert_eq!(weight(&Value::Null), 8);
        let mut packing = Packing::default();
        let row = vec![Value::from(vec!["x".repeat(BYTES_A_PART)])];
        assert!(packing.add(row).is_some(), "it fills a part");
    }

    #[test]
    fn no_two_columns_have_one_name() {
        let given = ["a", "a", "a_2", "a", "b"];
        assert_eq!(names(given.into_iter()), ["a", "a_2", "a_2_2", "a_3", "b"]);
    }
}
