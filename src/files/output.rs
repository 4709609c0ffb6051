//! Results into lines of JSON, and the file they grow in.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{FileJob, FilesError, write_error};
use topicmill_score::{LabelSet, Outcome, Scores, TextResult, hex};

/// Checks what can be known of the output before any work is done.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    let output = &job.output;
    let Ok(real) = output.canonicalize() else {
        return Ok(());
    };
    if job
        .inputs
        .iter()
        .any(|input| input.canonicalize().is_ok_and(|input| input == real))
    {
        return Err(FilesError::IsInput(output.clone()));
    }
    if real.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(FilesError::Write {
            path: output.clone(),
            source,
        });
    }
    if job.overwrite {
        Ok(())
    } else {
        Err(FilesError::Exists(output.clone()))
    }
}

/// A hash of all that decides the output: two runs of one fingerprint write the same lines. `None` where an
/// input is a pipe, which nobody can read again.
pub(super) fn fingerprint(job: &FileJob, model: &str, set: &LabelSet) -> Option<String> {
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
    let inputs = inputs.collect::<Option<Vec<Value>>>()?;
    let content = json!([
        env!("CARGO_PKG_VERSION"),
        model,
        set.hash(),
        job.text_column,
        inputs
    ]);
    Some(hex(&Sha256::digest(content.to_string())))
}

/// The line of a text that was scored.
pub(super) fn result_line(id: &Value, set: &LabelSet, result: &TextResult) -> Value {
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
    json!({
        "id": id,
        "label": label,
        "score": result.scores.scores[result.scores.best],
        "margin": result.scores.margin,
        "abstained": result.scores.abstained,
        "outcome": outcome(set, &result.scores),
        "scores": scores,
        "logits": logits,
    })
}

/// The slug of the label that a text gets, or `other`, or `unsure`.
fn outcome<'a>(set: &'a LabelSet, scores: &Scores) -> &'a str {
    match scores.outcome() {
        Outcome::Label => &set.labels[scores.best].slug,
        Outcome::Other => "other",
        Outcome::Unsure => "unsure",
    }
}

/// The line of a text that was not scored. `input` is named where there are several.
pub(super) fn failure_line(id: &Value, input: Option<&Path>, line: u64, problem: &str) -> Value {
    let mut value = json!({ "id": id });
    if let Some(input) = input {
        value["input"] = json!(input.to_string_lossy());
    }
    value["line"] = json!(line);
    value["error"] = json!(problem);
    value
}

/// The output while it is being written: `OUTPUT.partial`, and `OUTPUT.partial.json` that says of what.
///
/// It is locked as long as it is open, so that two runs do not write one file.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    sidecar: PathBuf,
    output: PathBuf,
    file: BufWriter<File>,
    /// Whole lines that an earlier run left.
    pub(super) lines: u64,
    /// How many of them are of texts that were not scored.
    pub(super) failed: u64,
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
        let mut file = file.map_err(&error)?;
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
        let (mut lines, mut failed, mut end) = (0, 0, 0);
        if same {
            (lines, failed, end) = whole_lines(&file).map_err(&error)?;
        } else {
            let content =
                serde_json::to_vec(&Sidecar { fingerprint }).expect("a struct of strings is JSON");
            // Emptied first: a sidecar must never stand beside lines that it does not speak of.
            file.set_len(0).map_err(&error)?;
            fs::write(&sidecar, content).map_err(write_error(&sidecar))?;
        }
        file.set_len(end).map_err(&error)?;
        file.seek(SeekFrom::Start(end)).map_err(&error)?;
        let file = BufWriter::new(file);
        Ok(Self {
            sidecar,
            output: output.to_owned(),
            file,
            lines,
            failed,
            path: path.clone(),
        })
    }

    /// Adds a line.
    pub(super) fn write(&mut self, line: &Value) -> Result<(), FilesError> {
        writeln!(self.file, "{line}").map_err(write_error(&self.path))
    }

    /// Hands what was written to the system.
    pub(super) fn flush(&mut self) -> Result<(), FilesError> {
        self.file.flush().map_err(write_error(&self.path))
    }

    /// Leaves it for a later run.
    pub(super) fn keep(mut self) -> Result<(), FilesError> {
        self.flush()
    }

    /// Gives it its name.
    pub(super) fn finish(mut self) -> Result<(), FilesError> {
        self.flush()?;
        self.file
            .get_ref()
            .sync_all()
            .map_err(write_error(&self.path))?;
        fs::rename(&self.path, &self.output).map_err(write_error(&self.output))?;
        fs::remove_file(&self.sidecar).map_err(write_error(&self.sidecar))
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

/// How many whole lines a file has, how many of them tell a failure, and where the last one ends.
fn whole_lines(file: &File) -> io::Result<(u64, u64, u64)> {
    #[derive(Deserialize)]
    struct Seen {
        error: Option<IgnoredAny>,
    }
    let mut reader = BufReader::new(file);
    let (mut lines, mut failed, mut end) = (0, 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        // A line that is no JSON was torn by a crash; what follows it cannot be trusted.
        let seen = line
            .strip_suffix(b"\n")
            .and_then(|line| serde_json::from_slice::<Seen>(line).ok());
        let Some(seen) = seen else {
            return Ok((lines, failed, end));
        };
        lines += 1;
        failed += u64::from(seen.error.is_some());
        end += read as u64;
    }
}
