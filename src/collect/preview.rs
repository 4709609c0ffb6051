//! Previews an import: returns records as they would be stored.

use serde_json::{Value, json};

use super::placement::{Place, place_in_file};
use topicmill_core::{Fullname, Topic};
use topicmill_sources::file::row::Record;

/// The settings of a preview.
#[derive(Debug, Clone, Copy)]
pub struct PreviewOptions<'a> {
    /// See [`ImportPlan::topics`](super::ImportPlan::topics).
    pub topics: &'a [Topic],
    /// See [`ImportPlan::topics_from_subreddits`](super::ImportPlan::topics_from_subreddits).
    pub topics_from_subreddits: bool,
    /// True if author names are stored in the clear.
    pub store_author: bool,
}

/// Returns the columns of a record as they would be stored, or `None` if topics list its subreddit and none matches it.
/// A hash depends on the database, so a name to hash is shown as `u_…`.
pub fn preview(record: Record, options: PreviewOptions<'_>) -> Option<Value> {
    let Record { mut post, topic } = record;
    let by_subreddit = options.topics_from_subreddits;
    let Place::In(topic) = place_in_file(&post, topic, options.topics, by_subreddit).place else {
        return None;
    };
    if !options.store_author
        && let Some(name) = &mut post.author
    {
        "u_…".clone_into(name);
    }
    Some(json!({
        "fullname": post.fullname.to_string(),
        "subreddit": post.subreddit,
        "topic": topic,
        "title": post.title,
        "selftext": post.selftext,
        "url": post.url,
        "permalink": post.permalink,
        "author": post.author,
        "reddit_score": post.score,
        "upvote_ratio": post.upvote_ratio,
        "num_comments": post.num_comments,
        "flair": post.flair,
        "over_18": post.over_18,
        "is_self": post.is_self,
        "post": post.reply.post.as_ref().map(Fullname::as_str),
        "parent": post.reply.parent.as_ref().map(Fullname::as_str),
        "is_submitter": post.reply.is_submitter,
        "created_at": post.created_at.as_datetime().to_rfc3339(),
    }))
}
