//! Reads posts and comments from CSV and Parquet tables.
//!
//! Columns have the names of Reddit's fields, or are mapped to them. A missing column is an error before the first row
//! is read. A row with a value of the wrong type is rejected: the value had a meaning, and the post would be wrong
//! without it.

mod columns;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use self::columns::{ReadColumns, find_columns};
use super::FileOptions;
use super::names::Layout;
use super::row::{FileRow, LONGEST_CELL, Position, PostRows, Record, parse_topic};
use crate::page::Rejected;
use crate::post::{Fields, decode_post, flag_of, integer_of, is_null, number_of};
use topicmill_core::{RejectReason, SourceKind};
use topicmill_tables::bytes::TextReader;
use topicmill_tables::csv::Csv;
use topicmill_tables::parquet::Parquet;
use topicmill_tables::{Cell, Row, Rows};

/// Fields that are numbers.
const NUMBERS: [&str; 3] = ["score", "upvote_ratio", "num_comments"];

/// A field's default value, for posts that lack the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultValue {
    /// One of [`FIELDS`](super::names::FIELDS).
    pub field: &'static str,
    /// The value.
    pub value: String,
}

/// Reports how much of a Parquet file has been read.
struct Progress {
    rows: u64,
    bytes: u64,
    read: Arc<AtomicU64>,
}

impl Progress {
    /// Estimates the bytes from the share of rows, because the columns are in different parts of the file.
    fn report(&self, row: u64) {
        let read = u128::from(self.bytes) * u128::from(row) / u128::from(self.rows.max(1));
        let read = u64::try_from(read).unwrap_or(self.bytes).min(self.bytes);
        self.read.store(read, Ordering::Relaxed);
    }
}

/// The rows in a table. Only the columns that are needed are read.
pub struct Posts {
    rows: Box<dyn Rows>,
    columns: ReadColumns,
    defaults: Vec<DefaultValue>,
    number: u64,
    /// Bytes of the cells read so far.
    bytes: u64,
    nulls: u64,
    /// True if the rest of the file cannot be read.
    ended: bool,
    progress: Option<Progress>,
}

impl Posts {
    /// Reads the header of a CSV file. `delimiter` is `None` if the delimiter must be detected.
    ///
    /// # Errors
    /// Returns an error if a column or the header is missing.
    pub fn csv(
        text: TextReader,
        delimiter: Option<u8>,
        options: &FileOptions,
    ) -> Result<Self, String> {
        let rows = Csv::new(text, delimiter).map_err(|error| error.to_string())?;
        Self::new(rows, options, &[], None)
    }

    /// Reads the schema of a Parquet file. `read` receives the number of bytes read.
    ///
    /// # Errors
    /// Returns an error if a column is missing or nested, or the file cannot be read.
    pub fn parquet(
        file: File,
        options: &FileOptions,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let rows = Parquet::new(file).map_err(|error| error.to_string())?;
        let nested = rows.nested();
        let progress = Progress {
            rows: rows.count(),
            bytes,
            read: read.clone(),
        };
        Self::new(rows, options, &nested, Some(progress))
    }

    fn new(
        mut rows: impl Rows + 'static,
        options: &FileOptions,
        nested: &[usize],
        progress: Option<Progress>,
    ) -> Result<Self, String> {
        let columns = find_columns(options, &rows, nested)?;
        rows.select(&columns.columns)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            rows: Box::new(rows),
            columns,
            defaults: options.defaults.clone(),
            number: 0,
            bytes: 0,
            nulls: 0,
            ended: false,
            progress,
        })
    }

    fn decode(&mut self, row: Row) -> Result<Record, RejectReason> {
        if let Some(problem) = row.problem {
            return Err(problem.into());
        }
        self.bytes += row.cells.iter().map(|(_, cell)| size(cell)).sum::<u64>();
        let ReadColumns { fields, layout, .. } = &self.columns;
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let (_, cell) = &row.cells[field.index];
            let value = layout.normalise(field.name, value(field.name, cell)?);
            // The column of another tool may have another meaning.
            let must_be_number = field.is_guess && NUMBERS.contains(&field.name);
            if !must_be_number || number_of(&value).is_some() {
                values.push((field.name, value));
            }
        }
        record(values, &self.defaults, &mut self.nulls)
    }
}

impl PostRows for Posts {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.ended {
            return None;
        }
        let row = loop {
            let row = self.rows.next_row().transpose()?;
            self.number += 1;
            if !row.as_ref().is_ok_and(Row::is_blank) {
                break row;
            }
        };
        if let Some(progress) = &self.progress {
            progress.report(self.number);
        }
        self.ended = row.is_err();
        let decoded = row
            .map_err(|error| error.to_string().into())
            .and_then(|row| self.decode(row));
        Some(match decoded {
            Ok(record) => FileRow::Record(record),
            Err(reason) => {
                let at = format!("row {}", self.number);
                FileRow::Rejected(Rejected { at, reason })
            }
        })
    }

    fn position(&self) -> Position {
        Position {
            bytes: self.bytes,
            rows: self.number,
            ..Position::default()
        }
    }

    fn nulls(&self) -> u64 {
        self.nulls
    }

    fn caveat(&self) -> Option<String> {
        self.columns.caveat.clone()
    }

    fn layout(&self) -> Option<&Layout> {
        Some(&self.columns.layout)
    }
}

/// Returns the size of a cell in bytes.
fn size(cell: &Cell) -> u64 {
    (match cell {
        Cell::Text(text) | Cell::Json(text) => text.len(),
        Cell::Bytes(bytes) => bytes.len(),
        Cell::Null => 0,
    }) as u64
}

/// Converts a cell to JSON.
fn value(field: &str, cell: &Cell) -> Result<Value, String> {
    match cell {
        Cell::Text(text) if text.len() > LONGEST_CELL => {
            let most = LONGEST_CELL >> 20;
            Err(format!("`{field}` is longer than {most} MiB"))
        }
        Cell::Text(text) => Ok(text.as_str().into()),
        Cell::Json(json) => {
            serde_json::from_str(json).map_err(|error| format!("`{field}`: {error}"))
        }
        Cell::Null => Ok(Value::Null),
        Cell::Bytes(_) => Err(format!(
            "`{field}` is not UTF-8: store the column as UTF-8 text when you create the file"
        )),
    }
}

/// Decodes a post from a row's values.
fn record(
    values: impl IntoIterator<Item = (&'static str, Value)>,
    defaults: &[DefaultValue],
    nulls: &mut u64,
) -> Result<Record, RejectReason> {
    let (mut fields, mut topic) = (Fields::default(), None);
    let defaults = defaults
        .iter()
        .map(|default| (default.field, default.value.as_str().into()));
    // Defaults come first so that the row's values override them.
    for (field, value) in defaults.chain(values) {
        let text = value.as_str();
        let is_word = !matches!(field, "title" | "subreddit") && text.is_some_and(is_null);
        *nulls += u64::from(is_word);
        if value.is_null() || is_word || text.is_some_and(|text| text.trim().is_empty()) {
            continue;
        }
        let value = match field {
            _ if NUMBERS.contains(&field) && number_of(&value).is_none() => {
                return Err(format!("`{field}` is not a number").into());
            }
            "score" | "num_comments" if integer_of(&value).is_none() => {
                return Err(format!("`{field}` is out of range").into());
            }
            "over_18" | "is_self" => flag_of(&value)
                .ok_or_else(|| format!("`{field}` is neither true nor false"))?
                .into(),
            "topic" => {
                topic = value.as_str().and_then(parse_topic);
                continue;
            }
            _ => value,
        };
        fields.set(field, value);
    }
    let post = decode_post(fields, SourceKind::Import, None)?;
    Ok(Record { post, topic })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::names::Column;
    use std::io::Cursor;

    fn csv(
        text: impl Into<Vec<u8>>,
        mapping: &[(&'static str, &str)],
    ) -> Result<Vec<String>, String> {
        let column = |(field, name): &(&'static str, &str)| Column {
            field,
            name: (*name).to_owned(),
        };
        let options = FileOptions {
            columns: mapping.iter().map(column).collect(),
            ..FileOptions::default()
        };
        let text = Box::new(Cursor::new(text.into()));
        let mut rows = Posts::csv(text, None, &options)?;
        let outcomes = std::iter::from_fn(|| rows.next_row()).map(|row| match row {
            FileRow::Record(Record { post, topic }) => {
                let secs = post.created_at.as_datetime().timestamp();
                format!("{} {secs} {topic:?}", post.fullname)
            }
            FileRow::Rejected(Rejected { at, reason }) => format!("{at}: {reason}"),
            FileRow::Skipped => unreachable!("a table skips no rows"),
        });
        Ok(outcomes.collect())
    }

    #[test]
    fn a_wrong_value_rejects_its_row_if_its_column_is_read() {
        let text = b"id,title,subreddit,created_utc,score,over_18,topic,resume\n\
            a1,One,food,1700000000,3,False,food,caf\xe9\n\
            a2,Two,food,yesterday,3,,,\n\
            a3,Three,food,2023-11-14,many,,,\n\
            a4,Four,food,2023-11-14,4,perhaps,,\n\
            a5,Five\n\
            a6,,food,1700000000,,,,\n\
            a7,caf\xe9,food,1700000000,,,,\n\
            a8,\"Eight, and\nmore\",food,2023-11-14 22:13:20,,,,\n";
        let outcomes = csv(text, &[]).unwrap();
        for (outcome, expected) in outcomes.iter().zip([
            "t3_a1 1700000000 Some(\"food\")",
            "row 2: `created_utc` is not a time",
            "row 3: `score` is not a number",
            "row 4: `over_18` is neither true nor false",
            "row 5: has 2 values, but the header has 8",
            "row 6: neither `title` nor `selftext`",
            "row 7: is not UTF-8 (`title` at byte 4): convert the file",
            "t3_a8 1700000000 None",
        ]) {
            assert!(outcome.starts_with(expected), "{outcome}");
        }
        assert_eq!(outcomes.len(), 8);
    }

    #[test]
    fn columns_are_mapped_and_errors_list_them() {
        let text = "key,headline,x,x,subreddit,created_utc\na1,One,,,food,1700000000\n";
        let id = ("id", "key");
        assert_eq!(
            csv(text, &[id, ("title", "headline")]).unwrap(),
            ["t3_a1 1700000000 None"]
        );
        for (mapping, named) in [
            (
                &[id, ("title", "titel")][..],
                "`titel` to take `title` from",
            ),
            (&[id], "`--map title=COLUMN`"),
            (&[id], "`key`, `headline`"),
            (&[], "`--map title=COLUMN --map id=COLUMN`"),
            (&[id, ("title", "x")], "named `x`"),
        ] {
            let error = csv(text, mapping).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
