//! Query results in columns, for statements of many rows whose types the caller declares beforehand.
//!
//! The input is values as a database returns them. The output is [`ColumnBatch`]es, in which the values of a column are
//! contiguous. A JSON value for each, as in [`super::Part`], would take longer than the rest of an export.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use topicmill_core::{ColumnCell, ColumnCells, ColumnKind, ColumnValues};

use super::super::StoreError;

/// Batches that wait for whoever takes them: one row group of Parquet is written while the next one is read.
const BATCHES: usize = 32;

/// A statement of many rows, and what it answers with.
#[derive(Debug, Clone)]
pub struct ReadStatement {
    /// The statement.
    pub sql: String,
    /// The kinds of its columns; the first is the fullname of a post.
    pub kinds: Vec<ColumnKind>,
    /// Numbers in the list that follows them, each of which becomes a column of [`ColumnKind::Number`]; 0 without a
    /// list.
    pub list: usize,
}

/// Statements and what they answer with, read in one transaction: all see the same rows.
#[derive(Debug, Clone)]
pub struct ColumnReading {
    /// The statements.
    pub statements: Vec<ReadStatement>,
    /// True if a database user with more rights than reading and writing tables is accepted.
    pub any_user: bool,
    /// Ends the statements, on the server too.
    pub stop: CancellationToken,
}

/// Rows of an answer, by column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnBatch {
    /// The statement that returns rows.
    pub statement: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes of text.
    pub bytes: usize,
    /// The columns; each has as many values as there are rows.
    pub columns: Vec<ColumnCells>,
    /// Lists of numbers as text, and the first of the columns that they become: whoever takes the batch unpacks them,
    /// so that whoever reads goes on meanwhile.
    pub(super) packed: Option<(ColumnCells, usize)>,
}

impl ColumnBatch {
    pub(super) fn new(number: usize, statement: &ReadStatement) -> Self {
        let numbers = std::iter::repeat_n(&ColumnKind::Number, statement.list);
        let kinds = statement.kinds.iter().chain(numbers);
        Self {
            statement: number,
            rows: 0,
            bytes: 0,
            columns: kinds.map(|kind| ColumnCells::new(*kind)).collect(),
            packed: None,
        }
    }

    /// Makes columns of what is packed.
    pub(super) fn unpack(&mut self) -> Result<(), StoreError> {
        let Some((lists, first)) = self.packed.take() else {
            return Ok(());
        };
        // The columns that are empty so far.
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
                        let detail = "its scores are no list of numbers".to_owned();
                        return Err(corrupt("packed_scores", columns, row, detail));
                    }
                };
                column.push(cell);
            }
        }
        Ok(())
    }

    /// The rows for which `wanted` is true.
    #[must_use]
    pub fn picked(&self, wanted: &[bool]) -> Self {
        let columns: Vec<_> = self.columns.iter().map(|c| c.filter(wanted)).collect();
        let texts = columns.iter().map(|column| match &column.values {
            ColumnValues::Text(texts) => texts.text.len(),
            _ => 0,
        });
        Self {
            statement: self.statement,
            rows: wanted.iter().filter(|wanted| **wanted).count(),
            bytes: texts.sum(),
            columns,
            packed: None,
        }
    }
}

/// The error of a value in a row; the first column of every statement is the post's name.
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

/// The sending end of batches.
pub type Batches = mpsc::Sender<ColumnBatch>;

/// The receiving end of batches.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<ColumnBatch>);

impl Incoming {
    /// The next batch, on a thread that may wait; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn next_batch(&mut self) -> Result<Option<ColumnBatch>, StoreError> {
        let Some(mut batch) = self.0.blocking_recv() else {
            return Ok(None);
        };
        batch.unpack()?;
        Ok(Some(batch))
    }
}

/// A channel for batches.
pub fn batches() -> (Batches, Incoming) {
    let (into, from) = mpsc::channel(BATCHES);
    (into, Incoming(from))
}

/// The numbers of a JSON array of numbers.
fn json_numbers(text: &str) -> impl Iterator<Item = Option<f64>> {
    let inner = text.trim().strip_prefix('[');
    let inner = inner.and_then(|text| text.strip_suffix(']'));
    // What is no array has to end as an error and not as an empty list: these words are no number.
    let numbers = inner.unwrap_or("no array").split(',');
    numbers
        .filter(|number| !number.is_empty())
        .map(|number| number.trim().parse().ok())
}
