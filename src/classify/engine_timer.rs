//! Measures how long the steps of a lane take, and how long its engine's thread computes, waits for posts, and waits
//! for the writer.

use std::time::Duration;

use topicmill_core::clock::SharedClock;
use topicmill_core::record::StageTimes;

/// Measures consecutive intervals.
pub(super) struct Stopwatch<'a> {
    clock: &'a SharedClock,
    /// The end of the last interval.
    since: Duration,
}

impl<'a> Stopwatch<'a> {
    pub(super) fn start(clock: &'a SharedClock) -> Self {
        let since = clock.elapsed();
        Self { clock, since }
    }

    /// Returns the seconds since the start or the last call.
    pub(super) fn lap(&mut self) -> f64 {
        let from = std::mem::replace(&mut self.since, self.clock.elapsed());
        self.since.saturating_sub(from).as_secs_f64()
    }
}

/// Splits an engine thread's time into busy, idle and blocked.
pub(super) struct EngineTimer<'a> {
    watch: Stopwatch<'a>,
    stages: &'a mut StageTimes,
}

impl<'a> EngineTimer<'a> {
    pub(super) fn new(clock: &'a SharedClock, stages: &'a mut StageTimes) -> Self {
        let watch = Stopwatch::start(clock);
        Self { watch, stages }
    }

    /// Returns the times measured so far, and resets them.
    pub(super) fn take(&mut self) -> StageTimes {
        self.stages.engine_busy_secs += self.watch.lap();
        std::mem::take(self.stages)
    }

    /// Runs `wait` and counts its time as waiting for posts.
    pub(super) fn idle<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.stages.engine_busy_secs += self.watch.lap();
        let received = wait();
        self.stages.engine_idle_secs += self.watch.lap();
        received
    }

    /// Runs `send` and counts its time as waiting for the writer.
    pub(super) fn blocked(&mut self, send: impl FnOnce()) {
        self.stages.engine_busy_secs += self.watch.lap();
        send();
        self.stages.engine_blocked_secs += self.watch.lap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::clock::ManualClock;

    #[test]
    fn all_time_of_the_engine_is_counted_once() {
        let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
        let clock: SharedClock = manual.clone();
        let mut stages = StageTimes::default();
        let mut timer = EngineTimer::new(&clock, &mut stages);
        let pass = |secs| manual.advance(Duration::from_secs(secs));
        timer.idle(|| pass(2));
        pass(40);
        timer.blocked(|| pass(3));
        pass(50);
        timer.blocked(|| pass(4));
        timer.idle(|| pass(1));
        assert_eq!(
            stages,
            StageTimes {
                engine_busy_secs: 90.0,
                engine_idle_secs: 3.0,
                engine_blocked_secs: 7.0,
                ..StageTimes::default()
            }
        );
        let mut timer = EngineTimer::new(&clock, &mut stages);
        pass(5);
        let taken = timer.take();
        let seconds = |of: &StageTimes| (of.engine_busy_secs, of.engine_idle_secs);
        assert_eq!(seconds(&taken), (95.0, 3.0));
        timer.idle(|| pass(1));
        assert_eq!(seconds(&stages), (0.0, 1.0));
    }
}
