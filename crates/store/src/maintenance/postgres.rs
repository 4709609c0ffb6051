//! Rewrites the tables of a PostgreSQL database.

use std::time::Duration;

use sqlx::{Executor, PgConnection, Postgres};

use super::{POLL_INTERVAL, REWRITE_DUE, REWRITE_TIMEOUT_MS, Rewritten};
use crate::dialect::lock_timeout;
use crate::driver_error::{ErrorContext, is_busy};
use crate::lock_wait::STEP;
use crate::sql::{SqlStore, TABLES};
use crate::{Result, StoreError};

/// The operation in messages.
const WHAT: &str = "rewrite the tables";
/// A small table that a rewrite first uses to test for old snapshots.
const SMALL: &str = "meta";
/// Query for whether this user may rewrite the tables.
const OWNS_TABLES: &str =
    "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'things'::regclass";
/// Query for whether the table `$1` may still contain rows that were deleted before the transaction `$2`. VACUUM FREEZE
/// sets `relfrozenxid` to the oldest transaction id that any snapshot may still need
/// (<https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND>). This includes snapshots of
/// sessions, prepared transactions and replicas that this user cannot see.
const HAS_OLD_ROWS: &str =
    "SELECT age(relfrozenxid) > age($2::text::xid) FROM pg_class WHERE oid = $1::regclass";
/// Query for the sessions with a snapshot or transaction older than `$1`, in other databases too.
const OLD_SNAPSHOTS: &str = "\
SELECT 'process ' || pid FROM pg_stat_activity \
 WHERE pid <> pg_backend_pid() AND (age(backend_xid) > age($1::text::xid) \
        OR ((datname = current_database() OR backend_type = 'walsender') \
            AND age(backend_xmin) > age($1::text::xid))) \
 UNION ALL \
SELECT 'prepared transaction ' || quote_literal(gid) FROM pg_prepared_xacts \
 WHERE age(transaction) > age($1::text::xid) \
 UNION ALL \
SELECT 'replication slot ' || slot_name FROM pg_replication_slots \
 WHERE GREATEST(age(xmin), age(catalog_xmin)) > age($1::text::xid)";

impl SqlStore<Postgres> {
    /// See [`Store::rewrite`](crate::Store::rewrite).
    pub async fn rewrite(&self) -> Result<Rewritten> {
        let due = self.meta(REWRITE_DUE).await?;
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        // A short timeout, because other sessions queue behind the request for this lock.
        let timeout = lock_timeout(Duration::from_millis(REWRITE_TIMEOUT_MS.into()));
        let set = connection.execute(sqlx::AssertSqlSafe(timeout)).await;
        set.context(WHAT)?;
        let rewritten = Self::rewrite_by(&mut connection, due).await;
        // The connection goes back to the pool even if there was an error.
        let reset = sqlx::AssertSqlSafe(lock_timeout(STEP));
        let reset = connection.execute(reset).await.context(WHAT);
        rewritten.and_then(|rewritten| reset.map(|_| rewritten))
    }

    async fn rewrite_by(connection: &mut PgConnection, due: Option<String>) -> Result<Rewritten> {
        // VACUUM silently skips the tables of other owners.
        let owns = sqlx::query_scalar(OWNS_TABLES);
        if !owns.fetch_one(&mut *connection).await.context(WHAT)? {
            let message = "only the owner of the tables may rewrite them".to_owned();
            return Err(StoreError::Denied(message));
        }
        // A rewrite is useless while an old snapshot is in use. The new transaction id is higher than the ids of all
        // committed deletions.
        let now: String = sqlx::query_scalar("SELECT pg_current_xact_id()::xid::text")
            .fetch_one(&mut *connection)
            .await
            .context("read the current transaction id")?;
        if let Some(why) = Self::wait_for_snapshots(connection, &now).await? {
            return Ok(why);
        }
        for table in TABLES {
            // FULL rewrites the table, FREEZE updates `relfrozenxid`, which shows whether old rows were kept, and
            // ANALYZE updates the planner's statistics.
            let options = "FULL, FREEZE, ANALYZE";
            if let Some(why) = Self::vacuum(connection, options, table, &now).await? {
                return Ok(why);
            }
        }
        sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
            .bind(REWRITE_DUE)
            .bind(due)
            .execute(&mut *connection)
            .await
            .context(WHAT)?;
        Ok(Rewritten::Complete)
    }

    /// Waits until no session uses a snapshot older than the transaction `now`. Returns, after the timeout, why the
    /// rewrite cannot start.
    async fn wait_for_snapshots(
        connection: &mut PgConnection,
        now: &str,
    ) -> Result<Option<Rewritten>> {
        let mut waited = Duration::ZERO;
        while let Some(why) = Self::vacuum(connection, "FULL, FREEZE", SMALL, now).await? {
            let is_over = waited >= Duration::from_millis(REWRITE_TIMEOUT_MS.into());
            if is_over || !matches!(why, Rewritten::OldSnapshotInUse { .. }) {
                return Ok(Some(why));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "another session works in real time"
            )]
            tokio::time::sleep(POLL_INTERVAL).await;
            // Adds up the sleeps, because only `clock.rs` may read the time.
            waited += POLL_INTERVAL;
        }
        Ok(None)
    }

    /// Vacuums a table. If rows that were deleted before the transaction `now` remain, returns why.
    async fn vacuum(
        connection: &mut PgConnection,
        options: &str,
        table: &'static str,
        now: &str,
    ) -> Result<Option<Rewritten>> {
        let vacuum = sqlx::AssertSqlSafe(format!("VACUUM ({options}) {table}"));
        match sqlx::raw_sql(vacuum).execute(&mut *connection).await {
            Err(error) if is_busy(&error) => {
                return Ok(Some(Rewritten::TableLocked { table }));
            }
            ended => {
                ended.context(WHAT)?;
            }
        }
        let has_old_rows: bool = sqlx::query_scalar(HAS_OLD_ROWS)
            .bind(table)
            .bind(now)
            .fetch_one(&mut *connection)
            .await
            .context(WHAT)?;
        if !has_old_rows {
            return Ok(None);
        }
        let by = sqlx::query_scalar(OLD_SNAPSHOTS)
            .bind(now)
            .fetch_all(connection)
            .await
            .context("read the sessions with old snapshots")?;
        Ok(Some(Rewritten::OldSnapshotInUse { by }))
    }

    /// See [`Store::checkpoint`](crate::Store::checkpoint).
    pub async fn checkpoint(&self) -> Result<bool> {
        self.checkpoint_passive().await.map(|()| true)
    }

    /// See [`Store::checkpoint_passive`](crate::Store::checkpoint_passive).
    pub async fn checkpoint_passive(&self) -> Result<()> {
        let analyze = sqlx::query("SELECT topicmill_analyze()");
        let analyzed = analyze.execute(&self.pool).await;
        analyzed.map(drop).context("update the statistics")
    }

    pub async fn may_rewrite(&self) -> Result<bool> {
        let owns = sqlx::query_scalar(OWNS_TABLES).fetch_one(&self.pool);
        owns.await.context("read who owns the tables")
    }
}
