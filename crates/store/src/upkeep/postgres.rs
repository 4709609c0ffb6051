//! Upkeep of a database of PostgreSQL: tables that are rewritten.

use std::time::Duration;

use sqlx::{Executor, PgConnection, Postgres};

use super::super::dialect::lock_timeout;
use super::super::failure::{Doing, is_busy};
use super::super::sql::{SqlStore, TABLES};
use super::super::waiting::STEP;
use super::super::{Result, StoreError};
use super::{LOOK_EVERY, OnBytes, REWRITE_DUE, REWRITE_PATIENCE_MS, Rewritten};

/// The table that shows whether somebody reads an earlier state, because it is small.
const SMALL: &str = "meta";
/// VACUUM FREEZE sets `relfrozenxid` to the oldest transaction that anybody reads or writes in: rows that were deleted
/// after it are still there (<https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND>).
/// It may be a session, a prepared transaction or a replica, visible to us or not.
const READS_EARLIER: &str =
    "SELECT age(relfrozenxid) > age($2::text::xid) FROM pg_class WHERE oid = $1::regclass";
/// Sessions that read as of an earlier transaction, or write in one, also in other databases.
const READERS: &str = "\
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
    /// See [`Store::rewrite`](super::super::Store::rewrite).
    pub async fn rewrite(&self, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the tables";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        // Whoever comes behind us waits for as long as we do.
        let patience = lock_timeout(Duration::from_millis(REWRITE_PATIENCE_MS.into()));
        let set = connection.execute(sqlx::AssertSqlSafe(patience)).await;
        set.doing(WHAT)?;
        let rewritten = Self::rewrite_by(&mut connection, progress).await;
        // Before any error is returned: the connection goes back to the pool.
        let reset = connection
            .execute(sqlx::AssertSqlSafe(lock_timeout(STEP)))
            .await;
        let rewritten = rewritten?;
        reset.doing(WHAT)?;
        Ok(rewritten)
    }

    async fn rewrite_by(connection: &mut PgConnection, progress: OnBytes<'_>) -> Result<Rewritten> {
        const WHAT: &str = "rewrite the tables";
        let due = Self::note(connection, REWRITE_DUE).await?;
        // The server would pass over a table of somebody else's, and say so to nobody.
        let others: Option<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE oid = 'posts'::regclass AND NOT pg_has_role(relowner, 'USAGE')",
        )
        .fetch_optional(&mut *connection)
        .await
        .doing(WHAT)?;
        if let Some(table) = others {
            let said = format!("only the owner of table {table} may rewrite it");
            return Err(StoreError::Denied(said));
        }
        // Rather than rewrite everything for nothing.
        let now = match Self::read_by_nobody(connection).await? {
            Ok(now) => now,
            Err(why) => return Ok(why),
        };
        let mut sizes = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let size: i64 = sqlx::query_scalar("SELECT pg_total_relation_size($1::regclass)")
                .bind(table)
                .fetch_one(&mut *connection)
                .await
                .doing(WHAT)?;
            sizes.push((table, size.unsigned_abs()));
        }
        let all = sizes.iter().map(|(_, size)| size).sum();
        let mut done = 0;
        for (table, size) in sizes {
            progress(done, all);
            // FULL writes the table anew, FREEZE makes `relfrozenxid` tell what it could not leave out, and ANALYZE
            // counts again what the planner goes by.
            let how = "FULL, FREEZE, ANALYZE";
            if let Some(why) = Self::vacuum(connection, how, table, &now).await? {
                return Ok(why);
            }
            done += size;
        }
        progress(all, all);
        sqlx::query("DELETE FROM meta WHERE key = $1 AND value = $2")
            .bind(REWRITE_DUE)
            .bind(due)
            .execute(&mut *connection)
            .await
            .doing(WHAT)?;
        Ok(Rewritten::Whole)
    }

    async fn note(connection: &mut PgConnection, key: &str) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT value FROM meta WHERE key = $1")
            .bind(key)
            .fetch_optional(connection)
            .await
            .doing("look what is to be rewritten")
    }

    /// A transaction later than all that was deleted until now, once nobody reads a state before it; or who does after
    /// the time that whoever reads but for a moment takes.
    async fn read_by_nobody(connection: &mut PgConnection) -> Result<Result<String, Rewritten>> {
        // This takes a new number, which is higher than that of each deletion that was committed before.
        let now: String = sqlx::query_scalar("SELECT pg_current_xact_id()::xid::text")
            .fetch_one(&mut *connection)
            .await
            .doing("look whether anybody reads an earlier state")?;
        let mut waited = Duration::ZERO;
        while let Some(why) = Self::vacuum(connection, "FULL, FREEZE", SMALL, &now).await? {
            let waits_on = waited < Duration::from_millis(REWRITE_PATIENCE_MS.into());
            if !waits_on || !matches!(why, Rewritten::EarlierStateIsRead { .. }) {
                return Ok(Err(why));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "another session's work does not go by our clock"
            )]
            tokio::time::sleep(LOOK_EVERY).await;
            // Naps are counted, because no file but `clock.rs` may read the time.
            waited += LOOK_EVERY;
        }
        Ok(Ok(now))
    }

    /// Vacuums a table; says why rows that were deleted before the transaction `now` are in it still, if they are.
    async fn vacuum(
        connection: &mut PgConnection,
        how: &str,
        table: &'static str,
        now: &str,
    ) -> Result<Option<Rewritten>> {
        const WHAT: &str = "rewrite the tables";
        let vacuum = sqlx::AssertSqlSafe(format!("VACUUM ({how}) {table}"));
        match sqlx::raw_sql(vacuum).execute(&mut *connection).await {
            Err(error) if is_busy(&error) => {
                return Ok(Some(Rewritten::TableIsUsed { table }));
            }
            ended => {
                ended.doing(WHAT)?;
            }
        }
        let reads_earlier: bool = sqlx::query_scalar(READS_EARLIER)
            .bind(table)
            .bind(now)
            .fetch_one(&mut *connection)
            .await
            .doing(WHAT)?;
        if !reads_earlier {
            return Ok(None);
        }
        let by = sqlx::query_scalar(READERS)
            .bind(now)
            .fetch_all(connection)
            .await
            .doing("look who reads an earlier state")?;
        Ok(Some(Rewritten::EarlierStateIsRead { by }))
    }

    /// See [`Store::fold`](super::super::Store::fold).
    #[expect(clippy::unused_async, reason = "one face for both databases")]
    pub async fn fold(&self) -> Result<bool> {
        Ok(true)
    }

    /// See [`Store::fold_a_little`](super::super::Store::fold_a_little).
    #[expect(clippy::unused_async, reason = "one face for both databases")]
    pub async fn fold_a_little(&self) -> Result<()> {
        Ok(())
    }

    /// See [`Store::is_rewrite_due`](super::super::Store::is_rewrite_due).
    pub async fn is_rewrite_due(&self) -> Result<bool> {
        let due = sqlx::query("SELECT 1 FROM meta WHERE key = $1")
            .bind(REWRITE_DUE)
            .fetch_optional(&self.pool)
            .await
            .doing("look whether the tables are to be rewritten")?;
        Ok(due.is_some())
    }
}
