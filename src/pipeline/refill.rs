//! Posts by their ids, as a run of `import`.

use serde_json::json;

use super::{Context, done_if, quota};
use crate::collect::{self, CollectError, RefillPlan, Refilled};
use crate::domain::{RunStatus, Stage};
use crate::source::page::Source;
use crate::source::reddit::Reddit;

impl Context {
    /// Fills posts again that somebody named by their ids alone.
    ///
    /// # Errors
    /// Those of the store, and what Reddit refuses.
    pub async fn refill(
        &self,
        plan: &RefillPlan<'_>,
        reddit: &Reddit,
        store_author: bool,
    ) -> Result<(Refilled, RunStatus), CollectError> {
        quota::share(reddit, &self.store, &self.clock);
        self.metrics.follow(reddit.kind(), reddit.http().meter());
        let work = async |run, done: &mut Refilled| {
            let sink = self.sink(run, store_author).await?;
            collect::refill(&sink, reddit, plan, &self.stop, done).await
        };
        self.recorded(Stage::Import, work, |done: &Refilled| {
            let whole = done.unclear == 0 && done.rejected.total() == 0;
            let mut counts = json!(done);
            // As the counts of every other import.
            counts["rejected"] = json!(done.rejected.total());
            counts["rejected_for"] = json!(done.rejected);
            counts[reddit.kind().about().section] = reddit.counts();
            (done_if(whole), counts, json!([]))
        })
        .await
    }
}
