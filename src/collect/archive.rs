//! An archive into the store, page by page through time.
//!
//! A subreddit that was never read is read from its newest post back to the limit of the topic. One that was is
//! read from a little before the newest post known towards now, however much that is: so each page follows the
//! one before without a hole, the watermark advances_watermark with it, and whatever dies goes on behind the last page that is
//! stored.
//!
//! A page ends somewhere among the posts of one second. The next one begins with that second again, and what
//! comes twice is passed over. Where a page does not reach past that second, a larger one is asked for.

use std::collections::HashSet;

use super::{Reader, Result, take};
use topicmill_core::Timestamp;
use topicmill_sources::error::SourceError;
use topicmill_sources::page::{Archived, LARGEST_PAGE, PAGE_LIMIT, TimeOrder, TimePage, site_of};

impl Reader<'_, '_> {
    pub(super) async fn read_archive(
        &mut self,
        archive: &dyn Archived,
    ) -> Result<std::result::Result<(), SourceError>> {
        let known = self.known().await?;
        self.log_unread_range(known);
        let goal = self.goal(known);
        self.listing = goal.listing;
        let (order, mut wanted) = match goal.back_to {
            None => (TimeOrder::NewestFirst, goal.limit),
            // Without a limit: what is left out here would never be read, because the next run begins behind it.
            Some(_) => (TimeOrder::OldestFirst, u32::MAX),
        };
        let until = self.read.options.time_range.and_then(|range| range.until);
        let mut boundary: Option<Timestamp> = goal.back_to;
        let mut limit = wanted.min(PAGE_LIMIT);
        let mut previous_page = HashSet::new();
        let mut newest: Option<Timestamp> = None;
        loop {
            let page = match archive.page(self.subreddit, order, boundary, limit).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            let TimePage {
                posts,
                rejected,
                ends_at,
                limit: given,
                full,
            } = page;
            self.begin_gap().await?;
            self.log_rejected(&rejected);
            let names: HashSet<_> = posts.iter().map(|post| post.fullname.clone()).collect();
            let posts = posts
                .into_iter()
                .filter(|post| !previous_page.contains(&post.fullname) && self.is_wanted(post))
                .filter(|_| take(&mut wanted));
            let posts = self.read.sink.authors.prepare(posts);
            // Only the names of the last page: what comes twice is of the second at its end.
            previous_page = names;
            newest = newest.max(self.newest(&posts));
            let is_behind = |time: Timestamp| until.is_some_and(|until| time >= until);
            let next = ends_at.filter(|time| full && wanted > 0 && !is_behind(*time));
            // Towards now, what is stored has no hole behind it; into the past, not before all of it is stored.
            let watermark = newest.filter(|_| {
                goal.advances_watermark && (order == TimeOrder::OldestFirst || next.is_none())
            });
            let cursor = next.map(|next| next.as_datetime().timestamp().to_string());
            self.save(posts, cursor.as_deref(), watermark).await?;
            let Some(next) = next else {
                if let Some(back_to) = goal.back_to {
                    self.fill_gaps(back_to).await?;
                }
                // Nobody can tell a quiet subreddit from a missing one that was never read.
                self.is_quiet = self.read.options.time_range.is_some() && known.is_some();
                return Ok(Ok(()));
            };
            let moved = boundary.is_none_or(|boundary| match order {
                TimeOrder::NewestFirst => next < boundary,
                TimeOrder::OldestFirst => next > boundary,
            });
            if moved {
                boundary = Some(next);
                // What was too much once may not be the next time.
                limit = (2 * given).min(PAGE_LIMIT);
            // The archive gave a smaller page than was asked for, or the largest there is: no other page would reach
            // further.
            } else if given < limit || limit == LARGEST_PAGE {
                return Ok(Err(SourceError::Crowded {
                    site: site_of(self.read.source.kind()),
                    what: format!("r/{}", self.subreddit),
                    at: next.as_datetime(),
                }));
            } else {
                limit = (2 * limit).min(LARGEST_PAGE);
            }
        }
    }
}
