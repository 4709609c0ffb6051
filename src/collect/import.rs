//! Imports files into the store, block by block. In: blocks of records, and the topics of a pipeline. Out: stored posts
//! and comments, with the position in the file, from which a later import continues.

use serde_json::{Value, json};

use super::{MAX_LOGGED_REJECTIONS, stored_among};
use crate::run::Run;
use topicmill_core::record::ImportCounts;
use topicmill_core::{AuthorPolicy, Fullname, Post, ReadyPost, Rejections, SourceKind, Topic};
use topicmill_sources::file::dump::{Block, Blocks, End};
use topicmill_sources::file::row::{Position, Record};
use topicmill_sources::page::Rejected;
use topicmill_store::{ImportState, Page, Result, Upserted};

/// Number of blocks that are read ahead while one is stored.
const BLOCKS_AHEAD: usize = 2;

/// The plan for importing one file.
pub struct ImportPlan<'a> {
    /// The file's name in log lines.
    pub name: &'a str,
    /// The pipeline's topics. A record belongs to the topic that it names, otherwise to the first one that lists its
    /// subreddit and that it matches, if any. See [`place`].
    pub topics: &'a [Topic],
    /// True if the topic that lists a record's subreddit, if any, takes precedence over the one that the record names.
    pub topics_from_subreddits: bool,
    /// Progress of an earlier import of the file, which this import updates; `None` if the file is not resumable.
    pub state: Option<ImportState>,
    /// Rows of the file that the filters have left out so far, including in earlier runs.
    pub left_out: u64,
    /// Progress callback: bytes of the file read since the last call.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Stores the records of a file. Each block is stored in one transaction together with the position in the file.
///
/// If the run is stopped, the current block is stored first. The counts are added to `done`, even after an error.
/// Returns how the file ended; `None` if the import was stopped.
///
/// # Errors
/// Errors of the store. Unreadable records are counted, and the first ones are logged.
pub async fn import(
    run: &Run<'_>,
    authors: &AuthorPolicy,
    mut blocks: Blocks,
    mut plan: ImportPlan<'_>,
    done: &mut ImportCounts,
) -> Result<Option<End>> {
    if let Some(state) = &plan.state {
        blocks.resume(Position {
            bytes: state.byte_offset,
            rows: state.rows,
            left_out: state.left_out,
        });
    }
    // Decompressing, parsing and hashing run on another thread, concurrently with storing.
    let (sender, mut receiver) = tokio::sync::mpsc::channel(BLOCKS_AHEAD);
    let preparer = Preparer {
        topics: plan.topics.to_vec(),
        topics_from_subreddits: plan.topics_from_subreddits,
        authors: authors.clone(),
    };
    let reader = tokio::task::spawn_blocking(move || {
        loop {
            let block = blocks.next_block();
            let ended = block.end.is_some();
            // The channel is closed if the import was stopped.
            if sender.blocking_send(preparer.ready_block(block)).is_err() || ended {
                break;
            }
        }
    });
    let mut stored = Ok(());
    let (mut read, mut nulls, mut end) = (0, 0, None);
    while stored.is_ok() {
        let next = tokio::select! {
            biased;
            () = run.stop.cancelled() => break,
            next = receiver.recv() => next,
        };
        let Some(ready) = next else {
            break;
        };
        (plan.progress)(ready.block.read - read);
        (read, nulls, end) = (ready.block.read, ready.block.nulls, ready.block.end);
        stored = store_block(run, ready, &mut plan, done).await;
    }
    // The reader may be blocked on a full channel. Without a receiver, its send fails, and the reader ends.
    drop(receiver);
    // A stopped import does not wait for a reader that is blocked on input.
    let read_all = tokio::select! {
        ended = reader => ended,
        () = run.stop.cancelled() => Ok(()),
    };
    if let Err(error) = read_all {
        // A panic of the reader is a bug, so it is propagated.
        std::panic::resume_unwind(error.into_panic());
    }
    if nulls > 0 {
        tracing::warn!(file = %plan.name, "{nulls} values were `NaN`, `None` or the like and were stored as NULL");
    }
    // The first rejections are logged separately; a wrong table may have one in every row.
    if let Some(more) = unlogged_rejections(&done.rejected) {
        tracing::error!(file = %plan.name, "{more}");
    }
    stored.map(|()| end)
}

/// Returns a message about the rejected records that were not logged separately.
pub(super) fn unlogged_rejections(rejected: &Rejections) -> Option<String> {
    let more = rejected.total().saturating_sub(MAX_LOGGED_REJECTIONS);
    (more > 0).then(|| {
        format!(
            "skipped {more} more records, which are not logged: the run record that --run-json FILE writes has the \
             number for each reason"
        )
    })
}

/// Assigns topics to records and prepares them for the store, on the reader's thread.
struct Preparer {
    topics: Vec<Topic>,
    topics_from_subreddits: bool,
    authors: AuthorPolicy,
}

/// Posts of one topic, or of none, ready to be stored.
pub(super) struct TopicPosts {
    pub topic: Option<String>,
    pub posts: Vec<ReadyPost>,
}

/// The number of posts and comments, and of the comments among them.
pub(super) struct PostCounts {
    pub posts: u64,
    pub comments: u64,
}

impl PostCounts {
    pub(super) fn of(groups: &[TopicPosts]) -> Self {
        let posts = groups.iter().flat_map(|group| &group.posts);
        let comments = posts.clone().filter(|post| post.fullname.is_comment());
        Self {
            comments: comments.count() as u64,
            posts: posts.count() as u64,
        }
    }
}

/// A block that is ready to be stored.
struct ReadyBlock {
    by_topic: Vec<TopicPosts>,
    /// Posts that match none of the topics that list their subreddit.
    unmatched: Vec<ReadyPost>,
    topics_differ: u64,
    /// The rest of the block.
    block: Block,
}

impl Preparer {
    fn ready_block(&self, mut block: Block) -> ReadyBlock {
        let (mut placed, mut unmatched, mut topics_differ) = (Vec::new(), Vec::new(), 0);
        for Record { post, topic } in std::mem::take(&mut block.records) {
            let placement = place_in_file(&post, topic, &self.topics, self.topics_from_subreddits);
            topics_differ += u64::from(placement.topics_differ);
            match placement.place {
                Place::In(topic) => placed.push((topic, post)),
                Place::Unmatched => unmatched.push(post),
            }
        }
        ReadyBlock {
            by_topic: by_topic(placed, &self.authors),
            unmatched: self.authors.prepare(unmatched),
            topics_differ,
            block,
        }
    }
}

async fn store_block(
    run: &Run<'_>,
    ready: ReadyBlock,
    plan: &mut ImportPlan<'_>,
    done: &mut ImportCounts,
) -> Result<()> {
    let ReadyBlock {
        mut by_topic,
        unmatched,
        topics_differ,
        block,
    } = ready;
    let left_out = add_known(run, &mut by_topic, unmatched).await?;
    let PostCounts { posts, comments } = PostCounts::of(&by_topic);
    if let Some(state) = &mut plan.state {
        let moved = block.position.bytes > state.byte_offset || posts > 0;
        // There is nothing to store while the part that an earlier run has imported is being skipped.
        if !moved && block.rejected.is_empty() && block.end.is_none() {
            return Ok(());
        }
        advance_state(state, run, &block, posts);
    }
    done.left_out += left_out + block.position.left_out - plan.left_out;
    plan.left_out = block.position.left_out;
    for Rejected { at, reason } in block.rejected {
        if done.rejected.total() < MAX_LOGGED_REJECTIONS {
            tracing::error!(file = %plan.name, %at, "skipped: {reason}");
        }
        done.rejected.add(&reason);
    }
    done.topics_differ += topics_differ;
    done.stored += store_by_topic(run, SourceKind::Import, by_topic, plan.state.as_ref()).await?;
    done.posts += posts;
    done.comments += comments;
    Ok(())
}

/// Moves the import position behind a block, of which `posts` posts are stored.
fn advance_state(state: &mut ImportState, run: &Run<'_>, block: &Block, posts: u64) {
    let now = run.now();
    state.byte_offset = block.position.bytes;
    state.rows = block.position.rows;
    state.left_out = block.position.left_out;
    state.posts += posts;
    state.rejected += block.rejected.len() as u64;
    state.run = run.id;
    state.updated_at = now;
    // A truncated file remains unfinished, so that a later import continues it.
    state.finished_at = (block.end == Some(End::Complete)).then_some(now);
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

/// The place of a post from a file.
struct FilePlacement {
    place: Place,
    /// True if the file names another topic than the one that lists the post's subreddit.
    topics_differ: bool,
}

/// Chooses between the topic that a file names for a post and the one that lists the post's subreddit.
fn place_in_file(
    post: &Post,
    named: Option<String>,
    topics: &[Topic],
    topics_from_subreddits: bool,
) -> FilePlacement {
    let by_subreddit = place(post, None, topics);
    let is_listed = !matches!(by_subreddit, Place::In(None));
    let topics_differ = matches!((&named, &by_subreddit), (Some(named), Place::In(Some(listed))) if named != listed);
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

/// The settings of a preview.
#[derive(Debug, Clone, Copy)]
pub struct PreviewOptions<'a> {
    /// See [`ImportPlan::topics`].
    pub topics: &'a [Topic],
    /// See [`ImportPlan::topics_from_subreddits`].
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
