//! Reads the rows of a gold file.
//!
//! The file is a table of any supported format with the columns `id` and `label`, and optionally `annotator`,
//! `answered_at` and others; or a Label Studio JSON export with `data` and `annotations`
//! (<https://labelstud.io/guide/task_format>). `export --format label-studio` writes the fullname and the text hash
//! into `data`; the hash identifies the text that annotators saw, even if a tool has changed its line endings. Files of
//! other tools are read if they have the post's fullname: a label may be a list with one label, and the columns of
//! Argilla (`label.responses`) and Prodigy (`accept`) are known.

mod argilla;
mod label_studio;
mod tools;

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use serde_json::Value;

use self::argilla::is_responses;
use self::tools::{Tool, tool_of};
use super::{GoldError, GoldRow, annotator_name, gold_note};
use topicmill_core::{Fullname, GoldSource, SampleReason, Timestamp, parse_time};
use topicmill_tables::{Cell, Row, Rows, TableError, open};

/// Maximum number of invalid lines that an error lists; further lines are only counted.
const LISTED_LINES: usize = 20;

/// Reads the rows of a gold file, in order.
///
/// # Errors
/// Returns [`GoldError`] if the file cannot be read, is empty, or contains rows without an id or a label.
pub fn read_rows(path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let failed = |source: TableError| GoldError::Read {
        path: path.to_owned(),
        source,
    };
    let Some(table) = open(path, None).map_err(failed)? else {
        return Err(GoldError::Empty);
    };
    let mut table = table.rows;
    check_columns(&*table, path)?;
    let (mut rows, mut wrong, mut tool) = (Vec::new(), Vec::new(), None);
    while let Some(row) = table.next_row().map_err(failed)? {
        if row.is_blank() {
            continue;
        }
        tool = tool.or_else(|| tool_of(&row));
        match parse_row(&row) {
            Ok(answers) => rows.extend(answers),
            Err(detail) => wrong.push(format!("line {}: {detail}", row.line)),
        }
    }
    if wrong.is_empty() {
        if let Some(Tool { name, reads, .. }) = tool {
            tracing::info!(file = %path.display(), "reading a file of {name}: {reads}");
        }
        return Ok(rows);
    }
    let count = wrong.len();
    wrong.truncate(LISTED_LINES);
    if count > LISTED_LINES {
        wrong.push(format!("and {} more lines", count - LISTED_LINES));
    }
    let advice = match tool {
        Some(Tool { name, advice, .. }) => format!("the file is from {name}: {advice}"),
        None => "correct or remove these lines".to_owned(),
    };
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: format!("{}; {advice}", wrong.join("; ")),
    })
}

/// Returns an error if a table with named columns has none for the id or for the label.
fn check_columns(table: &dyn Rows, path: &Path) -> Result<(), GoldError> {
    let Some(names) = table.names() else {
        return Ok(());
    };
    let has = |wanted: &str| {
        let mut names = names.iter();
        names.any(|name| name.trim().eq_ignore_ascii_case(wanted))
    };
    let has_label = has("label") || has("accept") || names.iter().any(|name| is_responses(name));
    let missing = match (has("id") || has("fullname"), has_label) {
        (true, true) => return Ok(()),
        (true, false) => "label",
        (false, _) => "id",
    };
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: format!(
            "no column `{missing}` (columns: {}); name the columns `id` and `label`",
            names.join(", ")
        ),
    })
}

/// Parses a row. A table row contains one answer, or none; a Label Studio task contains any number.
fn parse_row(row: &Row) -> Result<Vec<GoldRow>, String> {
    if let Some(problem) = &row.problem {
        return Err(format!("the row {problem}"));
    }
    if cell(row, "annotations").is_some() && cell(row, "data").is_some() {
        return label_studio::answers(row);
    }
    if cell(row, "annotation_id").is_some() {
        return Err(
            "Label Studio's CSV and JSON-MIN are not supported: export the project as JSON".into(),
        );
    }
    if is_rejected(row) {
        return Ok(Vec::new());
    }
    let shared = shared_fields(row)?;
    if let Some(column) = responses_column(row) {
        return argilla::answers(row, column, &shared);
    }
    let answer = |label| GoldRow {
        label,
        ..shared.clone()
    };
    Ok(labels(row)?.into_iter().map(answer).collect())
}

/// Returns true for an example that an annotator rejected or ignored, which Prodigy keeps.
fn is_rejected(row: &Row) -> bool {
    let answer = text(row, "answer").ok().flatten();
    answer.is_some_and(|answer| matches!(&*answer.to_lowercase(), "reject" | "ignore"))
}

/// Returns the fields that all answers in a row share, with an empty label.
fn shared_fields(row: &Row) -> Result<GoldRow, String> {
    // Prodigy keeps unknown fields in `meta`.
    let meta = json(row, "meta").unwrap_or_default();
    let in_meta = |name| meta.get(name).and_then(Value::as_str).map(str::to_owned);
    let id = match text(row, "fullname")?.or_else(|| in_meta("fullname")) {
        Some(id) => id,
        None => text(row, "id")?
            .or_else(|| in_meta("id"))
            .ok_or("the row has no `id`")?,
    };
    let id = Fullname::from_url(&id).map_err(to_text)?;
    let time_of_answer = text(row, "answered_at")?;
    // In files from other tools, a `source` column may have any meaning, and a `note` column any type.
    let source = text(row, "source")?.and_then(|source| source.parse().ok());
    let note = text(row, "note").ok().flatten();
    Ok(GoldRow {
        annotator: annotator(text(row, "annotator")?.or(text(row, "_annotator_id")?))?,
        answered_at: time_of_answer.as_deref().map(time).transpose()?,
        chosen: parse(text(row, "chosen")?)?.unwrap_or(SampleReason::Import),
        source: source.unwrap_or(GoldSource::Import),
        text_hash: parse(text(row, "text_hash")?)?,
        note: note.and_then(|note| gold_note(&note)),
        ..GoldRow::new(row.line, id, String::new())
    })
}

/// Returns the name of Argilla's column of answers, if the row has one.
fn responses_column(row: &Row) -> Option<&str> {
    let mut columns = row.cells.iter().map(|(name, _)| &**name);
    // A table from another tool may have both a column `label` and a column `responses`, for example of counts.
    let is_table = |name: &str| name == "responses" && cell(row, "label").is_some();
    columns.find(|name| is_responses(name) && !is_table(name))
}

/// Returns the labels of a row; none if its list of labels is empty.
fn labels(row: &Row) -> Result<Vec<String>, String> {
    let column = ["label", "accept"]
        .into_iter()
        .find(|name| cell(row, name).is_some())
        .ok_or("the row has no `label`")?;
    let labels = json_or_text(row, column).and_then(|value| list(&value));
    labels.map_err(|why| format!("`{column}` {why}"))
}

/// Returns the labels in a value: a label, null for "none of these", or a list of labels, which CSV contains as JSON or
/// as Python prints it.
fn list(value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(label) => Ok(label.trim().to_owned()),
        _ => Err("is not text".to_owned()),
    };
    match value {
        Value::Null => Ok(vec![String::new()]),
        Value::Array(labels) => labels.iter().map(one).collect(),
        Value::String(text) if text.starts_with('[') && text.ends_with(']') => {
            let parsed = serde_json::from_str::<Vec<String>>(text);
            parsed
                .or_else(|_| serde_json::from_str(&text.replace('\'', "\"")))
                .or(Ok(vec![text.clone()]))
        }
        _ => Ok(vec![one(value)?]),
    }
}

/// Cleans an annotator's name, if there is one.
fn annotator(name: Option<String>) -> Result<Option<String>, String> {
    name.map_or(Ok(None), |name| annotator_name(&name))
}

/// Parses a value, if there is one.
fn parse<T: FromStr<Err: Display>>(text: Option<impl AsRef<str>>) -> Result<Option<T>, String> {
    let parsed = text.map(|text| text.as_ref().parse().map_err(to_text));
    parsed.transpose()
}

/// Returns the cell of a column, ignoring case.
fn cell<'a>(row: &'a Row, name: &str) -> Option<&'a Cell> {
    let is_named = |column: &str| column.trim().eq_ignore_ascii_case(name);
    let named = row.cells.iter().find(|(column, _)| is_named(column));
    named.map(|(_, cell)| cell)
}

/// Returns the trimmed text of a column, unless it is empty; an error if the value has a different type.
fn text(row: &Row, name: &str) -> Result<Option<String>, String> {
    let text = match cell(row, name) {
        None | Some(Cell::Null) => return Ok(None),
        Some(cell) => cell.text().ok_or_else(|| format!("`{name}` is not text"))?,
    };
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Returns the value of a column, whose text is not JSON in a table. A value that is not valid Unicode is an error: as
/// null, it would mean "none of these".
fn json_or_text(row: &Row, name: &str) -> Result<Value, String> {
    let value = match cell(row, name) {
        None | Some(Cell::Null) => Some(Value::Null),
        Some(Cell::Text(text)) => Some(text.trim().into()),
        Some(Cell::Json(json)) => serde_json::from_str(json).ok(),
        Some(Cell::Bytes(_)) => None,
    };
    value.ok_or_else(|| "is not text".to_owned())
}

/// Returns the JSON value of a column; null if there is none.
fn json(row: &Row, name: &str) -> Result<Value, String> {
    let Some(Cell::Json(json) | Cell::Text(json)) = cell(row, name) else {
        return Ok(Value::Null);
    };
    // A table may contain a list as Python prints it.
    let parsed = serde_json::from_str(json);
    parsed
        .or_else(|_| serde_json::from_str(&json.replace('\'', "\"")))
        .map_err(|_| format!("`{name}` is not valid JSON"))
}

/// Parses a time with a UTC offset; fractions of seconds are dropped.
fn time(text: &str) -> Result<Timestamp, String> {
    let parsed = parse_time(text).filter(|parsed| parsed.has_zone);
    parsed.map(|parsed| parsed.time.into()).ok_or_else(|| {
        format!("`{text}` is not a time with a UTC offset, such as 2026-11-20T08:00:00+00:00")
    })
}

fn to_text(error: impl Display) -> String {
    error.to_string()
}
