//! Assigns posts to topics, and stores them by topic.

use super::stored_among;
use crate::run::Run;
use topicmill_core::{AuthorPolicy, Post, ReadyPost, SourceKind, Topic};
use topicmill_store::{ImportState, Page, Result, Upserted};

/// The place of a post in the sampling frame.
pub(super) enum Place {
    /// It is stored with this topic, or with none.
    In(Option<String>),
    /// It contains no keyword of the topics that it could belong to, and is left out.
    Unmatched,
}

/// Returns a post's place: the topic that it names, or the first one that lists its subreddit and that it matches.
pub(super) fn place(post: &Post, named: Option<String>, topics: &[Topic]) -> Place {
    let is_candidate = |topic: &&Topic| match &named {
        Some(name) => topic.slug == *name || topic.label == *name,
        None => topic.lists(post),
    };
    let mut candidates = topics.iter().filter(is_candidate).peekable();
    if candidates.peek().is_none() {
        return Place::In(named);
    }
    match candidates.find(|topic| topic.matches(post)) {
        Some(topic) => Place::In(named.or_else(|| Some(topic.slug.clone()))),
        None => Place::Unmatched,
    }
}

/// The place of a post from a file.
pub(super) struct FilePlacement {
    pub place: Place,
    /// True if the file names another topic than the one that lists the post's subreddit.
    pub topics_differ: bool,
}

/// Chooses between the topic that a file names for a post and the one that lists the post's subreddit.
pub(super) fn place_in_file(
    post: &Post,
    named: Option<String>,
    topics: &[Topic],
    topics_from_subreddits: bool,
) -> FilePlacement {
    let by_subreddit = place(post, None, topics);
    let is_listed = !matches!(by_subreddit, Place::In(None));
    let topics_differ = match (&named, &by_subreddit) {
        (Some(named), Place::In(Some(listed))) => {
            let topic = topics.iter().find(|topic| topic.label == *named);
            topic.map_or(named, |topic| &topic.slug) != listed
        }
        _ => false,
    };
    let place = if named.is_none() || topics_from_subreddits && is_listed {
        by_subreddit
    } else {
        place(post, named, topics)
    };
    FilePlacement {
        place,
        topics_differ,
    }
}

/// Posts of one topic, or of none, ready to be stored.
pub(super) struct TopicPosts {
    pub topic: Option<String>,
    pub posts: Vec<ReadyPost>,
}

/// Groups posts by topic and prepares them for the store.
pub(super) fn by_topic(
    posts: impl IntoIterator<Item = (Option<String>, Post)>,
    authors: &AuthorPolicy,
) -> Vec<TopicPosts> {
    let mut by_topic: Vec<(Option<String>, Vec<Post>)> = Vec::new();
    for (topic, post) in posts {
        // A list instead of a map, because there are few topics and their order is kept.
        match by_topic.iter_mut().find(|(known, _)| *known == topic) {
            Some((_, posts)) => posts.push(post),
            None => by_topic.push((topic, vec![post])),
        }
    }
    let ready = |(topic, posts)| TopicPosts {
        topic,
        posts: authors.prepare(posts),
    };
    by_topic.into_iter().map(ready).collect()
}

/// The number of posts and comments, and of the comments among them.
pub(super) struct PostCounts {
    pub posts: u64,
    pub comments: u64,
}

impl PostCounts {
    /// Counts the posts of all groups.
    pub(super) fn of(groups: &[TopicPosts]) -> Self {
        let posts = groups.iter().flat_map(|group| &group.posts);
        let comments = posts.clone().filter(|post| post.fullname.is_comment());
        Self {
            comments: comments.count() as u64,
            posts: posts.count() as u64,
        }
    }
}

/// Adds those of the unmatched posts that are stored: they get their updates, but keep their topic. Returns the number
/// of the others.
pub(super) async fn add_known(
    run: &Run<'_>,
    by_topic: &mut Vec<TopicPosts>,
    unmatched: Vec<ReadyPost>,
) -> Result<u64> {
    let unmatched_count = unmatched.len();
    let posts = stored_among(run, unmatched).await?;
    let left_out = unmatched_count - posts.len();
    by_topic.push(TopicPosts { topic: None, posts });
    Ok(left_out as u64)
}

/// Stores posts by topic in one transaction, with the position in their file.
pub(super) async fn store_by_topic(
    run: &Run<'_>,
    source: SourceKind,
    mut by_topic: Vec<TopicPosts>,
    state: Option<&ImportState>,
) -> Result<Upserted> {
    let now = run.now();
    let pages = by_topic.iter_mut().map(|group| Page {
        run: run.id,
        source,
        topic: group.topic.as_deref(),
        subreddit: "",
        listing: None,
        after: None,
        newest: None,
        read_from: None,
        posts: std::mem::take(&mut group.posts),
        now,
    });
    let pages: Vec<_> = pages.collect();
    run.store.posts().save_pages(&pages, state).await
}
