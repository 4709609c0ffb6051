//! The import stage: imports files one by one, and resumes a dump where an earlier run stopped.

use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use super::recording::StageResult;
use super::{Context, OnProgress};
use crate::collect::{self, ImportPlan};
use crate::purge;
use crate::run::{Run, StageError};
use crate::telemetry::nonzero;
use topicmill_core::record::{ImportCounts, RunCounts};
use topicmill_core::{AuthorPolicy, RunStatus, Stage, Topic, hex};
use topicmill_sources::file::{FileOptions, dump};
use topicmill_store::{ImportState, RunId};

/// An import to run.
#[derive(Debug, Clone, Copy)]
pub struct ImportOrder<'a> {
    /// The files.
    pub files: &'a [PathBuf],
    /// The format of the files, and filters.
    pub reading: &'a FileOptions,
    /// Topics that records are mapped to.
    pub topics: &'a [Topic],
    /// True if the topic that lists a record's subreddit, if any, takes precedence over the one that the record names.
    pub topics_from_subreddits: bool,
    /// True if author names are stored in the clear.
    pub store_author: bool,
    /// True if files that were imported before are imported again from the start.
    pub again: bool,
}

impl Context {
    /// Imports the records of files.
    ///
    /// An interrupted dump is resumed. A dump that was imported completely is skipped unless `order.again` is set.
    ///
    /// # Errors
    /// Errors of the store, or of a file that cannot be opened. Unreadable records are counted.
    pub async fn import(
        &self,
        order: &ImportOrder<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(ImportCounts, RunStatus), StageError> {
        let work = async |run, total: &mut ImportCounts| {
            let ended = self.import_files(run, order, progress, total).await;
            if total.stored.purged > 0 {
                purge::rewrite_after_reports(&self.run(run)).await;
            }
            ended
        };
        self.recorded(Stage::Import, work, |done: &mut ImportCounts| {
            let is_complete = done.rejected.total() == 0;
            let counts = RunCounts::Import(Box::new(done.clone()));
            StageResult::new(is_complete, counts)
        })
        .await
    }

    async fn import_files(
        &self,
        id: RunId,
        order: &ImportOrder<'_>,
        progress: OnProgress<'_>,
        total: &mut ImportCounts,
    ) -> Result<(), StageError> {
        let run = self.run(id);
        let authors = self.author_policy(order.store_author).await?;
        collect::record_keywords(&run, order.topics).await?;
        for path in order.files {
            if self.stop.is_cancelled() {
                break;
            }
            let mut done = ImportCounts::default();
            let ended = import_file(&run, path, order, &authors, progress, &mut done).await;
            // The part before an error is counted.
            total.add(&done);
            ended?;
        }
        Ok(())
    }
}

/// Imports a file, unless it was imported completely. The counts are added to `done`, even after an error.
async fn import_file(
    run: &Run<'_>,
    path: &Path,
    order: &ImportOrder<'_>,
    authors: &AuthorPolicy,
    progress: OnProgress<'_>,
    done: &mut ImportCounts,
) -> Result<(), StageError> {
    let name = path.display().to_string();
    let blocks = dump::blocks(path, order.reading)?;
    let state = import_state(run, path, order).await?;
    if let Some(state) = &state {
        if let Some(date) = state.finished_at {
            tracing::info!(
                file = %name, posts = state.posts, "already imported on {}; --again imports it again",
                date.as_datetime().format("%Y-%m-%d")
            );
            return Ok(());
        }
        if state.byte_offset > 0 {
            tracing::info!(
                file = %name, rows = state.rows, posts = state.posts,
                "resuming where an earlier run stopped; a compressed file is decompressed up to there again"
            );
        }
    }
    let plan = ImportPlan {
        name: &name,
        topics: order.topics,
        topics_from_subreddits: order.topics_from_subreddits,
        left_out: state.as_ref().map_or(0, |state| state.left_out),
        state,
        progress,
    };
    let ended = collect::import(run, authors, blocks, plan, done).await;
    let outcome = match ended {
        Ok(Some(_)) => "imported",
        Ok(None) | Err(_) => "stopped before the end of the file",
    };
    tracing::info!(
        file = %name, posts = done.posts - done.comments,
        comments = nonzero(done.comments), new = done.stored.new, changed = done.stored.changed,
        edited = nonzero(done.stored.edited), purged = nonzero(done.stored.purged),
        tombstoned = nonzero(done.stored.tombstoned),
        left_out = done.left_out, rejected = done.rejected.total(), "{outcome}"
    );
    if !order.topics_from_subreddits && done.topics_differ > 0 {
        tracing::warn!(
            file = %name, posts = done.topics_differ,
            "these posts keep the topic that the file names, though the pipeline reads their subreddit for \
             a different topic: --topics-from-subreddits uses the pipeline's topic"
        );
    }
    ended?;
    Ok(())
}

/// Returns the progress of an earlier import of the file or, if there is none, the progress of a new import. `None` if
/// imports of the file are never resumed.
async fn import_state(
    run: &Run<'_>,
    path: &Path,
    order: &ImportOrder<'_>,
) -> Result<Option<ImportState>, StageError> {
    if !order.reading.is_resumed(path) {
        return Ok(None);
    }
    // Everything that changes which rows are stored, or how, makes an import a different one.
    let topics = order.topics.iter().map(|topic| {
        let keywords = topic.keywords.entries();
        json!([topic.slug, topic.label, topic.subreddits, keywords])
    });
    let mut selection = vec![
        json!(order.reading.filter.describe()),
        topics.collect(),
        json!(order.store_author),
    ];
    let defaults = &order.reading.defaults;
    if !defaults.is_empty() {
        let pairs = defaults.iter().map(|one| json!([one.field, one.value]));
        selection.push(pairs.collect());
    }
    let selection = json!(selection).to_string();
    let state = ImportState {
        file: dump::fingerprint(path)?,
        selection: hex(&Sha256::digest(selection)[..16]),
        name: path.display().to_string(),
        byte_offset: 0,
        rows: 0,
        left_out: 0,
        posts: 0,
        rejected: 0,
        run: run.id,
        updated_at: run.now(),
        finished_at: None,
    };
    if order.again {
        return Ok(Some(state));
    }
    let posts = run.store.posts();
    let earlier = posts.import_state(&state.file, &state.selection).await?;
    Ok(Some(earlier.unwrap_or(state)))
}
