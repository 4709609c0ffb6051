//! The one place that reads the time.
//!
//! Everything that waits, expires or is dated asks a [`Clock`], so that tests decide what time it is: a
//! `ManualClock` jumps over a sleep at once and remembers how long it would have lasted. Clippy forbids
//! the clocks of `std`, `chrono` and `tokio` everywhere else.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;

/// A boxed future, so that [`Clock`] can be a trait object.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A clock shared by the stages of a run.
pub type SharedClock = Arc<dyn Clock>;

/// Tells the time, and waits.
pub trait Clock: Debug + Send + Sync {
    /// The time of day, for what is stored and shown.
    fn now(&self) -> DateTime<Utc>;

    /// Time since this clock was made; never goes backwards, for intervals and quotas.
    fn elapsed(&self) -> Duration;

    /// Waits for `duration`.
    fn sleep(&self, duration: Duration) -> Sleep<'_>;
}

/// The machine's own clock.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// A clock that starts counting [`Clock::elapsed`] now.
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    pub fn shared() -> SharedClock {
        Arc::new(Self {
            started: std::time::Instant::now(),
        })
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn now(&self) -> DateTime<Utc> {
        // `Utc::now` panics where the clock is set to a time before 1970.
        std::time::SystemTime::now().into()
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(any(test, feature = "test-util"))]
mod manual;
