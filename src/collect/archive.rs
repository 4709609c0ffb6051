//! Reads an archive into the store, page by page in chronological order.
//!
//! A subreddit that has never been read is read from its newest post back to the topic's limit. A known subreddit is
//! read forwards without a limit: each page adjoins the previous one, the watermark advances with it, and an
//! interrupted run is continued after its last stored page.
//!
//! The archive reads each post a second time after about 36 hours, and receives some posts late. A known subreddit is
//! therefore read from two days before its newest known post, but not from before the first run's oldest post.
//!
//! A page may end in the middle of the posts of one second. The next page begins with that second again, and repeated
//! posts are skipped. If a page does not reach beyond that second, a larger page is requested.

use std::collections::HashSet;

use super::goal::Goal;
use super::{Result, TopicReader, WatermarkUpdate};
use crate::run::Run;
use topicmill_core::{Fullname, Post, Timestamp};
use topicmill_sources::SourceError;
use topicmill_sources::arctic_shift::ArcticShift;
use topicmill_sources::page::{LARGEST_PAGE, PAGE_LIMIT, TimeOrder, TimePage, site_for};
use topicmill_sources::source::{Paging, Source};

/// Maximum number of attempts to read past a second whose posts fill a page that had to be made smaller.
const STUCK_PAGES: u32 = 3;

/// Requests the creation time of an archive's newest post; `None` for other sources, or if there is no answer.
pub async fn archive_newest(run: &Run<'_>, source: &dyn Source) -> Option<Timestamp> {
    let Paging::Archive(archive) = source.paging() else {
        return None;
    };
    let newest = tokio::select! {
        newest = archive.newest_post() => newest,
        () = run.stop.cancelled() => return None,
    };
    newest.unwrap_or_else(|error| {
        tracing::warn!("how far the archive is behind is unknown: {error}");
        None
    })
}

/// The next page to request.
struct PageRequest {
    order: TimeOrder,
    /// The second that the page begins with; `None` for the newest posts.
    start: Option<Timestamp>,
    /// Number of rows.
    limit: u32,
    /// Number of attempts to read past the second `start` at the size that timed out.
    attempts: u32,
}

impl PageRequest {
    /// Moves on to the page that begins with the second `ends_at`, in which the last page ended. The archive returned
    /// that page with the limit `granted`, which is smaller than requested if it was busy. Returns false if no other
    /// page would reach beyond that second.
    fn advance(&mut self, ends_at: Timestamp, granted: u32) -> bool {
        let has_moved = self.start.is_none_or(|start| match self.order {
            TimeOrder::NewestFirst => ends_at < start,
            TimeOrder::OldestFirst => ends_at > start,
        });
        if has_moved {
            self.start = Some(ends_at);
            self.limit = (2 * granted).min(PAGE_LIMIT);
            self.attempts = 0;
        } else if granted < self.limit {
            // The same page again, at the size that timed out: it may not this time.
            self.attempts += 1;
            return self.attempts <= STUCK_PAGES;
        } else if self.limit < LARGEST_PAGE {
            self.limit = (2 * self.limit).min(LARGEST_PAGE);
        } else {
            return false;
        }
        true
    }
}

impl TopicReader<'_> {
    /// Returns the goal for a subreddit. The overlap does not reach beyond the posts that were read before.
    async fn archive_goal(&mut self, known: Option<Timestamp>) -> Result<Goal> {
        self.log_range_before_since(known);
        let mut goal = self.goal(known);
        self.listing = goal.listing;
        if self.options.time_range.is_none() && goal.back_to.is_some() {
            let (posts, kind) = (self.run.store.posts(), self.source.kind());
            let read_from = posts.read_from(kind, &self.topic.slug, &self.path);
            goal.back_to = goal.back_to.max(read_from.await?);
        }
        Ok(goal)
    }

    /// Removes the posts that are outside the requested time range, or repeat those of the `previous` page. One page is
    /// remembered, because only posts from its last second are repeated.
    fn keep_new(&self, posts: &mut Vec<Post>, previous: &mut HashSet<Fullname>) {
        let names = posts.iter().map(|post| post.fullname.clone());
        let repeated = std::mem::replace(previous, names.collect());
        let range = self.options.time_range;
        posts.retain(|post| {
            let is_in_range = range.is_none_or(|range| range.contains(post.created_at));
            is_in_range && !repeated.contains(&post.fullname)
        });
    }

    /// Returns the second that the next page begins with; `None` if this page, of `pages` so far, is the last. `wanted`
    /// is the number of posts that are still wanted.
    fn next_start(
        &self,
        page: &TimePage,
        order: TimeOrder,
        pages: u32,
        wanted: u32,
    ) -> Option<Timestamp> {
        let until = self.options.time_range.and_then(|range| range.until);
        let is_before_end = |time: Timestamp| until.is_none_or(|until| time < until);
        let ends_at = page.ends_at.filter(|_| page.full && wanted > 0);
        let next = ends_at.filter(|time| is_before_end(*time))?;
        // A first run reads backwards until enough posts have the topic's keywords.
        let is_search = order == TimeOrder::NewestFirst && !self.topic.keywords.is_empty();
        if is_search && pages >= self.options.page_cap {
            tracing::warn!(
                topic = %self.topic.slug, pages = self.options.page_cap,
                "fewer posts of r/{} than the limit have the topic's keywords in the pages that `collect.page_cap` \
                 allows: `--since` reads older ones", self.path
            );
            return None;
        }
        Some(next)
    }

    /// Removes the posts after the last wanted one. Returns true if there are any.
    fn cut_at_limit(&self, posts: &mut Vec<Post>, wanted: &mut u32) -> bool {
        let mut kept = 0;
        while kept < posts.len() && *wanted > 0 {
            *wanted -= u32::from(self.topic.matches(&posts[kept]));
            kept += 1;
        }
        let is_cut = kept < posts.len();
        posts.truncate(kept);
        is_cut
    }

    pub(super) async fn read_archive(&mut self, archive: &ArcticShift) -> Result<()> {
        let known = self.watermark().await?;
        let goal = self.archive_goal(known).await?;
        let (order, mut wanted) = match goal.back_to {
            None => (TimeOrder::NewestFirst, goal.limit),
            // No limit: skipped posts would never be read, because the next run begins after them.
            Some(_) => (TimeOrder::OldestFirst, u32::MAX),
        };
        let mut request = PageRequest {
            order,
            start: goal.back_to,
            limit: self.page_limit(wanted),
            attempts: 0,
        };
        let range = self.options.time_range;
        let has_end = range.is_some_and(|range| range.until.is_some());
        let (mut pages, mut previous_page) = (0, HashSet::new());
        let mut newest: Option<Timestamp> = None;
        loop {
            let subreddit = (self.subreddit, self.topic.kind);
            let page = archive.page(subreddit, order, request.start, request.limit);
            let mut page = page.await?;
            pages += 1;
            self.record_gap_before_reading().await?;
            self.log_rejected(&page.rejected);
            let mut posts = std::mem::take(&mut page.posts);
            self.keep_new(&mut posts, &mut previous_page);
            let is_cut = self.cut_at_limit(&mut posts, &mut wanted);
            let posts = self.authors.prepare(posts);
            // A watermark must not be later than now.
            let now = self.run.now();
            let times = posts.iter().map(|post| post.created_at);
            newest = newest.max(times.filter(|time| *time <= now).max());
            let next = self.next_start(&page, order, pages, wanted);
            // Reading forwards, the watermark advances with each page; reading backwards, only after the last page.
            let is_contiguous = order == TimeOrder::OldestFirst || next.is_none();
            let watermark = newest.filter(|_| goal.advances_watermark && is_contiguous);
            let read_from = match goal.back_to {
                _ if watermark.is_none() => None,
                Some(back_to) => (!has_end).then_some(back_to),
                // The limit left out the older posts of the page.
                None if is_cut => posts.last().map(|post| post.created_at),
                None if page.full => page.ends_at,
                // There are no older posts.
                None => Some(Timestamp::EPOCH),
            };
            if goal.back_to.is_none()
                && next.is_none()
                && let Some(oldest) = read_from
            {
                self.record_gap_before_first_run(oldest).await?;
            }
            let cursor = next.map(|next| next.as_datetime().timestamp().to_string());
            let update = WatermarkUpdate {
                after: cursor.as_deref(),
                newest: watermark,
                read_from,
            };
            self.save(posts, update).await?;
            let Some(next) = next else {
                return self.end_archive(&goal, known).await;
            };
            if !request.advance(next, page.limit) {
                let error = SourceError::PageOverflow {
                    site: site_for(self.source.kind()),
                    what: format!("r/{}", self.path),
                    at: next.as_datetime(),
                };
                return Err(error.into());
            }
        }
    }

    /// Fills the gaps in the range that was read, and decides whether no posts are a success.
    async fn end_archive(&mut self, goal: &Goal, known: Option<Timestamp>) -> Result<()> {
        if let Some(back_to) = goal.back_to {
            self.fill_gaps_since(back_to).await?;
        }
        // An archive does not distinguish a quiet subreddit from one that does not exist, so only a known subreddit
        // counts as quiet.
        let is_known = self.options.time_range.is_some() && known.is_some();
        self.is_quiet = is_known || self.report.unmatched > 0;
        Ok(())
    }
}
