//! Posts from tables, CSV and Parquet: the columns of each field, and a post from the values of a row.
//!
//! Columns have the names of Reddit's fields, or are mapped to them. A missing column is an error before the first row
//! is read. A value of the wrong type rejects its row: it meant something to the author of the table, and a post
//! without it would be wrong.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::row::{FileRow, LONGEST_CELL, Position, PostRows, Record, topic_named};
use crate::page::Rejected;
use crate::post::{Fields, decode_post, flag_of, integer_of, is_null, number_of};
use topicmill_core::SourceKind;
use topicmill_tables::bytes::TextReader;
use topicmill_tables::{Cell, Rows as _};

/// As many columns as an error names.
const MOST_SHOWN: usize = 40;

/// The type of a column.
pub const FIELDS: [&str; 18] = [
    "id",
    "name",
    "title",
    "selftext",
    "subreddit",
    "permalink",
    "created_utc",
    "url",
    "author",
    "score",
    "upvote_ratio",
    "num_comments",
    "link_flair_text",
    "over_18",
    "is_self",
    "removed_by_category",
    "crosspost_parent",
    "topic",
];

/// Other names of fields, in tables of posts that people share.
const ALSO: [(&str, &str); 3] = [
    ("created_utc", "created"),
    ("selftext", "body"),
    ("num_comments", "comms_num"),
];

/// A table must have one of each of these.
const REQUIRED: [&[&str]; 4] = [
    &["title"],
    &["id", "name"],
    &["subreddit", "permalink"],
    &["created_utc"],
];

/// The column of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// One of [`FIELDS`].
    pub field: &'static str,
    /// The column's name in the file.
    pub name: String,
}

/// A value of a field for posts that have none of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// One of [`FIELDS`].
    pub field: &'static str,
    /// The value.
    pub value: String,
}

/// A field, with the place of its column among those that are read.
type Field = (&'static str, usize);

/// The rows of a table; only the columns that are needed are read.
pub struct Posts {
    rows: Box<dyn topicmill_tables::Rows>,
    fields: Vec<Field>,
    given: Vec<Given>,
    number: u64,
    /// Bytes of the cells that were read.
    bytes: u64,
    nulls: u64,
    /// The rest of the file cannot be read.
    ended: bool,
    /// Rows and bytes of a Parquet file, and where to tell how far it is read.
    size: Option<(u64, u64, Arc<AtomicU64>)>,
}

impl Posts {
    /// Reads the line of names of CSV; `delimiter`: what stands between values, where that is known.
    ///
    /// # Errors
    /// When a column is missing, and when there is no line of names.
    pub fn csv(
        text: TextReader,
        delimiter: Option<u8>,
        wanted: &[Column],
        given: &[Given],
    ) -> Result<Self, String> {
        let mut rows =
            topicmill_tables::csv::Csv::new(text, delimiter).map_err(|error| error.to_string())?;
        let (fields, columns) = find(wanted, given, &rows, &[])?;
        rows.select(&columns).map_err(|error| error.to_string())?;
        Ok(Self::of(Box::new(rows), fields, given, None))
    }

    /// Reads what a Parquet file says of itself; tells `read` how many of its bytes are read.
    ///
    /// # Errors
    /// When a column is missing or holds no plain values, and when the file cannot be read.
    pub fn parquet(
        file: File,
        wanted: &[Column],
        given: &[Given],
        read: &Arc<AtomicU64>,
    ) -> Result<Self, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let mut rows =
            topicmill_tables::parquet::Parquet::new(file).map_err(|error| error.to_string())?;
        let (fields, columns) = find(wanted, given, &rows, &rows.nested())?;
        rows.select(&columns).map_err(|error| error.to_string())?;
        let size = (rows.count(), bytes, read.clone());
        Ok(Self::of(Box::new(rows), fields, given, Some(size)))
    }

    fn of(
        rows: Box<dyn topicmill_tables::Rows>,
        fields: Vec<Field>,
        given: &[Given],
        size: Option<(u64, u64, Arc<AtomicU64>)>,
    ) -> Self {
        Self {
            rows,
            fields,
            given: given.to_vec(),
            number: 0,
            bytes: 0,
            nulls: 0,
            ended: false,
            size,
        }
    }
}

impl PostRows for Posts {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.ended {
            return None;
        }
        let row = self.rows.next_row().transpose()?;
        self.ended = row.is_err();
        self.number += 1;
        if let Some((rows, bytes, read)) = &self.size {
            // A guess, because columns are read here and there: as many bytes as rows.
            let so_far = u128::from(*bytes) * u128::from(self.number) / u128::from((*rows).max(1));
            let so_far = u64::try_from(so_far).unwrap_or(*bytes).min(*bytes);
            read.store(so_far, Ordering::Relaxed);
        }
        let row = row.map_err(|error| error.to_string()).and_then(|row| {
            if let Some(problem) = row.problem {
                return Err(problem);
            }
            self.bytes += row.cells.iter().map(|(_, cell)| size(cell)).sum::<u64>();
            let value = |(field, at): &Field| Ok((*field, value(field, &row.cells[*at].1)?));
            let values: Result<Vec<_>, String> = self.fields.iter().map(value).collect();
            record(values?, &self.given, &mut self.nulls)
        });
        Some(row.map_or_else(
            |reason| {
                let at = format!("row {}", self.number);
                FileRow::Rejected(Rejected { at, reason })
            },
            FileRow::Record,
        ))
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
}

/// Bytes of a cell.
fn size(cell: &Cell) -> u64 {
    (match cell {
        Cell::Text(text) | Cell::Json(text) => text.len(),
        Cell::Bytes(bytes) => bytes.len(),
        Cell::Null => 0,
    }) as u64
}

/// A cell of a field as JSON.
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
            "`{field}` is not UTF-8: write the column again as text in UTF-8"
        )),
    }
}

/// Finds the fields among the columns; in those that are `nested` there is none. Returns each field with the place of
/// its column among those to read, and these columns.
fn find(
    wanted: &[Column],
    given: &[Given],
    table: &dyn topicmill_tables::Rows,
    nested: &[usize],
) -> Result<(Vec<Field>, Vec<usize>), String> {
    let columns = table.names().unwrap_or_default();
    let listed = || {
        let shown = &columns[..columns.len().min(MOST_SHOWN)];
        let more = if shown.len() < columns.len() {
            " and more"
        } else {
            ""
        };
        format!("the columns `{}`{more}", shown.join("`, `"))
    };
    let index = |name: &str| columns.iter().position(|column| **column == *name);
    let mut found = Vec::new();
    for Column { field, name } in wanted {
        let at = index(name).ok_or_else(|| {
            let columns = listed();
            format!("there is no column `{name}` to take `{field}` from; the file has {columns}")
        })?;
        if nested.contains(&at) {
            return Err(format!("the column `{name}` does not hold plain values"));
        }
        found.push((at, *field));
    }
    for field in FIELDS {
        let mapped = wanted.iter().any(|column| column.field == field);
        let other = || {
            let (_, name) = ALSO.iter().find(|(known, _)| *known == field)?;
            let at =
                index(name).filter(|at| !mapped && !found.iter().any(|(used, _)| used == at))?;
            tracing::info!("the column `{name}` is read as `{field}`");
            Some(at)
        };
        match index(field).or_else(other).filter(|_| !mapped) {
            Some(at) if nested.contains(&at) => {
                tracing::warn!("the column `{field}` does not hold plain values, and is not read");
            }
            Some(at) => found.push((at, field)),
            None => {}
        }
    }
    let mut names = found.iter().map(|(at, _)| &*columns[*at]);
    if let Some(name) = names.find(|name| table.repeated().iter().any(|twice| twice == name)) {
        return Err(format!(
            "two columns are named `{name}`, and only one of them can be meant: rename one of them"
        ));
    }
    for names in REQUIRED {
        let mut known = found.iter().map(|(_, field)| field);
        let is_given = given.iter().any(|given| names.contains(&given.field));
        if !is_given && !known.any(|field| names.contains(field)) {
            let (field, columns) = (names[0], listed());
            let or_set = match field {
                "subreddit" => ", or say for all rows with `--set subreddit=NAME`",
                _ => "",
            };
            return Err(format!(
                "no column holds `{field}`: name it with `--map {field}=COLUMN`{or_set}; the file has {columns}"
            ));
        }
    }
    let mut read: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    read.sort_unstable();
    read.dedup();
    let place = |(at, field)| (field, read.partition_point(|column| *column < at));
    Ok((found.into_iter().map(place).collect(), read))
}

/// A post from the values of a row.
fn record(
    values: impl IntoIterator<Item = (&'static str, Value)>,
    given: &[Given],
    nulls: &mut u64,
) -> Result<Record, String> {
    let (mut fields, mut topic) = (Fields::default(), None);
    // First, so that a value of the row itself takes its place.
    let given = given
        .iter()
        .map(|given| (given.field, given.value.as_str().into()));
    for (field, value) in given.chain(values) {
        let text = value.as_str();
        let is_word = !matches!(field, "title" | "subreddit") && text.is_some_and(is_null);
        *nulls += u64::from(is_word);
        if value.is_null() || is_word || text.is_some_and(|text| text.trim().is_empty()) {
            continue;
        }
        let value = match field {
            "score" | "upvote_ratio" | "num_comments" if number_of(&value).is_none() => {
                return Err(format!("`{field}` is no number"));
            }
            "score" | "num_comments" if integer_of(&value).is_none() => {
                return Err(format!("`{field}` is too far from 0 to be stored"));
            }
            "over_18" | "is_self" => flag_of(&value)
                .ok_or_else(|| format!("`{field}` is neither true nor false"))?
                .into(),
            "topic" => {
                topic = value.as_str().and_then(topic_named);
                continue;
            }
            _ => value,
        };
        fields.set(field, value);
    }
    let post = decode_post(fields, SourceKind::Import)?;
    Ok(Record { post, topic })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn csv(
        text: impl Into<Vec<u8>>,
        wanted: &[(&'static str, &str)],
    ) -> Result<Vec<String>, String> {
        let column = |(field, name): &(&'static str, &str)| Column {
            field,
            name: (*name).to_owned(),
        };
        let wanted: Vec<Column> = wanted.iter().map(column).collect();
        let text = Box::new(Cursor::new(text.into()));
        let mut rows = Posts::csv(text, None, &wanted, &[])?;
        let fates = std::iter::from_fn(|| rows.next_row()).map(|row| match row {
            FileRow::Record(Record { post, topic }) => {
                let secs = post.created_at.as_datetime().timestamp();
                format!("{} {secs} {topic:?}", post.fullname)
            }
            FileRow::Rejected(Rejected { at, reason }) => format!("{at}: {reason}"),
            FileRow::Quiet => unreachable!("every row of a table is one"),
        });
        Ok(fates.collect())
    }

    #[test]
    fn a_wrong_value_costs_its_row_where_it_is_read() {
        let text = b"id,title,subreddit,created_utc,score,over_18,topic,resume\n\
            a1,One,food,1700000000,3,False,food,caf\xe9\n\
            a2,Two,food,yesterday,3,,,\n\
            a3,Three,food,2023-11-14,many,,,\n\
            a4,Four,food,2023-11-14,4,perhaps,,\n\
            a5,Five\n\
            a6,,food,1700000000,,,,\n\
            a7,caf\xe9,food,1700000000,,,,\n\
            a8,\"Eight, and\nmore\",food,2023-11-14 22:13:20,,,,\n";
        let fates = csv(text, &[]).unwrap();
        for (fate, expected) in fates.iter().zip([
            "t3_a1 1700000000 Some(\"food\")",
            "row 2: `created_utc` is no time",
            "row 3: `score` is no number",
            "row 4: `over_18` is neither true nor false",
            "row 5: has 2 values, but the header has 8",
            "row 6: neither `title` nor `selftext`",
            "row 7: is not UTF-8 (`title` at byte 4): convert the file",
            "t3_a8 1700000000 None",
        ]) {
            assert!(fate.starts_with(expected), "{fate}");
        }
        assert_eq!(fates.len(), 8);
    }

    #[test]
    fn columns_are_mapped_and_missing_ones_told_with_those_there_are() {
        let text = "post_id,headline,x,x,subreddit,created_utc\na1,One,,,food,1700000000\n";
        let id = ("id", "post_id");
        assert_eq!(
            csv(text, &[id, ("title", "headline")]).unwrap(),
            ["t3_a1 1700000000 None"]
        );
        for (wanted, told) in [
            (
                &[id, ("title", "titel")][..],
                "`titel` to take `title` from",
            ),
            (&[id], "--map title=COLUMN"),
            (&[id, ("title", "x")], "two columns are named `x`"),
        ] {
            let error = csv(text, wanted).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
