//! The backlog, and the leases on parts of it: how they are renewed, given back and taken away.

use std::time::Duration;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::holders::only_clocks_differ;
use super::super::{Lease, Result, Target, Waiting};
use super::claiming::most_deaths;
use super::{Doing, SqlStore, at};
use topicmill_core::{Fullname, Timestamp};

/// Posts that change a backlog so much that the planner must hear of it.
const MANY: u64 = 1_000;
/// Backlog error of a post that was reclaimed.
const DIED: &str = "the worker that held it died, or stood still for longer than its lease";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn enqueue_missing(&self, target: Target) -> Result<u64> {
        // The hash is compared, too, so an edited post comes back by itself. The posts are held in the order of
        // their names, so that retention cannot take a text between this SELECT and the row of the backlog. Two
        // workers may look at once: the second one finds the row and does nothing.
        let insert = format!(
            "INSERT INTO backlog (model_id, label_set_id, fullname) \
             SELECT $1, $2, p.fullname FROM posts p WHERE p.has_text AND NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash) \
              ORDER BY p.fullname {} ON CONFLICT DO NOTHING",
            DB::HOLD_POSTS
        );
        let added = sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(target.model)
            .bind(target.label_set)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing("find unlabelled posts")?;
        // Only after a big look: ANALYZE reads a part of the table, which would be too much after each small
        // page.
        if added >= MANY
            && let Some(count) = DB::COUNT_BACKLOG
        {
            sqlx::query::<DB>(count)
                .execute(&self.pool)
                .await
                .doing("count the backlog")?;
        }
        Ok(added)
    }

    pub async fn waiting(
        &self,
        target: Target,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<Waiting> {
        const WHAT: &str = "count the backlog";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        // An expired lease does not count as held, because the next claim takes its posts over. A SUM over no
        // rows is NULL.
        let row = sqlx::query::<DB>(
            "SELECT COUNT(*), \
                    COALESCE(SUM(CASE WHEN l.expires_at > $4 THEN 1 ELSE 0 END), 0), \
                    COALESCE(SUM(CASE WHEN b.attempts >= $3 OR b.deaths >= $5 THEN 1 ELSE 0 END), 0) \
               FROM backlog b LEFT JOIN leases l ON l.id = b.lease_id \
              WHERE b.model_id = $1 AND b.label_set_id = $2",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(now)
        .bind(most_deaths(max_attempts))
        .fetch_one(&mut *connection)
        .await
        .doing(WHAT)?;
        let number = |column: usize| {
            row.try_get::<i64, _>(column)
                .map(i64::unsigned_abs)
                .doing(WHAT)
        };
        let (all, held, set_aside) = (number(0)?, number(1)?, number(2)?);
        Ok(Waiting {
            // Workers may run with different `max_attempts`, so that a post is held by one and set aside for
            // another.
            claimable: all.saturating_sub(held + set_aside),
            held,
            set_aside,
        })
    }

    pub async fn renew(&self, lease_id: Lease, now: Timestamp, lease: Duration) -> Result<bool> {
        const WHAT: &str = "renew a lease";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        // Also a lease whose time is up: as long as nobody took it over, its row is there, and the row alone
        // decides. A renewal that was given up may still arrive, late: it takes nothing back from the one after it. An
        // end that is further away was set by a clock that has been set back since.
        sqlx::query::<DB>(
            "UPDATE leases SET expires_at = \
                    CASE WHEN expires_at > $2 AND expires_at < $3 THEN expires_at ELSE $2 END \
              WHERE id = $1",
        )
        .bind(lease_id.0)
        .bind(now + lease)
        .bind(now + lease * 2)
        .execute(&mut *connection)
        .await
        .map(|done| DB::rows_affected(&done) == 1)
        .doing(WHAT)
    }

    pub async fn fail(&self, lease_id: Lease, failed: &[(Fullname, String)]) -> Result<()> {
        const WHAT: &str = "hand failed posts back";
        let mut tx = self.begin().await?;
        if !Self::hold_lease(&mut tx, lease_id).await? {
            return Ok(());
        }
        // Only rows that are still under this lease: a purge may have taken a post away meanwhile.
        for (fullname, error) in failed {
            sqlx::query::<DB>(
                "UPDATE backlog SET lease_id = NULL, attempts = attempts + 1, error = $3 \
                  WHERE lease_id = $1 AND fullname = $2",
            )
            .bind(lease_id.0)
            .bind(fullname.as_str())
            .bind(error.as_str())
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)
    }

    /// Takes back what workers held whose leases expired. A lease that is locked is being written under, or
    /// taken back by somebody else: nobody waits for it.
    pub(super) async fn bury_expired(
        tx: &mut Transaction<'static, DB>,
        now: DateTime<Utc>,
    ) -> Result<()> {
        let expired = format!(
            "SELECT id, worker, expires_at FROM leases WHERE expires_at <= $1 ORDER BY id {}",
            DB::SKIP_LOCKED
        );
        let expired: Vec<(i64, String, DateTime<Utc>)> =
            sqlx::query_as::<DB, _>(AssertSqlSafe(expired))
                .bind(now)
                .fetch_all(&mut **tx)
                .await
                .doing("find expired claims")?;
        for (id, worker, expired_at) in expired {
            if Self::is_expired(&worker, expired_at, now) {
                Self::bury_lease(tx, id).await?;
            }
        }
        Ok(())
    }

    /// Returns true if a lease may be taken from its worker. Without a clock that all share, one of a live process of
    /// this machine may not.
    pub(super) fn is_expired(worker: &str, expires_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
        expires_at <= now && (DB::TIME.is_some() || !only_clocks_differ(worker, expires_at, now))
    }

    // A death is no attempt: it does not say which of the posts is to blame.
    async fn bury_lease(tx: &mut Transaction<'static, DB>, id: i64) -> Result<()> {
        const WHAT: &str = "take posts back from a worker that died";
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, deaths = deaths + 1, error = $2 WHERE lease_id = $1",
        )
        .bind(id)
        .bind(DIED)
        .execute(&mut **tx)
        .await
        .doing(WHAT)?;
        Self::end_lease(tx, id).await
    }

    pub async fn bury(&self, lease_id: Lease) -> Result<()> {
        let mut tx = self.begin().await?;
        // Of two who bury it, one waits here, and then finds it gone.
        if Self::find_lease(&mut tx, lease_id, DB::FOR_UPDATE).await? {
            Self::bury_lease(&mut tx, lease_id.0).await?;
        }
        tx.commit()
            .await
            .doing("take posts back from a worker that died")
    }

    // The foreign key sets `lease_id` of its posts to NULL: they are free at once, with neither a death nor an
    // attempt.
    pub async fn release(&self, lease_id: Lease) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(lease_id.0)
            .execute(&self.pool)
            .await
            .done("release a lease")
    }

    pub async fn retry_failed(&self, target: Target, max_attempts: u32) -> Result<u64> {
        sqlx::query::<DB>(
            "UPDATE backlog SET attempts = 0, deaths = 0, error = NULL \
              WHERE model_id = $1 AND label_set_id = $2 AND (attempts >= $3 OR deaths >= $4)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(most_deaths(max_attempts))
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing("let failed posts be tried again")
    }

    pub async fn lease_holders(&self) -> Result<Vec<(Lease, String)>> {
        sqlx::query::<DB>("SELECT id, worker FROM leases ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| {
                rows.iter()
                    .map(|row| Ok((Lease(row.try_get(0)?), row.try_get(1)?)))
                    .collect()
            })
            .doing("read the leases")
    }
}
