//! Tests whether a sample's mix of subreddits, topics, labels and days is likely for a random sample.
//!
//! The p-value is that of the chi-square statistic, by Monte Carlo simulation (Hope, 1968, *Journal of the Royal
//! Statistical Society B* 30), because many subreddits are too rare for the chi-square distribution.

use std::collections::BTreeMap;

use crate::{as_f64, float};
use topicmill_store::FrameCell;

/// Number of simulated samples. The lowest p-value is one in this number plus one.
const SAMPLES: usize = 9_999;
/// Maximum number of simulated posts, so that a sample of many thousands takes seconds.
const MOST_DRAWS: usize = 20_000_000;
/// The fewest simulated samples. Their lowest p-value, 1/5,000, is still [unlikely](Mix::is_unlikely).
const FEWEST: usize = 4_999;
/// An arbitrary seed: the same sample has the same p-value.
const SEED: u64 = 13;
/// A sample with a lower p-value, corrected for the number of properties, is hardly random.
pub const UNLIKELY: f64 = 0.001;
/// Number of tested properties.
const PROPERTIES: usize = 4;
/// Tolerance for the rounding of equal sums.
const ROUNDING: f64 = 1e-9;

/// The test of a property's mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// The property: `subreddits`, `topics`, `labels` or `days of collection`.
    pub property: &'static str,
    /// The p-value.
    pub p: f64,
}

impl Mix {
    /// Returns true if a random sample hardly has this mix, even as the least likely of its mixes (Bonferroni).
    pub fn is_unlikely(&self) -> bool {
        float(PROPERTIES) * self.p < UNLIKELY
    }
}

/// Counts by wave and category: of all posts, and of the sample.
type Counts<'a> = BTreeMap<(usize, Option<&'a str>), (u64, u64)>;

/// Tests the mix of a sample, given the number of sampled posts in each wave. `frame` counts all posts, and `sample`
/// the sampled ones; their groups are days.
pub fn mixes(frame: &[FrameCell], sample: &[FrameCell]) -> Vec<Mix> {
    type Category = fn(&FrameCell) -> Option<&str>;
    let properties: [(&str, Category); PROPERTIES] = [
        ("subreddits", |cell| Some(&cell.subreddit)),
        ("topics", |cell| cell.topic.as_deref()),
        ("labels", |cell| cell.label.as_deref()),
        ("days of collection", |cell| cell.group.as_deref()),
    ];
    let mix = |(property, category): (&'static str, Category)| {
        let mut counts = Counts::new();
        for cell in frame {
            counts.entry((cell.wave, category(cell))).or_default().0 += cell.posts;
        }
        for cell in sample {
            counts.entry((cell.wave, category(cell))).or_default().1 += cell.posts;
        }
        Mix {
            property,
            p: p_value(&counts),
        }
    };
    properties.into_iter().map(mix).collect()
}

/// The posts of a wave by category, and the number of sampled ones.
#[derive(Default)]
struct Wave {
    sampled: u64,
    posts: u64,
    /// For each category, the posts up to and including it, and its position.
    cumulative: Vec<(u64, usize)>,
}

impl Wave {
    /// Returns the category of the post with this number, from 0.
    fn category_of(&self, post: u64) -> usize {
        let categories = &self.cumulative;
        categories[categories.partition_point(|(posts, _)| *posts <= post)].1
    }

    /// Adds the counts by category of a random sample of the same size.
    fn simulate(&self, random: &mut fastrand::Rng, counts: &mut [f64]) {
        if self.posts == 0 {
            return;
        }
        for _ in 0..self.sampled {
            counts[self.category_of(random.u64(..self.posts))] += 1.0;
        }
    }
}

/// Returns the Monte Carlo p-value of the chi-square statistic.
fn p_value(counts: &Counts<'_>) -> f64 {
    let mut categories: Vec<Option<&str>> = counts.keys().map(|(_, category)| *category).collect();
    categories.sort_unstable();
    categories.dedup();
    let place_of = |category| {
        let place = categories.binary_search(category);
        place.expect("a category from the counts")
    };
    let mut waves: BTreeMap<usize, Wave> = BTreeMap::new();
    for ((wave, category), (posts, sampled)) in counts {
        let wave = waves.entry(*wave).or_default();
        wave.posts += posts;
        wave.sampled += sampled;
        wave.cumulative.push((wave.posts, place_of(category)));
    }
    let mut expected = vec![0.0; categories.len()];
    let mut observed = expected.clone();
    for ((wave, category), (posts, sampled)) in counts {
        let (wave, place) = (&waves[wave], place_of(category));
        expected[place] += as_f64(*posts) * as_f64(wave.sampled) / as_f64(wave.posts).max(1.0);
        observed[place] += as_f64(*sampled);
    }
    let of_sample = chi_square(&observed, &expected);
    let draws: u64 = waves.values().map(|wave| wave.sampled).sum();
    let draws = usize::try_from(draws).unwrap_or(usize::MAX).max(1);
    let samples = (MOST_DRAWS / draws).clamp(FEWEST, SAMPLES);
    let mut random = fastrand::Rng::with_seed(SEED);
    let as_unlikely = (0..samples).filter(|_| {
        observed.fill(0.0);
        for wave in waves.values() {
            wave.simulate(&mut random, &mut observed);
        }
        chi_square(&observed, &expected) >= of_sample - ROUNDING
    });
    as_f64(as_unlikely.count() as u64 + 1) / as_f64(samples as u64 + 1)
}

/// Returns the sum of the squared differences, each divided by the expected count.
fn chi_square(observed: &[f64], expected: &[f64]) -> f64 {
    let pairs = observed.iter().zip(expected);
    let pairs = pairs.filter(|(_, expected)| **expected > 0.0);
    pairs
        .map(|(observed, expected)| (observed - expected).powi(2) / expected)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(counts: &[(usize, &str, u64)]) -> Vec<FrameCell> {
        let cell = |(wave, subreddit, posts): &(usize, &str, u64)| FrameCell {
            wave: *wave,
            subreddit: (*subreddit).to_owned(),
            topic: None,
            group: None,
            label: Some((*subreddit).to_owned()),
            posts: *posts,
        };
        counts.iter().map(cell).collect()
    }

    #[test]
    fn the_fewest_simulated_samples_can_reject_a_sample() {
        let (property, p) = ("labels", 1.0 / float(FEWEST + 1));
        assert!(Mix { property, p }.is_unlikely());
    }

    #[test]
    fn a_sample_of_one_subreddit_is_unlikely_and_a_random_one_is_not() {
        let frame = cells(&[(0, "a", 500), (0, "b", 300), (0, "c", 200)]);
        let p = |frame: &[FrameCell], sample: &[(usize, &str, u64)]| {
            let found = mixes(frame, &cells(sample));
            // All posts have the same topic, and each label is a subreddit's.
            assert!(found[1].p > 0.999 && found[0].p.to_bits() == found[2].p.to_bits());
            found[0].p
        };
        assert!(p(&frame, &[(0, "a", 60)]) < UNLIKELY);
        // Chi-square of (33, 15, 12) is 0.8 with two degrees of freedom: p = exp(-0.4).
        let likely = p(&frame, &[(0, "a", 33), (0, "b", 15), (0, "c", 12)]);
        assert!((likely - (-0.4f64).exp()).abs() < 0.03, "{likely}");
        // (40, 9, 11) has 7.92: p = exp(-3.96).
        let rare = p(&frame, &[(0, "a", 40), (0, "b", 9), (0, "c", 11)]);
        assert!((rare - (-3.96f64).exp()).abs() < 0.006, "{rare}");
        // More answers in a wave are no reason for doubt.
        let waves = cells(&[(0, "a", 900), (0, "b", 100), (1, "b", 100)]);
        assert!(p(&waves, &[(0, "a", 27), (0, "b", 3), (1, "b", 30)]) > 0.5);
    }
}
