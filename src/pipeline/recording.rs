//! A run between the two writes that record it, and what its record says.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::Instrument;

use super::{Context, heartbeat};
use crate::notify::EndedWork;
use crate::telemetry;
use topicmill_core::record::RunCounts;
use topicmill_core::{RunStatus, Stage};
use topicmill_store::{RunId, StoreError, is_stop};

/// The key under which the database has the version of the program whose run began last.
pub const WRITTEN_BY: &str = "written_by";

/// What a run did, for its record, for `--run-json` and for the exit code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecord {
    /// Key in `runs`.
    pub id: RunId,
    /// The stage.
    pub stage: Stage,
    /// How it ended.
    pub status: RunStatus,
    /// What it counted.
    pub counts: RunCounts,
    /// One entry a topic; empty for stages without topics.
    pub outcomes: Value,
    /// What ended it, if an error.
    pub error: Option<String>,
}

/// What a stage tells of its work for the record: status, counts, and one entry a topic.
type StageResult = (RunStatus, RunCounts, Value);

pub(super) fn done_if(is_complete: bool) -> RunStatus {
    if is_complete {
        RunStatus::Done
    } else {
        RunStatus::Partial
    }
}

impl Context {
    /// Runs a stage between the two writes that record it. `work` adds to its report as it goes, so that a
    /// run that fails half-way, or panics, is recorded with the half that it did.
    pub(super) async fn recorded<T: Default, E: std::error::Error + From<StoreError> + 'static>(
        &self,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), E>,
        result_of: impl FnOnce(&mut T) -> StageResult,
    ) -> Result<(T, RunStatus), E> {
        // Before the run is recorded, so that what `status` shows is right from here on.
        heartbeat::record_crashed_runs(self).await?;
        // For `db info`. A role may lack the right to it, and works all the same.
        match self.store.keep(WRITTEN_BY, crate::VERSION).await {
            Err(error) if is_stop(&error) => return Err(error.into()),
            Err(error) => {
                tracing::debug!("the version of this program was not noted: {error}");
            }
            Ok(()) => {}
        }
        let now = self.clock.now().into();
        let id = self
            .store
            .runs()
            .begin_run(stage, &self.worker, now)
            .await?;
        if let Some(scheduled_run) = self.scheduled_run {
            self.store.schedules().link_run(id, scheduled_run).await?;
        }
        let run = self.run_recorded(id, stage, work, result_of);
        let span = tracing::trace_span!(target: "otel", "run", stage = stage.as_str(), run = id.0);
        telemetry::in_run(id.0, run.instrument(span)).await
    }

    /// The run of a stage that has begun.
    async fn run_recorded<T: Default, E: std::error::Error + From<StoreError> + 'static>(
        &self,
        id: RunId,
        stage: Stage,
        work: impl AsyncFnOnce(RunId, &mut T) -> Result<(), E>,
        result_of: impl FnOnce(&mut T) -> StageResult,
    ) -> Result<(T, RunStatus), E> {
        let now = || self.clock.now().into();
        let mut report = T::default();
        // What it leaves half-done in memory is only looked at for its counts.
        // A run that panics must not stay `running` for ever, so its end is recorded first, and the panic goes on
        // below.
        let work = AssertUnwindSafe(work(id, &mut report)).catch_unwind();
        let ended = tokio::select! {
            ended = work => ended,
            // Beside the work, and dropped with it: a run that ended shows no more signs of life.
            never = heartbeat::send_heartbeats(self, id) => match never {},
        };
        let (status, counts, outcomes) = result_of(&mut report);
        let error = match &ended {
            Ok(ended) => ended.as_ref().err().map(ToString::to_string),
            Err(_) => Some("a bug of topicmill ended it, see the log".to_owned()),
        };
        let was_stopped = matches!(&ended, Ok(Err(error)) if is_stop(error));
        let status = match error {
            Some(_) if was_stopped => RunStatus::Stopped,
            Some(_) => RunStatus::Failed,
            None if self.stop.is_cancelled() => RunStatus::Stopped,
            None => status,
        };
        let stored = json!(counts);
        let written = tokio::select! {
            written = self.store.runs().finish_run(id, status, &stored, &outcomes, error.as_deref(), now()) => written,
            () = heartbeat::stop_grace_over(&self.stop) => Err(StoreError::Away),
        };
        // Whoever copies the file of a SQLite database gets what this run wrote.
        match self.store.fold().await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                "another program reads an earlier state of the database, so that its file alone lacks what this run \
                 wrote last: copy it with `topicmill db backup`"
            ),
            Err(error) => {
                tracing::debug!("the database's log was not folded into its file: {error}");
            }
        }
        self.metrics.run_ended(stage, status, &counts);
        self.notify_ended(&EndedWork {
            what: stage.as_str(),
            run: id.0,
            status,
            counts: &counts,
            error: error.as_deref(),
            worker: &self.worker,
        })
        .await;
        self.lock_records().push(RunRecord {
            id,
            stage,
            status,
            counts,
            outcomes,
            error,
        });
        // What ended the run matters more than that its end could not be written.
        ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        match written {
            // Whoever stopped it waits for no database; the next run records that this one ended.
            Err(error) if self.stop.is_cancelled() && error.is_transient() => {
                tracing::warn!(run = id.0, "the end of the run is not recorded: {error}");
            }
            written => written?,
        }
        Ok((report, status))
    }

    /// Tells people how a run ended, where they want to know it. Whoever stopped the run does not wait for that.
    pub(super) async fn notify_ended(&self, ended: &EndedWork<'_>) {
        tokio::select! {
            () = self.notify.notify_ended(&self.store, ended, self.clock.now()) => {}
            () = heartbeat::stop_grace_over(&self.stop) => {}
        }
    }
}
