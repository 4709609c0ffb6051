//! Predicts the requests of a run, for `--dry-run`.

use serde_json::json;

use super::Collector;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use crate::collect::MAX_LISTED;
use topicmill_core::{Listing, SourceKind, ThingKind, Topic};
use topicmill_sources::page::PAGE_LIMIT;
use topicmill_sources::source::Paging;
use topicmill_store::{Access, Store};

impl Collector {
    /// Prints the number of requests that a run may take for each read.
    pub async fn print_requests(&self, app: &App, format: OutputFormat) -> Result<Exit, CliError> {
        // Without a database, nothing has been read yet.
        let store = if app.is_database_missing() {
            None
        } else {
            Some(app.store(Access::ReadOnly).await?)
        };
        // At its end, a run requests the newest post of an archive.
        let (mut rows, mut total, mut unbounded) = (Vec::new(), self.newest_requests(), 0);
        for topic in &self.topics {
            let requests = self.requests(app, store.as_ref(), topic).await?;
            total += requests.unwrap_or_default();
            unbounded += u64::from(requests.is_none());
            let reads = match topic.kind {
                ThingKind::Comment if topic.of_posts => "comments of posts",
                kind => kind.plural(),
            };
            rows.push(json!({
                "topic": topic.slug, "subreddit": topic.subreddits[0], "reads": reads, "requests": requests,
            }));
        }
        if let Some(store) = store {
            store.close().await?;
        }
        let table = output::table_from_objects("topic, subreddit, reads, requests", &rows);
        output::print_table(&table, format)?;
        let per_minute = match self.source.kind() {
            SourceKind::ArcticShift => app.settings().arctic_shift.requests_per_minute,
            _ => app.settings().reddit.requests_per_minute,
        };
        tracing::info!(
            requests = total,
            minutes = total.div_ceil(per_minute.max(1).into()),
            unbounded,
            "expected at {per_minute} requests per minute, without retries and fallback subreddits; an unbounded read \
             takes a request for each 100 posts or comments since the last run"
        );
        Ok(Exit::Done)
    }

    /// Returns the expected number of requests for a topic; `None` if it depends on how much is new.
    async fn requests(
        &self,
        app: &App,
        store: Option<&Store>,
        topic: &Topic,
    ) -> Result<Option<u64>, CliError> {
        let (kind, slug, subreddit) = (self.source.kind(), &topic.slug, &topic.subreddits[0]);
        let (mut watermark, mut stored_posts) = (None, 0);
        if let Some(store) = store {
            let path = if topic.of_posts {
                subreddit
            } else {
                &topic.path(subreddit)
            };
            watermark = store.posts().watermark(kind, slug, path).await?;
            if topic.of_posts {
                let unread = store.posts().unread_threads(kind, slug, topic.limit);
                stored_posts = unread.await?.len() as u64;
            }
        }
        let is_open = watermark.is_some() || self.time_range.is_some();
        let reads_new = topic.is_default_listing || kind.listing(topic.listing) == Listing::New;
        Ok(match self.source.paging() {
            _ if topic.of_posts => {
                let mut threads: u64 = topic.limit.into();
                if !is_open {
                    // A first run reads the comments on the posts that are stored, and on those that it stores.
                    threads = (stored_posts + self.new_posts(slug)).min(threads);
                }
                Some(threads + self.newest_requests().min(threads))
            }
            Paging::Archive(_) if is_open => None,
            _ if !topic.keywords.is_empty() => Some(app.settings().collect.page_cap.into()),
            Paging::Listing(_) if is_open && (reads_new || self.time_range.is_some()) => {
                Some(MAX_LISTED.div_ceil(PAGE_LIMIT).into())
            }
            _ => Some(topic.limit.div_ceil(PAGE_LIMIT).into()),
        })
    }

    /// Returns the number of requests that show how far the source is behind: one for an archive.
    fn newest_requests(&self) -> u64 {
        u64::from(matches!(self.source.paging(), Paging::Archive(_)))
    }

    /// Returns the number of posts that a first run stores for a topic, at most.
    fn new_posts(&self, slug: &str) -> u64 {
        let reads = self.topics.iter().filter(|read| read.slug == slug);
        let reads = reads.filter(|read| read.kind == ThingKind::Post);
        reads.map(|read| u64::from(read.limit)).sum()
    }
}
