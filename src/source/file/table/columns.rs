//! Columns of a table: which of them hold which field, and a post from the values of a row.
//!
//! What enters are columns, named as Reddit names its fields or mapped to them. A column that is missing is told before
//! the first row is read. A value that is not what its column should hold costs its row: whoever made the table meant
//! something by it, and a post without it would be wrong.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::{Map, Value};

use crate::domain::SourceKind;
use crate::source::file::row::{FileRow, Record, topic_named};
use crate::source::page::Rejected;
use crate::source::post::{integer_of, post_from_value};
use crate::tables::ParquetFault;

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

/// A table must have one of each of these.
const REQUIRED: [&[&str]; 4] = [
    &["title"],
    &["id", "name"],
    &["subreddit", "permalink"],
    &["created_utc"],
];

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
    /// Several columns have the name of one that is read.
    #[error("two columns are named `{0}`, and only one of them can be meant: rename one of them")]
    Twice(String),
    /// Parquet that is packed as nobody here unpacks it.
    #[error(
        "it is packed with {0}, which topicmill does not read: write it again with zstd or snappy"
    )]
    Codec(&'static str),
    /// A column of lists, say.
    #[error("the column `{0}` does not hold plain values")]
    NotPlain(String),
    /// The first line cannot be read.
    #[error("no CSV with a line of names: {0}")]
    Csv(#[from] csv::Error),
    /// Parquet that cannot be read.
    #[error(transparent)]
    Parquet(#[from] ParquetFault),
}

/// Finds the fields among the columns: each with the index of its column.
pub(super) fn find(
    wanted: &[Column],
    columns: &[String],
) -> Result<Vec<(usize, &'static str)>, TableError> {
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
    // The reader of Parquet would take the last of them, the reader of CSV the first.
    let named = |name: &String| columns.iter().filter(|column| *column == name).count();
    if let Some((at, _)) = found.iter().find(|(at, _)| named(&columns[*at]) > 1) {
        return Err(TableError::Twice(columns[*at].clone()));
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
pub(super) fn record(
    values: impl IntoIterator<Item = (&'static str, Value)>,
) -> Result<Record, String> {
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
            "score" | "num_comments" if integer_of(&value).is_none() => {
                return Err(format!("`{field}` is too far from 0 to be stored"));
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
fn epoch_secs(value: &Value) -> Option<i64> {
    if is_number(value) {
        return integer_of(value);
    }
    let text = value.as_str()?.trim();
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

pub(super) fn row_of(number: u64, record: Result<Record, String>) -> FileRow {
    record.map_or_else(|reason| rejected(number, reason), FileRow::Record)
}

pub(super) fn rejected(number: u64, reason: String) -> FileRow {
    let at = format!("row {number}");
    FileRow::Rejected(Rejected { at, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            json!(1e30),
            json!("99999999999999999999"),
            json!(u64::MAX),
        ] {
            assert_eq!(epoch_secs(&none), None, "{none}");
        }
    }
}
