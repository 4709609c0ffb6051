//! `topicmill classify`

use clap::Args;

use super::setup::{ModelFlags, PipelineFlags, RunFlags, Setup};
use super::{CliError, Exit};
use crate::classify::backlog::{Labelled, Step};
use crate::classify::labeler::Labeler;
use crate::domain::LabelSet;
use crate::pipeline::Context;
use crate::store::Access;
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
        self.record.check()?;
        let context = setup.context(setup.store(Access::Existing).await?);
        let labelled = label(setup, &context, labeler, &set, self.limit).await;
        self.record.write(&context)?;
        context.store.close().await?;
        labelled
    }
}

/// Labels the backlog of a store, with a bar, and tells what to exit with.
pub async fn label(
    setup: &Setup,
    context: &Context,
    labeler: Labeler,
    set: &LabelSet,
    limit: Option<u64>,
) -> Result<Exit, CliError> {
    let options = setup.backlog(limit);
    let bar = Progress::start("classify", "posts", 0);
    let heard = |step: Step| match step {
        Step::Expect(n) => bar.expect(limit.map_or(n, |limit| limit.min(n))),
        Step::Done(n) => bar.add(n),
    };
    let labelled = context.classify(labeler, set, &options, &heard).await;
    drop(bar);
    let (done, _) = labelled?;
    let Labelled {
        posts,
        pairs,
        failed,
        held_elsewhere,
        set_aside,
        ..
    } = done;
    let some = |n: u64| Some(n).filter(|n| *n > 0);
    let (refused, held) = (some(done.refused), some(held_elsewhere));
    tracing::info!(
        posts, pairs, failed, refused, held_elsewhere = held,
        posts_per_sec = %format_args!("{:.1}", done.posts_per_sec), "classifying done"
    );
    if set_aside > 0 {
        tracing::warn!(
            posts = set_aside,
            "set aside after failing too often; table backlog has the errors"
        );
    }
    Ok(match done {
        _ if failed > 0 || set_aside > 0 => Exit::Partial,
        // Someone else at work on all that is left is no failure, but not the end either.
        _ if posts == 0 && held_elsewhere > 0 => Exit::TryAgain,
        _ => Exit::Done,
    })
}
