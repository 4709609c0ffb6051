//! Defines a fake clock for tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Clock, Sleep};

/// A fake clock. A sleep advances it and returns at once.
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
    /// Creates a clock at `start`.
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

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.lock().elapsed += by;
    }

    /// Steps the wall-clock time, as an administrator or a time server does, without changing
    /// [`elapsed`](Clock::elapsed).
    pub fn jump(&self, by: chrono::TimeDelta) {
        self.lock().start += by;
    }

    /// Returns the durations of all sleeps so far, in order.
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
        // Lets other tasks run, as in a real sleep.
        Box::pin(tokio::task::yield_now())
    }
}
