//! The watch over an engine's thread: how long it computes, waits for posts, and waits for the writer.

use std::time::Duration;

use topicmill_core::clock::SharedClock;
use topicmill_core::record::StageTimes;

/// The watch over an engine's thread.
pub(super) struct Watched<'a> {
    clock: &'a SharedClock,
    stages: &'a mut StageTimes,
    /// Until here every moment is accounted for.
    since: Duration,
}

impl<'a> Watched<'a> {
    pub(super) fn new(clock: &'a SharedClock, stages: &'a mut StageTimes) -> Self {
        Self {
            clock,
            stages,
            since: clock.elapsed(),
        }
    }

    /// Seconds that passed since it was called last.
    fn lap(&mut self) -> f64 {
        let from = std::mem::replace(&mut self.since, self.clock.elapsed());
        self.since.saturating_sub(from).as_secs_f64()
    }

    /// Hands over what was counted so far.
    pub(super) fn take(&mut self) -> StageTimes {
        self.stages.engine_busy_secs += self.lap();
        std::mem::take(self.stages)
    }

    /// Waits for posts.
    pub(super) fn idle<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.stages.engine_busy_secs += self.lap();
        let came = wait();
        self.stages.engine_idle_secs += self.lap();
        came
    }

    /// Hands something to the writer.
    pub(super) fn told(&mut self, tell: impl FnOnce()) {
        self.stages.engine_busy_secs += self.lap();
        tell();
        self.stages.engine_blocked_secs += self.lap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::clock::ManualClock;

    #[test]
    fn every_moment_of_the_engine_is_counted_once() {
        let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
        let clock: SharedClock = manual.clone();
        let mut stages = StageTimes::default();
        let mut watched = Watched::new(&clock, &mut stages);
        let pass = |secs| manual.advance(Duration::from_secs(secs));
        watched.idle(|| pass(2));
        pass(40);
        watched.told(|| pass(3));
        pass(50);
        watched.told(|| pass(4));
        watched.idle(|| pass(1));
        assert_eq!(
            stages,
            StageTimes {
                engine_busy_secs: 90.0,
                engine_idle_secs: 3.0,
                engine_blocked_secs: 7.0,
                ..StageTimes::default()
            }
        );
        let mut watched = Watched::new(&clock, &mut stages);
        pass(5);
        let taken = watched.take();
        let seconds = |of: &StageTimes| (of.engine_busy_secs, of.engine_idle_secs);
        assert_eq!(seconds(&taken), (95.0, 3.0));
        watched.idle(|| pass(1));
        assert_eq!(seconds(&stages), (0.0, 1.0));
    }
}
