//! Reads an archive into the store, page by page in chronological order.
//!
//! A subreddit that has never been read is read from its newest post back to the topic's limit. A known subreddit is
//! read forwards from a little before its newest known post, without a limit: each page adjoins the previous one, the
//! watermark advances with it, and an interrupted run is continued after its last stored page.
//!
//! A page may end in the middle of the posts of one second. The next page begins with that second again, and repeated
//! posts are skipped. If a page does not reach beyond that second, a larger page is requested.

use std::collections::HashSet;

use super::{CollectError, Reader, Result, take};
use topicmill_core::Timestamp;
use topicmill_sources::SourceError;
use topicmill_sources::arctic_shift::ArcticShift;
use topicmill_sources::page::{LARGEST_PAGE, PAGE_LIMIT, TimeOrder, TimePage, site_for};

impl Reader<'_> {
    pub(super) async fn read_archive(&mut self, archive: &ArcticShift) -> Result<()> {
        let known = self.known().await?;
        self.log_unread_range(known);
        let goal = self.goal(known);
        self.listing = goal.listing;
        let (order, mut wanted) = match goal.back_to {
            None => (TimeOrder::NewestFirst, goal.limit),
            // No limit: skipped posts would never be read, because the next run begins after them.
            Some(_) => (TimeOrder::OldestFirst, u32::MAX),
        };
        let range = self.options.time_range;
        let until = range.and_then(|range| range.until);
        let mut boundary: Option<Timestamp> = goal.back_to;
        let mut limit = wanted.min(PAGE_LIMIT);
        let mut previous_page = HashSet::new();
        let mut newest: Option<Timestamp> = None;
        loop {
            let page = archive.page(self.subreddit, order, boundary, limit);
            let TimePage {
                posts,
                rejected,
                ends_at,
                limit: given,
                full,
            } = page.await?;
            self.begin_gap().await?;
            self.log_rejected(&rejected);
            let names: HashSet<_> = posts.iter().map(|post| post.fullname.clone()).collect();
            let posts = posts
                .into_iter()
                .filter(|post| !previous_page.contains(&post.fullname))
                .filter(|post| range.is_none_or(|range| range.contains(post.created_at)))
                .filter(|_| take(&mut wanted));
            let posts = self.authors.prepare(posts);
            // Only the last page is needed, because only posts from its last second are repeated.
            previous_page = names;
            // A watermark must not be later than now.
            let now = self.run.now();
            let times = posts.iter().map(|post| post.created_at);
            newest = newest.max(times.filter(|time| *time <= now).max());
            let is_behind = |time: Timestamp| until.is_some_and(|until| time >= until);
            let next = ends_at.filter(|time| full && wanted > 0 && !is_behind(*time));
            // Reading forwards, the watermark advances with each page; reading backwards, only after the last page.
            let watermark = newest.filter(|_| {
                goal.advances_watermark && (order == TimeOrder::OldestFirst || next.is_none())
            });
            let cursor = next.map(|next| next.as_datetime().timestamp().to_string());
            self.save(posts, cursor.as_deref(), watermark).await?;
            let Some(next) = next else {
                if let Some(back_to) = goal.back_to {
                    self.fill_gaps(back_to).await?;
                }
                // An archive does not distinguish a quiet subreddit from one that does not exist, so only a known
                // subreddit counts as quiet.
                self.is_quiet = range.is_some() && known.is_some();
                return Ok(());
            };
            let moved = boundary.is_none_or(|boundary| match order {
                TimeOrder::NewestFirst => next < boundary,
                TimeOrder::OldestFirst => next > boundary,
            });
            if moved {
                boundary = Some(next);
                // The archive may have returned a smaller page because it was busy.
                limit = (2 * given).min(PAGE_LIMIT);
            // The archive returned a smaller page than requested, or the largest one: no other page would reach
            // further.
            } else if given < limit || limit == LARGEST_PAGE {
                return Err(CollectError::Source(SourceError::PageOverflow {
                    site: site_for(self.source.kind()),
                    what: format!("r/{}", self.subreddit),
                    at: next.as_datetime(),
                }));
            } else {
                limit = (2 * limit).min(LARGEST_PAGE);
            }
        }
    }
}
