//! The unfinished output: `OUTPUT.partial` with JSON lines, and `OUTPUT.partial.json` with the job's fingerprint.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::output::OutputLayout;
use super::{FileJob, FilesError, write_error};
use crate::atomic_file::with_suffix;
use topicmill_score::{LabelSet, hex};

/// The partial file, from which a later run resumes. It is locked while open, to prevent two runs from writing the same
/// output.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    /// The path to `OUTPUT.partial.json`.
    sidecar: PathBuf,
    output: PathBuf,
    file: BufWriter<File>,
    /// Number of lines left by an earlier run.
    pub(super) lines: u64,
    /// Number of these lines that contain an error.
    pub(super) failed: u64,
    is_empty: bool,
}

/// Returns a hash of everything that determines the output: runs with equal fingerprints write the same lines. Returns
/// `None` if an input is a pipe, which cannot be read again.
pub(super) fn fingerprint(
    job: &FileJob,
    layout: &OutputLayout,
    model: &str,
    set: &LabelSet,
) -> Option<String> {
    let inputs = job.inputs.iter().map(|input| {
        let about = input.metadata().ok().filter(fs::Metadata::is_file)?;
        let changed = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(json!([
            input.canonicalize().ok()?.to_string_lossy(),
            about.len(),
            changed.as_nanos().to_string()
        ]))
    });
    let inputs = inputs.collect::<Option<Vec<Value>>>()?;
    let content = json!([
        // A different version may write different lines.
        env!("CARGO_PKG_VERSION"),
        model,
        set.hash(),
        format!("{:?} {layout:?}", job.reading),
        inputs
    ]);
    Some(hex(&Sha256::digest(content.to_string())))
}

impl Partial {
    /// Opens `OUTPUT.partial`. Keeps the complete lines from an earlier run with the same fingerprint; overwrites
    /// anything else.
    pub(super) fn open(output: &Path, fingerprint: Option<&str>) -> Result<Self, FilesError> {
        let (path, sidecar) = (
            with_suffix(output, ".partial"),
            with_suffix(output, ".partial.json"),
        );
        let error = write_error(&path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = file.map_err(&error)?;
        match file.try_lock() {
            // The path is checked because a run that held the lock may have just renamed the file.
            Ok(()) if path.is_file() => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(FilesError::Busy(output.to_owned()));
            }
            // The file system has no locks, so the run continues without one.
            Err(TryLockError::Error(e)) => tracing::debug!(error = %e, "cannot lock the output"),
        }
        let earlier = fs::read(&sidecar).ok();
        let earlier = earlier.and_then(|bytes| serde_json::from_slice::<String>(&bytes).ok());
        let is_same = fingerprint.is_some() && earlier.as_deref() == fingerprint;
        let found = if is_same {
            whole_lines(&file).map_err(&error)?
        } else {
            WholeLines::default()
        };
        // The file is truncated before the sidecar is written, which must never describe lines from a different job.
        file.set_len(found.end).map_err(&error)?;
        file.seek(SeekFrom::Start(found.end)).map_err(&error)?;
        if !is_same {
            fs::write(&sidecar, json!(fingerprint).to_string()).map_err(write_error(&sidecar))?;
        }
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            lines: found.lines,
            failed: found.failed,
            is_empty: found.end == 0,
            output: output.to_owned(),
            sidecar,
            path: path.clone(),
        })
    }

    /// Returns true if there is nothing to resume.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Appends a line.
    pub(super) fn write(&mut self, line: &str) -> Result<(), FilesError> {
        self.is_empty = false;
        writeln!(self.file, "{line}").map_err(write_error(&self.path))
    }

    /// Flushes buffered lines to the operating system.
    pub(super) fn flush(&mut self) -> Result<(), FilesError> {
        self.file.flush().map_err(write_error(&self.path))
    }

    /// Renames the partial file to the output.
    pub(super) fn finish(mut self) -> Result<(), FilesError> {
        self.flush()?;
        let synced = self.file.get_ref().sync_all();
        synced.map_err(write_error(&self.path))?;
        // The file is renamed before the sidecar is deleted: after a crash in between, the next run finds a complete
        // output and no lines.
        fs::rename(&self.path, &self.output).map_err(write_error(&self.output))?;
        fs::remove_file(&self.sidecar).map_err(write_error(&self.sidecar))
    }

    /// Converts the lines to the output. `convert` receives the path to the partial file, and the file to write.
    pub(super) fn convert(
        mut self,
        convert: impl FnOnce(&Path, File) -> Result<File, FilesError>,
    ) -> Result<(), FilesError> {
        self.flush()?;
        let made = with_suffix(&self.output, ".partial.new");
        let file = File::create(&made).map_err(write_error(&made))?;
        let file = convert(&self.path, file).inspect_err(|_| {
            // The lines are kept so that the conversion can be retried.
            let _ = fs::remove_file(&made);
        })?;
        file.sync_all().map_err(write_error(&made))?;
        fs::rename(&made, &self.output).map_err(write_error(&self.output))?;
        self.discard()
    }

    /// Deletes the partial file and its sidecar.
    pub(super) fn discard(self) -> Result<(), FilesError> {
        fs::remove_file(&self.sidecar).map_err(write_error(&self.sidecar))?;
        fs::remove_file(&self.path).map_err(write_error(&self.path))
    }
}

/// Describes the complete lines at the start of a file.
#[derive(Default)]
struct WholeLines {
    lines: u64,
    failed: u64,
    /// Offset of the end of the last complete line.
    end: u64,
}

fn whole_lines(file: &File) -> io::Result<WholeLines> {
    #[derive(Deserialize)]
    struct Seen {
        error: Option<IgnoredAny>,
    }
    let mut reader = BufReader::new(file);
    let mut found = WholeLines::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        let whole = line.strip_suffix(b"\n");
        // An invalid line was torn by a crash; lines after it cannot be trusted.
        let seen = whole.and_then(|line| serde_json::from_slice::<Seen>(line).ok());
        let Some(seen) = seen else {
            return Ok(found);
        };
        found.end += read as u64;
        found.lines += 1;
        found.failed += u64::from(seen.error.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_a_torn_line_are_not_trusted() {
        for (content, lines, failed) in [
            ("{\"a\":1}\n{\"error\":\"x\"}\n{\"a\":", 2, 1),
            ("{\"a\":1}\n\0\0\0\0\n{\"a\":2}\n", 1, 0),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content.as_bytes()).unwrap();
            file.rewind().unwrap();
            let found = whole_lines(&file).unwrap();
            assert_eq!((found.lines, found.failed), (lines, failed));
        }
    }
}
