//! Values that are written to the store and read from it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{Cost, HypothesisId, LabelSetId, Lease, ModelId, RunId, Target};
use topicmill_core::score::LabelOutcome;
use topicmill_core::{
    Fullname, Listing, Mode, PairLogits, PurgeReason, ReadyPost, RunStatus, Scores, SourceKind,
    Stage, TextHash, TextVector, Timestamp,
};

/// A page of posts and its origin, stored in one transaction.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// The run that read it.
    pub run: RunId,
    /// Its source.
    pub source: SourceKind,
    /// The topic that it was read for. Without a topic, nothing is recorded in `sightings`.
    pub topic: Option<&'a str>,
    /// The subreddit that it was read from, for the watermark; empty for files.
    pub subreddit: &'a str,
    pub listing: Option<Listing>,
    /// Cursor of the next page; `None` if no further page was requested.
    pub after: Option<&'a str>,
    /// The new watermark: creation time of the newest post in the listing, not later than `now`. Set only when
    /// everything requested was read, because an interrupted run must not move the watermark past unread posts.
    pub newest: Option<Timestamp>,
    /// From an archive: the time since which all posts up to `newest` were read.
    pub read_from: Option<Timestamp>,
    /// Posts in page order. If a fullname repeats, the last post counts.
    pub posts: Vec<ReadyPost>,
    /// When the page was received.
    pub now: Timestamp,
}

/// The newest post in the archive, as a run of `collect` measured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ArchiveState {
    /// The creation time of the archive's newest post.
    pub newest_at: Timestamp,
    /// The start of the run.
    pub measured_at: Timestamp,
}

/// The keywords that posts were selected with for a topic, from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicKeywords {
    /// Slug of the topic.
    pub topic: String,
    /// The start of the first run with these keywords.
    pub since: Timestamp,
    /// The keywords; without any, all posts were selected.
    pub keywords: Vec<String>,
}

impl fmt::Display for TopicKeywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keywords = match &self.keywords[..] {
            [] => "all posts".to_owned(),
            keywords => format!("only posts with {}", keywords.join(" or ")),
        };
        let since = self.since.as_datetime().date_naive();
        write!(f, "{}: {keywords}, since {since}", self.topic)
    }
}

/// A time range in which some of a subreddit's posts could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The source of the posts.
    pub source: SourceKind,
    /// Slug of the topic.
    pub topic: String,
    pub subreddit: String,
    /// Time of the newest post before the gap, or the start of the requested range.
    pub from_at: Timestamp,
    /// Time of the oldest post after the gap, or the end of the requested range.
    pub until_at: Timestamp,
}

/// A stored post whose comments are not all read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadThread {
    /// The post.
    pub post: Fullname,
    /// Its subreddit.
    pub subreddit: String,
    /// When it was posted.
    pub created_at: Timestamp,
}

/// Import position of a file, with counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportState {
    /// Fingerprint of the file.
    pub file: String,
    /// Hash of the filters and topics of the import.
    pub selection: String,
    /// Its path as given, for display.
    pub name: String,
    /// Bytes read, after decompression.
    pub byte_offset: u64,
    pub rows: u64,
    /// Rows excluded by the filters.
    pub left_out: u64,
    pub posts: u64,
    pub rejected: u64,
    pub run: RunId,
    /// When the position was stored.
    pub updated_at: Timestamp,
    /// When the file was read to its end; `None` if it was not.
    pub finished_at: Option<Timestamp>,
}

/// A row of `models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRow {
    /// Display name.
    pub name: String,
    /// `nli`, `embedding`, `gliclass` or `classifier`.
    pub kind: String,
    /// SHA-256 of the files that determine scores, in hexadecimal.
    pub manifest_hash: String,
    /// Number format of the graph.
    pub precision: String,
    /// SHA-256 of the tokenizer file, in hexadecimal.
    pub tokenizer_hash: String,
    /// Longest input in tokens, including special tokens.
    pub max_tokens: i64,
}

/// The worker that claims posts, and the terms of its lease.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub worker: &'a str,
    pub run: RunId,
    /// Number of attempts before a post is parked.
    pub max_attempts: u32,
    /// Time until the lease expires, unless it is renewed.
    pub lease: Duration,
}

/// The posts that a claim may include, depending on whether workers have crashed on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashFilter {
    /// Posts on which no worker has crashed.
    WithoutCrash,
    /// Posts on which a worker crashed, or may have crashed.
    WithCrash,
}

/// The target and the lease for labels to write.
#[derive(Debug, Clone, Copy)]
pub struct LabelWrite {
    pub target: Target,
    /// Key of the model for the logits and vectors.
    pub logits_model: ModelId,
    pub mode: Mode,
    pub run: RunId,
    pub now: Timestamp,
    /// The lease on the posts. Without one, posts that are leased or labelled are omitted.
    pub lease: Option<Lease>,
}

/// A claim on part of the backlog. Its holder may write labels for the claimed posts until another worker reclaims the
/// expired lease.
#[derive(Debug, Clone)]
pub struct Claim {
    pub lease: Lease,
    pub posts: Vec<ClaimedPost>,
}

/// A post to score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedPost {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    /// The text that models read.
    pub text: String,
}

/// A claimed post with its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    /// Scores of the labels, in the order of the label set.
    pub scores: Scores,
    /// Logits to store.
    pub logits: Vec<NewLogits>,
    /// Vector of the text to store; `None` if it is already stored.
    pub vector: Option<TextVector>,
}

/// Logits of a text and a hypothesis that are not stored yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewLogits {
    pub hypothesis: HypothesisId,
    pub logits: PairLogits,
}

/// A post without a label under a target, and the vector of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlabelledText {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    /// Vector of the text.
    pub vector: TextVector,
}

/// The text of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    pub title: String,
    /// Body; empty if the post has none, or if the body was removed.
    pub body: String,
}

/// The keys of a model, a label set and its hypotheses; `None` for any that is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingTarget {
    pub model: Option<ModelId>,
    pub label_set: Option<LabelSetId>,
    /// One per label.
    pub hypotheses: Vec<Option<HypothesisId>>,
}

/// The work of labelling the remaining posts under a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkEstimate {
    pub cost: Cost,
    /// A random sample of the texts, as models read them.
    pub sample: Vec<(TextHash, String)>,
}

/// Counts of the backlog of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogCounts {
    pub claimable: u64,
    pub claimed: u64,
    /// Posts that failed, or crashed their workers, too many times.
    pub parked: u64,
}

/// Counts of stored labels, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredLabels {
    pub posts: u64,
    /// Posts without a label, because the background fits better.
    pub other: u64,
    /// Posts without a label, because the best score is below the threshold.
    pub unsure: u64,
}

impl StoredLabels {
    /// Counts the outcome of a post.
    pub(super) fn add(&mut self, outcome: LabelOutcome) {
        self.posts += 1;
        self.other += u64::from(outcome == LabelOutcome::Other);
        self.unsure += u64::from(outcome == LabelOutcome::Unsure);
    }
}

/// The result of a write under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The labels were stored.
    Stored(StoredLabels),
    /// Nothing was stored, because another worker had reclaimed the expired lease.
    LeaseLost,
}

/// A run without a recorded end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnfinishedRun {
    pub id: RunId,
    pub stage: Stage,
    pub worker: String,
    pub started_at: Timestamp,
    /// Its last heartbeat, or its start.
    pub seen_at: Timestamp,
    /// Age of the last heartbeat, by the database's clock.
    #[serde(skip)]
    pub heartbeat_age: Duration,
}

/// Maximum age of the last heartbeat of a run that may still be running: ten heartbeat intervals, in case the database
/// server was unavailable.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_mins(10);

impl UnfinishedRun {
    /// Returns true if the run may still be running.
    pub fn is_alive(&self) -> bool {
        self.heartbeat_age < HEARTBEAT_TIMEOUT
    }
}

/// A row of `runs`, for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    pub id: RunId,
    pub stage: Stage,
    pub status: RunStatus,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub counts: Value,
    pub error: Option<String>,
}

/// Progress of labelling under the current target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabellingState {
    /// Stored posts and comments; the counts below are of both.
    pub posts: i64,
    /// The comments among them.
    pub comments: i64,
    /// Posts with a current label or an abstention.
    pub labelled: i64,
    /// Labelled posts for which the model abstained: `other` and `unsure`.
    pub none_of_these: i64,
    /// Labelled posts with the outcome `other`: the background fits better than any label.
    pub other: i64,
    /// Labelled posts with the outcome `unsure`: the best score is below the threshold.
    pub unsure: i64,
    pub unlabelled: i64,
    /// Posts that failed, or crashed their workers, too many times.
    pub parked: i64,
    /// Posts claimed by a running worker.
    pub claimed: i64,
    /// Posts without a label and without text: retention deleted it, or it is only a placeholder.
    pub without_text: i64,
    /// Posts older than 36 hours that have been checked neither with Reddit nor with the archive.
    pub unchecked: i64,
    /// Time of the last reconciliation: every stored post has been checked with Reddit since then. A complete
    /// `purge --check-deleted` records it.
    pub reconciled_at: Option<Timestamp>,
    /// When the oldest unlabelled post was stored.
    pub oldest_unlabelled: Option<Timestamp>,
    /// Name of the current model.
    pub model: Option<String>,
    pub label_set: Option<String>,
    pub label_set_hash: Option<String>,
}

/// The posts whose text retention deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldTexts {
    /// Posts stored before this time.
    pub before: Timestamp,
    /// Posts stored after this time, because a clock was wrong.
    pub after: Timestamp,
    /// True if posts that only files and dumps contained are included.
    pub imports: bool,
    /// True if the vectors of the texts are kept.
    pub keep_vectors: bool,
}

/// The posts that are due for a check with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The source. The sample Reddit knows only its own posts, and the others know none of these.
    pub source: SourceKind,
    /// Posts last checked before this time, or never.
    pub before: Timestamp,
    /// Posts created before this time.
    pub created_before: Timestamp,
}

/// Reddit's response about some posts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// True if the response is the archive's.
    pub by_archive: bool,
    /// Posts that Reddit returned, or that the archive does not report as gone.
    pub visible: Vec<Fullname>,
    /// Posts among `visible` whose author's account is deleted; the name is deleted here too.
    pub author_deleted: Vec<Fullname>,
    /// Posts that are gone, with the reason.
    pub gone: Vec<(Fullname, PurgeReason)>,
    /// Crossposts, each with its parents. The first parent is the post whose text the crosspost shows.
    pub crossposts: Vec<(Fullname, Vec<Fullname>)>,
}

/// Counts of a purge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Purged posts that were stored.
    pub posts: u64,
    /// Crossposts of purged posts, which were purged too.
    pub crossposts: u64,
    /// Gold labels of all these posts.
    pub gold: u64,
}

/// The texts that a step of retention deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgedTexts {
    /// Posts whose text was deleted.
    pub posts: u64,
    /// Posts among these without a current label, which they can no longer get.
    pub unlabelled: u64,
}

/// A description of the database.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    /// `sqlite` or `postgres`.
    pub backend: &'static str,
    /// URL without its password.
    pub url: String,
    pub server: String,
    /// Schema version found; 0 for none.
    pub schema: i64,
    pub latest: i64,
    pub bytes: i64,
    pub rows: Vec<(String, i64)>,
}
