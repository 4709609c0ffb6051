//! Where the time of a run goes: the engine's thread is watched, the other tasks count what they wait for.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::SharedClock;

/// Share of the time that an engine may wait for posts and still be what limits the run.
const BUSY: f64 = 0.03;

/// Seconds, summed over the engines of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stages {
    /// Computing.
    pub engine_busy_secs: f64,
    /// Waiting for posts, the first and the last time included.
    pub engine_idle_secs: f64,
    /// Waiting for the writer.
    pub engine_blocked_secs: f64,
    /// Claiming posts. This and what follows happens while the engine computes.
    pub claim_secs: f64,
    /// Looking up what is known of the texts claimed.
    pub look_up_secs: f64,
    /// Picking labels for a shortlist.
    pub shortlist_secs: f64,
    /// Tokenising.
    pub tokenize_secs: f64,
    /// Writing labels.
    pub write_secs: f64,
}

impl Stages {
    /// Adds what another lane spent.
    pub(super) fn add(&mut self, other: &Self) {
        self.engine_busy_secs += other.engine_busy_secs;
        self.engine_idle_secs += other.engine_idle_secs;
        self.engine_blocked_secs += other.engine_blocked_secs;
        self.claim_secs += other.claim_secs;
        self.look_up_secs += other.look_up_secs;
        self.shortlist_secs += other.shortlist_secs;
        self.tokenize_secs += other.tokenize_secs;
        self.write_secs += other.write_secs;
    }

    /// Share of the engine's time in which it waited for posts, and for the writer; `None` where it had none.
    pub fn waiting(&self) -> Option<(f64, f64)> {
        let all = self.engine_busy_secs + self.engine_idle_secs + self.engine_blocked_secs;
        (all > 0.0).then(|| (self.engine_idle_secs / all, self.engine_blocked_secs / all))
    }

    /// What limits the run; `None` where nothing was computed.
    pub fn slow(&self) -> Option<Slow> {
        let (idle, blocked) = self.waiting()?;
        let before = [
            (self.claim_secs + self.look_up_secs, Slow::Reading),
            (self.shortlist_secs, Slow::Shortlist),
            (self.tokenize_secs, Slow::Tokenizer),
        ];
        let slowest = before
            .into_iter()
            .reduce(|a, b| if b.0 > a.0 { b } else { a });
        Some(if idle <= BUSY && blocked <= BUSY {
            Slow::Model
        } else if blocked > idle {
            Slow::Writing
        } else {
            slowest?.1
        })
    }
}

/// What limits a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Slow {
    /// The engine never waits.
    Model,
    /// The engine never waits, but its GPU does: batches are made ready. Stages alone do not tell.
    Batches,
    /// Claiming posts and looking up what is known of them.
    Reading,
    /// Picking labels with the small model.
    Shortlist,
    /// Tokenising.
    Tokenizer,
    /// Writing labels.
    Writing,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "the model",
            Self::Batches => "making batches ready for the GPU",
            Self::Reading => "reading the database",
            Self::Shortlist => "the shortlist's model",
            Self::Tokenizer => "the tokenizer",
            Self::Writing => "writing the database",
        })
    }
}

/// The watch over an engine's thread.
pub(super) struct Watched<'a> {
    clock: &'a SharedClock,
    stages: &'a mut Stages,
    /// Until here every moment is accounted for.
    since: Duration,
}

impl<'a> Watched<'a> {
    pub(super) fn new(clock: &'a SharedClock, stages: &'a mut Stages) -> Self {
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
    use crate::clock::ManualClock;

    #[test]
    fn every_moment_of_the_engine_is_counted_once() {
        let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
        let clock: SharedClock = manual.clone();
        let mut stages = Stages::default();
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
            Stages {
                engine_busy_secs: 90.0,
                engine_idle_secs: 3.0,
                engine_blocked_secs: 7.0,
                ..Stages::default()
            }
        );
        assert_eq!(stages.waiting(), Some((0.03, 0.07)));
        assert_eq!(stages.slow(), Some(Slow::Writing));
    }

    #[test]
    fn the_bottleneck_is_what_the_engine_waits_for() {
        let stages = |busy, idle, claim, tokenize| Stages {
            engine_busy_secs: busy,
            engine_idle_secs: idle,
            claim_secs: claim,
            tokenize_secs: tokenize,
            ..Stages::default()
        };
        assert_eq!(stages(99.0, 1.0, 50.0, 9.0).slow(), Some(Slow::Model));
        assert_eq!(stages(50.0, 50.0, 40.0, 9.0).slow(), Some(Slow::Reading));
        assert_eq!(stages(50.0, 50.0, 9.0, 40.0).slow(), Some(Slow::Tokenizer));
        let picking = Stages {
            shortlist_secs: 50.0,
            ..stages(50.0, 50.0, 9.0, 40.0)
        };
        assert_eq!(picking.slow(), Some(Slow::Shortlist));
        assert_eq!(Stages::default().slow(), None);
    }
}
