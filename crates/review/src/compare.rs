//! Compares two label runs on the same posts: counts the posts that move between labels and measures agreement.
//!
//! Labels are read from the store or computed from stored logits; no model runs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::rescore::Rescorer;
use crate::as_f64;
use topicmill_core::{Fullname, Label, LabelSet};
use topicmill_store::{ComparedPost, Store, StoreError, Target};

/// Posts per page of a query.
const WINDOW: u32 = 1_000;

/// The outcome of a post: the slug of its label, or `None` for an abstention.
pub type LabelVerdict = Option<String>;

/// Counts of posts by their outcomes in two label runs.
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
    fn add(&mut self, from: LabelVerdict, to: LabelVerdict, posts: u64) {
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
    pub fn abstained(&self) -> (u64, u64) {
        let (mut before, mut after) = (0, 0);
        for ((from, to), posts) in &self.counts {
            before += if from.is_none() { *posts } else { 0 };
            after += if to.is_none() { *posts } else { 0 };
        }
        (before, after)
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

    /// Returns the moves between outcomes with their counts, most frequent first.
    pub fn largest(&self) -> Vec<(&LabelVerdict, &LabelVerdict, u64)> {
        let moves = self.counts.iter().filter(|((from, to), _)| from != to);
        let mut moves: Vec<_> = moves.map(|((from, to), n)| (from, to, *n)).collect();
        moves.sort_by_key(|(.., posts)| std::cmp::Reverse(*posts));
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

/// The labels of a run: stored labels and, for posts without one, labels computed from stored logits.
#[derive(Debug)]
pub struct LabelSource<'a> {
    /// The target of the stored labels.
    pub stored: Option<Target>,
    /// Computes labels for posts without a stored one.
    pub rescorer: Option<Rescorer<'a>>,
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Posts in the database, without those that have neither text nor label.
    pub posts: u64,
    /// Posts without a label in the first and in the second run; these need inference.
    pub unlabelled: [u64; 2],
    /// Counts of posts by their outcomes.
    pub moves: Moves,
    /// The posts that moved, with the highest scores in the second run first.
    pub examples: Vec<MovedPost>,
}

/// A post whose outcomes differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedPost {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// Title of the post.
    pub title: String,
    /// Outcome in the first run.
    pub from: LabelVerdict,
    /// Outcome in the second run.
    pub to: LabelVerdict,
    /// Score in the second run.
    pub score: f64,
}

/// Compares two label runs on all posts and keeps up to `examples` posts that moved. `stop` ends the comparison early;
/// `progress` is called with the number of posts in each page.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
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
        let page = store.labels().compared_posts(targets, &after, WINDOW);
        let mut posts = page.await?;
        let Some(last) = posts.last() else { break };
        after = last.fullname.to_string();
        progress(posts.len() as u64);
        for (side, labels) in labels.iter().enumerate() {
            if let Some(rescorer) = &labels.rescorer {
                let unlabelled = posts.iter().filter(|post| post.labels[side].is_none());
                let texts = unlabelled.map(|post| post.text_hash).collect();
                let computed = rescorer.labels(store, texts).await?;
                for post in &mut posts {
                    if post.labels[side].is_none() {
                        post.labels[side] = computed.get(&post.text_hash).cloned();
                    }
                }
            }
        }
        for post in posts {
            compared.add(post);
        }
        let by_score = |a: &MovedPost, b: &MovedPost| {
            let by_name = a.fullname.cmp(&b.fullname);
            b.score.total_cmp(&a.score).then(by_name)
        };
        compared.examples.sort_by(by_score);
        compared.examples.truncate(examples);
    }
    Ok(compared)
}

impl Comparison {
    /// Returns the counts, the moves and the examples as JSON.
    pub fn to_json(&self) -> Value {
        let moves = &self.moves;
        let (before, after) = moves.abstained();
        let largest = moves.largest().into_iter();
        let largest: Value = largest
            .map(|(from, to, posts)| json!({ "from": from, "to": to, "posts": posts }))
            .collect();
        json!({
            "posts": moves.posts(), "moved": moves.moved(), "agreement": moves.agreement(), "kappa": moves.kappa(),
            "none_of_these_before": before, "none_of_these_after": after, "looked_at": self.posts,
            "lacking": self.unlabelled, "moves": largest, "examples": self.examples,
        })
    }

    fn add(&mut self, post: ComparedPost) {
        // A post without text or label can never be labelled.
        if !post.has_text && post.labels.iter().all(Option::is_none) {
            return;
        }
        self.posts += 1;
        for (unlabelled, label) in self.unlabelled.iter_mut().zip(&post.labels) {
            *unlabelled += u64::from(label.is_none());
        }
        let [Some(from), Some(to)] = post.labels else {
            return;
        };
        let score = to.score;
        let [from, to] = [from, to].map(|label| (!label.abstained).then_some(label.label));
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

/// The kind of a difference between the labels of two label sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words say it")]
pub enum ChangeKind {
    Added,
    Changed,
    Moved,
    Removed,
}

/// A difference between the labels of two label sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelChange<'a> {
    /// The kind of the difference.
    pub change: ChangeKind,
    /// The slug of the label, which is in both sets unless it was added or removed.
    pub slug: &'a str,
    /// The label in the first set.
    pub a: Option<&'a Label>,
    /// The label in the second set.
    pub b: Option<&'a Label>,
}

/// Lists the labels that differ, matched by slug: the labels of `b` in their order, then the removed ones.
pub fn label_changes<'a>(a: &'a LabelSet, b: &'a LabelSet) -> Vec<LabelChange<'a>> {
    let find = |set: &'a LabelSet, slug: &str| set.labels.iter().find(|label| label.slug == slug);
    // The order breaks ties between equal scores. It is compared only among common labels, so that the labels after a
    // new label do not count as moved.
    let position = |set: &'a LabelSet, other: &'a LabelSet, slug: &str| {
        let labels = set.labels.iter();
        let mut common = labels.filter(|label| find(other, &label.slug).is_some());
        common.position(|label| label.slug == slug)
    };
    let mut changes = Vec::new();
    for label in &b.labels {
        let (slug, before) = (label.slug.as_str(), find(a, &label.slug));
        let change = match before {
            None => ChangeKind::Added,
            Some(before) if before != label => ChangeKind::Changed,
            Some(_) if position(a, b, slug) != position(b, a, slug) => ChangeKind::Moved,
            Some(_) => continue,
        };
        changes.push(LabelChange {
            change,
            slug,
            a: before,
            b: Some(label),
        });
    }
    for label in &a.labels {
        if find(b, &label.slug).is_none() {
            changes.push(LabelChange {
                change: ChangeKind::Removed,
                slug: &label.slug,
                a: Some(label),
                b: None,
            });
        }
    }
    changes
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
        assert_eq!(largest[0].2, 10);
        assert_eq!(largest.len(), 2);
    }

    #[test]
    fn labels_are_added_removed_changed_and_moved() {
        let set = |slugs: &str| {
            let label = |slug: &str| Label {
                slug: slug.to_lowercase(),
                label: slug.into(),
                descriptions: vec![],
            };
            LabelSet {
                name: "t".into(),
                template: "About {}.".into(),
                mode: topicmill_core::Mode::Single,
                threshold: 0.0,
                temperature: 1.0,
                labels: slugs.split_whitespace().map(label).collect(),
                background: None,
                fitted: None,
            }
        };
        let a = set("x y z");
        for (b, expected) in [
            ("x y z", ""),
            ("n x Z", "added n, changed z, removed y"),
            ("y x z", "moved y, moved x"),
        ] {
            let b = set(b);
            let changes = label_changes(&a, &b).into_iter();
            let described = changes.map(|label| format!("{:?} {}", label.change, label.slug));
            let described = described.collect::<Vec<_>>().join(", ");
            assert_eq!(described.to_lowercase(), expected);
        }
    }

    #[test]
    fn undefined_agreement_and_kappa_are_none() {
        assert_eq!(moves(&[]).agreement(), None);
        assert_eq!(moves(&[("a", "a", 5)]).kappa(), None);
    }
}
