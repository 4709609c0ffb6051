//! Which posts people are asked about: close calls, which teach most, mixed with posts drawn at random, without which
//! nobody could say how good labels are. Pure.

use std::collections::HashSet;

use super::calibrate::Share;
use crate::domain::{Chosen, Fullname};

/// Mixes two lists, each with its best first, up to `limit` posts, each once; a share of `random_share` of them comes from
/// the random ones. Where one list ends, the other goes on.
pub fn mixed(
    closest: Vec<Fullname>,
    random: Vec<Fullname>,
    random_share: f64,
    limit: usize,
) -> Vec<(Fullname, Chosen)> {
    let (mut closest, mut random) = (closest.into_iter(), random.into_iter());
    let mut seen: HashSet<Fullname> = HashSet::new();
    let mut mixed = Vec::new();
    while mixed.len() < limit {
        let mut closest = || {
            closest
                .find(|post| !seen.contains(post))
                .map(|post| (post, Chosen::Closest))
        };
        let mut random = || {
            random
                .find(|post| !seen.contains(post))
                .map(|post| (post, Chosen::Random))
        };
        let next = if is_random(mixed.len() as u64, random_share) {
            random().or_else(closest)
        } else {
            closest().or_else(random)
        };
        let Some((post, chosen)) = next else {
            break;
        };
        seen.insert(post.clone());
        mixed.push((post, chosen));
    }
    mixed
}

/// Whether the question with this number, from 0, is about a random post: evenly among the others, so that an estimate
/// grows from the first minute on.
pub fn is_random(number: u64, random_share: f64) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        reason = "people answer fewer questions than 2^52"
    )]
    let due = |number: u64| (number as f64 * random_share).floor();
    due(number + 1) > due(number)
}

/// How many more answers would halve the interval of a share, if the share stayed what it is; `None` of nothing.
pub fn more_to_halve(share: &Share) -> Option<usize> {
    let wide = |share: &Share| share.high - share.low;
    let wanted = wide(share) / 2.0;
    let value = share.share?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of answers"
    )]
    let with = |all: usize| Share::new((value * all as f64).round() as usize, all);
    // The width shrinks with the root of the answers: it takes four times as many, and a few where they are few.
    let (mut low, mut high) = (share.all, share.all * 8);
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if wide(&with(middle)) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high - share.all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ids: std::ops::Range<u32>) -> Vec<Fullname> {
        ids.map(|id| format!("{id}").parse().unwrap()).collect()
    }

    #[test]
    fn one_in_five_is_random_and_no_post_comes_twice() {
        let found = mixed(names(100..200), names(150..170), 0.2, 50);
        assert_eq!(found.len(), 50);
        let random = |found: &[(Fullname, Chosen)]| {
            let random = found.iter().filter(|(_, chosen)| *chosen == Chosen::Random);
            random.count()
        };
        assert_eq!(random(&found), 10);
        for part in found.chunks(5) {
            assert_eq!(random(part), 1);
        }
        let distinct: HashSet<&Fullname> = found.iter().map(|(post, _)| post).collect();
        assert_eq!(distinct.len(), 50);
        // What there is, is asked.
        assert_eq!(mixed(names(100..103), names(101..110), 0.0, 50).len(), 10);
        assert_eq!(
            random(&mixed(names(100..103), names(100..110), 1.0, 50)),
            10
        );
        assert!(mixed(vec![], vec![], 0.2, 5).is_empty());
    }

    #[test]
    fn four_times_as_many_answers_halve_an_interval() {
        assert_eq!(more_to_halve(&Share::new(0, 0)), None);
        let more = more_to_halve(&Share::new(80, 100)).unwrap();
        assert!((290..=315).contains(&more), "{more}");
        for (of, all) in [(1, 1), (0, 3), (10, 10), (5, 9), (333, 1000)] {
            let share = Share::new(of, all);
            let more = more_to_halve(&share).unwrap();
            assert!((all..all * 8).contains(&more), "{of} of {all}: {more}");
        }
    }
}
