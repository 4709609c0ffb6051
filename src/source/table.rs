//! Posts from tables: CSV with a line of names, and Parquet.
//!
//! What enters are columns, named as Reddit names its fields or mapped to them; what leaves is a row a post.
//! A column that is missing is told before the first row is read. A value that is not what its column should
//! hold costs its row: whoever made the table meant something by it, and a post without it would be wrong.

mod pages;
mod parquet;

use std::io::{self, Read};

use ::parquet::errors::ParquetError;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::{Map, Value};

pub use self::parquet::{Parquet, catches_panics};

use super::Rejected;
use super::dump::{Position, Record, Row, Rows};
use super::lines::topic_named;
use super::reddit::listing::post_from_value;
use crate::domain::SourceKind;

/// What a column can hold.
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

/// Of each of these a table must have one.
const REQUIRED: [&[&str]; 4] = [
    &["title"],
    &["id", "name"],
    &["subreddit", "permalink"],
    &["created_utc"],
];

/// A row of a table above this is none, but a quote that nobody closed.
const LONGEST_ROW: u64 = 32 << 20;

/// Which column holds which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// One of [`FIELDS`].
    pub field: &'static str,
    /// The column's name in the file.
    pub name: String,
}

/// Why a file is no table of posts.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A column that was asked for is not there.
    #[error("there is no column `{name}` to take `{field}` from; the file has {columns}")]
    NoColumn {
        /// The field.
        field: &'static str,
        /// The column asked for.
        name: String,
        /// Those there are.
        columns: String,
    },
    /// A field that every post needs has no column.
    #[error(
        "no column holds `{field}`: name it with `--map {field}=COLUMN`; the file has {columns}"
    )]
    NoField {
        /// The field.
        field: &'static str,
        /// Columns there are.
        columns: String,
    },
    /// A column of lists, say.
    #[error("the column `{0}` does not hold plain values")]
    NotPlain(String),
    /// The first line cannot be read.
    #[error("no CSV with a line of names: {0}")]
    Csv(#[from] csv::Error),
    /// Not Parquet, or broken.
    #[error(
        "no Parquet file, or not a whole one: {0}; fetch it again, or write it anew, as CSV for example"
    )]
    Parquet(#[from] ParquetError),
    /// A file whose pages would not fit into memory.
    #[error(
        "{what}, and at most {} MiB are read: write it anew with smaller pages or row groups, or as CSV",
        .most >> 20
    )]
    TooLarge {
        /// What is how large.
        what: String,
        /// What it may be, in bytes.
        most: u64,
    },
}

/// Finds the fields among the columns: each with the index of its column.
fn find(wanted: &[Column], columns: &[String]) -> Result<Vec<(usize, &'static str)>, TableError> {
    let listed = || format!("the columns `{}`", columns.join("`, `"));
    let index = |name: &str| columns.iter().position(|column| column == name);
    let mut found = Vec::new();
    for Column { field, name } in wanted {
        let at = index(name).ok_or_else(|| TableError::NoColumn {
            field,
            name: name.clone(),
            columns: listed(),
        })?;
        found.push((at, *field));
    }
    for field in FIELDS {
        let mapped = wanted.iter().any(|column| column.field == field);
        if let Some(at) = index(field).filter(|_| !mapped) {
            found.push((at, field));
        }
    }
    for names in REQUIRED {
        if !found.iter().any(|(_, field)| names.contains(field)) {
            return Err(TableError::NoField {
                field: names[0],
                columns: listed(),
            });
        }
    }
    Ok(found)
}

/// A post from the values of a row.
fn record(values: impl IntoIterator<Item = (&'static str, Value)>) -> Result<Record, String> {
    let (mut fields, mut topic) = (Map::new(), None);
    for (field, value) in values {
        let blank = value.as_str().is_some_and(|text| text.trim().is_empty());
        if value.is_null() || blank {
            continue;
        }
        let value = match field {
            "created_utc" => epoch_secs(&value).ok_or("`created_utc` is no time")?.into(),
            "score" | "upvote_ratio" | "num_comments" if !is_number(&value) => {
                return Err(format!("`{field}` is no number"));
            }
            "over_18" | "is_self" => flag(&value)
                .ok_or_else(|| format!("`{field}` is neither true nor false"))?
                .into(),
            "topic" => {
                topic = value.as_str().and_then(topic_named);
                continue;
            }
            // Ids that are all digits come as numbers from some writers.
            "id" => Value::String(value.as_str().map_or(value.to_string(), str::to_owned)),
            _ => value,
        };
        fields.insert(field.to_owned(), value);
    }
    let post = post_from_value(&Value::Object(fields), SourceKind::Import)?;
    Ok(Record { post, topic })
}

fn is_number(value: &Value) -> bool {
    let text = value.as_str().map(|text| text.trim().parse::<f64>());
    value.is_number() || text.is_some_and(|parsed| parsed.is_ok_and(f64::is_finite))
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => Some(number.as_f64()? != 0.0),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" | "yes" => Some(true),
            "false" | "f" | "0" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Seconds since 1970 from a number of them, or from a date as people and programs write it; UTC unless said.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a fraction of a second is dropped, and the cast saturates"
)]
fn epoch_secs(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_f64() {
        return Some(number as i64);
    }
    let text = value.as_str()?.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number as i64);
    }
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    let with_zone = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    if let Ok(time) = with_zone {
        return Some(time.timestamp());
    }
    let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f")
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M"))
        .ok();
    let midnight = || {
        NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .ok()?
            .and_hms_opt(0, 0, 0)
    };
    Some(time.or_else(midnight)?.and_utc().timestamp())
}

fn row_of(number: u64, record: Result<Record, String>) -> Row {
    record.map_or_else(|reason| rejected(number, reason), Row::Record)
}

fn rejected(number: u64, reason: String) -> Row {
    let at = format!("row {number}");
    Row::Rejected(Rejected { at, reason })
}

/// Reads no more than `left` bytes until it is told how many again.
#[derive(Debug)]
struct Limited<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = format!(
                "a row is longer than {} MiB: a quote that is not closed?",
                LONGEST_ROW >> 20
            );
            return Err(io::Error::other(reason));
        }
        let n = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(n as u64);
        Ok(n)
    }
}

/// The rows of a CSV file; the line of names is none.
#[derive(Debug)]
pub struct Csv<R> {
    reader: csv::Reader<Limited<R>>,
    row: csv::ByteRecord,
    fields: Vec<(usize, &'static str)>,
    number: u64,
    broken: bool,
}

impl<R: Read> Csv<R> {
    /// Reads the line of names.
    ///
    /// # Errors
    /// When a column is missing, or the line cannot be read.
    pub fn new(reader: R, wanted: &[Column]) -> Result<Self, TableError> {
        let limited = Limited {
            reader,
            left: LONGEST_ROW,
        };
        let mut reader = csv::Reader::from_reader(limited);
        let names = reader.byte_headers()?;
        let names: Vec<String> = names
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_owned())
            .collect();
        Ok(Self {
            reader,
            row: csv::ByteRecord::new(),
            fields: find(wanted, &names)?,
            number: 0,
            broken: false,
        })
    }
}

impl<R: Read + Send> Rows for Csv<R> {
    fn next_row(&mut self) -> Option<Row> {
        if self.broken {
            return None;
        }
        self.reader.get_mut().left = LONGEST_ROW;
        let read = self.reader.read_byte_record(&mut self.row);
        self.number += u64::from(!matches!(read, Ok(false)));
        match read {
            Ok(false) => None,
            Ok(true) => {
                let text = |at: usize| {
                    let bytes = self.row.get(at).unwrap_or_default();
                    Value::String(String::from_utf8_lossy(bytes).into_owned())
                };
                let values = self.fields.iter().map(|&(at, field)| (field, text(at)));
                Some(row_of(self.number, record(values)))
            }
            Err(error) => {
                let reason = if let csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } = error.kind()
                {
                    format!("{len} values in place of {expected_len}")
                } else {
                    self.broken = true;
                    format!("cannot be read, nor what follows: {error}")
                };
                Some(rejected(self.number, reason))
            }
        }
    }

    fn position(&self) -> Position {
        Position {
            bytes: self.reader.position().byte(),
            rows: self.number,
            left_out: 0,
        }
    }

    fn resume(&mut self, _: Position) {}

    fn broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn csv(text: &str, wanted: &[Column]) -> Result<Vec<String>, TableError> {
        let mut rows = Csv::new(text.as_bytes(), wanted)?;
        let fates = std::iter::from_fn(|| rows.next_row()).map(|row| match row {
            Row::Record(Record { post, topic }) => {
                let secs = post.created_at.as_datetime().timestamp();
                format!("{} {secs} {topic:?}", post.fullname)
            }
            Row::Rejected(Rejected { at, reason }) => format!("{at}: {reason}"),
            Row::Quiet => unreachable!("every row of a table is one"),
        });
        Ok(fates.collect())
    }

    #[test]
    fn a_wrong_value_costs_its_row() {
        let text = "\u{feff}id,title,subreddit,created_utc,score,over_18,topic\n\
            a1,One,food,1700000000,3,False,food\n\
            a2,Two,food,yesterday,3,,\n\
            a3,Three,food,2023-11-14,many,,\n\
            a4,Four,food,2023-11-14,4,perhaps,\n\
            a5,Five\n\
            a6,,food,1,,,\n\
            a7,\"Seven, and\nmore\",food,2023-11-14 22:13:20,,,\n";
        assert_eq!(
            csv(text, &[]).unwrap(),
            [
                "t3_a1 1700000000 Some(\"food\")",
                "row 2: `created_utc` is no time",
                "row 3: `score` is no number",
                "row 4: `over_18` is neither true nor false",
                "row 5: 2 values in place of 7",
                "row 6: neither `title` nor `selftext`",
                "t3_a7 1700000000 None",
            ]
        );
    }

    #[test]
    fn columns_are_mapped_and_missing_ones_told_with_those_there_are() {
        let text = "post_id,headline,subreddit,created_utc\na1,One,food,1\n";
        let columns = |title: &str| {
            let column = |field, name: &str| Column {
                field,
                name: name.to_owned(),
            };
            [column("id", "post_id"), column("title", title)]
        };
        assert_eq!(csv(text, &columns("headline")).unwrap(), ["t3_a1 1 None"]);
        let error = csv(text, &columns("titel")).unwrap_err().to_string();
        assert!(
            error.contains("`titel`") && error.contains("`headline`"),
            "{error}"
        );
        let error = csv(text, &[]).unwrap_err().to_string();
        assert!(
            error.contains("--map title=COLUMN") && error.contains("`headline`"),
            "{error}"
        );
    }

    #[test]
    fn a_quote_that_nobody_closes_is_not_read_into_memory() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
        }
        let head = "id,title,subreddit,created_utc\na1,\"One";
        let mut rows = Csv::new(head.as_bytes().chain(Endless), &[]).unwrap();
        let row = rows.next_row();
        let told = matches!(&row, Some(Row::Rejected(row)) if row.reason.contains("not closed"));
        assert!(told, "{row:?}");
        assert!(rows.next_row().is_none() && rows.broken());
    }

    #[test]
    fn times_are_read_as_people_and_programs_write_them() {
        for time in [
            json!(1_700_000_000),
            json!(1_700_000_000.7),
            json!("1700000000"),
            json!("1700000000.0"),
            json!("2023-11-14T22:13:20Z"),
            json!("2023-11-14T22:13:20.123+00:00"),
            json!("2023-11-14 23:13:20+01:00"),
            json!("2023-11-14 22:13:20+00"),
            json!("2023-11-14 22:13:20.5"),
            json!("2023-11-14T22:13:20"),
            json!("2023-11-14 22:13:20 UTC"),
        ] {
            assert_eq!(epoch_secs(&time), Some(1_700_000_000), "{time}");
        }
        for none in [
            json!("soon"),
            json!(true),
            json!("nan"),
            json!("14.11.2023"),
        ] {
            assert_eq!(epoch_secs(&none), None, "{none}");
        }
    }
}
