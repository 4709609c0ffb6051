//! Selects the posts of a subreddit that a run reads, and records gaps.
//!
//! Without a stretch of time that is asked for, reading goes on where the last one ended. With one, all of its posts
//! are wanted: before the first of them is stored the whole stretch is recorded as a gap, and it goes when its posts
//! are there. So a gap is left whatever ends the run.

use super::{MAX_LISTED, Reader, Result};
use topicmill_core::{Listing, Post, Timestamp};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::Paging;
use topicmill_store::Gap;

/// A stretch of time whose posts are all wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// Its first second.
    pub since: Timestamp,
    /// The first second behind it; `None`: it ends now.
    pub until: Option<Timestamp>,
}

impl TimeRange {
    /// True if a post is of this time.
    pub(super) fn contains(self, post: &Post) -> bool {
        self.since <= post.created_at && self.until.is_none_or(|until| post.created_at < until)
    }

    /// Returns the end of the range, at most now: posts of the future are not missing.
    fn end(self, now: Timestamp) -> Timestamp {
        self.until.map_or(now, |until| until.min(now))
    }
}

/// The posts to read from a subreddit.
pub(super) struct Goal {
    /// The order in which a listing is read.
    pub listing: Listing,
    /// It is read back to there; `None`: to the limit.
    pub back_to: Option<Timestamp>,
    /// Start of a possible gap.
    pub from: Option<Timestamp>,
    /// Posts read at most.
    pub limit: u32,
    /// True if the posts up to the newest one are then complete, so that the next run continues there.
    pub advances_watermark: bool,
}

impl Reader<'_, '_> {
    /// Returns the goal for a subreddit whose posts are known up to a time.
    pub(super) fn goal(&self, known: Option<Timestamp>) -> Goal {
        let (topic, options) = (self.read.topic, self.read.options);
        let now: Timestamp = self.read.sink.worker.clock.now().into();
        let listing = self.read.source.kind().listing(topic.listing);
        match (options.time_range, known) {
            (Some(range), known) => Goal {
                listing: Listing::New,
                back_to: Some(range.since),
                from: Some(range.since),
                limit: MAX_LISTED,
                advances_watermark: match known {
                    // A range that begins behind the known posts leaves a hole before it, which the next run is to
                    // read.
                    Some(known) => range.since <= known,
                    // Nothing is known. If the range ends now, the next run may go on from it; if it ends earlier, it
                    // may not.
                    None => range.end(now) == now,
                },
            },
            // What came since the last run is read whole, however much it is: a limit would tear a hole.
            (None, Some(known)) if topic.is_default_listing || listing == Listing::New => Goal {
                listing: Listing::New,
                back_to: Some(options.overlap_start(known)),
                from: Some(known),
                limit: MAX_LISTED,
                advances_watermark: true,
            },
            (None, known) => Goal {
                listing,
                back_to: None,
                from: None,
                limit: topic.limit,
                advances_watermark: known.is_none(),
            },
        }
    }

    /// True if a post is of the requested time.
    pub(super) fn is_wanted(&self, post: &Post) -> bool {
        self.read
            .options
            .time_range
            .is_none_or(|range| range.contains(post))
    }

    pub(super) async fn read(&mut self) -> Result<std::result::Result<(), SourceError>> {
        let read = match self.read.source.paging() {
            Paging::Listed(reddit) => self.read_listing(reddit).await?,
            Paging::Archived(archive) => self.read_archive(archive).await?,
        };
        // Another subreddit is read in place of one that is closed.
        if let Err(error) = &read
            && !error.outcome().is_subreddit_specific()
        {
            self.begin_gap().await?;
        }
        Ok(read)
    }

    /// Records what is asked for as missing: until it is there.
    pub(super) async fn begin_gap(&mut self) -> Result<()> {
        let Some(range) = self.read.options.time_range.filter(|_| !self.has_gap) else {
            return Ok(());
        };
        self.has_gap = true;
        let until = range.end(self.read.sink.worker.clock.now().into());
        self.store_gap(range.since, until).await
    }

    /// Posts were read from a time on: they are missing no longer.
    pub(super) async fn fill_gaps(&self, from: Timestamp) -> Result<()> {
        let (sink, now) = (self.read.sink, self.read.sink.worker.clock.now().into());
        let until = self
            .read
            .options
            .time_range
            .map_or(now, |range| range.end(now));
        if from >= until {
            return Ok(());
        }
        let filled = self.gap(from, until);
        sink.worker.store.posts().fill_gaps(&filled).await
    }

    /// A listing ended before it reached the time back to which it was to be read.
    pub(super) async fn record_shortfall(&self, from: Timestamp, oldest: Timestamp) -> Result<()> {
        let Some(range) = self.read.options.time_range else {
            tracing::warn!(
                topic = %self.read.topic.slug, from = %from.as_datetime(), until = %oldest.as_datetime(),
                "Reddit's listing of r/{} ends before the newest stored post: those between are missing; `--source \
                 arctic-shift` may have them, or collect more often", self.subreddit
            );
            return self.store_gap(from, oldest).await;
        };
        let until = oldest.min(range.end(self.read.sink.worker.clock.now().into()));
        tracing::warn!(
            topic = %self.read.topic.slug, from = %from.as_datetime(), until = %until.as_datetime(),
            "Reddit lists no posts of r/{} that are so old: those between are missing; `--source arctic-shift` may have them",
            self.subreddit
        );
        // What was read is there all the same; the gap that `begin_gap` recorded shrinks to what is missing.
        self.fill_gaps(oldest).await
    }

    async fn store_gap(&self, from_at: Timestamp, until_at: Timestamp) -> Result<()> {
        let sink = self.read.sink;
        if from_at >= until_at {
            return Ok(());
        }
        sink.worker
            .store
            .posts()
            .record_gap(&self.gap(from_at, until_at), sink.worker.run)
            .await
    }

    fn gap(&self, from_at: Timestamp, until_at: Timestamp) -> Gap {
        Gap {
            source: self.read.source.kind(),
            topic: self.read.topic.slug.clone(),
            subreddit: self.subreddit.to_owned(),
            from_at,
            until_at,
        }
    }

    /// Tells of posts that neither the last run nor this one reads.
    pub(super) fn log_unread_range(&self, known: Option<Timestamp>) {
        let since = self.read.options.time_range.map(|range| range.since);
        if let (Some(known), Some(since)) = (known, since)
            && since > known
        {
            tracing::info!(
                topic = %self.read.topic.slug, from = %known.as_datetime(), until = %since.as_datetime(),
                "what was posted to r/{} between the last run and --since is left for a run without --since", self.subreddit
            );
        }
    }
}
