//! Imports files into the store, block by block. In: blocks of records, and the topics of a pipeline. Out: stored posts
//! and comments, with the position in the file, from which a later import continues.

use super::MAX_LOGGED_REJECTIONS;
use super::placement::{
    Place, PostCounts, TopicPosts, add_known, by_topic, place_in_file, store_by_topic,
};
use crate::run::Run;
use topicmill_core::record::ImportCounts;
use topicmill_core::{AuthorPolicy, ReadyPost, Rejections, SourceKind, Topic};
use topicmill_sources::file::dump::{Block, Blocks, End};
use topicmill_sources::file::row::{Position, Record};
use topicmill_sources::page::Rejected;
use topicmill_store::{ImportState, Result};

/// Number of blocks that are read ahead while one is stored.
const BLOCKS_AHEAD: usize = 2;

/// The plan for importing one file.
pub struct ImportPlan<'a> {
    /// The file's name in log lines.
    pub name: &'a str,
    /// The pipeline's topics. A record belongs to the topic that it names, otherwise to the first one that lists its
    /// subreddit and that it matches, if any. See [`place_in_file`].
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
