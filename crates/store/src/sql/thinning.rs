//! Thins old data: keeps one `sightings` row per post, topic and day, and replaces the runs of a day with sums.

use std::collections::BTreeMap;

use chrono::{NaiveTime, TimeDelta};
use serde_json::{Map, Value};
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::{Result, StoreError, Thinned};
use super::{ErrorContext, POSTS_A_STATEMENT, SqlStore, at, push_list};
use topicmill_core::Timestamp;

/// Key in `meta`: the end of the last thinned day.
const THINNED_UNTIL: &str = "thinned_until";
/// Query for ended runs without sightings. Excludes the last run of each stage with each status, which `status` shows.
const RUNS: &str = "\
SELECT id, stage, status, started_at, finished_at, counts FROM runs r \
 WHERE started_at >= $1 AND started_at < $2 AND status <> 'running' AND finished_at IS NOT NULL \
   AND NOT EXISTS (SELECT 1 FROM sightings s WHERE s.run_id = r.id) \
   AND EXISTS (SELECT 1 FROM runs l WHERE l.stage = r.stage AND l.status = r.status AND l.id > r.id) \
 ORDER BY id";

/// Sums over a stage's runs that have the same status.
#[derive(Debug, Default)]
struct Sums {
    runs: i64,
    seconds: i64,
    counts: Map<String, Value>,
}

impl Sums {
    fn add(&mut self, seconds: i64, counts: &Value) {
        self.runs += 1;
        self.seconds += seconds.max(0);
        for (name, value) in counts.as_object().into_iter().flatten() {
            if let Some(number) = value.as_i64() {
                let sum = self.counts.get(name).and_then(Value::as_i64).unwrap_or(0);
                self.counts
                    .insert(name.clone(), sum.saturating_add(number).into());
            }
        }
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub(crate) async fn thin_day(&self, before: Timestamp) -> Result<Option<Thinned>> {
        retry_on_conflict!(self.try_thin_a_day(before))
    }

    async fn try_thin_a_day(&self, before: Timestamp) -> Result<Option<Thinned>> {
        const WHAT: &str = "thin old data";
        let midnight = |time: DateTime<Utc>| time.date_naive().and_time(NaiveTime::MIN).and_utc();
        let before = midnight(at(before));
        let mut tx = self.begin().await?;
        let from = Self::thinned_until(&mut tx).await?;
        let first = sqlx::query::<DB>("SELECT MIN(started_at) FROM runs WHERE started_at >= $1")
            .bind(from)
            .fetch_one(&mut *tx)
            .await
            .and_then(|row| row.try_get::<Option<DateTime<Utc>>, _>(0))
            .context(WHAT)?;
        let Some(day) = first.map(midnight).filter(|day| *day < before) else {
            return Ok(None);
        };
        let next = day + TimeDelta::days(1);
        let (low, high) = sqlx::query::<DB>(
            "SELECT MIN(id), MAX(id) FROM runs WHERE started_at >= $1 AND started_at < $2",
        )
        .bind(day)
        .bind(next)
        .fetch_one(&mut *tx)
        .await
        .and_then(|row| {
            Ok((
                row.try_get::<Option<i64>, _>(0)?,
                row.try_get::<Option<i64>, _>(1)?,
            ))
        })
        .context(WHAT)?;
        let sightings = sqlx::query::<DB>(
            "DELETE FROM sightings WHERE run_id >= $1 AND run_id <= $2 AND EXISTS ( \
               SELECT 1 FROM sightings l WHERE l.fullname = sightings.fullname AND l.topic = sightings.topic \
                  AND l.run_id > sightings.run_id AND l.run_id <= $2)",
        )
        .bind(low.unwrap_or(0))
        .bind(high.unwrap_or(-1))
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .context(WHAT)?;
        let runs = Self::sum_up_runs(&mut tx, day, next).await?;
        sqlx::query::<DB>(
            "INSERT INTO meta (key, value) VALUES ($1, $2) \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )
        .bind(THINNED_UNTIL)
        .bind(next.to_rfc3339().as_str())
        .execute(&mut *tx)
        .await
        .context(WHAT)?;
        tx.commit().await.context(WHAT)?;
        Ok(Some(Thinned { sightings, runs }))
    }

    /// Returns the end of the last thinned day.
    async fn thinned_until(tx: &mut Transaction<'static, DB>) -> Result<DateTime<Utc>> {
        let note: Option<String> = sqlx::query::<DB>("SELECT value FROM meta WHERE key = $1")
            .bind(THINNED_UNTIL)
            .fetch_optional(&mut **tx)
            .await
            .and_then(|row| row.map(|row| row.try_get(0)).transpose())
            .context("read the end of the last thinned day")?;
        let Some(note) = note else {
            return Ok(DateTime::UNIX_EPOCH);
        };
        DateTime::parse_from_rfc3339(&note)
            .map(|time| time.to_utc())
            .map_err(|error| StoreError::Corrupt {
                table: "meta",
                row: THINNED_UNTIL.into(),
                detail: error.to_string(),
            })
    }

    /// For one day, replaces the runs that [`RUNS`] selects with sums. Returns how many.
    async fn sum_up_runs(
        tx: &mut Transaction<'static, DB>,
        day: DateTime<Utc>,
        next: DateTime<Utc>,
    ) -> Result<u64> {
        const WHAT: &str = "sum up old runs";
        let rows = sqlx::query::<DB>(RUNS)
            .bind(day)
            .bind(next)
            .fetch_all(&mut **tx)
            .await
            .context(WHAT)?;
        let mut ids = Vec::with_capacity(rows.len());
        let mut sums: BTreeMap<(String, String), Sums> = BTreeMap::new();
        for row in &rows {
            ids.push(row.try_get::<i64, _>(0).context(WHAT)?);
            let key = (row.try_get(1).context(WHAT)?, row.try_get(2).context(WHAT)?);
            let began: DateTime<Utc> = row.try_get(3).context(WHAT)?;
            let ended: DateTime<Utc> = row.try_get(4).context(WHAT)?;
            let counts: Json<Value> = row.try_get(5).context(WHAT)?;
            let of = sums.entry(key).or_default();
            of.add((ended - began).num_seconds(), &counts.0);
        }
        let day = day.format("%Y-%m-%d").to_string();
        for ((stage, status), sum) in sums {
            sqlx::query::<DB>(
                "INSERT INTO run_days (day, stage, status, runs, seconds, counts) VALUES ($1, $2, $3, $4, $5, $6) \
                 ON CONFLICT (day, stage, status) DO UPDATE SET runs = run_days.runs + excluded.runs, \
                   seconds = run_days.seconds + excluded.seconds, counts = excluded.counts",
            )
            .bind(day.as_str())
            .bind(stage.as_str())
            .bind(status.as_str())
            .bind(sum.runs)
            .bind(sum.seconds)
            .bind(Json(Value::Object(sum.counts)))
            .execute(&mut **tx)
            .await
            .context(WHAT)?;
        }
        for chunk in ids.chunks(POSTS_A_STATEMENT) {
            let mut delete = QueryBuilder::<DB>::new("DELETE FROM runs WHERE id IN (");
            push_list(&mut delete, chunk.iter().copied());
            delete.build().execute(&mut **tx).await.context(WHAT)?;
        }
        Ok(ids.len() as u64)
    }
}
