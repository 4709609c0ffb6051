//! Reads the answers of a record of Argilla, whose columns or JSON list the annotators' responses to a question.

use serde_json::Value;
use topicmill_tables::Row;

use super::{annotator, json, list};
use crate::gold::GoldRow;

/// Returns true for Argilla's column of answers to a question, or to all questions in its JSON.
pub(super) fn is_responses(column: &str) -> bool {
    column == "responses" || column.ends_with(".responses")
}

/// Returns the submitted answers in Argilla's columns of a question, or in the column of all questions in its JSON.
/// `shared` has the fields that they share; a response that names its annotator is theirs.
pub(super) fn answers(row: &Row, column: &str, shared: &GoldRow) -> Result<Vec<GoldRow>, String> {
    let (values, users, statuses) = match json(row, column)? {
        Value::Object(questions) => {
            let answers = questions.into_iter().next().unwrap_or_default().1;
            let answers = answers.as_array().cloned().unwrap_or_default();
            let each = |field: &str| -> Value {
                answers.iter().map(|answer| answer[field].clone()).collect()
            };
            (each("value"), each("user_id"), each("status"))
        }
        values => {
            let of_question = |what: &str| json(row, &format!("{column}.{what}"));
            (values, of_question("users")?, of_question("status")?)
        }
    };
    let mut answers = Vec::new();
    for (place, value) in values.as_array().into_iter().flatten().enumerate() {
        // A draft is unfinished, and a discarded answer is none.
        let status = statuses[place].as_str();
        if status.is_some_and(|status| status != "submitted") {
            continue;
        }
        let labels = list(value).map_err(|why| format!("`{column}` {why}"))?;
        let user = users[place].as_str().map(str::to_owned);
        answers.extend(labels.into_iter().map(|label| GoldRow {
            label,
            annotator: user.clone().or_else(|| shared.annotator.clone()),
            ..shared.clone()
        }));
    }
    for answer in &mut answers {
        answer.annotator = annotator(answer.annotator.take())?;
    }
    Ok(answers)
}
