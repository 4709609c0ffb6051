//! Scheduled runs: planned once, leased by one process at a time, and reclaimed if that process crashes.
//!
//! A scheduled run is a row that is unique per schedule and due time, so nothing runs twice, even if clocks differ.
//! Claiming the run, or ending the lease of a crashed process, increments the fencing token, which each later write
//! must name. Leases expire by the database's clock, or by the machine's clock with SQLite, which has none.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row};

use super::super::dialect::Dialect;
use super::super::schedules::{
    CRASHED_TOO_OFTEN, ClaimedScheduledRun, PlanningState, RunningScheduledRun, SchedulePlan,
    ScheduleState, ScheduledRunClaimant, ScheduledRunCount, ScheduledRunEnd, ScheduledRunLease,
    ScheduledRunRow,
};
use super::super::{Result, RunId, StoreError};
use super::{ErrorContext, SqlStore, at, count};
use topicmill_core::{ScheduledRunStatus, Timestamp};

const WAITING: &str = ScheduledRunStatus::Waiting.as_str();
const RUNNING: &str = ScheduledRunStatus::Running.as_str();

/// Extends a plan whose end is still `$2`. Matches no row if another process has extended the plan.
const EXTEND_PLAN: &str = "\
UPDATE schedules SET planned_until = $3, cron = $4, timezone = $5 WHERE name = $1 AND planned_until = $2";
const FIRST_PLAN: &str = "\
INSERT INTO schedules (name, planned_until, cron, timezone) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING";
const INSERT: &str = "\
INSERT INTO scheduled_runs (schedule, due_at, status, missed, missed_since, error) VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (schedule, due_at) DO NOTHING";

/// Marks a scheduled run as failed if its lease has expired, and if it has crashed `$3` processes, including the last
/// one.
const FAIL_CRASHING: &str = "\
UPDATE scheduled_runs SET status = 'failed', crashes = crashes + 1, finished_at = $2, error = $4, lease_until = NULL \
 WHERE schedule = $1 AND status = 'running' AND lease_until <= $2 AND crashes + 1 >= $3 RETURNING id, due_at";
/// Columns that a claim returns.
const CLAIMED: &str = "id, fencing_token, due_at, started_at, crashes, missed, outcomes";
/// Claims the run whose lease has expired. `$2` is the worker, `$3` the end of the lease, `$4` now.
const TAKE_OVER: &str = "\
UPDATE scheduled_runs SET fencing_token = fencing_token + 1, crashes = crashes + 1, worker = $2, lease_until = $3 \
 WHERE schedule = $1 AND status = 'running' AND lease_until <= $4 RETURNING ";
/// Claims the earliest waiting run that is due, unless another run is in progress. If two processes pick the same run,
/// the second waits for the row lock, and then finds the run claimed.
const CLAIM: &str = "\
UPDATE scheduled_runs SET status = 'running', fencing_token = fencing_token + 1, worker = $2, lease_until = $3, \
       started_at = COALESCE(started_at, $4) \
 WHERE status = 'waiting' \
   AND id = (SELECT w.id FROM scheduled_runs w WHERE w.schedule = $1 AND w.status = 'waiting' AND w.due_at <= $4 \
              ORDER BY w.due_at LIMIT 1) \
   AND NOT EXISTS (SELECT 1 FROM scheduled_runs r WHERE r.schedule = $1 AND r.status = 'running') RETURNING ";

/// Condition for every later write by the lease holder.
const UNDER_LEASE: &str = " WHERE id = $1 AND fencing_token = $2 AND status = 'running'";

const ROW: &str = "\
SELECT id, schedule, due_at, status, missed, worker, started_at, finished_at, outcomes, error FROM scheduled_runs ";

/// Condition for the latest run of each schedule, if it failed. Ignores runs that were skipped, missed or stopped,
/// that have not started, or that are due after `$2` because a wrong clock planned them.
const LATEST_FAILED: &str = "\
WHERE status = 'failed' AND finished_at >= $1 AND due_at <= $2 \
  AND NOT EXISTS (SELECT 1 FROM scheduled_runs l WHERE l.schedule = scheduled_runs.schedule \
  AND l.due_at > scheduled_runs.due_at \
                     AND l.due_at <= $2 AND l.status IN ('running', 'done', 'partial', 'failed')) ORDER BY schedule";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn schedule_state(&self, name: &str, now: Timestamp) -> Result<ScheduleState> {
        const WHAT: &str = "read the state of a schedule";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        let now = self.database_time(&mut connection, at(now)).await?;
        let planned = sqlx::query::<DB>(
            "SELECT planned_until, cron, timezone FROM schedules WHERE name = $1",
        )
        .bind(name)
        .fetch_optional(&mut *connection)
        .await
        .context(WHAT)?;
        let planned = planned
            .map(|row| {
                Ok(PlanningState {
                    until: row.try_get(0)?,
                    cron: row.try_get(1)?,
                    timezone: row.try_get(2)?,
                })
            })
            .transpose()
            .context(WHAT)?;
        let running = sqlx::query::<DB>(
            "SELECT id, fencing_token, due_at, started_at, worker, lease_until FROM scheduled_runs WHERE schedule = $1 \
             AND status = $2",
        )
        .bind(name)
        .bind(RUNNING)
        .fetch_optional(&mut *connection)
        .await
        .context(WHAT)?;
        let running = running
            .map(|row| {
                Ok(RunningScheduledRun {
                    lease: ScheduledRunLease {
                        id: row.try_get(0)?,
                        token: row.try_get(1)?,
                    },
                    due_at: row.try_get(2)?,
                    started_at: row.try_get(3)?,
                    worker: row.try_get(4)?,
                    is_expired: Self::is_expired(
                        &row.try_get::<String, _>(4)?,
                        row.try_get(5)?,
                        now,
                    ),
                })
            })
            .transpose()
            .context(WHAT)?;
        let waiting = sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM scheduled_runs WHERE schedule = $1 AND status = $2",
        )
        .bind(name)
        .bind(WAITING)
        .fetch_one(&mut *connection)
        .await
        .context(WHAT)?;
        Ok(ScheduleState {
            now: now.into(),
            planned,
            running,
            waiting: waiting.unsigned_abs(),
        })
    }

    pub async fn plan_scheduled_runs(&self, plan: &SchedulePlan<'_>) -> Result<bool> {
        const WHAT: &str = "plan scheduled runs";
        let mut tx = self.begin().await?;
        let planned = match plan.from {
            Some(from) => {
                sqlx::query::<DB>(EXTEND_PLAN)
                    .bind(plan.name)
                    .bind(from)
                    .bind(plan.until)
                    .bind(plan.cron)
                    .bind(plan.timezone)
                    .execute(&mut *tx)
                    .await
            }
            None => {
                sqlx::query::<DB>(FIRST_PLAN)
                    .bind(plan.name)
                    .bind(plan.until)
                    .bind(plan.cron)
                    .bind(plan.timezone)
                    .execute(&mut *tx)
                    .await
            }
        };
        if DB::rows_affected(&planned.context(WHAT)?) == 0 {
            return Ok(false);
        }
        for run in plan.runs {
            sqlx::query::<DB>(INSERT)
                .bind(plan.name)
                .bind(run.due_at)
                .bind(run.status.as_str())
                .bind(count(run.missed.map_or(0, |(missed, _)| missed)))
                .bind(run.missed.map(|(_, since)| since))
                .bind(run.error.as_deref())
                .execute(&mut *tx)
                .await
                .context(WHAT)?;
        }
        tx.commit().await.context(WHAT)?;
        Ok(true)
    }

    pub async fn claim_scheduled_run(
        &self,
        name: &str,
        claimant: &ScheduledRunClaimant<'_>,
        now: Timestamp,
    ) -> Result<Option<ClaimedScheduledRun>> {
        const WHAT: &str = "claim a scheduled run";
        let mut tx = self.begin().await?;
        let now = self.database_time(&mut tx, at(now)).await?;
        let until = Timestamp::from(now + claimant.lease);
        let now = Timestamp::from(now);
        for statement in [TAKE_OVER, CLAIM] {
            let claimed = sqlx::query::<DB>(AssertSqlSafe(format!("{statement}{CLAIMED}")))
                .bind(name)
                .bind(claimant.worker)
                .bind(until)
                .bind(now)
                .fetch_optional(&mut *tx)
                .await
                .context(WHAT)?;
            if let Some(row) = claimed {
                let claimed = Self::claimed(&row).context(WHAT)?;
                tx.commit().await.context(WHAT)?;
                return Ok(Some(claimed));
            }
        }
        tx.commit().await.context(WHAT)?;
        Ok(None)
    }

    pub async fn fail_crashing_scheduled_run(
        &self,
        name: &str,
        max_crashes: u32,
        now: Timestamp,
    ) -> Result<Option<(i64, Timestamp)>> {
        const WHAT: &str = "fail a crashing scheduled run";
        let mut tx = self.begin().await?;
        let now = self.database_time(&mut tx, at(now)).await?;
        let failed = sqlx::query::<DB>(FAIL_CRASHING)
            .bind(name)
            .bind(Timestamp::from(now))
            .bind(i64::from(max_crashes))
            .bind(CRASHED_TOO_OFTEN)
            .fetch_optional(&mut *tx)
            .await
            .context(WHAT)?;
        tx.commit().await.context(WHAT)?;
        failed
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .transpose()
            .context(WHAT)
    }

    fn claimed(row: &DB::Row) -> Result<ClaimedScheduledRun, sqlx::Error> {
        Ok(ClaimedScheduledRun {
            lease: ScheduledRunLease {
                id: row.try_get(0)?,
                token: row.try_get(1)?,
            },
            due_at: row.try_get(2)?,
            started_at: row.try_get(3)?,
            crashes: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
            missed: row.try_get::<i64, _>(5)?.unsigned_abs(),
            outcomes: row.try_get::<Json<Vec<Value>>, _>(6)?.0,
        })
    }

    pub async fn renew_scheduled_run(
        &self,
        lease: ScheduledRunLease,
        duration: std::time::Duration,
        now: Timestamp,
    ) -> Result<bool> {
        const WHAT: &str = "renew the lease on a scheduled run";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        let now = self.database_time(&mut connection, at(now)).await?;
        // As in `renew`, a delayed renewal does not shorten the lease.
        let update = format!(
            "UPDATE scheduled_runs SET lease_until = \
                    CASE WHEN lease_until > $3 AND lease_until < $4 THEN lease_until ELSE $3 END{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.id)
            .bind(lease.token)
            .bind(Timestamp::from(now + duration))
            .bind(Timestamp::from(now + duration * 2))
            .execute(&mut *connection)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context(WHAT)
    }

    pub async fn expire_scheduled_run(&self, lease: ScheduledRunLease) -> Result<()> {
        // The new token also rejects a renewal that the crashed process has sent, but that the network delivers late.
        let update = format!(
            "UPDATE scheduled_runs SET fencing_token = fencing_token + 1, lease_until = started_at{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.id)
            .bind(lease.token)
            .execute(&self.pool)
            .await
            .context("end the lease of a crashed process")?;
        Ok(())
    }

    pub async fn record_stages(
        &self,
        lease: ScheduledRunLease,
        outcomes: &[Value],
    ) -> Result<bool> {
        let update = format!("UPDATE scheduled_runs SET outcomes = $3{UNDER_LEASE}");
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.id)
            .bind(lease.token)
            .bind(Json(outcomes))
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context("record the stages of a scheduled run")
    }

    pub async fn finish_scheduled_run(
        &self,
        lease: ScheduledRunLease,
        end: &ScheduledRunEnd,
        now: Timestamp,
    ) -> Result<bool> {
        const WHAT: &str = "record the end of a scheduled run";
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        let now = self.database_time(&mut connection, at(now)).await?;
        let finished = (end.status != ScheduledRunStatus::Waiting).then(|| Timestamp::from(now));
        let update = format!(
            "UPDATE scheduled_runs SET status = $3, outcomes = $4, error = $5, finished_at = $6, \
             lease_until = NULL{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.id)
            .bind(lease.token)
            .bind(end.status.as_str())
            .bind(Json(end.outcomes.as_slice()))
            .bind(end.error.as_deref())
            .bind(finished)
            .execute(&mut *connection)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context(WHAT)
    }

    pub async fn link_run(&self, run: RunId, scheduled_run: i64) -> Result<()> {
        sqlx::query::<DB>("UPDATE runs SET scheduled_run_id = $2 WHERE id = $1")
            .bind(run.0)
            .bind(scheduled_run)
            .execute(&self.pool)
            .await
            .context("record the scheduled run of a run")?;
        Ok(())
    }

    pub async fn latest_scheduled_runs(
        &self,
        name: &str,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ScheduledRunRow>> {
        const WHAT: &str = "read the runs of a schedule";
        let select =
            format!("{ROW}WHERE schedule = $1 AND due_at <= $2 ORDER BY due_at DESC LIMIT $3");
        let rows = sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(name)
            .bind(until)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        rows.iter().map(Self::scheduled_run_row).collect()
    }

    pub async fn failed_scheduled_runs(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<ScheduledRunRow>> {
        let select = format!("{ROW}{LATEST_FAILED}");
        let rows = sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(since)
            .bind(until)
            .fetch_all(&self.pool)
            .await
            .context("read the failed scheduled runs")?;
        rows.iter().map(Self::scheduled_run_row).collect()
    }

    fn scheduled_run_row(row: &DB::Row) -> Result<ScheduledRunRow> {
        const WHAT: &str = "read a scheduled run";
        let time = |column: usize| -> Result<Option<Timestamp>> {
            let time: Option<DateTime<Utc>> = row.try_get(column).context(WHAT)?;
            Ok(time.map(Timestamp::from))
        };
        let id: i64 = row.try_get(0).context(WHAT)?;
        Ok(ScheduledRunRow {
            id,
            schedule: row.try_get(1).context(WHAT)?,
            due_at: row.try_get::<DateTime<Utc>, _>(2).context(WHAT)?.into(),
            status: Self::scheduled_run_status(row, 3, &id.to_string())?,
            missed: row.try_get::<i64, _>(4).context(WHAT)?.unsigned_abs(),
            worker: row.try_get(5).context(WHAT)?,
            started_at: time(6)?,
            finished_at: time(7)?,
            outcomes: row.try_get::<Json<Value>, _>(8).context(WHAT)?.0,
            error: row.try_get(9).context(WHAT)?,
        })
    }

    fn scheduled_run_status(row: &DB::Row, column: usize, key: &str) -> Result<ScheduledRunStatus> {
        let word: String = row.try_get(column).context("read a scheduled run")?;
        word.parse().map_err(
            |error: topicmill_core::UnknownVariant| StoreError::Corrupt {
                table: "scheduled_runs",
                row: key.to_owned(),
                detail: error.to_string(),
            },
        )
    }

    pub async fn count_scheduled_runs(
        &self,
        name: &str,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<ScheduledRunCount>> {
        const WHAT: &str = "count the runs of a schedule";
        let rows = sqlx::query::<DB>(
            "SELECT status, COUNT(*), CAST(SUM(missed) AS BIGINT) FROM scheduled_runs \
              WHERE schedule = $1 AND due_at >= $2 AND due_at <= $3 GROUP BY status ORDER BY status",
        )
        .bind(name)
        .bind(since)
        .bind(until)
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        let counted = |row: &DB::Row| {
            Ok(ScheduledRunCount {
                status: Self::scheduled_run_status(row, 0, name)?,
                runs: row.try_get::<i64, _>(1).context(WHAT)?.unsigned_abs(),
                missed: row.try_get::<i64, _>(2).context(WHAT)?.unsigned_abs(),
            })
        };
        rows.iter().map(counted).collect()
    }
}
