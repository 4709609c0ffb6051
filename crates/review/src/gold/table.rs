//! The rows of a gold file: a post's id, the word for its label, and the line that says so.
//!
//! A table of any format with the columns `id` and `label`, and who said it when, where it tells; or tasks that Label
//! Studio exported as JSON, with `data` and `annotations` (<https://labelstud.io/guide/task_format>). In these the post is
//! in `data.fullname`, as `export --format label-studio` put it there, and so is the hash of the text that people saw: a
//! tool, or a spreadsheet after it, may change the ends of the lines of the text itself.

use std::path::Path;

use serde_json::Value;

use super::{GoldError, GoldRow};
use topicmill_core::{Fullname, GoldSource, SampleReason, Timestamp};
use topicmill_tables::{Cell, Row, Rows, TableError, open};

/// Lines with something wrong that are told; more of them are counted.
const TOLD: usize = 20;

/// Reads the rows of a gold file, in their order.
///
/// # Errors
/// When the file cannot be read, is empty, or has rows without an id or a label.
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
        match understood(&row) {
            Ok(answers) => rows.extend(answers),
            Err(detail) => wrong.push(format!("line {}: {detail}", row.line)),
        }
    }
    if wrong.is_empty() {
        return Ok(rows);
    }
    let count = wrong.len();
    wrong.truncate(TOLD);
    if count > TOLD {
        wrong.push(format!("and {} more lines", count - TOLD));
    }
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: format!(
            "{}; correct these lines, or take them out",
            wrong.join("; ")
        ),
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
            "it has no column `{column}` (it has {}); name the columns `id` and `label`",
            found.join(", ")
        ),
    })
}

/// What a row says: a row of a table one answer, a task of Label Studio any number.
fn understood(row: &Row) -> Result<Vec<GoldRow>, String> {
    if let Some(problem) = &row.problem {
        return Err(format!("it {problem}"));
    }
    if cell(row, "annotations").is_some() && cell(row, "data").is_some() {
        return label_studio(row);
    }
    if cell(row, "annotation_id").is_some() {
        return Err("it is of Label Studio's short form: export the project as JSON".into());
    }
    let id = text(row, "fullname")?.or(text(row, "id")?);
    let id = id.filter(|id| !id.is_empty()).ok_or("it has no `id`")?;
    if cell(row, "label").is_none() {
        return Err("it has no `label`".into());
    }
    let word = |name| text(row, name).map(|word| word.filter(|word| !word.is_empty()));
    Ok(vec![GoldRow {
        line: row.line,
        id: Fullname::from_url(&id).map_err(told)?,
        label: text(row, "label")?.unwrap_or_default(),
        reviewer: word("reviewer")?.or(word("who")?),
        answered_at: word("answered_at")?.as_deref().map(time).transpose()?,
        chosen: match word("chosen")? {
            Some(chosen) => chosen.parse().map_err(told)?,
            None => SampleReason::Import,
        },
        // Columns of these names may mean anything in the files of others.
        source: word("source")?
            .and_then(|source| source.parse().ok())
            .unwrap_or(GoldSource::Import),
        text_hash: word("text_hash")?
            .map(|hash| hash.parse().map_err(told))
            .transpose()?,
    }])
}

fn label_studio(row: &Row) -> Result<Vec<GoldRow>, String> {
    let data = json(row, "data")?;
    let id = data["fullname"].as_str().or(data["id"].as_str());
    let id = id.ok_or("its `data` has no `fullname`")?;
    let id = Fullname::from_url(id).map_err(told)?;
    let annotations = json(row, "annotations")?;
    let annotations = annotations
        .as_array()
        .ok_or("its `annotations` are no array")?;
    let mut answers = Vec::new();
    // One that was cancelled was skipped by the person.
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
            [one] => one.as_str().ok_or("a choice is no text")?.to_owned(),
            _ => {
                tracing::warn!(%id, line = row.line, "left out an annotation with several choices: one is asked for");
                continue;
            }
        };
        let by = &one["completed_by"];
        let email = by.as_str().or(by["email"].as_str()).map(str::to_owned);
        let number = by.as_i64().or(by["id"].as_i64());
        let at = one["updated_at"].as_str().or(one["created_at"].as_str());
        answers.push(GoldRow {
            // With the tool's name in front: the number means nobody elsewhere.
            reviewer: email.or(number.map(|id| format!("label-studio:{id}"))),
            answered_at: at.map(time).transpose()?,
            chosen: parsed(&data["chosen"]).unwrap_or(SampleReason::Import),
            source: GoldSource::LabelStudio,
            text_hash: data["text_hash"]
                .as_str()
                .map(|hash| hash.parse().map_err(told))
                .transpose()?,
            ..GoldRow::new(row.line, id.clone(), label)
        });
    }
    Ok(answers)
}

/// A word that topicmill wrote, if it is still one.
fn parsed<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str().and_then(|word| word.parse().ok())
}

/// The cell of a column, whatever the case of its name.
fn cell<'a>(row: &'a Row, name: &str) -> Option<&'a Cell> {
    let same = |column: &str| column.trim().eq_ignore_ascii_case(name);
    let found = row.cells.iter().find(|(column, _)| same(column));
    found.map(|(_, cell)| cell)
}

/// The trimmed text of a column; an error where it holds a value of another kind.
fn text(row: &Row, name: &str) -> Result<Option<String>, String> {
    match cell(row, name) {
        None | Some(Cell::Null) => Ok(None),
        Some(cell) => match cell.text() {
            Some(text) => Ok(Some(text.trim().to_owned())),
            None => Err(format!("its `{name}` is no text")),
        },
    }
}

fn json(row: &Row, name: &str) -> Result<Value, String> {
    let Some(Cell::Json(json) | Cell::Text(json)) = cell(row, name) else {
        return Ok(Value::Null);
    };
    serde_json::from_str(json).map_err(|_| format!("its `{name}` is no JSON"))
}

/// A time with its zone; whole seconds are kept.
fn time(text: &str) -> Result<Timestamp, String> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        // As PostgreSQL and pandas print it.
        .or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.map(|time| time.to_utc().into())
        .map_err(|_| format!("`{text}` is no time with a zone, such as 2026-11-20T08:00:00+00:00"))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
