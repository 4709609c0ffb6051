//! Rows in the types of their columns, and what is counted of them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::ExportError;
use super::columns::{Column, FIXED, Kind};

/// Places of columns that the counts need.
const FULLNAME: usize = 0;
const TOPIC: usize = 2;
const CREATED_AT: usize = 7;
const LABEL: usize = 11;
const OUTCOME: usize = 15;

/// A value of a row in its column's type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Time(DateTime<Utc>),
}

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows.
    pub rows: u64,
    /// Rows that belong to none of the labels.
    pub other: u64,
    /// Rows whose best label has too low a score.
    pub unsure: u64,
    /// Rows without a label, because they were not labelled yet.
    pub unlabelled: u64,
    /// Rows of each label.
    pub labels: BTreeMap<String, u64>,
    /// Rows of each topic.
    pub topics: BTreeMap<String, u64>,
    /// When the first of the posts was posted.
    pub first: Option<DateTime<Utc>>,
    /// When the last of the posts was posted.
    pub last: Option<DateTime<Utc>>,
    /// Bytes written.
    pub bytes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, row: &[Cell]) {
        self.rows += 1;
        match (&row[LABEL], &row[OUTCOME]) {
            (Cell::Text(label), _) => *self.labels.entry(label.clone()).or_default() += 1,
            (_, Cell::Text(outcome)) if outcome == "other" => self.other += 1,
            (_, Cell::Text(_)) => self.unsure += 1,
            _ => self.unlabelled += 1,
        }
        if let Cell::Text(topic) = &row[TOPIC] {
            *self.topics.entry(topic.clone()).or_default() += 1;
        }
        if let Cell::Time(at) = row[CREATED_AT] {
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = Some(self.last.map_or(at, |last| last.max(at)));
        }
    }
}

/// A row in the types of its columns; the packed scores, its last value, in one cell a label.
pub(super) fn cells(mut row: Vec<Value>, columns: &[Column]) -> Result<Vec<Cell>, ExportError> {
    let packed = row.pop();
    let wrong = |row: &[Value], column: &Column, value: &Value| ExportError::Value {
        fullname: row[FULLNAME].as_str().unwrap_or_default().to_owned(),
        column: column.name.clone(),
        value: value.to_string(),
        kind: column.kind.name(),
    };
    let mut cells = Vec::with_capacity(columns.len());
    for (i, column) in columns[..FIXED.len()].iter().enumerate() {
        let value = std::mem::take(&mut row[i]);
        match cell(value, column.kind) {
            Ok(cell) => {
                if i == FULLNAME
                    && let Cell::Text(name) = &cell
                {
                    row[FULLNAME] = Value::from(name.as_str());
                }
                cells.push(cell);
            }
            Err(value) => return Err(wrong(&row, column, &value)),
        }
    }
    let packed = packed.unwrap_or_default();
    let text = packed.as_str().unwrap_or_default();
    // `[0.5,0.25]` in SQLite, `{0.5,0.25}` in PostgreSQL.
    let numbers = text.trim_matches(['[', ']', '{', '}']);
    let mut numbers = numbers.split(',').filter(|number| !number.is_empty());
    for column in &columns[FIXED.len()..] {
        cells.push(match numbers.next().map(|number| number.trim().parse()) {
            None => Cell::Null,
            Some(Ok(number)) => Cell::Number(number),
            Some(Err(_)) => return Err(wrong(&row, column, &packed)),
        });
    }
    Ok(cells)
}

/// A value in a column's type; the value again if it has none.
fn cell(value: Value, kind: Kind) -> Result<Cell, Value> {
    let cell = match (kind, &value) {
        (_, Value::Null) => Some(Cell::Null),
        (Kind::Text, Value::String(_)) => match value {
            Value::String(text) => return Ok(Cell::Text(text)),
            _ => unreachable!("matched above"),
        },
        (Kind::Integer, Value::Number(number)) => number.as_i64().map(Cell::Integer),
        (Kind::Number, Value::Number(number)) => number.as_f64().map(Cell::Number),
        (Kind::Boolean, Value::Bool(is)) => Some(Cell::Boolean(*is)),
        // SQLite has no other.
        (Kind::Boolean, Value::Number(number)) => number.as_i64().map(|n| Cell::Boolean(n != 0)),
        (Kind::Time, Value::String(text)) => time(text).map(Cell::Time),
        _ => None,
    };
    cell.ok_or(value)
}

/// A time as SQLite holds it, or as PostgreSQL prints it.
fn time(text: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.ok().map(|time| time.to_utc())
}
