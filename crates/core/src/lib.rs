//! Defines the values that all other crates share: posts, topics, labels, scores, hashes, times and run records.
//!
//! The crate uses no database, network or files, so that the rules for these values can be tested in isolation.
//! [`clock`] is the only module in the program that reads the time.

#[macro_use]
mod string_enum;
mod cells;
pub mod clock;
mod duration;
#[cfg(any(test, feature = "test-util"))]
pub mod examples;
mod failure_kind;
mod fullname;
pub mod labels;
pub mod model_kind;
mod post;
mod quota;
pub mod record;
mod redact;
pub mod reddit;
mod rejection;
mod schedules;
pub mod score;
mod sources;
mod spreadsheet;
#[cfg(feature = "columns")]
mod sqlx_types;
mod text;
mod vectors;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

pub use self::cells::{
    ColumnCell, ColumnCells, ColumnKind, ColumnTexts, ColumnValues, ColumnVectors,
};
pub use self::duration::{format_duration, parse_duration};
pub use self::failure_kind::FailureKind;
pub use self::fullname::{Fullname, FullnameError};
pub use self::labels::{
    Background, BackgroundError, BackgroundTopic, CALIBRATED, FitTarget, Fitted, FittedClass,
    FittedError, Label, LabelSet, LabelSetError, Mode, Provenance, SHORT_HASH, short_hash, slug,
};
pub use self::model_kind::ModelKind;
pub use self::post::{AuthorPolicy, Post, ReadyPost, author_name};
pub use self::quota::{QuotaReservation, QuotaTerms};
pub use self::redact::redact_url;
pub use self::rejection::{RejectReason, Rejections};
pub use self::schedules::ScheduledRunStatus;
pub use self::score::{PairLogits, Scores};
pub use self::sources::{Listing, SourceKind, SourceTraits};
pub use self::spreadsheet::spreadsheet_safe;
pub use self::string_enum::UnknownVariant;
pub use self::text::{InvalidTextHash, TextHash, hex};
pub use self::vectors::{LabelVector, TextVector, unit};

/// A point in time in whole seconds UTC.
///
/// `SQLite` stores times as text. Text sorts by time only if all times have the same number of digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "DateTime<Utc>", into = "DateTime<Utc>")]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// The first second of 1970.
    pub const EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// Converts seconds since 1970; returns `None` outside chrono's range.
    pub fn from_epoch_secs(secs: i64) -> Option<Self> {
        DateTime::from_timestamp(secs, 0).map(Self)
    }

    /// Returns the chrono value, whose fraction of a second is always zero.
    pub fn as_datetime(self) -> DateTime<Utc> {
        self.0
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.trunc_subsecs(0))
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(time: Timestamp) -> Self {
        time.0
    }
}

/// The largest accepted clock skew between machines; a time further in the future is treated as wrong.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// The largest backward clock step that the scheduler waits out.
///
/// A larger step back means that the clock was wrong before. Therefore a scheduled run whose due time is further ahead
/// than this was planned by a wrong clock.
pub const MAX_CLOCK_SETBACK: TimeDelta = TimeDelta::days(1);

string_enum! {
    /// The reason why a post was purged.
    PurgeReason {
        /// The author deleted the post.
        Deleted = "deleted",
        /// Moderators or Reddit removed the post.
        Removed = "removed",
        /// Reddit no longer returns the post.
        Missing = "missing",
        /// A user of topicmill requested the purge.
        Requested = "requested",
        /// The post is a crosspost whose parent was purged.
        ParentPurged = "shown",
    }
}

impl PurgeReason {
    /// Returns true if the post may be stored again once Reddit returns it again.
    ///
    /// Moderators can approve a removed post, and closed subreddits can reopen. A crosspost may return when no post
    /// that it shows is purged. Deleted and requested posts never return.
    pub const fn is_reversible(self) -> bool {
        matches!(self, Self::Removed | Self::Missing | Self::ParentPurged)
    }
}

string_enum! {
    /// The reason why a post was selected for a gold label.
    SampleReason {
        /// Drawn at random from all labelled posts.
        Random = "random",
        /// The scores of its two best labels are close (uncertainty sampling).
        Closest = "closest",
        /// Matches the filter of the review page.
        Filter = "filter",
        /// Selected outside topicmill and imported from a file.
        Import = "import",
    }
}

string_enum! {
    /// The tool in which an annotator assigned a gold label.
    GoldSource {
        /// The review page.
        Review = "review",
        /// An imported table.
        Import = "import",
        /// Label Studio.
        LabelStudio = "label-studio",
    }
}

string_enum! {
    /// A stage of the pipeline; each run has one.
    Stage {
        /// Fetches posts from Reddit or an archive into the store.
        Collect = "collect",
        /// Reads posts from files into the store.
        Import = "import",
        /// Labels and scores stored posts.
        Classify = "classify",
        /// Removes posts that are gone from Reddit or past their retention.
        Purge = "purge",
    }
}

string_enum! {
    /// The status of a run.
    RunStatus {
        /// Not finished.
        Running = "running",
        /// Everything requested was done.
        Done = "done",
        /// Finished, but some rows or topics failed.
        Partial = "partial",
        /// Ended by an error.
        Failed = "failed",
        /// Cancelled by a signal, after draining.
        Stopped = "stopped",
        /// The process exited without recording an end, or its heartbeat expired.
        Crashed = "crashed",
    }
}

string_enum! {
    /// The outcome of reading one subreddit.
    Outcome {
        /// Posts were read.
        Ok = "ok",
        /// The subreddit returned no posts.
        Empty = "empty",
        /// Only members may read the subreddit.
        Private = "private",
        /// Reddit banned the subreddit.
        Banned = "banned",
        /// Readable only after an opt-in, which the API does not offer.
        Quarantined = "quarantined",
        /// Readable only after giving consent, which the API does not offer.
        Gated = "gated",
        /// The subreddit does not exist.
        Missing = "missing",
        /// The edge server blocked the client before the API was reached.
        EdgeBlocked = "edge-blocked",
        /// The credentials were rejected.
        Auth = "auth",
        /// The quota did not allow the request within the maximum wait.
        RateLimited = "rate-limited",
        /// The server or the connection failed.
        Server = "server",
        /// Cancelled by a signal.
        Stopped = "stopped",
    }
}

impl Outcome {
    /// Returns true if the outcome concerns only this subreddit, so that other subreddits may still be readable.
    pub fn is_subreddit_specific(self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::Private
                | Self::Banned
                | Self::Quarantined
                | Self::Gated
                | Self::Missing
        )
    }

    /// Returns true if the client or its credentials are rejected for every request.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Auth | Self::EdgeBlocked)
    }
}

/// A topic: a candidate label, and the subreddits to collect it from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Unique short name: `climate`.
    pub slug: String,
    /// Candidate label, inserted into the hypothesis: `climate change`.
    pub label: String,
    /// Plain descriptions of the label, for embedding models.
    pub descriptions: Vec<String>,
    /// Subreddits in order of preference; the first readable one is used.
    pub subreddits: Vec<String>,
    /// Listing to read.
    pub listing: Listing,
    /// True if the listing was not set explicitly; later runs then read `new`.
    pub is_default_listing: bool,
    /// Number of posts to read, not counting stickied posts.
    pub limit: u32,
}

/// The result of a run for one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicReport {
    /// The topic's slug.
    pub topic: String,
    /// The subreddit that was read, or the last one tried.
    pub subreddit: String,
    /// Outcome of reading the subreddit.
    pub outcome: Outcome,
    /// Preferred subreddits that could not be read, each with its outcome.
    pub skipped: Vec<(String, Outcome)>,
    /// Pages read.
    pub pages: u64,
    /// Posts received and stored, each counted once.
    pub posts: u64,
    /// Posts that were not stored before.
    pub new: u64,
    /// Stored posts that changed, for example in their score.
    pub changed: u64,
    /// Changed posts with new text, which are scored again.
    pub edited: u64,
    /// Posts with a tombstone, which are not stored again.
    pub tombstoned: u64,
    /// Entries of the listing that are not posts, or are incomplete.
    pub rejected: Rejections,
    /// The user-facing error message, if there was an error.
    pub detail: Option<String>,
}

#[cfg(test)]
mod tests;
