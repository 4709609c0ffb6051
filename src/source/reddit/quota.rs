//! When the next request may leave.
//!
//! Two limits hold at once. Our own, `requests_per_minute`, is kept by governor, whose GCRA hands out slots
//! atomically; it reads our clock, so that a test decides what time it is. Reddit's is read from the
//! `X-Ratelimit-*` headers of each answer, whatever its window: with nothing remaining the window's end is
//! awaited, and once less than half is left the rest is spread over the time to it.
//!
//! A slot is looked at and taken under one lock, so that no two callers take the same one. They also take
//! turns: whoever waits holds the turn, so that the others do not all wake for one slot, and none overtakes.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use reqwest::header::HeaderMap;

use super::retry::SHORTEST_WAIT;
use crate::clock::SharedClock;

/// Two answers whose windows end this close together speak of the same window.
const SAME_WINDOW: Duration = Duration::from_secs(2);

/// The pace of a client.
#[derive(Debug)]
pub(in crate::source) struct Quota {
    clock: SharedClock,
    budget: Duration,
    own: RateLimiter<NotKeyed, InMemoryState, OurClock, NoOpMiddleware<Duration>>,
    theirs: Mutex<Pace>,
    turn: tokio::sync::Mutex<()>,
    waits: AtomicU64,
    waited_millis: AtomicU64,
}

/// A wait above the budget, not waited.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::source) struct OverBudget(pub Duration);

impl Quota {
    pub(in crate::source) fn new(
        per_minute: NonZeroU32,
        budget: Duration,
        clock: SharedClock,
    ) -> Self {
        let limit = governor::Quota::per_minute(per_minute);
        Self {
            own: RateLimiter::direct_with_clock(limit, OurClock(clock.clone())),
            theirs: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            waits: AtomicU64::new(0),
            waited_millis: AtomicU64::new(0),
            budget,
            clock,
        }
    }

    /// Waits for a slot and takes it.
    pub(in crate::source) async fn slot(&self) -> Result<(), OverBudget> {
        let _turn = self.turn.lock().await;
        while let Err(wait) = self.try_take() {
            self.pause(wait).await?;
        }
        Ok(())
    }

    /// Takes a slot if both limits have one now; else says how long until it is worth another look.
    fn try_take(&self) -> Result<(), Duration> {
        let now = self.clock.elapsed();
        let mut pace = self.pace();
        let wait = pace.wait(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.own
            .check()
            .map_err(|until| until.wait_time_from(now))?;
        pace.take(now);
        Ok(())
    }

    /// Waits, unless that is more than the budget allows.
    pub(in crate::source) async fn pause(&self, wait: Duration) -> Result<(), OverBudget> {
        self.affords(wait)?;
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_millis.fetch_add(millis, Ordering::Relaxed);
        self.clock.sleep(wait).await;
        Ok(())
    }

    /// Whether a wait is within the budget.
    pub(in crate::source) fn affords(&self, wait: Duration) -> Result<(), OverBudget> {
        if wait > self.budget {
            Err(OverBudget(wait))
        } else {
            Ok(())
        }
    }

    /// Lets nobody through for `wait`: what one caller is told by a 429 holds for all.
    pub(in crate::source) fn hold(&self, wait: Duration) {
        let until = self.clock.elapsed() + wait;
        let mut pace = self.pace();
        pace.held_until = pace.held_until.max(until);
    }

    /// Takes note of an answer's headers.
    pub(in crate::source) fn observe(&self, headers: &HeaderMap) {
        let (Some(left), Some(reset)) = (number(headers, "x-ratelimit-remaining"), reset(headers))
        else {
            return;
        };
        let used = number(headers, "x-ratelimit-used").unwrap_or(0.0);
        self.pace()
            .observe(left, used, self.clock.elapsed() + reset.max(SHORTEST_WAIT));
    }

    /// Waits so far, and their sum.
    pub(in crate::source) fn waits(&self) -> (u64, Duration) {
        let waited = self.waited_millis.load(Ordering::Relaxed);
        (
            self.waits.load(Ordering::Relaxed),
            Duration::from_millis(waited),
        )
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.theirs.lock().expect("no holder of this lock panics")
    }
}

/// The time until Reddit's window ends, as an answer tells it.
pub(super) fn reset(headers: &HeaderMap) -> Option<Duration> {
    Duration::try_from_secs_f64(number(headers, "x-ratelimit-reset")?).ok()
}

/// A header that is an int in one answer and a float in the next.
fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    let number: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number.max(0.0))
}

/// What Reddit allows. All times are those of [`crate::clock::Clock::elapsed`].
#[derive(Debug, Default)]
struct Pace {
    held_until: Duration,
    last_taken: Duration,
    window: Option<Window>,
}

/// Reddit's window as last told, less the slots taken since.
#[derive(Debug, Clone, Copy)]
struct Window {
    left: f64,
    used: f64,
    ends: Duration,
}

impl Pace {
    fn wait(&self, now: Duration) -> Duration {
        let held = self.held_until.saturating_sub(now);
        let Some(window) = self.window else {
            return held;
        };
        // Zero once the window has ended: what the next one allows is not known, so it holds nobody.
        let rest = window.ends.saturating_sub(now);
        let paced = if window.left < 1.0 {
            rest
        } else if window.left < window.used && !rest.is_zero() {
            (self.last_taken + rest.div_f64(window.left)).saturating_sub(now)
        } else {
            Duration::ZERO
        };
        held.max(paced)
    }

    fn take(&mut self, now: Duration) {
        self.last_taken = now;
        if let Some(window) = &mut self.window {
            window.left -= 1.0;
            window.used += 1.0;
        }
    }

    /// An answer knows nothing of the requests that left after its own, so within a window the lower
    /// number counts.
    fn observe(&mut self, left: f64, used: f64, ends: Duration) {
        let left = match self.window {
            Some(known) if known.ends.abs_diff(ends) <= SAME_WINDOW => left.min(known.left),
            _ => left,
        };
        self.window = Some(Window { left, used, ends });
    }
}

/// governor's view of our clock.
#[derive(Debug, Clone)]
struct OurClock(SharedClock);

impl GovernorClock for OurClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn quota(per_minute: u32) -> (Arc<ManualClock>, Quota) {
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let per_minute = NonZeroU32::new(per_minute).unwrap();
        (clock.clone(), Quota::new(per_minute, 60 * SECOND, clock))
    }

    fn headers(remaining: &str, used: &str, reset: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", remaining.parse().unwrap());
        headers.insert("x-ratelimit-used", used.parse().unwrap());
        headers.insert("x-ratelimit-reset", reset.parse().unwrap());
        headers
    }

    #[tokio::test]
    async fn our_own_limit_lets_a_minutes_worth_through_and_then_paces() {
        let (clock, quota) = quota(100);
        for _ in 0..100 {
            quota.slot().await.unwrap();
        }
        assert_eq!(clock.sleeps(), []);
        quota.slot().await.unwrap();
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), [Duration::from_millis(600); 2]);
    }

    #[tokio::test]
    async fn slots_taken_at_once_are_each_taken_once() {
        let (clock, quota) = quota(2);
        let quota = Arc::new(quota);
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let quota = quota.clone();
                tokio::spawn(async move { quota.slot().await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(clock.sleeps(), [30 * SECOND; 4]);
        assert_eq!(quota.waits(), (4, 120 * SECOND));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn threads_do_not_take_more_than_a_window_has() {
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let quota = Quota::new(NonZeroU32::new(100).unwrap(), Duration::ZERO, clock);
        quota.observe(&headers("64", "0", "600"));
        let quota = Arc::new(quota);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let quota = quota.clone();
                tokio::spawn(async move { quota.slot().await.is_ok() })
            })
            .collect();
        let mut taken = 0;
        for task in tasks {
            taken += usize::from(task.await.unwrap());
        }
        assert_eq!(
            taken, 33,
            "one more than half; then each would have to wait"
        );
    }

    #[tokio::test]
    async fn with_nothing_remaining_the_windows_end_is_awaited() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("0.0", "996", "37"));
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), [37 * SECOND]);
        quota.slot().await.unwrap();
        assert_eq!(
            clock.sleeps().len(),
            1,
            "the next window is unknown, so it does not hold"
        );
    }

    #[tokio::test]
    async fn nothing_remaining_and_no_time_to_the_reset_still_waits_a_second() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("0", "300", "0"));
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), [SECOND]);
    }

    #[tokio::test]
    async fn the_last_half_is_spread_over_the_rest_of_the_window() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("598.0", "2", "300"));
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), []);
        quota.observe(&headers("10.0", "590", "60"));
        quota.slot().await.unwrap();
        quota.observe(&headers("9.0", "591", "54"));
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), [6 * SECOND; 2]);
    }

    #[tokio::test]
    async fn slots_taken_since_an_answer_are_counted() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("2", "0", "40"));
        quota.slot().await.unwrap();
        // The answer to a request that left before that slot was taken.
        quota.observe(&headers("2", "0", "40"));
        quota.slot().await.unwrap();
        quota.slot().await.unwrap();
        let total: Duration = clock.sleeps().iter().sum();
        assert_eq!(
            total,
            40 * SECOND,
            "the third slot lies behind the window's end"
        );
    }

    #[tokio::test]
    async fn a_wait_above_the_budget_is_not_waited() {
        let (clock, quota) = quota(100);
        quota.observe(&headers("0", "996", "300"));
        assert_eq!(quota.slot().await, Err(OverBudget(300 * SECOND)));
        assert_eq!(clock.sleeps(), []);
    }

    #[tokio::test]
    async fn headers_that_say_nothing_change_nothing() {
        let (clock, quota) = quota(100);
        quota.observe(&HeaderMap::new());
        quota.observe(&headers("many", "1", "2"));
        quota.observe(&headers("NaN", "1", "2"));
        quota.observe(&headers("0", "1", "later"));
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), []);
    }

    #[tokio::test]
    async fn a_hold_holds_for_all() {
        let (clock, quota) = quota(100);
        quota.hold(4 * SECOND);
        quota.hold(2 * SECOND);
        quota.slot().await.unwrap();
        assert_eq!(clock.sleeps(), [4 * SECOND]);
    }
}
