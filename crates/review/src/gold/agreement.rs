//! Computes the agreement between annotators: Cohen's kappa for each pair (Cohen, 1960, *Educational and Psychological
//! Measurement* 20).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::kappa;
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

/// Returns the agreement between each pair of annotators with a common post, with the pairs with the most posts first.
/// Answers about an earlier version of a post's text are ignored.
pub fn agreement(answers: &[StoredGold]) -> Vec<PairAgreement> {
    let mut posts: BTreeMap<&Fullname, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for StoredGold { answer, .. } in answers.iter().filter(|one| one.is_of_present_text) {
        let label = (answer.annotator.as_str(), answer.label.as_deref());
        posts.entry(&answer.fullname).or_default().push(label);
    }
    let mut pairs: BTreeMap<[&str; 2], Vec<[Option<&str>; 2]>> = BTreeMap::new();
    for labels in posts.values_mut() {
        labels.sort_unstable();
        for (place, (a, of_a)) in labels.iter().enumerate() {
            for (b, of_b) in &labels[place + 1..] {
                pairs.entry([a, b]).or_default().push([*of_a, *of_b]);
            }
        }
    }
    let mut found: Vec<PairAgreement> = pairs
        .into_iter()
        .map(|(names, labels)| PairAgreement {
            annotators: names.map(str::to_owned),
            posts: labels.len(),
            same: labels.iter().filter(|[a, b]| a == b).count(),
            kappa: kappa(labels.iter().map(|[a, b]| (a, b, 1))),
        })
        .collect();
    found.sort_by_key(|pair| std::cmp::Reverse(pair.posts));
    found
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
