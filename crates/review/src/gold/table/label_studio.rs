//! Reads a task of a Label Studio JSON export, which contains any number of annotations.

use serde_json::Value;
use topicmill_core::{Fullname, GoldSource, SampleReason};
use topicmill_tables::Row;

use super::{annotator, json, parse, time, to_text};
use crate::gold::GoldRow;

/// Returns the answers of a Label Studio task.
pub(super) fn answers(row: &Row) -> Result<Vec<GoldRow>, String> {
    let data = json(row, "data")?;
    let written = data["fullname"].as_str().or(data["id"].as_str());
    let id = Fullname::from_url(written.ok_or("`data` has no `fullname`")?).map_err(to_text)?;
    // The value is what topicmill exported, unless it was changed to an invalid one.
    let chosen = data["chosen"].as_str().and_then(|word| word.parse().ok());
    let annotations = json(row, "annotations")?;
    let Value::Array(annotations) = &annotations else {
        return Err("`annotations` is not an array".to_owned());
    };
    let mut answers = Vec::new();
    for annotation in annotations {
        // A cancelled annotation is a task that the annotator skipped.
        if annotation["was_cancelled"] == true {
            continue;
        }
        let results = annotation["result"].as_array().into_iter().flatten();
        let choices: Vec<&Value> = results
            .filter(|result| result["type"] == "choices")
            .filter_map(|result| result["value"]["choices"].as_array())
            .flatten()
            .collect();
        let label = match choices[..] {
            [] => continue,
            [choice] => choice.as_str().ok_or("a choice is not text")?.to_owned(),
            _ => {
                tracing::warn!(%id, line = row.line, "ignored an annotation with several choices: only one is \
                                                      supported");
                continue;
            }
        };
        let user = &annotation["completed_by"];
        let email = user.as_str().or(user["email"].as_str()).map(str::to_owned);
        let number = user.as_i64().or(user["id"].as_i64());
        let times = [&annotation["updated_at"], &annotation["created_at"]];
        let answered_at = times.into_iter().find_map(Value::as_str);
        answers.push(GoldRow {
            // The prefix keeps Label Studio user ids distinct from names in other tools.
            annotator: annotator(email)?.or(number.map(|id| format!("label-studio:{id}"))),
            answered_at: answered_at.map(time).transpose()?,
            chosen: chosen.unwrap_or(SampleReason::Import),
            source: GoldSource::LabelStudio,
            text_hash: parse(data["text_hash"].as_str())?,
            ..GoldRow::new(row.line, id.clone(), label)
        });
    }
    Ok(answers)
}
