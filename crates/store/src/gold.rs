//! Values of gold labels, as they are written to the store and read from it.

use serde::Serialize;

use super::{LabelSetId, Target};
use topicmill_core::{
    Fullname, GoldSource, Provenance, SampleReason, TextHash, ThingKind, Timestamp,
};

/// An annotator's answer about a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldAnswer {
    pub fullname: Fullname,
    pub annotator: String,
    /// Slug of the correct label; `None` for none of the offered labels.
    pub label: Option<String>,
    /// The label set of the offered labels.
    pub label_set: Option<LabelSetId>,
    /// Reason why the post was selected.
    pub chosen: SampleReason,
    pub source: GoldSource,
    pub answered_at: Timestamp,
    /// False if `answered_at` is only the time of an import. A stored answer then keeps its time.
    pub is_dated: bool,
    /// Hash of the text that the annotator saw; `None` for the current text.
    pub text_hash: Option<TextHash>,
    /// Free text about the answer. `None` keeps the note of an earlier answer.
    pub note: Option<String>,
}

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGold {
    pub answer: GoldAnswer,
    /// True if the post belongs to the random sample, which represents all posts, even if it was selected for a
    /// different reason.
    pub in_random_sample: bool,
    /// True if the post still has the text that the annotator saw.
    pub is_of_present_text: bool,
    /// Time when the post was first stored.
    pub collected_at: Timestamp,
    /// Time when the post was created.
    pub created_at: Timestamp,
    /// Time when retention deleted the post's text.
    pub text_purged_at: Option<Timestamp>,
}

/// A property by which posts are grouped: a column, or the month of the post (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping(&'static str);

impl Grouping {
    /// The day on which a post was first stored.
    pub const COLLECTED: Self = Self("collected");
    pub(super) const MONTH: Self = Self("month");
    pub(super) const OVER_18: Self = Self("over_18");
    pub(super) const IS_SELF: Self = Self("is_self");
    /// The names of the groupings that users can choose.
    pub const NAMES: [&'static str; 8] = [
        "subreddit",
        "topic",
        Self::MONTH.0,
        "flair",
        "author",
        "source",
        Self::OVER_18.0,
        Self::IS_SELF.0,
    ];

    /// Returns the grouping with this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.into_iter();
        names.find(|known| *known == name).map(Self)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns true if the groups are in order of time.
    pub fn is_of_time(self) -> bool {
        self == Self::MONTH
    }
}

/// A period of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Its start.
    pub since: Timestamp,
    /// Its end, exclusive.
    pub until: Timestamp,
}

impl Period {
    /// Returns true if a time is in the period.
    pub fn contains(self, time: Timestamp) -> bool {
        self.since <= time && time < self.until
    }
}

/// The labelled posts to count for a sampling frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameQuery<'q> {
    pub kind: ThingKind,
    pub target: Target,
    /// The ascending times that separate waves.
    pub cuts: &'q [Timestamp],
    /// For each wave, the time when it was drawn, if posts without text at that time are to be counted as a wave of
    /// their own.
    pub drawn: &'q [Option<Timestamp>],
    pub by: Option<Grouping>,
    /// Counts only these posts.
    pub posts: Option<&'q [Fullname]>,
    /// Counts only posts created in this period.
    pub period: Option<Period>,
}

/// A number of labelled posts with the same properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameCell {
    /// Number of the given times before or at which the posts were first stored; one more than the number of times for
    /// posts whose text was deleted before their wave was drawn.
    pub wave: usize,
    pub subreddit: String,
    /// The topic that the posts were collected for.
    pub topic: Option<String>,
    /// The group of the posts, if they are grouped and have one.
    pub group: Option<String>,
    /// Slug of the assigned label; `None` for no label.
    pub label: Option<String>,
    pub posts: u64,
}

/// Counts of stored answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SavedGold {
    /// New answers.
    pub added: u64,
    /// Answers that replace a different earlier answer by the same annotator.
    pub changed: u64,
    /// Answers that repeat an earlier answer, or are older than the stored answer.
    pub same: u64,
    /// Posts that are not stored.
    pub missing: Vec<Fullname>,
}

/// A selection of posts or comments by label and score, on the review page.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewFilter {
    /// Posts or comments.
    pub kind: ThingKind,
    /// The assigned label.
    pub label: FilterLabel,
    /// Lowest score of the best label.
    pub low: f64,
    /// Highest score of the best label.
    pub high: f64,
}

/// The order in which posts are reviewed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReviewOrder<'f> {
    /// Lowest margin first.
    Margin,
    /// By text hash, which is random.
    Random,
    /// Only posts that a filter selects, by text hash.
    Filtered(&'f ReviewFilter),
}

/// The assigned label of the posts that a filter selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterLabel {
    /// Any label, or none.
    Any,
    /// The label with this slug.
    Slug(String),
    /// No label.
    Missing,
}

/// The result of removing an annotator's answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForgottenGold {
    /// Removed answers.
    pub answers: u64,
    /// Label sets that were fitted to this annotator's answers and whose provenance named the annotator until now.
    pub fits: Vec<FitRow>,
}

/// A label set that `labels fit` created, with the provenance of its fit.
#[derive(Debug, Clone, PartialEq)]
pub struct FitRow {
    /// Key in `label_sets`.
    pub id: LabelSetId,
    /// Name of the label set.
    pub name: String,
    /// Start of its hash, which identifies it where several versions have this name.
    pub version: String,
    /// The number of answers, and who gave them.
    pub learned: Provenance,
}

impl FitRow {
    /// Describes what the label set retains from its answers, and how to remove it.
    pub fn what_it_keeps(&self) -> String {
        format!(
            "`{}` keeps what it learned from {} gold labels, possibly including these, as weights without any text or \
             id; to forget them, run `topicmill labels fit --make-current` (or `topicmill labels use` with a different \
             label set), and then `topicmill labels drop {}`",
            self.name, self.learned.answers, self.version
        )
    }
}

/// A post as the review page shows it, and its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReviewPost {
    pub fullname: Fullname,
    pub subreddit: String,
    pub title: String,
    pub selftext: String,
    pub url: Option<String>,
    pub permalink: Option<String>,
    pub created_at: Timestamp,
    /// Hash of the displayed text.
    pub text_hash: TextHash,
    /// Slug of the label with the best score.
    pub label: String,
    pub score: f64,
    /// True if the post was given no label.
    pub abstained: bool,
}

impl ReviewPost {
    /// Returns the title of a post, or the body of a comment.
    pub fn title_or_body(&self) -> &str {
        self.fullname.title_or_body(&self.title, &self.selftext)
    }
}
