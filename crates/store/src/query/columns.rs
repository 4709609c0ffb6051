//! Query results as columns, for statements that return many rows. The caller declares the types of the columns.
//!
//! The input is values as a database returns them. The output is [`ColumnBatch`]es, in which the values of a column are
//! contiguous. JSON values, as in [`super::Part`], would take longer than the rest of an export.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use topicmill_core::{ColumnCell, ColumnCells, ColumnKind};

use crate::StoreError;

/// Capacity of the channel, in batches: one Parquet row group is written while the next one is read.
const BATCHES: usize = 32;

/// A statement with the types of its columns.
#[derive(Debug, Clone)]
pub struct ColumnStatement {
    /// The statement.
    pub sql: String,
    /// The types of its columns; the first column is the fullname of a post.
    pub kinds: Vec<ColumnKind>,
    /// The length of the list of numbers that follows these columns, or 0 if there is no list. Each number becomes a
    /// column of [`ColumnKind::Number`].
    pub list: usize,
}

/// A statement to run in one snapshot.
#[derive(Debug, Clone)]
pub struct ColumnQuery {
    /// The statement.
    pub statement: ColumnStatement,
    /// True to accept a database user with privileges beyond reading and writing tables.
    pub allow_superuser: bool,
    /// Cancels the statement, on the server too.
    pub stop: CancellationToken,
}

/// Rows of a result, by column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnBatch {
    /// Number of rows.
    pub rows: usize,
    /// Bytes of text.
    pub bytes: usize,
    /// The columns, each with one value per row.
    pub columns: Vec<ColumnCells>,
    /// Lists of numbers as text, and the index of the first column that they fill. The receiver unpacks them, so that
    /// the reader is not slowed down.
    pub(super) packed: Option<(ColumnCells, usize)>,
}

impl ColumnBatch {
    pub(super) fn new(statement: &ColumnStatement) -> Self {
        let numbers = std::iter::repeat_n(&ColumnKind::Number, statement.list);
        let kinds = statement.kinds.iter().chain(numbers);
        Self {
            rows: 0,
            bytes: 0,
            columns: kinds.map(|kind| ColumnCells::new(*kind)).collect(),
            packed: None,
        }
    }

    /// Unpacks the lists into columns.
    pub(super) fn unpack(&mut self) -> Result<(), StoreError> {
        let Some((lists, first)) = self.packed.take() else {
            return Ok(());
        };
        // `numbers` are the columns to fill.
        let (columns, numbers) = self.columns.split_at_mut(first);
        for (row, list) in lists.cells().enumerate() {
            let mut list = match list {
                ColumnCell::Text(list) => Some(json_numbers(list)),
                _ => None,
            };
            for column in &mut *numbers {
                let cell = match list.as_mut().and_then(Iterator::next) {
                    None => ColumnCell::Null,
                    Some(Some(number)) => ColumnCell::Number(number),
                    Some(None) => {
                        let detail = "its scores are not a list of numbers".to_owned();
                        return Err(corrupt("packed_scores", columns, row, detail));
                    }
                };
                column.push(cell);
            }
        }
        Ok(())
    }
}

/// Returns the error for an invalid value in a row. The first column of every statement is the fullname.
pub(super) fn corrupt(
    table: &'static str,
    columns: &[ColumnCells],
    row: usize,
    detail: String,
) -> StoreError {
    let name = columns.first().and_then(|names| names.cells().nth(row));
    StoreError::Corrupt {
        table,
        row: name.map_or_else(String::new, |name| name.text().into_owned()),
        detail,
    }
}

/// The sending end of the channel for batches.
pub type BatchSender = mpsc::Sender<ColumnBatch>;

/// The receiving end of the channel for batches.
#[derive(Debug)]
pub struct BatchReceiver(mpsc::Receiver<ColumnBatch>);

impl BatchReceiver {
    /// Waits for the next batch, blocking the thread; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a list that is not a JSON array of numbers.
    pub fn next_batch(&mut self) -> Result<Option<ColumnBatch>, StoreError> {
        let Some(mut batch) = self.0.blocking_recv() else {
            return Ok(None);
        };
        batch.unpack()?;
        Ok(Some(batch))
    }
}

/// Creates a channel for batches.
pub fn batch_channel() -> (BatchSender, BatchReceiver) {
    let (into, from) = mpsc::channel(BATCHES);
    (into, BatchReceiver(from))
}

/// Parses a JSON array of numbers.
fn json_numbers(text: &str) -> impl Iterator<Item = Option<f64>> {
    text.trim()
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        // Text that is not an array must become an error, not an empty list: `no array` does not parse as a number.
        .unwrap_or("no array")
        .split(',')
        .filter(|number| !number.is_empty())
        .map(|number| number.trim().parse().ok())
}
