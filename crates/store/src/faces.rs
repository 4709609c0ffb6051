//! The faces of the store, one a concern: what each can be asked for.

use std::ops::ControlFlow;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use topicmill_core::{
    Fullname, QuotaReservation, QuotaTerms, RunStatus, SourceKind, Stage, TextHash, Timestamp,
};
use topicmill_score::{LabelSet, LabelVector, PairLogits, TextVector};

use super::browsed::{ListedPost, News, WholePost};
use super::{
    About, Beside, Checked, Claim, Claimant, Classified, ComparedPost, Cost, Drawn, Dropped, Due,
    Failure, FitRow, ForgottenGold, Gap, GoldAnswer, Hanging, ImportState, Info, LabelSetRow,
    LabelWrite, LabelledBeside, LabellingState, LastRun, Lease, LookedUp, Missing, MixPart,
    ModelRow, Newest, NoLabel, OnBytes, Page, Purged, ReportQuestion, Result, ReviewFilter,
    ReviewPost, Rewritten, RunId, RunRow, Running, SavedGold, ScheduleState, SlotCount, SlotEnd,
    SlotLease, SlotPlan, SlotRow, SlotTaker, Sought, StageRuns, Store, StoredGold, StoredText,
    Sums, Suspicion, Table, TakenSlot, Target, Thinned, UnlabelledText, Upserted, Waiting, Written,
};

/// Makes a call of a store again as long as it meets locks, see [`waiting`](super::waiting).
macro_rules! patiently {
    ($store:expr, $call:expr) => {{
        let mut steps = 0;
        loop {
            if let ControlFlow::Break(ended) = $store.wait_on($call.await, &mut steps) {
                return ended;
            }
        }
    }};
}

/// Goes to the same method of the database that is open.
macro_rules! of_either {
    ($store:expr, $name:ident($($arg:ident),*)) => {
        match $store {
            Store::Sqlite(store) => patiently!(store, store.$name($($arg),*)),
            Store::Postgres(store) => patiently!(store, store.$name($($arg),*)),
        }
    };
}

/// Writes a face: a type, the method of [`Store`] that returns it, and its methods, each once for both databases.
macro_rules! face {
    (
        $(#[$doc:meta])* $of:ident: $face:ident
        $($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty;)*
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $face<'s>(&'s Store);

        impl Store {
            $(#[$doc])*
            pub const fn $of(&self) -> $face<'_> {
                $face(self)
            }
        }

        impl $face<'_> {
            $($(#[$meta])*
            ///
            /// # Errors
            /// See [`StoreError`](super::StoreError).
            pub async fn $name(self $(, $arg: $ty)*) -> Result<$ret> {
                of_either!(self.0, $name($($arg),*))
            })*
        }
    };
}

/// Writes the methods that belong to no concern.
macro_rules! whole {
    ($($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty;)*) => {
        impl Store {
            $($(#[$meta])*
            ///
            /// # Errors
            /// See [`StoreError`](super::StoreError).
            pub async fn $name(&self $(, $arg: $ty)*) -> Result<$ret> {
                of_either!(self, $name($($arg),*))
            })*
        }
    };
}

whole! {
    /// Folds SQLite's log into its file, so that a copy of the file has everything; false if a reader keeps the
    /// log from being emptied.
    fn fold(&self) -> bool;
    /// The same, as far as it goes while nobody waits.
    fn fold_a_little(&self) -> ();
    /// Keeps a value under a key, for whoever works on this database; nothing of a post.
    fn keep(&self, key: &str, value: &str) -> ();
    /// The same, unless this value is kept there already; false if it is. Of several at once, one hears true.
    fn keep_new(&self, key: &str, value: &str) -> bool;
    /// The same, only where `former` is kept there; false if it is not.
    fn keep_instead(&self, key: &str, former: &str, value: &str) -> bool;
    /// Returns the value kept under a key.
    fn kept(&self, key: &str) -> Option<String>;
    /// Returns facts about the database.
    fn info(&self) -> Info;
    /// Answers one read-only statement of the program's own.
    fn query(&self, sql: &str) -> Table;
    /// Closes every connection; SQLite folds its log back into the file.
    fn close(&self) -> ();
}

face! {
    /// The runs of stages.
    runs: Runs
    /// Begins a run and tells its key.
    fn begin_run(&self, stage: Stage, worker: &str, now: Timestamp) -> RunId;
    /// Ends a run.
    fn finish_run(&self, run: RunId, status: RunStatus, counts: &Value, outcomes: &Value, error: Option<&str>, now: Timestamp) -> ();
    /// Records that a run lives, by the database's clock; one that was taken for dead is running again.
    fn beat(&self, run: RunId) -> ();
    /// The runs that are under way, or whose processes died.
    fn running(&self) -> Vec<Running>;
    /// Records that a run died; its last sign of life is its end.
    fn note_death(&self, run: RunId, why: &str) -> ();
    /// The latest runs, of a stage or of all, newest first.
    fn recent_runs(&self, stage: Option<Stage>, limit: u32) -> Vec<RunRow>;
    /// A run.
    fn run(&self, run: RunId) -> Option<RunRow>;
    /// The runs of each stage that began at a time or later, summed up.
    fn runs_since(&self, since: Timestamp) -> Vec<StageRuns>;
    /// Returns the last end of each stage that ever ran.
    fn last_runs(&self) -> Vec<LastRun>;
    /// When the latest runs of `collect` began, and what came of their topics, the newest first.
    fn outcomes(&self, runs: u32) -> Vec<(Timestamp, Value)>;
    /// Posts a second of the latest run that labelled this many or more.
    fn pace(&self, posts: u32) -> Option<f64>;
    /// Returns when the last run began, of those that began before `before` or after `after`.
    fn last_run(&self, before: Timestamp, after: Timestamp) -> Option<Timestamp>;
}

face! {
    /// The scheduled runs.
    schedules: Schedules
    /// Returns the state of a schedule: planned up to, running, waiting. For the time, see [`claim`](Self::claim).
    fn schedule_state(&self, name: &str, now: Timestamp) -> ScheduleState;
    /// Writes slots of a schedule, those that are there already left as they are; false, and nothing written, if
    /// another process planned it meanwhile.
    fn plan_slots(&self, plan: &SlotPlan<'_>) -> bool;
    /// Records that a slot failed which took too many processes with it, and whose last one is gone; which, and when it
    /// was due.
    fn give_slot_up(&self, name: &str, most_deaths: u32, now: Timestamp) -> Option<(i64, Timestamp)>;
    /// Takes a slot of a schedule: one whose process died, else the earliest that waits and whose time has come, unless
    /// another slot of the schedule runs.
    fn take_slot(&self, name: &str, claimant: &SlotTaker<'_>, now: Timestamp) -> Option<TakenSlot>;
    /// Moves the end of a claim on a slot; false if it was taken over.
    fn renew_slot(&self, lease: SlotLease, for_how_long: Duration, now: Timestamp) -> bool;
    /// Ends the claim of a process that died, so that the next one takes the slot over.
    fn expire_slot(&self, lease: SlotLease) -> ();
    /// Records the stages of a slot that ended so far; false if it was taken over.
    fn note_stages(&self, lease: SlotLease, outcomes: &[Value]) -> bool;
    /// Records how a slot ended, or hands it back; false, and nothing written, if it was taken over.
    fn end_slot(&self, lease: SlotLease, end: &SlotEnd, now: Timestamp) -> bool;
    /// Records that a run belongs to a slot.
    fn link_run(&self, run: RunId, slot: i64) -> ();
    /// The latest slots of a schedule that are due at a time or earlier, the latest first.
    fn latest_slots(&self, name: &str, until: Timestamp, limit: u32) -> Vec<SlotRow>;
    /// The latest slot that ended of each schedule, where it failed, between two times; those due later are left aside.
    fn failed_slots(&self, since: Timestamp, until: Timestamp) -> Vec<SlotRow>;
    /// Returns the scheduled runs that are due between two times, both included.
    fn count_slots(&self, name: &str, since: Timestamp, until: Timestamp) -> Vec<SlotCount>;
}

face! {
    /// Quotas of requests that processes share.
    quotas: Quotas
    /// Takes the next slot of a quota that processes share, by one statement. Time is as for [`claim`](Self::claim).
    fn reserve_slot(&self, quota: &str, terms: QuotaTerms, now: DateTime<Utc>) -> QuotaReservation;
    /// Lets no process have a slot of a quota for a while, an hour at most.
    fn hold_quota(&self, quota: &str, wait: Duration, now: DateTime<Utc>) -> ();
}

face! {
    /// Posts, and how far their sources were read.
    posts: Posts
    /// Stores pages in one transaction: upserts posts, and writes sightings, watermarks and the position in an imported
    /// file.
    fn save_pages(&self, pages: &[Page<'_>], state: Option<&ImportState>) -> Upserted;
    /// The newest post known of a subreddit that was read for a topic.
    fn watermark(&self, source: SourceKind, topic: &str, subreddit: &str) -> Option<Timestamp>;
    /// The newest post of a subreddit that was stored before the first one whose date lies behind `latest`.
    fn newest_before_future(&self, source: SourceKind, subreddit: &str, latest: Timestamp) -> Option<Timestamp>;
    /// Records that posts between two times could not be read.
    fn record_gap(&self, gap: &Gap, run: RunId) -> ();
    /// Takes away gaps of a topic's subreddit, as far as they lie in a stretch of time whose posts are there now.
    fn fill_gaps(&self, filled: &Gap) -> ();
    /// Gaps that were recorded, the latest first.
    fn gaps(&self) -> Vec<Gap>;
    /// Returns the import position of a file, by its fingerprint and the filter.
    fn import_state(&self, file: &str, selection: &str) -> Option<ImportState>;
    /// The key with which this database hashes author names.
    fn author_key(&self) -> String;
    /// Gives posts the hash of their text by this version's rule, and returns how many have another one now.
    fn apply_text_rule(&self) -> u64;
    /// Returns the stored ones among some posts, with the hashes of their texts.
    fn text_hashes(&self, posts: &[Fullname]) -> Vec<(Fullname, TextHash)>;
    /// The words of some posts, as far as they are there.
    fn texts_of(&self, posts: &[&Fullname]) -> Vec<StoredText>;
    /// Up to `limit` posts that have a topic, with it, by fullname from the one after `after` on.
    fn collected_for(&self, after: &str, limit: u32) -> Vec<(Fullname, String)>;
    /// Returns the stored ones among some posts, as a list shows them, in no order.
    fn listed(&self, target: Option<Target>, posts: &[Fullname]) -> Vec<ListedPost>;
    /// A post with all that is stored of it, if it is there.
    fn whole_post(&self, fullname: &Fullname) -> Option<WholePost>;
    /// Returns a value that changes with each write of a run.
    fn news(&self) -> News;
}

face! {
    /// Deletion: purge, retention and thinning.
    purging: Purging
    /// Reddit was asked at this time or later about every post that was stored when the latest
    /// `purge --check-deleted` came to its end.
    fn reconciled_at(&self) -> Option<Timestamp>;
    /// Counts the posts that are due for a check with Reddit.
    fn count_due(&self, due: Due) -> u64;
    /// Up to `limit` of them: those never asked about first, then those asked about longest ago.
    fn due(&self, due: Due, limit: u32) -> Vec<Fullname>;
    /// The posts that Reddit showed last, of those from the sample Reddit or from elsewhere.
    fn last_seen(&self, sample: bool, limit: u32) -> Vec<Fullname>;
    /// Notes what Reddit answered, in one transaction. Of posts that are gone everything goes, with all that
    /// was derived from it and the posts that show them; a tombstone stays.
    fn purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Purged;
    /// Takes text, url, author and flair of up to `limit` posts first stored before a time, and of the posts that
    /// show them; how many.
    fn purge_texts(&self, before: Timestamp, after: Timestamp, limit: u32, now: Timestamp) -> u64;
    /// Counts the texts that were stored after a time.
    fn count_texts_after(&self, time: Timestamp) -> u64;
    /// Returns the time by the database's clock, or `now` where it has none.
    fn shared_now(&self, now: Timestamp) -> Timestamp;
    /// Notes that the database is reconciled with Reddit as of `due.before`, if no post is due any more.
    fn note_reconciled(&self, due: Due) -> bool;
    /// Thins the earliest day before a time that is not thinned yet, in one transaction; `None` where there is none.
    fn thin_a_day(&self, before: Timestamp) -> Option<Thinned>;
    /// Counts the posts that were purged so far, or have lost their texts.
    fn count_purged(&self) -> u64;
    /// Counts the ones among some posts that have a tombstone.
    fn count_tombstones(&self, posts: &[Fullname]) -> u64;
    /// Returns true if something was purged since the files were last rewritten: its bytes may linger there.
    fn is_rewrite_due(&self) -> bool;
    /// Rewrites the database's files without what was purged. On SQLite others may read meanwhile, writers wait;
    /// on PostgreSQL everybody waits for the table at hand.
    fn rewrite(&self, progress: OnBytes<'_>) -> Rewritten;
}

face! {
    /// Posts that wait for a label, and who works on them.
    backlog: Backlog
    /// Puts every post without a valid classification under the target into its backlog; how many were added.
    fn enqueue_missing(&self, target: Target) -> u64;
    /// Counts the backlog of a target.
    fn waiting(&self, target: Target, max_attempts: u32, now: Timestamp) -> Waiting;
    /// Claims up to `limit` posts, returning expired claims to the backlog first. Posts whose workers died come
    /// last, in windows that shrink with each death down to a single post. Claims live and expire by the server's
    /// clock; `now` counts where the database has none.
    fn claim(&self, target: Target, claimant: &Claimant<'_>, suspicion: Suspicion, limit: u32, now: Timestamp) -> Claim;
    /// Moves the end of a lease to `now + lease`, even of one that expired; false if it was taken over.
    fn renew(&self, lease_id: Lease, now: Timestamp, lease: Duration) -> bool;
    /// Stores labels with what was computed for them, and takes their posts out of the backlog. Posts are left out
    /// whose text is another one by now, and those that are not this writer's, see [`LabelWrite::lease`].
    fn save_labels(&self, write: &LabelWrite, posts: &[Classified]) -> Written;
    /// Hands failed posts of a lease back with the reason; each has used one attempt.
    fn fail(&self, lease_id: Lease, failed: &[(Fullname, String)]) -> ();
    /// Ends a lease: what is left of its posts returns to the backlog.
    fn release(&self, lease_id: Lease) -> ();
    /// Ends the lease of a worker that died: its posts return to the backlog as suspects.
    fn bury(&self, lease_id: Lease) -> ();
    /// Lets posts that were set aside be tried again; how many.
    fn retry_failed(&self, target: Target, max_attempts: u32) -> u64;
    /// Live and expired leases with their workers.
    fn lease_holders(&self) -> Vec<(Lease, String)>;
    /// The errors of posts that failed too often under the current target, the most frequent first.
    fn failures(&self, max_attempts: u32) -> Vec<Failure>;
    /// Up to `limit` posts that have no label under the target, are in no worker's hands, and whose texts have vectors,
    /// by fullname from the one after `after` on.
    fn unlabelled_vectors(&self, target: Target, after: &str, limit: u32) -> Vec<UnlabelledText>;
}

face! {
    /// Models, label sets, and the labels that posts have.
    labels: Labels
    /// The row of a model, made if it is not there.
    fn ensure_model(&self, model: &ModelRow) -> i64;
    /// The row of a label set, made with its labels if it is not there.
    fn ensure_label_set(&self, labels: &LabelSet, now: Timestamp) -> i64;
    /// Rows of `hypotheses` for these texts, in order, made if they are not there.
    fn ensure_hypotheses(&self, texts: &[String]) -> Vec<i64>;
    /// Makes a target the current one, which the views show.
    fn set_current(&self, target: Target) -> ();
    /// The same, where no target is the current one yet; of several at once, one becomes it.
    fn set_first_current(&self, target: Target) -> ();
    /// Makes a target the current one if `former` is still current; returns false if another one is.
    fn replace_current(&self, former: Option<Target>, target: Target) -> bool;
    /// Models, label sets and labels.
    fn current_target(&self) -> Option<Target>;
    /// The rows of a model, a label set (by its hash) and hypotheses, as far as they are there.
    fn seek(&self, model: &ModelRow, label_set: &str, hypotheses: &[String]) -> Sought;
    /// Estimates the work of labelling under them, with a random sample of up to `sample` of its texts.
    fn missing(&self, sought: &Sought, sample: u32) -> Missing;
    /// The label sets that were ever used, the latest first.
    fn label_sets(&self) -> Vec<LabelSetRow>;
    /// One of them, whole.
    fn label_set(&self, id: i64) -> LabelSet;
    /// The models that were ever used with their keys, the latest first.
    fn models(&self) -> Vec<(i64, ModelRow)>;
    /// The models under which some post has a label of a label set, the latest first.
    fn models_with_labels(&self, label_set: i64) -> Vec<i64>;
    /// Counts the posts with a label for their present text under a target.
    fn labelled(&self, target: Target) -> u64;
    /// Rows of `hypotheses` for these texts, in order, as far as they are there.
    fn find_hypotheses(&self, texts: &[String]) -> Vec<Option<i64>>;
    /// Returns the cost of labelling every post under a model and a label set with these hypotheses, some of which may
    /// not exist yet.
    fn cost(&self, model: Option<i64>, label_set: Option<i64>, hypotheses: &[Option<i64>]) -> Cost;
    /// Posts that have a label under both targets, for the same text, counted by the one and the other: a slug,
    /// or none of these.
    fn compare(&self, from: Target, to: Target) -> Vec<(Option<String>, Option<String>, u64)>;
    /// Up to `limit` posts that have a text or a label, by fullname from the one after `after` on, with their labels
    /// under two targets.
    fn compared_posts(&self, targets: [Option<Target>; 2], after: &str, limit: u32) -> Vec<ComparedPost>;
    /// Returns the stored ones among some posts, with their labels under a target.
    fn look_up(&self, target: Option<Target>, posts: &[Fullname]) -> Vec<LookedUp>;
    /// Up to `limit` posts that have no label under a target, with the vector that a model has of their texts, by
    /// fullname from the one after `after` on. Posts whose texts have none are left out.
    fn without_label(&self, target: Target, outcome: NoLabel, model: i64, after: &str, limit: u32) -> Vec<UnlabelledText>;
    /// Counts the posts without a label under a target.
    fn count_without_label(&self, target: Target, outcome: NoLabel) -> u64;
    /// Counts the rows that belong to a label set or a model.
    fn hanging(&self, what: Dropped, now: Timestamp) -> Hanging;
    /// Deletes some of the labels under it; how many. 0: none are left.
    fn drop_labels(&self, what: Dropped) -> u64;
    /// Deletes what a model computed of texts whose hash begins with a byte; or, without a model, what every model
    /// computed of them and some hypotheses. How many rows.
    fn drop_logits(&self, model: Option<i64>, hypotheses: &[i64], first: u8) -> u64;
    /// Deletes the label set or the model itself, with all that is left of it, and hypotheses that nothing needs.
    fn drop_rest(&self, what: Dropped, hypotheses: &[i64]) -> ();
}

face! {
    /// Results of models: logits of pairs, vectors of texts and labels.
    computed: Computed
    /// Returns the stored logits of texts and hypotheses (rows of `hypotheses`); for each text one a hypothesis, in
    /// order.
    fn pair_logits(&self, model: i64, hypotheses: &[i64], texts: &[TextHash]) -> Vec<Vec<Option<PairLogits>>>;
    /// Returns the vectors of texts by a model, as far as they are stored.
    fn text_vectors(&self, model: i64, texts: &[TextHash]) -> Vec<Option<TextVector>>;
    /// Returns true if vectors of texts by a model are stored.
    fn has_vectors(&self, model: i64) -> bool;
    /// The vectors of labels, by their rows of `hypotheses`, as far as they are stored.
    fn label_vectors(&self, model: i64, hypotheses: &[i64]) -> Vec<Option<LabelVector>>;
    /// Stores the vectors of labels, one for each row of `hypotheses`.
    fn save_label_vectors(&self, model: i64, hypotheses: &[i64], vectors: &[LabelVector]) -> ();
}

face! {
    /// Gold labels: answers of people.
    gold: Gold
    /// Stores what people said, all of it in one transaction. The latest answer of a person about a post counts; posts
    /// that are not stored are left out, and named.
    fn save_gold(&self, answers: &[GoldAnswer]) -> SavedGold;
    /// All that people said, by post and time, with whether the post still has the text that they saw.
    fn answers(&self) -> Vec<StoredGold>;
    /// Returns the answers about a post, the earliest first: slugs, or none of these.
    fn said_of(&self, post: &Fullname) -> Vec<(String, Option<String>)>;
    /// Removes the last answer of a person; returns whether there was one.
    fn forget_gold(&self, post: &Fullname, reviewer: &str) -> bool;
    /// Removes what an annotator said, of one post or of all, and, with the last answer, the name from fitted label sets.
    fn forget_reviewer(&self, reviewer: &str, post: Option<&Fullname>) -> ForgottenGold;
    /// Returns the label sets that `labels fit` made, latest first.
    fn fits(&self) -> Vec<FitRow>;
    /// Up to `limit` labelled posts about which nobody has said anything, or `reviewer` has not, the closest calls
    /// first.
    fn closest_calls(&self, target: Target, reviewer: Option<&str>, limit: u32) -> Vec<Fullname>;
    /// The same in an order that says nothing of the posts: that of the hashes of their texts.
    fn random_posts(&self, target: Target, reviewer: Option<&str>, limit: u32) -> Vec<Fullname>;
    /// Returns up to `limit` posts without an answer that a filter selects, in the order of `random_posts`.
    fn filtered_posts(&self, target: Target, reviewer: Option<&str>, filter: &ReviewFilter, limit: u32) -> Vec<Fullname>;
    /// Returns posts as the review page shows them, in the order of `posts`; omits posts that are gone or have no text.
    fn review_posts(&self, target: Target, posts: &[Fullname]) -> Vec<ReviewPost>;
}

face! {
    /// State of the whole database.
    outlook: Outlook
    /// Returns the progress of labelling.
    fn standing(&self, max_attempts: u32, now: Timestamp) -> LabellingState;
    /// Returns the progress of labelling; estimated in a large database, at a constant cost.
    fn about(&self, max_attempts: u32, now: Timestamp) -> About;
    /// When the newest posts came, up to `latest`: what lies behind it has a wrong date.
    fn newest(&self, latest: Timestamp) -> Newest;
    /// The labels that the views show of the `newer` posts that were posted last, and of the `older` ones before them.
    fn recent_mix(&self, newer: u32, older: u32) -> Vec<MixPart>;
    /// Label sets that posts wait for beside the current one, the latest first.
    fn beside(&self) -> Vec<Beside>;
    /// The labels beside the current ones that the newest posts without a current one have, if each of them has one.
    fn labelled_beside(&self) -> Option<LabelledBeside>;
    /// Returns the data of a report, as of one moment.
    fn report_sums(&self, question: &ReportQuestion) -> Sums;
    /// All scores of some posts, as far as they are there.
    fn report_scores(&self, question: &ReportQuestion, fullnames: &[Fullname]) -> Vec<Drawn>;
}
