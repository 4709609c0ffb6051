//! Enforces the rate limit that processes share: one row per client id, and one statement per request.
//!
//! The row contains the theoretical arrival time of the generic cell rate algorithm (GCRA), so reserving a request
//! moves one number forward, and a crashed process leaves nothing to clean up. Times are microseconds since 1970 by the
//! database's clock, or by the callers' clocks if the database has none. A time that is too far ahead to have been
//! reserved was written by a wrong clock and is ignored.

use std::time::Duration;

use sqlx::types::chrono::{DateTime, Utc};

use super::{ErrorContext, SqlStore};
use crate::Result;
use crate::dialect::Dialect;
use topicmill_core::{QuotaReservation, QuotaTerms};

/// Minimum `max_wait` that is assumed for other processes, so that their reservations are not mistaken for wrong times.
const MIN_MAX_WAIT: Duration = Duration::from_mins(10);
/// Maximum time to block all requests.
const MAX_THROTTLE: Duration = Duration::from_hours(1);

/// Reserves a request of the quota `$1`. `$2` is now, `$3` the interval, `$4` the burst minus one request, `$5` and
/// `$6` the latest plausible `next_at` and `held_until`, `$7` the latest acceptable time.
const RESERVE: &str = "\
INSERT INTO quotas (id, next_at, held_until) VALUES ($1, $2 + $3, 0) \
    ON CONFLICT (id) DO UPDATE SET next_at = $3 + \
       CASE WHEN quotas.next_at BETWEEN $2 AND $5 THEN quotas.next_at ELSE $2 END \
 WHERE (quotas.next_at - $4 <= $7 OR quotas.next_at > $5) \
   AND (quotas.held_until <= $7 OR quotas.held_until > $6) \
RETURNING next_at, held_until";

const READ_STATE: &str = "SELECT next_at, held_until FROM quotas WHERE id = $1";

/// Blocks all requests of the quota `$1`. `$2` is now, `$3` the end of the block, `$4` the latest plausible time.
const THROTTLE: &str = "\
INSERT INTO quotas (id, next_at, held_until) VALUES ($1, $2, $3) \
    ON CONFLICT (id) DO UPDATE SET held_until = $3 \
 WHERE quotas.held_until < $3 OR quotas.held_until > $4";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn reserve_request(
        &self,
        id: &str,
        terms: QuotaTerms,
        now: DateTime<Utc>,
    ) -> Result<QuotaReservation> {
        const WHAT: &str = "reserve a request of the shared quota";
        // One connection for both, because a wait for a second one would make this time stale.
        let mut connection = self.pool.acquire().await.context(WHAT)?;
        let now = self.database_time(&mut *connection, now).await?;
        let now = now.timestamp_micros();
        let interval = micros(terms.interval);
        let burst = micros(terms.interval * terms.burst.saturating_sub(1));
        let max_wait = micros(terms.max_wait);
        let max_next_at = now + burst + interval + max_wait.max(micros(MIN_MAX_WAIT));
        let max_held_until = now + micros(MAX_THROTTLE);
        let reservation = |next_at: i64, held_until: i64| {
            let paced = if next_at > max_next_at {
                now
            } else {
                next_at - burst
            };
            let held = if held_until > max_held_until {
                now
            } else {
                held_until
            };
            QuotaReservation {
                wait: Duration::from_micros((paced.max(held) - now).max(0).unsigned_abs()),
                is_throttled: held > paced.max(now),
            }
        };
        loop {
            let mut reserved: Vec<(i64, i64)> = sqlx::query_as::<DB, _>(RESERVE)
                .bind(id)
                .bind(now)
                .bind(interval)
                .bind(burst)
                .bind(max_next_at)
                .bind(max_held_until)
                .bind(now + max_wait)
                .fetch_all(&mut *connection)
                .await
                .context(WHAT)?;
            if let Some((next_at, held_until)) = reserved.pop() {
                // RETURNING returns the new `next_at`, which is one interval after the reserved time.
                return Ok(reservation(next_at - interval, held_until));
            }
            // The statement changed nothing, so the next possible time is too late. A second query reads that time.
            let (next_at, held_until): (i64, i64) = sqlx::query_as::<DB, _>(READ_STATE)
                .bind(id)
                .fetch_one(&mut *connection)
                .await
                .context(WHAT)?;
            let rejected = reservation(next_at, held_until);
            // If the wait has become acceptable in between, tries again, because nothing was reserved.
            if rejected.wait > terms.max_wait {
                return Ok(rejected);
            }
        }
    }

    pub async fn throttle_quota(&self, id: &str, wait: Duration, now: DateTime<Utc>) -> Result<()> {
        let now = self.database_time(&self.pool, now).await?;
        let now = now.timestamp_micros();
        sqlx::query::<DB>(THROTTLE)
            .bind(id)
            .bind(now)
            // Bounded, so that one wrong `Retry-After` cannot stop all processes for days.
            .bind(now + micros(wait.min(MAX_THROTTLE)))
            .bind(now + micros(MAX_THROTTLE))
            .execute(&self.pool)
            .await
            .map(drop)
            .context("throttle the shared quota")
    }
}

fn micros(duration: Duration) -> i64 {
    // The fallback is an eighth of the range, so that sums of a few such values do not overflow.
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 8)
}
