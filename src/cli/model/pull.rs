//! `topicmill model pull`: downloads a model from the Hugging Face hub.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::MODELS_FOLDER;
use crate::cli::{App, CliError, Exit, output};
use crate::hub::{Hub, PullError};

/// The Hugging Face hub.
const ENDPOINT: &str = "https://huggingface.co";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model pull Xenova/bart-large-mnli
  topicmill model pull Xenova/bart-large-mnli --precision int8 --to models/b8")]
pub struct Pull {
    /// Download the repository REPO, in the form `owner/name`
    #[arg(value_name = "REPO")]
    repo: String,
    /// Download a branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "main")]
    revision: String,
    /// Choose the graph: fp32, fp16, int8, or all [default: fp32]
    ///
    /// Other precisions can be given by the name that the hub uses.
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Create the folder DIR [default: models/NAME]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Pull {
    /// Downloads the model and prints its folder.
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let name = self.repo.rsplit('/').next().unwrap_or_default();
        let default = || Path::new(MODELS_FOLDER).join(name);
        let to = self.to.unwrap_or_else(default);
        let precision = self.precision.filter(|precision| precision != "auto");
        let endpoint = text_variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let hub = Hub::new(&endpoint, token(), app.clock.clone())?;
        hub.pull(&self.repo, &self.revision, precision.as_deref(), &to)
            .await?;
        drop(hub);
        let folder = to.display();
        tracing::info!("downloaded {} to {folder}", self.repo);
        output::print(&format!("{folder}\n"))?;
        Ok(Exit::Done)
    }
}

/// Returns an environment variable, unless it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns an environment variable that is UTF-8, unless it is empty.
fn text_variable(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Reads the hub's token from the environment variables and files that the hub's own tools use.
fn token() -> Option<String> {
    let folder = |name| variable(name).map(PathBuf::from);
    let stored = || {
        let cache = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let home = folder("HF_HOME").or_else(|| Some(cache()?.join("huggingface")))?;
        std::fs::read_to_string(home.join("token")).ok()
    };
    let token = text_variable("HF_TOKEN").or_else(stored)?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

impl From<PullError> for CliError {
    fn from(error: PullError) -> Self {
        match error {
            PullError::Model(error) => Self::Model(error),
            PullError::Message(kind, text) => Self::Message(kind.into(), text),
        }
    }
}
