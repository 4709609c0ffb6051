//! How commands end: exit codes, and the one error type that carries each module's own, with what to do about it.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::remedy;
use crate::classify::BacklogError;
use crate::collect::CollectError;
use crate::config::ConfigError;
use crate::domain::Outcome;
use crate::engines::EnginesError;
use crate::export::ExportError;
use crate::files::FilesError;
use crate::hub::PullError;
use crate::keeping::KeepError;
use crate::metrics::BindError;
use crate::pipeline::ImportError;
use crate::pipeline_file::PipelineError;
use crate::placing::is_full;
use crate::purge::PurgeError;
use crate::report::ReportError;
use crate::review::gold::GoldError;
use crate::serve::ServeError;
use crate::source::SourceError;
use crate::source::file::dump::DumpError;
use crate::store::StoreError;
use topicmill_score::engine::DeviceError;
use topicmill_score::folder::ModelError;
use topicmill_score::labeler::LabelerError;
use topicmill_score::onnx::OnnxError;

/// How a command ended, for whoever called the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Done,
    /// Finished, but some rows or topics failed.
    Partial,
    /// Called or configured wrongly.
    Usage,
    /// Credentials refused, or blocked.
    Policy,
    /// The database.
    Database,
    /// The model or the device.
    Model,
    /// A bug of the program.
    Bug,
    /// Nothing is wrong here, but now is not the time: quota, a source that does not answer, or another holder.
    TryAgain,
    /// Stopped by a signal after draining; its number.
    Signal(u8),
}

impl Exit {
    /// The number that the process exits with.
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

    /// Done, unless something failed.
    pub const fn done_if(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Partial }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<Outcome> for Exit {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => Self::Done,
            Outcome::Auth | Outcome::EdgeBlocked => Self::Policy,
            Outcome::RateLimited => Self::TryAgain,
            _ => Self::Partial,
        }
    }
}

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant carries the error of the module it is named after"
)]
pub enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its text, and what the program exits with.
    #[error("{1}")]
    Told(Exit, String),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error(transparent)]
    Dump(#[from] DumpError),
    #[error(transparent)]
    Gold(#[from] GoldError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}{remedy}", remedy = remedy::on_folder(.0))]
    Model(#[from] ModelError),
    #[error("{0}{remedy}", remedy = remedy::on_onnx(.0))]
    Onnx(#[from] OnnxError),
    #[error("{0}{remedy}", remedy = remedy::on_engines(.0))]
    Engines(EnginesError),
    #[error(transparent)]
    Pull(PullError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{0}{remedy}", remedy = remedy::on_labeler(.0))]
    Labeler(#[from] LabelerError),
    #[error("{0}{remedy}", remedy = remedy::on_backlog(.0))]
    Backlog(#[from] BacklogError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Metrics(#[from] BindError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Purge(#[from] PurgeError),
    #[error("{0}{remedy}", remedy = remedy::on_files(.0))]
    Files(#[from] FilesError),
    /// Called in a way that cannot work.
    #[error("{0}")]
    Usage(String),
    /// Neither stdout nor a file takes what is written.
    #[error("write `{path}`: {source}{remedy}", remedy = remedy::on_write(.source))]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl From<EnginesError> for CliError {
    fn from(error: EnginesError) -> Self {
        match error {
            EnginesError::Onnx(error) => Self::Onnx(error),
            EnginesError::Labeler(error) => Self::Labeler(error),
            EnginesError::Folder(error) => Self::Model(error),
            error => Self::Engines(error),
        }
    }
}

impl CliError {
    /// A file that cannot be written, of whatever kind.
    pub fn writing(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Write { path, source }
    }

    /// A file that the user named was not written: the name is wrong, unless the disk is full. `advice` says what to do about
    /// the name.
    pub fn unwritten(path: &Path, source: io::Error, advice: &str) -> Self {
        let path = path.display().to_string();
        if is_full(&source) {
            Self::Write { path, source }
        } else {
            Self::Usage(format!("write `{path}`: {source}; {advice}"))
        }
    }

    /// The exit code that this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(error) if error.is_malformed() => Exit::Usage,
            Self::Config(_)
            | Self::Pipeline(_)
            | Self::Gold(_)
            | Self::Dump(_)
            | Self::Import(ImportError::Dump(_))
            | Self::Device(_)
            | Self::Engines(_)
            | Self::Metrics(_)
            | Self::Usage(_)
            | Self::Onnx(OnnxError::CpuOnly(_) | OnnxError::NoRounding(_))
            | Self::Serve(
                ServeError::Bind(_) | ServeError::NoToken(_) | ServeError::ShortToken(_),
            )
            | Self::Store(
                StoreError::Query(_)
                | StoreError::Url(_)
                | StoreError::NotSqliteToPostgres
                | StoreError::NotEmpty(_),
            )
            | Self::Purge(PurgeError::Clock { .. })
            | Self::Report(ReportError::Exists(_))
            | Self::Export(
                ExportError::Exists(_)
                | ExportError::Unrepeatable
                | ExportError::Store(StoreError::Query(_) | StoreError::Url(_)),
            ) => Exit::Usage,
            Self::Source(error)
            | Self::Purge(PurgeError::Reddit(error))
            | Self::Collect(CollectError::Source(error)) => source_exit(error),
            Self::Store(StoreError::Powerful { .. })
            | Self::Export(ExportError::Store(StoreError::Powerful { .. })) => Exit::Policy,
            Self::Store(_)
            | Self::Export(ExportError::Store(_))
            | Self::Collect(CollectError::Store(_))
            | Self::Purge(PurgeError::Store(_))
            | Self::Import(ImportError::Store(_))
            | Self::Serve(ServeError::Store(_))
            | Self::Backlog(BacklogError::Store(_)) => Exit::Database,
            Self::Labeler(error) | Self::Backlog(BacklogError::Labeler(error)) => {
                labeler_exit(error)
            }
            Self::Keep(error) => keep_exit(error),
            Self::Model(_) | Self::Onnx(_) | Self::Backlog(_) => Exit::Model,
            Self::Told(exit, _) => *exit,
            Self::Pull(error) => pull_exit(error),
            Self::Files(FilesError::Labeler(error)) => labeler_exit(error),
            Self::Files(FilesError::Full(_))
            | Self::Export(_)
            | Self::Report(_)
            | Self::Serve(ServeError::Ended(_))
            | Self::Write { .. } => Exit::Partial,
            Self::Files(FilesError::Busy(_)) => Exit::TryAgain,
            Self::Files(_) => Exit::Usage,
        }
    }
}

fn source_exit(error: &SourceError) -> Exit {
    match error {
        error if error.is_of_the_settings() => Exit::Usage,
        error if error.is_passing() => Exit::TryAgain,
        // Whatever it is called, the token endpoint does not let this program in.
        SourceError::Token(_) => Exit::Policy,
        error => Exit::from(error.outcome()),
    }
}

fn labeler_exit(error: &LabelerError) -> Exit {
    match error {
        LabelerError::LabelSet(_)
        | LabelerError::TooLong { .. }
        | LabelerError::OwnLabels { .. }
        | LabelerError::NoBackground(_)
        | LabelerError::Raw(_) => Exit::Usage,
        _ => Exit::Model,
    }
}

fn keep_exit(error: &KeepError) -> Exit {
    match error {
        error if error.is_full() => Exit::Partial,
        KeepError::Busy(_) => Exit::TryAgain,
        KeepError::Store(StoreError::Url(_))
        | KeepError::Exists(_)
        | KeepError::Itself(_)
        | KeepError::OnServer
        | KeepError::File { .. } => Exit::Usage,
        KeepError::Store(_) => Exit::Database,
    }
}

fn pull_exit(error: &PullError) -> Exit {
    match error {
        PullError::Asked(_) => Exit::Usage,
        PullError::Refused(_) => Exit::Policy,
        PullError::Transfer { .. } | PullError::Again(_) => Exit::TryAgain,
        PullError::Write { .. } | PullError::Link(_) => Exit::Partial,
        PullError::Unfit(_) | PullError::Model(_) => Exit::Model,
    }
}
