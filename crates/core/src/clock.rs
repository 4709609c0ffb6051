//! The one place that reads the time.
//!
//! Everything that waits, expires or is dated asks a [`Clock`], so that tests decide what time it is: a
//! [`ManualClock`] jumps over a sleep at once and remembers how long it would have lasted. Clippy forbids
//! the clocks of `std`, `chrono` and `tokio` everywhere else.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};

/// A boxed future, so that [`Clock`] can be a trait object.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A clock shared by the stages of a run.
pub type SharedClock = Arc<dyn Clock>;

/// What time it is, and how to wait.
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

/// A clock that tests move by hand. A sleep moves it forward and returns at once.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    start: DateTime<Utc>,
    elapsed: Duration,
    sleeps: Vec<Duration>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: DateTime<Utc>) -> Arc<Self> {
        let state = ManualState {
            start,
            elapsed: Duration::ZERO,
            sleeps: Vec::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.lock().elapsed += by;
    }

    /// Sets the time of day to another one, as an administrator or a time server does; what has
    /// [elapsed](Clock::elapsed) is not touched.
    pub fn jump(&self, by: chrono::TimeDelta) {
        self.lock().start += by;
    }

    /// Every sleep asked for so far, in order.
    pub fn sleeps(&self) -> Vec<Duration> {
        self.lock().sleeps.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ManualState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        let state = self.lock();
        state.start + state.elapsed
    }

    fn elapsed(&self) -> Duration {
        self.lock().elapsed
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        let mut state = self.lock();
        state.elapsed += duration;
        state.sleeps.push(duration);
        // Other tasks get their turn, as in a real sleep.
        Box::pin(tokio::task::yield_now())
    }
}
