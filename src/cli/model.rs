//! `topicmill model`: lists, shows, verifies, downloads and drops models.

mod info;
mod pull;
mod verify;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::drop_labels::{self, DropFlags};
use super::labels::{model_display_name, named_model};
use super::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use topicmill_score::ModelFolder;
use topicmill_score::folder::manifest::Manifest;
use topicmill_store::{Access, DropTarget, Table};

/// The folder for downloaded models.
const MODELS_FOLDER: &str = "models";

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
    Pull(pull::Pull),
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
