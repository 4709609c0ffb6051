//! Estimates the shares of labels in groups of posts, such as subreddits or months, and compares the groups.
//!
//! A group's random answers are a random sample of the group, so its shares are estimated as those of all posts are.
//! The answers of two groups are different ones, so the estimates are independent.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{ENOUGH_ANSWERS, Frame, SampledPost};
use crate::change::{difference_of_estimates, holm};
use crate::evaluate::Estimate;
use topicmill_core::{Fullname, LabelSet, ThingKind, Timestamp};
use topicmill_store::{FrameCell, Grouping, Store, StoreError, Target};

/// A label's shares of the posts of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupShare {
    /// The assigned share.
    pub assigned: f64,
    /// The estimated share, if the group has enough answers.
    pub estimated: Option<Estimate>,
}

impl GroupShare {
    /// Returns true if neither the model nor, by the estimate, an annotator gave the label to a post.
    fn is_absent(&self) -> bool {
        self.assigned == 0.0 && self.estimated.is_some_and(|share| share.value == Some(0.0))
    }
}

/// The labels of a group of posts.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupShares {
    /// The group; `None` for posts without a value.
    pub group: Option<String>,
    /// Number of labelled posts that the shares speak of.
    pub posts: u64,
    /// Number of random answers about these posts.
    pub answers: usize,
    /// The shares of each label, then of no label.
    pub shares: Vec<GroupShare>,
}

/// The difference of a label's estimated share between two groups.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupDifference {
    /// Position of the label; the number of labels for no label.
    pub label: usize,
    /// Position of the first group.
    pub first: usize,
    /// Position of the second group.
    pub second: usize,
    /// Share in the second group minus share in the first.
    pub difference: Estimate,
    /// Two-sided p-value.
    pub p: f64,
    /// The p-value, corrected for the number of differences (Holm).
    pub p_holm: f64,
}

impl Frame {
    /// Returns the shares of labels in each group of the posts that the estimate speaks of: months in order, and other
    /// groups by their number of posts.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub(crate) async fn groups(
        &self,
        store: &Store,
        target: Target,
        set: &LabelSet,
        by: Grouping,
        kind: ThingKind,
        sample: &[SampledPost<'_>],
    ) -> Result<Vec<GroupShares>, StoreError> {
        let cells = self.count(store, (target, kind), Some(by), None).await?;
        let posts: Vec<Fullname> = sample.iter().map(|post| post.fullname.clone()).collect();
        let group_of = store.gold().groups(by, &posts).await?;
        let mut groups = self.shares_of_groups(set, cells, &group_of, sample);
        if !by.is_of_time() {
            groups.sort_by_key(|group| std::cmp::Reverse(group.posts));
        }
        Ok(groups)
    }

    fn shares_of_groups(
        &self,
        set: &LabelSet,
        cells: Vec<FrameCell>,
        group_of: &HashMap<Fullname, Option<String>>,
        sample: &[SampledPost<'_>],
    ) -> Vec<GroupShares> {
        let mut groups: BTreeMap<Option<String>, GroupPosts<'_>> = BTreeMap::new();
        for cell in cells.into_iter().filter(|cell| self.covered[cell.wave]) {
            let group = groups.entry(cell.group.clone()).or_default();
            group.cells.push(cell);
        }
        for post in sample {
            let group = group_of.get(post.fullname);
            let group = group.and_then(|group| groups.get_mut(group));
            if let (Some(group), Some(stored_at)) = (group, self.stored_at.get(post.fullname)) {
                group.stored_at.insert(post.fullname.clone(), *stored_at);
                group.sample.push(*post);
            }
        }
        let groups = groups.into_iter();
        groups
            .map(|(name, posts)| self.shares_of_group(set, name, posts))
            .collect()
    }

    /// Estimates the shares in a group from its own frame.
    fn shares_of_group(
        &self,
        set: &LabelSet,
        group: Option<String>,
        posts: GroupPosts<'_>,
    ) -> GroupShares {
        let frame = Self {
            cuts: self.cuts.clone(),
            covered: self.covered.clone(),
            stored_at: posts.stored_at,
            cells: posts.cells,
            ..Self::default()
        };
        let answers = posts.sample.len();
        let shares = frame.label_shares(set, &posts.sample).into_iter();
        GroupShares {
            group,
            posts: frame.cells.iter().map(|cell| cell.posts).sum(),
            answers,
            shares: shares
                .map(|share| GroupShare {
                    assigned: share.assigned,
                    estimated: (answers >= ENOUGH_ANSWERS).then_some(share.estimated),
                })
                .collect(),
        }
    }
}

/// The posts of a group.
#[derive(Default)]
struct GroupPosts<'a> {
    cells: Vec<FrameCell>,
    /// Time when each sampled post was first stored.
    stored_at: HashMap<Fullname, Timestamp>,
    sample: Vec<SampledPost<'a>>,
}

/// Compares each label's estimated shares between all pairs of groups. The p-values are corrected for all of these
/// comparisons. A label that neither the model nor an annotator gave to a post of two groups is not compared.
pub fn group_differences(groups: &[GroupShares]) -> Vec<GroupDifference> {
    let mut differences = Vec::new();
    for (first, group) in groups.iter().enumerate() {
        for (second, other) in groups.iter().enumerate().skip(first + 1) {
            for (label, (a, b)) in group.shares.iter().zip(&other.shares).enumerate() {
                let (Some(share_a), Some(share_b)) = (&a.estimated, &b.estimated) else {
                    continue;
                };
                if a.is_absent() && b.is_absent() {
                    continue;
                }
                if let Some(tested) = difference_of_estimates(share_a, share_b) {
                    differences.push(GroupDifference {
                        label,
                        first,
                        second,
                        difference: tested.difference,
                        p: tested.p,
                        p_holm: tested.p,
                    });
                }
            }
        }
    }
    let p_values: Vec<f64> = differences.iter().map(|one| one.p).collect();
    for (one, corrected) in differences.iter_mut().zip(holm(&p_values)) {
        one.p_holm = corrected;
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{EvaluatedPost, SampledPart, estimate_shares};
    use crate::float;
    use topicmill_core::{Label, Mode};

    /// Simulates random answers about two groups with 1,000 posts each, and returns how often the intervals of shares and
    /// of the difference contain the true ones, at the least, how often any label differs significantly, and how often
    /// the first does.
    fn simulate(answers: usize, shares: [[f64; 4]; 2]) -> (f64, f64, f64) {
        let mut random = fastrand::Rng::with_seed(3);
        let mut draw = |shares: &[f64; 4]| {
            let mut level = random.f64();
            let place = shares.iter().position(|share| {
                level -= share;
                level < 0.0
            });
            let right = place.unwrap_or(3);
            // Seven in ten labels are right.
            let given = if random.f64() < 0.7 {
                right
            } else {
                random.usize(..4)
            };
            (right, given)
        };
        let pools = shares.map(|shares| {
            std::iter::repeat_with(|| draw(&shares))
                .take(1_000)
                .collect::<Vec<_>>()
        });
        let mut random = fastrand::Rng::with_seed(4);
        let runs = 300;
        let (mut covered, mut shares_covered, mut any, mut of_first) = (0, 0, 0, 0);
        for _ in 0..runs {
            let groups = pools.each_ref().map(|pool| {
                let sample = random.choose_multiple(pool, answers);
                let rows: Vec<EvaluatedPost> = sample
                    .into_iter()
                    .map(|(right, given)| EvaluatedPost {
                        right: vec![*right],
                        ties: Vec::new(),
                        best: *given,
                        score: 0.5,
                        abstained: false,
                        weight: 1.0,
                    })
                    .collect();
                let share = |label| float(pool.iter().filter(|post| post.1 == label).count()) / 1e3;
                let assigned: Vec<f64> = (0..4).map(share).chain([0.0]).collect();
                let part = SampledPart {
                    share: 1.0,
                    assigned: assigned.clone(),
                    rows: rows.iter().collect(),
                };
                let estimates = estimate_shares(&[part]);
                let shares = assigned.into_iter().zip(estimates.into_iter().map(Some));
                let share = |(assigned, estimated)| GroupShare {
                    assigned,
                    estimated,
                };
                GroupShares {
                    group: None,
                    posts: 1_000,
                    answers,
                    shares: shares.map(share).collect(),
                }
            });
            let found = group_differences(&groups);
            assert_eq!(found.len(), 4, "nobody gave no label");
            for one in &found {
                let truth = |group: usize| {
                    let right = pools[group].iter().filter(|post| post.0 == one.label);
                    float(right.count()) / 1e3
                };
                for (group, shares) in groups.iter().enumerate() {
                    let share = shares.shares[one.label].estimated.unwrap();
                    let is_covered = share.low <= truth(group) && truth(group) <= share.high;
                    shares_covered += usize::from(is_covered);
                }
                let truth = truth(1) - truth(0);
                covered += usize::from(one.difference.low <= truth && truth <= one.difference.high);
            }
            any += usize::from(found.iter().any(|one| one.p_holm < 0.05));
            of_first += usize::from(found[0].p_holm < 0.05);
        }
        (
            (float(covered) / float(4 * runs)).min(float(shares_covered) / float(8 * runs)),
            float(any) / float(runs),
            float(of_first) / float(runs),
        )
    }

    #[test]
    fn differences_of_groups_are_covered_and_rarely_false() {
        let same = [0.4, 0.3, 0.2, 0.1];
        let (covered, any, _) = simulate(40, [same, same]);
        assert!(covered >= 0.93 && any <= 0.07, "{covered} {any}");
        let (covered, _, of_first) = simulate(100, [same, [0.1, 0.3, 0.2, 0.4]]);
        assert!(covered >= 0.93 && of_first > 0.9, "{covered} {of_first}");
    }

    /// Labels 210 posts of two groups in two waves, in each of which 30 random posts were answered: 54 in `a`, and 6 in
    /// `b`. In the early wave, the right label is `x` for none; in the later one, for all.
    fn shares_of_two_groups() -> Vec<GroupShares> {
        let cell = |wave, group: &str, label: Option<&str>, posts| FrameCell {
            wave,
            subreddit: group.to_owned(),
            topic: None,
            group: Some(group.to_owned()),
            label: label.map(str::to_owned),
            posts,
        };
        let cells = vec![
            cell(0, "a", Some("x"), 60),
            cell(0, "a", None, 40),
            cell(1, "a", Some("x"), 100),
            cell(0, "b", Some("x"), 10),
            // The third wave is not covered by the frame.
            cell(2, "b", None, 99),
        ];
        let at = |day: i64| Timestamp::from_epoch_secs(day * 86_400).unwrap();
        let post = |id: usize| -> Fullname { format!("t3_k{id:04}").parse().unwrap() };
        let posts: Vec<Fullname> = (0..60).map(post).collect();
        let stored = (0..60).map(|id| (post(id), at(if id < 30 { 1 } else { 6 })));
        let frame = Frame {
            cuts: vec![at(5), at(9)],
            stored_at: stored.collect(),
            covered: vec![true, true, false],
            ..Frame::default()
        };
        let set = LabelSet {
            name: "one".into(),
            template: "{}".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: vec![Label {
                slug: "x".into(),
                label: "x".into(),
                descriptions: Vec::new(),
            }],
            background: None,
            fitted: None,
        };
        let row = |id: usize| EvaluatedPost {
            right: if id < 30 { vec![] } else { vec![0] },
            ties: Vec::new(),
            best: 0,
            score: 0.5,
            abstained: false,
            weight: 1.0,
        };
        let rows: Vec<EvaluatedPost> = (0..60).map(row).collect();
        let group_of = |id: usize| Some(if id.is_multiple_of(10) { "b" } else { "a" }.to_owned());
        let group_of = (0..60).map(|id| (post(id), group_of(id))).collect();
        let pairs = posts.iter().zip(&rows);
        let sample: Vec<_> = pairs
            .map(|(fullname, row)| SampledPost { fullname, row })
            .collect();
        frame.shares_of_groups(&set, cells, &group_of, &sample)
    }

    #[test]
    fn a_group_has_its_own_frame() {
        let found = shares_of_two_groups();
        let sizes: Vec<_> = found.iter().map(|one| (one.posts, one.answers)).collect();
        assert_eq!(sizes, [(200, 54), (10, 6)]);
        // The early wave is half of the group, with 60 % x assigned.
        let share = found[0].shares[0];
        assert!((share.assigned - 0.8).abs() < 1e-12);
        let estimated = share.estimated.unwrap();
        let off = estimated.value.unwrap() - 0.5;
        assert!(off.abs() < 1e-12, "{estimated:?}");
    }

    #[test]
    fn a_group_with_too_few_answers_has_no_estimate_and_is_not_compared() {
        let found = shares_of_two_groups();
        let assigned = |assigned| GroupShare {
            assigned,
            estimated: None,
        };
        assert_eq!(found[1].shares, [assigned(1.0), assigned(0.0)]);
        assert!(group_differences(&found).is_empty());
    }
}
