//! Chooses the posts that annotators label.
//!
//! Close calls (posts whose two best labels have almost the same score) improve a label set most; a random sample is
//! needed for unbiased estimates of quality. This module interleaves the two. It does no I/O.

use std::collections::HashSet;

use topicmill_core::{Fullname, SampleReason};

/// Interleaves two lists into at most `limit` distinct posts; the fraction `random_share` of them comes from `random`.
/// If one list runs out, the other supplies the rest.
pub fn mix(
    closest: Vec<Fullname>,
    random: Vec<Fullname>,
    random_share: f64,
    limit: usize,
) -> Vec<(Fullname, SampleReason)> {
    let (mut closest, mut random) = (closest.into_iter(), random.into_iter());
    let mut seen: HashSet<Fullname> = HashSet::new();
    let mut mixed = Vec::new();
    while mixed.len() < limit {
        let mut closest = || {
            closest
                .find(|post| !seen.contains(post))
                .map(|post| (post, SampleReason::Closest))
        };
        let mut random = || {
            random
                .find(|post| !seen.contains(post))
                .map(|post| (post, SampleReason::Random))
        };
        let next = if is_random_turn(mixed.len() as u64, random_share) {
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

/// Returns true if the post at position `number` (from 0) is chosen at random. Random posts are spread evenly, so that
/// an estimate is available early.
pub fn is_random_turn(number: u64, random_share: f64) -> bool {
    let due = |number: u64| (number as f64 * random_share).floor();
    due(number + 1) > due(number)
}
