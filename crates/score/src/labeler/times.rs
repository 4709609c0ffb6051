//! Histogram of batch durations, in constant memory.

use std::time::Duration;

/// Histogram of durations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BatchTimes {
    /// Counts per bucket. A bucket ends at its bound in [`Self::BOUNDS`]; the last bucket has no bound.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations, in seconds.
    pub seconds: f64,
}

impl BatchTimes {
    /// Upper bounds in seconds. A batch takes about 5 ms with a small model on a GPU, and up to half a minute with a
    /// large one on a CPU.
    pub const BOUNDS: [f64; 12] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ];

    /// Adds a duration.
    pub fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[place.unwrap_or(Self::BOUNDS.len())] += 1;
        self.seconds += seconds;
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.seconds += other.seconds;
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_their_bucket() {
        let mut times = BatchTimes::default();
        for millis in [1, 5, 6, 31_000] {
            times.add(Duration::from_millis(millis));
        }
        assert_eq!(
            (times.counts[0], times.counts[1], times.counts[12]),
            (2, 1, 1)
        );
        let mut both = times;
        both.merge(&times);
        assert_eq!(both.count(), 8);
        assert!((both.seconds - 62.024).abs() < 1e-9);
    }
}
