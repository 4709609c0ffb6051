//! Records a run: one write at its start, one at its end.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, heartbeat};
use crate::run::StageError;
use crate::telemetry;
use topicmill_core::record::RunCounts;
use topicmill_core::{FailureKind, RunStatus, Stage};
use topicmill_store::{RunId, StoreError, is_cancelled};

/// The metadata key for the program version, which each run stores.
pub const WRITTEN_BY: &str = "written_by";

/// A run record, for the database, for `--run-json` and for the exit code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecord {
    /// The key in `runs`.
    pub id: RunId,
    /// The stage.
    pub stage: Stage,
    /// The status that it ended with.
    pub status: RunStatus,
    /// Its counts.
    pub counts: RunCounts,
    /// One entry per topic; empty for stages without topics.
    pub outcomes: Value,
    /// The error that ended it.
    pub error: Option<String>,
}

/// The result of a stage, for its record.
pub(super) struct StageResult {
    /// True if the stage did all of its work.
    is_complete: bool,
    counts: RunCounts,
    /// One entry per topic; empty for stages without topics.
    pub(super) outcomes: Value,
}

impl StageResult {
    /// Creates the result of a stage without topics.
    pub(super) fn new(is_complete: bool, counts: RunCounts) -> Self {
        Self {
            is_complete,
            counts,
            outcomes: json!([]),
        }
    }
}

impl Context {
    /// Runs a stage and records it. `work` updates its report as it goes, so that a run that fails or panics is
    /// recorded with what it finished. A run that a temporary failure ended is partial, as in a schedule.
    pub(super) async fn recorded<T: Default>(
        &self,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), StageError>,
        result_of: impl FnOnce(&mut T) -> StageResult,
    ) -> Result<(T, RunStatus), StageError> {
        // Crashes are recorded before this run is, so that `status` is right from here on.
        heartbeat::record_crashed_runs(self).await?;
        // `db info` shows the version. A database role may lack this privilege, which is not an error.
        match self.store.set_meta(WRITTEN_BY, crate::VERSION).await {
            Err(error) if is_cancelled(&error) => return Err(error.into()),
            Err(error) => tracing::debug!("the version of this program was not recorded: {error}"),
            Ok(()) => {}
        }
        let (runs, now) = (self.store.runs(), self.clock.now().into());
        let id = runs.begin_run(stage, &self.worker, now).await?;
        if let Some(scheduled_run) = self.scheduled_run {
            self.store.schedules().link_run(id, scheduled_run).await?;
        }
        let run = self.run_recorded(id, stage, work, result_of);
        telemetry::in_run(id.0, run).await
    }

    /// Runs a stage whose start is recorded.
    async fn run_recorded<T: Default>(
        &self,
        id: RunId,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), StageError>,
        result_of: impl FnOnce(&mut T) -> StageResult,
    ) -> Result<(T, RunStatus), StageError> {
        let now = || self.clock.now().into();
        let mut report = T::default();
        // A run that panics must not remain `running`, so its end is recorded first and the panic is resumed below.
        // Only the counts are read from the interrupted report.
        let work = AssertUnwindSafe(work(id, &mut report)).catch_unwind();
        let ended = tokio::select! {
            ended = work => ended,
            // Heartbeats run concurrently with the work and are dropped with it, so they end with the run.
            never = heartbeat::send_heartbeats(self, id) => match never {},
        };
        let result = result_of(&mut report);
        let error = match &ended {
            Ok(ended) => ended.as_ref().err().map(ToString::to_string),
            Err(_) => Some("it panicked, see the log".to_owned()),
        };
        let status = match &ended {
            Ok(Err(error)) if is_cancelled(error) => RunStatus::Stopped,
            Ok(Err(error)) if error.kind() == FailureKind::Temporary => RunStatus::Partial,
            Ok(Err(_)) | Err(_) => RunStatus::Failed,
            Ok(Ok(())) if self.stop.is_cancelled() => RunStatus::Stopped,
            Ok(Ok(())) if result.is_complete => RunStatus::Done,
            Ok(Ok(())) => RunStatus::Partial,
        };
        let (counts, outcomes) = (json!(result.counts), &result.outcomes);
        let written = tokio::select! {
            written = self.store.runs().finish_run(id, status, &counts, outcomes, error.as_deref(), now()) => written,
            () = heartbeat::stop_grace_over(&self.stop) => Err(StoreError::NotResponding),
        };
        // With the WAL checkpointed, a copy of the SQLite file contains this run.
        match self.store.checkpoint().await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                "another program reads an older snapshot of the database, so its file lacks the last writes of this \
                 run: back it up with `topicmill db backup`"
            ),
            Err(error) => tracing::debug!("the WAL was not checkpointed: {error}"),
        }
        self.lock_records().push(RunRecord {
            id,
            stage,
            status,
            counts: result.counts,
            outcomes: result.outcomes,
            error,
        });
        // The run's error takes precedence over an error in recording it.
        ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        match written {
            // A stopped run does not wait for the database; the next run records its end.
            Err(error) if self.stop.is_cancelled() && error.is_transient() => {
                tracing::warn!(run = id.0, "the end of the run was not recorded: {error}");
            }
            written => written?,
        }
        Ok((report, status))
    }
}
