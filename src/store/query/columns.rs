//! Answers in columns: for statements of many rows, whose types the asker says beforehand.
//!
//! What enters are values as a database hands them out; what leaves are [`Batch`]es, in which the values of a column lie
//! side by side. A JSON value each, as [`super::Part`] has them, takes longer than all else of an export.

use chrono::{DateTime, NaiveDate};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::StoreError;

/// Batches that wait for whoever takes them: one row group of Parquet is written while the next one is read.
const BATCHES: usize = 32;
/// Rows of a batch, at most. Fewer cost a message each more often; more keep whoever waits waiting.
const ROWS_A_BATCH: usize = 2_048;
/// Bytes of text of a batch, about: with [`BATCHES`] they bound what is on its way.
const BYTES_A_BATCH: usize = 1 << 20;

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
    fn new(kind: ColumnType) -> Self {
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
    fn push(&mut self, cell: Cell<'_>) -> bool {
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
}

impl Batch {
    fn new(statement: usize, kinds: &[ColumnType]) -> Self {
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
        }
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
        }
    }
}

/// Where batches go.
pub type Batches = mpsc::Sender<Batch>;

/// A channel for batches.
pub fn batches() -> (Batches, mpsc::Receiver<Batch>) {
    mpsc::channel(BATCHES)
}

/// Values of a statement on their way into batches.
pub(super) struct Gathering<'k> {
    statement: usize,
    kinds: &'k [ColumnType],
    batch: Batch,
    /// The column that gets the next value, as the statement counts them, and as the batch does.
    at: (usize, usize),
}

impl<'k> Gathering<'k> {
    pub fn new(statement: usize, kinds: &'k [ColumnType]) -> Self {
        Self {
            statement,
            kinds,
            batch: Batch::new(statement, kinds),
            at: (0, 0),
        }
    }

    /// The type of the next value; `None` at the end of a row.
    pub fn next_type(&self) -> Option<ColumnType> {
        self.kinds.get(self.at.0).copied()
    }

    /// Adds the next value of a row.
    pub fn put(&mut self, cell: Cell<'_>) -> Result<(), StoreError> {
        if let Cell::Text(text) = cell {
            self.batch.bytes += text.len();
        }
        if !self.batch.columns[self.at.1].push(cell) {
            return Err(self.wrong(&format!("{cell:?}")));
        }
        self.at = (self.at.0 + 1, self.at.1 + 1);
        Ok(())
    }

    /// Adds the next value of a row, which is several numbers; where there are too few, the others are NULL.
    pub fn put_numbers(
        &mut self,
        mut numbers: impl Iterator<Item = Option<f64>>,
    ) -> Result<(), StoreError> {
        let Some(ColumnType::Numbers(columns)) = self.next_type() else {
            return Err(self.wrong("several numbers"));
        };
        for i in 0..columns {
            let cell = match numbers.next() {
                None => Cell::Null,
                Some(Some(number)) => Cell::Number(number),
                Some(None) => return Err(self.wrong("no list of numbers")),
            };
            self.batch.columns[self.at.1 + i].push(cell);
        }
        self.at = (self.at.0 + 1, self.at.1 + columns);
        Ok(())
    }

    /// Adds bytes as their hexadecimal text.
    pub fn put_hex(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String = digits
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect();
        self.put(Cell::Text(&text))
    }

    /// A value that is not of its column's type. It holds nothing of a text.
    pub fn wrong(&self, found: &str) -> StoreError {
        let found = found.split_once('(').map_or(found, |(kind, _)| kind);
        let first = self.batch.columns.first();
        let name = first.and_then(|column| column.cells().nth(self.batch.rows));
        StoreError::Corrupt {
            table: "posts",
            row: match name {
                Some(Cell::Text(name)) => name.to_owned(),
                _ => String::new(),
            },
            detail: format!(
                "column {} of the export should be {:?} and is {found}",
                self.at.0 + 1,
                self.kinds.get(self.at.0)
            ),
        }
    }

    /// Ends a row; the batch, if that filled it.
    pub fn end_row(&mut self) -> Option<Batch> {
        self.at = (0, 0);
        self.batch.rows += 1;
        let full = self.batch.rows >= ROWS_A_BATCH || self.batch.bytes >= BYTES_A_BATCH;
        full.then(|| self.rest())
    }

    /// What was added since the last batch.
    pub fn rest(&mut self) -> Batch {
        std::mem::replace(&mut self.batch, Batch::new(self.statement, self.kinds))
    }
}

/// The numbers of a JSON array of numbers.
pub(super) fn json_numbers(text: &str) -> impl Iterator<Item = Option<f64>> {
    let inner = text.trim().strip_prefix('[');
    let inner = inner.and_then(|text| text.strip_suffix(']'));
    let numbers = inner.unwrap_or("no array").split(',');
    numbers
        .filter(|number| !number.is_empty())
        .map(|number| number.trim().parse().ok())
}

/// A time as SQLite holds it, in milliseconds since 1970.
pub(super) fn millis(text: &str) -> Option<i64> {
    match as_written(text.as_bytes()) {
        Some(millis) => Some(millis),
        None => DateTime::parse_from_rfc3339(text)
            .ok()
            .map(|time| time.timestamp_millis()),
    }
}

/// The one way in which topicmill writes times: `2026-11-21T12:00:00+00:00`. A parser of any time takes ten times as long.
fn as_written(text: &[u8]) -> Option<i64> {
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b'+',
        b'0',
        b'0',
        b':',
        b'0',
        b'0',
    ] = *text
    else {
        return None;
    };
    let two = |tens: u8, ones: u8| {
        let both = tens.is_ascii_digit() && ones.is_ascii_digit();
        both.then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let day = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, two(m1, m2)?, two(d1, d2)?)?;
    let time = day.and_hms_opt(two(h1, h2)?, two(n1, n2)?, two(s1, s2)?)?;
    Some(time.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_alike_both_ways() {
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

    #[test]
    fn a_batch_holds_what_was_put_in() {
        let kinds = [
            ColumnType::Text,
            ColumnType::Integer,
            ColumnType::Numbers(2),
        ];
        let mut gathering = Gathering::new(0, &kinds);
        for i in 0..3 {
            gathering.put(Cell::Text(["a", "é", ""][i])).unwrap();
            let number = i64::try_from(i).unwrap();
            gathering
                .put(if i == 1 {
                    Cell::Null
                } else {
                    Cell::Integer(number)
                })
                .unwrap();
            let scores = ["[0.5,0.25]", "[]", "[1]"][i];
            gathering.put_numbers(json_numbers(scores)).unwrap();
            assert!(gathering.end_row().is_none());
        }
        assert!(gathering.put(Cell::Integer(3)).is_err(), "no text");
        let batch = gathering.rest();
        let column = |i: usize| batch.columns[i].cells().collect::<Vec<_>>();
        assert_eq!(
            column(0),
            [Cell::Text("a"), Cell::Text("é"), Cell::Text("")]
        );
        assert_eq!(column(1), [Cell::Integer(0), Cell::Null, Cell::Integer(2)]);
        assert_eq!(
            column(2),
            [Cell::Number(0.5), Cell::Null, Cell::Number(1.0)]
        );
        assert_eq!(column(3), [Cell::Number(0.25), Cell::Null, Cell::Null]);
        let picked = batch.picked(&[false, true, true]);
        assert_eq!(picked.rows, 2);
        assert_eq!(
            picked.columns[1].cells().collect::<Vec<_>>(),
            [Cell::Null, Cell::Integer(2)]
        );
        assert!(json_numbers("0.5").next().unwrap().is_none());
    }
}
