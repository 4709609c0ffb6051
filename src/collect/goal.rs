//! Selects the posts of a subreddit that a run reads, and records gaps.
//!
//! Without a requested time range, a run continues where the last one ended. With one, the whole range is recorded as a
//! gap before its first post is stored, and the gap is filled when its posts are stored. So an interrupted run leaves a
//! gap.

use super::{MAX_LISTED, Result, TopicReader};
use crate::run::Run;
use topicmill_core::{Listing, Timestamp, Topic};
use topicmill_sources::source::Source;
use topicmill_store::Gap;

/// A time range whose posts are all read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// Its first second.
    pub since: Timestamp,
    /// The first second after it; `None`: it ends now.
    pub until: Option<Timestamp>,
}

impl TimeRange {
    /// Returns true if a time is in this range.
    pub(super) fn contains(self, time: Timestamp) -> bool {
        self.since <= time && self.until.is_none_or(|until| time < until)
    }

    /// Returns the end of the range, but not later than now, because posts from the future are not missing.
    fn end(self, now: Timestamp) -> Timestamp {
        self.until.map_or(now, |until| until.min(now))
    }
}

/// The posts to read from a subreddit.
pub(super) struct Goal {
    /// The order in which a listing is read.
    pub listing: Listing,
    /// The oldest time to read back to; `None`: up to the limit.
    pub back_to: Option<Timestamp>,
    /// Start of the gap that is recorded if a listing ends too early.
    pub from: Option<Timestamp>,
    /// Maximum number of posts.
    pub limit: u32,
    /// True if reaching the goal leaves no gap before the newest post, so that the next run continues from it.
    pub advances_watermark: bool,
}

impl TopicReader<'_> {
    /// Returns the goal for a subreddit whose posts are known up to a time.
    pub(super) fn goal(&self, known: Option<Timestamp>) -> Goal {
        let (topic, options) = (self.topic, self.options);
        if let Some(range) = options.time_range {
            let now = self.run.now();
            return Goal {
                listing: Listing::New,
                back_to: Some(range.since),
                from: Some(range.since),
                limit: MAX_LISTED,
                advances_watermark: match known {
                    // A range that begins after the known posts leaves a gap, which the next run reads.
                    Some(known) => range.since <= known,
                    // Without known posts, the next run may continue from this range only if it ends now.
                    None => range.end(now) == now,
                },
            };
        }
        let listing = self.source.kind().listing(topic.listing);
        match known {
            // All posts since the last run are read, because the topic's limit would leave a gap.
            Some(known) if topic.is_default_listing || listing == Listing::New => Goal {
                listing: Listing::New,
                back_to: Some(options.overlap_start(known)),
                from: Some(known),
                limit: MAX_LISTED,
                advances_watermark: true,
            },
            _ => Goal {
                listing,
                back_to: None,
                from: None,
                limit: topic.limit,
                advances_watermark: known.is_none(),
            },
        }
    }

    /// Returns the end of the requested time range, or the current time.
    fn read_until(&self) -> Timestamp {
        let now = self.run.now();
        self.options.time_range.map_or(now, |range| range.end(now))
    }

    /// Records the requested time range as a gap until its posts are stored.
    pub(super) async fn record_gap_before_reading(&mut self) -> Result<()> {
        if let Some(range) = self.options.time_range
            && !self.has_gap
            && !self.topic.of_posts
        {
            self.has_gap = true;
            self.record_gap(range.since, self.read_until()).await?;
        }
        Ok(())
    }

    /// Removes gaps after a time, because the posts since that time are stored.
    pub(super) async fn fill_gaps_since(&self, from: Timestamp) -> Result<()> {
        if let Some(filled) = gap(self.source, self.topic, &self.path, from, self.read_until()) {
            self.run.store.posts().fill_gaps(&filled).await?;
        }
        Ok(())
    }

    /// Records that a listing ended before it reached `from`: the posts between `from` and `oldest` are missing.
    pub(super) async fn record_gap_after_short_listing(
        &self,
        from: Timestamp,
        oldest: Timestamp,
    ) -> Result<()> {
        if self.options.time_range.is_none() {
            tracing::warn!(
                topic = %self.topic.slug, from = %from.as_datetime(), until = %oldest.as_datetime(),
                "Reddit's listing of r/{} ends before it reaches the newest stored post, so posts are missing in \
                 between: `--source arctic-shift` may have them; collect more often to prevent this",
                self.path
            );
            return self.record_gap(from, oldest).await;
        }
        let until = oldest.min(self.read_until());
        tracing::warn!(
            topic = %self.topic.slug, from = %from.as_datetime(), until = %until.as_datetime(),
            "Reddit no longer lists the posts of r/{} between these times, so they are missing: `--source \
             arctic-shift` may have them",
            self.path
        );
        // The posts after `oldest` are stored, so the gap recorded before reading shrinks to the missing ones.
        self.fill_gaps_since(oldest).await
    }

    /// Records that this run, the first without a time range, reads back to `oldest` and not to an earlier range.
    pub(super) async fn record_gap_before_first_run(&self, oldest: Timestamp) -> Result<()> {
        let Some(before) = self.newest_in_range().await?.filter(|time| *time < oldest) else {
            return Ok(());
        };
        tracing::warn!(
            topic = %self.topic.slug, from = %before.as_datetime(), until = %oldest.as_datetime(),
            "posts to r/{} between the earlier time range and this run are not read: to read them, pass these times \
             to --since and --until",
            self.path
        );
        self.record_gap(before, oldest).await
    }

    /// Returns the time of the newest post that a run with a time range has read.
    pub(super) async fn newest_in_range(&self) -> Result<Option<Timestamp>> {
        let (posts, kind) = (self.run.store.posts(), self.source.kind());
        let newest = posts.newest_in_range(kind, &self.topic.slug, &self.path);
        Ok(newest.await?)
    }

    async fn record_gap(&self, from: Timestamp, until: Timestamp) -> Result<()> {
        let gap = gap(self.source, self.topic, &self.path, from, until);
        record(&self.run, gap).await
    }

    /// Logs a range of posts that neither the last run nor this one reads.
    pub(super) fn log_range_before_since(&self, known: Option<Timestamp>) {
        if let (Some(known), Some(TimeRange { since, .. })) = (known, self.options.time_range)
            && since > known
        {
            tracing::info!(
                topic = %self.topic.slug, from = %known.as_datetime(), until = %since.as_datetime(),
                "posts to r/{} between the last run and --since are not read: to read them, leave out --since",
                self.path
            );
        }
    }
}

/// Records a time range as a gap of a topic's first subreddit, because a failed run did not get to the topic.
pub(super) async fn record_gap_of_unread_topic(
    run: &Run<'_>,
    source: &dyn Source,
    topic: &Topic,
    range: TimeRange,
) -> Result<()> {
    let Some(subreddit) = topic.subreddits.first().filter(|_| !topic.of_posts) else {
        return Ok(());
    };
    let (path, until) = (topic.path(subreddit), range.end(run.now()));
    record(run, gap(source, topic, &path, range.since, until)).await
}

async fn record(run: &Run<'_>, gap: Option<Gap>) -> Result<()> {
    if let Some(gap) = gap {
        run.store.posts().record_gap(&gap, run.id).await?;
    }
    Ok(())
}

/// Returns the gap between two times; `None` if the range is empty.
fn gap(
    source: &dyn Source,
    topic: &Topic,
    path: &str,
    from_at: Timestamp,
    until_at: Timestamp,
) -> Option<Gap> {
    (from_at < until_at).then(|| Gap {
        source: source.kind(),
        topic: topic.slug.clone(),
        subreddit: path.to_owned(),
        from_at,
        until_at,
    })
}
