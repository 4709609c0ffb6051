//! Defines the format and columns of the output, and formats results as JSON lines.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::FileJob;
use topicmill_core::LabelSet;
use topicmill_score::TextResult;
use topicmill_tables::{Compression, TableFormat};

/// The columns that are added to every output, in this order.
const ADDED: [&str; 5] = ["label", "score", "margin", "abstained", "outcome"];

/// The format and columns of the output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OutputLayout {
    pub(super) format: TableFormat,
    pub(super) compression: Compression,
    /// The delimiter for CSV and TSV.
    pub(super) delimiter: u8,
    /// The score columns in a table, if requested.
    score_columns: Vec<String>,
    /// True if all inputs are Parquet files with the same schema, whose columns are copied from file to file.
    pub(super) is_copied: bool,
    drops_columns: bool,
}

impl OutputLayout {
    /// Determines the layout from the options or, failing that, from the file extension; the default is NDJSON.
    /// `delimiter` is that of the input, and `is_copied` is true if the columns of the inputs could be copied.
    pub(super) fn new(
        job: &FileJob,
        set: &LabelSet,
        delimiter: Option<u8>,
        is_copied: bool,
    ) -> Self {
        let format = match requested_format(job) {
            None | Some(TableFormat::Text) => TableFormat::Ndjson,
            Some(format) => format,
        };
        let delimiter = match format {
            TableFormat::Tsv => b'\t',
            _ => delimiter.unwrap_or(b','),
        };
        let drops_columns = job.writing.drop_columns;
        let mut layout = Self {
            format,
            compression: Compression::from_path(&job.output),
            delimiter,
            score_columns: Vec::new(),
            is_copied: is_copied && format == TableFormat::Parquet && !drops_columns,
            drops_columns,
        };
        if job.writing.label_scores && !layout.is_json() {
            let labels = set.labels.iter();
            layout.score_columns = labels
                .map(|label| format!("score_{}", label.slug))
                .collect();
        }
        layout
    }

    /// Returns true if each row is one JSON object with all details.
    fn is_json(&self) -> bool {
        matches!(self.format, TableFormat::Ndjson | TableFormat::Json)
    }

    /// Returns true if the JSON lines are the output, without conversion.
    pub(super) fn is_lines(&self) -> bool {
        self.format == TableFormat::Ndjson && self.compression == Compression::Plain
    }

    /// Returns true if the lines contain the input columns.
    pub(super) fn keeps_columns(&self) -> bool {
        !self.is_copied && !self.drops_columns
    }

    /// Returns the columns that are added to the input columns.
    pub(super) fn added(&self) -> Vec<String> {
        let added = ADDED.iter().map(ToString::to_string);
        let scores = self.score_columns.iter().cloned();
        let last = std::iter::once("error".to_owned());
        added.chain(scores).chain(last).collect()
    }

    /// Returns the names that no input column may have in the output.
    pub(super) fn reserved(&self) -> Vec<String> {
        let mut reserved = self.added();
        if self.is_json() {
            let of_json = ["scores", "logits", "input", "line"];
            reserved.extend(of_json.map(str::to_owned));
        }
        reserved
    }

    /// Formats the line for a scored text. `kept` contains the members of the object that come first.
    pub(super) fn result_line(&self, kept: &str, set: &LabelSet, result: &TextResult) -> String {
        let scores = &result.scores;
        let best = &set.labels[scores.best].slug;
        let mut row = json!({
            // An abstention has no label; the best score is still in `scores`.
            "label": (!scores.is_abstention()).then_some(best),
            "score": scores.scores[scores.best],
            "margin": scores.margin,
            "abstained": scores.is_abstention(),
            "outcome": scores.outcome.word(best),
        });
        if self.is_json() {
            let slugs = || set.labels.iter().map(|label| label.slug.clone());
            let by_label: Map<String, Value> = slugs()
                .zip(scores.scores.iter().map(|score| json!(score)))
                .collect();
            row["scores"] = by_label.into();
            let by_label: Map<String, Value> = slugs()
                .zip(&result.raw)
                .filter(|(_, logits)| !logits.is_empty()) // A shortlist left the label out.
                .map(|(slug, logits)| (slug, json!(logits)))
                .collect();
            row["logits"] = by_label.into();
        }
        for (name, score) in self.score_columns.iter().zip(&scores.scores) {
            row[name.as_str()] = json!(score);
        }
        line(kept, &row)
    }

    /// Formats the line for a text that failed. `input` is set if there are several inputs.
    pub(super) fn failure_line(
        &self,
        kept: &str,
        input: Option<&Path>,
        number: u64,
        problem: &str,
    ) -> String {
        let mut row = json!({});
        if self.is_json() {
            if let Some(input) = input {
                row["input"] = json!(input.to_string_lossy());
            }
            row["line"] = json!(number);
            row["error"] = json!(problem);
        } else {
            row["error"] = json!(format!("{} {problem}", place(input, number)));
        }
        line(kept, &row)
    }
}

/// Formats a row's location for messages. `input` is set if there are several inputs.
pub(super) fn place(input: Option<&Path>, line: u64) -> String {
    match input {
        Some(input) => format!("{} line {line}", input.display()),
        None => format!("line {line}"),
    }
}

/// Formats a line: the members that come from the input, then those of `row`.
fn line(kept: &str, row: &Value) -> String {
    let added = row.to_string();
    let comma = if kept.is_empty() { "" } else { "," };
    format!("{{{kept}{comma}{}", &added[1..])
}

/// Returns the output format from the options or, failing that, from the file extension.
pub(super) fn requested_format(job: &FileJob) -> Option<TableFormat> {
    let format = job.writing.format;
    format.or_else(|| TableFormat::from_path(&job.output))
}
