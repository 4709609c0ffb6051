//! Converts posts to the columns of inserts, and merges them with stored posts.

use std::sync::LazyLock;

use super::at;
use crate::Page;
use crate::bulk::{Insert, Keys, Values};
use topicmill_core::{Fullname, Post, ReadyPost, SECOND_READING, SourceKind, Timestamp, to_json};

/// The update of a stored post.
///
/// A file or an archive is older than Reddit's response and does not change a post that came from Reddit. A missing
/// value does not erase a stored one, because one file may omit what another one contains. A placeholder does not erase
/// a score. Reddit itself may remove an author or restore a removed post. Text that retention deleted remains deleted,
/// and the hash of the labelled text is kept. A collected post that a file also contains keeps its source, because
/// retention applies to it.
pub(super) static ON_KNOWN_POST: LazyLock<String> = LazyLock::new(|| {
    let live = live_sources();
    let file = SourceKind::Import;
    format!(
        " ON CONFLICT (fullname) DO UPDATE SET subreddit = excluded.subreddit, \
     topic = COALESCE(excluded.topic, things.topic), \
     post = COALESCE(excluded.post, things.post), parent = COALESCE(excluded.parent, things.parent), \
     is_submitter = COALESCE(excluded.is_submitter, things.is_submitter), \
     title = CASE WHEN things.text_purged_at IS NULL THEN excluded.title ELSE things.title END, \
     selftext = CASE WHEN things.text_purged_at IS NULL THEN excluded.selftext ELSE things.selftext END, \
     crosspost_parent = CASE WHEN excluded.source IN {live} THEN excluded.crosspost_parent \
       ELSE COALESCE(excluded.crosspost_parent, things.crosspost_parent) END, \
     url = CASE WHEN things.text_purged_at IS NULL THEN COALESCE(excluded.url, things.url) END, \
     permalink = CASE WHEN things.text_purged_at IS NULL \
       THEN COALESCE(excluded.permalink, things.permalink) END, \
     author = CASE WHEN things.text_purged_at IS NOT NULL THEN NULL \
       WHEN excluded.source NOT IN {live} THEN COALESCE(excluded.author, things.author) \
       ELSE excluded.author END, \
     reddit_score = CASE WHEN excluded.reddit_score_is_placeholder AND NOT things.reddit_score_is_placeholder \
       THEN COALESCE(things.reddit_score, excluded.reddit_score) \
       ELSE COALESCE(excluded.reddit_score, things.reddit_score) END, \
     upvote_ratio = CASE WHEN excluded.reddit_score_is_placeholder AND NOT things.reddit_score_is_placeholder \
       THEN COALESCE(things.upvote_ratio, excluded.upvote_ratio) \
       ELSE COALESCE(excluded.upvote_ratio, things.upvote_ratio) END, \
     num_comments = CASE WHEN excluded.reddit_score_is_placeholder AND NOT things.reddit_score_is_placeholder \
       THEN COALESCE(things.num_comments, excluded.num_comments) \
       ELSE COALESCE(excluded.num_comments, things.num_comments) END, \
     reddit_score_is_placeholder = CASE WHEN excluded.reddit_score IS NULL THEN things.reddit_score_is_placeholder \
       ELSE excluded.reddit_score_is_placeholder \
         AND (things.reddit_score_is_placeholder OR things.reddit_score IS NULL) END, \
     flair = COALESCE(excluded.flair, things.flair), \
     over_18 = excluded.over_18, is_self = excluded.is_self, \
     source = CASE WHEN excluded.source = '{file}' THEN things.source ELSE excluded.source END, \
     text_hash = CASE WHEN things.text_purged_at IS NULL THEN excluded.text_hash \
       ELSE things.text_hash END, \
     context_purged = things.context_purged AND things.text_purged_at IS NOT NULL, \
     created_at = excluded.created_at, updated_at = excluded.updated_at, \
     removed_at = CASE WHEN excluded.removed_at IS NULL AND excluded.source IN {live} THEN NULL \
       ELSE COALESCE(things.removed_at, excluded.removed_at) END, \
     checked_at = CASE WHEN excluded.removed_at IS NOT NULL THEN NULL \
       ELSE COALESCE(excluded.checked_at, things.checked_at) END, \
     archive_checked_at = COALESCE(excluded.archive_checked_at, things.archive_checked_at) \
     WHERE excluded.source IN {live} OR things.source NOT IN {live}"
    )
});

/// Returns the sources that reflect the current state of Reddit, as an SQL list.
fn live_sources() -> String {
    let live = SourceKind::ALL.iter().filter(|kind| kind.is_live());
    let quoted: Vec<String> = live.map(|kind| format!("'{kind}'")).collect();
    format!("({})", quoted.join(", "))
}

/// A post and the page that it is on.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) page: &'a Page<'a>,
    pub(super) post: &'a ReadyPost,
}

impl<'a> Row<'a> {
    /// Returns the post that a crosspost shows.
    pub(super) fn shown(&self) -> Option<&'a str> {
        self.post.crosspost_parent.as_ref().map(Fullname::as_str)
    }

    /// Returns the fullname of the post, and of the post that it shows.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        std::iter::once(self.post.fullname.as_str()).chain(self.shown())
    }

    fn removed_at(&self) -> Option<Timestamp> {
        self.post.removal.map(|_| self.page.now)
    }

    /// Returns the time of the page if it shows that the post is on Reddit.
    fn checked_at(&self) -> Option<Timestamp> {
        let is_shown = self.post.source.is_live() && self.post.removal.is_none();
        is_shown.then_some(self.page.now)
    }

    /// Returns the time of the page if it has the archive's second reading of the post.
    fn archive_checked_at(&self) -> Option<Timestamp> {
        let age = self.page.now.as_datetime() - self.post.created_at.as_datetime();
        let is_second = age >= SECOND_READING && !self.post.score_is_placeholder;
        (is_second && self.post.source == SourceKind::ArcticShift).then_some(self.page.now)
    }
}

/// Formats names as the parameter of [`Dialect::IN_JSON_ARRAY`](crate::dialect::Dialect::IN_JSON_ARRAY).
pub(super) fn json_array<'a>(names: impl Iterator<Item = &'a str>) -> String {
    to_json(&names.collect::<Vec<_>>())
}

/// The update of a post's sighting on the same day. Storing a page twice changes nothing: a run counts once, and runs
/// are counted in order.
pub(super) const ON_SEEN_AGAIN: &str = "ON CONFLICT (fullname, topic, day) DO UPDATE SET \
     times_seen = sightings.times_seen + CASE WHEN excluded.run_id > sightings.run_id THEN 1 ELSE 0 END, \
     run_id = CASE WHEN excluded.run_id > sightings.run_id THEN excluded.run_id ELSE sightings.run_id END, \
     listing = excluded.listing, \
     best_rank = CASE WHEN excluded.best_rank < sightings.best_rank THEN excluded.best_rank \
       ELSE COALESCE(sightings.best_rank, excluded.best_rank) END, \
     reddit_score = COALESCE(excluded.reddit_score, sightings.reddit_score)";

fn name(name: Option<&Fullname>) -> Option<&str> {
    name.map(Fullname::as_str)
}

/// Returns the statement that inserts posts.
pub(super) fn posts_insert<'a>(rows: &[Row<'a>], keys: Keys) -> Insert<'a> {
    let text = |get: fn(&'a Post) -> Option<&'a str>| {
        Values::Text(rows.iter().map(|row| get(row.post)).collect())
    };
    let flag = |get: fn(&Post) -> Option<bool>| {
        Values::Flag(rows.iter().map(|row| get(row.post)).collect())
    };
    let integer = |get: fn(&Post) -> Option<i64>| {
        Values::Integer(rows.iter().map(|row| get(row.post)).collect())
    };
    let time = |get: fn(&Row<'a>) -> Option<Timestamp>| {
        Values::Time(rows.iter().map(|row| get(row).map(at)).collect())
    };
    let ratio = rows.iter().map(|row| row.post.upvote_ratio).collect();
    let hashes = rows.iter().map(|row| row.post.text_hash().as_bytes());
    let topics = rows.iter().map(|row| row.page.topic).collect();
    let columns = vec![
        ("fullname", text(|post| Some(post.fullname.as_str()))),
        ("kind", text(|post| Some(post.fullname.kind().as_str()))),
        ("post", text(|post| name(post.reply.post.as_ref()))),
        ("parent", text(|post| name(post.reply.parent.as_ref()))),
        ("is_submitter", flag(|post| post.reply.is_submitter)),
        ("subreddit", text(|post| Some(&post.subreddit))),
        ("topic", Values::Text(topics)),
        ("title", text(|post| Some(&post.title))),
        ("selftext", text(|post| Some(&post.selftext))),
        (
            "crosspost_parent",
            text(|post| name(post.crosspost_parent.as_ref())),
        ),
        ("url", text(|post| post.url.as_deref())),
        ("permalink", text(|post| post.permalink.as_deref())),
        ("author", text(|post| post.author.as_deref())),
        ("reddit_score", integer(|post| post.score)),
        ("upvote_ratio", Values::Real(ratio)),
        ("num_comments", integer(|post| post.num_comments)),
        ("flair", text(|post| post.flair.as_deref())),
        ("over_18", flag(|post| Some(post.over_18))),
        ("is_self", flag(|post| Some(post.is_self))),
        ("source", text(|post| Some(post.source.as_str()))),
        ("text_hash", Values::Bytes(hashes.collect())),
        ("created_at", time(|row| Some(row.post.created_at))),
        ("collected_at", time(|row| Some(row.page.now))),
        ("updated_at", time(|row| Some(row.page.now))),
        ("removed_at", time(Row::removed_at)),
        ("checked_at", time(Row::checked_at)),
        ("archive_checked_at", time(Row::archive_checked_at)),
        (
            "reddit_score_is_placeholder",
            flag(|post| Some(post.score_is_placeholder)),
        ),
    ];
    Insert {
        table: "things",
        rows: rows.len(),
        columns,
        keys,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_lists_the_live_sources() {
        assert_eq!(live_sources(), "('reddit', 'sample')");
        assert_eq!(ON_KNOWN_POST.matches(&live_sources()).count(), 5);
    }
}
