//! Counts the posts that move between labels, and measures the agreement of two label runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::as_f64;

/// The outcome of a post: the slug of its label, or `None` for an abstention.
pub type LabelVerdict = Option<String>;

/// Counts of posts by their outcomes in two label runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    counts: BTreeMap<(LabelVerdict, LabelVerdict), u64>,
}

/// A move between two different outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Move<'m> {
    /// Outcome in the first run.
    pub from: &'m LabelVerdict,
    /// Outcome in the second run.
    pub to: &'m LabelVerdict,
    /// Number of posts.
    pub posts: u64,
}

impl FromIterator<(LabelVerdict, LabelVerdict, u64)> for Moves {
    fn from_iter<I: IntoIterator<Item = (LabelVerdict, LabelVerdict, u64)>>(counts: I) -> Self {
        let mut moves = Self::default();
        for (from, to, posts) in counts {
            moves.add(from, to, posts);
        }
        moves
    }
}

impl Moves {
    /// Adds posts with these outcomes.
    pub(super) fn add(&mut self, from: LabelVerdict, to: LabelVerdict, posts: u64) {
        *self.counts.entry((from, to)).or_default() += posts;
    }

    /// Returns the number of posts.
    pub fn posts(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of posts with the same outcome in both runs.
    pub fn same(&self) -> u64 {
        let same = self.counts.iter().filter(|((from, to), _)| from == to);
        same.map(|(_, posts)| posts).sum()
    }

    /// Returns the number of posts with different outcomes.
    pub fn moved(&self) -> u64 {
        self.posts() - self.same()
    }

    /// Returns the number of abstentions in the first and in the second run.
    pub fn abstained(&self) -> [u64; 2] {
        let mut abstained = [0; 2];
        for ((from, to), posts) in &self.counts {
            abstained[0] += if from.is_none() { *posts } else { 0 };
            abstained[1] += if to.is_none() { *posts } else { 0 };
        }
        abstained
    }

    /// Returns the share of posts with the same outcome; `None` without posts.
    pub fn agreement(&self) -> Option<f64> {
        (self.posts() > 0).then(|| as_f64(self.same()) / as_f64(self.posts()))
    }

    /// Returns Cohen's kappa, which corrects agreement for chance: 1 is perfect agreement, 0 is chance. `None` if both
    /// runs give every post the same single label.
    pub fn kappa(&self) -> Option<f64> {
        kappa(self.counts.iter().map(|((from, to), n)| (from, to, *n)))
    }

    /// Returns the moves between outcomes, most frequent first.
    pub fn largest(&self) -> Vec<Move<'_>> {
        let counts = self.counts.iter().filter(|((from, to), _)| from != to);
        let moves = counts.map(|((from, to), &posts)| Move { from, to, posts });
        let mut moves: Vec<Move<'_>> = moves.collect();
        moves.sort_by_key(|one| Reverse(one.posts));
        moves
    }
}

/// Returns Cohen's kappa for pairs of labels with their counts; `None` if there are no pairs or all labels are the
/// same.
pub(crate) fn kappa<'a, T: Ord + 'a>(
    pairs: impl Iterator<Item = (&'a T, &'a T, u64)>,
) -> Option<f64> {
    let mut shares: BTreeMap<&T, (f64, f64)> = BTreeMap::new();
    let (mut all, mut same) = (0.0, 0.0);
    for (a, b, posts) in pairs {
        shares.entry(a).or_default().0 += as_f64(posts);
        shares.entry(b).or_default().1 += as_f64(posts);
        all += as_f64(posts);
        same += if a == b { as_f64(posts) } else { 0.0 };
    }
    let chance: f64 = shares.values().map(|(a, b)| a * b / (all * all)).sum();
    (all > 0.0 && chance < 1.0).then(|| (same / all - chance) / (1.0 - chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(of: &[(&str, &str, u64)]) -> Moves {
        let verdict = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut moves = Moves::default();
        for (from, to, posts) in of {
            moves.add(verdict(from), verdict(to), *posts);
        }
        moves
    }

    #[test]
    fn kappa_matches_the_textbook_example() {
        // 35 of 50 posts agree; chance agreement is 0.5 × 0.6 + 0.5 × 0.4 = 0.5.
        let moves = moves(&[
            ("a", "a", 20),
            ("a", "b", 5),
            ("b", "a", 10),
            ("b", "b", 15),
        ]);
        assert_eq!((moves.posts(), moves.same(), moves.moved()), (50, 35, 15));
        assert!((moves.agreement().unwrap() - 0.7).abs() < 1e-12);
        assert!((moves.kappa().unwrap() - 0.4).abs() < 1e-12);
        let largest = moves.largest();
        assert_eq!(largest[0].posts, 10);
        assert_eq!(largest.len(), 2);
    }

    #[test]
    fn undefined_agreement_and_kappa_are_none() {
        assert_eq!(moves(&[]).agreement(), None);
        assert_eq!(moves(&[("a", "a", 5)]).kappa(), None);
    }
}
