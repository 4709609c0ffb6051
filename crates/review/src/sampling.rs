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
        let is_new = |post: &Fullname| !seen.contains(post);
        let mut take_closest = || Some((closest.find(is_new)?, SampleReason::Closest));
        let mut take_random = || Some((random.find(is_new)?, SampleReason::Random));
        let next = if is_random_turn(mixed.len() as u64, random_share) {
            take_random().or_else(take_closest)
        } else {
            take_closest().or_else(take_random)
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
