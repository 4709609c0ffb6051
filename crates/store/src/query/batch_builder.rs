//! Builds batches of bounded size from the values of rows, in order.

use chrono::{DateTime, NaiveDate};
use topicmill_core::{ColumnCell, ColumnCells, ColumnKind};

use super::columns::{ColumnBatch, ColumnStatement, corrupt};
use crate::StoreError;

/// Maximum number of rows in a batch: smaller batches cost more messages, larger ones keep the receiver waiting.
const ROWS_A_BATCH: usize = 2_048;
/// The approximate number of bytes of text in a batch; with the capacity of the channel, this bounds memory.
const BYTES_A_BATCH: usize = 1 << 20;

/// Builds the batches of a statement.
pub(super) struct BatchBuilder<'s> {
    statement: &'s ColumnStatement,
    batch: ColumnBatch,
    /// The column that receives the next value.
    at: usize,
}

impl<'s> BatchBuilder<'s> {
    pub fn new(statement: &'s ColumnStatement) -> Self {
        Self {
            statement,
            batch: ColumnBatch::new(statement),
            at: 0,
        }
    }

    /// Adds the next value of a row.
    pub fn put(&mut self, cell: ColumnCell<'_>) -> Result<(), StoreError> {
        if let ColumnCell::Text(text) = cell {
            self.batch.bytes += text.len();
        }
        if !self.batch.columns[self.at].push(cell) {
            return Err(self.wrong(&format!("{cell:?}")));
        }
        self.at += 1;
        Ok(())
    }

    /// Adds a row's list of numbers. Missing numbers become NULL.
    pub fn put_numbers(
        &mut self,
        mut numbers: impl Iterator<Item = Option<f64>>,
    ) -> Result<(), StoreError> {
        for i in 0..self.statement.list {
            let cell = match numbers.next() {
                None => ColumnCell::Null,
                Some(Some(number)) => ColumnCell::Number(number),
                Some(None) => return Err(self.wrong("not a list of numbers")),
            };
            self.batch.columns[self.at + i].push(cell);
        }
        Ok(())
    }

    /// Adds a row's list of numbers as JSON text, or NULL.
    pub fn put_packed(&mut self, list: ColumnCell<'_>) {
        let first = self.at;
        let none = || (ColumnCells::new(ColumnKind::Text), first);
        let (lists, _) = self.batch.packed.get_or_insert_with(none);
        lists.push(list);
    }

    /// Adds bytes in hexadecimal.
    pub fn put_hex(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.put(ColumnCell::Text(&topicmill_core::hex(bytes)))
    }

    /// Adds a stored text vector.
    pub fn put_vector(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(vector) = topicmill_core::TextVector::from_bytes(bytes.to_vec()) else {
            return Err(self.wrong("not a vector"));
        };
        self.batch.bytes += size_of::<f32>() * vector.dimensions();
        self.put(ColumnCell::Vector(&vector.numbers()))
    }

    /// Returns the error for a value of the wrong type, without the value.
    pub fn wrong(&self, found: &str) -> StoreError {
        // The debug form of a cell is `Kind(value)`. The value may be a post's text, so only the kind is included.
        let found = found.split_once('(').map_or(found, |(kind, _)| kind);
        let detail = match self.statement.kinds.get(self.at) {
            Some(kind) => {
                let column = self.at + 1;
                format!("column {column} of the export should be {kind:?}, but is {found}")
            }
            None => {
                format!("the scores of the export should be a list of numbers, but are {found}")
            }
        };
        // The error names the row by its first value, which has already been added.
        corrupt("posts", &self.batch.columns, self.batch.rows, detail)
    }

    /// Ends a row; returns the batch if it is full.
    pub fn end_row(&mut self) -> Option<ColumnBatch> {
        self.at = 0;
        self.batch.rows += 1;
        let full = self.batch.rows >= ROWS_A_BATCH || self.batch.bytes >= BYTES_A_BATCH;
        full.then(|| self.rest())
    }

    /// Returns the rows since the last batch.
    pub fn rest(&mut self) -> ColumnBatch {
        std::mem::replace(&mut self.batch, ColumnBatch::new(self.statement))
    }
}

/// Converts a time from SQLite to milliseconds since 1970.
pub(super) fn millis(text: &str) -> Option<i64> {
    match as_written(text.as_bytes()) {
        Some(millis) => Some(millis),
        None => DateTime::parse_from_rfc3339(text)
            .ok()
            .map(|time| time.timestamp_millis()),
    }
}

/// Parses times in topicmill's own format: `2026-11-21T12:00:00+00:00`. A general parser takes ten times as long.
fn as_written(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        let mut digits = text[from..to].iter();
        digits.try_fold(0, |number, digit| match digit {
            b'0'..=b'9' => Some(10 * number + u32::from(digit - b'0')),
            _ => None,
        })
    };
    let is_so = text.len() == 25
        && [4, 7, 10, 13, 16].map(|at| text[at]) == *b"--T::"
        && text[19..] == *b"+00:00";
    if !is_so {
        return None;
    }
    let year = i32::try_from(number(0, 4)?).ok()?;
    let day = NaiveDate::from_ymd_opt(year, number(5, 7)?, number(8, 10)?)?;
    let time = day.and_hms_opt(number(11, 13)?, number(14, 16)?, number(17, 19)?)?;
    Some(time.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_time_parsers_agree() {
        for text in [
            "2026-11-21T12:00:00+00:00",
            "1970-01-01T00:00:00+00:00",
            "2024-02-29T23:59:59+00:00",
        ] {
            let time = DateTime::parse_from_rfc3339(text).unwrap();
            assert_eq!(as_written(text.as_bytes()), Some(time.timestamp_millis()));
        }
        assert_eq!(
            millis("2026-11-21T13:00:00+01:00"),
            millis("2026-11-21T12:00:00Z")
        );
        for text in [
            "2026-02-30T12:00:00+00:00",
            "2026-11-21T25:00:00+00:00",
            "",
            "now",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
