//! The life of a lease: it begins with a claim, is renewed by heartbeats, and ends with its last post. An expired
//! lease, or that of a crashed worker, is reclaimed.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::types::chrono::{DateTime, Utc};

use super::{ErrorContext, SqlStore, Tx, at};
use crate::dialect::Dialect;
use crate::workers::only_clocks_differ;
use crate::{Claimant, Lease, Result};
use topicmill_core::Timestamp;

/// Backlog error of a reclaimed post.
const RECLAIMED: &str = "its worker crashed, or did not renew its lease in time";

impl<DB: Dialect> SqlStore<DB> {
    pub(super) async fn begin_lease(
        tx: &mut Tx<DB>,
        claimant: &Claimant<'_>,
        now: DateTime<Utc>,
    ) -> Result<Lease> {
        sqlx::query_scalar::<DB, _>(
            "INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(claimant.worker)
        .bind(claimant.run)
        .bind(now)
        .bind(now + claimant.lease)
        .fetch_one(&mut **tx)
        .await
        .context("insert a lease")
    }

    pub(super) async fn end_lease(tx: &mut Tx<DB>, id: Lease) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(id)
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("end a lease")
    }

    pub async fn renew(&self, lease_id: Lease, now: Timestamp, lease: Duration) -> Result<bool> {
        let now = self.database_time(&self.pool, at(now)).await?;
        // An expired lease is renewed too: its row exists until another worker reclaims it, and only the row counts. A
        // delayed renewal must not undo a later one. An expiry far in the future was written before the clock was set
        // back, so it is replaced.
        sqlx::query::<DB>(
            "UPDATE leases SET expires_at = \
                    CASE WHEN expires_at > $2 AND expires_at < $3 THEN expires_at ELSE $2 END \
              WHERE id = $1",
        )
        .bind(lease_id)
        .bind(now + lease)
        .bind(now + lease * 2)
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done) == 1)
        .context("renew a lease")
    }

    /// Locks a lease before any post, so that it is neither reclaimed nor ended while its posts are written. Returns
    /// false if it does not exist: reclaiming an expired lease deletes its row, so the row alone decides. The lock of a
    /// writer does not block a renewal, so a long write does not lose its lease.
    pub(super) async fn lock_lease(tx: &mut Tx<DB>, lease: Lease, lock: &str) -> Result<bool> {
        let live = format!("SELECT 1 FROM leases WHERE id = $1 {lock}");
        sqlx::query::<DB>(AssertSqlSafe(live))
            .bind(lease)
            .fetch_optional(&mut **tx)
            .await
            .map(|row| row.is_some())
            .context("check the lease")
    }

    /// Reclaims the posts of expired leases. Skips locked leases: their holders are writing, or another worker is
    /// reclaiming them.
    pub(super) async fn reclaim_expired(tx: &mut Tx<DB>, now: DateTime<Utc>) -> Result<()> {
        let expired = format!(
            "SELECT id, worker, expires_at FROM leases WHERE expires_at <= $1 ORDER BY id {}",
            DB::SKIP_LOCKED
        );
        let expired: Vec<(Lease, String, DateTime<Utc>)> =
            sqlx::query_as::<DB, _>(AssertSqlSafe(expired))
                .bind(now)
                .fetch_all(&mut **tx)
                .await
                .context("find expired leases")?;
        for (id, worker, expired_at) in expired {
            if Self::is_expired(&worker, expired_at, now) {
                Self::reclaim_lease(tx, id).await?;
            }
        }
        Ok(())
    }

    /// Returns true if a lease has expired. If the database has no clock, a lease of a process that is still running on
    /// this machine is valid for another hour, because the clocks of the two processes may differ.
    pub(super) fn is_expired(worker: &str, expires_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
        expires_at <= now && (DB::TIME.is_some() || !only_clocks_differ(worker, expires_at, now))
    }

    // A crash does not count as an attempt, because it does not show which post caused it.
    async fn reclaim_lease(tx: &mut Tx<DB>, id: Lease) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, crashes = crashes + 1, error = $2 WHERE lease_id = $1",
        )
        .bind(id)
        .bind(RECLAIMED)
        .execute(&mut **tx)
        .await
        .context("reclaim the posts of a crashed worker")?;
        Self::end_lease(tx, id).await
    }

    pub async fn reclaim(&self, lease_id: Lease) -> Result<()> {
        let mut tx = self.begin().await?;
        // If two workers reclaim the lease, the second waits for the lock, and then finds no lease.
        if Self::lock_lease(&mut tx, lease_id, DB::FOR_UPDATE).await? {
            Self::reclaim_lease(&mut tx, lease_id).await?;
        }
        tx.commit()
            .await
            .context("reclaim the posts of a crashed worker")
    }

    // The foreign key sets `lease_id` of its posts to NULL, so that they are claimable at once, without a crash or an
    // attempt.
    pub async fn release(&self, lease_id: Lease) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(lease_id)
            .execute(&self.pool)
            .await
            .map(drop)
            .context("release a lease")
    }

    pub async fn lease_holders(&self) -> Result<Vec<(Lease, String)>> {
        sqlx::query_as::<DB, _>("SELECT id, worker FROM leases ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .context("read the leases")
    }
}
