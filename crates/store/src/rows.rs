//! Values that go into the store and come out of it, without a database.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use topicmill_core::{
    Fullname, Listing, PurgeReason, ReadyPost, RunStatus, SourceKind, Stage, TextHash, Timestamp,
};
use topicmill_score::{Mode, Outcome, PairLogits, Scores, TextVector};

/// Key of a row of `runs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RunId(pub i64);

/// Under which model and label set posts are classified: keys of their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Target {
    pub model: i64,
    pub label_set: i64,
}

/// A page of posts with where it was found: stored in one transaction.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// The run that saw it.
    pub run: RunId,
    /// Its source.
    pub source: SourceKind,
    /// The topic it was read for, if any; without one no sighting is recorded.
    pub topic: Option<&'a str>,
    /// The subreddit it was read from, for the watermark; empty for files.
    pub subreddit: &'a str,
    pub listing: Option<Listing>,
    /// Cursor of the next page; `None` if no more was requested.
    pub after: Option<&'a str>,
    /// Creation time of the newest post of the whole listing, once it was read as far as was asked for; a
    /// listing that is cut short must not move the watermark past what it did not read. Not later than `now`.
    pub newest: Option<Timestamp>,
    /// Posts in order; a fullname may be there twice, the last one counts.
    pub posts: Vec<ReadyPost>,
    /// When it was received.
    pub now: Timestamp,
}

/// A stretch of time of which a subreddit's posts could not all be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The source of the posts.
    pub source: SourceKind,
    /// Slug of the topic.
    pub topic: String,
    pub subreddit: String,
    /// The newest post that was known, or where the stretch begins that was asked for.
    pub from_at: Timestamp,
    /// The oldest post that was listed, or where the stretch ends.
    pub until_at: Timestamp,
}

/// Import position of a file, and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportState {
    /// Fingerprint of the file.
    pub file: String,
    /// Hash of what was asked for of it.
    pub selection: String,
    /// Its path as given, for people.
    pub name: String,
    /// Bytes read, unpacked.
    pub byte_offset: u64,
    pub rows: u64,
    /// Rows among them that the filters left out.
    pub left_out: u64,
    pub posts: u64,
    pub rejected: u64,
    pub run: RunId,
    /// When that was.
    pub updated_at: Timestamp,
    /// When its end was read, if it was.
    pub finished_at: Option<Timestamp>,
}

/// Counts of an upsert of posts. All but `edited` add up to the number of distinct posts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Upserted {
    /// Not known before.
    pub new: u64,
    /// Known, and something of them is another now: text, topic, score, flair and so on.
    pub changed: u64,
    /// Changed posts with another text: their labels are outdated.
    pub edited: u64,
    /// Known, and as before.
    pub unchanged: u64,
    /// Purged before, see [`Store::purge`]: not stored.
    pub tombstoned: u64,
}

/// A model folder as used, for the table `models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRow {
    /// For people.
    pub name: String,
    /// `nli` or `embedding`.
    pub kind: String,
    /// SHA-256 over the files that decide a score, hex.
    pub manifest_hash: String,
    /// Precision of the graph.
    pub precision: String,
    /// SHA-256 of the tokenizer's file, hex.
    pub tokenizer_hash: String,
    /// Longest sequence, special tokens included.
    pub max_tokens: i64,
}

/// The claiming worker and the terms of its lease.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub worker: &'a str,
    pub run: RunId,
    /// Posts that failed this often are left alone.
    pub max_attempts: u32,
    /// Time after which the lease expires unless it is renewed.
    pub lease: Duration,
}

/// The posts that a claim may take, by how many workers died while they held them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// All of them.
    Any,
    /// Posts on which no worker crashed.
    Clear,
    /// Posts on which a worker crashed, or may have.
    Suspect,
}

/// The target of labels, and the lease that they are written under.
#[derive(Debug, Clone, Copy)]
pub struct LabelWrite {
    pub target: Target,
    pub mode: Mode,
    pub run: RunId,
    pub now: Timestamp,
    /// The lease under which the posts are held. Without one, posts are left out that somebody holds or has labelled.
    pub lease: Option<Lease>,
}

/// A claim on part of the backlog. Its holder may write for these posts until another worker takes it over,
/// which it may once the claim has expired.
#[derive(Debug, Clone)]
pub struct Claim {
    pub lease: Lease,
    pub posts: Vec<ClaimedPost>,
}

impl Claim {
    /// Nothing was claimed, under no lease.
    pub(super) const NOTHING: Self = Self {
        lease: Lease(0),
        posts: Vec::new(),
    };
}

/// Key of a row of `leases`: the fencing token. Ids grow and are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Lease(pub i64);

/// A post to be scored.
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
    /// One a label of the set, in its order.
    pub scores: Scores,
    /// Logits that are not stored yet: (row of `models`, row of `hypotheses`, logits).
    pub logits: Vec<(i64, i64, PairLogits)>,
    /// The vector of the text, if it is not stored yet: row of `models`, and the vector.
    pub vector: Option<(i64, TextVector)>,
}

/// A post that has no label under a target, and whose text has a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlabelledText {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    /// The model's result for the text.
    pub vector: TextVector,
}

/// Posts that got no label under a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLabel {
    /// The background fits them better than every label.
    Other,
    /// Their best score is below the threshold.
    Unsure,
    /// Either.
    Both,
}

/// The words of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    pub fullname: Fullname,
    pub text_hash: TextHash,
    pub title: String,
    /// Body; empty where it has none, or one that was removed.
    pub body: String,
}

/// Rows of a model, a label set and its hypotheses, if they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    pub model: Option<i64>,
    pub label_set: Option<i64>,
    /// Rows of `hypotheses`, one a label.
    pub hypotheses: Vec<Option<i64>>,
}

/// The unlabelled posts under a model and a label set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub posts: u64,
    /// Their texts, equal ones once.
    pub texts: u64,
    /// Pairs of these texts and the labels that have no logits yet.
    pub pairs: u64,
    /// Pairs of these texts and the labels that have.
    pub known: u64,
    /// Posts that need no inference.
    pub ready: u64,
    /// Some of the texts, at random, as models read them.
    pub sample: Vec<(TextHash, String)>,
}

/// Posts in the backlog of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub claimable: u64,
    pub held: u64,
    /// Set aside after failing, or after their workers died, too often.
    pub set_aside: u64,
}

/// Outcomes of posts whose labels were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredLabels {
    pub posts: u64,
    /// Posts that belong to none of the labels.
    pub other: u64,
    /// Posts whose best score is below the threshold.
    pub unsure: u64,
}

impl StoredLabels {
    /// Adds posts.
    pub(super) fn add(&mut self, posts: &[&Classified]) {
        let count = |outcome| {
            let outcomes = posts.iter().map(|one| one.scores.outcome());
            outcomes.filter(|one| *one == outcome).count() as u64
        };
        self.posts += posts.len() as u64;
        self.other += count(Outcome::Other);
        self.unsure += count(Outcome::Unsure);
    }
}

/// The result of a write under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Stored, this many classifications.
    Stored(StoredLabels),
    /// Refused: the lease had expired and someone else took its posts over. Nothing was stored.
    LeaseLost,
}

/// A run that has no end in its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub id: RunId,
    pub worker: String,
    /// Its last sign of life: its last beat, or its beginning.
    pub seen_at: Timestamp,
    /// True if it ever sent a heartbeat; earlier versions do not.
    pub beats: bool,
    /// Time since the last heartbeat, by the database's clock.
    pub silent: Duration,
}

/// A run that showed life within this time may still be under way: ten beats of one whose server stood still.
const ALIVE: Duration = Duration::from_mins(10);

impl Running {
    /// True if it may still be running.
    pub fn is_alive(&self) -> bool {
        self.silent < ALIVE
    }
}

/// A row of `runs`, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    pub id: i64,
    pub stage: Stage,
    pub status: RunStatus,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub counts: Value,
    pub error: Option<String>,
}

/// Progress of labelling under the current model and label set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabellingState {
    pub posts: i64,
    /// Posts that are labelled under the current model and label set.
    pub labelled: i64,
    /// Labelled posts with none of the labels: other or unsure.
    pub none_of_these: i64,
    /// Labelled posts that are other: a topic of the background fits better.
    pub other: i64,
    /// Labelled posts that are unsure: the best score is below the threshold.
    pub unsure: i64,
    pub unlabelled: i64,
    /// Set aside after failing too often.
    pub set_aside: i64,
    /// Claimed by a live worker now.
    pub claimed: i64,
    /// Posts without a label and without a text: retention purged it, or it is only a placeholder.
    pub without_text: i64,
    /// Not asked Reddit about yet, or removed there.
    pub unchecked: i64,
    /// Reddit was asked at this time or later about every post that was stored when the latest
    /// `purge --check-deleted` came to its end.
    pub reconciled_at: Option<Timestamp>,
    /// When the oldest unlabelled post was collected.
    pub oldest_unlabelled: Option<Timestamp>,
    /// Name of the current model.
    pub model: Option<String>,
    pub label_set: Option<String>,
    pub label_set_hash: Option<String>,
}

/// The posts that are due for a check with Reddit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// True for posts of the sample Reddit, which Reddit does not know; false for all others.
    pub sample: bool,
    /// Posts not checked since then, and posts never checked.
    pub before: Timestamp,
}

/// Reddit's response about some posts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// They are there.
    pub alive: Vec<Fullname>,
    /// They are there, but their author's account is not: those of `alive` that lose the name.
    pub authorless: Vec<Fullname>,
    /// They are not.
    pub gone: Vec<(Fullname, PurgeReason)>,
    /// Crossposts with the posts that they show, the one whose text it is first.
    pub shows: Vec<(Fullname, Vec<Fullname>)>,
}

/// Counts of a purge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Posts that were asked for and were there.
    pub posts: u64,
    /// Posts that show one of those, and went with it.
    pub crossposts: u64,
    /// Gold labels of these posts.
    pub gold: u64,
}

/// Returns facts about the database.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    /// `sqlite` or `postgres`.
    pub backend: &'static str,
    /// Without its password.
    pub url: String,
    pub server: String,
    /// Schema version found; 0 for none.
    pub schema: i64,
    pub latest: i64,
    pub bytes: i64,
    pub rows: Vec<(String, i64)>,
}
