//! Reads the rows of a gold file.
//!
//! The file is a table of any supported format with the columns `id` and `label`, and optionally `annotator`,
//! `answered_at` and others; or a Label Studio JSON export with `data` and `annotations`
//! (<https://labelstud.io/guide/task_format>). `export --format label-studio` writes the fullname and the text hash
//! into `data`. The hash identifies the text that annotators saw, even if a tool has changed its line endings.

use std::path::Path;

use serde_json::Value;

use super::{GoldError, GoldRow, annotator_name, gold_note};
use topicmill_core::{Fullname, GoldSource, SampleReason, Timestamp};
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
    let Some(table) = open(path, None, None).map_err(failed)? else {
        return Err(GoldError::Empty);
    };
    let mut table = table.rows;
    columns(&*table, path)?;
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    while let Some(row) = table.next_row().map_err(failed)? {
        match parse_row(&row) {
            Ok(answers) => rows.extend(answers),
            Err(detail) => wrong.push(format!("line {}: {detail}", row.line)),
        }
    }
    if wrong.is_empty() {
        return Ok(rows);
    }
    let count = wrong.len();
    wrong.truncate(LISTED_LINES);
    if count > LISTED_LINES {
        wrong.push(format!("and {} more lines", count - LISTED_LINES));
    }
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: format!("{}; correct or remove these lines", wrong.join("; ")),
    })
}

fn columns(table: &dyn Rows, path: &Path) -> Result<(), GoldError> {
    let Some(names) = table.names() else {
        return Ok(());
    };
    let has = |sought: &str| {
        let mut names = names.iter();
        names.any(|name| name.trim().eq_ignore_ascii_case(sought))
    };
    let column = match (has("id") || has("fullname"), has("label")) {
        (true, true) => return Ok(()),
        (true, false) => "label",
        (false, _) => "id",
    };
    let found: Vec<String> = names.iter().map(ToString::to_string).collect();
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: format!(
            "no column `{column}` (columns: {}); name the columns `id` and `label`",
            found.join(", ")
        ),
    })
}

/// Parses a row. A table row contains one answer, or none; a Label Studio task contains any number.
fn parse_row(row: &Row) -> Result<Vec<GoldRow>, String> {
    if let Some(problem) = &row.problem {
        return Err(format!("the row {problem}"));
    }
    if cell(row, "annotations").is_some() && cell(row, "data").is_some() {
        return label_studio(row);
    }
    if cell(row, "annotation_id").is_some() {
        return Err(
            "Label Studio's CSV and JSON-MIN are not supported: export the project as JSON".into(),
        );
    }
    // Prodigy keeps the examples that an annotator rejected or ignored.
    let is_refused = |answer: &str| ["reject", "ignore"].contains(&answer);
    if text(row, "answer").is_ok_and(|answer| answer.as_deref().is_some_and(is_refused)) {
        return Ok(Vec::new());
    }
    let id = text(row, "fullname")?.or(text(row, "id")?);
    let id = id
        .filter(|id| !id.is_empty())
        .ok_or("the row has no `id`")?;
    if cell(row, "label").is_none() {
        return Err("the row has no `label`".into());
    }
    let word = |name| text(row, name).map(|word| word.filter(|word| !word.is_empty()));
    Ok(vec![GoldRow {
        is_tied: false,
        line: row.line,
        id: Fullname::from_url(&id).map_err(to_text)?,
        label: text(row, "label")?.unwrap_or_default(),
        annotator: named(word("annotator")?)?,
        answered_at: word("answered_at")?.as_deref().map(time).transpose()?,
        chosen: match word("chosen")? {
            Some(chosen) => chosen.parse().map_err(to_text)?,
            None => SampleReason::Import,
        },
        // In files from other tools, a `source` column may have any meaning.
        source: word("source")?
            .and_then(|source| source.parse().ok())
            .unwrap_or(GoldSource::Import),
        text_hash: word("text_hash")?
            .map(|hash| hash.parse().map_err(to_text))
            .transpose()?,
        // In files from other tools, a `note` column may have any type.
        note: text(row, "note")
            .ok()
            .flatten()
            .and_then(|note| gold_note(&note)),
    }])
}

fn named(annotator: Option<String>) -> Result<Option<String>, String> {
    annotator.map_or(Ok(None), |name| annotator_name(&name))
}

fn label_studio(row: &Row) -> Result<Vec<GoldRow>, String> {
    let data = json(row, "data")?;
    let id = data["fullname"].as_str().or(data["id"].as_str());
    let id = id.ok_or("`data` has no `fullname`")?;
    let id = Fullname::from_url(id).map_err(to_text)?;
    let annotations = json(row, "annotations")?;
    let annotations = annotations
        .as_array()
        .ok_or("`annotations` is not an array")?;
    let mut answers = Vec::new();
    // A cancelled annotation is a task that the annotator skipped.
    for one in annotations
        .iter()
        .filter(|one| one["was_cancelled"] != true)
    {
        let results = one["result"].as_array().into_iter().flatten();
        let choices = results.filter(|result| result["type"] == "choices");
        let choices = choices.filter_map(|result| result["value"]["choices"].as_array());
        let choices: Vec<&Value> = choices.flatten().collect();
        let label = match choices[..] {
            [] => continue,
            [one] => one.as_str().ok_or("a choice is not text")?.to_owned(),
            _ => {
                tracing::warn!(%id, line = row.line, "ignored an annotation with several choices: only one is \
                                                      supported");
                continue;
            }
        };
        let by = &one["completed_by"];
        let email = by.as_str().or(by["email"].as_str()).map(str::to_owned);
        let number = by.as_i64().or(by["id"].as_i64());
        let at = one["updated_at"].as_str().or(one["created_at"].as_str());
        answers.push(GoldRow {
            // The prefix keeps Label Studio user ids distinct from names in other tools.
            annotator: named(email)?.or(number.map(|id| format!("label-studio:{id}"))),
            answered_at: at.map(time).transpose()?,
            chosen: parsed(&data["chosen"]).unwrap_or(SampleReason::Import),
            source: GoldSource::LabelStudio,
            text_hash: data["text_hash"]
                .as_str()
                .map(|hash| hash.parse().map_err(to_text))
                .transpose()?,
            ..GoldRow::new(row.line, id.clone(), label)
        });
    }
    Ok(answers)
}

/// Parses a value that topicmill exported; `None` if it was changed to an invalid one.
fn parsed<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str().and_then(|word| word.parse().ok())
}

/// Returns the cell of a column, ignoring case.
fn cell<'a>(row: &'a Row, name: &str) -> Option<&'a Cell> {
    let same = |column: &str| column.trim().eq_ignore_ascii_case(name);
    let found = row.cells.iter().find(|(column, _)| same(column));
    found.map(|(_, cell)| cell)
}

/// Returns the trimmed text of a column; an error if the value has a different type.
fn text(row: &Row, name: &str) -> Result<Option<String>, String> {
    match cell(row, name) {
        None | Some(Cell::Null) => Ok(None),
        Some(cell) => match cell.text() {
            Some(text) => Ok(Some(text.trim().to_owned())),
            None => Err(format!("`{name}` is not text")),
        },
    }
}

fn json(row: &Row, name: &str) -> Result<Value, String> {
    let Some(Cell::Json(json) | Cell::Text(json)) = cell(row, name) else {
        return Ok(Value::Null);
    };
    serde_json::from_str(json).map_err(|_| format!("`{name}` is not valid JSON"))
}

/// Parses a time with a UTC offset; fractions of seconds are dropped.
fn time(text: &str) -> Result<Timestamp, String> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        // The format used by PostgreSQL and pandas.
        .or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.map(|time| time.to_utc().into()).map_err(|_| {
        format!("`{text}` is not a time with a UTC offset, such as 2026-11-20T08:00:00+00:00")
    })
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
