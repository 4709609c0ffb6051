//! [`Run`] holds what every stage receives: the database, the clock, the cancellation token and the run's id.
//! [`StageError`] is what every stage returns if it ends early.

use tokio_util::sync::CancellationToken;

use topicmill_core::clock::SharedClock;
use topicmill_core::{FailureKind, Timestamp};
use topicmill_score::LabelerError;
use topicmill_score::text::TokenizeError;
use topicmill_sources::SourceError;
use topicmill_sources::file::dump::FileError;
use topicmill_store::{RunId, Store, StoreError};

/// One run of a stage: the context in which the stage works.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The database.
    pub store: &'a Store,
    /// The clock for dates, waits and leases.
    pub clock: &'a SharedClock,
    /// Cancelled by the first signal: work in progress is written, and no more is started.
    pub stop: &'a CancellationToken,
    /// The name of this process (in tests, of a thread); see [`worker_name`](topicmill_store::worker_name).
    pub worker: &'a str,
    /// The id of the run that the stage's rows belong to.
    pub id: RunId,
}

impl Run<'_> {
    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now().into()
    }
}

/// Reasons why a run of a stage ended early. What was written before is kept.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source rejects every request or is not responding.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file cannot be read.
    #[error(transparent)]
    Dump(#[from] FileError),
    /// The model or the device failed.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// A thread panicked or was cancelled.
    #[error("the scoring thread ended without a result: {0}")]
    Thread(String),
    /// Making the label set current would lose this number of labels.
    #[error(
        "the label set cannot become the current one: {0} labelled posts have no label of it and cannot get one, because \
         retention deleted their text, so views, reports and exports would lose them; --yes makes it current nevertheless"
    )]
    LabelsLost(u64),
    /// The machine's clock is far from the last run, so every age may be wrong.
    #[error(
        "it is {} by this machine's clock, and the last run on a different day began on {}: set the clock or, if \
         it is right, run `topicmill purge --retention --yes`",
        now.as_datetime().date_naive(),
        last.as_datetime().date_naive()
    )]
    Clock {
        /// The time of the machine's clock.
        now: Timestamp,
        /// The start of the last run that did not begin within a day of `now`.
        last: Timestamp,
    },
}

impl StageError {
    /// Returns the kind of this error, which determines the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Source(error) => error.kind(),
            Self::Labeler(error) => error.kind(),
            Self::Dump(_) | Self::LabelsLost(_) | Self::Clock { .. } => FailureKind::Usage,
            Self::Tokenize(_) | Self::Thread(_) => FailureKind::Model,
        }
    }
}
