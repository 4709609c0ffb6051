//! From a source into the store: topic by topic, page by page.
//!
//! Each page is stored before the next one is asked for, so whatever dies loses at most one page, and the
//! next run stores the same rows again without harm. A topic that cannot be read ends with a typed outcome;
//! the other topics go on.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::domain::{Listing, Outcome, Post, Rejections, SourceKind, Topic, TopicReport, hex};
use crate::source::dump::{Record, Records};
use crate::source::reddit::{PAGE_LIMIT, Reddit, RedditError};
use crate::source::{ListingPage, Rejected};
use crate::store::{Page, Result, RunId, Store, Upserted};

/// Posts of a file that are stored in one transaction.
const IMPORT_CHUNK: usize = 2_000;
/// Rejected records that are told one by one; the others are counted.
const REJECTED_SHOWN: u64 = 5;

/// What becomes of author names.
#[derive(Debug, Clone)]
pub enum Authors {
    /// Stored as they are.
    Stored,
    /// Stored as a hash under this key.
    Hashed(String),
}

impl Authors {
    fn apply(&self, posts: &mut [Post]) {
        let Self::Hashed(key) = self else { return };
        for author in posts.iter_mut().filter_map(|post| post.author.as_mut()) {
            // The key has a fixed length, so key and name cannot run into each other.
            let digest = Sha256::new()
                .chain_update(key.as_bytes())
                .chain_update(author.as_bytes())
                .finalize();
            *author = format!("u_{}", hex(&digest[..8]));
        }
    }
}

/// Where what is collected goes.
#[derive(Debug, Clone)]
pub struct Sink<'a> {
    /// The database.
    pub store: &'a Store,
    /// The run that all of it belongs to.
    pub run: RunId,
    /// What becomes of author names.
    pub authors: Authors,
    /// For dates.
    pub clock: SharedClock,
}

impl Sink<'_> {
    async fn save(&self, mut posts: Vec<Post>, at: Place<'_>) -> Result<Upserted> {
        self.authors.apply(&mut posts);
        let Place {
            source,
            topic,
            subreddit,
            listing,
            ranks,
            after,
        } = at;
        let now = self.clock.now().into();
        let page = Page {
            run: self.run,
            source,
            topic,
            subreddit,
            listing,
            ranks,
            after,
            posts: &posts,
            now,
        };
        self.store.save_page(&page).await
    }
}

/// Where on a source a page was found.
#[derive(Clone, Copy)]
struct Place<'a> {
    source: SourceKind,
    topic: Option<&'a str>,
    subreddit: &'a str,
    listing: Option<Listing>,
    ranks: &'a [u32],
    after: Option<&'a str>,
}

/// Collects every topic; `progress` hears how many more topics are done.
///
/// When `stop` is cancelled, what was read so far is stored. `reports` gets one entry a topic that was begun,
/// also where an error ends the run.
///
/// # Errors
/// Those of the store. What Reddit refuses is in the reports.
pub async fn collect(
    sink: &Sink<'_>,
    reddit: &Reddit,
    topics: &[Topic],
    stop: &CancellationToken,
    progress: &(dyn Fn(u64) + Send + Sync),
    reports: &mut Vec<TopicReport>,
) -> Result<()> {
    for topic in topics {
        if stop.is_cancelled() {
            break;
        }
        reports.push(begun(topic));
        let report = reports.last_mut().expect("just pushed");
        collect_topic(sink, reddit, topic, stop, report).await?;
        log_report(report);
        progress(1);
        let outcome = report.outcome;
        // The other topics would meet the same refusal.
        if matches!(outcome, Outcome::Auth | Outcome::EdgeBlocked) {
            break;
        }
    }
    Ok(())
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
    let (changed, rejected) = (some(report.changed), some(report.rejected.total()));
    let tombstoned = some(report.tombstoned);
    if *outcome == Outcome::Ok {
        tracing::info!(%topic, posts, new, changed, tombstoned, rejected, "collected r/{subreddit}");
    } else {
        let detail = report.detail.as_deref().unwrap_or("stopped");
        tracing::warn!(%topic, %outcome, posts, "not collected: {detail}");
    }
}

/// The report of a topic that is begun; nothing has come of it yet.
fn begun(topic: &Topic) -> TopicReport {
    TopicReport {
        topic: topic.slug.clone(),
        subreddit: String::new(),
        outcome: Outcome::Stopped,
        skipped: Vec::new(),
        pages: 0,
        posts: 0,
        new: 0,
        changed: 0,
        tombstoned: 0,
        rejected: Rejections::default(),
        detail: None,
    }
}

async fn collect_topic(
    sink: &Sink<'_>,
    reddit: &Reddit,
    topic: &Topic,
    stop: &CancellationToken,
    report: &mut TopicReport,
) -> Result<()> {
    for subreddit in &topic.subreddits {
        if !report.subreddit.is_empty() {
            report
                .skipped
                .push((std::mem::take(&mut report.subreddit), report.outcome));
        }
        report.subreddit.clone_from(subreddit);
        let mut reader = Reader {
            sink,
            reddit,
            topic,
            subreddit,
            report,
        };
        let read = tokio::select! {
            read = reader.read() => read?,
            // Between two pages or in a wait: stored pages stay, the one under way is read again next time.
            () = stop.cancelled() => {
                report.outcome = Outcome::Stopped;
                report.detail = None;
                return Ok(());
            }
        };
        match read {
            Ok(()) if report.posts > 0 => {
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
                if !is_of_the_subreddit(report.outcome) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether another subreddit may answer where this one did not.
fn is_of_the_subreddit(outcome: Outcome) -> bool {
    use Outcome::{
        Auth, Banned, EdgeBlocked, Empty, Gated, Missing, Ok, Private, Quarantined, RateLimited,
        Server, Stopped,
    };
    match outcome {
        Empty | Private | Banned | Quarantined | Gated | Missing => true,
        Ok | EdgeBlocked | Auth | RateLimited | Server | Stopped => false,
    }
}

/// Reads one listing to its end or to the limit of the topic.
struct Reader<'a, 'r> {
    sink: &'a Sink<'a>,
    reddit: &'a Reddit,
    topic: &'a Topic,
    subreddit: &'a str,
    report: &'r mut TopicReport,
}

impl Reader<'_, '_> {
    async fn read(&mut self) -> Result<std::result::Result<(), RedditError>> {
        let (mut seen, mut cursors) = (HashSet::new(), HashSet::new());
        let (mut wanted, mut rank) = (self.topic.limit, 0);
        let mut after: Option<String> = None;
        while wanted > 0 {
            let asked = self.reddit.listing_page(
                self.subreddit,
                self.topic.listing,
                wanted.min(PAGE_LIMIT),
                after.as_deref(),
            );
            let page = match asked.await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            let ListingPage {
                posts,
                rejected,
                after: next,
            } = page;
            self.note_rejected(&rejected);
            let on_page = u32::try_from(posts.len()).unwrap_or(u32::MAX);
            // A listing that moves while it is read shows posts twice; pinned ones come on top of the limit.
            let mut wants = |post: &Post| {
                seen.insert(post.fullname.clone()) && (post.stickied || take(&mut wanted))
            };
            let (ranks, posts): (Vec<u32>, Vec<Post>) =
                (rank..).zip(posts).filter(|(_, post)| wants(post)).unzip();
            // `after` may come back unchanged, or lead round in a circle.
            let next = next.filter(|cursor| cursors.insert(cursor.clone()));
            self.save(posts, &ranks, next.as_deref().filter(|_| wanted > 0))
                .await?;
            rank += on_page;
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(Ok(()))
    }

    async fn save(&mut self, posts: Vec<Post>, ranks: &[u32], after: Option<&str>) -> Result<()> {
        let received = posts.len() as u64;
        let source = self.reddit.source();
        let (topic, listing) = (Some(self.topic.slug.as_str()), Some(self.topic.listing));
        let place = Place {
            source,
            topic,
            subreddit: self.subreddit,
            listing,
            ranks,
            after,
        };
        let stored = self.sink.save(posts, place).await?;
        self.report.pages += 1;
        self.report.posts += received;
        self.report.new += stored.new;
        self.report.changed += stored.changed;
        self.report.tombstoned += stored.tombstoned;
        Ok(())
    }

    fn note_rejected(&mut self, rejected: &[Rejected]) {
        for Rejected { at, reason } in rejected {
            if self.report.rejected.total() < REJECTED_SHOWN {
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

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records that are posts.
    pub posts: u64,
    /// Of those, not known before.
    pub new: u64,
    /// Of those, known with another text.
    pub changed: u64,
    /// Of those, purged before and so not stored.
    pub tombstoned: u64,
    /// Records that are no post, or not a whole one.
    pub rejected: Rejections,
}

impl Imported {
    /// Adds what another file gave.
    pub fn add(&mut self, other: &Self) {
        self.posts += other.posts;
        self.new += other.new;
        self.changed += other.changed;
        self.tombstoned += other.tombstoned;
        self.rejected.extend(&other.rejected);
    }
}

/// Stores the records of a file. A record belongs to the topic that it names, else to the one that reads its
/// subreddit, else to none.
///
/// When `stop` is cancelled, the chunk under way is stored first. What is done is added to `done`, also where
/// an error ends the run.
///
/// # Errors
/// Those of the store. Records that cannot be read are counted, the first ones logged.
pub async fn import(
    sink: &Sink<'_>,
    name: &str,
    records: &mut Records,
    topics: &[Topic],
    stop: &CancellationToken,
    done: &mut Imported,
) -> Result<()> {
    while !stop.is_cancelled() {
        // Reading is fast and bounded by the chunk; the runtime has other threads.
        let chunk: Vec<_> =
            tokio::task::block_in_place(|| records.by_ref().take(IMPORT_CHUNK).collect());
        if chunk.is_empty() {
            break;
        }
        let mut by_topic: Vec<(Option<String>, Vec<Post>)> = Vec::new();
        for record in chunk {
            match record {
                Ok(Record { post, topic }) => {
                    let topic = topic.map_or_else(
                        || topic_of(&post, topics),
                        |named| Some(slug_of(named, topics)),
                    );
                    match by_topic.iter_mut().find(|(known, _)| *known == topic) {
                        Some((_, posts)) => posts.push(post),
                        None => by_topic.push((topic, vec![post])),
                    }
                }
                Err(Rejected { at, reason }) => {
                    if done.rejected.total() < REJECTED_SHOWN {
                        tracing::warn!(file = %name, %at, "passed over: {reason}");
                    }
                    done.rejected.add(&reason);
                }
            }
        }
        for (topic, posts) in by_topic {
            done.posts += posts.len() as u64;
            let topic = topic.as_deref();
            let place = Place {
                source: SourceKind::Import,
                topic,
                subreddit: "",
                listing: None,
                ranks: &[],
                after: None,
            };
            let stored = sink.save(posts, place).await?;
            done.new += stored.new;
            done.changed += stored.changed;
            done.tombstoned += stored.tombstoned;
        }
    }
    Ok(())
}

/// The slug of the topic that a record names, by its slug or by its label; a name of neither kind stays.
fn slug_of(named: String, topics: &[Topic]) -> String {
    let known = topics
        .iter()
        .find(|topic| topic.slug == named || topic.label == named);
    known.map_or(named, |topic| topic.slug.clone())
}

/// The topic that a post's subreddit is read for.
fn topic_of(post: &Post, topics: &[Topic]) -> Option<String> {
    let reads = |topic: &&Topic| {
        topic
            .subreddits
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&post.subreddit))
    };
    topics.iter().find(reads).map(|topic| topic.slug.clone())
}
