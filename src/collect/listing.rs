//! Reads a Reddit listing into the store, page by page: to its end, to the topic's limit, or, for new posts, back to
//! the stored ones.

use std::collections::HashSet;

use super::goal::{Goal, TimeRange};
use super::{Result, TopicReader, WatermarkUpdate};
use topicmill_core::{Fullname, Listing, ReadyPost, Timestamp, Topic};
use topicmill_sources::page::PAGE_LIMIT;
use topicmill_sources::reddit::Reddit;

/// Minimum number of posts of a listing that Reddit's maximum may have cut off. A shorter listing is complete.
const FULL_LISTING: usize = 900;

/// State of reading a listing.
struct Walk {
    goal: Goal,
    /// The time of the newest post that was already known.
    known: Option<Timestamp>,
    /// Number of posts that are still wanted. Pinned (stickied) posts do not count.
    wanted: u32,
    /// Position of the next post in the listing.
    rank: u32,
    seen: HashSet<Fullname>,
    cursors: HashSet<String>,
    newest: Option<Timestamp>,
    end: ListingEnd,
    pages_left: u32,
    /// True if the listing has more pages than may be read.
    is_capped: bool,
}

impl Walk {
    fn new(goal: Goal, known: Option<Timestamp>, page_cap: u32) -> Self {
        Self {
            known,
            wanted: goal.limit,
            goal,
            rank: 0,
            seen: HashSet::new(),
            cursors: HashSet::new(),
            newest: None,
            end: ListingEnd::default(),
            pages_left: page_cap.max(1),
            is_capped: false,
        }
    }

    /// Ranks the posts of a page, and keeps those that are wanted, in the time range, and not seen before. Returns true
    /// if all posts were seen before or are not wanted, whenever they were created: the listing ends here.
    ///
    /// The newest post is one that is not pinned and not dated after `now`. The end of the listing is taken from the
    /// last page with posts.
    fn add_page(
        &mut self,
        posts: &mut Vec<ReadyPost>,
        topic: &Topic,
        range: Option<TimeRange>,
        now: Timestamp,
    ) -> bool {
        let (mut is_last, mut last_two) = (true, [None; 2]);
        posts.retain_mut(|post| {
            // Every post of the page counts, so that the rank is the position in the listing.
            post.rank = Some(self.rank);
            self.rank += 1;
            // A listing that changes while it is read repeats posts.
            let is_new = self.seen.insert(post.fullname.clone());
            if !is_new || !self.count_wanted(post, topic) {
                return false;
            }
            is_last = false;
            let time = post.created_at;
            let is_in_range = range.is_none_or(|range| range.contains(time));
            if !post.stickied {
                last_two = [last_two[1], Some(time)];
                self.end.has_known |= self.known == Some(time);
                let is_oldest = self.end.oldest_new.is_none_or(|oldest| time < oldest);
                if self.goal.from < Some(time) && is_oldest {
                    self.end.oldest_new = Some(time);
                }
                if is_in_range && time <= now {
                    self.newest = self.newest.max(Some(time));
                }
            }
            is_in_range
        });
        if last_two[1].is_some() {
            self.end.last_two = last_two;
        }
        is_last
    }

    /// Returns true if a post is wanted, and counts it unless it is pinned or lacks the topic's keywords.
    fn count_wanted(&mut self, post: &ReadyPost, topic: &Topic) -> bool {
        if post.stickied {
            return true;
        }
        let is_wanted = self.wanted > 0;
        // A post without the keywords is wanted too, because it shows how far the listing was read.
        if is_wanted && topic.matches(post) {
            self.wanted -= 1;
        }
        is_wanted
    }

    /// Returns true if the listing was read as far back as requested.
    fn has_reached(&self) -> bool {
        let (time, back_to) = (self.end.time(), self.goal.back_to);
        time.is_some_and(|time| back_to.is_some_and(|back_to| time < back_to))
    }

    /// Returns the cursor of the next page to read. Reddit may repeat `after`, return cursors in a loop, or return ever
    /// new cursors without new posts.
    fn next_cursor(&mut self, after: Option<String>, is_last: bool) -> Option<String> {
        let goes_on = !is_last && !self.has_reached() && self.wanted > 0;
        let next = after.filter(|cursor| goes_on && self.cursors.insert(cursor.clone()));
        self.pages_left -= 1;
        self.is_capped = self.pages_left == 0 && next.is_some();
        if self.is_capped { None } else { next }
    }

    /// Returns true if posts may be missing between the end of the listing and the newest known post, because the
    /// listing did not reach that post. A listing that may have been cut off must also reach back to the goal.
    fn is_short(&self) -> bool {
        let time = self.end.time();
        let reaches = |known| self.end.has_known || time.is_some_and(|time| time <= known);
        let may_be_cut_off = self.is_capped || self.seen.len() >= FULL_LISTING;
        self.known.is_some_and(|known| !reaches(known)) || may_be_cut_off && time > self.goal.from
    }

    /// Returns the start of the range without missing posts: the end of the listing, at most `back_to`; the epoch if
    /// the listing is complete.
    fn read_to(&self, back_to: Timestamp) -> Timestamp {
        let fits_one_page = self.seen.len() < PAGE_LIMIT as usize;
        if fits_one_page && !self.is_capped && !self.has_reached() {
            return Timestamp::EPOCH.min(back_to);
        }
        self.end.time().map_or(back_to, |time| time.min(back_to))
    }
}

impl TopicReader<'_> {
    pub(super) async fn read_listing(&mut self, reddit: &Reddit) -> Result<()> {
        let known = self.watermark().await?;
        self.log_range_before_since(known);
        // New posts are read back to a time range that was read before.
        let since = match known {
            None if self.topic.is_default_listing || self.topic.listing == Listing::New => {
                self.newest_in_range().await?
            }
            known => known,
        };
        let mut walk = Walk::new(self.goal(since), since, self.options.page_cap);
        self.listing = walk.goal.listing;
        let mut after: Option<String> = None;
        while walk.wanted > 0 {
            let limit = self.page_limit(walk.wanted);
            let subreddit = (self.subreddit, self.topic.kind);
            let request = reddit.page(subreddit, self.listing, limit, after.as_deref());
            let page = request.await?;
            self.record_gap_before_reading().await?;
            self.log_rejected(&page.rejected);
            let mut listed = self.authors.prepare(page.posts);
            // A page without posts in the time range may be followed by a page with some.
            let is_last = walk.add_page(
                &mut listed,
                self.topic,
                self.options.time_range,
                self.run.now(),
            );
            after = walk.next_cursor(page.after, is_last);
            if walk.is_capped {
                tracing::warn!(
                    topic = %self.topic.slug, pages = self.options.page_cap,
                    "r/{} has more pages than `collect.page_cap`: the rest is not read", self.path
                );
            }
            // A listing goes from new to old, so a crash in the middle leaves a gap before the newest posts. The
            // watermark is therefore stored with the last page.
            let advances = after.is_none() && walk.goal.advances_watermark;
            let watermark = WatermarkUpdate {
                after: after.as_deref(),
                newest: walk.newest.filter(|_| advances),
                read_from: None,
            };
            self.save(listed, watermark).await?;
            if after.is_none() {
                return self.end_listing(&walk).await;
            }
        }
        Ok(())
    }

    /// Records a gap if the listing ended too early; otherwise fills gaps.
    async fn end_listing(&mut self, walk: &Walk) -> Result<()> {
        let Goal { from, back_to, .. } = walk.goal;
        let is_selective = self.options.time_range.is_some() || self.report.unmatched > 0;
        self.is_quiet = !walk.seen.is_empty() && is_selective;
        match (from, back_to) {
            (Some(from), _) if walk.is_short() && !walk.has_reached() => {
                let oldest = walk.end.oldest_new.unwrap_or_else(|| self.run.now());
                self.record_gap_after_short_listing(from, oldest).await
            }
            (_, Some(back_to)) => self.fill_gaps_since(walk.read_to(back_to)).await,
            _ => Ok(()),
        }
    }
}

/// The end of a listing of new posts, as far as it was read.
///
/// A single post with a wrong date, for example from 1970, must not count as the end, so the last two posts of a page
/// are used.
#[derive(Debug, Default)]
struct ListingEnd {
    /// The times of the last two posts of the last page.
    last_two: [Option<Timestamp>; 2],
    /// The time of the oldest post that was not already known.
    oldest_new: Option<Timestamp>,
    /// True once the newest stored post was listed.
    has_known: bool,
}

impl ListingEnd {
    /// Returns the later time of the last two posts.
    fn time(&self) -> Option<Timestamp> {
        self.last_two[0].max(self.last_two[1])
    }
}
