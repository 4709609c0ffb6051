//! How two labellings of the same posts differ. Pure: counts of (label, label) go in, agreement comes out.

use std::collections::BTreeMap;

/// What a post has under a labelling: a slug, or none of these.
pub type LabelVerdict = Option<String>;

/// Posts counted by their verdicts under two labellings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    counts: BTreeMap<(LabelVerdict, LabelVerdict), u64>,
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
    /// Counts posts with these verdicts.
    pub fn add(&mut self, from: LabelVerdict, to: LabelVerdict, posts: u64) {
        *self.counts.entry((from, to)).or_default() += posts;
    }

    /// Posts that were compared.
    pub fn posts(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Posts with the same verdict in both.
    pub fn same(&self) -> u64 {
        let same = self.counts.iter().filter(|((from, to), _)| from == to);
        same.map(|(_, posts)| posts).sum()
    }

    /// Posts with another verdict.
    pub fn moved(&self) -> u64 {
        self.posts() - self.same()
    }

    /// Posts of which the first labelling, or the second, says none of these.
    pub fn abstained(&self) -> (u64, u64) {
        let count = |is: fn(&(LabelVerdict, LabelVerdict)) -> bool| {
            let some = self.counts.iter().filter(|(verdicts, _)| is(verdicts));
            some.map(|(_, posts)| posts).sum()
        };
        (
            count(|(from, _)| from.is_none()),
            count(|(_, to)| to.is_none()),
        )
    }

    /// Share of posts with the same verdict; `None` of no posts.
    pub fn agreement(&self) -> Option<f64> {
        (self.posts() > 0).then(|| float(self.same()) / float(self.posts()))
    }

    /// Cohen's kappa: agreement beyond what two labellings with these shares would have by chance; 1 is always
    /// the same, 0 is chance. `None` where chance alone agrees always.
    pub fn kappa(&self) -> Option<f64> {
        let observed = self.agreement()?;
        let mut shares: BTreeMap<&LabelVerdict, (f64, f64)> = BTreeMap::new();
        for ((from, to), posts) in &self.counts {
            shares.entry(from).or_default().0 += float(*posts);
            shares.entry(to).or_default().1 += float(*posts);
        }
        let all = float(self.posts());
        let chance: f64 = shares.values().map(|(a, b)| a * b / (all * all)).sum();
        // Where both give one label to all posts, agreement beyond chance has no meaning.
        (chance < 1.0).then(|| (observed - chance) / (1.0 - chance))
    }

    /// The moves from one verdict to another, the most frequent first.
    pub fn biggest(&self) -> Vec<(&LabelVerdict, &LabelVerdict, u64)> {
        let moves = self.counts.iter().filter(|((from, to), _)| from != to);
        let mut moves: Vec<_> = moves.map(|((from, to), n)| (from, to, *n)).collect();
        moves.sort_by_key(|one| std::cmp::Reverse(one.2));
        moves
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of posts")]
fn float(n: u64) -> f64 {
    n as f64
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
    fn agreement_and_kappa_are_cohens() {
        // The textbook's 2 × 2: 20 and 15 the same of 50, shares 0.5 × 0.6 and 0.5 × 0.4, so chance is 0.5.
        let moves = moves(&[
            ("a", "a", 20),
            ("a", "b", 5),
            ("b", "a", 10),
            ("b", "b", 15),
        ]);
        assert_eq!((moves.posts(), moves.same(), moves.moved()), (50, 35, 15));
        assert!((moves.agreement().unwrap() - 0.7).abs() < 1e-12);
        assert!((moves.kappa().unwrap() - 0.4).abs() < 1e-12);
        let biggest = moves.biggest();
        assert_eq!(biggest[0].2, 10);
        assert_eq!(biggest.len(), 2);
    }

    #[test]
    fn none_of_these_is_a_verdict_like_any_other() {
        let moves = moves(&[("", "", 3), ("", "a", 2), ("a", "", 1), ("a", "a", 4)]);
        assert_eq!((moves.posts(), moves.same()), (10, 7));
        assert_eq!(moves.abstained(), (5, 4));
        assert_eq!(moves.biggest()[0], (&None, &Some("a".to_owned()), 2));
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        assert_eq!(moves(&[]).agreement(), None);
        assert_eq!(moves(&[("a", "a", 5)]).kappa(), None);
    }
}
