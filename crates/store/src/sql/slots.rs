//! Scheduled runs: planned once, leased by one process at a time, and reclaimed if that process crashes.
//!
//! A scheduled run is a row that is unique by its schedule and due time, so nothing runs twice, even if clocks differ.
//! Taking it, or ending the lease of a crashed process, increments `takes`. That number is the fencing token: each later
//! write names it. Leases expire by the database's clock; SQLite has none, and uses the machine's.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row};

use super::super::dialect::Dialect;
use super::super::slots::{
    DEADLY, Planned, RunningSlot, ScheduleState, SlotCount, SlotEnd, SlotLease, SlotPlan, SlotRow,
    SlotTaker, TakenSlot,
};
use super::super::{Result, RunId, StoreError};
use super::{Doing, SqlStore, at, count};
use topicmill_core::{ScheduledRunStatus, Timestamp};

const WAITING: &str = ScheduledRunStatus::Waiting.as_str();
const RUNNING: &str = ScheduledRunStatus::Running.as_str();

/// Only the one who saw how far it was planned plans further; `$2` is that time.
const PLAN_FURTHER: &str = "\
UPDATE schedules SET planned_until = $3, cron = $4, timezone = $5 WHERE name = $1 AND planned_until = $2";
const PLAN_FIRST: &str = "\
INSERT INTO schedules (name, planned_until, cron, timezone) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING";
const INSERT: &str = "\
INSERT INTO scheduled_runs (schedule, due_at, status, missed, missed_since, error) VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (schedule, due_at) DO NOTHING";

/// A slot whose process died too often, or with it once more.
const GIVE_UP: &str = "\
UPDATE scheduled_runs SET status = 'failed', deaths = deaths + 1, finished_at = $2, error = $4, lease_until = NULL \
 WHERE schedule = $1 AND status = 'running' AND lease_until <= $2 AND deaths + 1 >= $3 RETURNING id, due_at";
/// Columns that statements return when they take a scheduled run.
const TAKEN: &str = "id, takes, due_at, started_at, deaths, missed, outcomes";
/// A slot whose process died. `$2` the worker, `$3` the end of the lease, `$4` now.
const TAKE_OVER: &str = "\
UPDATE scheduled_runs SET takes = takes + 1, deaths = deaths + 1, worker = $2, lease_until = $3 \
 WHERE schedule = $1 AND status = 'running' AND lease_until <= $4 RETURNING ";
/// The earliest slot that waits, unless another one runs. Two processes that pick the same one wait for each other on
/// its row, and the second finds it taken.
const TAKE: &str = "\
UPDATE scheduled_runs SET status = 'running', takes = takes + 1, worker = $2, lease_until = $3, \
       started_at = COALESCE(started_at, $4) \
 WHERE status = 'waiting' \
   AND id = (SELECT w.id FROM scheduled_runs w WHERE w.schedule = $1 AND w.status = 'waiting' AND w.due_at <= $4 \
              ORDER BY w.due_at LIMIT 1) \
   AND NOT EXISTS (SELECT 1 FROM scheduled_runs r WHERE r.schedule = $1 AND r.status = 'running') RETURNING ";

/// Every later write of whoever took a slot.
const UNDER_LEASE: &str = " WHERE id = $1 AND takes = $2 AND status = 'running'";

const ROW: &str = "\
SELECT id, schedule, due_at, status, missed, worker, started_at, finished_at, outcomes, error FROM scheduled_runs ";

/// Slots that were skipped say nothing of what the one before them did, and neither do those that a wrong clock ran
/// years ahead: those due after `$2`.
const LATEST_FAILED: &str = "\
WHERE status = 'failed' AND finished_at >= $1 AND due_at <= $2 \
  AND NOT EXISTS (SELECT 1 FROM scheduled_runs l WHERE l.schedule = scheduled_runs.schedule AND l.due_at > scheduled_runs.due_at \
                     AND l.due_at <= $2 AND l.status IN ('running', 'done', 'partial', 'failed')) ORDER BY schedule";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn schedule_state(&self, name: &str, now: Timestamp) -> Result<ScheduleState> {
        const WHAT: &str = "read how far a schedule was planned";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        let planned = sqlx::query::<DB>(
            "SELECT planned_until, cron, timezone FROM schedules WHERE name = $1",
        )
        .bind(name)
        .fetch_optional(&mut *connection)
        .await
        .doing(WHAT)?;
        let planned = planned
            .map(|row| {
                Ok(Planned {
                    until: row.try_get(0)?,
                    cron: row.try_get(1)?,
                    timezone: row.try_get(2)?,
                })
            })
            .transpose()
            .doing(WHAT)?;
        let running = sqlx::query::<DB>(
            "SELECT id, takes, due_at, started_at, worker, lease_until FROM scheduled_runs WHERE schedule = $1 AND status = $2",
        )
        .bind(name)
        .bind(RUNNING)
        .fetch_optional(&mut *connection)
        .await
        .doing(WHAT)?;
        let running = running
            .map(|row| {
                Ok(RunningSlot {
                    lease: SlotLease {
                        slot: row.try_get(0)?,
                        take: row.try_get(1)?,
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
            .doing(WHAT)?;
        let waiting = sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM scheduled_runs WHERE schedule = $1 AND status = $2",
        )
        .bind(name)
        .bind(WAITING)
        .fetch_one(&mut *connection)
        .await
        .doing(WHAT)?;
        Ok(ScheduleState {
            now: now.into(),
            planned,
            running,
            waiting: waiting.unsigned_abs(),
        })
    }

    pub async fn plan_slots(&self, plan: &SlotPlan<'_>) -> Result<bool> {
        const WHAT: &str = "plan slots";
        let mut tx = self.begin().await?;
        let planned = match plan.from {
            Some(from) => {
                sqlx::query::<DB>(PLAN_FURTHER)
                    .bind(plan.name)
                    .bind(from)
                    .bind(plan.until)
                    .bind(plan.cron)
                    .bind(plan.timezone)
                    .execute(&mut *tx)
                    .await
            }
            None => {
                sqlx::query::<DB>(PLAN_FIRST)
                    .bind(plan.name)
                    .bind(plan.until)
                    .bind(plan.cron)
                    .bind(plan.timezone)
                    .execute(&mut *tx)
                    .await
            }
        };
        if DB::rows_affected(&planned.doing(WHAT)?) == 0 {
            return Ok(false);
        }
        for slot in plan.slots {
            sqlx::query::<DB>(INSERT)
                .bind(plan.name)
                .bind(slot.due_at)
                .bind(slot.status.as_str())
                .bind(count(slot.missed.map_or(0, |(missed, _)| missed)))
                .bind(slot.missed.map(|(_, since)| since))
                .bind(slot.error.as_deref())
                .execute(&mut *tx)
                .await
                .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(true)
    }

    pub async fn take_slot(
        &self,
        name: &str,
        claimant: &SlotTaker<'_>,
        now: Timestamp,
    ) -> Result<Option<TakenSlot>> {
        const WHAT: &str = "take a slot";
        let mut tx = self.begin().await?;
        let now = self.shared_time(&mut tx, at(now)).await?;
        let until = Timestamp::from(now + claimant.lease);
        let now = Timestamp::from(now);
        for statement in [TAKE_OVER, TAKE] {
            let taken = sqlx::query::<DB>(AssertSqlSafe(format!("{statement}{TAKEN}")))
                .bind(name)
                .bind(claimant.worker)
                .bind(until)
                .bind(now)
                .fetch_optional(&mut *tx)
                .await
                .doing(WHAT)?;
            if let Some(row) = taken {
                let taken = Self::taken(&row).doing(WHAT)?;
                tx.commit().await.doing(WHAT)?;
                return Ok(Some(taken));
            }
        }
        tx.commit().await.doing(WHAT)?;
        Ok(None)
    }

    pub async fn give_slot_up(
        &self,
        name: &str,
        most_deaths: u32,
        now: Timestamp,
    ) -> Result<Option<(i64, Timestamp)>> {
        const WHAT: &str = "give up a slot";
        let mut tx = self.begin().await?;
        let now = self.shared_time(&mut tx, at(now)).await?;
        let given_up = sqlx::query::<DB>(GIVE_UP)
            .bind(name)
            .bind(Timestamp::from(now))
            .bind(i64::from(most_deaths))
            .bind(DEADLY)
            .fetch_optional(&mut *tx)
            .await
            .doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        given_up
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .transpose()
            .doing(WHAT)
    }

    fn taken(row: &DB::Row) -> Result<TakenSlot, sqlx::Error> {
        Ok(TakenSlot {
            lease: SlotLease {
                slot: row.try_get(0)?,
                take: row.try_get(1)?,
            },
            due_at: row.try_get(2)?,
            started_at: row.try_get(3)?,
            deaths: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
            missed: row.try_get::<i64, _>(5)?.unsigned_abs(),
            outcomes: row.try_get::<Json<Vec<Value>>, _>(6)?.0,
        })
    }

    pub async fn renew_slot(
        &self,
        lease: SlotLease,
        for_how_long: std::time::Duration,
        now: Timestamp,
    ) -> Result<bool> {
        const WHAT: &str = "renew the claim on a slot";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        // As in `renew`: a late renewal takes nothing back.
        let update = format!(
            "UPDATE scheduled_runs SET lease_until = \
                    CASE WHEN lease_until > $3 AND lease_until < $4 THEN lease_until ELSE $3 END{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.slot)
            .bind(lease.take)
            .bind(Timestamp::from(now + for_how_long))
            .bind(Timestamp::from(now + for_how_long * 2))
            .execute(&mut *connection)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .doing(WHAT)
    }

    pub async fn expire_slot(&self, lease: SlotLease) -> Result<()> {
        // Also a renewal of the process that died fails from now on, should the network bring it only now.
        let update = format!(
            "UPDATE scheduled_runs SET takes = takes + 1, lease_until = started_at{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.slot)
            .bind(lease.take)
            .execute(&self.pool)
            .await
            .doing("end the claim of a process that died")?;
        Ok(())
    }

    pub async fn note_stages(&self, lease: SlotLease, outcomes: &[Value]) -> Result<bool> {
        let update = format!("UPDATE scheduled_runs SET outcomes = $3{UNDER_LEASE}");
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.slot)
            .bind(lease.take)
            .bind(Json(outcomes))
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .doing("record a stage of a slot")
    }

    pub async fn end_slot(&self, lease: SlotLease, end: &SlotEnd, now: Timestamp) -> Result<bool> {
        const WHAT: &str = "record the end of a slot";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        let finished = (end.status != ScheduledRunStatus::Waiting).then(|| Timestamp::from(now));
        let update = format!(
            "UPDATE scheduled_runs SET status = $3, outcomes = $4, error = $5, finished_at = $6, lease_until = NULL{UNDER_LEASE}"
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(lease.slot)
            .bind(lease.take)
            .bind(end.status.as_str())
            .bind(Json(end.outcomes.as_slice()))
            .bind(end.error.as_deref())
            .bind(finished)
            .execute(&mut *connection)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .doing(WHAT)
    }

    pub async fn link_run(&self, run: RunId, slot: i64) -> Result<()> {
        sqlx::query::<DB>("UPDATE runs SET scheduled_run_id = $2 WHERE id = $1")
            .bind(run.0)
            .bind(slot)
            .execute(&self.pool)
            .await
            .doing("record the slot of a run")?;
        Ok(())
    }

    pub async fn latest_slots(
        &self,
        name: &str,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SlotRow>> {
        const WHAT: &str = "read the slots of a schedule";
        let select =
            format!("{ROW}WHERE schedule = $1 AND due_at <= $2 ORDER BY due_at DESC LIMIT $3");
        let rows = sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(name)
            .bind(until)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .doing(WHAT)?;
        rows.iter().map(Self::slot_row).collect()
    }

    pub async fn failed_slots(&self, since: Timestamp, until: Timestamp) -> Result<Vec<SlotRow>> {
        let select = format!("{ROW}{LATEST_FAILED}");
        let rows = sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(since)
            .bind(until)
            .fetch_all(&self.pool)
            .await
            .doing("read the slots that failed")?;
        rows.iter().map(Self::slot_row).collect()
    }

    fn slot_row(row: &DB::Row) -> Result<SlotRow> {
        const WHAT: &str = "read a slot";
        let time = |column: usize| -> Result<Option<Timestamp>> {
            let time: Option<DateTime<Utc>> = row.try_get(column).doing(WHAT)?;
            Ok(time.map(Timestamp::from))
        };
        let id: i64 = row.try_get(0).doing(WHAT)?;
        Ok(SlotRow {
            id,
            schedule: row.try_get(1).doing(WHAT)?,
            due_at: row.try_get::<DateTime<Utc>, _>(2).doing(WHAT)?.into(),
            status: Self::slot_status(row, 3, &id.to_string())?,
            missed: row.try_get::<i64, _>(4).doing(WHAT)?.unsigned_abs(),
            worker: row.try_get(5).doing(WHAT)?,
            started_at: time(6)?,
            finished_at: time(7)?,
            outcomes: row.try_get::<Json<Value>, _>(8).doing(WHAT)?.0,
            error: row.try_get(9).doing(WHAT)?,
        })
    }

    fn slot_status(row: &DB::Row, column: usize, key: &str) -> Result<ScheduledRunStatus> {
        let word: String = row.try_get(column).doing("read a slot")?;
        word.parse().map_err(
            |error: topicmill_core::UnknownVariant| StoreError::Corrupt {
                table: "scheduled_runs",
                row: key.to_owned(),
                detail: error.to_string(),
            },
        )
    }

    pub async fn count_slots(
        &self,
        name: &str,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<SlotCount>> {
        const WHAT: &str = "count the slots of a schedule";
        let rows = sqlx::query::<DB>(
            "SELECT status, COUNT(*), CAST(SUM(missed) AS BIGINT) FROM scheduled_runs \
              WHERE schedule = $1 AND due_at >= $2 AND due_at <= $3 GROUP BY status ORDER BY status",
        )
        .bind(name)
        .bind(since)
        .bind(until)
        .fetch_all(&self.pool)
        .await
        .doing(WHAT)?;
        let counted = |row: &DB::Row| {
            Ok(SlotCount {
                status: Self::slot_status(row, 0, name)?,
                slots: row.try_get::<i64, _>(1).doing(WHAT)?.unsigned_abs(),
                missed: row.try_get::<i64, _>(2).doing(WHAT)?.unsigned_abs(),
            })
        };
        rows.iter().map(counted).collect()
    }
}
