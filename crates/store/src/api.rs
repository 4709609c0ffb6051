//! The methods of [`Store`], grouped by concern: `store.runs()`, `store.posts()` and so on. Each method is declared
//! once and forwarded to the method of the same name of `SqlStore`, which the files in `sql/` implement. The doc
//! comment of each group names its files.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use topicmill_core::{
    Fullname, LabelSet, LabelVector, PairLogits, QuotaReservation, QuotaTerms, RunStatus,
    SourceKind, Stage, TextHash, TextVector, ThingKind, Timestamp,
};

use super::browse::{ChangeMarker, PostCounts, PostDetails, PostFilter, PostSummary};
use super::checking::{Finding, OnCheck};
use super::lock_wait::repeat;
use super::{
    ArchiveState, BacklogCounts, Checked, Claim, Claimant, ClaimedScheduledRun, Classified,
    ComparedPost, Cost, CrashFilter, CrossFitted, Dependents, DropTarget, Due, ExistingTarget,
    Failure, FitRow, ForgottenGold, FrameCell, FrameQuery, Gap, GoldAnswer, Grouping, HypothesisId,
    ImportState, Info, LabelSetId, LabelSetRow, LabelWrite, LabellingEstimate, LabellingState,
    LastRun, Lease, ModelId, ModelRow, NewestPost, OldTexts, Page, PeriodCell, PostLabel,
    Prediction, Purged, PurgedTexts, ReportQuery, ReportSums, Result, ReviewOrder, ReviewPost,
    Rewritten, RunId, RunRow, RunningScheduledRun, SavedGold, ScheduleState, ScheduledRunClaimant,
    ScheduledRunEnd, ScheduledRunLease, ScheduledRunRow, StageRuns, Store, StoredGold, StoredText,
    SubredditSpan, Target, TopicKeywords, TwoPeriods, UnfinishedRun, UnlabelledText, UnreadThread,
    Upserted, Watermark, WorkEstimate, Written,
};

/// Calls the method of the open database.
macro_rules! dispatch {
    ($store:expr, $name:ident($($arg:ident),*)) => {
        match $store {
            Store::Sqlite(store) => repeat!(store, store.$name($($arg),*)),
            Store::Postgres(store) => repeat!(store, store.$name($($arg),*)),
        }
    };
}

/// Declares a type with the methods of one concern, and the method of [`Store`] that returns this type.
macro_rules! facade {
    (
        $(#[$doc:meta])* $method:ident: $facade:ident
        $($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty;)*
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $facade<'s>(&'s Store);

        impl Store {
            $(#[$doc])*
            pub const fn $method(&self) -> $facade<'_> {
                $facade(self)
            }
        }

        impl $facade<'_> {
            $($(#[$meta])*
            ///
            /// # Errors
            /// See [`StoreError`](super::StoreError).
            pub async fn $name(self $(, $arg: $ty)*) -> Result<$ret> {
                dispatch!(self.0, $name($($arg),*))
            })*
        }
    };
}

/// Declares methods of [`Store`] itself.
macro_rules! store_methods {
    ($($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty;)*) => {
        impl Store {
            $($(#[$meta])*
            ///
            /// # Errors
            /// See [`StoreError`](super::StoreError).
            pub async fn $name(&self $(, $arg: $ty)*) -> Result<$ret> {
                dispatch!(self, $name($($arg),*))
            })*
        }
    };
}

store_methods! {
    /// Copies SQLite's write-ahead log into the database file and empties the log, so that a copy of the file alone is
    /// complete. Returns false if a reader prevented that. On PostgreSQL, updates the planner's statistics of tables
    /// that changed much.
    fn checkpoint(&self) -> bool;
    /// Copies as much of SQLite's write-ahead log into the database file as possible without waiting for others. On
    /// PostgreSQL, the same as [`checkpoint`](Self::checkpoint).
    fn checkpoint_passive(&self) -> ();
    /// Stores a value under a key in `meta`. The value must not contain post content, because a purge does not delete
    /// it.
    fn set_meta(&self, key: &str, value: &str) -> ();
    /// Returns the value stored under a key.
    fn meta(&self, key: &str) -> Option<String>;
    /// Returns a description of the database: its version, size and number of rows.
    fn info(&self) -> Info;
    /// Runs all checks of the database's integrity and returns the findings.
    fn check(&self, progress: OnCheck<'_>) -> Vec<Finding>;
    /// Closes all connections; SQLite then copies its log into the file.
    fn close(&self) -> ();
}

facade! {
    /// Runs of stages (`sql/runs.rs`).
    runs: Runs
    /// Records the start of a run and returns its key.
    fn begin_run(&self, stage: Stage, worker: &str, now: Timestamp) -> RunId;
    /// Records the end of a run.
    fn finish_run(
        &self, run: RunId, status: RunStatus, counts: &Value, outcomes: &Value, error: Option<&str>, now: Timestamp
    ) -> ();
    /// Records a heartbeat, with the time of the database's clock. A run that was marked as crashed is set back to
    /// `running`.
    fn record_heartbeat(&self, run: RunId) -> ();
    /// Returns the runs without a recorded end, which are running or have crashed.
    fn unfinished_runs(&self) -> Vec<UnfinishedRun>;
    /// Records that a run crashed. Its last heartbeat becomes its end.
    fn mark_crashed(&self, run: RunId, why: &str) -> ();
    /// Returns the latest runs of one stage or of all stages, newest first.
    fn recent_runs(&self, stage: Option<Stage>, limit: u32) -> Vec<RunRow>;
    /// Returns the totals per stage of the runs that began at `since` or later.
    fn runs_since(&self, since: Timestamp) -> Vec<StageRuns>;
    /// Returns the last ended run of each stage, except runs that labelled nothing because others held the posts.
    fn last_runs(&self) -> Vec<LastRun>;
    /// Returns the start and the outcomes by topic of the latest ended `collect` runs, newest first.
    fn collect_outcomes(&self, runs: u32) -> Vec<(Timestamp, Value)>;
    /// Returns the latest measurement of the newest post in the archive; `None` if there is none.
    fn archive_state(&self) -> Option<ArchiveState>;
    /// Returns the rate, in posts per second, of the latest run that labelled at least `posts` posts.
    fn labelling_rate(&self, posts: u32) -> Option<f64>;
    /// Returns the start of the latest run that began before `before` or after `after`.
    fn last_run_start(&self, before: Timestamp, after: Timestamp) -> Option<Timestamp>;
}

facade! {
    /// Scheduled runs (`sql/schedules.rs`).
    schedules: Schedules
    /// Returns the state of a schedule: its latest due time with a row, and the run in progress. For `now`, see
    /// [`Backlog::claim`].
    fn schedule_state(&self, name: &str, now: Timestamp) -> ScheduleState;
    /// Starts the run of a due time; `None` if the due time has a row, or another run of the schedule is in progress.
    fn start_scheduled_run(
        &self, name: &str, due_at: Timestamp, claimant: &ScheduledRunClaimant<'_>, now: Timestamp
    ) -> Option<ClaimedScheduledRun>;
    /// Records that the run of a due time does not start; returns false if the due time has a row.
    fn skip_scheduled_run(&self, name: &str, due_at: Timestamp, why: &str) -> bool;
    /// Reclaims the run of a process that crashed; `None` if another process was faster, or the lease was renewed.
    fn reclaim_scheduled_run(
        &self, held: &RunningScheduledRun, claimant: &ScheduledRunClaimant<'_>, now: Timestamp
    ) -> Option<ClaimedScheduledRun>;
    /// Extends a lease to `now + duration`, or ends it if `duration` is zero; returns false if the run was reclaimed.
    fn renew_scheduled_run(&self, lease: ScheduledRunLease, duration: Duration, now: Timestamp) -> bool;
    /// Records the stages that have ended so far; returns false if the run was reclaimed.
    fn record_stages(&self, lease: ScheduledRunLease, outcomes: &[Value]) -> bool;
    /// Records the end of a run. Writes nothing and returns false if the run was reclaimed.
    fn finish_scheduled_run(&self, lease: ScheduledRunLease, end: &ScheduledRunEnd, now: Timestamp) -> bool;
    /// Records that a run of a stage belongs to a scheduled run.
    fn link_run(&self, run: RunId, scheduled_run: i64) -> ();
    /// Returns the last run of each schedule that is due at `until` or earlier and was not skipped.
    fn last_scheduled_runs(&self, until: Timestamp) -> Vec<ScheduledRunRow>;
}

facade! {
    /// Request quotas that processes share (`sql/quotas.rs`).
    quotas: Quotas
    /// Reserves the next request of a shared quota. For `now`, see [`Backlog::claim`].
    fn reserve_request(&self, quota: &str, terms: QuotaTerms, now: DateTime<Utc>) -> QuotaReservation;
    /// Blocks all requests of a quota for `wait`, an hour at most.
    fn throttle_quota(&self, quota: &str, wait: Duration, now: DateTime<Utc>) -> ();
}

facade! {
    /// Posts, watermarks, gaps and import positions (`sql/posts.rs`, `lookups.rs`, `browse.rs`, `watermarks.rs`,
    /// `gaps.rs`, `keywords.rs`).
    posts: Posts
    /// Stores pages in one transaction: upserts the posts, records in `sightings` that the run saw them, and updates
    /// watermarks and the position in an imported file.
    fn save_pages(&self, pages: &[Page<'_>], state: Option<&ImportState>) -> Upserted;
    /// Returns the creation time of the newest post that was read from a subreddit for a topic.
    fn watermark(&self, source: SourceKind, topic: &str, subreddit: &str) -> Option<Timestamp>;
    /// Returns the time since which a subreddit's posts were read from an archive.
    fn read_from(&self, source: SourceKind, topic: &str, subreddit: &str) -> Option<Timestamp>;
    /// Returns the creation time of a subreddit's newest post if only time ranges have been read; otherwise `None`.
    fn newest_in_range(&self, source: SourceKind, topic: &str, subreddit: &str) -> Option<Timestamp>;
    /// Returns a replacement for a watermark that a post dated after `latest` moved into the future: the creation time
    /// of the newest post that was created before the first such post was stored.
    fn newest_before_future(&self, source: SourceKind, subreddit: &str, latest: Timestamp) -> Option<Timestamp>;
    /// Returns stored posts of a topic whose comments were not read, or are read again, the longest unread first.
    fn unread_threads(&self, source: SourceKind, topic: &str, limit: u32) -> Vec<UnreadThread>;
    /// Records a gap.
    fn record_gap(&self, gap: &Gap, run: RunId) -> ();
    /// Removes the time range `filled`, whose posts are all stored now, from the gaps of its topic and subreddit.
    fn fill_gaps(&self, filled: &Gap) -> ();
    /// Returns the gaps, latest first.
    fn gaps(&self) -> Vec<Gap>;
    /// Records the keywords that posts are now selected with for a topic, if they differ from the last ones. Returns
    /// true if there are posts that were stored before this change.
    fn record_keywords(&self, topic: &str, keywords: &[String], now: Timestamp) -> bool;
    /// Returns the keywords of topics, oldest first for each topic.
    fn keywords(&self) -> Vec<TopicKeywords>;
    /// Returns the import position for a file's fingerprint and the hash of the selection.
    fn import_state(&self, file: &str, selection: &str) -> Option<ImportState>;
    /// Returns the key that is used to hash author names in this database.
    fn author_key(&self) -> String;
    /// Recomputes the text hashes of posts if the rule that builds the text has changed. Returns the number of changed
    /// hashes.
    fn apply_text_rule(&self) -> u64;
    /// Returns the given posts that are stored, with the hashes of their text.
    fn text_hashes(&self, posts: &[Fullname]) -> Vec<(Fullname, TextHash)>;
    /// Returns the titles and bodies of the given posts that are stored with their text.
    fn post_texts(&self, posts: &[&Fullname]) -> Vec<StoredText>;
    /// Returns up to `limit` posts after the fullname `after` with the topics that they were collected for, ordered by
    /// fullname. Posts without a topic are omitted.
    fn collection_topics(&self, after: &str, limit: u32) -> Vec<(Fullname, String)>;
    /// Returns up to `limit` posts that match a filter, with their labels under a target.
    fn list_posts(&self, target: Option<Target>, filter: &PostFilter, limit: u32) -> Vec<PostSummary>;
    /// Returns true if a comment is stored.
    fn has_comments(&self) -> bool;
    /// Counts all posts, and posts by current outcome and by topic.
    fn count_posts(&self, kind: ThingKind) -> PostCounts;
    /// Returns everything that is stored about a post.
    fn post_details(&self, fullname: &Fullname) -> Option<PostDetails>;
    /// Returns a marker that changes whenever a run writes.
    fn change_marker(&self) -> ChangeMarker;
}

facade! {
    /// Deletion: purge and retention (`sql/purging.rs`, `tombstones.rs`, `retention.rs`, `reconciling.rs`).
    purging: Purging
    /// Returns the time of the last reconciliation with a source: every stored post has been checked with it since
    /// then. A complete `purge --check-deleted` records it.
    fn reconciled_at(&self, source: SourceKind) -> Option<Timestamp>;
    /// Counts the posts that are due for a check with a source.
    fn count_due(&self, due: Due) -> u64;
    /// Returns up to `limit` posts that are due: first the ones that were never checked, then the ones that were
    /// checked longest ago.
    fn posts_due(&self, due: Due, limit: u32) -> Vec<Fullname>;
    /// Returns up to `limit` posts that Reddit returned most recently: posts from the sample Reddit if `sample` is
    /// true, otherwise all other posts.
    fn last_checked(&self, sample: bool, limit: u32) -> Vec<Fullname>;
    /// Records Reddit's response in one transaction. Posts that are gone are deleted with all derived data and their
    /// crossposts, and leave tombstones.
    fn purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Purged;
    /// Returns the posts whose stored author is one of these names in lower case.
    fn posts_by_author(&self, names: &[String]) -> Vec<Fullname>;
    /// Counts the posts without a stored author.
    fn count_without_author(&self) -> u64;
    /// Deletes the text, links and author of up to `limit` old posts and of their crossposts.
    fn purge_texts(&self, old: &OldTexts, limit: u32, now: Timestamp) -> PurgedTexts;
    /// Counts the posts with text, without comments.
    fn count_posts_with_text(&self) -> u64;
    /// Counts the posts with text that were stored after a time.
    fn count_texts_after(&self, time: Timestamp) -> u64;
    /// Returns the time of the database's clock, or `now` if the database has none.
    fn database_now(&self, now: Timestamp) -> Timestamp;
    /// Records the time of the last reconciliation; returns false if any post is still due.
    fn note_reconciled(&self, due: Due, as_of: Timestamp) -> bool;
    /// Counts the posts that were purged, or lost their text to retention.
    fn count_purged(&self) -> u64;
    /// Counts the given posts that have a tombstone.
    fn count_tombstones(&self, posts: &[Fullname]) -> u64;
    /// Returns true if something was purged since the database files were last rewritten, so that these files may still
    /// contain purged bytes.
    fn is_rewrite_due(&self) -> bool;
    /// Returns true if this user may rewrite the database files: on PostgreSQL, only the tables' owner.
    fn may_rewrite(&self) -> bool;
    /// Rewrites the database files without purged data. During the rewrite, SQLite blocks writers, and PostgreSQL
    /// blocks all use of one table at a time.
    fn rewrite(&self) -> Rewritten;
}

facade! {
    /// The backlog of posts that are waiting for a label, and the leases on it (`sql/backlog.rs`, `claims.rs`,
    /// `leases.rs`; labels are written in `labelling.rs`).
    backlog: Backlog
    /// Adds every post without a valid classification under a target to the target's backlog. Returns how many were
    /// added.
    fn enqueue_missing(&self, target: Target) -> u64;
    /// Counts the backlog of a target.
    fn count_backlog(&self, target: Target, max_attempts: u32, now: Timestamp) -> BacklogCounts;
    /// Claims up to `limit` posts, after returning the posts of expired leases to the backlog. Posts that crashed their
    /// workers come last: with each crash, a claim includes fewer of them, down to a single post. Leases expire by the
    /// database's clock; `now` is used only if the database has none.
    fn claim(
        &self, target: Target, claimant: &Claimant<'_>, crash_filter: CrashFilter, limit: u32, now: Timestamp
    ) -> Claim;
    /// Extends a lease to `now + lease`, even if it has expired; returns false if it was reclaimed.
    fn renew(&self, lease_id: Lease, now: Timestamp, lease: Duration) -> bool;
    /// Stores labels with the logits and vectors computed for them, and removes their posts from the backlog. Omits
    /// posts whose text has changed, and posts that belong to other writers; see [`LabelWrite::lease`].
    fn save_labels(&self, write: &LabelWrite, posts: &[Classified]) -> Written;
    /// Returns posts of a lease that failed to the backlog, with the error. The failure counts as an attempt.
    fn fail(&self, lease_id: Lease, posts: &[Fullname], error: &str) -> ();
    /// Ends a lease and returns its posts to the backlog.
    fn release(&self, lease_id: Lease) -> ();
    /// Ends the lease of a crashed worker, returns its posts to the backlog, and counts a crash for each.
    fn reclaim(&self, lease_id: Lease) -> ();
    /// Makes parked posts claimable again. Returns how many.
    fn retry_failed(&self, target: Target, max_attempts: u32) -> u64;
    /// Returns the leases, including expired ones, with their workers.
    fn lease_holders(&self) -> Vec<(Lease, String)>;
    /// Returns the errors of posts that are parked under the current target, after `max_attempts` failed attempts or
    /// too many crashes, most frequent error first.
    fn failures(&self, max_attempts: u32) -> Vec<Failure>;
    /// Returns up to `limit` posts after the fullname `after` that have a vector for their text, even if retention
    /// deleted it, but no label under the target and no lease. Ordered by fullname.
    fn unlabelled_vectors(&self, target: Target, after: &str, limit: u32) -> Vec<UnlabelledText>;
    /// Returns up to `limit` posts after the fullname `after` whose text retention deleted, and that have no label
    /// under the target. Ordered by fullname.
    fn unlabelled_without_text(&self, target: Target, after: &str, limit: u32) -> Vec<(Fullname, TextHash)>;
}

facade! {
    /// Models, label sets, and the labels of posts (`sql/models.rs`, `versions.rs`, `costs.rs`, `lookups.rs`,
    /// `dropping.rs`).
    labels: Labels
    /// Returns the key of a model, inserting the model if necessary.
    fn ensure_model(&self, model: &ModelRow) -> ModelId;
    /// Returns the key of a label set, inserting the set and its labels if necessary.
    fn ensure_label_set(&self, labels: &LabelSet, now: Timestamp) -> LabelSetId;
    /// Stores a fitted label set, its base, and the labels that fits without each post's answer give the posts: all or
    /// nothing. Replaces the same fit, which may have a different provenance or be damaged.
    fn save_fit(&self, base: &LabelSet, set: &LabelSet, crossed: &[CrossFitted], now: Timestamp) -> LabelSetId;
    /// Returns the labels that fits without each post's answer give to posts with an unchanged text.
    fn cross_fitted(&self, label_set: LabelSetId) -> HashMap<Fullname, Prediction>;
    /// Returns the keys of hypotheses, in order. Missing hypotheses are inserted.
    fn ensure_hypotheses(&self, texts: &[String]) -> Vec<HypothesisId>;
    /// Counts the posts whose label would disappear from the views if a target became the current one, because
    /// retention deleted their text, and they have neither a label under that target nor a vector of its model.
    fn count_lost_labels(&self, target: Target) -> u64;
    /// Makes a target the current one, which the views show.
    fn set_current(&self, target: Target) -> ();
    /// Makes a target the current one if there is none yet. Of several concurrent calls, one takes effect.
    fn set_first_current(&self, target: Target) -> ();
    /// Makes a target the current one in place of `former`; `None` means that there is no current target. Returns false
    /// if the current target is neither of the two.
    fn replace_current(&self, former: Option<Target>, target: Target) -> bool;
    /// Returns the current target.
    fn current_target(&self) -> Option<Target>;
    /// Returns the current target with its label set; `None` if no post is labelled.
    fn current(&self) -> Option<(Target, LabelSet)>;
    /// Returns the keys of a model, a label set (by hash) and hypotheses; `None` for any that is not stored.
    fn find_existing(&self, model: &ModelRow, label_set: &str, hypotheses: &[String]) -> ExistingTarget;
    /// Estimates the work of labelling under a target, with a random sample of up to `sample` texts.
    fn estimate_work(&self, sought: &ExistingTarget, sample: u32) -> WorkEstimate;
    /// Returns all label sets, latest first.
    fn label_sets(&self) -> Vec<LabelSetRow>;
    /// Returns a label set.
    fn label_set(&self, id: LabelSetId) -> LabelSet;
    /// Returns the labels, template, mode and background of a label set, without its fit, which may be damaged.
    fn unfitted_label_set(&self, id: LabelSetId) -> LabelSet;
    /// Returns all models with their keys, latest first.
    fn models(&self) -> Vec<(ModelId, ModelRow)>;
    /// Returns the models that have labelled any post under a label set, latest first.
    fn models_with_labels(&self, label_set: LabelSetId) -> Vec<ModelId>;
    /// Counts the posts whose current text has a label under a target.
    fn count_labelled(&self, target: Target) -> u64;
    /// Returns the keys of hypotheses, in order; `None` for any that is not stored.
    fn find_hypotheses(&self, texts: &[String]) -> Vec<Option<HypothesisId>>;
    /// Returns the cost of labelling every post under a model and a label set. `None` stands for a model, label set or
    /// hypothesis that is not stored yet.
    fn cost(&self, model: Option<ModelId>, label_set: Option<LabelSetId>, hypotheses: &[Option<HypothesisId>]) -> Cost;
    /// Counts posts with a label for the same text under both targets, by their two labels; `None` is an abstention.
    fn compare_labels(&self, from: Target, to: Target) -> Vec<(Option<String>, Option<String>, u64)>;
    /// Returns up to `limit` posts after the fullname `after` that have text or a label, with their labels under two
    /// targets. Ordered by fullname.
    fn compared_posts(&self, targets: [Option<Target>; 2], after: &str, limit: u32) -> Vec<ComparedPost>;
    /// Returns the given posts that are stored, with their labels under a target.
    fn label_states(&self, target: Option<Target>, posts: &[Fullname]) -> Vec<PostLabel>;
    /// Counts the rows that belong to a label set or a model.
    fn dependents(&self, what: DropTarget, now: Timestamp) -> Dependents;
    /// Deletes a batch of the labels under a label set or a model. Returns how many; 0 if none are left.
    fn drop_labels(&self, what: DropTarget) -> u64;
    /// Deletes the logits and vectors of a model for texts whose hash begins with the byte `first`. Without a model,
    /// deletes the logits of all models for these texts and `hypotheses`. Returns the number of deleted rows.
    fn drop_logits(&self, model: Option<ModelId>, hypotheses: &[HypothesisId], first: u8) -> u64;
    /// Deletes the label set or the model with its remaining rows, and hypotheses that are no longer used.
    fn drop_rest(&self, what: DropTarget, hypotheses: &[HypothesisId]) -> ();
}

facade! {
    /// Model outputs: logits, and vectors of texts and labels (`sql/vectors.rs`).
    computed: Computed
    /// Returns the stored logits: for each text, one per hypothesis (keys in `hypotheses`), in order.
    fn pair_logits(&self, model: ModelId, hypotheses: &[HypothesisId], texts: &[TextHash]) -> Vec<Vec<Option<PairLogits>>>;
    /// Returns a model's stored vectors of texts, in order.
    fn text_vectors(&self, model: ModelId, texts: &[TextHash]) -> Vec<Option<TextVector>>;
    /// Returns the stored scores of texts under a target: for each text, one score per label, in order.
    fn text_scores(&self, target: Target, texts: &[TextHash]) -> Vec<Option<Vec<f64>>>;
    /// Returns true if any text vector of a model is stored.
    fn has_vectors(&self, model: ModelId) -> bool;
    /// Returns the stored vectors of labels, by their keys in `hypotheses`, in order.
    fn label_vectors(&self, model: ModelId, hypotheses: &[HypothesisId]) -> Vec<Option<LabelVector>>;
    /// Stores the vectors of labels, one for each key in `hypotheses`.
    fn save_label_vectors(&self, model: ModelId, hypotheses: &[HypothesisId], vectors: &[LabelVector]) -> ();
}

facade! {
    /// Gold labels: the answers of annotators (`sql/gold.rs`), and the posts that they stand for (`frame.rs`).
    gold: Gold
    /// Stores answers in one transaction. Only an annotator's latest answer about a post counts. Omits answers about
    /// posts that are not stored, and returns these posts.
    fn save_gold(&self, answers: &[GoldAnswer]) -> SavedGold;
    /// Returns an error unless answers can be stored and deleted.
    fn check_writable(&self) -> ();
    /// Returns all answers, ordered by post and time.
    fn answers(&self) -> Vec<StoredGold>;
    /// Returns the answers about a post, earliest first.
    fn answers_about(&self, post: &Fullname) -> Vec<StoredGold>;
    /// Returns an annotator's answers, ordered by post.
    fn answers_by(&self, annotator: &str) -> Vec<StoredGold>;
    /// Counts labelled posts by subreddit, topic, group, label and wave.
    fn frame(&self, query: &FrameQuery<'_>) -> Vec<FrameCell>;
    /// Returns true if retention deleted a text before this time.
    fn is_text_deleted_before(&self, time: Timestamp) -> bool;
    /// Returns the group of each post that is stored.
    fn groups(&self, by: Grouping, posts: &[Fullname]) -> HashMap<Fullname, Option<String>>;
    /// Returns the text hashes and storage times of the posts that the review page would draw next: labelled posts that
    /// are not in the random sample, have a hash of at most `drawn`, and were first stored after `after`.
    fn undrawn_posts(&self, target: Target, drawn: &TextHash, after: Timestamp) -> Vec<(TextHash, Timestamp)>;
    /// Deletes an annotator's answer about a post; returns false if there was none.
    fn delete_answer(&self, post: &Fullname, annotator: &str) -> bool;
    /// Deletes an annotator's answers about one post or all posts. If no answer is left, also removes the annotator's
    /// name from fitted label sets.
    fn delete_answers_of(&self, annotator: &str, post: Option<&Fullname>) -> ForgottenGold;
    /// Returns the label sets that `labels fit` created, latest first.
    fn fits(&self) -> Vec<FitRow>;
    /// Returns up to `limit` labelled posts without an answer by `annotator`; if it is `None`, without any answer.
    fn posts_to_review(
        &self, target: Target, annotator: Option<&str>, order: ReviewOrder<'_>, limit: u32
    ) -> Vec<Fullname>;
    /// Returns posts as the review page shows them, in the order of `posts`; omits posts that are gone or have no text.
    fn review_posts(&self, target: Target, posts: &[Fullname]) -> Vec<ReviewPost>;
}

facade! {
    /// The state of the whole database, for `status`, metrics and reports (`sql/status.rs`, `report.rs`).
    status: Status
    /// Returns the progress of labelling.
    fn labelling_state(&self, max_attempts: u32, now: Timestamp) -> LabellingState;
    /// Returns the progress of labelling. For a large database, this is an estimate, whose cost is nearly constant.
    fn estimate_labelling(&self, max_attempts: u32, now: Timestamp) -> LabellingEstimate;
    /// Returns the times of the newest post, ignoring times after `latest`, which are wrong.
    fn newest_post(&self, latest: Timestamp) -> NewestPost;
    /// Returns the sums for a report, all read in one snapshot.
    fn report_sums(&self, query: &ReportQuery) -> ReportSums;
    /// Returns the periods from which posts or comments are stored, by subreddit and source.
    fn subreddit_spans(&self, kind: ThingKind) -> Vec<SubredditSpan>;
    /// Returns all watermarks.
    fn watermarks(&self) -> Vec<Watermark>;
    /// Counts the posts or comments with labels of a target in two periods.
    fn period_cells(&self, kind: ThingKind, target: Target, periods: &TwoPeriods) -> Vec<PeriodCell>;
}
