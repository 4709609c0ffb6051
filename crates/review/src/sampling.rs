//! Which posts people are asked about: close calls, which teach most, mixed with posts drawn at random, without which
//! nobody could say how good labels are. Pure.

use std::collections::HashSet;

use topicmill_core::{Fullname, SampleReason};

/// Mixes two lists, each with its best first, up to `limit` posts, each once; a share of `random_share` of them comes from
/// the random ones. Where one list ends, the other goes on.
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

/// Whether the question with this number, from 0, is about a random post: evenly among the others, so that an estimate
/// grows from the first minute on.
pub fn is_random_turn(number: u64, random_share: f64) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        reason = "people answer fewer questions than 2^52"
    )]
    let due = |number: u64| (number as f64 * random_share).floor();
    due(number + 1) > due(number)
}
