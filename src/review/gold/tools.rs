//! Answers in what Label Studio exports. Pure.
//!
//! It exports tasks with `data` and `annotations` (<https://labelstud.io/guide/task_format>), or a flat table with
//! `annotation_id` and `annotator` (its JSON-MIN and CSV). In both, the post is named as `export --format label-studio`
//! wrote it, and so is the hash of the text that people saw: a tool, or a spreadsheet after it, may change the ends of the
//! lines of the text itself.

use serde_json::Value;

use super::cells::{cell, text, time};
use crate::domain::{Chosen, GoldSource, TextHash, Timestamp};
use crate::tables::{Cell, Row};

/// The column by which a flat table of Label Studio is recognised.
const OF_LABEL_STUDIO: &str = "annotation_id";

/// An answer about the post of a row.
pub(super) struct Answer {
    /// The word for the label.
    pub label: String,
    pub reviewer: Option<String>,
    pub answered_at: Option<Timestamp>,
    pub chosen: Option<Chosen>,
    /// Of the text that the person saw.
    pub text_hash: Option<TextHash>,
}

/// Whether a column of this name is in no table but one of Label Studio.
pub(super) fn is_of_a_tool(column: &str) -> bool {
    column == OF_LABEL_STUDIO
}

/// The post's id and the answers about it; `None` for a row of no tool.
pub(super) fn answers(row: &Row) -> Result<Option<(GoldSource, String, Vec<Answer>)>, String> {
    let has = |name| cell(row, name).is_some();
    if has("annotations") && has("data") {
        return label_studio(row).map(Some);
    }
    if has(OF_LABEL_STUDIO) {
        return flat_label_studio(row).map(Some);
    }
    Ok(None)
}

type Found = (GoldSource, String, Vec<Answer>);

fn label_studio(row: &Row) -> Result<Found, String> {
    let data = value(row, "data")?;
    let id = data["fullname"].as_str().or(data["id"].as_str());
    let id = id.ok_or("its `data` has no `fullname`")?.to_owned();
    let chosen = parsed(&data["chosen"]);
    let text_hash = parsed(&data["text_hash"]);
    let annotations = value(row, "annotations")?;
    let mut answers = Vec::new();
    for one in annotations
        .as_array()
        .ok_or("its `annotations` are no array")?
    {
        if one["was_cancelled"] == true {
            continue; // It was skipped.
        }
        let mut choices = Vec::new();
        for result in one["result"].as_array().into_iter().flatten() {
            if result["type"] == "choices" {
                choices.extend(result["value"]["choices"].as_array().into_iter().flatten());
            }
        }
        let label = match choices[..] {
            [] => continue,
            [one] => one.as_str().ok_or("a choice is no text")?.to_owned(),
            _ => return Err("an annotation has several choices: one is asked for".into()),
        };
        let by = &one["completed_by"];
        let email = by.as_str().or(by["email"].as_str()).map(str::to_owned);
        let number = by.as_i64().or(by["id"].as_i64());
        let at = one["updated_at"].as_str().or(one["created_at"].as_str());
        answers.push(Answer {
            label,
            // With the tool's name in front, because the numbers of two tools mean different people.
            reviewer: email.or(number.map(|id| format!("label-studio:{id}"))),
            answered_at: at.map(time).transpose()?,
            chosen,
            text_hash,
        });
    }
    Ok((GoldSource::LabelStudio, id, answers))
}

fn flat_label_studio(row: &Row) -> Result<Found, String> {
    let id = text(row, "fullname")?.ok_or("it has no `fullname`")?;
    // Numbers come as numbers in JSON, and as texts in CSV.
    let word = |name| match cell(row, name) {
        Some(Cell::Json(json)) => Some(json.trim_matches('"').to_owned()),
        Some(Cell::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let label = match cell(row, "label") {
        None | Some(Cell::Null) => String::new(),
        Some(_) => text(row, "label")
            .map_err(|_| "it has several choices: one is asked for")?
            .unwrap_or_default(),
    };
    let source = GoldSource::LabelStudio;
    if label.is_empty() {
        return Ok((source, id, vec![])); // A task that nobody answered.
    }
    if label.starts_with('{') {
        return Err("it has several choices: one is asked for".into());
    }
    let who = word("annotator").filter(|who| !who.is_empty());
    let number = |who: &String| who.bytes().all(|byte| byte.is_ascii_digit());
    let at = word("updated_at")
        .or(word("created_at"))
        .filter(|at| !at.is_empty());
    let answer = Answer {
        label,
        reviewer: who.map(|who| {
            if number(&who) {
                format!("label-studio:{who}")
            } else {
                who
            }
        }),
        answered_at: at.as_deref().map(time).transpose()?,
        chosen: word("chosen").and_then(|word| word.parse().ok()),
        text_hash: word("text_hash").and_then(|word| word.parse().ok()),
    };
    Ok((source, id, vec![answer]))
}

/// A word that topicmill wrote, if it is still one.
fn parsed<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str().and_then(|word| word.parse().ok())
}

/// A column of JSON, which a CSV holds as a text.
fn value(row: &Row, name: &str) -> Result<Value, String> {
    let Some(Cell::Json(json) | Cell::Text(json)) = cell(row, name) else {
        return Ok(Value::Null);
    };
    serde_json::from_str(json).map_err(|_| format!("its `{name}` is no JSON"))
}
