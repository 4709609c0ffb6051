//! Errors from scoring files.

use std::io;
use std::path::{Path, PathBuf};

use crate::atomic_file::is_full;
use topicmill_core::FailureKind;
use topicmill_score::LabelerError;
use topicmill_tables::TableError;

/// Reasons why files cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// An invalid input, with the error and what to do.
    #[error("cannot read `{0}`: {1}")]
    Input(PathBuf, String),
    /// An input cannot be read.
    #[error("cannot read `{0}`: {1}; check the file and its permissions")]
    Read(PathBuf, #[source] io::Error),
    /// The inputs have no rows.
    #[error("cannot find text to score: {} has no rows; a row contains text and, optionally, an id", list(.0))]
    Empty(Vec<PathBuf>),
    /// An input is not a table in the expected format.
    #[error("cannot read `{0}`: {1}")]
    Table(PathBuf, #[source] TableError),
    /// No row could be scored.
    #[error(
        "cannot score {}: no row can be scored ({rows} tried; {reason}); {}",
        list(.inputs),
        if *.by_model {
            "use a different model, or export this one again"
        } else {
            "correct the file, or specify with `--text`, `--id` and `--format` how to read it"
        }
    )]
    NothingScored {
        /// The inputs.
        inputs: Vec<PathBuf>,
        /// The number of rows tried.
        rows: u64,
        /// The error for the first row.
        reason: String,
        /// True if every row has a text, so that the model is to blame.
        by_model: bool,
    },
    /// The output cannot be used. The fields are the file, and the error with what to do.
    #[error("cannot write `{0}`: {1}")]
    Output(PathBuf, &'static str),
    /// The disk is full.
    #[error("cannot write `{0}`: the disk is full; free some space and run the same command again")]
    Full(PathBuf),
    /// The output cannot be written.
    #[error("cannot write `{path}`: {source}; check that its folder exists and is writable")]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// An error from the model, the labels or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
}

impl FilesError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::NothingScored { by_model: true, .. } => FailureKind::Model,
            Self::Full(_) => FailureKind::Unfinished,
            Self::Labeler(error) => error.kind(),
            Self::Input(..)
            | Self::Read(..)
            | Self::Empty(_)
            | Self::Table(..)
            | Self::NothingScored { .. }
            | Self::Output(..)
            | Self::Write { .. } => FailureKind::Usage,
        }
    }

    /// Adds the path to a table error.
    pub(super) fn from_table(path: &Path, error: TableError) -> Self {
        let path = path.to_owned();
        match error {
            TableError::Io(source) => Self::Read(path, source),
            source => Self::Table(path, source),
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    let quoted = paths.iter().map(|path| format!("`{}`", path.display()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// Returns a closure that adds the path to a write error, and distinguishes a full disk.
pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> FilesError + '_ {
    move |source| {
        let path = path.to_owned();
        if is_full(&source) {
            FilesError::Full(path)
        } else {
            FilesError::Write { path, source }
        }
    }
}
