//! `topicmill model drop`

use clap::Args;

use super::super::dropping::{self, DropFlags};
use super::super::labels::{named_model, told_apart};
use super::super::{CliError, Exit, Setup};
use crate::store::{Access, Dropped};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model drop bart-large-mnli
  topicmill model drop 3fa9c1d20b7e --yes")]
pub struct DropModel {
    /// Drop this model: its name, or the first letters of its hash, as `labels list` shows them
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    flags: DropFlags,
}

impl DropModel {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::Existing).await?;
        let models = store.models().await?;
        let row = named_model(&models, &self.model)?;
        let name = format!("the model {}", told_apart(&row.1));
        let what = Dropped::Model(row.0);
        let ended = dropping::run(setup, &store, what, &name, &[], &self.flags).await;
        store.close().await?;
        ended
    }
}
