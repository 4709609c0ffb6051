//! The files of a report: a page and charts, each written atomically.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use topicmill_core::FailureKind;
use topicmill_pages::report::{Chart, GENERATOR};

use crate::atomic_file::{self, IfExists};

/// How far into a file the sign is looked for: the head of a page, with its style sheet behind it.
const HEAD: u64 = 1_024;

/// Why a report is not in its place.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is something else in its place.
    #[error("`{0}` exists and is no report: give another name, or replace it with --overwrite")]
    Exists(PathBuf),
    /// It can be neither written nor put into place.
    #[error("write `{path}`: {source}; nothing was put there")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl ReportError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Exists(_) => FailureKind::Usage,
            Self::Write { .. } => FailureKind::Unfinished,
        }
    }
}

/// Whether a file is one that we made.
fn is_report(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok()
        && head
            .windows(GENERATOR.len())
            .any(|part| part == GENERATOR.as_bytes())
}

/// Writes a page. What was there is replaced if it was a report, or if `overwrite` says so.
///
/// # Errors
/// [`ReportError::Exists`] and [`ReportError::Write`].
pub fn write_page(path: &Path, page: &str, overwrite: bool) -> Result<(), ReportError> {
    if path.symlink_metadata().is_ok() && !overwrite && !is_report(path) {
        return Err(ReportError::Exists(path.to_owned()));
    }
    atomic_file::write(path, page, IfExists::Replace).map_err(|source| ReportError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Writes each chart as a file of a folder, which is made if it is not there; what they are called.
///
/// # Errors
/// [`ReportError::Exists`] and [`ReportError::Write`].
pub fn write_charts(
    folder: &Path,
    charts: &[Chart],
    overwrite: bool,
) -> Result<Vec<PathBuf>, ReportError> {
    fs::create_dir_all(folder).map_err(|source| ReportError::Write {
        path: folder.to_owned(),
        source,
    })?;
    let mut written = Vec::new();
    for chart in charts {
        let path = folder.join(format!("{}.svg", chart.id));
        write_page(&path, &chart.file(), overwrite)?;
        written.push(path);
    }
    Ok(written)
}
