//! A report as numbers.

use super::time::Axis;
use topicmill_core::{Fullname, Timestamp};
use topicmill_review::drift::Drift;
use topicmill_store::{Fate, Gap, Skipped};

/// Columns of a histogram of scores.
pub const BINS: usize = 50;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// The later half of the posts' time with the earlier half.
    Halves,
    /// What was asked for with as much time before it.
    Before,
}

impl Period {
    /// What is compared, in words.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Halves => ("the earlier half", "the later half"),
            Self::Before => ("the period before", "this period"),
        }
    }
}

/// Two shares of an outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Posts with the outcome before.
    pub before: u64,
    /// Posts with it after.
    pub after: u64,
    /// Its share before, 0 to 1.
    pub from: f64,
    /// Its share after.
    pub to: f64,
    /// Whether chance hardly makes such a change.
    pub is_significant: bool,
}

impl Change {
    /// The difference of the shares.
    pub fn difference(&self) -> f64 {
        self.to - self.from
    }
}

/// A label, or one of the two ways to have none.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeStats {
    /// Its slug; `other` and `unsure` for posts without a label.
    pub slug: String,
    /// Its words.
    pub name: String,
    pub fate: Fate,
    pub posts: u64,
    /// Their share of all posts that are labelled in the period.
    pub share: f64,
    /// Posts a column of the axis.
    pub series: Vec<u64>,
    /// The mean of their best scores; `None` without posts.
    pub mean_score: Option<f64>,
    /// Posts a column of the histogram.
    pub bins: Vec<u64>,
    /// How its share changed, where there is something to compare.
    pub change: Option<Change>,
}

/// A topic that posts were collected for.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicStats {
    pub slug: String,
    /// The words of the label of this slug, else the slug.
    pub name: String,
    /// Posts of the period, labelled or not.
    pub posts: u64,
    /// Those of them that are labelled.
    pub scored: u64,
    /// Labelled posts by outcome, in the order of [`Report::outcomes`].
    pub row: Vec<u64>,
    /// Posts a column of the axis.
    pub series: Vec<u64>,
}

/// A post that is quoted.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotedPost {
    pub fullname: Fullname,
    pub title: String,
    pub subreddit: String,
    pub link: Option<String>,
    /// The words of what it was collected for.
    pub topic: Option<String>,
    /// The best labels with their scores, at most two.
    pub best: Vec<(String, f64)>,
    pub is_labelled: bool,
}

/// A report as numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The database, without its password.
    pub database: String,
    /// When it was made.
    pub now: Timestamp,
    /// The model that gave the labels, with its precision.
    pub model: Option<String>,
    /// Name and version of the label set.
    pub label_set: Option<(String, String)>,
    /// A post whose best score is lower has no label.
    pub threshold: f64,
    /// Whether scores lie between 0 and 1; those of a regression do not.
    pub scores_are_shares: bool,
    /// When the first post of the period was posted.
    pub first: Option<Timestamp>,
    /// And the last one.
    pub last: Option<Timestamp>,
    /// What is compared, if anything.
    pub period: Option<Period>,
    /// The columns of time.
    pub axis: Axis,
    /// Whether only a part of the time was asked for.
    pub is_bounded: bool,
    /// Posts of the period.
    pub posts: u64,
    pub waiting: u64,
    /// Those whose text retention took before they had one.
    pub without_text: u64,
    /// Posts a column of the axis: with a label, with none of them, waiting.
    pub totals: Vec<[u64; 3]>,
    /// Labels, the largest first, then `other` and `unsure` where there are any.
    pub outcomes: Vec<OutcomeStats>,
    /// Topics, the largest first.
    pub topics: Vec<TopicStats>,
    /// Labelled posts that were collected for a label of the set, and those whose label is that one.
    pub agreement: (u64, u64),
    /// How far the mixes are apart.
    pub drift: Option<Drift>,
    /// Posts whose best two labels are closest.
    pub closest: Vec<QuotedPost>,
    /// Posts with the highest scores.
    pub surest: Vec<QuotedPost>,
    /// Stretches of time of which posts are missing, the latest first.
    pub gaps: Vec<Gap>,
    /// Subreddits that were passed over, the latest run first.
    pub skipped: Vec<Skipped>,
    /// Reddit was asked about every post at this time or later.
    pub reconciled_at: Option<Timestamp>,
}

impl Report {
    /// Posts that the model said something of.
    pub fn scored(&self) -> u64 {
        self.outcomes.iter().map(|line| line.posts).sum()
    }

    /// Posts with one outcome.
    pub fn of(&self, fate: Fate) -> u64 {
        let lines = self.outcomes.iter().filter(|line| line.fate == fate);
        lines.map(|line| line.posts).sum()
    }

    /// The labels, without the two ways to have none.
    pub fn labels(&self) -> impl Iterator<Item = &OutcomeStats> {
        self.outcomes
            .iter()
            .filter(|line| line.fate == Fate::Labelled)
    }
}
