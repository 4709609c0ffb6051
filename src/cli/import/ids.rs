//! `import --format ids`: looks up posts by their ids.

use super::{Import, log_counts};
use crate::cli::purge::read_ids;
use crate::cli::{App, CliError, Exit, source};
use crate::collect::RefillPlan;
use crate::pipeline::Context;
use crate::telemetry::Progress;
use topicmill_core::{RunStatus, Topic};
use topicmill_store::Access;

impl Import {
    /// Looks up the posts whose ids are in the files and stores them.
    pub(super) async fn refill(self, app: &App, topics: &[Topic]) -> Result<Exit, CliError> {
        let not_for_ids = self.again
            || self.topics_from_subreddits
            || self.all_subreddits
            || !self.subreddits.is_empty()
            || !self.columns.is_empty()
            || !self.defaults.is_empty()
            || self.dry_run
            || self.kind.is_some()
            || self.from.or(self.to).is_some();
        if not_for_ids {
            let text = "--format ids cannot be combined with --kind, --subreddit, --all-subreddits, --from, --to, \
                        --map, --set, --topics-from-subreddits, --dry-run or --again: leave them out";
            return Err(CliError::Usage(text.into()));
        }
        let mut ids = Vec::new();
        for file in &self.files {
            ids.extend(read_ids(file)?.into_iter().map(|listed| listed.fullname));
        }
        let source = source::open(app, self.source.choose_and_log(app)).await?;
        let refill = async |context: &Context| {
            let bar = Progress::counter("import", "posts");
            let plan = RefillPlan {
                ids: &ids,
                refresh: self.refresh,
                topics,
                progress: &|n| bar.add(n),
            };
            let store_author = app.settings().collect.store_author;
            let refilled = context.refill(&plan, &*source, store_author).await;
            drop(bar);
            let (done, status) = refilled?;
            context.log_summary(|| log_counts(&done));
            Ok(Exit::done_if(status == RunStatus::Done))
        };
        self.record.record(app, Access::Create, refill).await
    }
}
