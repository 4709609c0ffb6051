//! How long batches took, as counts: what it takes does not grow with the run.

use std::time::Duration;

/// How many durations fell where.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BatchTimes {
    /// Those no longer than each of [`Self::BOUNDS`] and longer than the one before; the last place has the rest.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// All of them together, in seconds.
    pub seconds: f64,
}

impl BatchTimes {
    /// Upper ends in seconds: a batch takes 5 ms on a GPU with a small model, and half a minute on a CPU with a large one.
    pub const BOUNDS: [f64; 12] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ];

    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[place.unwrap_or(Self::BOUNDS.len())] += 1;
        self.seconds += seconds;
    }

    /// Adds those that another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.seconds += other.seconds;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_where_it_belongs() {
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
