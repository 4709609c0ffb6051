//! The values that every other crate shares: posts, topics, hashes, times and run records, and the few rules that follow
//! from the words alone. No database, no network, no files; [`clock`] is the only place that asks what time it is.

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

pub use self::cells::{ColumnCell, ColumnCells, ColumnKind, ColumnTexts, ColumnValues};
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
/// `SQLite` keeps times as text, and text with a varying number of digits does not sort; whole seconds do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "DateTime<Utc>", into = "DateTime<Utc>")]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// The first second of 1970.
    pub const EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// From seconds since 1970; `None` outside of chrono's range.
    pub fn from_epoch_secs(secs: i64) -> Option<Self> {
        DateTime::from_timestamp(secs, 0).map(Self)
    }

    /// The wrapped value, its fraction of a second always zero.
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

/// Clocks differ by this much and no more: what is dated further ahead has a wrong date.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// A clock that was set back by less than this is waited for; more is taken for a clock that was wrong before. So a slot
/// that is due later than this is one that a wrong clock had.
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

/// Why a string is not the fullname of a post.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither the fullname of a post, `t3_` and a base-36 id, nor the address of one")]
pub struct FullnameError(String);

impl Fullname {
    /// The post of an id or of an address: that of its page, or a short link as `https://redd.it/1a2b3c`.
    ///
    /// # Errors
    /// The text is neither. The address of a comment is none of a post; what `/s/` leads to only Reddit knows.
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

    /// The text form, `t3_…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fullname {
    type Err = FullnameError;

    /// Accepts `t3_ID` and a bare `ID`; ids of dumps come without their prefix.
    ///
    /// An id is a number, so `T3_0AA1` names the same post as `t3_aa1` and becomes it: otherwise a post that was
    /// purged could come back under another spelling.
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

/// Returns true for a fullname as this program writes it.
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
    /// Why a post was purged.
    PurgeReason {
        /// Its author deleted it.
        Deleted = "deleted",
        /// Moderators, or Reddit itself, removed it.
        Removed = "removed",
        /// Reddit does not know it any more.
        Missing = "missing",
        /// Somebody asked for it here.
        Requested = "requested",
        /// It shows a post that was purged, and went with it.
        ParentPurged = "shown",
    }
}

impl PurgeReason {
    /// Whether the post may be stored again once Reddit shows it again: moderators approve what they
    /// removed, and subreddits come back; a crosspost may be stored again once no post that it shows is purged. What
    /// its author deleted, or somebody asked for, stays away.
    pub const fn is_reversible(self) -> bool {
        matches!(self, Self::Removed | Self::Missing | Self::ParentPurged)
    }
}

string_enum! {
    /// Why a person was asked about this post and no other.
    SampleReason {
        /// Drawn at random among all labelled posts.
        Random = "random",
        /// Its best two labels are among the closest.
        Closest = "closest",
        /// Somebody else chose it: it came with a file.
        Import = "import",
    }
}

string_enum! {
    /// Where a person gave an answer.
    GoldSource {
        /// On the review page.
        Review = "review",
        /// In a table.
        Import = "import",
        /// In Label Studio.
        LabelStudio = "label-studio",
    }
}

string_enum! {
    /// A stage of the pipeline, as recorded with its run.
    Stage {
        /// Posts from Reddit into the store.
        Collect = "collect",
        /// Posts from files into the store.
        Import = "import",
        /// Labels and scores for stored posts.
        Classify = "classify",
        /// What is gone on Reddit, or too old, out of the store.
        Purge = "purge",
    }
}

string_enum! {
    /// How a run stands or ended.
    RunStatus {
        /// Not finished.
        Running = "running",
        /// Everything asked for was done.
        Done = "done",
        /// Finished, but some rows or topics failed.
        Partial = "partial",
        /// Ended by an error.
        Failed = "failed",
        /// Ended by a signal after draining.
        Stopped = "stopped",
        /// Its process is gone without having recorded an end, or gave no sign of life for long.
        Died = "died",
    }
}

string_enum! {
    /// What came of reading one subreddit.
    Outcome {
        /// Posts were read.
        Ok = "ok",
        /// The subreddit answered without posts.
        Empty = "empty",
        /// Only its members may read it.
        Private = "private",
        /// Reddit closed it.
        Banned = "banned",
        /// Readable only after an opt-in that the API does not give.
        Quarantined = "quarantined",
        /// Readable only after a consent that the API does not give.
        Gated = "gated",
        /// There is no such subreddit.
        Missing = "missing",
        /// The edge refused the client before the API saw it.
        EdgeBlocked = "edge-blocked",
        /// The credentials were refused.
        Auth = "auth",
        /// The quota did not allow it within the wait budget.
        RateLimited = "rate-limited",
        /// The server or the way to it failed.
        Server = "server",
        /// A signal came first.
        Stopped = "stopped",
    }
}

impl Outcome {
    /// Whether it says something of the subreddit alone, so that another one may answer where this did not.
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

    /// Returns true if the client or its key is refused, whatever it asks for.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Auth | Self::EdgeBlocked)
    }
}

/// A post as last seen.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as many independent marks as Reddit puts on a post"
)]
pub struct Post {
    /// Its key.
    pub fullname: Fullname,
    /// Subreddit without `r/`, in Reddit's spelling.
    pub subreddit: String,
    /// Title, without NUL.
    pub title: String,
    /// Body, without NUL; a crosspost without one carries its parent's. Empty for links.
    pub selftext: String,
    /// The post that a crosspost shows. Its text is that post's, and goes with it.
    pub crosspost_parent: Option<Fullname>,
    /// What a link post points to.
    pub url: Option<String>,
    /// Path on Reddit.
    pub permalink: Option<String>,
    /// As Reddit gives it: [`AuthorPolicy`] says what is stored of it. `None` where deleted.
    pub author: Option<String>,
    /// Upvotes less downvotes.
    pub score: Option<i64>,
    /// An archive read the post as soon as it was there and not again, so its score, ratio and number of
    /// comments tell nothing yet.
    pub score_is_placeholder: bool,
    /// Upvotes among votes, 0 to 1.
    pub upvote_ratio: Option<f64>,
    /// Number of comments.
    pub num_comments: Option<i64>,
    /// Link flair text.
    pub flair: Option<String>,
    /// Marked not safe for work.
    pub over_18: bool,
    /// Has a body of its own rather than a link.
    pub is_self: bool,
    /// Pinned by a moderator: shown first on a listing, not counted towards a limit.
    pub stickied: bool,
    /// Removed or deleted on Reddit.
    pub removed: bool,
    /// When it was posted.
    pub created_at: Timestamp,
    /// Where it came from.
    pub source: SourceKind,
}

impl Post {
    /// Returns the text that models read, see [`post_text`](topicmill_score::reddit::post_text).
    pub fn text(&self) -> String {
        topicmill_score::reddit::post_text(&self.title, &self.selftext)
    }
}

/// What becomes of the names of authors.
#[derive(Debug, Clone)]
pub enum AuthorPolicy {
    /// Stored as they are.
    Stored,
    /// Stored as a hash under this key.
    Hashed(String),
}

impl AuthorPolicy {
    /// Prepares posts for the store: names their authors as they may be stored, and hashes their texts.
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

/// A post as it may be stored: its author is kept or hashed as the settings say, and its text is hashed.
///
/// Only [`AuthorPolicy::prepare`] makes one, so no author's name is stored by accident:
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
    /// Position on the listing that it was read from, starting at 0; `None` if it was not read from one.
    pub rank: Option<u32>,
}

impl ReadyPost {
    /// Returns the hash of the text that models read.
    pub const fn text_hash(&self) -> &TextHash {
        &self.text_hash
    }

    /// Removes the text of the post that a crosspost shows, and the link to it: retention took them from that post.
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

/// What to collect and what to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Short name, unique: `climate`.
    pub slug: String,
    /// Candidate label, the words put into the hypothesis: `climate change`.
    pub label: String,
    /// Plain descriptions of the label, for embedding models.
    pub descriptions: Vec<String>,
    /// Subreddits in order of preference: the first that can be read is read.
    pub subreddits: Vec<String>,
    /// Listing to read.
    pub listing: Listing,
    /// Whether nobody chose it, so that new posts are read once some are known.
    pub is_default_listing: bool,
    /// Posts wanted, stickied ones not counted.
    pub limit: u32,
}

/// Records that did not become posts: how many for which reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rejections(BTreeMap<String, u64>);

impl Rejections {
    /// Reasons that are told apart; a broken file can have as many as lines.
    const MAX_REASONS: usize = 20;

    /// One more. What was found, which differs from row to row, is not counted apart.
    pub fn add(&mut self, reason: &str) {
        let reason = reason
            .split_once(FOUND_MARKER)
            .map_or(reason, |(reason, _)| reason);
        // PostgreSQL's JSON takes no NUL, and a reason may quote what it found.
        self.add_many(&reason.replace('\0', ""), 1);
    }

    /// All of another count.
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

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Stands in a reason before the value that was found.
pub const FOUND_MARKER: &str = "; it is ";

/// What a run did for one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicReport {
    /// The topic's slug.
    pub topic: String,
    /// The subreddit that was read, or the last one tried.
    pub subreddit: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Preferred subreddits that could not be read, and why.
    pub skipped: Vec<(String, Outcome)>,
    /// Pages read.
    pub pages: u64,
    /// Posts received and stored, each counted once.
    pub posts: u64,
    /// How many of them were not known before.
    pub new: u64,
    /// How many of them were known, and something of them changed: their score, say.
    pub changed: u64,
    /// How many of these have another text now, and are scored anew.
    pub edited: u64,
    /// How many of them were purged before, and so not stored.
    pub tombstoned: u64,
    /// Children of the listing that are no post, or not a whole one.
    pub rejected: Rejections,
    /// What went wrong, in words, where something did.
    pub detail: Option<String>,
}

#[cfg(test)]
mod tests;
