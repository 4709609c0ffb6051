//! The queue that assigns posts to annotators and stores their answers. Its connection writes only to the `gold` table.
//!
//! Several annotators can work concurrently. A post is assigned to one of them for several minutes, while the others
//! get different posts. Answers are stored; assignments and skipped posts are lost when the server stops.

mod choice;
mod state;

use std::collections::VecDeque;

use tokio::sync::Mutex;

pub use self::state::Assignment;
use self::state::{QueueState, reason_and_source};
use super::CurrentLabels;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, LabelSet, SampleReason, ThingKind};
use topicmill_review::{gold, quality};
use topicmill_store::{
    GoldAnswer, ReviewFilter, ReviewPost, Store, StoreError, StoredGold, Target,
};

/// Assigns posts to annotators and stores their answers.
pub struct ReviewQueue {
    pub store: Store,
    pub clock: SharedClock,
    random_share: f64,
    state: Mutex<QueueState>,
}

/// Numbers of posts with an answer about their text.
pub struct AnsweredPosts {
    pub all: usize,
    /// Posts answered before the label set was fitted, whether or not the fit could use them; 0 if it is not fitted.
    pub before_fit: usize,
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
        current: &CurrentLabels,
        filter: Option<&ReviewFilter>,
    ) -> Result<NextPost, StoreError> {
        let target = current.target;
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
                .find_partly_answered(current, who, &unavailable)
                .await?
        {
            return Ok(state.ask(who, post, assignment));
        }
        if let Some((post, chosen)) = self
            .find_new(&mut state, target, who, filter, &unavailable)
            .await?
        {
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
        Ok(match state.annotator(who).skipped.len() {
            0 => NextPost::Done,
            skipped => NextPost::Skipped(skipped),
        })
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

    /// Stores an answer with the reason why the post was sampled. Returns false if the post has been purged or edited.
    pub async fn answer(&self, mut answer: GoldAnswer, target: Target) -> Result<bool, StoreError> {
        let shown = self.post(target, &answer.fullname).await?;
        let mut state = self.state.lock().await;
        let annotator = state.annotator(&answer.annotator);
        let earlier = self.earlier_answer(&answer.fullname, &answer.annotator);
        let earlier = earlier.await?;
        if let Some(earlier) = &earlier {
            // The page shows the stored answer, so this one is later, whatever the clock of another host said.
            answer.answered_at = answer.answered_at.max(earlier.answered_at);
        }
        let assigned = annotator.assignment.as_ref();
        if let Some(assigned) = assigned.filter(|assigned| assigned.post == answer.fullname) {
            (answer.chosen, answer.source) = (assigned.chosen, assigned.source);
        } else if let Some(earlier) = &earlier {
            // This is a correction or a form that was sent twice.
            (answer.chosen, answer.source) = reason_and_source(earlier);
        }
        let is_saved = match shown {
            // The answer is about the text that was shown.
            Some(shown) if Some(shown.text_hash) == answer.text_hash => {
                let answers = std::slice::from_ref(&answer);
                let saved = self.store.gold().save_gold(answers).await?;
                saved.missing.is_empty()
            }
            _ => false,
        };
        let post = &answer.fullname;
        // After a failed write, the assignment remains, so that the next attempt has the same reason.
        let is_answered = |assigned: &mut Assignment| assigned.post == *post;
        annotator.assignment.take_if(is_answered);
        if !is_saved {
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

    /// Undoes an annotator's last answer about a post or, with a filter for comments, about a comment, and assigns it
    /// again. Returns false if there is no answer.
    pub async fn undo(&self, who: &str, filter: Option<ReviewFilter>) -> Result<bool, StoreError> {
        let kind = filter
            .as_ref()
            .map_or(ThingKind::Post, |filter| filter.kind);
        let mut state = self.state.lock().await;
        let answers = self.store.gold().answers_by(who).await?;
        let answers = answers.into_iter().map(|gold| gold.answer);
        let of_kind: Vec<GoldAnswer> = answers
            .filter(|answer| answer.fullname.kind() == kind)
            .collect();
        let annotator = state.annotator(who);
        let mut latest_first = annotator.answered.iter().rev();
        let last = latest_first
            .find_map(|post| of_kind.iter().find(|answer| answer.fullname == *post))
            // This is the latest answer that was given on the review page before this server started.
            .or_else(|| {
                let on_page = of_kind
                    .iter()
                    .filter(|one| one.source == GoldSource::Review);
                on_page.max_by_key(|answer| answer.answered_at)
            });
        let Some(last) = last else {
            return Ok(false);
        };
        let undone = self.store.gold().delete_answer(&last.fullname, who).await?;
        annotator.answered.retain(|post| *post != last.fullname);
        annotator.answers = annotator.answers.saturating_sub(1);
        annotator.assignment = Some(Assignment::again(last, filter, self.clock.now()));
        Ok(undone)
    }

    /// Assigns a post that the annotator has answered, on the page with this filter. The answer is kept until a new one
    /// replaces it. Returns false if there is no answer.
    pub async fn reopen(
        &self,
        who: &str,
        post: &Fullname,
        filter: Option<ReviewFilter>,
    ) -> Result<bool, StoreError> {
        let mut state = self.state.lock().await;
        let Some(answer) = self.earlier_answer(post, who).await? else {
            return Ok(false);
        };
        let again = Assignment::again(&answer, filter, self.clock.now());
        state.annotator(who).assignment = Some(again);
        Ok(true)
    }

    /// Counts the posts with an answer about their text.
    pub async fn answered_posts(&self, set: &LabelSet) -> Result<AnsweredPosts, StoreError> {
        let mut answers = self.answers_about_posts().await?;
        answers.retain(|gold| gold.is_of_present_text);
        Ok(AnsweredPosts {
            before_fit: quality::used_in_fit(set, &answers).len(),
            all: gold::consensus(answers, None).posts,
        })
    }

    /// Returns the answers that figures and fits use: those about posts.
    pub(super) async fn answers_about_posts(&self) -> Result<Vec<StoredGold>, StoreError> {
        let mut answers = self.store.gold().answers().await?;
        answers.retain(|gold| !gold.answer.fullname.is_comment());
        Ok(answers)
    }
}
