//! From a source into the store: topic by topic, page by page.
//!
//! Each page is stored before the next one is asked for, so whatever dies loses at most one page, and the
//! next run stores the same rows again without harm. A topic that cannot be read ends with a typed outcome;
//! the other topics go on.

mod archive;
mod goal;
mod import;
mod listing;
mod refill;

use std::time::Duration;

use chrono::TimeDelta;
use futures_util::stream::{self, TryStreamExt};
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;
use topicmill_core::{
    AuthorPolicy, FailureKind, Listing, MAX_CLOCK_SKEW, Outcome, ReadyPost, Rejections, Timestamp,
    Topic, TopicReport,
};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::{Rejected, Source};
use topicmill_store::{Page, StoreError};

pub use self::goal::TimeRange;
pub use self::import::{ImportPlan, NamedTopics, import};
pub use self::refill::{RefillPlan, refill};

/// Posts that Reddit lists at most, whoever asks.
const MAX_LISTED: u32 = 1_000;
/// Rejected records that are told one by one; the others are counted.
const MAX_LOGGED_REJECTIONS: u64 = 5;

/// Why collecting ended before all topics were read.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source refuses or does not answer, whatever it is asked for.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl CollectError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Source(error) => error.kind(),
        }
    }
}

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Options for reading topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Topics read side by side.
    pub concurrency: usize,
    /// Overlap with the newest known post when `new` is read: posts may appear late.
    pub overlap: Duration,
    /// Pages read of one listing at most.
    pub page_cap: u32,
    /// Only posts of this time are wanted, and all of them; `None`: what came since the last run, or the first posts.
    pub time_range: Option<TimeRange>,
}

impl ReadOptions {
    /// Returns the time back to which posts are read if posts up to `known` are stored.
    fn overlap_start(self, known: Timestamp) -> Timestamp {
        let overlap = TimeDelta::from_std(self.overlap).ok();
        overlap
            .and_then(|overlap| known.as_datetime().checked_sub_signed(overlap))
            .map_or(Timestamp::EPOCH, Timestamp::from)
    }
}

/// The destination of posts.
pub struct Sink<'a> {
    /// The run that all of it belongs to.
    pub worker: Worker<'a>,
    /// Policy for author names.
    pub authors: AuthorPolicy,
}

/// Collects every topic, several side by side under the one quota of the client; `progress` hears how many
/// more topics are done.
///
/// When the worker is stopped, what was read so far is stored. `reports` gets one entry a topic, in their order,
/// also where an error ends the run; topics that were not read to their end are `stopped`.
///
/// # Errors
/// Errors of the store, and failures that every other topic would meet, too: no token, no connection to the source.
/// Refusals of one topic are in the reports.
pub async fn collect(
    sink: &Sink<'_>,
    source: &dyn Source,
    topics: &[Topic],
    options: ReadOptions,
    progress: &(dyn Fn(u64) + Send + Sync),
    reports: &mut Vec<TopicReport>,
) -> Result<(), CollectError> {
    // All entries are made before the first topic is read: whatever ends the run, each topic has one.
    reports.extend(topics.iter().map(new_report));
    // Cancelled by what the other topics would meet, too.
    let halt = sink.worker.stop.child_token();
    let each = topics.iter().zip(reports.iter_mut()).map(Ok);
    stream::iter(each)
        .try_for_each_concurrent(options.concurrency.max(1), |(topic, report)| {
            let halt = &halt;
            async move {
                let read = Read {
                    sink,
                    source,
                    topic,
                    options,
                    stop: halt,
                };
                read.topic(report).await?;
                // The key or this program is refused, so every other topic would meet the same.
                if report.outcome.is_refusal() {
                    halt.cancel();
                }
                log_report(report);
                progress(1);
                Ok(())
            }
        })
        .await
}

/// A line a topic, and one for each subreddit that was passed over; fields that say nothing are left out.
fn log_report(report: &TopicReport) {
    let TopicReport {
        topic,
        subreddit,
        outcome,
        posts,
        new,
        ..
    } = report;
    for (name, why) in &report.skipped {
        tracing::info!(%topic, "r/{name} is {why}: trying the next one");
    }
    let some = |n: u64| Some(n).filter(|n| *n > 0);
    let (changed, edited) = (some(report.changed), some(report.edited));
    let rejected = some(report.rejected.total());
    let tombstoned = some(report.tombstoned);
    if *outcome == Outcome::Ok {
        tracing::info!(%topic, posts, new, changed, edited, tombstoned, rejected, "collected r/{subreddit}");
    } else if let Some(detail) = &report.detail {
        // With `-q` it is all that is told.
        tracing::error!(%topic, %outcome, posts, "not collected: {detail}");
    } else {
        tracing::warn!(%topic, %outcome, posts, "not collected: stopped");
    }
}

/// The report of a topic that is new_report; nothing has come of it yet.
fn new_report(topic: &Topic) -> TopicReport {
    TopicReport {
        topic: topic.slug.clone(),
        subreddit: String::new(),
        outcome: Outcome::Stopped,
        skipped: Vec::new(),
        pages: 0,
        posts: 0,
        new: 0,
        changed: 0,
        edited: 0,
        tombstoned: 0,
        rejected: Rejections::default(),
        detail: None,
    }
}

/// One topic on its way.
struct Read<'a> {
    sink: &'a Sink<'a>,
    source: &'a dyn Source,
    topic: &'a Topic,
    options: ReadOptions,
    stop: &'a CancellationToken,
}

impl Read<'_> {
    async fn topic(&self, report: &mut TopicReport) -> Result<(), CollectError> {
        for subreddit in &self.topic.subreddits {
            if self.stop.is_cancelled() {
                return Ok(());
            }
            if !report.subreddit.is_empty() {
                let skipped = (std::mem::take(&mut report.subreddit), report.outcome);
                report.skipped.push(skipped);
            }
            report.subreddit.clone_from(subreddit);
            let before = report.posts;
            let mut reader = Reader {
                read: self,
                subreddit,
                report,
                listing: self.topic.listing,
                has_gap: false,
                is_quiet: false,
            };
            let read = tokio::select! {
                read = reader.read() => read?,
                // Between two pages or in a wait: stored pages stay, the one under way is read again next time.
                () = self.stop.cancelled() => {
                    report.outcome = Outcome::Stopped;
                    report.detail = None;
                    return Ok(());
                }
            };
            let is_quiet = reader.is_quiet;
            match read {
                Ok(()) if is_quiet || report.posts > before => {
                    report.outcome = Outcome::Ok;
                    report.detail = None;
                    break;
                }
                Ok(()) => {
                    report.outcome = Outcome::Empty;
                    report.detail = Some(format!("r/{subreddit} answered without posts"));
                }
                Err(error) => {
                    report.outcome = error.outcome();
                    report.detail = Some(error.to_string());
                    if error.is_of_every_topic() {
                        return Err(CollectError::Source(error));
                    }
                    // What closes while it is read is not mixed with another subreddit.
                    if !report.outcome.is_subreddit_specific() || report.posts > before {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads one subreddit: a listing to its end, to the limit of the topic, or, of new posts, to those that are
/// known; an archive as [`by_time`] says. A stretch of time as [`range`] says.
struct Reader<'a, 'r> {
    read: &'a Read<'a>,
    subreddit: &'a str,
    report: &'r mut TopicReport,
    /// The order in which it is read.
    listing: Listing,
    /// True once the requested time range is recorded as a gap.
    has_gap: bool,
    /// True if the subreddit responded, and has no post of that time.
    is_quiet: bool,
}

impl Reader<'_, '_> {
    /// The newest post that is known from an earlier reading of new posts.
    ///
    /// While this machine's clock was ahead, a post with a wrong date may have set the watermark, and nothing behind it
    /// would be read any more. Then it is the newest post that was stored before that one came.
    async fn known(&self) -> Result<Option<Timestamp>> {
        let Read {
            sink,
            source,
            topic,
            ..
        } = *self.read;
        let (store, clock) = (sink.worker.store, sink.worker.clock);
        let (kind, subreddit) = (source.kind(), self.subreddit);
        let known = store
            .posts()
            .watermark(kind, &topic.slug, subreddit)
            .await?;
        let latest = (clock.now() + MAX_CLOCK_SKEW).into();
        let Some(ahead) = known.filter(|known| *known > latest) else {
            return Ok(known);
        };
        let before = store
            .posts()
            .newest_before_future(kind, subreddit, latest)
            .await?;
        tracing::warn!(
            topic = %topic.slug, watermark = %ahead.as_datetime(),
            from = before.map(|before| tracing::field::display(before.as_datetime())),
            "r/{subreddit} was marked as read up to a time in the future, by a post with a wrong date: what came \
             since then is read now"
        );
        Ok(before)
    }

    /// The newest of these posts, those left aside that are dated in the future: a watermark says up to when posts
    /// were read, which is now at the latest.
    fn newest<'p>(&self, posts: impl IntoIterator<Item = &'p ReadyPost>) -> Option<Timestamp> {
        let now = self.read.sink.worker.clock.now().into();
        let times = posts.into_iter().map(|post| post.created_at);
        times.filter(|time| *time <= now).max()
    }

    async fn save(
        &mut self,
        posts: Vec<ReadyPost>,
        after: Option<&str>,
        newest: Option<Timestamp>,
    ) -> Result<()> {
        let Read {
            sink,
            source,
            topic,
            ..
        } = *self.read;
        let received = posts.len() as u64;
        let page = Page {
            run: sink.worker.run,
            source: source.kind(),
            topic: Some(topic.slug.as_str()),
            subreddit: self.subreddit,
            listing: Some(self.listing),
            after,
            newest,
            posts,
            now: sink.worker.clock.now().into(),
        };
        let stored = sink.worker.store.posts().save_pages(&[page], None).await?;
        self.report.pages += 1;
        self.report.posts += received;
        self.report.new += stored.new;
        self.report.changed += stored.changed;
        self.report.edited += stored.edited;
        self.report.tombstoned += stored.tombstoned;
        Ok(())
    }

    fn log_rejected(&mut self, rejected: &[Rejected]) {
        for Rejected { at, reason } in rejected {
            if self.report.rejected.total() < MAX_LOGGED_REJECTIONS {
                tracing::warn!(subreddit = %self.subreddit, %at, "passed over: {reason}");
            }
            self.report.rejected.add(reason);
        }
    }
}

/// Takes one from what is left, if anything is.
fn take(left: &mut u32) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}
