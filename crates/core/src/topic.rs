//! Defines topics, and the result of reading one.

use serde::Serialize;

use crate::record::Upserted;
use crate::{Keywords, Listing, Post, Rejections, ThingKind};

/// The end of the path of a subreddit's comments.
const COMMENTS: &str = "/comments";

/// Returns the subreddit of a [path](Topic::path), and what was read from it.
pub fn subreddit_of_path(path: &str) -> (&str, ThingKind) {
    match path.strip_suffix(COMMENTS) {
        Some(subreddit) => (subreddit, ThingKind::Comment),
        None => (path, ThingKind::Post),
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
    /// Keywords, one of which a post must contain to be stored for the topic.
    pub keywords: Keywords,
    /// The kind of things to read.
    pub kind: ThingKind,
    /// True if only the comments on the topic's stored posts are read.
    pub of_posts: bool,
    /// Listing to read.
    pub listing: Listing,
    /// True if the listing was not set explicitly; later runs then read `new`.
    pub is_default_listing: bool,
    /// Number of matching posts to read, not counting stickied posts.
    pub limit: u32,
}

impl Topic {
    /// Returns the path of a subreddit's listing below `/r/`, which identifies what was read: `food`, or
    /// `food/comments`.
    pub fn path(&self, subreddit: &str) -> String {
        match self.kind {
            ThingKind::Post => subreddit.to_owned(),
            ThingKind::Comment => format!("{subreddit}{COMMENTS}"),
        }
    }

    /// Returns true if the topic lists the post's subreddit.
    pub fn lists(&self, post: &Post) -> bool {
        let mut names = self.subreddits.iter();
        names.any(|name| name.eq_ignore_ascii_case(&post.subreddit))
    }

    /// Returns true if the post contains one of the keywords.
    pub fn matches(&self, post: &Post) -> bool {
        self.keywords.match_post(&post.title, &post.selftext)
    }
}

string_enum! {
    /// The outcome of reading one subreddit.
    #[derive(Default)]
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
        /// Not read, for example because a signal cancelled the run.
        #[default]
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

/// The result of a run for one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TopicReport {
    /// The topic's slug.
    pub topic: String,
    /// The [path](Topic::path) that was read, or the last one tried.
    pub subreddit: String,
    /// Outcome of reading the subreddit.
    pub outcome: Outcome,
    /// Preferred subreddits that could not be read, each with its outcome.
    pub skipped: Vec<(String, Outcome)>,
    /// Pages read.
    pub pages: u64,
    /// Posts received and stored, each counted once.
    pub posts: u64,
    /// Posts received that contain none of the topic's keywords.
    pub unmatched: u64,
    /// Comments on the topic's posts that the source left out.
    pub left_out: u64,
    /// Changes to the stored posts.
    #[serde(flatten)]
    pub stored: Upserted,
    /// Entries of the listing that are not posts, or are incomplete.
    pub rejected: Rejections,
    /// The user-facing error message, if there was an error.
    pub detail: Option<String>,
}

impl TopicReport {
    /// Creates the report of a topic that is not read yet.
    pub fn new(topic: &Topic) -> Self {
        Self {
            topic: topic.slug.clone(),
            ..Self::default()
        }
    }

    /// Returns the kind of the things that were read.
    pub fn kind(&self) -> ThingKind {
        subreddit_of_path(&self.subreddit).1
    }
}
