//! The pace that processes share: one row a client id, moved by one statement a request.
//!
//! The row holds the theoretical arrival time of the generic cell rate algorithm (GCRA), so a slot is one
//! number moved forward: nothing is left behind by a process that dies, and nobody waits for it. Times are
//! the clocks of the processes that write them. Clocks that differ by some seconds make the slower ones wait
//! that much longer; what lies further ahead than any process could have reserved was written under a wrong
//! clock and does not count.

use std::time::Duration;

use sqlx::types::chrono::{DateTime, Utc};

use super::super::Result;
use super::super::dialect::Dialect;
use super::{Doing, SqlStore};
use topicmill_core::{QuotaReservation, QuotaTerms};

/// Patience that other processes may have at least: what they reserved within it is believed.
const OTHERS_PATIENCE: Duration = Duration::from_mins(10);
/// Longest that everybody is held.
const LONGEST_HOLD: Duration = Duration::from_hours(1);

/// `$2` now, `$3` the interval, `$4` the burst less one slot, `$5` and `$6` what is too far ahead to be true of
/// `next_at` and `held_until`, `$7` the latest slot that is wanted.
const RESERVE: &str = "\
INSERT INTO quotas (id, next_at, held_until) VALUES ($1, $2 + $3, 0) \
    ON CONFLICT (id) DO UPDATE SET next_at = $3 + \
       CASE WHEN quotas.next_at BETWEEN $2 AND $5 THEN quotas.next_at ELSE $2 END \
 WHERE (quotas.next_at - $4 <= $7 OR quotas.next_at > $5) \
   AND (quotas.held_until <= $7 OR quotas.held_until > $6) \
RETURNING next_at, held_until";

const LOOK: &str = "SELECT next_at, held_until FROM quotas WHERE id = $1";

/// `$2` now, `$3` the end of the hold, `$4` what is too far ahead to be true.
const HOLD: &str = "\
INSERT INTO quotas (id, next_at, held_until) VALUES ($1, $2, $3) \
    ON CONFLICT (id) DO UPDATE SET held_until = $3 \
 WHERE quotas.held_until < $3 OR quotas.held_until > $4";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn reserve_slot(
        &self,
        id: &str,
        terms: QuotaTerms,
        now: DateTime<Utc>,
    ) -> Result<QuotaReservation> {
        const WHAT: &str = "take a slot of the shared quota";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, now).await?;
        let now = now.timestamp_micros();
        let interval = micros(terms.interval);
        let burst = micros(terms.interval * terms.burst.saturating_sub(1));
        let patience = micros(terms.max_wait);
        let too_far = now + burst + interval + patience.max(micros(OTHERS_PATIENCE));
        let held_too_far = now + micros(LONGEST_HOLD);
        let slot = |next_at: i64, held_until: i64| {
            let paced = if next_at > too_far {
                now
            } else {
                next_at - burst
            };
            let held = if held_until > held_too_far {
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
            let taken: Option<(i64, i64)> = sqlx::query_as::<DB, _>(RESERVE)
                .bind(id)
                .bind(now)
                .bind(interval)
                .bind(burst)
                .bind(too_far)
                .bind(held_too_far)
                .bind(now + patience)
                .fetch_optional(&mut *connection)
                .await
                .doing(WHAT)?;
            if let Some((next_at, held_until)) = taken {
                // RETURNING gives the row as it is now, one interval later than the slot that was taken.
                return Ok(slot(next_at - interval, held_until));
            }
            // The statement changed nothing, so the slot is further away than anybody waits. A second look says
            // how far.
            let (next_at, held_until): (i64, i64) = sqlx::query_as::<DB, _>(LOOK)
                .bind(id)
                .fetch_one(&mut *connection)
                .await
                .doing(WHAT)?;
            let not_taken = slot(next_at, held_until);
            // Where it came closer in between, it is asked for again: a slot that was not taken is nobody's.
            if not_taken.wait > terms.max_wait {
                return Ok(not_taken);
            }
        }
    }

    pub async fn hold_quota(&self, id: &str, wait: Duration, now: DateTime<Utc>) -> Result<()> {
        const WHAT: &str = "hold the shared quota";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, now).await?;
        let now = now.timestamp_micros();
        sqlx::query::<DB>(HOLD)
            .bind(id)
            .bind(now)
            // Bounded, so that one wrong `Retry-After` cannot stop every process for days.
            .bind(now + micros(wait.min(LONGEST_HOLD)))
            .bind(now + micros(LONGEST_HOLD))
            .execute(&mut *connection)
            .await
            .done(WHAT)
    }
}

fn micros(duration: Duration) -> i64 {
    // An eighth of the range, so that sums of a few such values do not overflow.
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 8)
}
