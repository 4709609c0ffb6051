//! Fetches posts from Reddit or an archive by their ids, for data sets that are shared without text.
//!
//! Input: fullnames. Output: stored posts, and the number of posts that are gone. Each request contains a hundred ids
//! for Reddit, and five hundred for the archive. Stored posts are not requested, so an interrupted run continues where
//! it ended.

use std::collections::HashMap;

use super::import::unlogged_rejections;
use super::placement::{Place, PostCounts, add_known, by_topic, place, store_by_topic};
use super::{MAX_LOGGED_REJECTIONS, Result};
use crate::run::Run;
use topicmill_core::record::ImportCounts;
use topicmill_core::{AuthorPolicy, Fullname, Post, PurgeReason, Topic};
use topicmill_sources::Source;
use topicmill_sources::lookup::{FoundPosts, PostState, PostStates};
use topicmill_sources::page::Rejected;
use topicmill_store::Checked;

/// The plan for fetching posts by id.
pub struct RefillPlan<'a> {
    /// The fullnames of the posts.
    pub ids: &'a [Fullname],
    /// Also requests posts that are stored.
    pub refresh: bool,
    /// The pipeline's topics. For a post's topic, see [`place`].
    pub topics: &'a [Topic],
    /// Progress callback: the number of ids done since the last call.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Requests posts from a source and stores them, each response in one transaction.
///
/// If the run is stopped, received responses are stored first. The counts are added to `done`, even after an error.
///
/// # Errors
/// Errors of the store, and rejections by the source.
pub async fn refill(
    run: &Run<'_>,
    authors: &AuthorPolicy,
    source: &dyn Source,
    plan: &RefillPlan<'_>,
    done: &mut ImportCounts,
) -> Result<()> {
    let refill = Refill {
        run,
        authors,
        source,
        plan,
    };
    let fetched = refill.fetch_all(done).await;
    if let Some(more) = unlogged_rejections(&done.rejected) {
        tracing::warn!("{more}");
    }
    fetched
}

/// A run that fetches posts by id.
struct Refill<'a> {
    run: &'a Run<'a>,
    authors: &'a AuthorPolicy,
    source: &'a dyn Source,
    plan: &'a RefillPlan<'a>,
}

impl Refill<'_> {
    async fn fetch_all(&self, done: &mut ImportCounts) -> Result<()> {
        let stop = self.run.stop;
        let limit = self.source.paging().ids_limit();
        let mut wanted: Vec<Fullname> = Vec::new();
        for ids in self.plan.ids.chunks(limit) {
            if stop.is_cancelled() {
                return Ok(());
            }
            let mut ids = ids.to_vec();
            if !self.plan.refresh {
                let stored = self.run.store.posts().text_hashes(&ids).await?;
                let before = ids.len();
                ids.retain(|id| stored.iter().all(|(name, _)| name != id));
                let known = (before - ids.len()) as u64;
                done.known += known;
                (self.plan.progress)(known);
            }
            wanted.append(&mut ids);
            // Every request but the last is full, even if some of the ids are stored.
            while wanted.len() >= limit && !stop.is_cancelled() {
                let rest = wanted.split_off(limit);
                self.fetch(&wanted, done).await?;
                wanted = rest;
            }
        }
        if !wanted.is_empty() && !stop.is_cancelled() {
            self.fetch(&wanted, done).await?;
        }
        Ok(())
    }

    /// Requests posts, and stores those in the response. Does nothing if a signal arrives before the response.
    async fn fetch(&self, ids: &[Fullname], done: &mut ImportCounts) -> Result<()> {
        let Self { run, plan, .. } = self;
        let (paging, requested) = (self.source.paging(), ids.len() as u64);
        let FoundPosts { page, states } = tokio::select! {
            found = paging.posts(ids) => found?,
            () = run.stop.cancelled() => return Ok(()),
        };
        done.requests += paging.requests_for(ids);
        done.asked += requested;
        for Rejected { at, reason } in page.rejected {
            if done.rejected.total() < MAX_LOGGED_REJECTIONS {
                tracing::warn!(%at, "skipped: {reason}");
            }
            done.rejected.add(&reason);
        }
        let Some(PostStates { states, .. }) = states else {
            // The response does not show which posts are gone, so the next run requests them again.
            done.unclear += requested;
            (plan.progress)(requested);
            return Ok(());
        };
        let gone = count_gone(ids, &states, done);
        // Without `refresh`, only posts that are not stored were requested.
        if plan.refresh {
            done.stored.purged += purge_stored(run, gone).await?;
        }
        // The source also returns deleted posts, and posts that were not requested.
        let is_visible = |post: &Post| {
            let state = states.get(&post.fullname);
            matches!(state, Some(PostState::Visible | PostState::AuthorDeleted))
        };
        let mut posts = page.posts;
        posts.retain(|post| ids.contains(&post.fullname) && is_visible(post));
        self.store(posts, done).await?;
        (plan.progress)(requested);
        Ok(())
    }

    /// Stores posts with their topics. Posts that match none of the topics that list their subreddit are stored only if
    /// they are known.
    async fn store(&self, posts: Vec<Post>, done: &mut ImportCounts) -> Result<()> {
        let Self { run, authors, .. } = self;
        let (mut placed, mut unmatched) = (Vec::new(), Vec::new());
        for post in posts {
            match place(&post, None, self.plan.topics) {
                Place::In(topic) => placed.push((topic, post)),
                Place::Unmatched => unmatched.push(post),
            }
        }
        let mut groups = by_topic(placed, authors);
        done.left_out += add_known(run, &mut groups, authors.prepare(unmatched)).await?;
        let PostCounts { posts, comments } = PostCounts::of(&groups);
        done.stored += store_by_topic(run, self.source.kind(), groups, None).await?;
        done.posts += posts;
        done.comments += comments;
        Ok(())
    }
}

/// Counts the posts that are gone or missing. Returns those that are gone.
fn count_gone(
    ids: &[Fullname],
    states: &HashMap<Fullname, PostState>,
    done: &mut ImportCounts,
) -> Vec<(Fullname, PurgeReason)> {
    let mut gone = Vec::new();
    for id in ids {
        match states.get(id) {
            Some(PostState::Visible | PostState::AuthorDeleted) => {}
            Some(PostState::Gone(reason)) => {
                gone.push((id.clone(), *reason));
                match reason {
                    PurgeReason::Deleted => done.deleted += 1,
                    _ => done.removed += 1,
                }
            }
            None => done.missing += 1,
        }
    }
    gone
}

/// Purges those of the posts that are stored. Returns how many, with their crossposts.
async fn purge_stored(run: &Run<'_>, mut gone: Vec<(Fullname, PurgeReason)>) -> Result<u64> {
    let names: Vec<Fullname> = gone.iter().map(|(name, _)| name.clone()).collect();
    let stored = run.store.posts().text_hashes(&names).await?;
    gone.retain(|(name, _)| stored.iter().any(|(known, _)| known == name));
    if gone.is_empty() {
        return Ok(0);
    }
    let checked = Checked {
        gone,
        ..Checked::default()
    };
    let purged = run.store.purging().purge(run.id, &checked, run.now());
    let purged = purged.await?;
    Ok(purged.posts + purged.crossposts)
}
