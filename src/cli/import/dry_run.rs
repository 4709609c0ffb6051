//! `import --dry-run`: prints the first posts of each file.

use serde_json::Value;

use super::Import;
use crate::cli::output::{self, OutputFormat};
use crate::cli::{App, CliError, Exit};
use crate::collect::{PreviewOptions, preview};
use topicmill_core::Topic;
use topicmill_sources::file::{FileOptions, dump};
use topicmill_sources::page::Rejected;
use topicmill_store::Access;

/// Number of posts of each file that --dry-run prints.
const PREVIEWED: usize = 3;

impl Import {
    /// Prints the first posts of each file as they would be stored, without purged ones.
    pub(super) async fn preview(
        &self,
        app: &App,
        reading: &FileOptions,
        topics: &[Topic],
    ) -> Result<Exit, CliError> {
        let store = match app.store(Access::ReadOnly).await {
            Ok(store) => Some(store),
            Err(error) => {
                if !app.is_database_missing() {
                    tracing::warn!("posts that were purged are shown as well: {error}");
                }
                None
            }
        };
        let options = PreviewOptions {
            topics,
            topics_from_subreddits: self.topics_from_subreddits,
            store_author: app.settings().collect.store_author,
        };
        let (mut previews, mut rejected, mut purged) = (Vec::new(), 0, 0);
        for path in &self.files {
            let block = dump::blocks(path, reading)?.next_block();
            rejected += block.rejected.len();
            for Rejected { at, reason } in block.rejected.iter().take(PREVIEWED) {
                tracing::error!(file = %path.display(), %at, "skipped: {reason}");
            }
            let end = previews.len() + PREVIEWED;
            for record in block.records {
                if previews.len() == end {
                    break;
                }
                let mut names = vec![record.post.fullname.clone()];
                names.extend(record.post.crosspost_parent.clone());
                let Some(post) = preview(record, options) else {
                    continue;
                };
                match &store {
                    Some(store) if store.purging().count_tombstones(&names).await? > 0 => {
                        purged += 1;
                    }
                    _ => previews.push(post),
                }
            }
        }
        if purged > 0 {
            tracing::info!(tombstoned = purged, "purged posts would not be stored");
        }
        output::print_json(&Value::Array(previews), OutputFormat::Json)?;
        Ok(Exit::done_if(rejected == 0))
    }
}
