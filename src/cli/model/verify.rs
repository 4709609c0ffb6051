//! `topicmill model verify`: checks the hash of each file of a model, and runs each graph on test vectors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::super::app::run_blocking;
use super::super::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use topicmill_score::folder::Processor;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::graph_check::{self, MaxErrors};
use topicmill_score::text::Encoder;
use topicmill_score::{
    Device, EngineOptions, Labeler, LabelerError, ModelFolder, OnnxError, OpenedEngine,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model verify models/bart-large-mnli
  topicmill model verify models/spec --format json")]
pub struct Verify {
    /// Check the model in DIR
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The columns of the table: files, then graphs.
const COLUMNS: [&str; 8] = [
    "file",
    "hash",
    "graph",
    "precision",
    "logits off",
    "scores off",
    "allowed",
    "state",
];

/// A row of the table, and whether it shows a fault.
type Row = (Value, bool);

impl Verify {
    pub(super) async fn run(self, app: &App) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let options = EngineOptions {
            engine: app.settings().classify.engine,
            ..app.engine_options()
        };
        let rows = run_blocking(move || verify(&folder, &options)).await?;
        let (rows, wrong): (Vec<Value>, Vec<bool>) = rows.into_iter().unzip();
        output::print_table(&output::table_with_columns(&COLUMNS, &rows), self.format)?;
        Ok(if wrong.contains(&true) {
            Exit::Model
        } else {
            Exit::Done
        })
    }
}

/// Checks each file of a folder, and runs each graph that this machine supports.
fn verify(folder: &Path, options: &EngineOptions) -> Result<Vec<Row>, CliError> {
    let Some(manifest) = Manifest::read(folder)? else {
        return without_manifest(folder, options);
    };
    let mut rows = Vec::new();
    let mut faulty = BTreeSet::new();
    for (file, wanted) in &manifest.files {
        let path = folder.join(file);
        let (hash, state, wrong) = if !path.is_file() {
            // A graph for another device or precision may be left out.
            let mut of_graphs = manifest.graphs.values().flat_map(Graph::files);
            ("absent", "missing", !of_graphs.any(|name| name == file))
        } else if file_hash(&path)? == *wanted {
            ("ok", "ok", false)
        } else {
            ("other", "damaged or replaced: copy or make it again", true)
        };
        if hash != "ok" {
            faulty.insert(file.as_str());
        }
        let row = json!({"file": file, "hash": hash, "state": state});
        rows.push((row, wrong));
    }
    for (name, graph) in &manifest.graphs {
        let mut files = graph.files().chain(["config.json", "tokenizer.json"]);
        let (errors, state, wrong) = if files.any(|file| faulty.contains(file)) {
            (
                None,
                "not run: a file is missing or wrong".to_owned(),
                false,
            )
        } else {
            run_graph(folder, graph, options)
        };
        // With three decimals, small numbers would show as zero.
        let small = |x: f64| format!("{x:.1e}");
        let row = json!({
            "file": graph.file, "graph": name, "precision": graph.precision,
            "logits off": errors.map(|errors| small(errors.logits)),
            "scores off": errors.map(|errors| small(errors.scores)),
            "allowed": small(graph.tolerance), "state": state,
        });
        rows.push((row, wrong));
    }
    Ok(rows)
}

/// Runs a graph on its target device, and compares the logits with the manifest. Returns the errors, the state, and
/// whether the graph is wrong.
fn run_graph(
    folder: &Path,
    graph: &Graph,
    options: &EngineOptions,
) -> (Option<MaxErrors>, String, bool) {
    let (processor, device) = if graph.device == Processor::Cuda.as_str() {
        (Processor::Cuda, Device::Cuda(0))
    } else {
        (Processor::Cpu, Device::Cpu)
    };
    let options = EngineOptions {
        device,
        ..options.clone()
    };
    let tried = || -> Result<Option<MaxErrors>, CliError> {
        let model = ModelFolder::open_for(folder, processor, Some(&graph.precision))?;
        Encoder::load(&model).map_err(LabelerError::from)?;
        let mut engine = OpenedEngine::load_unchecked(&model, &options)?.engine;
        let Some(spec) = &model.spec else {
            return Ok(None);
        };
        let errors = graph_check::check_alone_and_batched(&mut *engine, &model, spec);
        Ok(Some(errors.map_err(LabelerError::from)?))
    };
    match tried() {
        Ok(errors) if errors.is_some_and(|errors| errors.logits > graph.tolerance) => {
            let state = "wrong: its logits differ from those of the original model";
            (errors, state.to_owned(), true)
        }
        Ok(errors) => (errors, "ok".to_owned(), false),
        Err(CliError::Onnx(OnnxError::Cuda { detail, .. })) => {
            (None, format!("not run: {detail}"), false)
        }
        // The engine does not support GPUs.
        Err(CliError::Onnx(error @ OnnxError::CpuOnly(_))) => {
            (None, format!("not run: {error}"), false)
        }
        Err(error) => (None, error.to_string(), true),
    }
}

/// Checks a folder without a manifest: only that the graph can be loaded.
fn without_manifest(folder: &Path, options: &EngineOptions) -> Result<Vec<Row>, CliError> {
    let (model, opened) = OpenedEngine::open(folder, None, options)?;
    let file = model.graph.strip_prefix(folder).unwrap_or(&model.graph);
    let row = json!({
        "file": file.display().to_string(), "hash": "not known", "precision": model.precision,
        "state": "the graph loads; its logits cannot be checked without manifest.toml",
    });
    Labeler::load(model, opened.engine, 1)?.check_learned()?;
    Ok(vec![(row, false)])
}
