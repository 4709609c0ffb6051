//! Fetches posts by their ids from Reddit: fills in ids that were shared without texts.
//!
//! The input is fullnames. The output is stored posts, and the number of posts that are gone. Reddit is asked about a
//! hundred at a time. Stored posts are not requested, so a stopped or killed run continues where it was.

use super::import::{store_by_topic, topic_of, unlogged_rejections};
use super::{CollectError, MAX_LOGGED_REJECTIONS, Sink};
use topicmill_core::record::ImportCounts;
use topicmill_core::{Fullname, Post, PurgeReason, Topic};
use topicmill_sources::page::{Rejected, Source};
use topicmill_sources::reddit::{FoundPosts, INFO_LIMIT, PostFate, Reddit};

/// Whose posts are filled again.
pub struct RefillPlan<'a> {
    /// The posts.
    pub ids: &'a [Fullname],
    /// Ask for those that are stored, too.
    pub refresh: bool,
    /// A post belongs to the topic that reads its subreddit, else to none.
    pub topics: &'a [Topic],
    /// Hears how many more ids are done.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Asks Reddit for posts and stores them, each answer in one transaction.
///
/// When the worker is stopped, what was answered is stored. What is done is added to `done`, also where an error ends
/// it.
///
/// # Errors
/// Errors of the store, and refusals of Reddit.
pub async fn refill(
    sink: &Sink<'_>,
    reddit: &Reddit,
    plan: &RefillPlan<'_>,
    done: &mut ImportCounts,
) -> Result<(), CollectError> {
    let asked = fetch_all(sink, reddit, plan, done).await;
    if let Some(more) = unlogged_rejections(&done.rejected) {
        tracing::warn!("{more}");
    }
    asked
}

async fn fetch_all(
    sink: &Sink<'_>,
    reddit: &Reddit,
    plan: &RefillPlan<'_>,
    done: &mut ImportCounts,
) -> Result<(), CollectError> {
    let mut wanted: Vec<Fullname> = Vec::new();
    for ids in plan.ids.chunks(INFO_LIMIT as usize) {
        if sink.worker.stop.is_cancelled() {
            return Ok(());
        }
        let mut ids = ids.to_vec();
        if !plan.refresh {
            let stored = sink.worker.store.posts().text_hashes(&ids).await?;
            let before = ids.len();
            ids.retain(|id| stored.iter().all(|(name, _)| name != id));
            let known = (before - ids.len()) as u64;
            done.known += known;
            (plan.progress)(known);
        }
        wanted.append(&mut ids);
        // Every request is full, however many of the ids are stored.
        while wanted.len() >= INFO_LIMIT as usize {
            let rest = wanted.split_off(INFO_LIMIT as usize);
            if !fetch(sink, reddit, plan, &wanted, done).await? {
                return Ok(());
            }
            wanted = rest;
        }
    }
    if !wanted.is_empty() && !sink.worker.stop.is_cancelled() {
        fetch(sink, reddit, plan, &wanted, done).await?;
    }
    Ok(())
}

/// One request, and what it answered into the store; false where a signal came first.
async fn fetch(
    sink: &Sink<'_>,
    reddit: &Reddit,
    plan: &RefillPlan<'_>,
    ids: &[Fullname],
    done: &mut ImportCounts,
) -> Result<bool, CollectError> {
    let asked = ids.len() as u64;
    let found = tokio::select! {
        found = reddit.posts(ids) => found?,
        () = sink.worker.stop.cancelled() => return Ok(false),
    };
    done.requests += 1;
    done.asked += asked;
    let FoundPosts { page, fates } = found;
    for Rejected { at, reason } in page.rejected {
        if done.rejected.total() < MAX_LOGGED_REJECTIONS {
            tracing::warn!(%at, "passed over: {reason}");
        }
        done.rejected.add(&reason);
    }
    let Some(fates) = fates else {
        // Nothing follows from what such an answer lacks; the next run asks again.
        done.unclear += asked;
        (plan.progress)(asked);
        return Ok(true);
    };
    for id in ids {
        match fates.fates.get(id) {
            Some(PostFate::Alive | PostFate::Authorless) => {}
            Some(PostFate::Gone(PurgeReason::Deleted)) => done.deleted += 1,
            Some(PostFate::Gone(_)) => done.removed += 1,
            None => done.missing += 1,
        }
    }
    let is_there = |post: &Post| {
        let fate = fates.fates.get(&post.fullname);
        // Only what was asked for, and is there: Reddit also shows posts that are gone, without their texts.
        matches!(fate, Some(PostFate::Alive | PostFate::Authorless)) && ids.contains(&post.fullname)
    };
    let posts = page.posts.into_iter().filter(is_there);
    let posts: Vec<_> = posts
        .map(|post| (topic_of(&post, plan.topics), post))
        .collect();
    done.posts += posts.len() as u64;
    let stored = store_by_topic(sink, reddit.kind(), posts).await?;
    done.new += stored.new;
    done.changed += stored.changed;
    done.edited += stored.edited;
    done.tombstoned += stored.tombstoned;
    (plan.progress)(asked);
    Ok(true)
}
