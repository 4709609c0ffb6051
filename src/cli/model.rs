//! `topicmill model`: lists, shows, verifies, downloads and drops models.

mod info;
mod verify;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::drop_labels::{self, DropFlags};
use super::labels::{model_display_name, named_model};
use super::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use crate::hub::{Hub, PullError};
use topicmill_score::ModelFolder;
use topicmill_score::folder::manifest::Manifest;
use topicmill_store::{Access, DropTarget, Table};

/// The folder for downloaded models.
const MODELS_FOLDER: &str = "models";
/// The Hugging Face hub.
const ENDPOINT: &str = "https://huggingface.co";

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill model pull Xenova/bart-large-mnli
  topicmill model list")]
pub enum Model {
    /// List the models in the `models` folder and next to the configured model
    #[command(after_help = "Examples:
  topicmill model list
  topicmill model list --format json")]
    List {
        /// Set the output format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Show a model's kind, labels and graph
    Info(info::Info),
    /// Check the file hashes of a model and the logits of each graph against its manifest
    Verify(verify::Verify),
    /// Download a model from the Hugging Face hub, or from the mirror in `HF_ENDPOINT`
    Pull(Pull),
    /// Delete a model's labels, scores, logits and vectors from the database; its folder is kept
    #[command(after_help = "Examples:
  topicmill model drop bart-large-mnli
  topicmill model drop 3fa9c1d20b7e --yes")]
    Drop {
        /// Drop the model MODEL: its name or hash prefix, as shown by `labels list`
        #[arg(value_name = "MODEL")]
        model: String,
        #[command(flatten)]
        flags: DropFlags,
    },
}

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

impl Model {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        match self {
            Self::List { format } => {
                output::print_table(&model_table(app), format)?;
                Ok(Exit::Done)
            }
            Self::Info(info) => info.run(),
            Self::Verify(verify) => verify.run(app).await,
            Self::Pull(pull) => pull.run(app).await,
            Self::Drop { model, flags } => {
                let store = app.store(Access::Existing).await?;
                let models = store.labels().models().await?;
                let (id, row) = named_model(&models, &model)?;
                let name = format!("the model {}", model_display_name(row));
                let what = DropTarget::Model(*id);
                let ended = drop_labels::run(app, &store, what, &name, &[], &flags).await;
                store.close().await?;
                ended
            }
        }
    }
}

/// Lists the model folders, one row each.
fn model_table(app: &App) -> Table {
    let used = find_model(&app.settings().classify.model);
    let mut places = vec![PathBuf::from(MODELS_FOLDER)];
    places.extend(used.parent().map(Path::to_owned));
    let mut folders: Vec<PathBuf> = places
        .iter()
        .filter_map(|place| place.read_dir().ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    folders.sort();
    folders.dedup();
    let used = used.canonicalize().ok();
    let rows = folders.iter().map(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_used = Some(folder) == used.as_ref();
        let (kind, graph, tokens, state) = match ModelFolder::open(folder, None) {
            Ok(model) => {
                let graph = model.spec.map_or(model.precision, |spec| spec.name);
                let state = if is_used { "in use" } else { "" };
                (Some(model.kind.as_str()), Some(graph), Some(model.max_tokens), state.to_owned())
            }
            Err(error) => (None, None, None, error.to_string()),
        };
        let graphs = match Manifest::read(folder) {
            Ok(Some(manifest)) => {
                let mut graphs = manifest.graphs;
                graphs.retain(|_, graph| folder.join(&graph.file).is_file());
                graphs.into_keys().collect::<Vec<_>>().join(", ")
            }
            _ => String::new(),
        };
        json!({
            "model": name, "kind": kind, "graph": graph, "of": graphs, "max tokens": tokens, "state": state,
            "folder": folder.display().to_string(),
        })
    });
    let columns = "model, kind, graph, of, max tokens, state, folder";
    output::table_from_objects(columns, &rows.collect::<Vec<_>>())
}

impl Pull {
    async fn run(self, app: &App) -> Result<Exit, CliError> {
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

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

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
