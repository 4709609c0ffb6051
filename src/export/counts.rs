//! Counts for an export, shown in the summary and the data card.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::columns::DatasetColumn;
use topicmill_core::ColumnCell;
use topicmill_store::ColumnBatch;

/// The columns that are counted.
const COUNTED: [&str; 4] = ["topic", "created_at", "label", "outcome"];

/// The counts for an export.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows.
    pub rows: u64,
    /// Number of rows with the outcome `other`: a background topic fits better than every label.
    pub other: u64,
    /// Number of rows with the outcome `unsure`: the best score is below the threshold.
    pub unsure: u64,
    /// Number of rows that are not labelled yet.
    pub unlabelled: u64,
    /// Number of rows for each label.
    pub labels: BTreeMap<String, u64>,
    /// Number of rows for each topic.
    pub topics: BTreeMap<String, u64>,
    /// The earliest posting time.
    pub first: Option<DateTime<Utc>>,
    /// The latest posting time.
    pub last: Option<DateTime<Utc>>,
    /// Number of bytes written.
    pub bytes: u64,
}

/// Increments the count for a name.
pub(super) fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(n) => *n += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}

impl Counts {
    /// Adds rows with all fixed columns.
    pub(super) fn add(&mut self, batch: &ColumnBatch, columns: &[DatasetColumn]) {
        let [topics, times, labels, outcomes] = COUNTED.map(|name| {
            let place = columns.iter().position(|column| column.name == name);
            batch.columns[place.expect("a column of every export")].cells()
        });
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let rows = topics.zip(times).zip(labels.zip(outcomes));
        for ((topic, time), (label, outcome)) in rows {
            match (label, outcome) {
                (ColumnCell::Text(label), _) => count(&mut self.labels, label),
                (_, ColumnCell::Text("other")) => self.other += 1,
                (_, ColumnCell::Text(_)) => self.unsure += 1,
                _ => self.unlabelled += 1,
            }
            if let ColumnCell::Text(topic) = topic {
                count(&mut self.topics, topic);
            }
            if let ColumnCell::Time(time) = time {
                (first, last) = (first.min(time), last.max(time));
            }
        }
        self.rows += batch.rows as u64;
        if first <= last {
            let time = DateTime::from_timestamp_millis;
            self.first = self.first.into_iter().chain(time(first)).min();
            self.last = self.last.into_iter().chain(time(last)).max();
        }
    }
}
