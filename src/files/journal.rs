//! A file of lines that grows while rows are scored, and that a later run goes on with.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{FilesError, write_error};

/// The line behind a window, where windows are marked.
pub(super) const MARK: &str = "[]";

/// The line of a row that the condition leaves out.
pub(super) const LEFT_OUT: &str = "{}";
/// The same of a row that could not be scored either.
pub(super) const LEFT_OUT_FAILURE: &str = "{\"error\":true}";

/// Whether a line stands for a row that is not written.
pub(super) fn is_left_out(line: &str) -> bool {
    [LEFT_OUT, LEFT_OUT_FAILURE].contains(&line)
}

/// Lines of rows, in order.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether a mark stands behind each window, so that a later run begins where a window does: it then computes the
    /// same batches as a run that was never stopped, and so the same scores to the last digit.
    marked: bool,
    /// Bytes that are handed to the system.
    bytes: u64,
    /// Rows that an earlier run left.
    pub(super) lines: u64,
    /// How many of them were not scored.
    pub(super) failed: u64,
    /// How many of them are left out.
    pub(super) left_out: u64,
}

/// Whole lines of a file.
#[derive(Debug, Clone, Copy, Default)]
struct WholeLines {
    lines: u64,
    /// How many tell a failure.
    failed: u64,
    /// How many stand for rows that are left out.
    left_out: u64,
    /// Where the last one ends.
    end: u64,
}

impl Journal {
    /// Goes on behind the last whole line of a file, or behind its last mark; with `anew` nothing of it stays.
    pub(super) fn open(
        path: &Path,
        mut file: File,
        anew: bool,
        marked: bool,
    ) -> Result<Self, FilesError> {
        let error = write_error(path);
        let found = if anew {
            WholeLines::default()
        } else {
            whole_lines(&file, marked).map_err(&error)?
        };
        file.set_len(found.end).map_err(&error)?;
        file.seek(SeekFrom::Start(found.end)).map_err(&error)?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 16, file),
            marked,
            bytes: found.end,
            lines: found.lines,
            failed: found.failed,
            left_out: found.left_out,
        })
    }

    /// Whether there is nothing in it that a later run could go on with.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a line.
    pub(super) fn write(&mut self, line: &str) -> Result<(), FilesError> {
        writeln!(self.file, "{line}").map_err(write_error(&self.path))?;
        self.bytes += line.len() as u64 + 1;
        Ok(())
    }

    /// Hands what was written to the system, at the end of a window; how long the file is then.
    pub(super) fn flush(&mut self) -> Result<u64, FilesError> {
        if self.marked {
            self.write(MARK)?;
        }
        self.file.flush().map_err(write_error(&self.path))?;
        Ok(self.bytes)
    }

    /// Ends it; its file is what comes back.
    pub(super) fn into_file(self) -> Result<File, FilesError> {
        let failed = write_error(&self.path);
        let file = self.file.into_inner();
        file.map_err(|error| failed(error.into_error()))
    }
}

/// The whole lines that a file begins with.
fn whole_lines(file: &File, marked: bool) -> io::Result<WholeLines> {
    #[derive(Deserialize)]
    struct Seen {
        error: Option<IgnoredAny>,
    }
    let mut reader = BufReader::new(file);
    let (mut found, mut window) = (WholeLines::default(), WholeLines::default());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        let whole = line.strip_suffix(b"\n");
        window.end += read as u64;
        if marked && whole == Some(MARK.as_bytes()) {
            found = window;
            continue;
        }
        // A line that is no JSON was torn by a crash; what follows it cannot be trusted.
        let seen = whole.and_then(|line| serde_json::from_slice::<Seen>(line).ok());
        let Some(seen) = seen else {
            return Ok(found);
        };
        window.lines += 1;
        window.failed += u64::from(seen.error.is_some());
        let told = whole.and_then(|line| std::str::from_utf8(line).ok());
        window.left_out += u64::from(told.is_some_and(is_left_out));
        if !marked {
            found = window;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn opened(content: &str, marked: bool) -> (Journal, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        let open = fs::File::options().read(true).write(true).open(file.path());
        let journal = Journal::open(file.path(), open.unwrap(), false, marked).unwrap();
        (journal, file)
    }

    #[test]
    fn a_later_run_begins_where_a_window_does() {
        let content = "{\"a\":1}\n{\"error\":\"x\"}\n{}\n[]\n{\"a\":2}\n{\"a\":";
        let (journal, file) = opened(content, true);
        assert_eq!((journal.lines, journal.failed, journal.left_out), (3, 1, 1));
        drop(journal);
        let left = fs::read_to_string(file.path()).unwrap();
        assert!(left.ends_with("{}\n[]\n"), "{left}");

        let (journal, _file) = opened(content.replace("[]\n", "").as_str(), false);
        assert_eq!(journal.lines, 4);
    }

    #[test]
    fn a_file_of_noughts_after_a_power_cut_is_not_read_on() {
        let (journal, _file) = opened("{\"a\":1}\n[]\n\0\0\0\0\n[]\n", true);
        assert_eq!(journal.lines, 1);
    }
}
