//! Stores runs of stages and their heartbeats.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, at, from_json};
use crate::dialect::Dialect;
use crate::{Result, RunId, RunRow, UnfinishedRun};
use topicmill_core::{RunStatus, Stage, Timestamp};

impl<DB: Dialect> SqlStore<DB> {
    pub async fn last_run_start(
        &self,
        before: Timestamp,
        after: Timestamp,
    ) -> Result<Option<Timestamp>> {
        sqlx::query_scalar::<DB, _>(
            "SELECT started_at FROM runs WHERE started_at < $1 OR started_at > $2 ORDER BY id DESC LIMIT 1",
        )
        .bind(before)
        .bind(after)
        .fetch_optional(&self.pool)
        .await
        .context("read when the last run began")
    }

    pub async fn database_now(&self, now: Timestamp) -> Result<Timestamp> {
        Ok(self.database_time(&self.pool, at(now)).await?.into())
    }

    pub async fn begin_run(&self, stage: Stage, worker: &str, now: Timestamp) -> Result<RunId> {
        // Heartbeats use the database's clock, because the clocks of workers differ, and other workers use the
        // heartbeat to decide whether this worker is still running.
        let insert = format!(
            "INSERT INTO runs (stage, status, worker, started_at, heartbeat_at) \
             VALUES ($1, $2, $3, $4, {}) RETURNING id",
            DB::NOW
        );
        // Outside a transaction, all rows are fetched: SQLite commits, which may fail, after the last one.
        let ids = sqlx::query_scalar::<DB, _>(AssertSqlSafe(insert))
            .bind(stage.as_str())
            .bind(RunStatus::Running.as_str())
            .bind(worker)
            .bind(now)
            .fetch_all(&self.pool)
            .await;
        ids.context("record the run").map(|ids| ids[0])
    }

    pub async fn record_heartbeat(&self, run: RunId) -> Result<()> {
        // A run that was marked as crashed is set back to `running`: its process was suspended, or the database was
        // unavailable.
        let update = format!(
            "UPDATE runs SET heartbeat_at = {}, status = $2, finished_at = NULL, error = NULL \
              WHERE id = $1 AND status IN ($2, $3)",
            DB::NOW
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(run)
            .bind(RunStatus::Running.as_str())
            .bind(RunStatus::Crashed.as_str())
            .execute(&self.pool)
            .await
            .map(drop)
            .context("record a heartbeat")
    }

    pub async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>> {
        let select = format!(
            "SELECT id, worker, started_at, heartbeat_at, {}, stage FROM runs WHERE status = $1 ORDER BY id",
            DB::NOW
        );
        let running = |row: DB::Row| {
            let started: DateTime<Utc> = row.try_get(2)?;
            let seen: Option<DateTime<Utc>> = row.try_get(3)?;
            let now: DateTime<Utc> = row.try_get(4)?;
            Ok(UnfinishedRun {
                id: row.try_get(0)?,
                stage: row.try_get(5)?,
                worker: row.try_get(1)?,
                started_at: started.into(),
                seen_at: seen.unwrap_or(started).into(),
                // The age is negative if `started` comes from a worker whose clock is ahead.
                heartbeat_age: (now - seen.unwrap_or(started)).to_std().unwrap_or_default(),
            })
        };
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(RunStatus::Running.as_str())
            .try_map(running)
            .fetch_all(&self.pool)
            .await
            .context("read the unfinished runs")
    }

    pub async fn mark_crashed(&self, run: RunId, why: &str) -> Result<()> {
        // The condition on the status is needed because the run may have ended in the meantime.
        sqlx::query::<DB>(
            "UPDATE runs SET status = $2, finished_at = COALESCE(heartbeat_at, started_at), error = $3 \
              WHERE id = $1 AND status = $4",
        )
        .bind(run)
        .bind(RunStatus::Crashed.as_str())
        .bind(why)
        .bind(RunStatus::Running.as_str())
        .execute(&self.pool)
        .await
        .map(drop)
        .context("record that a run crashed")
    }

    pub async fn finish_run(
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
        .bind(run)
        .bind(status.as_str())
        .bind(Json(counts))
        .bind(Json(outcomes))
        .bind(error)
        .bind(now)
        .execute(&self.pool)
        .await
        .context("record the end of the run")?;
        self.check_same_file()
    }

    pub async fn recent_runs(&self, stage: Option<Stage>, limit: u32) -> Result<Vec<RunRow>> {
        sqlx::query::<DB>(
            "SELECT id, stage, status, started_at, finished_at, error, counts FROM runs \
             WHERE stage = COALESCE($1, stage) ORDER BY id DESC LIMIT $2",
        )
        .bind(stage.map(Stage::as_str))
        .bind(i64::from(limit))
        .try_map(
            row_as!(RunRow: id, stage, status, started_at, finished_at, error, counts(from_json)),
        )
        .fetch_all(&self.pool)
        .await
        .context("read the latest runs")
    }
}
