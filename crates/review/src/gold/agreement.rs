//! Computes the agreement between annotators: Cohen's kappa for each pair (Cohen, 1960, *Educational and Psychological
//! Measurement* 20), and Krippendorff's alpha for all (Krippendorff, *Content Analysis*, 2004).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::kappa;
use crate::evaluate::intervals::bootstrap;
use crate::float;
use topicmill_core::Fullname;
use topicmill_store::StoredGold;

/// The agreement between two annotators on the posts that both have answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairAgreement {
    /// The two annotators' names, in alphabetical order.
    pub annotators: [String; 2],
    /// Number of posts that both have answered.
    pub posts: usize,
    /// Number of these posts with the same answer.
    pub same: usize,
    /// Cohen's kappa: 1 is perfect agreement, 0 is chance. `None` if both gave every post the same single answer.
    pub kappa: Option<f64>,
}

/// The agreement of all annotators, some of whom may have answered only some of the posts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Alpha {
    /// Krippendorff's alpha for nominal labels: 1 is perfect agreement, 0 is chance.
    pub value: f64,
    /// Lower bound of the 95 % bootstrap interval.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Number of posts with two or more answers.
    pub posts: usize,
}

/// The answers about a post: annotators and labels.
type Answers<'a> = Vec<(&'a str, Option<&'a str>)>;

/// Groups answers by post. Answers about an earlier version of a post's text are ignored.
fn by_post(answers: &[StoredGold]) -> Vec<Answers<'_>> {
    let mut posts: BTreeMap<&Fullname, Answers<'_>> = BTreeMap::new();
    for StoredGold { answer, .. } in answers.iter().filter(|gold| gold.is_of_present_text) {
        let label = (answer.annotator.as_str(), answer.label.as_deref());
        posts.entry(&answer.fullname).or_default().push(label);
    }
    posts.into_values().collect()
}

/// Returns Krippendorff's alpha; `None` if no post has two answers or all answers are the same. The interval is from
/// resampled posts.
pub fn alpha(answers: &[StoredGold]) -> Option<Alpha> {
    let mut posts = by_post(answers);
    posts.retain(|answers| answers.len() > 1);
    let all: Vec<usize> = (0..posts.len()).collect();
    let alpha = bootstrap(&[all], &|positions| {
        krippendorff(positions.iter().map(|position| &posts[*position]))
    });
    Some(Alpha {
        value: alpha.value?,
        low: alpha.low,
        high: alpha.high,
        posts: posts.len(),
    })
}

/// Returns alpha for posts with two or more answers: one minus the ratio of the observed to the expected number of
/// disagreeing pairs. `None` if no disagreement is expected.
fn krippendorff<'p>(posts: impl Iterator<Item = &'p Answers<'p>>) -> Option<f64> {
    let (mut counts, mut all) = (BTreeMap::<Option<&str>, f64>::new(), 0.0);
    let mut observed = 0.0;
    for answers in posts {
        // Each answer counts once, however many partners it has in the post.
        let partners = float(answers.len() - 1);
        for (_, label) in answers {
            *counts.entry(*label).or_default() += 1.0;
            all += 1.0;
            let disagreeing = answers.iter().filter(|(_, other)| other != label);
            observed += float(disagreeing.count()) / partners;
        }
    }
    let squares: f64 = counts.values().map(|count| count * count).sum();
    let expected = (all * all - squares) / (all - 1.0);
    (expected > 0.0).then(|| 1.0 - observed / expected)
}

/// Returns the agreement between each pair of annotators with a common post, with the pairs with the most posts first.
/// Answers about an earlier version of a post's text are ignored.
pub fn agreement(answers: &[StoredGold]) -> Vec<PairAgreement> {
    let mut pairs: BTreeMap<[&str; 2], Vec<[Option<&str>; 2]>> = BTreeMap::new();
    for mut answers in by_post(answers) {
        answers.sort_unstable();
        for (position, (a, label_of_a)) in answers.iter().enumerate() {
            for (b, label_of_b) in &answers[position + 1..] {
                let labels = pairs.entry([a, b]).or_default();
                labels.push([*label_of_a, *label_of_b]);
            }
        }
    }
    let mut agreements: Vec<PairAgreement> = pairs
        .into_iter()
        .map(|(names, labels)| PairAgreement {
            annotators: names.map(str::to_owned),
            posts: labels.len(),
            same: labels.iter().filter(|[a, b]| a == b).count(),
            kappa: kappa(labels.iter().map(|[a, b]| (a, b, 1))),
        })
        .collect();
    agreements.sort_by_key(|pair| std::cmp::Reverse(pair.posts));
    agreements
}

#[cfg(test)]
mod tests {
    use topicmill_core::{GoldSource, SampleReason, Timestamp};
    use topicmill_store::GoldAnswer;

    use super::*;

    fn stored(post: usize, annotator: &str, label: &str) -> StoredGold {
        StoredGold {
            answer: GoldAnswer {
                fullname: format!("t3_k{post}").parse().unwrap(),
                annotator: annotator.into(),
                label: Some(label.to_owned()).filter(|label| !label.is_empty()),
                label_set: None,
                chosen: SampleReason::Random,
                source: GoldSource::Review,
                answered_at: Timestamp::EPOCH,
                is_dated: true,
                text_hash: None,
                note: None,
            },
            in_random_sample: true,
            is_of_present_text: true,
            collected_at: Timestamp::EPOCH,
            created_at: Timestamp::EPOCH,
            text_purged_at: None,
        }
    }

    #[test]
    fn kappa_is_agreement_beyond_chance() {
        // 20 posts are `x` for both annotators, 15 for neither, 5 for `ada` only and 10 for `ben` only. The observed
        // agreement is 0.7; chance would give 0.5.
        let cells = [(20, "x", "x"), (5, "x", ""), (10, "", "x"), (15, "", "")];
        let pairs = cells.into_iter().flat_map(|(n, a, b)| vec![(a, b); n]);
        let mut answers: Vec<StoredGold> = pairs
            .enumerate()
            .flat_map(|(post, (a, b))| [stored(post, "ben", b), stored(post, "ada", a)])
            .collect();
        // Neither a post with one answer nor an answer about an earlier text counts.
        answers.push(stored(90, "ada", "x"));
        answers.push(StoredGold {
            is_of_present_text: false,
            ..stored(90, "ben", "y")
        });
        let [pair] = &agreement(&answers)[..] else {
            panic!("one pair");
        };
        assert_eq!(pair.annotators, ["ada", "ben"]);
        assert_eq!((pair.posts, pair.same), (50, 35));
        assert!((pair.kappa.unwrap() - 0.4).abs() < 1e-12, "{pair:?}");
    }

    #[test]
    fn alpha_equals_the_krippendorff_package() {
        // Three annotators, missing answers (`-`), and one post with a single answer.
        let table = [
            "xxy", "xx-", "yyy", "y-z", "zzz", "-zx", "x--", "xxx", "yyx", "zyz",
        ];
        let answers = |rows: &[&str]| -> Vec<StoredGold> {
            let of_post = |(post, labels): (usize, &&str)| {
                let answers = ["ada", "ben", "carl"].into_iter().zip(labels.chars());
                let answers = answers.filter(|(_, label)| *label != '-');
                let stored = answers.map(|(name, label)| stored(post, name, &label.to_string()));
                stored.collect::<Vec<_>>()
            };
            rows.iter().enumerate().flat_map(of_post).collect()
        };
        let found = alpha(&answers(&table)).unwrap();
        assert!((found.value - 0.397_905_759_162).abs() < 1e-9, "{found:?}");
        assert_eq!(found.posts, 9);
        let is_inside = found.low < found.value && found.value < found.high;
        assert!(is_inside, "{found:?}");
        let two = alpha(&answers(&["xy", "xx", "yy", "xy", "yx", "xx"])).unwrap();
        assert!((two.value - 0.057_142_857_143).abs() < 1e-9, "{two:?}");
        // Nothing to compare, and only one label.
        assert_eq!(alpha(&answers(&["x--", "-y-"])), None);
        assert_eq!(alpha(&answers(&["xx", "xxx"])), None);
    }

    #[test]
    fn constant_answers_have_no_kappa_and_pairs_are_sorted_by_posts() {
        let mut answers = vec![stored(1, "ada", "x"), stored(1, "ben", "x")];
        answers
            .extend((2..5).flat_map(|post| [stored(post, "ben", "x"), stored(post, "carl", "y")]));
        let found = agreement(&answers);
        let names: Vec<&[String; 2]> = found.iter().map(|pair| &pair.annotators).collect();
        assert_eq!(names, [&["ben", "carl"], &["ada", "ben"]]);
        // Both the observed agreement and the chance agreement are 0.
        assert_eq!(found[0].kappa, Some(0.0));
        assert_eq!(found[1].kappa, None);
    }
}
