//! Scheduled runs: started once, leased by one process at a time, and reclaimed if that process crashes.
//!
//! A scheduled run is a row that is unique per schedule and due time, so nothing runs twice, even if clocks differ.
//! Each claim increments the fencing token, which each later write must name. Leases expire by the database's clock,
//! or by the machine's clock with SQLite, which has none.

use std::time::Duration;

use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, at, from_json};
use crate::dialect::Dialect;
use crate::schedules::{
    ClaimedScheduledRun, RunningScheduledRun, ScheduleState, ScheduledRunClaimant, ScheduledRunEnd,
    ScheduledRunLease, ScheduledRunRow,
};
use crate::{Result, RunId};
use topicmill_core::{MAX_CLOCK_SETBACK, ScheduledRunStatus, Timestamp};

/// Condition for every write by the lease holder.
const UNDER_LEASE: &str = " WHERE id = $1 AND fencing_token = $2 AND status = 'running'";
/// Columns that a claim returns.
const CLAIMED: &str = " RETURNING due_at, started_at, outcomes, id, fencing_token";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn schedule_state(&self, name: &str, now: Timestamp) -> Result<ScheduleState> {
        const WHAT: &str = "read the state of a schedule";
        let now = self.database_time(&self.pool, at(now)).await?;
        // Ignores rows that a process with a wrong clock wrote.
        let latest = sqlx::query_scalar::<DB, Option<Timestamp>>(
            "SELECT MAX(due_at) FROM scheduled_runs WHERE schedule = $1 AND due_at <= $2",
        )
        .bind(name)
        .bind(Timestamp::from(now + MAX_CLOCK_SETBACK))
        .fetch_one(&self.pool)
        .await
        .context(WHAT)?;
        let running = |row: DB::Row| {
            let lease = ScheduledRunLease {
                id: row.try_get(4)?,
                token: row.try_get(5)?,
            };
            let run = row_as!(RunningScheduledRun: due_at, worker, lease_until, outcomes(from_json); lease = lease;
                is_expired = false)(row)?;
            let is_expired = Self::is_expired(&run.worker, run.lease_until.as_datetime(), now);
            Ok(RunningScheduledRun { is_expired, ..run })
        };
        let running = sqlx::query::<DB>(
            "SELECT due_at, worker, lease_until, outcomes, id, fencing_token FROM scheduled_runs \
              WHERE schedule = $1 AND status = 'running'",
        )
        .bind(name)
        .try_map(running)
        .fetch_optional(&self.pool)
        .await
        .context(WHAT)?;
        Ok(ScheduleState {
            now: now.into(),
            latest,
            running,
        })
    }

    pub async fn start_scheduled_run(
        &self,
        name: &str,
        due_at: Timestamp,
        claimant: &ScheduledRunClaimant<'_>,
        now: Timestamp,
    ) -> Result<Option<ClaimedScheduledRun>> {
        let now = self.database_time(&self.pool, at(now)).await?;
        // Of several processes, the first one inserts the row; a second run in progress also conflicts.
        let insert = format!(
            "INSERT INTO scheduled_runs (schedule, due_at, status, worker, lease_until, started_at) \
             VALUES ($1, $2, 'running', $3, $4, $5) ON CONFLICT DO NOTHING{CLAIMED}"
        );
        sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(name)
            .bind(due_at)
            .bind(claimant.worker)
            .bind(Timestamp::from(now + claimant.lease))
            .bind(Timestamp::from(now))
            .try_map(Self::claimed_scheduled_run)
            .fetch_all(&self.pool)
            .await
            .map(|mut claimed| claimed.pop())
            .context("start a scheduled run")
    }

    pub async fn skip_scheduled_run(
        &self,
        name: &str,
        due_at: Timestamp,
        why: &str,
    ) -> Result<bool> {
        sqlx::query::<DB>(
            "INSERT INTO scheduled_runs (schedule, due_at, status, error) VALUES ($1, $2, 'skipped', $3) \
             ON CONFLICT DO NOTHING",
        )
        .bind(name)
        .bind(due_at)
        .bind(why)
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done) > 0)
        .context("skip a scheduled run")
    }

    pub async fn reclaim_scheduled_run(
        &self,
        held: &RunningScheduledRun,
        claimant: &ScheduledRunClaimant<'_>,
        now: Timestamp,
    ) -> Result<Option<ClaimedScheduledRun>> {
        let now = self.database_time(&self.pool, at(now)).await?;
        // The lease must not have been renewed since it was read.
        let update = format!(
            "UPDATE scheduled_runs SET fencing_token = fencing_token + 1, worker = $3, lease_until = $4{UNDER_LEASE} \
                AND lease_until <= $5{CLAIMED}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(held.lease.id)
            .bind(held.lease.token)
            .bind(claimant.worker)
            .bind(Timestamp::from(now + claimant.lease))
            .bind(held.lease_until.max(now.into()))
            .try_map(Self::claimed_scheduled_run)
            .fetch_all(&self.pool)
            .await
            .map(|mut claimed| claimed.pop())
            .context("reclaim a scheduled run")
    }

    fn claimed_scheduled_run(row: DB::Row) -> Result<ClaimedScheduledRun, sqlx::Error> {
        let lease = ScheduledRunLease {
            id: row.try_get(3)?,
            token: row.try_get(4)?,
        };
        row_as!(ClaimedScheduledRun: due_at, started_at, outcomes(from_json); lease = lease)(row)
    }

    pub async fn renew_scheduled_run(
        &self,
        lease: ScheduledRunLease,
        duration: Duration,
        now: Timestamp,
    ) -> Result<bool> {
        let now = self.database_time(&self.pool, at(now)).await?;
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
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context("renew the lease on a scheduled run")
    }

    pub async fn record_stages(&self, lease: ScheduledRunLease, stages: &[Value]) -> Result<bool> {
        let update = format!("UPDATE scheduled_runs SET outcomes = $3{UNDER_LEASE}");
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.id)
            .bind(lease.token)
            .bind(Json(stages))
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
        let now = self.database_time(&self.pool, at(now)).await?;
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
            .bind(Timestamp::from(now))
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context("record the end of a scheduled run")
    }

    pub async fn link_run(&self, run: RunId, scheduled_run: i64) -> Result<()> {
        sqlx::query::<DB>("UPDATE runs SET scheduled_run_id = $2 WHERE id = $1")
            .bind(run)
            .bind(scheduled_run)
            .execute(&self.pool)
            .await
            .context("record the scheduled run of a run")?;
        Ok(())
    }

    pub async fn last_scheduled_runs(&self, until: Timestamp) -> Result<Vec<ScheduledRunRow>> {
        sqlx::query::<DB>(
            "SELECT schedule, due_at, status, started_at, finished_at, error FROM scheduled_runs WHERE id IN ( \
               SELECT MAX(id) FROM scheduled_runs WHERE status <> $1 AND due_at <= $2 GROUP BY schedule) \
              ORDER BY schedule",
        )
        .bind(ScheduledRunStatus::Skipped.as_str())
        .bind(until)
        .try_map(row_as!(ScheduledRunRow: schedule, due_at, status, started_at, finished_at, error))
        .fetch_all(&self.pool)
        .await
        .context("read the last scheduled runs")
    }
}
