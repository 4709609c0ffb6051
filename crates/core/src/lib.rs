//! Defines the values that all other crates share: posts, topics, hashes, times and run records.
//!
//! The crate uses no database, network or file, so that the rules about these values can be tested alone. [`clock`] is
//! the only module of the program that reads the time.

#[macro_use]
mod string_enum;
mod cells;
pub mod clock;
mod duration;
mod failure_kind;
mod quota;
pub mod record;
mod redact;
mod schedules;
mod sources;
mod spreadsheet;
#[cfg(feature = "columns")]
mod sqlx_types;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::cells::{
    ColumnCell, ColumnCells, ColumnKind, ColumnTexts, ColumnValues, ColumnVectors,
};
pub use self::duration::{format_duration, parse_duration};
pub use self::failure_kind::FailureKind;
pub use self::quota::{QuotaReservation, QuotaTerms};
pub use self::redact::redact_url;
pub use self::schedules::{CatchUp, Overlap, ScheduledRunStatus};
pub use self::sources::{Listing, SourceKind, SourceTraits};
pub use self::spreadsheet::spreadsheet_safe;
pub use self::string_enum::UnknownVariant;
pub use self::text::{InvalidTextHash, TextHash};
pub use topicmill_score::hex;

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
/// If the clock was set back by more, the earlier time was wrong: a scheduled run planned further ahead than this was
/// planned by a wrong clock.
pub const MAX_CLOCK_SETBACK: TimeDelta = TimeDelta::days(1);

/// Reddit's name of a post: `t3_` and a base-36 id, as in `t3_1a2b3c`.
///
/// ```
/// use topicmill_core::Fullname;
///
/// let post: Fullname = "1a2b3c".parse().unwrap();
/// assert_eq!(post.as_str(), "t3_1a2b3c");
/// assert!("t1_comment".parse::<Fullname>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fullname(String);

/// An error for text that is not the fullname or URL of a post.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither the fullname of a post (`t3_` and a base-36 id) nor the URL of one")]
pub struct FullnameError(String);

impl Fullname {
    /// Parses an id, the URL of a post's page, or a short link such as `https://redd.it/1a2b3c`.
    ///
    /// # Errors
    /// When the text is none of these. URLs of comments are rejected, and so are `/s/` share links, which only
    /// Reddit can resolve.
    pub fn from_url(text: &str) -> Result<Self, FullnameError> {
        if !text.contains('/') {
            return text.parse();
        }
        let path = text.split_once("://").map_or(text, |(_, path)| path);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let id = match parts[..] {
            ["redd.it" | "www.redd.it", id] | [.., "comments", id] | [.., "comments", id, _] => {
                Some(id)
            }
            _ => None,
        };
        let id = id.and_then(|id| id.parse().ok());
        id.ok_or_else(|| FullnameError(text.chars().take(80).collect()))
    }

    /// Returns the text form, `t3_…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fullname {
    type Err = FullnameError;

    /// Parses `t3_ID` or a bare `ID`, as in dumps.
    ///
    /// An id is a number, so `T3_0AA1` names the same post as `t3_aa1` and is normalised to it. Otherwise a purged post
    /// could return under another spelling.
    fn from_str(text: &str) -> Result<Self, FullnameError> {
        if is_fullname(text) {
            return Ok(Self(text.to_owned()));
        }
        let lower = text.trim().to_ascii_lowercase();
        let id = lower.strip_prefix("t3_").unwrap_or(&lower);
        let id = id.trim_start_matches('0');
        let valid = (1..=16).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
        if valid {
            Ok(Self(format!("t3_{id}")))
        } else {
            Err(FullnameError(text.chars().take(40).collect()))
        }
    }
}

/// True if the text is a normalised fullname.
fn is_fullname(text: &str) -> bool {
    text.strip_prefix("t3_").is_some_and(|id| {
        let mut bytes = id.bytes();
        (1..=16).contains(&id.len())
            && !id.starts_with('0')
            && bytes.all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    })
}

impl fmt::Display for Fullname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

string_enum! {
    /// The reason for which a post was purged.
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
    /// True if the post may be stored again once Reddit returns it again.
    ///
    /// Moderators can approve a removed post, and closed subreddits can reopen. A crosspost may return when no post
    /// that it shows is purged. Deleted and requested posts never return.
    pub const fn is_reversible(self) -> bool {
        matches!(self, Self::Removed | Self::Missing | Self::ParentPurged)
    }
}

string_enum! {
    /// The reason for which a post was selected for a gold label.
    SampleReason {
        /// Drawn at random from all labelled posts.
        Random = "random",
        /// The scores of its two best labels are close (uncertainty sampling).
        Closest = "closest",
        /// Matches the filter of the review page.
        Filter = "filter",
        /// Selected outside topicmill, and imported with a file.
        Import = "import",
    }
}

string_enum! {
    /// The tool with which an annotator gave a gold label.
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
        /// Readable only after an opt-in that the API does not give.
        Quarantined = "quarantined",
        /// Readable only after a consent that the API does not give.
        Gated = "gated",
        /// The subreddit does not exist.
        Missing = "missing",
        /// The edge server blocked the client before the API was reached.
        EdgeBlocked = "edge-blocked",
        /// The credentials were rejected.
        Auth = "auth",
        /// The quota did not allow the request within the wait budget.
        RateLimited = "rate-limited",
        /// The server or the connection failed.
        Server = "server",
        /// Cancelled by a signal.
        Stopped = "stopped",
    }
}

impl Outcome {
    /// True if the outcome concerns this subreddit alone, so that another subreddit is worth a try.
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

    /// True if the client or its credentials are rejected, whatever the request.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Auth | Self::EdgeBlocked)
    }
}

/// A post as its source last returned it.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "Reddit has as many independent flags on a post"
)]
pub struct Post {
    /// The key of the post.
    pub fullname: Fullname,
    /// Subreddit without `r/`, as Reddit spells it.
    pub subreddit: String,
    /// Title, without NUL.
    pub title: String,
    /// Body, without NUL. Empty for links. A crosspost without a body has the body of its parent.
    pub selftext: String,
    /// Parent of a crosspost. The text comes from the parent, and is removed with it.
    pub crosspost_parent: Option<Fullname>,
    /// Target of a link post.
    pub url: Option<String>,
    /// Path of the post's page on Reddit.
    pub permalink: Option<String>,
    /// Author as Reddit names it; [`AuthorPolicy`] decides how it is stored. `None` if deleted.
    pub author: Option<String>,
    /// Upvotes minus downvotes.
    pub score: Option<i64>,
    /// True if an archive captured the post right after it was posted, so that the score, ratio and number of comments
    /// are not meaningful yet.
    pub score_is_placeholder: bool,
    /// Share of upvotes, 0 to 1.
    pub upvote_ratio: Option<f64>,
    /// Number of comments.
    pub num_comments: Option<i64>,
    /// Link flair text.
    pub flair: Option<String>,
    /// True if marked not safe for work.
    pub over_18: bool,
    /// True for a text post, false for a link.
    pub is_self: bool,
    /// True if pinned by a moderator: listed first, and not counted towards a limit.
    pub stickied: bool,
    /// True if removed or deleted on Reddit.
    pub removed: bool,
    /// Time of posting.
    pub created_at: Timestamp,
    /// Source of the post.
    pub source: SourceKind,
}

impl Post {
    /// Returns the text that models read; see [`post_text`](topicmill_score::reddit::post_text).
    pub fn text(&self) -> String {
        topicmill_score::reddit::post_text(&self.title, &self.selftext)
    }
}

/// The policy for storing authors' names.
#[derive(Debug, Clone)]
pub enum AuthorPolicy {
    /// Names are stored unchanged.
    Stored,
    /// Names are replaced by a hash under this key.
    Hashed(String),
}

impl AuthorPolicy {
    /// Prepares posts for the store: applies the policy to the authors' names, and hashes the texts.
    pub fn prepare(&self, posts: impl IntoIterator<Item = Post>) -> Vec<ReadyPost> {
        let ready = |mut post: Post| {
            if let (Self::Hashed(key), Some(author)) = (self, &mut post.author) {
                // The key has a fixed length, so the boundary between key and name is unambiguous.
                let digest = Sha256::new()
                    .chain_update(key.as_bytes())
                    .chain_update(author.as_bytes())
                    .finalize();
                *author = format!("u_{}", hex(&digest[..8]));
            }
            ReadyPost {
                text_hash: TextHash::new(&post.text()),
                rank: None,
                post,
            }
        };
        posts.into_iter().map(ready).collect()
    }
}

/// A post that is ready for the store: the author follows the [`AuthorPolicy`], and the text is hashed.
///
/// Only [`AuthorPolicy::prepare`] creates one, to prevent storing an author's name by accident:
///
/// ```compile_fail
/// fn store(post: topicmill_core::Post, text_hash: topicmill_core::TextHash) {
///     topicmill_core::ReadyPost { post, text_hash, rank: None };
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyPost {
    post: Post,
    text_hash: TextHash,
    /// Position on the listing, from 0; `None` if the post was not read from a listing.
    pub rank: Option<u32>,
}

impl ReadyPost {
    /// Returns the hash of the text that models read.
    pub const fn text_hash(&self) -> &TextHash {
        &self.text_hash
    }

    /// Removes the text and link that a crosspost has from its parent, after retention removed them from the parent.
    pub fn remove_shown_text(&mut self) {
        self.post.selftext.clear();
        self.post.url = None;
        self.text_hash = TextHash::new(&self.post.text());
    }
}

impl std::ops::Deref for ReadyPost {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.post
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
    /// Number of posts to read, stickied posts not counted.
    pub limit: u32,
}

/// Counts of rejected records, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rejections(BTreeMap<String, u64>);

impl Rejections {
    /// The most reasons that are distinguished; a broken file could have one for each line.
    const MAX_REASONS: usize = 20;

    /// Counts one record. The part after [`FOUND_MARKER`], which differs from row to row, is dropped.
    pub fn add(&mut self, reason: &str) {
        let reason = reason
            .split_once(FOUND_MARKER)
            .map_or(reason, |(reason, _)| reason);
        // PostgreSQL's JSON takes no NUL, and a reason may quote what it found.
        self.add_many(&reason.replace('\0', ""), 1);
    }

    /// Adds all counts of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (reason, n) in &other.0 {
            self.add_many(reason, *n);
        }
    }

    fn add_many(&mut self, reason: &str, n: u64) {
        let room = self.0.len() < Self::MAX_REASONS || self.0.contains_key(reason);
        let reason = if room { reason } else { "other reasons" };
        *self.0.entry(reason.to_owned()).or_default() += n;
    }

    /// Returns the total over all reasons.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Separates a reason from the value that was found in the record.
pub const FOUND_MARKER: &str = "; it is ";

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
    /// Stored posts that changed, in their score for example.
    pub changed: u64,
    /// Changed posts with a new text, which are scored again.
    pub edited: u64,
    /// Posts with a tombstone, which are not stored again.
    pub tombstoned: u64,
    /// Children of the listing that are not posts, or incomplete.
    pub rejected: Rejections,
    /// The user-facing error message, if there was an error.
    pub detail: Option<String>,
}

#[cfg(test)]
mod tests;
