//! Recognises the annotation tools whose files are read.

use super::argilla::is_responses;
use super::cell;
use topicmill_tables::Row;

/// A tool that exports answers.
pub(super) struct Tool {
    pub name: &'static str,
    /// A column of its files by which they are recognised.
    column: &'static str,
    /// The columns that are read, in words.
    pub reads: &'static str,
    /// Instructions for exporting a file that can be read.
    pub advice: &'static str,
}

/// The tools; the first one that a row fits counts.
const TOOLS: [Tool; 4] = [
    Tool {
        name: "Argilla",
        column: "_server_id",
        reads: "`QUESTION.responses` as the labels, and `QUESTION.responses.users` as the annotators",
        advice: "give each record the fullname as its id, and export with `records.to_json`",
    },
    Tool {
        name: "Prodigy",
        column: "_task_hash",
        reads: "`label` or `accept` as the label, and `_annotator_id` as the annotator",
        advice: "give each task the fullname as `id`, and export with `prodigy db-out`",
    },
    Tool {
        name: "doccano",
        column: "Comments",
        reads: "`fullname` as the post, and `label` as the label",
        advice: "its `id` counts examples, so import posts with their `fullname`, and export as JSONL",
    },
    Tool {
        name: "Label Studio",
        column: "annotations",
        reads: "`data.fullname` as the post, and `choices` as the label",
        advice: "export tasks with `topicmill export --format label-studio`, and the project as JSON",
    },
];

/// Returns the tool that a row is from.
pub(super) fn tool_of(row: &Row) -> Option<&'static Tool> {
    let is_argilla = row.cells.iter().any(|(name, _)| is_responses(name));
    TOOLS
        .iter()
        .find(|tool| cell(row, tool.column).is_some() || is_argilla && tool.name == "Argilla")
}
