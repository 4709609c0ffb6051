//! Writes a report as files: a page and its charts, each atomically.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use topicmill_core::FailureKind;
use topicmill_pages::report::{Chart, GENERATOR};

use crate::atomic_file::{self, IfExists};

/// Number of bytes at the start of a file that are searched for the report marker, which precedes the style sheet.
const HEAD: u64 = 1_024;

/// Reasons why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Another file has that name.
    #[error(
        "`{0}` exists and is not a report: choose a different file, or replace it with --overwrite"
    )]
    Exists(PathBuf),
    /// Another file has a chart's name.
    #[error(
        "`{0}` exists and is not a chart of a report: choose a different folder, or move the file"
    )]
    Foreign(PathBuf),
    /// A file cannot be written.
    #[error("cannot write `{path}`: {source}; nothing was written")]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

impl ReportError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Exists(_) | Self::Foreign(_) => FailureKind::Usage,
            Self::Write { .. } => FailureKind::Unfinished,
        }
    }
}

/// Returns true if a file is a report written by this program.
fn is_report(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok()
        && head
            .windows(GENERATOR.len())
            .any(|part| part == GENERATOR.as_bytes())
}

/// Writes a page atomically. Replaces an earlier report, and any other file if `overwrite` is true.
///
/// # Errors
/// Returns [`ReportError::Exists`] or [`ReportError::Write`].
pub fn write_page(path: &Path, page: &str, overwrite: bool) -> Result<(), ReportError> {
    if path.symlink_metadata().is_ok() && !overwrite && !is_report(path) {
        return Err(ReportError::Exists(path.to_owned()));
    }
    write(path, page)
}

fn write(path: &Path, page: &str) -> Result<(), ReportError> {
    atomic_file::write(path, page, IfExists::Replace).map_err(|source| ReportError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Writes each chart to its own file in a folder, which is created if necessary. Replaces earlier charts, but no other
/// file. Returns their paths.
///
/// # Errors
/// Returns [`ReportError::Exists`] or [`ReportError::Write`].
pub fn write_charts(folder: &Path, charts: &[Chart]) -> Result<Vec<PathBuf>, ReportError> {
    fs::create_dir_all(folder).map_err(|source| ReportError::Write {
        path: folder.to_owned(),
        source,
    })?;
    let mut written = Vec::new();
    for chart in charts {
        let path = folder.join(format!("{}.svg", chart.id));
        if path.symlink_metadata().is_ok() && !is_report(&path) {
            return Err(ReportError::Foreign(path));
        }
        write(&path, &chart.file())?;
        written.push(path);
    }
    Ok(written)
}
