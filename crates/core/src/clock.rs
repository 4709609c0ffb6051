//! Defines the clock. Only this module reads the time.
//!
//! All timeouts, expiries and timestamps come from a [`Clock`], so that tests control the time: `ManualClock` returns
//! from a sleep at once and records its duration. Clippy forbids the `std`, `chrono` and `tokio` clocks everywhere
//! else.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

#[cfg(any(test, feature = "test-util"))]
pub use self::test_clock::ManualClock;

/// A boxed future, so that [`Clock`] can be a trait object.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A clock shared by the stages of a run.
pub type SharedClock = Arc<dyn Clock>;

/// Reads the time, and sleeps.
pub trait Clock: Debug + Send + Sync {
    /// Returns the wall-clock time, for stored and displayed times.
    fn now(&self) -> DateTime<Utc>;

    /// Returns the monotonic time since the clock was created, for intervals and quotas.
    fn elapsed(&self) -> Duration;

    /// Sleeps for `duration`.
    fn sleep(&self, duration: Duration) -> Sleep<'_>;
}

/// The system clock.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// Creates a clock whose [`Clock::elapsed`] starts now.
    #[expect(clippy::disallowed_methods, reason = "only this module reads the time")]
    pub fn shared() -> SharedClock {
        Arc::new(Self {
            started: std::time::Instant::now(),
        })
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "only this module reads the time")]
    fn now(&self) -> DateTime<Utc> {
        // `Utc::now` panics if the clock is set before 1970.
        std::time::SystemTime::now().into()
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "only this module reads the time")]
    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(any(test, feature = "test-util"))]
mod test_clock;
