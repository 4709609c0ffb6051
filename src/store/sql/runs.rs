//! Runs: what each execution of a stage did.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{ColumnIndex, Decode, Encode, Executor, IntoArguments, Row, Type};

use super::super::dialect::Dialect;
use super::super::{Result, RunId, RunRow};
use super::{Doing, SqlStore, at};
use crate::domain::{RunStatus, Stage, Timestamp};

impl<DB> SqlStore<DB>
where
    DB: Dialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'q> i64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> DateTime<Utc>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> Option<&'q str>: Encode<'q, DB>,
    for<'q> String: Decode<'q, DB> + Type<DB>,
    for<'q> Json<Value>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Json<&'q Value>: Encode<'q, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    pub(in crate::store) async fn begin_run(
        &self,
        stage: Stage,
        worker: &str,
        now: Timestamp,
    ) -> Result<RunId> {
        sqlx::query::<DB>(
            "INSERT INTO runs (stage, status, worker, started_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(stage.as_str())
        .bind(RunStatus::Running.as_str())
        .bind(worker)
        .bind(at(now))
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get(0))
        .map(RunId)
        .doing("record the run")
    }

    pub(in crate::store) async fn finish_run(
        &self,
        run: RunId,
        status: RunStatus,
        counts: &Value,
        outcomes: &Value,
        error: Option<&str>,
        now: Timestamp,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE runs SET status = $2, counts = $3, outcomes = $4, error = $5, finished_at = $6 WHERE id = $1",
        )
        .bind(run.0)
        .bind(status.as_str())
        .bind(Json(counts))
        .bind(Json(outcomes))
        .bind(error)
        .bind(at(now))
        .execute(&self.pool)
        .await
        .doing("record the end of the run")?;
        Ok(())
    }

    pub(in crate::store) async fn recent_runs(
        &self,
        stage: Option<Stage>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        const WHAT: &str = "read the latest runs";
        let rows = sqlx::query::<DB>(
            "SELECT id, stage, status, started_at, finished_at, counts, error FROM runs \
             WHERE stage = COALESCE($1, stage) ORDER BY id DESC LIMIT $2",
        )
        .bind(stage.map(Stage::as_str))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .doing(WHAT)?;
        rows.iter()
            .map(Self::run_row)
            .collect::<Result<_, _>>()
            .doing(WHAT)
    }

    pub(in crate::store) async fn run(&self, run: RunId) -> Result<Option<RunRow>> {
        const WHAT: &str = "read a run";
        let row = sqlx::query::<DB>(
            "SELECT id, stage, status, started_at, finished_at, counts, error FROM runs WHERE id = $1",
        )
        .bind(run.0)
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        row.as_ref().map(Self::run_row).transpose().doing(WHAT)
    }

    fn run_row(row: &DB::Row) -> Result<RunRow, sqlx::Error> {
        Ok(RunRow {
            id: row.try_get(0)?,
            stage: row.try_get(1)?,
            status: row.try_get(2)?,
            started_at: row.try_get::<DateTime<Utc>, _>(3)?.into(),
            finished_at: row
                .try_get::<Option<DateTime<Utc>>, _>(4)?
                .map(Timestamp::from),
            counts: row.try_get::<Json<Value>, _>(5)?.0,
            error: row.try_get(6)?,
        })
    }
}
