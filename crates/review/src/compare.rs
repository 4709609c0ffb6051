//! How two labellings of the same posts differ: which posts move, and how far the two agree. No model runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rescore::Rescorer;
use topicmill_core::Fullname;
use topicmill_store::{ComparedPost, Prediction, Store, StoreError, Target};

/// Posts that are read at a time.
const WINDOW: u32 = 1_000;

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
    pub fn add(&mut self, from: LabelVerdict, to: LabelVerdict, posts: u64) {
        *self.counts.entry((from, to)).or_default() += posts;
    }

    pub fn posts(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn same(&self) -> u64 {
        let same = self.counts.iter().filter(|((from, to), _)| from == to);
        same.map(|(_, posts)| posts).sum()
    }

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

    /// Proportion of posts with the same verdict; `None` of no posts.
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
    pub fn largest(&self) -> Vec<(&LabelVerdict, &LabelVerdict, u64)> {
        let moves = self.counts.iter().filter(|((from, to), _)| from != to);
        let mut moves: Vec<_> = moves.map(|((from, to), n)| (from, to, *n)).collect();
        moves.sort_by_key(|one| std::cmp::Reverse(one.2));
        moves
    }
}

/// Where the labels of a labelling come from: stored ones, and where a post has none, what is known of its text.
#[derive(Debug)]
pub struct LabelSource<'a> {
    pub stored: Option<Target>,
    /// What makes labels without inference.
    pub rescorer: Option<Rescorer<'a>>,
}

/// How two labellings compare.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    pub posts: u64,
    /// Posts that have no label under the first or the second, and would need inference.
    pub unlabelled: [u64; 2],
    pub moves: Moves,
    /// The moves with the highest scores in the second.
    pub examples: Vec<MovedPost>,
}

/// A post that moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedPost {
    pub fullname: Fullname,
    pub title: String,
    pub from: LabelVerdict,
    pub to: LabelVerdict,
    pub score: f64,
}

/// Compares two labellings of all posts, keeping `examples` of those that move; `progress` is told how many more were
/// looked at.
///
/// # Errors
/// When the database cannot be read: see [`StoreError`].
pub async fn compare(
    store: &Store,
    labels: &[LabelSource<'_>; 2],
    examples: usize,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Comparison, StoreError> {
    let targets = [labels[0].stored, labels[1].stored];
    let mut compared = Comparison::default();
    let mut after = String::new();
    while !stop() {
        let mut posts = store
            .labels()
            .compared_posts(targets, &after, WINDOW)
            .await?;
        let Some(last) = posts.last() else { break };
        after = last.fullname.to_string();
        progress(posts.len() as u64);
        for (side, labels) in labels.iter().enumerate() {
            if let Some(known) = &labels.rescorer {
                let unlabelled = posts.iter().filter(|post| post.labels[side].is_none());
                let texts = unlabelled.map(|post| post.text_hash).collect();
                let made = known.labels(store, texts).await?;
                for post in &mut posts {
                    let label = &mut post.labels[side];
                    *label = label.take().or_else(|| made.get(&post.text_hash).cloned());
                }
            }
        }
        for post in posts {
            compared.add(post);
        }
        let surest = |a: &MovedPost, b: &MovedPost| {
            let by_name = a.fullname.cmp(&b.fullname);
            b.score.total_cmp(&a.score).then(by_name)
        };
        compared.examples.sort_by(surest);
        compared.examples.truncate(examples);
    }
    Ok(compared)
}

impl Comparison {
    fn add(&mut self, post: ComparedPost) {
        self.posts += 1;
        for (unlabelled, label) in self.unlabelled.iter_mut().zip(&post.labels) {
            *unlabelled += u64::from(label.is_none());
        }
        let [Some(from), Some(to)] = post.labels else {
            return;
        };
        let verdict = |of: Prediction| (!of.abstained).then_some(of.label);
        let score = to.score;
        let (from, to) = (verdict(from), verdict(to));
        self.moves.add(from.clone(), to.clone(), 1);
        if from != to {
            self.examples.push(MovedPost {
                fullname: post.fullname,
                title: post.title,
                from,
                to,
                score,
            });
        }
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
        let largest = moves.largest();
        assert_eq!(largest[0].2, 10);
        assert_eq!(largest.len(), 2);
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        assert_eq!(moves(&[]).agreement(), None);
        assert_eq!(moves(&[("a", "a", 5)]).kappa(), None);
    }
}
