//! Results into lines of JSON, and the file they grow in.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::filter::Filter;
use super::journal::{Journal, LEFT_OUT, LEFT_OUT_FAILURE};
use super::{FileJob, FilesError, write_error};
use crate::tables::json::Members;
use crate::tables::{Format, Packing, bytes};
use topicmill_score::{LabelSet, Outcome, Scores, TextResult, hex};

/// What every output says of a text, in this order.
pub(super) const ADDED: [&str; 5] = ["label", "score", "margin", "abstained", "outcome"];

/// All scores of a text, by label.
pub(super) const SCORES: &str = "scores";

/// How the output is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    pub(super) format: Format,
    pub(super) packing: Packing,
    /// What stands between values of CSV and TSV.
    pub(super) delimiter: u8,
    /// Columns of a table with the score of each label, where they were asked for.
    pub(super) score_columns: Vec<String>,
    /// A column of a table with all scores of a row as JSON, because each row may have other labels.
    all_scores: bool,
    /// Whether all inputs are Parquet of one schema, whose columns are copied as they lie there.
    pub(super) copied: bool,
    dropped: bool,
    /// Which rows stay; `None` for all.
    pub(super) filter: Option<Filter>,
}

impl Shape {
    /// What was asked for, and else what the ending of the output's name says: NDJSON where it says nothing.
    pub(super) fn of(job: &FileJob, set: &LabelSet, delimiter: Option<u8>, copied: bool) -> Self {
        let (named, packing) = Format::of_name(&job.output);
        let format = job.writing.format.or(named).unwrap_or(Format::Ndjson);
        let delimiter = match format {
            Format::Tsv => b'\t',
            _ => delimiter.unwrap_or(b','),
        };
        let is_table = matches!(format, Format::Csv | Format::Tsv | Format::Parquet);
        let own_labels = job.reading.labels.is_some();
        let with_scores = is_table && job.writing.label_scores;
        let labels = set.labels.iter().filter(|_| with_scores && !own_labels);
        Self {
            format,
            packing,
            delimiter,
            score_columns: labels
                .map(|label| format!("score_{}", label.slug))
                .collect(),
            all_scores: with_scores && own_labels,
            copied: copied && format == Format::Parquet && !job.writing.drop_columns,
            dropped: job.writing.drop_columns,
            filter: job.writing.filter.clone(),
        }
    }

    /// The same for an output that copies the columns of its inputs beside ours, or leaves them out, without a line of
    /// JSON ever having one.
    pub(super) fn beside_copies(self) -> Self {
        Self {
            copied: true,
            ..self
        }
    }

    /// Whether each row is one object with all there is to say, and no cells of a table.
    fn is_json(&self) -> bool {
        matches!(self.format, Format::Ndjson | Format::Json)
    }

    /// Whether the lines as they grow are the output.
    pub(super) fn is_lines(&self) -> bool {
        self.format == Format::Ndjson && self.packing == Packing::Plain && self.filter.is_none()
    }

    /// Whether the columns of the inputs are copied from file to file.
    pub(super) fn is_copied(&self) -> bool {
        self.copied
    }

    /// Whether the lines have the columns of the inputs.
    pub(super) fn keeps_columns(&self) -> bool {
        !self.copied && !self.dropped
    }

    /// The columns of a table that are not the input's.
    pub(super) fn added(&self) -> Vec<String> {
        let added = ADDED.iter().map(ToString::to_string);
        let scores = self.score_columns.iter().cloned();
        let scores = scores.chain(self.all_scores.then(|| SCORES.to_owned()));
        added.chain(scores).chain(["error".to_owned()]).collect()
    }

    /// Names that no column of the input may have.
    pub(super) fn reserved(&self) -> Vec<String> {
        let mut reserved = self.added();
        if self.is_json() {
            let of_json = ["scores", "logits", "input", "line"];
            reserved.extend(of_json.map(str::to_owned));
        }
        reserved
    }

    /// What is written of a row in place of its line, if the condition leaves the row out. `seen`: members of the row
    /// that its line has not.
    pub(super) fn left_out(
        &self,
        seen: &str,
        line: &str,
        is_scored: bool,
    ) -> Result<Option<&'static str>, FilesError> {
        let Some(filter) = &self.filter else {
            return Ok(None);
        };
        let whole = (!seen.is_empty()).then(|| format!("{{{seen},{}", &line[1..]));
        let row: Members = serde_json::from_str(whole.as_deref().unwrap_or(line))
            .map_err(|error| write_error(Path::new("OUTPUT"))(error.into()))?;
        Ok((!filter.keeps(&row)).then_some(if is_scored {
            LEFT_OUT
        } else {
            LEFT_OUT_FAILURE
        }))
    }

    /// The line of a text that was scored. `kept`: members of the object that come first.
    pub(super) fn result_line(&self, kept: &str, set: &LabelSet, result: &TextResult) -> String {
        let mut object = result_members(set, result);
        if !self.is_json() {
            let scores = object.remove(SCORES);
            object.remove("logits");
            if let Some(scores) = scores.filter(|_| self.all_scores) {
                object.insert(SCORES.to_owned(), json!(scores.to_string()));
            }
            for (name, score) in self.score_columns.iter().zip(&result.scores.scores) {
                object.insert(name.clone(), json!(score));
            }
        }
        line(kept, object)
    }

    /// The line of a text that was not scored. `input` is named where there are several.
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
            let told = format!("{} {problem}", place(input, number));
            object.insert("error".into(), json!(told));
        }
        line(kept, object)
    }
}

/// Where a row is, for people. `input` is named where there are several.
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

/// What is said of a text that was scored.
fn result_members(set: &LabelSet, result: &TextResult) -> Map<String, Value> {
    let slugs = || set.labels.iter().map(|label| label.slug.clone());
    let scores: Map<String, Value> = slugs()
        .zip(result.scores.scores.iter().map(|score| json!(score)))
        .collect();
    let logits: Map<String, Value> = slugs()
        .zip(&result.raw)
        .filter(|(_, row)| !row.is_empty()) // Left out by a shortlist.
        .map(|(slug, row)| (slug, json!(row)))
        .collect();
    // None of these is no label; what came nearest is in `scores`.
    let label = (!result.scores.abstained).then(|| &set.labels[result.scores.best].slug);
    let members = json!({
        "label": label,
        "score": result.scores.scores[result.scores.best],
        "margin": result.scores.margin,
        "abstained": result.scores.abstained,
        "outcome": outcome(set, &result.scores),
        "scores": scores,
        "logits": logits,
    });
    match members {
        Value::Object(members) => members,
        _ => unreachable!("it is written as an object"),
    }
}

/// The slug of the label that a text gets, or `unsure`.
fn outcome<'a>(set: &'a LabelSet, scores: &Scores) -> &'a str {
    match scores.outcome() {
        Outcome::Label => &set.labels[scores.best].slug,
        Outcome::Other => "other",
        Outcome::Unsure => "unsure",
    }
}

/// Checks what can be known of the output before any work is done.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    let output = &job.output;
    if bytes::is_stdin(output) {
        return Ok(());
    }
    let Ok(real) = output.canonicalize() else {
        return Ok(());
    };
    if job.inputs.iter().any(|input| is_same(input, &real)) {
        return Err(FilesError::IsInput(output.clone()));
    }
    if real.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(FilesError::Write {
            path: output.clone(),
            source,
        });
    }
    // A device would be replaced by a file.
    if !real.is_file() {
        return Err(FilesError::NoFile(output.clone()));
    }
    if job.overwrite {
        Ok(())
    } else {
        Err(FilesError::Exists(output.clone()))
    }
}

/// Whether an input is this file, by its path or by another name of it.
fn is_same(input: &Path, real: &Path) -> bool {
    if input.canonicalize().is_ok_and(|input| input == real) {
        return true;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // A hard link has another path and is the same file.
        let of = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        of(input).is_some() && of(input) == of(real)
    }
    #[cfg(not(unix))]
    false
}

/// A hash of all that decides the output: two runs of one fingerprint write the same lines. `None` where an
/// input is a pipe, which nobody can read again.
pub(super) fn fingerprint(
    job: &FileJob,
    shape: &Shape,
    model: &str,
    set: &LabelSet,
) -> Option<String> {
    let inputs = job.inputs.iter().map(|input| {
        let meta = input.metadata().ok().filter(fs::Metadata::is_file)?;
        let changed = meta
            .modified()
            .ok()?
            .duration_since(UNIX_EPOCH)
            .ok()?
            .as_nanos()
            .to_string();
        Some(json!([
            input.canonicalize().ok()?.to_string_lossy(),
            meta.len(),
            changed
        ]))
    });
    // A pipe has no fingerprint, and nothing to go on with.
    let inputs = inputs.collect::<Option<Vec<Value>>>()?;
    let content = json!([
        // Another version may write other lines.
        env!("CARGO_PKG_VERSION"),
        model,
        set.hash(),
        format!("{:?} {shape:?}", job.reading),
        inputs
    ]);
    Some(hex(&Sha256::digest(content.to_string())))
}

/// The output while it is being written: `OUTPUT.partial`, and `OUTPUT.partial.json` that says of what.
///
/// It is locked as long as it is open, so that two runs do not write one file.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    sidecar: PathBuf,
    output: PathBuf,
    /// Its lines.
    pub(super) journal: Journal,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sidecar {
    fingerprint: Option<String>,
}

impl Partial {
    /// Opens `OUTPUT.partial`: what an earlier run of the same fingerprint left is kept up to its last whole
    /// line, anything else is overwritten.
    pub(super) fn open(output: &Path, fingerprint: Option<String>) -> Result<Self, FilesError> {
        let (path, sidecar) = (beside(output, ".partial"), beside(output, ".partial.json"));
        let error = write_error(&path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(&error)?;
        // Two runs of one command would write into the same file. The system gives the lock back when a process dies.
        match file.try_lock() {
            // Gone: the run that had it has just finished.
            Ok(()) if path.is_file() => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(FilesError::Busy(output.to_owned()));
            }
            // A file system without locks: go on without.
            Err(TryLockError::Error(e)) => tracing::debug!(error = %e, "cannot lock the output"),
        }
        let earlier = fs::read(&sidecar)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Sidecar>(&bytes).ok());
        let same = fingerprint.is_some()
            && earlier.is_some_and(|earlier| earlier.fingerprint == fingerprint);
        if !same {
            let content =
                serde_json::to_vec(&Sidecar { fingerprint }).expect("a struct of strings is JSON");
            // Emptied first: a sidecar must never stand beside lines that it does not speak of.
            file.set_len(0).map_err(&error)?;
            fs::write(&sidecar, content).map_err(write_error(&sidecar))?;
        }
        Ok(Self {
            sidecar,
            output: output.to_owned(),
            journal: Journal::open(&path, file, !same, false)?,
            path: path.clone(),
        })
    }

    /// Leaves it for a later run.
    pub(super) fn keep(mut self) -> Result<(), FilesError> {
        self.journal.flush().map(drop)
    }

    /// Gives it its name.
    pub(super) fn finish(self) -> Result<(), FilesError> {
        let file = self.journal.into_file()?;
        file.sync_all().map_err(write_error(&self.path))?;
        // Before the sidecar goes: if the process dies in between, the next run finds a whole output and no lines.
        fs::rename(&self.path, &self.output).map_err(write_error(&self.output))?;
        fs::remove_file(&self.sidecar).map_err(write_error(&self.sidecar))
    }

    /// Makes the output of its lines: `convert` gets their file and the one to write.
    pub(super) fn convert(
        mut self,
        convert: impl FnOnce(&Path, File) -> Result<File, FilesError>,
    ) -> Result<(), FilesError> {
        self.journal.flush()?;
        let made = beside(&self.output, ".partial.new");
        let file = File::create(&made).map_err(write_error(&made))?;
        let file = convert(&self.path, file).inspect_err(|_| {
            // The lines stay: given the room that was missing, they are enough.
            let _ = fs::remove_file(&made);
        })?;
        file.sync_all().map_err(write_error(&made))?;
        fs::rename(&made, &self.output).map_err(write_error(&self.output))?;
        self.discard()
    }

    /// Removes it.
    pub(super) fn discard(self) -> Result<(), FilesError> {
        fs::remove_file(&self.sidecar).map_err(write_error(&self.sidecar))?;
        fs::remove_file(&self.path).map_err(write_error(&self.path))
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
