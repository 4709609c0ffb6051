//! The data for a report: counts, shares and examples, without any markup.

use super::axis::Axis;
use super::time;
use crate::display::single_line;
use topicmill_core::{Fullname, ThingKind, Timestamp};
use topicmill_review::change::{SIGNIFICANCE, ShareChange};
use topicmill_review::coverage::Covered;
use topicmill_review::evaluate::{GroupShares, LabelShare};
use topicmill_review::quality::MeasuredQuality;
use topicmill_store::{
    Gap, Grouping, PeriodCell, PostOutcome, SkippedSubreddits, TopicKeywords, TwoPeriods,
};

/// Number of bins in a score histogram.
pub const BINS: usize = 50;

/// The reason why no change is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCompared {
    /// No subreddit was read without gaps for two days, the shortest time that is halved.
    TooShort,
    /// No subreddit was read without gaps in the chosen period and in the one before it.
    NotCovered,
    /// A period has too few scored posts.
    TooFewPosts,
}

impl NotCompared {
    /// Returns the reason in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::TooShort => "no subreddit was read without gaps for two days",
            Self::NotCovered => "no subreddit was read without gaps in both periods",
            Self::TooFewPosts => "a period has too few scored texts",
        }
    }
}

/// The two periods that a change is measured between.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The periods, and the subreddits that were read without gaps in both.
    pub covered: Covered,
    /// Scored posts of these subreddits in each period.
    pub posts: [u64; 2],
}

impl Compared {
    /// Returns the dates of the two periods.
    pub fn dates(&self) -> [String; 2] {
        let TwoPeriods { from, split, until } = self.covered.periods;
        time::two_periods(from, split, until)
    }

    /// Describes the subreddits that are compared, if they are not all subreddits: `r/food`, `3 of 5 subreddits`.
    pub fn which_subreddits(&self) -> Option<String> {
        let names = &self.covered.subreddits;
        match (names.len(), self.covered.all_subreddits) {
            (some, all) if some >= all => None,
            (1, _) => names
                .first()
                .map(|name| format!("r/{}", single_line(name, 40))),
            (some, all) => Some(format!("{some} of {all} subreddits")),
        }
    }
}

/// The change in an outcome's share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Posts with the outcome in each period.
    pub posts: [u64; 2],
    /// The shares and their difference.
    pub share: ShareChange,
    /// p-value of the difference, corrected for the number of outcomes.
    pub p: f64,
}

impl Change {
    /// Returns true if the change is statistically significant.
    pub fn is_significant(&self) -> bool {
        self.p < SIGNIFICANCE
    }

    /// Returns the part of the raw change that is due to the mix of subreddits, without its sign.
    pub fn mix_effect(&self) -> f64 {
        (self.share.raw_difference() - self.share.difference()).abs()
    }

    /// Returns true if the raw change differs by half a percentage point or more.
    pub fn depends_on_mix(&self) -> bool {
        self.mix_effect() >= 0.005
    }
}

/// The shares of labels in groups of posts.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    /// The property by which posts are grouped.
    pub by: Grouping,
    /// Slugs of the labels, in the order of the groups' shares. The share of no label comes last.
    pub labels: Vec<String>,
    /// The groups.
    pub groups: Vec<GroupShares>,
}

impl Groups {
    /// Returns true if a label has a share of any group.
    pub fn has_posts(&self, place: usize) -> bool {
        let mut shares = self.groups.iter().map(|group| group.shares[place]);
        shares.any(|share| {
            share.assigned > 0.0 || share.estimated.is_some_and(|one| one.value > Some(0.0))
        })
    }
}

/// Statistics for an outcome: a label, `other` or `unsure`.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeStats {
    /// The label's slug, or `other` or `unsure`.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// The kind of outcome.
    pub outcome: PostOutcome,
    /// Posts with this outcome in the period.
    pub posts: u64,
    /// Share of these posts among all scored posts in the period.
    pub share: f64,
    /// Posts per column of the time axis.
    pub series: Vec<u64>,
    /// Mean of the posts' best scores. `None` if there are no posts, and for `other`: those posts were not assigned
    /// their best label.
    pub mean_score: Option<f64>,
    /// Posts per bin of the score histogram.
    pub bins: Vec<u64>,
    /// Change in the share; `None` if no periods are compared.
    pub change: Option<Change>,
}

impl OutcomeStats {
    /// Returns true if a cell's posts have this outcome.
    pub fn counts(&self, cell: &PeriodCell) -> bool {
        let is_label = |label: &String| *label == self.slug;
        cell.outcome == self.outcome
            && (self.outcome != PostOutcome::Labelled || cell.label.as_ref().is_some_and(is_label))
    }
}

/// Statistics for a topic that posts were collected for.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicStats {
    /// The topic's slug.
    pub slug: String,
    /// Text of the label with this slug, or the slug itself if there is none.
    pub name: String,
    /// Slug of the label that the topic names; `None` if it names none.
    pub label: Option<String>,
    /// Posts in the period, scored or not.
    pub posts: u64,
    /// Scored posts among them.
    pub scored: u64,
    /// Scored posts by outcome, in the order of [`Report::outcomes`].
    pub row: Vec<u64>,
    /// Posts per column of the time axis.
    pub series: Vec<u64>,
}

/// The agreement of labels with the topics that posts were collected for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Posts labelled as their topic.
    pub agreed: u64,
    /// Scored posts whose topic is a label.
    pub comparable: u64,
}

/// The times of the last complete checks for deletions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletionChecks {
    /// On Reddit.
    pub reddit: Option<Timestamp>,
    /// In Arctic Shift.
    pub archive: Option<Timestamp>,
}

/// A label set at one version.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelSetVersion {
    /// Name of the label set.
    pub name: String,
    /// The first characters of its hash.
    pub version: String,
}

/// A label's score for a post.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelScore {
    /// Text of the label, or `other`.
    pub label: String,
    /// The score.
    pub score: f64,
}

/// A quoted post.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotedPost {
    /// The post's fullname.
    pub fullname: Fullname,
    /// Title of the post, or the start of the comment, formatted for display.
    pub text: String,
    /// Subreddit, without `r/`.
    pub subreddit: String,
    /// URL on Reddit.
    pub link: Option<String>,
    /// Display name for the topic that the post was collected for.
    pub topic: Option<String>,
    /// The best labels with their scores, at most two; the second may be `other`.
    pub best: Vec<LabelScore>,
    /// True if the post has a label.
    pub is_labelled: bool,
}

/// The data for a report. The fields call posts and comments posts, but only one kind is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Posts or comments.
    pub kind: ThingKind,
    /// Display name for the database, without a password.
    pub database: String,
    /// Time when the report was made.
    pub now: Timestamp,
    /// Name and number format of the model.
    pub model: Option<String>,
    /// The label set.
    pub label_set: Option<LabelSetVersion>,
    /// The threshold: a post whose best score is lower gets no label.
    pub threshold: f64,
    /// True if scores are between 0 and 1; raw scores are not.
    pub scores_are_shares: bool,
    /// Time of the first post in the period.
    pub first: Option<Timestamp>,
    /// Time of the last post in the period.
    pub last: Option<Timestamp>,
    /// The periods that are compared, or the reason why none are.
    pub compared: Result<Compared, NotCompared>,
    /// The time axis.
    pub axis: Axis,
    /// True if the period was restricted.
    pub is_bounded: bool,
    /// Posts in the period.
    pub posts: u64,
    /// Posts that are not scored yet.
    pub waiting: u64,
    /// Posts whose text was purged by retention before they were scored.
    pub without_text: u64,
    /// Posts per column of the time axis: [labelled, `other` or `unsure`, not scored].
    pub totals: Vec<[u64; 3]>,
    /// Labels, largest first, then `other` and `unsure` if there are any.
    pub outcomes: Vec<OutcomeStats>,
    /// Topics: first the ones that are labels, in label order, then the rest, largest first.
    pub topics: Vec<TopicStats>,
    /// The agreement of labels with topics.
    pub agreement: Agreement,
    /// The labels' quality over all periods; `None` if there is no label set. Its shares are those of the posts in the
    /// period.
    pub quality: Option<MeasuredQuality>,
    /// Number of random answers about posts in the period.
    pub sampled: usize,
    /// The labels' shares by group of posts, if requested.
    pub groups: Option<Groups>,
    /// Posts with the smallest margins between their two best labels.
    pub closest: Vec<QuotedPost>,
    /// Posts with the highest scores.
    pub most_confident: Vec<QuotedPost>,
    /// Time ranges with missing posts, latest first.
    pub gaps: Vec<Gap>,
    /// The keywords that posts were selected with.
    pub keywords: Vec<TopicKeywords>,
    /// Subreddits that could not be read, latest run first.
    pub skipped: Vec<SkippedSubreddits>,
    /// The last checks for deletions.
    pub checked_for_deletions: DeletionChecks,
}

impl Report {
    /// Returns the number of scored posts.
    pub fn scored(&self) -> u64 {
        self.outcomes.iter().map(|line| line.posts).sum()
    }

    /// Returns the shares estimated from random answers, if there are any.
    pub fn estimates(&self) -> Option<&[LabelShare]> {
        let shares = &self.quality.as_ref()?.shares;
        (!shares.is_empty()).then_some(shares)
    }

    /// Returns a label's shares of the posts that the estimates speak of.
    pub fn estimate_of(&self, label: &str) -> Option<&LabelShare> {
        self.estimates()?.iter().find(|share| share.label == label)
    }

    /// Returns the number of posts that the estimates do not speak of.
    pub fn not_covered(&self) -> u64 {
        let quality = self.quality.as_ref();
        let frame = quality.and_then(|quality| quality.frame.as_ref());
        frame.map_or(0, |frame| frame.not_covered)
    }

    /// Returns the number of posts with this kind of outcome.
    pub fn posts_with(&self, outcome: PostOutcome) -> u64 {
        let lines = self.outcomes.iter().filter(|line| line.outcome == outcome);
        lines.map(|line| line.posts).sum()
    }

    /// Returns the number of scored posts that got no label.
    pub fn without_label(&self) -> u64 {
        self.posts_with(PostOutcome::Other) + self.posts_with(PostOutcome::Unsure)
    }

    /// Returns the labels, without `other` and `unsure`; largest first.
    pub fn labels(&self) -> impl Iterator<Item = &OutcomeStats> {
        self.outcomes
            .iter()
            .filter(|line| line.outcome == PostOutcome::Labelled)
    }
}
