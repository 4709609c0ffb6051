//! Describes a random sample of answers, and estimates figures of all posts from it. All views show these estimates.

use serde_json::{Value, json};

use super::frame::SampledPost;
use super::{
    Accuracies, Counted, ENOUGH_ANSWERS, Frame, FrameSize, GroupShares, LabelShare, Mix, UNLIKELY,
};
use crate::join::JoinedGold;
use topicmill_core::{Fullname, LabelSet, ThingKind};
use topicmill_store::{Grouping, Period, Store, StoreError, StoredGold, Target};

/// A random sample, and the posts that it represents.
#[derive(Debug)]
pub struct RandomSample {
    /// The answers that the frame was found from.
    answers: Vec<StoredGold>,
    frame: Frame,
    /// The sampled posts that the frame covers.
    pub covered: JoinedGold,
    mixes: Vec<Mix>,
}

impl RandomSample {
    /// Finds the frame of the sampled posts in `drawn`. If all labelled posts are counted, tests whether the sample's
    /// mix is theirs.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn find(
        store: &Store,
        target: Target,
        answers: &[StoredGold],
        drawn: &JoinedGold,
        counted: Counted,
    ) -> Result<Self, StoreError> {
        let posts = drawn.posts.iter().map(|post| &post.id);
        let frame = Frame::find(store, target, answers, posts, counted).await?;
        let mut covered = drawn.filtered(|post| frame.contains(post));
        for rows in &mut covered.rows {
            for (row, post) in rows.iter_mut().zip(&covered.posts) {
                row.weight = frame.weight(&post.id);
            }
        }
        let mut mixes = Vec::new();
        if counted == Counted::All {
            let posts = covered.posts.iter().map(|post| post.id.clone());
            let posts: Vec<Fullname> = posts.collect();
            mixes = frame.mixes(store, target, &posts).await?;
        }
        Ok(Self {
            answers: answers.to_vec(),
            frame,
            covered,
            mixes,
        })
    }

    /// Returns the part of the sample that was created in a period, which is a random sample of the period.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn within(
        &self,
        store: &Store,
        target: Target,
        period: Period,
    ) -> Result<Self, StoreError> {
        let counted = Counted::Created(period);
        Self::find(store, target, &self.answers, &self.covered, counted).await
    }

    /// Returns the posts of the sample, each with its prediction in the first label run.
    fn posts(&self) -> Vec<SampledPost<'_>> {
        let posts = self.covered.posts.iter().zip(&self.covered.rows[0]);
        posts
            .map(|(post, row)| SampledPost {
                fullname: &post.id,
                row,
            })
            .collect()
    }

    /// Returns the size of the frame; `None` if it is all labelled posts, which were not counted.
    pub fn size(&self) -> Option<FrameSize> {
        self.frame.size()
    }

    /// Returns the share of posts whose label is right, and the share of labels that are.
    pub fn accuracies(&self) -> Accuracies {
        self.frame.accuracies(&self.posts())
    }

    /// Returns the shares of each label and of no label; `None` with too few answers.
    pub fn shares(&self, set: &LabelSet) -> Option<Vec<LabelShare>> {
        let is_enough = self.covered.posts.len() >= ENOUGH_ANSWERS;
        is_enough.then(|| self.frame.label_shares(set, &self.posts()))
    }

    /// Names the posts of the frame, and those that it does not cover; `None` if it is all labelled posts.
    pub fn frame_in_words(&self) -> Option<String> {
        self.frame.in_words()
    }

    /// Returns the frame as JSON: its size, and the p-value of each mix.
    pub fn json(&self) -> Value {
        let mut json = json!(self.size().unwrap_or_default());
        let mixes = self.mixes.iter();
        json["p_values"] = mixes
            .map(|mix| (mix.property.to_owned(), json!(mix.p)))
            .collect();
        json
    }

    /// Says that the sample is hardly random; `None` if it may be.
    pub fn doubt(&self) -> Option<String> {
        let unlikely = self.mixes.iter().filter(|mix| mix.is_unlikely());
        let unlikely: Vec<&str> = unlikely.map(|mix| mix.property).collect();
        (!unlikely.is_empty()).then(|| {
            format!(
                "the sample is hardly random: its mix of {} differs from that of all posts (chi-square test, p < \
                 {UNLIKELY})",
                unlikely.join(" and ")
            )
        })
    }
}

/// Returns the shares of labels in groups of posts or comments. Without a random sample, all shares are only assigned,
/// and `counted` selects the posts.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn groups_of(
    store: &Store,
    target: Target,
    set: &LabelSet,
    by: Grouping,
    kind: ThingKind,
    sample: Option<&RandomSample>,
    counted: Counted,
) -> Result<Vec<GroupShares>, StoreError> {
    if let Some(sample) = sample {
        let posts = sample.posts();
        let frame = &sample.frame;
        return frame.groups(store, target, set, by, kind, &posts).await;
    }
    let frame = Frame::find(store, target, &[], std::iter::empty(), counted).await?;
    frame.groups(store, target, set, by, kind, &[]).await
}
