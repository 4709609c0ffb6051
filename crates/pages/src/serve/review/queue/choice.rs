//! Chooses the next post for an annotator: a close call or a random post that is available.

use std::collections::HashSet;

use super::state::{Assignment, QueueState};
use super::{CurrentLabels, ReviewQueue};
use topicmill_core::{Fullname, SampleReason};
use topicmill_review::{gold, sampling};
use topicmill_store::{ReviewFilter, ReviewOrder, ReviewPost, StoreError, StoredGold, Target};

/// Number of close calls read at once. Finding the closest of a million posts takes a second, and an annotator needs an
/// hour to label this many.
const CLOSE_CALLS: u32 = 500;

impl ReviewQueue {
    /// Returns the first available post about which the annotator answered "none of these" before labels were added.
    /// Comments are shown only with a filter.
    pub(super) async fn find_partly_answered(
        &self,
        current: &CurrentLabels,
        who: &str,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<(ReviewPost, Assignment)>, StoreError> {
        let mut answers = self.store.gold().answers_by(who).await?;
        answers.retain(|gold| {
            let post = &gold.answer.fullname;
            gold.is_of_present_text && !post.is_comment() && !unavailable.contains(post)
        });
        let partly_offered = gold::partly_offered(&self.store, answers, &current.set).await?;
        for StoredGold { answer, .. } in partly_offered {
            // Posts without a label, for example because their text was deleted, are not shown.
            if let Some(post) = self.post(current.target, &answer.fullname).await? {
                let assignment = Assignment {
                    has_new_labels: true,
                    ..Assignment::again(&answer, None, self.clock.now())
                };
                return Ok(Some((post, assignment)));
            }
        }
        Ok(None)
    }

    /// Returns the next post that the annotator has not answered, and the reason why it is chosen.
    pub(super) async fn find_new(
        &self,
        state: &mut QueueState,
        target: Target,
        who: &str,
        filter: Option<&ReviewFilter>,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<(ReviewPost, SampleReason)>, StoreError> {
        let random = (SampleReason::Random, ReviewOrder::Random);
        let closest = (SampleReason::Closest, ReviewOrder::Margin);
        let answers = state.annotator(who).answers;
        let orders = match filter {
            // Filtered posts never count as random.
            Some(filter) => vec![(SampleReason::Filter, ReviewOrder::Filtered(filter))],
            None if sampling::is_random_turn(answers, self.random_share) => vec![random, closest],
            None => vec![closest, random],
        };
        let skipped = state.annotator(who).skipped.clone();
        // Posts without any answer are offered first. Posts that others have answered follow, to measure agreement, and
        // finally posts that are assigned to others, so that annotators never wait.
        for (annotator, unavailable) in [
            (None, unavailable),
            (Some(who), unavailable),
            (Some(who), &skipped),
        ] {
            for &(reason, order) in &orders {
                let post = match (order, annotator) {
                    (ReviewOrder::Margin, None) => {
                        self.find_close_call(state, target, unavailable).await?
                    }
                    _ => {
                        self.find_first(target, order, annotator, unavailable)
                            .await?
                    }
                };
                if let Some(post) = post {
                    return Ok(Some((post, reason)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the first available post, in this order, that the annotator has not answered; without an annotator, that
    /// nobody has.
    async fn find_first(
        &self,
        target: Target,
        order: ReviewOrder<'_>,
        annotator: Option<&str>,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let gold = self.store.gold();
        let limit = rows_to_read(unavailable, 1);
        let posts = gold.posts_to_review(target, annotator, order, limit);
        match posts
            .await?
            .iter()
            .find(|post| !unavailable.contains(*post))
        {
            Some(post) => self.post(target, post).await,
            None => Ok(None),
        }
    }

    /// Returns the closest available call that nobody has answered. If the list has none, it is read again, once.
    async fn find_close_call(
        &self,
        state: &mut QueueState,
        target: Target,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let gold = self.store.gold();
        let is_available = |post: &Fullname| !unavailable.contains(post);
        for may_read in [true, false] {
            while let Some(place) = state.closest.iter().position(is_available) {
                let post = state.closest.remove(place).expect("it was found there");
                // The post may have been purged, or answered on another server, since the read.
                let is_answered = !gold.answers_about(&post).await?.is_empty();
                if let (false, Some(post)) = (is_answered, self.post(target, &post).await?) {
                    return Ok(Some(post));
                }
            }
            if may_read {
                let limit = rows_to_read(unavailable, CLOSE_CALLS);
                let closest = gold.posts_to_review(target, None, ReviewOrder::Margin, limit);
                state.closest = closest.await?.into();
            }
        }
        Ok(None)
    }
}

/// Returns how many rows to read so that at least `wanted` of them are available, if there are any: at most
/// `unavailable` rows are not.
fn rows_to_read(unavailable: &HashSet<Fullname>, wanted: u32) -> u32 {
    let unavailable = u32::try_from(unavailable.len()).unwrap_or(u32::MAX);
    unavailable.saturating_add(wanted)
}
