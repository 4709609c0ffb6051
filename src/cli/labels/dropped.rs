//! `topicmill labels drop`

use clap::Args;

use super::super::dropping::{self, DropFlags};
use super::super::{CliError, Exit, Setup};
use super::{Named, short};
use crate::review::unused;
use crate::store::{Access, Dropped};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels drop trial
  topicmill labels drop 3fa9c1d20b7e --yes")]
pub struct Drop {
    /// Drop this label set: its name, or the first letters of its version, as `labels list` shows them
    #[arg(value_name = "SET")]
    set: String,
    #[command(flatten)]
    flags: DropFlags,
}

impl Drop {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::Existing).await?;
        let named = Named::stored(setup, &store, &self.set).await?;
        let version = short(&named.set.hash()).to_owned();
        let name = format!("the label set `{}` (version {version})", named.set.name);
        let Some(id) = named.stored else {
            return Err(CliError::Usage(format!(
                "drop {name}: it was never used here; `topicmill labels list` shows what is stored"
            )));
        };
        let hypotheses = unused::only_of(&store, id).await?;
        let what = Dropped::LabelSet(id);
        let ended = dropping::run(setup, &store, what, &name, &hypotheses, &self.flags).await;
        store.close().await?;
        ended
    }
}
