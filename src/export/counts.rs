//! What is counted of the rows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use topicmill_core::ColumnCell;
use topicmill_store::ColumnBatch;

/// Places of columns that the counts need.
const TOPIC: usize = 2;
const CREATED_AT: usize = 7;
const LABEL: usize = 11;
const OUTCOME: usize = 15;

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
    /// Rows of each part of a split, in its order; empty without a split.
    pub parts: Vec<SplitPart>,
    /// Groups of posts with almost the same text that a split left together; `None` without a split.
    pub groups: Option<u64>,
    /// Bytes written.
    pub bytes: u64,
}

/// A part of a split.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SplitPart {
    /// `train`, `validation` or `test`.
    pub name: String,
    /// The share that was asked for, in percent.
    pub wanted: u32,
    /// Rows.
    pub rows: u64,
    /// Rows of each outcome: a label, `other` or `unsure`.
    pub outcomes: BTreeMap<String, u64>,
}

impl SplitPart {
    /// A part without rows yet.
    pub(super) fn new((name, wanted): (&str, u32)) -> Self {
        Self {
            name: name.to_owned(),
            wanted,
            ..Self::default()
        }
    }
}

/// One more of something that has a name.
pub(super) fn count(of: &mut BTreeMap<String, u64>, name: &str) {
    match of.get_mut(name) {
        Some(n) => *n += 1,
        None => drop(of.insert(name.to_owned(), 1)),
    }
}

impl Counts {
    /// Adds rows with all the fixed columns; `part` says in which part of a split a row is.
    pub(super) fn add(&mut self, batch: &ColumnBatch, part: impl Fn(usize) -> usize) {
        let [topics, times, labels, outcomes] =
            [TOPIC, CREATED_AT, LABEL, OUTCOME].map(|column| batch.columns[column].cells());
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let rows = topics.zip(times).zip(labels.zip(outcomes)).enumerate();
        for (row, ((topic, time), (label, outcome))) in rows {
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
            if let Some(part) = self.parts.get_mut(part(row)) {
                part.rows += 1;
                if let ColumnCell::Text(outcome) = outcome {
                    count(&mut part.outcomes, outcome);
                }
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
