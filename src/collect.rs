//! Collects posts from a source into the store, topic by topic and page by page.
//!
//! Each page is stored before the next one is requested, so a crash loses at most one page. Storing is idempotent, so
//! the next run may store the same posts again. A topic that cannot be read ends with a typed outcome, and the other
//! topics continue.

mod archive;
mod goal;
mod import;
mod listing;
mod placement;
mod preview;
mod refill;
mod threads;

use std::collections::HashSet;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::stream::{self, TryStreamExt};

use crate::run::{Run, StageError};
use crate::telemetry::nonzero;
use topicmill_core::{
    AuthorPolicy, Fullname, Listing, MAX_CLOCK_SKEW, Outcome, ReadyPost, ThingKind, Timestamp,
    Topic, TopicReport,
};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::{PAGE_LIMIT, Rejected};
use topicmill_sources::source::{Paging, Source};
use topicmill_store::{Page, StoreError};

pub use self::archive::archive_newest;
pub use self::goal::TimeRange;
pub use self::import::{ImportPlan, import};
pub use self::preview::{PreviewOptions, preview};
pub use self::refill::{RefillPlan, refill};

/// Maximum number of posts that Reddit lists for any client.
pub const MAX_LISTED: u32 = 1_000;
/// Maximum number of rejected records that are logged separately; the others are only counted.
const MAX_LOGGED_REJECTIONS: u64 = 5;

type Result<T, E = StageError> = std::result::Result<T, E>;

/// Options for reading topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Number of topics read concurrently.
    pub concurrency: usize,
    /// Overlap with the stored posts when `new` or an archive is read, because posts may appear late or change.
    pub overlap: Duration,
    /// Maximum number of pages read from one listing.
    pub page_cap: u32,
    /// Reads all posts in this time range and no others. `None`: reads the posts since the last run, or, in a first
    /// run, up to the topic's limit.
    pub time_range: Option<TimeRange>,
}

impl ReadOptions {
    /// Returns how far back posts are read if posts up to `known` are stored.
    fn overlap_start(self, known: Timestamp) -> Timestamp {
        let before = |overlap| known.as_datetime().checked_sub_signed(overlap);
        let start = TimeDelta::from_std(self.overlap).ok().and_then(before);
        start.map_or(Timestamp::EPOCH, Timestamp::from)
    }
}

/// Collects all topics, several concurrently under one request quota. `progress` receives the number of newly finished
/// topics.
///
/// If the run is stopped, the pages read so far are stored. `reports` gets one entry per topic, in the order of
/// `topics`, even if an error ends the run; unfinished topics are `stopped`.
///
/// # Errors
/// Errors of the store, and failures that affect every topic, such as no token or no connection. The rejection of a
/// single topic is in its report.
pub async fn collect(
    run: &Run<'_>,
    source: &dyn Source,
    topics: &[Topic],
    authors: &AuthorPolicy,
    options: ReadOptions,
    progress: &(dyn Fn(u64) + Send + Sync),
    reports: &mut Vec<TopicReport>,
) -> Result<()> {
    // All entries are added before the first topic is read, so that each topic has one even after an error.
    reports.extend(topics.iter().map(TopicReport::new));
    // Cancelled by a signal, or by a rejection that every topic would get.
    let halt = &run.stop.child_token();
    let mut read = Ok(());
    let concurrency = match source.paging() {
        Paging::Listing(_) => options.concurrency.max(1),
        // An archive gets one request at a time, and none while another is waiting to be retried.
        Paging::Archive(_) => 1,
    };
    // Comments are read once the posts are stored, which give them their titles.
    for kind in [ThingKind::Post, ThingKind::Comment] {
        let pairs = topics.iter().zip(reports.iter_mut());
        let selected = pairs.filter(|(topic, _)| topic.kind == kind);
        read = stream::iter(selected.map(Ok))
            .try_for_each_concurrent(concurrency, async |(topic, report)| {
                let mut reader = TopicReader {
                    run: Run { stop: halt, ..*run },
                    source,
                    topic,
                    authors,
                    options,
                    subreddit: "",
                    path: String::new(),
                    report,
                    listing: topic.listing,
                    has_gap: false,
                    is_quiet: false,
                };
                reader.read_topic().await?;
                // The source rejects the key or this program, so every other topic would fail in the same way.
                if report.outcome.is_refusal() {
                    halt.cancel();
                }
                log_report(report);
                progress(1);
                Ok(())
            })
            .await;
        if read.is_err() {
            break;
        }
    }
    if let (Err(StageError::Source(_)), Some(range)) = (&read, options.time_range) {
        for (topic, report) in topics.iter().zip(&*reports) {
            if report.outcome == Outcome::Stopped {
                goal::record_gap_of_unread_topic(run, source, topic, range).await?;
            }
        }
    }
    read
}

/// Logs one line per topic, and one per skipped subreddit. Zero counts are left out.
fn log_report(report: &TopicReport) {
    let (topic, subreddit) = (&report.topic, &report.subreddit);
    let (outcome, stored) = (report.outcome, report.stored);
    for (name, why) in &report.skipped {
        tracing::info!(%topic, "r/{name} is {why}: trying the next subreddit");
    }
    let (posts, comments) = match report.kind() {
        ThingKind::Post => (Some(report.posts), None),
        ThingKind::Comment => (None, Some(report.posts)),
    };
    if outcome == Outcome::Ok {
        tracing::info!(
            %topic, posts, comments, new = stored.new,
            changed = nonzero(stored.changed), edited = nonzero(stored.edited),
            unmatched = nonzero(report.unmatched), left_out = nonzero(report.left_out),
            purged = nonzero(stored.purged), tombstoned = nonzero(stored.tombstoned),
            rejected = nonzero(report.rejected.total()),
            "collected r/{subreddit}"
        );
    } else if let Some(detail) = &report.detail {
        // This is an error, because `-q` hides warnings.
        tracing::error!(%topic, %outcome, posts, comments, "not collected: {detail}");
    } else {
        tracing::warn!(%topic, %outcome, posts, comments, "not collected: stopped");
    }
}

/// Reads one topic, from one subreddit after another. See [`listing`], [`archive`] and [`threads`] for how a source is
/// read, and [`goal`] for which posts.
struct TopicReader<'a> {
    run: Run<'a>,
    source: &'a dyn Source,
    topic: &'a Topic,
    authors: &'a AuthorPolicy,
    options: ReadOptions,
    report: &'a mut TopicReport,
    /// The subreddit that is being read.
    subreddit: &'a str,
    /// The path that is being read; see [`Topic::path`].
    path: String,
    /// The order in which the subreddit is read.
    listing: Listing,
    /// True once the requested time range is recorded as a gap.
    has_gap: bool,
    /// True if reading no posts is a success, because the subreddit exists and has none in the time range.
    is_quiet: bool,
}

/// The changes that a page makes to its watermark.
#[derive(Default)]
struct WatermarkUpdate<'c> {
    /// See [`Page::after`].
    after: Option<&'c str>,
    /// See [`Page::newest`].
    newest: Option<Timestamp>,
    /// See [`Page::read_from`].
    read_from: Option<Timestamp>,
}

impl<'a> TopicReader<'a> {
    async fn read_topic(&mut self) -> Result<()> {
        for subreddit in &self.topic.subreddits {
            if self.run.stop.is_cancelled() {
                break;
            }
            self.begin_subreddit(subreddit);
            let before = self.report.posts;
            let stop = self.run.stop;
            let read = tokio::select! {
                read = self.read_subreddit() => read,
                // Stored pages are kept. The next run reads the unfinished page again.
                () = stop.cancelled() => {
                    self.set_outcome(Outcome::Stopped, None);
                    break;
                }
            };
            let has_posts = self.report.posts > before;
            if !self.record_outcome(read, has_posts).await? {
                break;
            }
        }
        Ok(())
    }

    /// Prepares for reading a subreddit. If the topic's report names another one, that one is now skipped.
    fn begin_subreddit(&mut self, subreddit: &'a str) {
        (self.subreddit, self.has_gap, self.is_quiet) = (subreddit, false, false);
        self.path = self.topic.path(subreddit);
        let skipped = std::mem::replace(&mut self.report.subreddit, self.path.clone());
        if !skipped.is_empty() {
            self.report.skipped.push((skipped, self.report.outcome));
            // If the run ends here, because the database fails, nothing is known about the next subreddit.
            self.set_outcome(Outcome::Stopped, None);
        }
    }

    fn set_outcome(&mut self, outcome: Outcome, detail: Option<String>) {
        (self.report.outcome, self.report.detail) = (outcome, detail);
    }

    /// Records how reading a subreddit ended. Returns true if the topic's next subreddit is to be read instead, and the
    /// error if it is the store's or affects every topic.
    async fn record_outcome(&mut self, read: Result<()>, has_posts: bool) -> Result<bool> {
        let error = match read {
            Ok(()) if self.is_quiet || has_posts => {
                self.set_outcome(Outcome::Ok, None);
                return Ok(false);
            }
            Ok(()) => {
                let detail = format!("r/{} returned nothing", self.path);
                self.set_outcome(Outcome::Empty, Some(detail));
                return Ok(true);
            }
            Err(StageError::Source(error)) => error,
            Err(error) => return Err(error),
        };
        let outcome = error.outcome();
        self.set_outcome(outcome, Some(error.to_string()));
        if error.affects_all_topics() || self.is_archive_down(&error).await {
            return Err(error.into());
        }
        // If a subreddit closes while it is read, its posts are not mixed with posts from the next one.
        Ok(outcome.is_subreddit_specific() && !has_posts && !self.topic.of_posts)
    }

    /// Returns true if an archive that failed for this topic would fail for every other one too. So an archive that is
    /// down costs a run the retries of one request, not those of each topic.
    async fn is_archive_down(&self, error: &SourceError) -> bool {
        let Paging::Archive(archive) = self.source.paging() else {
            return false;
        };
        if !error.is_transient() {
            return false;
        }
        if error.outcome() != Outcome::RateLimited {
            return true;
        }
        // The archive may be too slow for this subreddit alone, which must not keep the others from being read.
        tokio::select! {
            newest = archive.newest_post() => newest.is_err(),
            () = self.run.stop.cancelled() => false,
        }
    }

    /// Returns the number of posts to request if so many matching posts are wanted.
    fn page_limit(&self, wanted: u32) -> u32 {
        if self.topic.keywords.is_empty() {
            wanted.min(PAGE_LIMIT)
        } else {
            PAGE_LIMIT
        }
    }

    /// Reads one subreddit.
    async fn read_subreddit(&mut self) -> Result<()> {
        let read = match self.source.paging() {
            paging if self.topic.of_posts => self.read_threads(paging).await,
            Paging::Listing(reddit) => self.read_listing(reddit).await,
            Paging::Archive(archive) => self.read_archive(archive).await,
        };
        // A closed subreddit leaves no gap, because the next subreddit is read instead.
        if let Err(StageError::Source(error)) = &read
            && !error.outcome().is_subreddit_specific()
        {
            self.record_gap_before_reading().await?;
        }
        read
    }

    /// Returns the time of the newest post that an earlier run has read: the watermark.
    ///
    /// If this machine's clock was ahead, a post with a wrong date may have moved the watermark into the future, where
    /// it would prevent any further reading. In that case, the newest post stored before that post is used instead.
    async fn watermark(&self) -> Result<Option<Timestamp>> {
        let (posts, kind, path) = (self.run.store.posts(), self.source.kind(), &self.path);
        let known = posts.watermark(kind, &self.topic.slug, path).await?;
        let latest = (self.run.clock.now() + MAX_CLOCK_SKEW).into();
        let Some(ahead) = known.filter(|known| *known > latest) else {
            return Ok(known);
        };
        let before = posts.newest_before_future(kind, path, latest).await?;
        tracing::warn!(
            topic = %self.topic.slug, watermark = %ahead.as_datetime(),
            from = before.map(|before| tracing::field::display(before.as_datetime())),
            "r/{path} was marked as read up to a time in the future, by a post with a wrong date: reading again \
             from the newest earlier post"
        );
        Ok(before)
    }

    /// Stores a page, with its watermark. Posts that do not match the topic are stored only if they are known.
    async fn save(&mut self, posts: Vec<ReadyPost>, watermark: WatermarkUpdate<'_>) -> Result<()> {
        let received = posts.len() as u64;
        let (posts, others) = posts.into_iter().partition(|post| self.topic.matches(post));
        let updates = stored_among(&self.run, others).await?;
        let read = (posts.len() + updates.len()) as u64;
        let page = Page {
            run: self.run.id,
            source: self.source.kind(),
            topic: Some(self.topic.slug.as_str()),
            subreddit: &self.path,
            listing: Some(self.listing),
            after: watermark.after,
            newest: watermark.newest,
            read_from: watermark.read_from,
            posts,
            now: self.run.now(),
        };
        // Other stored posts get their updates, but keep their topic.
        let other_page = Page {
            topic: None,
            posts: updates,
            ..page.clone()
        };
        let pages = [page, other_page];
        self.report.stored += self.run.store.posts().save_pages(&pages, None).await?;
        self.report.pages += 1;
        self.report.posts += read;
        self.report.unmatched += received - read;
        Ok(())
    }

    fn log_rejected(&mut self, rejected: &[Rejected]) {
        for Rejected { at, reason } in rejected {
            if self.report.rejected.total() < MAX_LOGGED_REJECTIONS {
                tracing::warn!(subreddit = %self.subreddit, %at, "skipped: {reason}");
            }
            self.report.rejected.add(reason);
        }
    }
}

/// Returns those of the posts that are stored: a post that lost a topic's keywords by an edit, or was deleted, must not
/// be left as it was.
async fn stored_among(
    run: &Run<'_>,
    mut posts: Vec<ReadyPost>,
) -> Result<Vec<ReadyPost>, StoreError> {
    let names: Vec<Fullname> = posts.iter().map(|post| post.fullname.clone()).collect();
    if !names.is_empty() {
        let hashes = run.store.posts().text_hashes(&names).await?;
        let stored: HashSet<&str> = hashes.iter().map(|(name, _)| name.as_str()).collect();
        posts.retain(|post| stored.contains(post.fullname.as_str()));
    }
    Ok(posts)
}

/// Records the keywords of topics, and warns if they have changed.
pub(crate) async fn record_keywords(run: &Run<'_>, topics: &[Topic]) -> Result<(), StoreError> {
    let is_selected = |topic: &&Topic| !topic.subreddits.is_empty() && !topic.of_posts;
    for topic in topics.iter().filter(is_selected) {
        let (posts, keywords) = (run.store.posts(), topic.keywords.entries());
        let recorded = posts.record_keywords(&topic.slug, keywords, run.now());
        if recorded.await? {
            tracing::warn!(
                topic = %topic.slug, keywords = %topic.keywords,
                "the topic's `match` has changed: its stored posts were selected differently and stay, and reports and \
                 data cards name both selections"
            );
        }
    }
    Ok(())
}
