//! `topicmill model verify`: checks the hash of each file of a model, and runs each graph on test vectors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::cli::app::run_blocking;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use topicmill_score::folder::Processor;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::graph_check::{self, MaxErrors};
use topicmill_score::text::Encoder;
use topicmill_score::{
    Device, EngineOptions, Labeler, LabelerError, LoadError, ModelFolder, OpenedEngine,
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

/// The columns of the table.
const COLUMNS: &str = "file, hash, graph, precision, logits off, scores off, allowed, state";

/// A row of the table: a file or a graph.
struct Row {
    cells: Value,
    is_fault: bool,
}

impl Verify {
    pub(super) async fn run(self, app: &App) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let options = EngineOptions {
            engine: app.settings().classify.engine,
            ..app.engine_options()
        };
        let rows = run_blocking(move || verify(&folder, &options)).await?;
        let is_faulty = rows.iter().any(|row| row.is_fault);
        let cells: Vec<Value> = rows.into_iter().map(|row| row.cells).collect();
        output::print_table(&output::table_from_objects(COLUMNS, &cells), self.format)?;
        Ok(if is_faulty { Exit::Model } else { Exit::Done })
    }
}

/// Checks each file of a folder, and runs each graph that this machine supports. Returns the files, then the graphs.
fn verify(folder: &Path, options: &EngineOptions) -> Result<Vec<Row>, CliError> {
    let Some(manifest) = Manifest::read(folder)? else {
        return without_manifest(folder, options);
    };
    let mut rows = Vec::new();
    let mut unusable = BTreeSet::new();
    for (file, wanted) in &manifest.files {
        let path = folder.join(file);
        let (hash, state, is_fault) = if !path.is_file() {
            unusable.insert(file.as_str());
            // A graph for another device or precision may be left out.
            let mut of_graphs = manifest.graphs.values().flat_map(Graph::files);
            ("absent", "missing", !of_graphs.any(|name| name == file))
        } else if file_hash(&path)? == *wanted {
            ("ok", "ok", false)
        } else {
            unusable.insert(file.as_str());
            ("other", "damaged or replaced: copy or make it again", true)
        };
        let cells = json!({ "file": file, "hash": hash, "state": state });
        rows.push(Row { cells, is_fault });
    }
    for (name, graph) in &manifest.graphs {
        let mut files = graph.files().chain(["config.json", "tokenizer.json"]);
        let errors = if files.any(|file| unusable.contains(file)) {
            None
        } else {
            Some(run_graph(folder, graph, options))
        };
        rows.push(graph_row(name, graph, errors));
    }
    Ok(rows)
}

/// Runs a graph on its target device, and returns its largest differences from the logits in the manifest.
fn run_graph(
    folder: &Path,
    graph: &Graph,
    options: &EngineOptions,
) -> Result<Option<MaxErrors>, CliError> {
    let (processor, device) = if graph.device == Processor::Cuda {
        (Processor::Cuda, Device::Cuda(0))
    } else {
        (Processor::Cpu, Device::Cpu)
    };
    let options = EngineOptions {
        device,
        ..options.clone()
    };
    let model = ModelFolder::open_for(folder, processor, Some(&graph.precision))?;
    Encoder::load(&model).map_err(LabelerError::from)?;
    let mut engine = OpenedEngine::load_unchecked(&model, &options)?.engine;
    let Some(spec) = &model.spec else {
        return Ok(None);
    };
    let errors = graph_check::check_alone_and_batched(&mut *engine, &model, spec);
    Ok(Some(errors.map_err(LabelerError::from)?))
}

/// Describes the result of [`run_graph`]; `None` if the graph was not run, because a file is missing or wrong.
fn graph_row(name: &str, graph: &Graph, run: Option<Result<Option<MaxErrors>, CliError>>) -> Row {
    let errors = match &run {
        Some(Ok(errors)) => *errors,
        _ => None,
    };
    let (state, is_fault) = match run {
        None => ("not run: a file is missing or wrong".to_owned(), false),
        Some(Ok(_)) if errors.is_some_and(|errors| errors.logits > graph.tolerance) => {
            let state = "wrong: its logits differ from those of the original model";
            (state.to_owned(), true)
        }
        Some(Ok(_)) => ("ok".to_owned(), false),
        Some(Err(CliError::Load(LoadError::Cuda { detail, .. }))) => {
            (format!("not run: {detail}"), false)
        }
        // The engine does not support GPUs.
        Some(Err(CliError::Load(error @ LoadError::CpuOnly(_)))) => {
            (format!("not run: {error}"), false)
        }
        Some(Err(error)) => (error.to_string(), true),
    };
    // With three decimals, small numbers would show as zero.
    let small = |x: f64| format!("{x:.1e}");
    let cells = json!({
        "file": graph.file, "graph": name, "precision": graph.precision,
        "logits off": errors.map(|errors| small(errors.logits)),
        "scores off": errors.map(|errors| small(errors.scores)),
        "allowed": small(graph.tolerance), "state": state,
    });
    Row { cells, is_fault }
}

/// Checks a folder without a manifest: only that the graph can be loaded.
fn without_manifest(folder: &Path, options: &EngineOptions) -> Result<Vec<Row>, CliError> {
    let (model, opened) = OpenedEngine::open(folder, None, options)?;
    let file = model.graph.strip_prefix(folder).unwrap_or(&model.graph);
    let cells = json!({
        "file": file.display().to_string(), "hash": "not known", "precision": model.precision,
        "state": "the graph loads; its logits cannot be checked without manifest.toml",
    });
    Labeler::load(model, opened.engine, 1)?.check_learned()?;
    let is_fault = false;
    Ok(vec![Row { cells, is_fault }])
}
