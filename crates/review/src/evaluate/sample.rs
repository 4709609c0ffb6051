//! A random sample of answers, and what it says of all posts: the estimates that every view shows.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Counted, ENOUGH_ANSWERS, Estimate, Frame, FrameSize, GroupShares, Mix, UNLIKELY};
use crate::calibrate::Proportion;
use crate::join::JoinedGold;
use topicmill_core::{Fullname, LabelSet, ThingKind, Timestamp};
use topicmill_store::{Grouping, Store, StoreError, StoredGold, Target};

/// The name of the outcome without a label, in figures.
pub const NO_LABEL: &str = "(none of these)";

/// The shares of a label in the posts of a frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelShare {
    /// Slug of the label, or [`NO_LABEL`].
    pub label: String,
    /// The assigned share: that of the posts with the label.
    pub assigned: f64,
    /// The estimated share: that of the posts whose right label it is.
    pub estimated: Estimate,
}

/// A random sample, and the posts that it represents.
#[derive(Debug)]
pub struct RandomSample {
    frame: Frame,
    /// The sampled posts that the frame covers.
    pub held: JoinedGold,
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
        let mut held = drawn.filtered(|post| frame.contains(post));
        for rows in &mut held.rows {
            for (row, post) in rows.iter_mut().zip(&held.posts) {
                row.weight = frame.weight(&post.id);
            }
        }
        let mut mixes = Vec::new();
        if counted == Counted::All {
            let posts: Vec<Fullname> = held.posts.iter().map(|post| post.id.clone()).collect();
            mixes = frame.mixes(store, target, &posts).await?;
        }
        Ok(Self { frame, held, mixes })
    }

    /// Returns the part of the sample that was created in a period, which is a random sample of the period.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn within(
        &self,
        store: &Store,
        target: Target,
        (since, until): (Timestamp, Timestamp),
    ) -> Result<Self, StoreError> {
        let answers = store.gold().answers().await?;
        let counted = Counted::Created(since, until);
        Self::find(store, target, &answers, &self.held, counted).await
    }

    fn posts(&self) -> Vec<&Fullname> {
        self.held.posts.iter().map(|post| &post.id).collect()
    }

    /// Returns the size of the frame; `None` if it is all labelled posts, which were not counted.
    pub fn size(&self) -> Option<FrameSize> {
        self.frame.size()
    }

    /// Returns the share of posts whose label is right, and the share of labels that are.
    pub fn accuracy(&self) -> (Proportion, Proportion) {
        self.frame.accuracy(&self.posts(), &self.held.rows[0])
    }

    /// Returns the shares of each label and of no label; `None` with too few answers.
    pub fn shares(&self, set: &LabelSet) -> Option<Vec<LabelShare>> {
        if self.held.posts.len() < ENOUGH_ANSWERS {
            return None;
        }
        let shares = self
            .frame
            .label_shares(set, &self.posts(), &self.held.rows[0]);
        let names = set.labels.iter().map(|label| label.slug.as_str());
        let share = |(name, (assigned, estimated)): (&str, (f64, Estimate))| LabelShare {
            label: name.to_owned(),
            assigned,
            estimated,
        };
        Some(names.chain([NO_LABEL]).zip(shares).map(share).collect())
    }

    /// Describes the frame, with a leading comma; empty if it is all labelled posts.
    pub fn frame_in_words(&self) -> String {
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
    of: (Target, &LabelSet),
    (by, kind): (Grouping, ThingKind),
    sample: Option<&RandomSample>,
    counted: Counted,
) -> Result<Vec<GroupShares>, StoreError> {
    let Some(RandomSample { frame, held, .. }) = sample else {
        let frame = Frame::find(store, of.0, &[], std::iter::empty(), counted).await?;
        return frame.groups(store, of, (by, kind), (&[], &[])).await;
    };
    let posts: Vec<Fullname> = held.posts.iter().map(|post| post.id.clone()).collect();
    frame
        .groups(store, of, (by, kind), (&posts, &held.rows[0]))
        .await
}
