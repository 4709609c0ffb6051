//! `topicmill run`

use clap::Args;

use super::collect::{Collecting, What};
use super::setup::{ModelFlags, PipelineFlags, RunFlags, Setup};
use super::{CliError, Exit, classify, collect};
use crate::store::Access;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    record: RunFlags,
}

impl Run {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let pipeline = setup.pipeline(&self.pipeline)?;
        let collecting = Collecting::prepare(setup, &pipeline, &self.what).await?;
        let set = setup.label_set(&self.model, pipeline.label_set)?;
        // A model that cannot be loaded is told before an hour of collecting.
        let labeler = setup.labeler(&self.model)?;
        let store = setup.store(Access::Create).await?;
        let (reports, collected) = collecting.run(setup, &store).await?;
        let first = collect::exit(&reports, &collected);
        if setup.stop.is_cancelled() {
            self.record.write(&[&collected])?;
            return Ok(first);
        }
        // What was collected before, and what was collected now of the topics that could be read.
        let (done, classified) = classify::label(setup, &store, labeler, &set, None).await?;
        self.record.write(&[&collected, &classified])?;
        store.close().await?;
        Ok(if first == Exit::Done {
            classify::exit(&done)
        } else {
            first
        })
    }
}
