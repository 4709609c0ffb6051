//! Reads the comments on a topic's stored posts, one thread after another.

use chrono::TimeDelta;

use super::{Result, TopicReader, WatermarkUpdate, archive_newest};
use topicmill_core::{Outcome, Timestamp};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::ListingPage;
use topicmill_sources::source::Paging;
use topicmill_store::UnreadThread;

/// Age of a thread's post, or of its newest comment in the archive, after which the thread is not read again: few
/// comments are added later, and the archive has read each a second time.
const COMPLETE_AFTER: TimeDelta = TimeDelta::hours(48);

impl TopicReader<'_> {
    /// Reads the comments on the topic's stored posts, until the topic's limit is reached. A thread is read in each run
    /// until its post is two days old; from the archive, until each comment has had its second reading too.
    pub(super) async fn read_threads(&mut self, paging: Paging<'_>) -> Result<()> {
        self.is_quiet = true;
        let (posts, kind) = (self.run.store.posts(), self.source.kind());
        let unread = posts.unread_threads(kind, &self.topic.slug, self.topic.limit);
        let unread = unread.await?;
        if unread.is_empty() {
            return Ok(());
        }
        // An archive that is behind lacks later comments, whatever this machine's clock says.
        let now = self.run.now();
        let newest = archive_newest(&self.run, self.source).await;
        let read_until = newest.map_or(now, |newest| newest.min(now));
        let (mut comments, mut failed) = (0, None);
        for thread in unread {
            if comments >= self.topic.limit as usize {
                break;
            }
            let page = match paging {
                Paging::Listing(reddit) => reddit.thread(&thread.post).await,
                Paging::Archive(archive) => archive.thread(&thread.post).await,
            };
            let page = match page {
                Ok(page) => page,
                // Reddit has deleted the post. An archive would still have it.
                Err(error) if kind.is_live() && error.outcome() == Outcome::Missing => {
                    ListingPage::default()
                }
                // The next run tries this thread again.
                Err(error) if self.affects_only_thread(&error).await => {
                    failed = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            comments += page.posts.len();
            self.save_thread(&thread, page, read_until).await?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns true if other threads may be readable.
    async fn affects_only_thread(&self, error: &SourceError) -> bool {
        error.outcome().is_subreddit_specific()
            || matches!(self.source.paging(), Paging::Archive(_))
                && !error.affects_all_topics()
                && !self.is_archive_down(error).await
    }

    /// Stores the comments of a thread. The thread is complete if it was old at the time `read_until`, up to which the
    /// source has comments.
    async fn save_thread(
        &mut self,
        thread: &UnreadThread,
        page: ListingPage,
        read_until: Timestamp,
    ) -> Result<()> {
        self.log_rejected(&page.rejected);
        self.report.left_out += page.left_out;
        let mut newest = thread.created_at;
        if matches!(self.source.paging(), Paging::Archive(_)) {
            let comments = page.posts.iter().map(|comment| comment.created_at);
            newest = comments.fold(newest, Timestamp::max);
        }
        let age = read_until.as_datetime() - newest.as_datetime();
        let is_read = !page.posts.is_empty() || page.rejected.is_empty();
        let is_complete = is_read && age > COMPLETE_AFTER;
        self.path = format!("{}/comments/{}", thread.subreddit, thread.post.id());
        let watermark = WatermarkUpdate {
            read_from: is_complete.then_some(thread.created_at),
            ..WatermarkUpdate::default()
        };
        self.save(self.authors.prepare(page.posts), watermark).await
    }
}
