//! Exit codes, and the error type of all commands: wraps each module's error and adds a hint on how to fix it.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::hints;
use crate::backup::BackupError;
use crate::config::ConfigError;
use crate::engines::EnginesError;
use crate::export::ExportError;
use crate::metrics::BindError;
use crate::pipeline_file::PipelineError;
use crate::run::StageError;
use crate::score_files::FilesError;
use topicmill_core::FailureKind;
use topicmill_pages::serve::ServeError;
use topicmill_review::gold::GoldError;
use topicmill_score::LoadError;
use topicmill_score::device::DeviceError;
use topicmill_score::folder::ModelError;
use topicmill_score::labeler::LabelerError;
use topicmill_sources::SourceError;
use topicmill_sources::file::dump::FileError;
use topicmill_store::StoreError;

/// The signal that ends most programs if the reader of their output is gone. Rust programs get an error instead.
const SIGPIPE: u8 = 13;

/// Combines two steps: returns the first error and logs the other one. Without an error, returns the first exit code
/// that is not [`Exit::Done`].
pub fn first_error(
    first: Result<Exit, CliError>,
    later: Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    match (first, later) {
        (Err(error), later) => {
            if let Err(later) = later {
                tracing::error!("{later}");
            }
            Err(error)
        }
        (Ok(Exit::Done), later) => later,
        (Ok(exit), later) => later.map(|_| exit),
    }
}

/// The outcome of a command, as an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// Completed, but some rows or topics failed.
    Partial,
    /// Invalid flags or settings.
    Usage,
    /// Credentials rejected or blocked by Reddit.
    Policy,
    /// A database error.
    Database,
    /// An error of the model or the device.
    Model,
    /// A bug in the program.
    Bug,
    /// A temporary failure: an exhausted quota, an unresponsive source, or a lease held by another process.
    TryAgain,
    /// Stopped by the signal with this number, after finishing the work in progress.
    Signal(u8),
}

impl Exit {
    /// Returns the exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Partial => 1,
            Self::Usage => 2,
            Self::Policy => 3,
            Self::Database => 4,
            Self::Model => 5,
            Self::Bug => 70,
            Self::TryAgain => 75,
            Self::Signal(number) => 128 + number,
        }
    }

    /// Returns `Done` if `is_done`, else `Partial`.
    pub const fn done_if(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Partial }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<FailureKind> for Exit {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Usage => Self::Usage,
            FailureKind::Policy => Self::Policy,
            FailureKind::Database => Self::Database,
            FailureKind::Model => Self::Model,
            FailureKind::Unfinished => Self::Partial,
            FailureKind::Temporary => Self::TryAgain,
        }
    }
}

/// An error that ends a command.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant wraps the error of one module")]
pub enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A message with an explicit exit code.
    #[error("{1}")]
    Message(Exit, String),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Dump(#[from] FileError),
    #[error(transparent)]
    Gold(#[from] GoldError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}{hint}", hint = hints::for_model(.0))]
    Model(#[from] ModelError),
    #[error("{0}{hint}", hint = hints::for_loading(.0))]
    Load(#[from] LoadError),
    #[error(transparent)]
    Engines(EnginesError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{0}{hint}", hint = hints::for_labeler(.0))]
    Labeler(#[from] LabelerError),
    #[error("{0}{hint}", hint = hints::for_stage(.0))]
    Stage(#[from] StageError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Metrics(#[from] BindError),
    #[error("{0}{hint}", hint = hints::for_files(.0))]
    Files(#[from] FilesError),
    /// The reader of stdout has closed the pipe (`topicmill sql … | head`), which is not reported.
    #[error("the reader of stdout has closed the pipe")]
    ClosedPipe,
    /// Invalid flags, settings or input.
    #[error("{0}")]
    Usage(String),
    /// Stdout or a file could not be written.
    #[error("cannot write `{path}`: {source}{hint}", hint = hints::for_io(.source))]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl From<EnginesError> for CliError {
    fn from(error: EnginesError) -> Self {
        match error {
            EnginesError::Load(error) => Self::Load(error),
            EnginesError::Labeler(error) => Self::Labeler(error),
            EnginesError::Folder(error) => Self::Model(error),
            error => Self::Engines(error),
        }
    }
}

impl CliError {
    /// Returns a function that turns an I/O error into `CliError::Write` for `path`.
    pub fn writing(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Write { path, source }
    }

    /// Returns the exit code for this error.
    pub fn exit(&self) -> Exit {
        Exit::from(match self {
            Self::Message(exit, _) => return *exit,
            Self::ClosedPipe => return Exit::Signal(SIGPIPE),
            Self::Config(_)
            | Self::Pipeline(_)
            | Self::Dump(_)
            | Self::Device(_)
            | Self::Engines(_)
            | Self::Metrics(_)
            | Self::Serve(_)
            | Self::Usage(_) => FailureKind::Usage,
            Self::Write { .. } => FailureKind::Unfinished,
            Self::Model(_) => FailureKind::Model,
            Self::Load(error) => error.kind(),
            Self::Labeler(error) => error.kind(),
            Self::Stage(error) => error.kind(),
            Self::Export(error) => error.kind(),
            Self::Files(error) => error.kind(),
            Self::Gold(error) => error.kind(),
            Self::Backup(error) => error.kind(),
            Self::Source(error) => error.kind(),
            Self::Store(error) => error.kind(),
        })
    }
}
