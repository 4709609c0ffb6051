//! Decides how many posts a lane claims next: few enough that a crash costs little, and smaller near the end of the
//! backlog or of the limit, so that every lane has posts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::targets::Targets;
use topicmill_score::Models;

/// Maximum number of posts per claim: enough to sort by length and fill batches, and small enough that a crashed worker
/// costs a few seconds of repeated work. The exact value is not critical.
const WINDOW_POSTS: usize = 1_024;
/// Maximum number of rows that the engine computes for one claim and that a crash can lose: a BART-large-sized model
/// takes about five minutes on one core for 4,096 pairs with short texts (77 ms each).
const WINDOW_ROWS: usize = 4_096;
/// Maximum number of scores per claim: at 8 bytes each, less than a megabyte for any number of labels.
const WINDOW_SCORES: usize = 100_000;
/// Minimum number of rows per claim, even when claims get smaller to leave posts for other lanes: about one batch on a
/// CPU.
const MIN_ROWS: usize = 64;

/// The posts that the lanes of a process may still claim, and the limits of a claim.
pub(super) struct ClaimSizes {
    lanes: u64,
    /// Maximum number of posts per claim.
    max: u32,
    /// Number of posts per claim below which claims do not get smaller.
    min: u32,
    // The lanes share only these counts and publish no other memory through them, so `Relaxed` is enough.
    /// Number of posts that may still be claimed within the limit.
    pub left: AtomicU64,
    /// Number of claimable posts at the start of the round, minus the posts that its lanes have claimed since.
    pub waiting: AtomicU64,
}

impl ClaimSizes {
    /// Returns the sizes for the lanes of some models, with at most `limit` posts in all.
    pub(super) fn new(models: &[Models], targets: &Targets, limit: Option<u64>) -> Self {
        let rows = models[0].rows_per_text(&targets.prepared, targets.labels);
        let small = targets.small.as_ref();
        let small_rows = small.map_or(0, |small| small.prepared.rows_per_text());
        Self {
            lanes: models.len() as u64,
            max: window_posts(rows.max(small_rows), targets.labels),
            min: u32::try_from(MIN_ROWS.div_ceil(rows)).unwrap_or(u32::MAX),
            left: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            waiting: AtomicU64::new(0),
        }
    }

    /// Takes the size of the next claim from the posts within the limit; 0 if the limit is reached.
    pub(super) fn take(&self) -> u32 {
        let mut max = self.max;
        if self.lanes > 1 {
            let left = self.left.load(Relaxed);
            // Half of an equal share: the shares shrink with the backlog, so that the lanes end at about the same time.
            let share = self.waiting.load(Relaxed).min(left) / (2 * self.lanes);
            max = max.min(u32::try_from(share).unwrap_or(max).max(self.min));
        }
        let mut taken = 0;
        // The closure always returns `Some`.
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| {
            taken = u32::try_from(left).unwrap_or(u32::MAX).min(max);
            Some(left - u64::from(taken))
        });
        taken
    }

    /// Counts `count` posts as claimed, and returns the rest of the `taken` posts to the other lanes.
    pub(super) fn settle(&self, taken: u32, count: u64) {
        self.left.fetch_add(u64::from(taken) - count, Relaxed);
        // The closure always returns `Some`. It saturates, because posts may have arrived since the count.
        let settled = |waiting: u64| Some(waiting.saturating_sub(count));
        let _ = self.waiting.fetch_update(Relaxed, Relaxed, settled);
    }
}

/// Returns the maximum number of posts in a claim, which bounds its memory and the work that a crash can lose.
fn window_posts(rows_per_text: usize, labels: usize) -> u32 {
    let posts = (WINDOW_ROWS / rows_per_text).min(WINDOW_SCORES / labels.max(1));
    u32::try_from(posts.clamp(1, WINDOW_POSTS)).expect("WINDOW_POSTS is small")
}

#[cfg(test)]
mod tests {
    use super::window_posts;

    #[test]
    fn a_window_shrinks_as_labels_grow() {
        assert_eq!(window_posts(1, 16), 1_024);
        assert_eq!(window_posts(16, 16), 256);
        assert_eq!(window_posts(1, 10_000), 10);
        assert_eq!(window_posts(10_000, 10_000), 1);
    }
}
