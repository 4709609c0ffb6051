//! `topicmill classify`

use clap::Args;

use super::setup::{ModelFlags, PipelineFlags, RunFlags, Setup};
use super::{CliError, Exit};
use crate::classify::backlog::{Labelled, Step};
use crate::classify::labeler::Labeler;
use crate::domain::LabelSet;
use crate::pipeline::RunRecord;
use crate::store::{Access, Store};
use crate::telemetry::Progress;

/// Flags of `classify`.
#[derive(Debug, Args)]
pub struct Classify {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
    /// Stop after this many posts
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    record: RunFlags,
}

impl Classify {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let pipeline = setup.pipeline(&self.pipeline)?;
        let set = setup.label_set(&self.model, pipeline.label_set)?;
        let labeler = setup.labeler(&self.model)?;
        let store = setup.store(Access::Existing).await?;
        let (done, record) = label(setup, &store, labeler, &set, self.limit).await?;
        self.record.write(&[&record])?;
        store.close().await?;
        Ok(exit(&done))
    }
}

/// Labels the backlog of a store, with a bar.
pub async fn label(
    setup: &Setup,
    store: &Store,
    labeler: Labeler,
    set: &LabelSet,
    limit: Option<u64>,
) -> Result<(Labelled, RunRecord), CliError> {
    let options = setup.backlog(limit);
    let bar = Progress::start("classify", "posts", 0);
    let context = setup.context(store.clone());
    let heard = |step: Step| match step {
        Step::Expect(n) => bar.expect(limit.map_or(n, |limit| limit.min(n))),
        Step::Done(n) => bar.add(n),
    };
    let (done, record) = context.classify(labeler, set, &options, &heard).await?;
    drop(bar);
    tracing::info!(
        posts = done.posts,
        pairs = done.pairs,
        failed = done.failed,
        posts_per_sec = %format_args!("{:.1}", done.posts_per_sec),
        "classifying done"
    );
    if done.held_elsewhere > 0 {
        tracing::info!(
            posts = done.held_elsewhere,
            "posts are held by other workers"
        );
    }
    Ok((done, record))
}

/// Someone else at work on all that is left is no failure, but not the end either.
pub fn exit(done: &Labelled) -> Exit {
    if done.failed > 0 {
        Exit::Partial
    } else if done.posts == 0 && done.held_elsewhere > 0 {
        Exit::TryAgain
    } else {
        Exit::Done
    }
}
