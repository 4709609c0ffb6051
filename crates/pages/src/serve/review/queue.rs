//! The queue that assigns posts to annotators and stores their answers. Its connection writes only to the `gold` table.
//!
//! Several annotators can work concurrently. A post is assigned to one of them for several minutes, while the others
//! get different posts. Answers are stored; assignments and skipped posts are lost when the server stops.

mod state;

use std::collections::{HashSet, VecDeque};

use tokio::sync::{Mutex, MutexGuard};

pub use self::state::Assignment;
use self::state::{QueueState, reason_and_source};
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, LabelSet, SampleReason};
use topicmill_review::gold;
use topicmill_review::sampling;
use topicmill_store::{
    GoldAnswer, ReviewFilter, ReviewOrder, ReviewPost, Store, StoreError, StoredGold, Target,
};

/// Number of close calls read at once. Finding the closest of a million posts takes a second, and an annotator needs an
/// hour to label this many.
const CLOSE_CALLS: u32 = 500;

/// Assigns posts to annotators and stores their answers.
pub struct ReviewQueue {
    pub store: Store,
    pub clock: SharedClock,
    random_share: f64,
    state: Mutex<QueueState>,
}

/// An annotator's next task.
pub enum NextPost {
    /// The post to label, and its assignment.
    Ask(Box<ReviewPost>, Assignment),
    /// Only skipped posts are left. Contains their number.
    Skipped(usize),
    /// The annotator has labelled all posts.
    Done,
}

impl ReviewQueue {
    /// Creates a queue.
    pub fn new(store: Store, clock: SharedClock, random_share: f64) -> Self {
        Self {
            store,
            clock,
            random_share,
            state: Mutex::default(),
        }
    }

    /// Returns the post assigned to an annotator, or assigns the next post that the filter selects.
    pub async fn next(
        &self,
        who: &str,
        (target, set): (Target, &LabelSet),
        filter: Option<&ReviewFilter>,
    ) -> Result<NextPost, StoreError> {
        let mut state = self.state.lock().await;
        if state.target != Some(target) {
            (state.target, state.closest) = (Some(target), VecDeque::new());
        }
        if let Some(assigned) = state.annotator(who).assignment.take() {
            if assigned.filter.as_ref() == filter {
                // A purged post is not found.
                if let Some(post) = self.post(target, &assigned.post).await? {
                    return Ok(state.ask(who, post, assigned));
                }
            } else if assigned.chosen == SampleReason::Closest {
                state.closest.push_front(assigned.post);
            }
        }
        let now = self.clock.now();
        state.remove_idle_annotators(who, now);
        let unavailable = state.unavailable(who, now);
        if filter.is_none()
            && let Some((post, assignment)) = self
                .find_partly_answered(target, set, who, &unavailable)
                .await?
        {
            return Ok(state.ask(who, post, assignment));
        }
        let number = state.annotator(who).answers;
        let random = (SampleReason::Random, ReviewOrder::Random);
        let closest = (SampleReason::Closest, ReviewOrder::Margin);
        let kinds = match filter {
            // Filtered posts never count as random.
            Some(filter) => vec![(SampleReason::Filter, ReviewOrder::Filtered(filter))],
            None if sampling::is_random_turn(number, self.random_share) => vec![random, closest],
            None => vec![closest, random],
        };
        // Unanswered posts are offered first. Posts that others have answered follow, to measure agreement, and finally
        // posts that are assigned to others, so that annotators never wait.
        let skipped = state.annotator(who).skipped.clone();
        for (annotator, unavailable) in [
            (None, &unavailable),
            (Some(who), &unavailable),
            (Some(who), &skipped),
        ] {
            for (chosen, order) in kinds.iter().copied() {
                let found = self
                    .find(&mut state, target, order, annotator, unavailable)
                    .await?;
                if let Some(post) = found {
                    let assignment = Assignment {
                        post: post.fullname.clone(),
                        chosen,
                        source: GoldSource::Review,
                        filter: filter.cloned(),
                        note: String::new(),
                        has_new_labels: false,
                        since: now,
                    };
                    return Ok(state.ask(who, post, assignment));
                }
            }
        }
        Ok(match state.annotator(who).skipped.len() {
            0 => NextPost::Done,
            skipped => NextPost::Skipped(skipped),
        })
    }

    /// Returns the first available post about which the annotator answered "none of these" before labels were added.
    async fn find_partly_answered(
        &self,
        target: Target,
        set: &LabelSet,
        who: &str,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<(ReviewPost, Assignment)>, StoreError> {
        let mut answers = self.store.gold().answers_by(who).await?;
        answers
            .retain(|gold| gold.is_of_present_text && !unavailable.contains(&gold.answer.fullname));
        for StoredGold { answer, .. } in gold::partly_offered(&self.store, answers, set).await? {
            // Posts without a label, for example because their text was deleted, are not shown.
            if let Some(post) = self.post(target, &answer.fullname).await? {
                let assignment = Assignment {
                    has_new_labels: true,
                    ..Assignment::again(&answer, None, self.clock.now())
                };
                return Ok(Some((post, assignment)));
            }
        }
        Ok(None)
    }

    /// Returns a labelled post with its text; `None` if it was purged or has no label.
    async fn post(
        &self,
        target: Target,
        post: &Fullname,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let posts = std::slice::from_ref(post);
        Ok(self.store.gold().review_posts(target, posts).await?.pop())
    }

    /// Returns the first available post in this order.
    async fn find(
        &self,
        state: &mut MutexGuard<'_, QueueState>,
        target: Target,
        order: ReviewOrder<'_>,
        annotator: Option<&str>,
        unavailable: &HashSet<Fullname>,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let gold = self.store.gold();
        if order != ReviewOrder::Margin || annotator.is_some() {
            let limit = rows_to_read(unavailable, 1);
            let mut found = gold
                .posts_to_review(target, annotator, order, limit)
                .await?;
            found.retain(|post| !unavailable.contains(post));
            return match found.first() {
                Some(post) => self.post(target, post).await,
                None => Ok(None),
            };
        }
        // The list is refilled only once: if a fresh read contains no available post, there is none.
        for may_refill in [true, false] {
            while let Some(at) = state
                .closest
                .iter()
                .position(|post| !unavailable.contains(post))
            {
                let post = state.closest.remove(at).expect("it was found there");
                // The post may have been purged, or answered on another server, since the read.
                let answered = !gold.answers_about(&post).await?.is_empty();
                if let (false, Some(post)) = (answered, self.post(target, &post).await?) {
                    return Ok(Some(post));
                }
            }
            if may_refill {
                let limit = rows_to_read(unavailable, CLOSE_CALLS);
                let found = gold.posts_to_review(target, None, order, limit).await?;
                state.closest = found.into();
            }
        }
        Ok(None)
    }

    /// Stores an answer with the reason why the post was sampled. Returns false if the post has been purged or edited.
    pub async fn answer(&self, mut answer: GoldAnswer, target: Target) -> Result<bool, StoreError> {
        let shown = self.post(target, &answer.fullname).await?;
        let mut state = self.state.lock().await;
        let annotator = state.annotator(&answer.annotator);
        let earlier = self
            .earlier_answer(&answer.fullname, &answer.annotator)
            .await?;
        if let Some(earlier) = &earlier {
            // The page shows the stored answer, so this one is later, whatever the clock of another host said.
            answer.answered_at = answer.answered_at.max(earlier.answered_at);
        }
        let is_about_it = |assigned: &mut Assignment| assigned.post == answer.fullname;
        if let Some(assigned) = annotator.assignment.take_if(is_about_it) {
            (answer.chosen, answer.source) = (assigned.chosen, assigned.source);
        } else if let Some(earlier) = &earlier {
            // This is a correction or a form that was sent twice.
            (answer.chosen, answer.source) = reason_and_source(earlier);
        }
        let post = &answer.fullname;
        // The answer is about the text that was shown.
        if shown.is_none_or(|shown| Some(shown.text_hash) != answer.text_hash) {
            return Ok(false);
        }
        let saved = self
            .store
            .gold()
            .save_gold(std::slice::from_ref(&answer))
            .await?;
        if !saved.missing.is_empty() {
            return Ok(false);
        }
        annotator.answered.retain(|earlier| earlier != post);
        annotator.answered.push(post.clone());
        // A repeated or corrected answer counts once.
        annotator.answers += u64::from(earlier.is_none());
        annotator.skipped.remove(post);
        Ok(true)
    }

    async fn earlier_answer(
        &self,
        post: &Fullname,
        who: &str,
    ) -> Result<Option<GoldAnswer>, StoreError> {
        let answers = self.store.gold().answers_about(post).await?;
        let mut answers = answers.into_iter().map(|gold| gold.answer);
        Ok(answers.find(|answer| answer.annotator == who))
    }

    /// Returns an annotator's answer about a post, and the post.
    pub async fn answer_about(
        &self,
        post: &Fullname,
        who: &str,
        target: Target,
    ) -> Result<Option<(GoldAnswer, ReviewPost)>, StoreError> {
        let answer = self.earlier_answer(post, who).await?;
        Ok(answer.zip(self.post(target, post).await?))
    }

    /// Skips a post until no other post is left.
    pub async fn skip(&self, who: &str, post: &Fullname) {
        let mut state = self.state.lock().await;
        let annotator = state.annotator(who);
        annotator.assignment = None;
        annotator.skipped.insert(post.clone());
    }

    /// Makes skipped posts available again.
    pub async fn clear_skipped(&self, who: &str) {
        let mut state = self.state.lock().await;
        state.annotator(who).skipped.clear();
        // This forces a new read because skipped posts were removed from the list.
        state.closest.clear();
    }

    /// Undoes an annotator's last answer and assigns its post again. Returns false if there is no answer.
    pub async fn undo(&self, who: &str, filter: Option<ReviewFilter>) -> Result<bool, StoreError> {
        let mut state = self.state.lock().await;
        let answers = self.store.gold().answers_by(who).await?;
        let mine: Vec<GoldAnswer> = answers.into_iter().map(|gold| gold.answer).collect();
        let annotator = state.annotator(who);
        let last = std::iter::from_fn(|| annotator.answered.pop())
            .find_map(|post| mine.iter().find(|answer| answer.fullname == post))
            // This is the latest answer that was given on the review page before this server started.
            .or_else(|| {
                mine.iter()
                    .filter(|answer| answer.source == GoldSource::Review)
                    .max_by_key(|answer| answer.answered_at)
            });
        let Some(last) = last else {
            return Ok(false);
        };
        let undone = self.store.gold().delete_answer(&last.fullname, who).await?;
        annotator.answers = annotator.answers.saturating_sub(1);
        annotator.assignment = Some(Assignment::again(last, filter, self.clock.now()));
        Ok(undone)
    }

    /// Assigns a post that the annotator has answered. The answer is kept until a new one replaces it. Returns false if
    /// there is no answer.
    pub async fn reopen(&self, who: &str, post: &Fullname) -> Result<bool, StoreError> {
        let mut state = self.state.lock().await;
        let Some(mine) = self.earlier_answer(post, who).await? else {
            return Ok(false);
        };
        let annotator = state.annotator(who);
        annotator.assignment = Some(Assignment::again(&mine, None, self.clock.now()));
        Ok(true)
    }

    /// Returns the number of posts with an answer about their text.
    pub async fn count(&self) -> Result<usize, StoreError> {
        let answers = self.answers_about_posts().await?;
        Ok(gold::consensus(answers, None).posts)
    }

    /// Returns the answers that figures and fits use: those about posts.
    pub(super) async fn answers_about_posts(&self) -> Result<Vec<StoredGold>, StoreError> {
        let mut answers = self.store.gold().answers().await?;
        answers.retain(|gold| !gold.answer.fullname.is_comment());
        Ok(answers)
    }
}

/// Returns how many rows to read so that at least `wanted` of them are available, if there are any: at most
/// `unavailable` rows are not.
fn rows_to_read(unavailable: &HashSet<Fullname>, wanted: u32) -> u32 {
    let unavailable = u32::try_from(unavailable.len()).unwrap_or(u32::MAX);
    unavailable.saturating_add(wanted)
}
