//! The subreddits of a topic that are read, and their shares of its limit.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use serde::Deserialize;

use topicmill_core::Topic;

/// Valid shares of a subreddit. A limit has at most 1,000 posts.
const SHARES: RangeInclusive<u32> = 1..=1000;

/// The subreddits of a topic that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Which {
    /// The first one that is readable.
    #[default]
    First,
    All,
}

/// Returns the share of each subreddit if all are read.
pub(super) fn shares_of(
    read: &Which,
    shares: Option<Vec<u32>>,
    subreddits: usize,
) -> Result<Option<Vec<u32>>, String> {
    match (read, shares) {
        (Which::First, None) => Ok(None),
        (Which::First, Some(_)) => Err(
            "`share` is for topics with read = \"all\": add that, or leave `share` out".to_owned(),
        ),
        (Which::All, None) => Ok(Some(vec![1; subreddits])),
        (Which::All, Some(shares))
            if shares.len() == subreddits && shares.iter().all(|n| SHARES.contains(n)) =>
        {
            Ok(Some(shares))
        }
        (Which::All, Some(_)) => Err(format!(
            "`share` needs a number from 1 to {} for each subreddit, in their order, as in share = [2, 1]",
            SHARES.end()
        )),
    }
}

/// Splits a topic into one for each subreddit, with its share of the limit.
pub(super) fn split(topic: &Topic, shares: &[u32]) -> Vec<Topic> {
    let mut parts = Vec::new();
    let limits = apportioned(topic.limit, shares);
    for (subreddit, limit) in topic.subreddits.iter().zip(limits) {
        if limit == 0 {
            tracing::warn!(
                topic = topic.slug,
                "r/{subreddit} is not read: of {} posts, none is left for it",
                topic.limit
            );
            continue;
        }
        parts.push(Topic {
            subreddits: vec![subreddit.clone()],
            limit,
            ..topic.clone()
        });
    }
    parts
}

/// Splits a limit by shares into integers with the same sum (largest remainder method; earlier parts win ties).
fn apportioned(limit: u32, shares: &[u32]) -> Vec<u32> {
    let sum: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    // The limit of each share, times the sum.
    let scaled = |share: &u32| u64::from(limit) * u64::from(*share);
    let part = |share| u32::try_from(scaled(share) / sum).expect("a part of the limit");
    let mut limits: Vec<u32> = shares.iter().map(part).collect();
    let rest = limit - limits.iter().sum::<u32>();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    // The sort is stable, so that the earlier part wins on equal remainders.
    order.sort_by_key(|&i| Reverse(scaled(&shares[i]) % sum));
    for i in order.into_iter().take(rest as usize) {
        limits[i] += 1;
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_split_without_remainder() {
        for (limit, shares, parts) in [
            (100, &[1, 1][..], &[50, 50][..]),
            (100, &[2, 1], &[67, 33]),
            (100, &[1, 1, 1], &[34, 33, 33]),
            (2, &[1, 1, 1], &[1, 1, 0]),
            (1, &[1, 1000], &[0, 1]),
            (1000, &[1000; 30], &[34; 10]),
        ] {
            let limits = apportioned(limit, shares);
            assert_eq!(limits.iter().sum::<u32>(), limit);
            assert_eq!(&limits[..parts.len()], parts, "{limit} {shares:?}");
        }
    }
}
