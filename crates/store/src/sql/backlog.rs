//! Fills and counts the backlog, returns failed posts to it, and reads why posts were parked.

use sqlx::{AssertSqlSafe, Row};

use super::claims::max_crashes;
use super::{ErrorContext, SqlStore, at};
use crate::dialect::Dialect;
use crate::{BacklogCounts, Failure, Lease, Result, Target};
use topicmill_core::{Fullname, Timestamp};

/// Minimum number of added posts that triggers an update of the planner's statistics for the backlog.
const ANALYZE_AFTER: u64 = 1_000;
/// Maximum number of displayed errors of parked posts, most frequent first.
const FAILURES: i64 = 10;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn enqueue_missing(&self, target: Target) -> Result<u64> {
        // The hash is compared, so that an edited post is added again. The posts are share-locked in order of fullname,
        // so that retention cannot delete a post's text before the post is in the backlog. If two workers fill the
        // backlog at the same time, the second finds the rows of the first and adds nothing.
        let insert = format!(
            "INSERT INTO backlog (model_id, label_set_id, fullname) \
             SELECT $1, $2, p.fullname FROM things p WHERE p.has_text AND NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash) \
              ORDER BY p.fullname {} ON CONFLICT DO NOTHING",
            DB::SHARE_POSTS
        );
        let added = sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(target.model)
            .bind(target.label_set)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done))
            .context("find unlabelled posts")?;
        // Only after many inserts: ANALYZE reads part of the table, which is too expensive after each page.
        if added >= ANALYZE_AFTER
            && let Some(count) = DB::ANALYZE_BACKLOG
        {
            let analysed = sqlx::query::<DB>(count).execute(&self.pool).await;
            analysed.context("analyse the backlog")?;
        }
        Ok(added)
    }

    pub async fn count_backlog(
        &self,
        target: Target,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<BacklogCounts> {
        let now = self.database_time(&self.pool, at(now)).await?;
        // Posts under an expired lease do not count as claimed, because the next claim reclaims them. SUM over no rows
        // is NULL.
        let counts: (i64, i64, i64) = sqlx::query_as::<DB, _>(
            "SELECT COUNT(*), \
                    COALESCE(SUM(CASE WHEN l.expires_at > $4 THEN 1 ELSE 0 END), 0), \
                    COALESCE(SUM(CASE WHEN b.attempts >= $3 OR b.crashes >= $5 THEN 1 ELSE 0 END), 0) \
               FROM backlog b LEFT JOIN leases l ON l.id = b.lease_id \
              WHERE b.model_id = $1 AND b.label_set_id = $2",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(now)
        .bind(max_crashes(max_attempts))
        .fetch_one(&self.pool)
        .await
        .context("count the backlog")?;
        let [posts, claimed, parked] = <[i64; 3]>::from(counts).map(i64::unsigned_abs);
        Ok(BacklogCounts {
            // Saturating, because a post may count as both claimed and parked if workers differ in `max_attempts`.
            claimable: posts.saturating_sub(claimed + parked),
            claimed,
            parked,
        })
    }

    pub async fn fail(&self, lease_id: Lease, posts: &[Fullname], error: &str) -> Result<()> {
        const WHAT: &str = "return failed posts to the backlog";
        let mut tx = self.begin().await?;
        if !Self::lock_lease(&mut tx, lease_id, DB::LOCK_KEY).await? {
            return Ok(());
        }
        // Only rows still under this lease, because a purge may have removed a post in the meantime.
        for fullname in posts {
            sqlx::query::<DB>(
                "UPDATE backlog SET lease_id = NULL, attempts = attempts + 1, error = $3 \
                  WHERE lease_id = $1 AND fullname = $2",
            )
            .bind(lease_id.0)
            .bind(fullname.as_str())
            .bind(error)
            .execute(&mut *tx)
            .await
            .context(WHAT)?;
        }
        tx.commit().await.context(WHAT)
    }

    pub async fn retry_failed(&self, target: Target, max_attempts: u32) -> Result<u64> {
        sqlx::query::<DB>(
            "UPDATE backlog SET attempts = 0, crashes = 0, error = NULL \
              WHERE model_id = $1 AND label_set_id = $2 AND (attempts >= $3 OR crashes >= $4)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(max_crashes(max_attempts))
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done))
        .context("retry failed posts")
    }

    pub async fn failures(&self, max_attempts: u32) -> Result<Vec<Failure>> {
        sqlx::query::<DB>(
            "SELECT COALESCE(b.error, ''), COUNT(*) FROM backlog b JOIN current_target t \
                 ON t.model_id = b.model_id AND t.label_set_id = b.label_set_id \
              WHERE b.attempts >= $1 OR b.crashes >= $2 \
              GROUP BY b.error ORDER BY COUNT(*) DESC, b.error LIMIT $3",
        )
        .bind(i64::from(max_attempts))
        .bind(max_crashes(max_attempts))
        .bind(FAILURES)
        .try_map(row_as!(Failure: error, posts))
        .fetch_all(&self.pool)
        .await
        .context("read why posts were parked")
    }
}
