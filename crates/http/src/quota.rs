//! Decides when the next request may be sent.
//!
//! Two limits apply. The client's own limit, `requests_per_minute`, is enforced by governor's GCRA, on an injected
//! clock. The site's limit comes from the `X-Ratelimit-*` headers of each response, for any window length: with nothing
//! remaining, the client waits for the end of the window; with less than half remaining, it spreads the rest over the
//! window.
//!
//! A permit is checked and taken under one lock, to prevent two callers from taking the same permit. A second lock
//! admits waiting callers in order, one at a time.
//!
//! A [`SharedQuota`] extends the quota to several processes. Both limits apply, so that a shared quota that loses its
//! state does not lift the local limit.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use reqwest::header::HeaderMap;

use super::response::{MIN_WAIT, number, reset};
use super::shared_quota::{SharedQuota, SharedQuotaError};
use super::traffic::{Meter, WaitCause};
use topicmill_core::clock::SharedClock;
use topicmill_core::record::QuotaLeft;
use topicmill_core::{QuotaReservation, QuotaTerms, Timestamp};

/// Two reported windows whose ends differ by at most this duration are the same window.
const SAME_WINDOW: Duration = Duration::from_secs(2);

/// The rate limiter of a client.
#[derive(Debug)]
pub(crate) struct Quota {
    clock: SharedClock,
    budget: Duration,
    limit: governor::Quota,
    own: RateLimiter<NotKeyed, InMemoryState, GovernorClockAdapter, NoOpMiddleware<Duration>>,
    site: Mutex<Pace>,
    turn: tokio::sync::Mutex<()>,
    shared: OnceLock<SharedQuota>,
    meter: Arc<Meter>,
}

/// An error for a request that may not be sent.
#[derive(Debug)]
pub(crate) enum QuotaError {
    /// The wait exceeds the budget; the client did not wait.
    OverBudget(Duration),
    /// The shared quota failed.
    SharedQuota(SharedQuotaError),
}

impl Quota {
    pub(crate) fn new(
        limit: governor::Quota,
        budget: Duration,
        clock: SharedClock,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            own: RateLimiter::direct_with_clock(limit, GovernorClockAdapter(clock.clone())),
            site: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            shared: OnceLock::new(),
            meter,
            limit,
            budget,
            clock,
        }
    }

    /// Also reserves requests in `shared` from now on. Only the first call has an effect.
    pub(crate) fn share_with(&self, shared: SharedQuota) {
        let _ = self.shared.set(shared);
    }

    /// Waits until a request may be sent, and takes the permit.
    pub(crate) async fn acquire(&self) -> Result<(), QuotaError> {
        let _turn = self.turn.lock().await;
        // Checked again after each wait, because another response may have throttled the client in the meantime.
        while let Err((wait, cause)) = self.try_acquire() {
            self.pause(wait, cause).await?;
        }
        // The shared quota comes last, because a permit that is reserved there but not used is lost to all processes.
        let Some(shared) = self.shared.get() else {
            return Ok(());
        };
        let terms = QuotaTerms {
            interval: self.limit.replenish_interval(),
            burst: self.limit.burst_size().get(),
            max_wait: self.budget,
        };
        let QuotaReservation { wait, is_throttled } = (shared.reserve)(terms)
            .await
            .map_err(QuotaError::SharedQuota)?;
        let cause = if is_throttled {
            WaitCause::RetryAfter
        } else {
            WaitCause::OwnPace
        };
        self.pause(wait, cause).await?;
        // A response may have throttled the client during that wait. The permits are already taken, so nothing else is
        // checked again.
        loop {
            let now = self.clock.elapsed();
            let throttled = self.pace().throttled_until.saturating_sub(now);
            if throttled.is_zero() {
                return Ok(());
            }
            self.pause(throttled, WaitCause::RetryAfter).await?;
        }
    }

    /// Takes a permit if both limits allow it now; otherwise returns the wait until the next check.
    fn try_acquire(&self) -> Result<(), (Duration, WaitCause)> {
        let now = self.clock.elapsed();
        let mut pace = self.pace();
        let (wait, cause) = pace.wait(now);
        if !wait.is_zero() {
            return Err((wait, cause));
        }
        // This comes after the site's limit, because `check` takes a permit, which would be lost if the site allows no
        // request.
        self.own
            .check()
            .map_err(|until| (until.wait_time_from(now), WaitCause::OwnPace))?;
        pace.take(now);
        Ok(())
    }

    /// Waits, unless the duration is zero.
    ///
    /// # Errors
    /// When the wait exceeds the budget.
    pub(crate) async fn pause(&self, wait: Duration, cause: WaitCause) -> Result<(), QuotaError> {
        if wait.is_zero() {
            return Ok(());
        }
        self.check_budget(wait)?;
        self.meter.count_wait(cause, wait);
        self.clock.sleep(wait).await;
        Ok(())
    }

    /// Checks that a wait is within the budget.
    pub(crate) fn check_budget(&self, wait: Duration) -> Result<(), QuotaError> {
        if wait > self.budget {
            Err(QuotaError::OverBudget(wait))
        } else {
            Ok(())
        }
    }

    /// Blocks all requests for `wait`, in all processes: a 429 for one caller applies to all.
    pub(crate) async fn throttle(&self, wait: Duration) -> Result<(), QuotaError> {
        let until = self.clock.elapsed() + wait;
        {
            let mut pace = self.pace();
            // The scope releases the mutex before the await.
            pace.throttled_until = pace.throttled_until.max(until);
        }
        self.throttle_others(wait).await
    }

    /// Updates the window from a response's headers. A window with nothing remaining also blocks the other processes.
    pub(crate) async fn observe(&self, headers: &HeaderMap) -> Result<(), QuotaError> {
        let now = self.clock.now();
        let left = number(headers, "x-ratelimit-remaining");
        let (Some(left), Some(reset)) = (left, reset(headers, now)) else {
            return Ok(());
        };
        // Without this header, half of the window is unknown, so requests are not spread.
        let used = number(headers, "x-ratelimit-used").unwrap_or(0.0);
        let quota = QuotaLeft {
            remaining: left,
            used,
            resets_at: Timestamp::from(now + reset),
        };
        self.meter.set_quota(quota);
        let wait = reset.max(MIN_WAIT);
        self.pace().observe(left, used, self.clock.elapsed() + wait);
        if left < 1.0 {
            self.throttle_others(wait).await?;
        }
        Ok(())
    }

    async fn throttle_others(&self, wait: Duration) -> Result<(), QuotaError> {
        match self.shared.get() {
            Some(shared) => (shared.throttle)(wait)
                .await
                .map_err(QuotaError::SharedQuota),
            None => Ok(()),
        }
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.site.lock().expect("no holder of this lock panics")
    }
}

/// The site's limit. All times are relative to [`topicmill_core::clock::Clock::elapsed`].
#[derive(Debug, Default)]
struct Pace {
    throttled_until: Duration,
    last_taken: Duration,
    window: Option<QuotaWindow>,
}

/// The site's window as last reported, minus the requests sent since.
#[derive(Debug, Clone, Copy)]
struct QuotaWindow {
    left: f64,
    used: f64,
    ends: Duration,
}

impl Pace {
    fn wait(&self, now: Duration) -> (Duration, WaitCause) {
        let throttled = self.throttled_until.saturating_sub(now);
        let Some(window) = self.window else {
            return (throttled, WaitCause::RetryAfter);
        };
        // Zero once the window has ended: the limit of the next window is unknown, so it blocks nothing.
        let rest = window.ends.saturating_sub(now);
        let paced = if window.left < 1.0 {
            rest
        } else if window.left < window.used && !rest.is_zero() {
            (self.last_taken + rest.div_f64(window.left)).saturating_sub(now)
        } else {
            Duration::ZERO
        };
        if throttled >= paced {
            (throttled, WaitCause::RetryAfter)
        } else {
            (paced, WaitCause::TheirQuota)
        }
    }

    fn take(&mut self, now: Duration) {
        self.last_taken = now;
        if let Some(window) = &mut self.window {
            window.left -= 1.0;
            window.used += 1.0;
        }
    }

    /// Updates the window. A response does not count requests that were sent after its own request, so within a window,
    /// the lower number of remaining requests and the higher number of used ones apply.
    fn observe(&mut self, left: f64, used: f64, ends: Duration) {
        let (left, used) = match self.window {
            Some(known) if known.ends.abs_diff(ends) <= SAME_WINDOW => {
                (left.min(known.left), used.max(known.used))
            }
            _ => (left, used),
        };
        self.window = Some(QuotaWindow { left, used, ends });
    }
}

/// Adapts the injected clock for governor.
#[derive(Debug, Clone)]
struct GovernorClockAdapter(SharedClock);

impl GovernorClock for GovernorClockAdapter {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::response::MAX_WINDOW;
    use topicmill_core::FailureKind;
    use topicmill_core::clock::ManualClock;
    use topicmill_core::table;

    const SECOND: Duration = Duration::from_secs(1);

    fn quota(per_minute: u32) -> (Arc<ManualClock>, Quota) {
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let limit = governor::Quota::per_minute(NonZeroU32::new(per_minute).unwrap());
        let quota = Quota::new(limit, 60 * SECOND, clock.clone(), Arc::default());
        (clock, quota)
    }

    fn headers(remaining: &str, used: &str, reset: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", remaining.parse().unwrap());
        headers.insert("x-ratelimit-used", used.parse().unwrap());
        headers.insert("x-ratelimit-reset", reset.parse().unwrap());
        headers
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn threads_never_exceed_the_window() {
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let limit = governor::Quota::per_minute(NonZeroU32::new(100).unwrap());
        let quota = Quota::new(limit, Duration::ZERO, clock, Arc::default());
        quota.observe(&headers("64", "0", "600")).await.unwrap();
        let quota = Arc::new(quota);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let quota = quota.clone();
                tokio::spawn(async move { quota.acquire().await.is_ok() })
            })
            .collect();
        let mut taken = 0;
        for task in tasks {
            taken += usize::from(task.await.unwrap());
        }
        // One more than half are sent; after that, each would have to wait.
        assert_eq!(taken, 33);
    }

    #[tokio::test]
    async fn rate_limit_headers_set_the_pace() {
        for (windows, waits) in table! {
            // Waits for the end of the window; the next window is unknown, so it blocks nothing.
            &[["0.0", "996", "37"], ["many", "1", "2"]][..], &[37][..];
            &[["0", "300", "0"]], &[1];
            // The last half is spread over the rest of the window.
            &[["598.0", "2", "300"], ["10.0", "590", "60"], ["9.0", "591", "54"]], &[6, 6];
            &[["many", "1", "2"], ["NaN", "1", "2"], ["0", "1", "later"]], &[];
        } {
            let (clock, quota) = quota(100);
            for [left, used, reset] in windows {
                quota.observe(&headers(left, used, reset)).await.unwrap();
                quota.acquire().await.unwrap();
            }
            let waits: Vec<_> = waits.iter().map(|secs| *secs * SECOND).collect();
            assert_eq!(clock.sleeps(), waits, "{windows:?}");
        }
    }

    #[tokio::test]
    async fn requests_sent_since_a_response_are_counted() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("2", "0", "40")).await.unwrap();
        quota.acquire().await.unwrap();
        // The response to a request that was sent before that permit was taken.
        quota.observe(&headers("2", "0", "40")).await.unwrap();
        quota.acquire().await.unwrap();
        quota.acquire().await.unwrap();
        let total: Duration = clock.sleeps().iter().sum();
        // The third request waits for the end of the window.
        assert_eq!(total, 40 * SECOND);
    }

    #[tokio::test]
    async fn an_absurdly_long_window_does_not_overflow() {
        for reset in ["1e300", "18446744073709549568", "99999999999"] {
            let (clock, quota) = quota(100);
            clock.advance(Duration::from_hours(1));
            quota.observe(&headers("0", "1", reset)).await.unwrap();
            let quota_error = quota.acquire().await.unwrap_err();
            assert!(
                matches!(quota_error, QuotaError::OverBudget(MAX_WINDOW)),
                "{quota_error:?}"
            );
        }
    }

    #[tokio::test]
    async fn throttling_is_passed_to_the_shared_quota() {
        let (_, quota) = quota(100);
        let throttled: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let callback = throttled.clone();
        let (wait, is_throttled) = (Duration::ZERO, false);
        quota.share_with(SharedQuota {
            reserve: Box::new(move |_| {
                Box::pin(async move { Ok(QuotaReservation { wait, is_throttled }) })
            }),
            throttle: Box::new(move |wait| {
                callback.lock().unwrap().push(wait);
                Box::pin(async { Ok(()) })
            }),
        });
        quota.observe(&headers("1", "995", "37")).await.unwrap();
        quota.observe(&headers("0.0", "996", "36")).await.unwrap();
        quota.observe(&headers("0", "300", "0")).await.unwrap();
        quota.throttle(4 * SECOND).await.unwrap();
        assert_eq!(
            *throttled.lock().unwrap(),
            [36 * SECOND, SECOND, 4 * SECOND]
        );
    }

    #[tokio::test]
    async fn a_throttle_during_the_wait_for_the_shared_quota_is_obeyed() {
        let (clock, quota) = quota(100);
        let quota = Arc::new(quota);
        let throttled = quota.clone();
        let (wait, is_throttled) = (5 * SECOND, false);
        quota.share_with(SharedQuota {
            reserve: Box::new(move |_| {
                let quota = throttled.clone();
                Box::pin(async move {
                    quota.throttle(20 * SECOND).await.unwrap();
                    Ok(QuotaReservation { wait, is_throttled })
                })
            }),
            throttle: Box::new(|_| Box::pin(async { Ok(()) })),
        });
        quota.acquire().await.unwrap();
        assert_eq!(clock.sleeps(), [5 * SECOND, 15 * SECOND]);
    }

    #[tokio::test]
    async fn a_late_response_does_not_end_the_pacing() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("10", "10", "100")).await.unwrap();
        quota.acquire().await.unwrap();
        // Sent before that permit was taken.
        quota.observe(&headers("10", "9", "100")).await.unwrap();
        quota.acquire().await.unwrap();
        assert_eq!(clock.sleeps().len(), 1);
    }

    #[tokio::test]
    async fn a_shorter_throttle_does_not_end_a_longer_one() {
        let (clock, quota) = quota(100);
        quota.throttle(4 * SECOND).await.unwrap();
        quota.throttle(2 * SECOND).await.unwrap();
        quota.acquire().await.unwrap();
        assert_eq!(clock.sleeps(), [4 * SECOND]);
    }

    #[tokio::test]
    async fn an_error_of_the_shared_quota_is_returned() {
        let (_, quota) = quota(100);
        let gone = || SharedQuotaError {
            kind: FailureKind::Database,
            source: "gone".into(),
        };
        quota.share_with(SharedQuota {
            reserve: Box::new(move |_| Box::pin(async move { Err(gone()) })),
            throttle: Box::new(move |_| Box::pin(async move { Err(gone()) })),
        });
        assert!(quota.throttle(SECOND).await.is_err() && quota.acquire().await.is_err());
    }
}
