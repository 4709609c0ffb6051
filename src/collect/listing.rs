//! A listing of Reddit into the store, page by page: to its end, to the limit of the topic, or, of new posts, to those
//! that are known.

use std::collections::HashSet;

use super::goal::Goal;
use super::{Reader, Result, take};
use topicmill_core::{Fullname, ReadyPost, Timestamp};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::{Listed, PAGE_LIMIT};

/// A first listing that ends after fewer posts has shown all there are; a later one, if it also met a stored post.
const FULL_LISTING: usize = 900;

/// A listing, from its first page to its last.
struct Walk {
    goal: Goal,
    /// The newest post known before.
    known: Option<Timestamp>,
    /// Posts that are still wanted; pinned ones come on top of the limit.
    wanted: u32,
    /// Place on the listing of the next post.
    rank: u32,
    seen: HashSet<Fullname>,
    cursors: HashSet<String>,
    newest: Option<Timestamp>,
    end: ListingEnd,
    pages_left: u32,
    /// True once the listing went on behind the last page that may be read.
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

    /// Ranks the posts of a page, and keeps those that are new and wanted.
    fn rank_and_filter(&mut self, posts: &mut Vec<ReadyPost>) {
        posts.retain_mut(|post| {
            // Every post of the page counts, so that the rank is the position on the listing.
            post.rank = Some(self.rank);
            self.rank += 1;
            // A listing that advances_watermark while it is read shows posts twice.
            self.seen.insert(post.fullname.clone()) && (post.stickied || take(&mut self.wanted))
        });
    }

    /// Notes how far a page reads back. Only the last page with posts says where the listing ended.
    fn note_times(&mut self, listed: &[ReadyPost]) {
        let mut times = unpinned(listed).map(|post| post.created_at).peekable();
        if times.peek().is_some() {
            self.end.last_two = [None; 2];
        }
        for time in times {
            self.end.note_time(time, self.goal.from, self.known);
        }
    }

    /// True if it was read as far back as requested.
    fn has_reached(&self) -> bool {
        let (time, back_to) = (self.end.time(), self.goal.back_to);
        time.is_some_and(|time| back_to.is_some_and(|back_to| time < back_to))
    }

    /// The cursor of the page to read next. `after` may come back unchanged, lead round in a circle, or lead on and on
    /// to nothing new.
    fn next(&mut self, after: Option<String>, is_last: bool) -> Option<String> {
        let goes_on = !is_last && !self.has_reached() && self.wanted > 0;
        let next = after.filter(|cursor| self.cursors.insert(cursor.clone()) && goes_on);
        self.pages_left -= 1;
        self.is_capped = self.pages_left == 0 && next.is_some();
        next.filter(|_| !self.is_capped)
    }
}

/// The posts of a page that are not pinned.
fn unpinned(listed: &[ReadyPost]) -> impl Iterator<Item = &ReadyPost> {
    listed.iter().filter(|post| !post.stickied)
}

impl Reader<'_, '_> {
    pub(super) async fn read_listing(
        &mut self,
        reddit: &dyn Listed,
    ) -> Result<std::result::Result<(), SourceError>> {
        let known = self.known().await?;
        self.log_unread_range(known);
        let mut walk = Walk::new(self.goal(known), known, self.read.options.page_cap);
        self.listing = walk.goal.listing;
        let mut after: Option<String> = None;
        while walk.wanted > 0 {
            let limit = walk.wanted.min(PAGE_LIMIT);
            let asked = reddit.page(self.subreddit, self.listing, limit, after.as_deref());
            let page = match asked.await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            self.begin_gap().await?;
            self.log_rejected(&page.rejected);
            let mut listed = self.read.sink.authors.prepare(page.posts);
            walk.rank_and_filter(&mut listed);
            walk.note_times(&listed);
            // Before the posts are chosen by time: a page without any post of that time may be followed by one that
            // has some.
            after = walk.next(page.after, listed.is_empty());
            if walk.is_capped {
                tracing::warn!(
                    topic = %self.read.topic.slug, pages = self.read.options.page_cap,
                    "r/{} goes on behind `collect.page_cap`: what follows is not read", self.subreddit
                );
            }
            listed.retain(|post| self.is_wanted(post));
            walk.newest = walk.newest.max(self.newest(unpinned(&listed)));
            // Only with the last page: a listing goes from new to old, so a run that dies in the middle leaves a hole
            // below it.
            let newest = walk
                .newest
                .filter(|_| after.is_none() && walk.goal.advances_watermark);
            self.save(listed, after.as_deref(), newest).await?;
            if after.is_none() {
                return Ok(Ok(self.end_listing(&walk).await?));
            }
        }
        Ok(Ok(()))
    }

    /// Records what is missing behind the end of a listing, or no longer missing before it.
    async fn end_listing(&mut self, walk: &Walk) -> Result<()> {
        let Goal { from, back_to, .. } = walk.goal;
        self.is_quiet = !walk.seen.is_empty() && self.read.options.time_range.is_some();
        let full = walk.is_capped || walk.seen.len() >= FULL_LISTING;
        let short = walk.end.is_short(walk.known, from, full);
        let reached = walk.has_reached();
        match (from, back_to) {
            (Some(from), _) if short && !reached => {
                let now = self.read.sink.worker.clock.now().into();
                let oldest = walk.end.oldest_new.unwrap_or(now);
                self.record_shortfall(from, oldest).await
            }
            (_, Some(back_to)) => {
                let few = walk.seen.len() < PAGE_LIMIT as usize;
                let is_whole = !reached && !walk.is_capped && few;
                self.fill_gaps(walk.end.read_to(back_to, is_whole)).await
            }
            _ => Ok(()),
        }
    }
}

/// The time back to which a listing of new posts was read.
///
/// One post with a wrong date, of 1970 say, must not look like its end, so the last two posts of a page have a say.
#[derive(Debug, Default)]
struct ListingEnd {
    /// The last two dates of the page read last.
    last_two: [Option<Timestamp>; 2],
    /// The oldest post that was not known before.
    oldest_new: Option<Timestamp>,
    /// True once the newest stored post was listed.
    has_known: bool,
}

impl ListingEnd {
    fn note_time(&mut self, time: Timestamp, from: Option<Timestamp>, known: Option<Timestamp>) {
        self.last_two = [self.last_two[1], Some(time)];
        self.has_known |= known == Some(time);
        if from.is_none_or(|from| time > from) {
            self.oldest_new = Some(self.oldest_new.map_or(time, |oldest| oldest.min(time)));
        }
    }

    fn time(&self) -> Option<Timestamp> {
        self.last_two[0].max(self.last_two[1])
    }

    /// Returns true if posts may be missing between the end of the listing and the newest stored post, which is of time
    /// `known`: whatever ended the listing, it did not meet that post. A `full` listing must reach back to `from`, too.
    fn is_short(&self, known: Option<Timestamp>, from: Option<Timestamp>, full: bool) -> bool {
        let time = self.time();
        let reaches = |known| self.has_known || time.is_some_and(|time| time <= known);
        known.is_some_and(|known| !reaches(known)) || full && time > from
    }

    /// Returns how far back the listing was read: further than it must, or as far as there is anything.
    fn read_to(&self, back_to: Timestamp, is_whole: bool) -> Timestamp {
        let all = is_whole.then_some(Timestamp::EPOCH);
        all.or(self.time())
            .map_or(back_to, |time| time.min(back_to))
    }
}
