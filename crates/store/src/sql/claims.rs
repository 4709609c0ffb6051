//! Claims posts from the backlog under a lease. In: a target. Out: posts with their texts.

use std::ops::Range;

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, Tx, at};
use crate::dialect::Dialect;
use crate::{Claim, Claimant, ClaimedPost, CrashFilter, Lease, Result, Target};
use topicmill_core::reddit::thing_text;
use topicmill_core::{Fullname, TextHash, Timestamp};

/// Number of crashes before a post is claimed alone, so that only this post can cause a further crash.
const ALONE_AFTER: u32 = 5;
/// Backlog error of a post whose text was changed by hand.
pub(super) const HASH_MISMATCH: &str =
    "its text does not match its hash: collect or import the post again";

/// Returns the number of crashes before a post is parked: `max_attempts` of them while it was claimed alone.
pub(super) fn max_crashes(max_attempts: u32) -> i64 {
    i64::from(max_attempts) + i64::from(ALONE_AFTER)
}

/// Returns the maximum number of posts in a claim after this many crashes. Each crash reduces it to a quarter, so that
/// a text that crashes its worker is soon isolated, and the other texts are scored.
fn max_window(crashes: i64) -> u32 {
    match u32::try_from(crashes) {
        Ok(0) => u32::MAX,
        Ok(crashes) if crashes < ALONE_AFTER => 1_024 >> (2 * crashes),
        _ => 1,
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        crash_filter: CrashFilter,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        const WHAT: &str = "claim posts";
        let max_attempts = claimant.max_attempts;
        let allowed_crashes = match crash_filter {
            CrashFilter::WithoutCrash => 0..1,
            CrashFilter::WithCrash => 1..max_crashes(max_attempts),
        };
        // An empty claim means that nothing is left. So if all claimed posts turn out to be labelled, or are parked,
        // the claim is retried. Each round reduces the number of claimable posts, so the loop ends.
        loop {
            let mut tx = self.begin().await?;
            let now = self.database_time(&mut *tx, at(now)).await?;
            // First, so that reclaimed posts can be part of this claim.
            Self::reclaim_expired(&mut tx, now).await?;
            let fewest =
                Self::fewest_crashes(&mut tx, target, max_attempts, &allowed_crashes).await?;
            let Some(crashes) = fewest else {
                // Committed, because leases may have been reclaimed above.
                tx.commit().await.context(WHAT)?;
                return Ok(Claim {
                    lease: Lease(0),
                    posts: Vec::new(),
                });
            };
            // The number of crashes determines how many posts may share a lease.
            let limit = limit.min(max_window(crashes));
            // The lease is inserted before its posts, because `backlog.lease_id` refers to it.
            let lease = Self::begin_lease(&mut tx, claimant, now).await?;
            Self::assign_posts(&mut tx, target, max_attempts, crashes, limit, lease).await?;
            Self::drop_labelled(&mut tx, target, lease).await?;
            let posts = Self::assigned_posts(&mut tx, lease, max_attempts).await?;
            // A lease without posts would remain in the table until it expires.
            if posts.is_empty() {
                Self::end_lease(&mut tx, lease).await?;
            }
            tx.commit().await.context(WHAT)?;
            if !posts.is_empty() {
                return Ok(Claim { lease, posts });
            }
        }
    }

    /// Returns the posts of a lease with their texts. Parks posts whose text does not match its hash: logits are stored
    /// by text hash, so they would be used for all posts that really have this hash.
    async fn assigned_posts(
        tx: &mut Tx<DB>,
        lease: Lease,
        max_attempts: u32,
    ) -> Result<Vec<ClaimedPost>> {
        const WHAT: &str = "claim posts";
        let rows = sqlx::query::<DB>(
            "SELECT p.fullname, p.text_hash, p.title, p.selftext FROM backlog b \
               JOIN things p ON p.fullname = b.fullname AND p.has_text \
              WHERE b.lease_id = $1 ORDER BY p.fullname",
        )
        .bind(lease)
        .fetch_all(&mut **tx)
        .await
        .context(WHAT)?;
        let mut posts = Vec::with_capacity(rows.len());
        for row in &rows {
            let (fullname, text_hash) = Self::fullname_and_hash(row, 0)?;
            let title: String = row.try_get(2).context(WHAT)?;
            let selftext: String = row.try_get(3).context(WHAT)?;
            let text = thing_text(&fullname, &title, &selftext);
            if TextHash::new(&text) == text_hash {
                posts.push(ClaimedPost {
                    fullname,
                    text_hash,
                    text,
                });
            } else {
                Self::park(tx, lease, &fullname, max_attempts).await?;
            }
        }
        Ok(posts)
    }

    /// Returns the lowest number of crashes among the claimable posts. Locks one of these posts, so that others cannot
    /// claim all of them in between.
    async fn fewest_crashes(
        tx: &mut Tx<DB>,
        target: Target,
        max_attempts: u32,
        allowed_crashes: &Range<i64>,
    ) -> Result<Option<i64>> {
        let least = format!(
            "SELECT crashes FROM backlog WHERE model_id = $1 AND label_set_id = $2 AND lease_id IS NULL \
                AND crashes >= $4 AND crashes < $5 AND attempts < $3 ORDER BY crashes, attempts, fullname LIMIT 1 {}",
            DB::SKIP_LOCKED
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(least))
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(max_attempts))
            .bind(allowed_crashes.start)
            .bind(allowed_crashes.end)
            .fetch_optional(&mut **tx)
            .await
            .context("find posts to claim")
    }

    /// Assigns up to `limit` posts with the same number of crashes to a lease.
    ///
    /// MATERIALIZED makes the inner SELECT run only once. Otherwise it could select different rows each time, and the
    /// claim would exceed its limit.
    async fn assign_posts(
        tx: &mut Tx<DB>,
        target: Target,
        max_attempts: u32,
        crashes: i64,
        limit: u32,
        lease: Lease,
    ) -> Result<()> {
        let pick = format!(
            "WITH picked AS MATERIALIZED ( \
               SELECT fullname FROM backlog WHERE model_id = $2 AND label_set_id = $3 AND lease_id IS NULL \
                  AND crashes = $6 AND attempts < $4 ORDER BY attempts, fullname LIMIT $5 {}) \
             UPDATE backlog SET lease_id = $1 \
              WHERE model_id = $2 AND label_set_id = $3 AND fullname IN (SELECT fullname FROM picked)",
            DB::SKIP_LOCKED
        );
        sqlx::query::<DB>(AssertSqlSafe(pick))
            .bind(lease)
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(max_attempts))
            .bind(i64::from(limit))
            .bind(crashes)
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("assign posts")
    }

    /// Removes from the backlog the posts of a lease that have been labelled since they were added, or that have no
    /// text.
    async fn drop_labelled(tx: &mut Tx<DB>, target: Target, lease: Lease) -> Result<()> {
        sqlx::query::<DB>(
            "DELETE FROM backlog WHERE lease_id = $1 AND EXISTS ( \
               SELECT 1 FROM things p LEFT JOIN classifications c \
                   ON c.model_id = $2 AND c.label_set_id = $3 AND c.fullname = p.fullname \
                WHERE p.fullname = backlog.fullname \
                  AND (c.text_hash = p.text_hash OR NOT p.has_text))",
        )
        .bind(lease)
        .bind(target.model)
        .bind(target.label_set)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("drop labelled posts")
    }

    /// Parks a post whose text does not match its hash, until its text changes or the user retries it.
    async fn park(
        tx: &mut Tx<DB>,
        lease: Lease,
        fullname: &Fullname,
        max_attempts: u32,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, attempts = $3, error = $4 \
              WHERE lease_id = $1 AND fullname = $2",
        )
        .bind(lease)
        .bind(fullname.as_str())
        .bind(i64::from(max_attempts))
        .bind(HASH_MISMATCH)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("park a post")
    }
}
