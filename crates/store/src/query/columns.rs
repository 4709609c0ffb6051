//! Answers in columns: for statements of many rows, whose types the asker says beforehand.
//!
//! What enters are values as a database hands them out; what leaves are [`Batch`]es, in which the values of a column lie
//! side by side. A JSON value each, as [`super::Part`] has them, takes longer than all else of an export.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::StoreError;

/// Batches that wait for whoever takes them: one row group of Parquet is written while the next one is read.
const BATCHES: usize = 32;

/// What a column of the answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Number,
    /// True or false.
    Boolean,
    /// Times; as milliseconds since 1970.
    Time,
    /// Bytes; as their hexadecimal text.
    Hex,
    /// So many numbers in one value; each becomes a column.
    Numbers(usize),
}

/// Statements and what they answer with, read in one transaction: all see the same rows.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Statements, and the types of their columns.
    pub statements: Vec<(String, Vec<ColumnType>)>,
    /// Whether a user of the server is good enough who may do more than read and write tables.
    pub any_user: bool,
    /// Ends the statements, on the server too.
    pub stop: CancellationToken,
}

/// Texts, one behind the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Texts {
    /// All of them.
    pub text: String,
    /// Where each ends.
    pub ends: Vec<usize>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn get(&self, i: usize) -> &str {
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[i]]
    }
}

/// Values of one type, without those that are NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Text.
    Text(Texts),
    /// Whole numbers.
    Integer(Vec<i64>),
    /// Numbers.
    Number(Vec<f64>),
    /// True or false.
    Boolean(Vec<bool>),
    /// Milliseconds since 1970, UTC.
    Time(Vec<i64>),
}

/// The values of a column in a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnCells {
    /// The values that are there.
    pub values: Values,
    /// 1 for a row that has a value, else 0.
    pub present: Vec<i16>,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// None.
    Null,
    /// Text.
    Text(&'a str),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// Milliseconds since 1970, UTC.
    Time(i64),
}

impl ColumnCells {
    pub(super) fn new(kind: ColumnType) -> Self {
        let values = match kind {
            ColumnType::Text | ColumnType::Hex => Values::Text(Texts::default()),
            ColumnType::Integer => Values::Integer(Vec::new()),
            ColumnType::Number | ColumnType::Numbers(_) => Values::Number(Vec::new()),
            ColumnType::Boolean => Values::Boolean(Vec::new()),
            ColumnType::Time => Values::Time(Vec::new()),
        };
        Self {
            values,
            present: Vec::new(),
        }
    }

    /// A column of texts, one a row.
    pub fn texts<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let mut cells = Self::new(ColumnType::Text);
        for text in texts {
            cells.push(Cell::Text(text));
        }
        cells
    }

    /// Adds a value; false where it is of another type.
    pub(super) fn push(&mut self, cell: Cell<'_>) -> bool {
        match (&mut self.values, cell) {
            (_, Cell::Null) => {
                self.present.push(0);
                return true;
            }
            (Values::Text(texts), Cell::Text(text)) => texts.push(text),
            (Values::Integer(values), Cell::Integer(value))
            | (Values::Time(values), Cell::Time(value)) => values.push(value),
            (Values::Number(values), Cell::Number(value)) => values.push(value),
            (Values::Boolean(values), Cell::Boolean(value)) => values.push(value),
            _ => return false,
        }
        self.present.push(1);
        true
    }

    /// Its value in each row.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut next = 0;
        self.present.iter().map(move |present| {
            if *present == 0 {
                return Cell::Null;
            }
            let i = next;
            next += 1;
            match &self.values {
                Values::Text(texts) => Cell::Text(texts.get(i)),
                Values::Integer(values) => Cell::Integer(values[i]),
                Values::Number(values) => Cell::Number(values[i]),
                Values::Boolean(values) => Cell::Boolean(values[i]),
                Values::Time(values) => Cell::Time(values[i]),
            }
        })
    }

    /// The same of the rows that are wanted.
    fn picked(&self, wanted: &[bool]) -> Self {
        let values = match &self.values {
            Values::Text(_) => Values::Text(Texts::default()),
            Values::Integer(_) => Values::Integer(Vec::new()),
            Values::Number(_) => Values::Number(Vec::new()),
            Values::Boolean(_) => Values::Boolean(Vec::new()),
            Values::Time(_) => Values::Time(Vec::new()),
        };
        let mut picked = Self {
            values,
            present: Vec::new(),
        };
        for (cell, wanted) in self.cells().zip(wanted) {
            if *wanted {
                picked.push(cell);
            }
        }
        picked
    }
}

/// Rows of an answer, by column.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Which of the statements answers.
    pub statement: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes of text.
    pub bytes: usize,
    /// The columns; each has as many values as there are rows.
    pub columns: Vec<ColumnCells>,
    /// Lists of numbers as text, and the first of the columns that they become: whoever takes the batch unpacks them, so
    /// that whoever reads goes on meanwhile.
    pub(super) packed: Option<(ColumnCells, usize)>,
}

impl Batch {
    pub(super) fn new(statement: usize, kinds: &[ColumnType]) -> Self {
        let columns = kinds.iter().flat_map(|kind| {
            let columns = match kind {
                ColumnType::Numbers(columns) => *columns,
                _ => 1,
            };
            (0..columns).map(|_| ColumnCells::new(*kind))
        });
        Self {
            statement,
            rows: 0,
            bytes: 0,
            columns: columns.collect(),
            packed: None,
        }
    }

    /// Makes columns of what is packed.
    pub(super) fn unpack(&mut self) -> Result<(), StoreError> {
        let Some((lists, first)) = self.packed.take() else {
            return Ok(());
        };
        let [names, ..] = self.columns.as_slice() else {
            return Ok(());
        };
        let names: Vec<Cell<'_>> = names.cells().collect();
        let mut wrong = None;
        let mut unpacked: Vec<ColumnCells> = self.columns[first..]
            .iter()
            // Only the columns that got no value yet are the ones that the packed lists fill.
            .take_while(|column| column.present.is_empty())
            .map(|_| ColumnCells::new(ColumnType::Number))
            .collect();
        for (row, list) in lists.cells().enumerate() {
            let mut numbers = match list {
                Cell::Text(list) => Some(json_numbers(list)),
                _ => None,
            };
            for column in &mut unpacked {
                let cell = match numbers.as_mut().and_then(Iterator::next) {
                    None => Cell::Null,
                    Some(Some(number)) => Cell::Number(number),
                    Some(None) => {
                        wrong.get_or_insert(row);
                        Cell::Null
                    }
                };
                column.push(cell);
            }
        }
        if let Some(row) = wrong {
            return Err(StoreError::Corrupt {
                table: "packed_scores",
                row: match names.get(row) {
                    Some(Cell::Text(name)) => (*name).to_owned(),
                    _ => String::new(),
                },
                detail: "its scores are no list of numbers".to_owned(),
            });
        }
        for (column, cells) in self.columns[first..].iter_mut().zip(unpacked) {
            *column = cells;
        }
        Ok(())
    }

    /// The rows for which `wanted` is true.
    #[must_use]
    pub fn picked(&self, wanted: &[bool]) -> Self {
        let columns: Vec<_> = self.columns.iter().map(|c| c.picked(wanted)).collect();
        let texts = columns.iter().map(|column| match &column.values {
            Values::Text(texts) => texts.text.len(),
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

/// Where batches go.
pub type Batches = mpsc::Sender<Batch>;

/// Where they come out.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<Batch>);

impl Incoming {
    /// The next batch, on a thread that may wait; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>, StoreError> {
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
