//! `topicmill labels gold`: imports, lists, exports and removes gold labels.

mod import;
mod list;

use clap::{Args, Subcommand};

use crate::cli::drop_labels::confirm;
use crate::cli::output::counted;
use crate::cli::{App, CliError, Exit};
use topicmill_core::Fullname;
use topicmill_store::{Access, ForgottenGold, StoredGold};

pub(in crate::cli) use self::import::login;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill labels gold import answers.csv --annotator ada
  topicmill labels gold list")]
pub enum GoldCommand {
    /// Import gold labels from a table or from Label Studio
    Import(import::Import),
    /// Count gold labels by label and annotator, and show disagreements
    #[command(alias = "stats")]
    List(list::List),
    /// Print all gold labels, in the format that `labels gold import` reads
    Export(list::Export),
    /// Delete the gold labels of an annotator
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels gold remove --annotator ada
  topicmill labels gold remove --annotator ada --post t3_1a2b3c --yes")]
pub struct Remove {
    /// Delete an annotator's gold labels
    #[arg(long, value_name = "NAME")]
    annotator: String,
    /// Delete only the gold label of the post ID
    #[arg(long, value_name = "ID")]
    post: Option<Fullname>,
    /// Don't ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl GoldCommand {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        match self {
            Self::Import(command) => command.run(app).await,
            Self::List(command) => command.run(app).await,
            Self::Export(command) => command.run(app).await,
            Self::Remove(command) => command.run(app).await,
        }
    }
}

impl Remove {
    async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::Existing).await?;
        let (gold, post) = (store.gold(), self.post.as_ref());
        let mut answers = gold.answers().await?;
        answers.retain(|StoredGold { answer, .. }| {
            answer.annotator == self.annotator && post.is_none_or(|post| *post == answer.fullname)
        });
        let count = counted(answers.len() as u64, "gold label");
        let what = format!("delete {count} of annotator `{}`", self.annotator);
        if !answers.is_empty() && !confirm(self.yes, &what)? {
            tracing::info!("nothing was deleted");
            return Ok(Exit::Done);
        }
        let removed = gold.delete_answers_of(&self.annotator, post).await?;
        store.close().await?;
        if removed == ForgottenGold::default() {
            return Err(CliError::Usage(format!(
                "cannot remove gold labels: annotator `{}` has none that match; `topicmill labels gold list` counts \
                 gold labels by annotator",
                self.annotator
            )));
        }
        tracing::info!(answers = removed.answers, "removed gold labels");
        for fit in removed.fits {
            tracing::warn!("the label set {}", fit.what_it_keeps());
        }
        Ok(Exit::Done)
    }
}
