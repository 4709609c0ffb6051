//! `topicmill labels gold`: what people said about labels, read from files, shown, written out and taken back.

mod import;
mod list;

use clap::{Args, Subcommand};

use super::super::{CliError, Exit, Setup};
use topicmill_core::FullnameError;
use topicmill_store::Access;

pub(in crate::cli) use self::import::login;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill labels gold import answers.csv --reviewer ada
  topicmill labels gold list")]
pub enum GoldCommand {
    /// Store what people said in a table or in Label Studio
    Import(import::Import),
    /// Show how many answers there are of each label and person, and where people disagree
    #[command(alias = "stats")]
    List(list::List),
    /// Write out all answers, as `labels gold import` reads them
    Export(list::Export),
    /// Take back what a person said
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels gold remove --reviewer ada
  topicmill labels gold remove --reviewer ada --post t3_1a2b3c")]
pub struct Remove {
    /// Take back the answers of this person
    #[arg(long, value_name = "NAME")]
    reviewer: String,
    /// Take back only the answer about this post
    #[arg(long, value_name = "ID")]
    post: Option<String>,
}

impl GoldCommand {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        match self {
            Self::Import(command) => command.run(setup).await,
            Self::List(command) => command.run(setup).await,
            Self::Export(command) => command.run(setup).await,
            Self::Remove(command) => command.run(setup).await,
        }
    }
}

impl Remove {
    async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::Existing).await?;
        let removed = match &self.post {
            None => store.gold().forget_reviewer(&self.reviewer).await?,
            Some(post) => {
                let post = post.parse().map_err(|error: FullnameError| {
                    CliError::Usage(format!("take an answer back: {error}"))
                })?;
                u64::from(store.gold().forget_gold(&post, &self.reviewer).await?)
            }
        };
        store.close().await?;
        if removed == 0 {
            return Err(CliError::Usage(format!(
                "take answers back: `{}` said nothing of the kind; `topicmill labels gold list` shows who said how much",
                self.reviewer
            )));
        }
        tracing::info!(answers = removed, "taken back");
        Ok(Exit::Done)
    }
}
