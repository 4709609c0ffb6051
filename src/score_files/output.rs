//! Formats results as JSON lines, and defines the output columns.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{FileJob, FilesError};
use topicmill_core::{LabelSet, Scores};
use topicmill_score::TextResult;
use topicmill_tables::json::Members;
use topicmill_tables::{Compression, TableFormat, bytes};

/// The columns that are added to every output, in this order.
const ADDED: [&str; 5] = ["label", "score", "margin", "abstained", "outcome"];

/// The format and columns of the output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OutputLayout {
    pub(super) format: TableFormat,
    pub(super) packing: Compression,
    /// The delimiter for CSV and TSV.
    pub(super) delimiter: u8,
    /// The score columns in a table, if requested.
    pub(super) score_columns: Vec<String>,
    /// True if all inputs are Parquet files with the same schema, whose columns are copied.
    is_copied: bool,
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
        let (named, packing) = TableFormat::from_path(&job.output);
        let format = match job.writing.format.or(named) {
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
            packing,
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
        self.format == TableFormat::Ndjson && self.packing == Compression::Plain
    }

    /// Returns true if input columns are copied from file to file.
    pub(super) fn is_copied(&self) -> bool {
        self.is_copied
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
        let mut object = result_members(set, result);
        if !self.is_json() {
            object.remove("scores");
            object.remove("logits");
            for (name, score) in self.score_columns.iter().zip(&result.scores.scores) {
                object.insert(name.clone(), json!(score));
            }
        }
        line(kept, object)
    }

    /// Formats the line for a text that failed. `input` is set if there are several inputs.
    pub(super) fn failure_line(
        &self,
        kept: &str,
        input: Option<&Path>,
        number: u64,
        problem: &str,
    ) -> String {
        let mut object = Map::new();
        if self.is_json() {
            if let Some(input) = input {
                object.insert("input".into(), json!(input.to_string_lossy()));
            }
            object.insert("line".into(), json!(number));
            object.insert("error".into(), json!(problem));
        } else {
            let message = format!("{} {problem}", place(input, number));
            object.insert("error".into(), json!(message));
        }
        line(kept, object)
    }
}

/// Formats a row's location for messages. `input` is set if there are several inputs.
pub(super) fn place(input: Option<&Path>, line: u64) -> String {
    match input {
        Some(input) => format!("{} line {line}", input.display()),
        None => format!("line {line}"),
    }
}

fn line(kept: &str, object: Map<String, Value>) -> String {
    let ours = Value::Object(object).to_string();
    let comma = if kept.is_empty() { "" } else { "," };
    format!("{{{kept}{comma}{}", &ours[1..])
}

/// Builds the object members for a scored text.
fn result_members(set: &LabelSet, result: &TextResult) -> Map<String, Value> {
    let slugs = || set.labels.iter().map(|label| label.slug.clone());
    let scores: Map<String, Value> = slugs()
        .zip(result.scores.scores.iter().map(|score| json!(score)))
        .collect();
    let logits: Map<String, Value> = slugs()
        .zip(&result.raw)
        .filter(|(_, row)| !row.is_empty()) // A shortlist left the label out.
        .map(|(slug, row)| (slug, json!(row)))
        .collect();
    // An abstention has no label; the best score is still in `scores`.
    let label = (!result.scores.is_abstention()).then(|| &set.labels[result.scores.best].slug);
    let Value::Object(members) = json!({
        "label": label,
        "score": result.scores.scores[result.scores.best],
        "margin": result.scores.margin,
        "abstained": result.scores.is_abstention(),
        "outcome": outcome(set, &result.scores),
        "scores": scores,
        "logits": logits,
    }) else {
        unreachable!("it is written as an object")
    };
    members
}

/// Returns the label's slug, `other` or `unsure`.
fn outcome<'a>(set: &'a LabelSet, scores: &Scores) -> &'a str {
    scores.outcome.word(&set.labels[scores.best].slug)
}

/// Checks the output as far as possible before any work is done.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    let output = &job.output;
    if bytes::is_stdin(output) {
        return Ok(());
    }
    let Ok(real) = output.canonicalize() else {
        // A link without a target would fail only when the rows are written.
        let is_free = job.overwrite || output.symlink_metadata().is_err();
        return if is_free { Ok(()) } else { Err(exists(output)) };
    };
    if job.inputs.iter().any(|input| is_same(input, &real)) {
        let why = "it is one of the inputs; choose a different file";
        return Err(FilesError::Output(output.clone(), why));
    }
    if real.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(FilesError::Write {
            path: output.clone(),
            source,
        });
    }
    // A device must not be replaced by a file.
    if !real.is_file() {
        let why = "it is not a file; name one, or use `-` to write to stdout";
        return Err(FilesError::Output(output.clone(), why));
    }
    if job.overwrite {
        Ok(())
    } else {
        Err(exists(output))
    }
}

pub(super) fn exists(output: &Path) -> FilesError {
    let why = "it already exists; remove it, choose a different file, or use `--overwrite`";
    FilesError::Output(output.to_owned(), why)
}

/// Returns true if an input is this file, perhaps through a link.
fn is_same(input: &Path, real: &Path) -> bool {
    // A hard link has a different path but the same inode.
    let inode = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    inode(input).is_some() && inode(input) == inode(real)
}

/// Returns the lines of a file, from its start.
pub(super) fn lines_of(mut file: &File) -> io::Result<io::Lines<BufReader<&File>>> {
    file.rewind()?;
    Ok(BufReader::with_capacity(1 << 18, file).lines())
}

/// Parses a line that this program wrote.
pub(super) fn members(line: &str) -> io::Result<Members> {
    serde_json::from_str(line).map_err(io::Error::from)
}

/// Formats a JSON value for a text table: strings without quotes, null as empty, everything else as JSON.
pub(super) fn plain(json: &str) -> String {
    if json == "null" {
        return String::new();
    }
    // Only a string parses as one.
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}
