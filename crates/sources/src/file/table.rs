//! Reads posts and comments from CSV and Parquet tables.
//!
//! Columns have the names of Reddit's fields, or are mapped to them. A missing column is an error before the first row
//! is read. A row with a value of the wrong type is rejected: the value had a meaning, and the post would be wrong
//! without it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::names::{Column, FIELDS, KINDS, Layout, Names};
use super::row::{FileRow, LONGEST_CELL, Position, PostRows, Record, parse_topic};
use crate::page::Rejected;
use crate::post::{Fields, decode_post, flag_of, integer_of, is_null, number_of};
use topicmill_core::{RejectReason, SourceKind};
use topicmill_tables::bytes::TextReader;
use topicmill_tables::csv::Csv;
use topicmill_tables::parquet::Parquet;
use topicmill_tables::{Cell, Row, Rows};

/// Maximum number of columns that an error or a warning lists.
const MOST_SHOWN: usize = 40;

/// Fields that are numbers.
const NUMBERS: [&str; 3] = ["score", "upvote_ratio", "num_comments"];

/// Groups of fields; a table must contain at least one field from each group.
const REQUIRED: [&[&str]; 4] = [
    // A table without titles contains comments.
    &["title", "kind", "parent", "parent_id", "link_id"],
    &["id", "name", "permalink", "url"],
    &["subreddit", "permalink", "url"],
    &["created_utc"],
];

/// A field's default value, for posts that lack the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultValue {
    /// One of [`FIELDS`].
    pub field: &'static str,
    /// The value.
    pub value: String,
}

/// A field and its column.
struct Field {
    name: &'static str,
    /// Index among the columns that are read.
    at: usize,
    /// True if neither the column's name nor `--map` is certain to mean the field.
    is_guess: bool,
}

/// The columns of a table that are read.
struct Found {
    fields: Vec<Field>,
    /// Indices of the columns in the table, ascending.
    columns: Vec<usize>,
    layout: Layout,
    /// See [`PostRows::caveat`].
    caveat: Option<String>,
}

/// The rows in a table. Only the columns that are needed are read.
pub struct Posts {
    rows: Box<dyn Rows>,
    found: Found,
    given: Vec<DefaultValue>,
    number: u64,
    /// Bytes of the cells read so far.
    bytes: u64,
    nulls: u64,
    /// True if the rest of the file cannot be read.
    ended: bool,
    /// Rows and bytes in a Parquet file, and where to report progress.
    size: Option<(u64, u64, Arc<AtomicU64>)>,
}

impl Posts {
    /// Reads the header of a CSV file. `delimiter` is `None` if the delimiter must be detected.
    ///
    /// # Errors
    /// Returns an error if a column or the header is missing.
    pub fn csv(
        text: TextReader,
        delimiter: Option<u8>,
        wanted: &[Column],
        given: &[DefaultValue],
    ) -> Result<Self, String> {
        let mut rows = Csv::new(text, delimiter).map_err(|error| error.to_string())?;
        let found = find(wanted, given, &rows, &[])?;
        rows.select(&found.columns)
            .map_err(|error| error.to_string())?;
        Ok(Self::of(Box::new(rows), found, given, None))
    }

    /// Reads the schema of a Parquet file. `read` receives the number of bytes read.
    ///
    /// # Errors
    /// Returns an error if a column is missing or nested, or the file cannot be read.
    pub fn parquet(
        file: File,
        wanted: &[Column],
        given: &[DefaultValue],
        read: &Arc<AtomicU64>,
    ) -> Result<Self, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let mut rows = Parquet::new(file).map_err(|error| error.to_string())?;
        let found = find(wanted, given, &rows, &rows.nested())?;
        rows.select(&found.columns)
            .map_err(|error| error.to_string())?;
        let size = (rows.count(), bytes, read.clone());
        Ok(Self::of(Box::new(rows), found, given, Some(size)))
    }

    fn of(
        rows: Box<dyn Rows>,
        found: Found,
        given: &[DefaultValue],
        size: Option<(u64, u64, Arc<AtomicU64>)>,
    ) -> Self {
        Self {
            rows,
            found,
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
        let row = loop {
            let row = self.rows.next_row().transpose()?;
            self.number += 1;
            if !row.as_ref().is_ok_and(Row::is_blank) {
                break row;
            }
        };
        self.ended = row.is_err();
        if let Some((rows, bytes, read)) = &self.size {
            // This is estimated from the share of rows because the columns are in different parts of the file.
            let so_far = u128::from(*bytes) * u128::from(self.number) / u128::from((*rows).max(1));
            let so_far = u64::try_from(so_far).unwrap_or(*bytes).min(*bytes);
            read.store(so_far, Ordering::Relaxed);
        }
        let row = row
            .map_err(|error| error.to_string().into())
            .and_then(|row| {
                if let Some(problem) = row.problem {
                    return Err(problem.into());
                }
                self.bytes += row.cells.iter().map(|(_, cell)| size(cell)).sum::<u64>();
                let Found { fields, layout, .. } = &self.found;
                let mut values = Vec::with_capacity(fields.len());
                for Field { name, at, is_guess } in fields {
                    let value = layout.normalise(name, value(name, &row.cells[*at].1)?);
                    // The column of another tool may have another meaning.
                    if !is_guess || !NUMBERS.contains(name) || number_of(&value).is_some() {
                        values.push((*name, value));
                    }
                }
                record(values, &self.given, &mut self.nulls)
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

    fn caveat(&self) -> Option<String> {
        self.found.caveat.clone()
    }

    fn layout(&self) -> Option<&Layout> {
        Some(&self.found.layout)
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

/// Finds the fields' columns; a `nested` column cannot be used.
fn find(
    wanted: &[Column],
    given: &[DefaultValue],
    table: &dyn Rows,
    nested: &[usize],
) -> Result<Found, String> {
    let columns = table.names().unwrap_or_default();
    let names = Names::new(columns.iter().map(|column| &**column));
    let mut layout = names.layout();
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for Column { field, name } in wanted {
        let at = columns.iter().position(|column| **column == **name);
        let at = at.ok_or_else(|| {
            let columns = listed(columns);
            format!(
                "there is no column `{name}` to take `{field}` from; the file has the columns {columns}"
            )
        })?;
        if nested.contains(&at) {
            return Err(format!("the column `{name}` is nested: map a plain column"));
        }
        found.push((at, field));
    }
    for field in FIELDS.into_iter().chain(KINDS) {
        if wanted.iter().any(|column| column.field == field) {
            continue;
        }
        let is_free =
            |at: usize| *columns[at] == *field || !found.iter().any(|(used, _)| *used == at);
        match names.find(field, is_free) {
            Some(at) if nested.contains(&at) => {
                tracing::warn!(
                    "ignoring the column `{}`, because it is nested",
                    columns[at]
                );
            }
            Some(at) => {
                layout.add(field, &columns[at]);
                found.push((at, field));
            }
            None => {}
        }
    }
    let mut names = found.iter().map(|(at, _)| &*columns[*at]);
    if let Some(name) = names.find(|name| table.repeated().iter().any(|twice| twice == name)) {
        return Err(format!(
            "two columns are named `{name}`: rename one of them"
        ));
    }
    let is_known = |field: &str| {
        found.iter().any(|(_, known)| *known == field)
            || given.iter().any(|given| given.field == field)
    };
    let has_body = is_known("selftext");
    let missing: Vec<&str> = REQUIRED
        .iter()
        .filter(|names| !names.iter().any(|name| is_known(name)))
        .map(|names| names[0])
        .collect();
    if !missing.is_empty() {
        return Err(missing_fields(&missing, columns));
    }
    let mut read: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    read.sort_unstable();
    read.dedup();
    let unread: Vec<Arc<str>> = columns
        .iter()
        .enumerate()
        .filter(|(at, _)| !read.contains(at) && !nested.contains(at))
        .map(|(_, name)| name.clone())
        .collect();
    let place = |(at, name): (usize, &'static str)| Field {
        name,
        at: read.partition_point(|column| *column < at),
        is_guess: *columns[at] != *name && !wanted.iter().any(|column| column.field == name),
    };
    Ok(Found {
        fields: found.into_iter().map(place).collect(),
        layout,
        columns: read,
        caveat: (!has_body && !unread.is_empty()).then(|| missing_body(&unread)),
    })
}

/// Returns the warning for a table without bodies. The columns in `unread` may contain them.
fn missing_body(unread: &[Arc<str>]) -> String {
    format!(
        "no column has the body, `selftext`: name it with `--map selftext=COLUMN`; the columns that were not read are \
         {}",
        listed(unread)
    )
}

/// Returns the error for required fields that no column has.
fn missing_fields(fields: &[&str], columns: &[Arc<str>]) -> String {
    let flags = fields.iter().map(|field| format!("--map {field}=COLUMN"));
    format!(
        "no column has `{}`: name a column with `{}`, or set the value of all rows with `--set FIELD=VALUE`; the file \
         has the columns {}",
        fields.join("`, `"),
        flags.collect::<Vec<_>>().join(" "),
        listed(columns)
    )
}

/// Lists column names.
fn listed(columns: &[Arc<str>]) -> String {
    let shown = &columns[..columns.len().min(MOST_SHOWN)];
    let more = if shown.len() < columns.len() {
        " and more"
    } else {
        ""
    };
    format!("`{}`{more}", shown.join("`, `"))
}

/// Decodes a post from a row's values.
fn record(
    values: impl IntoIterator<Item = (&'static str, Value)>,
    given: &[DefaultValue],
    nulls: &mut u64,
) -> Result<Record, RejectReason> {
    let (mut fields, mut topic) = (Fields::default(), None);
    // Defaults come first so that the row's values override them.
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
        for (wanted, named) in [
            (
                &[id, ("title", "titel")][..],
                "`titel` to take `title` from",
            ),
            (&[id], "`--map title=COLUMN`"),
            (&[id], "`key`, `headline`"),
            (&[], "`--map title=COLUMN --map id=COLUMN`"),
            (&[id, ("title", "x")], "named `x`"),
        ] {
            let error = csv(text, wanted).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
