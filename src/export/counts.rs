//! Counts for an export, shown in the summary and the data card.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::columns::DatasetColumn;
use topicmill_core::ColumnCell;
use topicmill_store::ColumnBatch;

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
    /// Number of rows whose text was deleted by retention.
    pub purged: u64,
    /// Number of rows for each label.
    pub labels: BTreeMap<String, u64>,
    /// Number of rows for each topic.
    pub topics: BTreeMap<String, u64>,
    /// Number of rows for each subreddit.
    pub subreddits: BTreeMap<String, u64>,
    /// The earliest posting time.
    pub first: Option<DateTime<Utc>>,
    /// The latest posting time.
    pub last: Option<DateTime<Utc>>,
    /// Number of bytes written.
    pub bytes: u64,
}

/// Increments the count for a name.
fn count(counts: &mut BTreeMap<String, u64>, name: ColumnCell) {
    let ColumnCell::Text(name) = name else { return };
    match counts.get_mut(name) {
        Some(n) => *n += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}

impl Counts {
    /// Adds rows with all fixed columns.
    pub(super) fn add(&mut self, batch: &ColumnBatch, columns: &[DatasetColumn]) {
        let cells = |name| {
            let place = columns.iter().position(|column| column.name == name);
            batch.columns[place.expect("every export has this column")].cells()
        };
        for (label, outcome) in cells("label").zip(cells("outcome")) {
            match (label, outcome) {
                (ColumnCell::Text(_), _) => count(&mut self.labels, label),
                (_, ColumnCell::Text("other")) => self.other += 1,
                (_, ColumnCell::Text(_)) => self.unsure += 1,
                _ => self.unlabelled += 1,
            }
        }
        cells("topic").for_each(|topic| count(&mut self.topics, topic));
        cells("subreddit").for_each(|subreddit| count(&mut self.subreddits, subreddit));
        let is_purged = |cell: &ColumnCell| *cell == ColumnCell::Boolean(true);
        self.purged += cells("text_purged").filter(is_purged).count() as u64;
        self.rows += batch.rows as u64;
        let times = cells("created_at").filter_map(|cell| match cell {
            ColumnCell::Time(millis) => DateTime::from_timestamp_millis(millis),
            _ => None,
        });
        for time in times {
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = Some(self.last.map_or(time, |last| last.max(time)));
        }
    }
}
