//! `topicmill model verify`: checks the hash of each file of a model, and runs each graph on test vectors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::super::setup::{parse_word, run_blocking};
use super::super::{CliError, Exit, OutputFormat, Setup, output};
use crate::engines::find_model;
use topicmill_score::folder::Processor;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::graph_check::{self, MaxErrors};
use topicmill_score::text::Encoder;
use topicmill_score::{
    AnyEngine, Device, EngineOptions, Labeler, LabelerError, ModelFolder, OnnxError,
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

/// The result for one file of the folder.
#[derive(Default, Clone)]
struct Checked {
    file: String,
    hash: &'static str,
    graph: String,
    precision: String,
    errors: Option<MaxErrors>,
    tolerance: Option<f64>,
    state: String,
    wrong: bool,
}

impl Checked {
    fn row(&self) -> Value {
        // With three decimals, small numbers would show as zero.
        let small = |x: Option<f64>| x.map(|x| format!("{x:.1e}"));
        json!({
            "file": self.file, "hash": self.hash, "graph": self.graph, "precision": self.precision,
            "logits off": small(self.errors.map(|errors| errors.logits)),
            "scores off": small(self.errors.map(|errors| errors.scores)),
            "allowed": small(self.tolerance), "state": self.state,
        })
    }

    fn fail(&mut self, state: impl Into<String>) {
        self.state = state.into();
        self.wrong = true;
    }
}

impl Verify {
    pub(super) async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let options = EngineOptions {
            engine: parse_word("classify.engine", &setup.settings().classify.engine)?,
            ..setup.engine_options()
        };
        let checked = run_blocking(move || verify(&folder, &options)).await?;
        let table =
            output::table_from_objects(&checked.iter().map(Checked::row).collect::<Vec<_>>());
        output::print_table(&table, self.format)?;
        let is_wrong = checked.iter().any(|row| row.wrong);
        Ok(if is_wrong { Exit::Model } else { Exit::Done })
    }
}

/// Checks each file of a folder, and runs each graph that this machine supports.
fn verify(folder: &Path, options: &EngineOptions) -> Result<Vec<Checked>, CliError> {
    let Some(manifest) = Manifest::read(folder)? else {
        return without_manifest(folder, options);
    };
    let mut checked: Vec<Checked> = Vec::new();
    for (file, wanted) in &manifest.files {
        let path = folder.join(file);
        let mut row = Checked {
            file: file.clone(),
            hash: "ok",
            state: "ok".into(),
            ..Checked::default()
        };
        let mut of_graphs = manifest.graphs.values().flat_map(Graph::files);
        let of_a_graph = of_graphs.any(|name| name == file);
        if !path.is_file() {
            row.hash = "absent";
            row.state = "missing".into();
            row.wrong = !of_a_graph;
        } else if file_hash(&path)? != *wanted {
            row.hash = "other";
            row.fail("damaged or replaced: copy or make it again");
        }
        checked.push(row);
    }
    let good: BTreeSet<String> = checked
        .iter()
        .filter(|row| row.hash == "ok")
        .map(|row| row.file.clone())
        .collect();
    for (name, graph) in &manifest.graphs {
        let mut files = graph.files().chain(["config.json", "tokenizer.json"]);
        let whole = files.all(|file| good.contains(file));
        let of_file = |row: &&mut Checked| row.file == graph.file;
        let Some(row) = checked.iter_mut().find(of_file) else {
            continue;
        };
        let row = if row.graph.is_empty() {
            row
        } else {
            // Several graphs, such as one for each device, may use the same file.
            let again = Checked {
                errors: None,
                ..row.clone()
            };
            checked.push(again);
            checked.last_mut().expect("it was just added")
        };
        row.graph.clone_from(name);
        row.precision.clone_from(&graph.precision);
        row.tolerance = Some(graph.tolerance);
        if whole {
            run_graph(folder, graph, options, row);
        } else if row.hash == "ok" {
            row.state = "not run: another file of this graph is missing or wrong".into();
        }
    }
    Ok(checked)
}

/// Runs a graph on its target device, and compares the logits with the manifest.
fn run_graph(folder: &Path, graph: &Graph, options: &EngineOptions, row: &mut Checked) {
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
        let mut engine = AnyEngine::load_unchecked(&model, &options)?;
        let Some(spec) = &model.spec else {
            return Ok(None);
        };
        let errors = graph_check::check_alone_and_batched(&mut engine, spec, &model.kind);
        Ok(Some(errors.map_err(LabelerError::from)?))
    };
    match tried() {
        Ok(errors) => {
            row.errors = errors;
            if errors.is_some_and(|errors| errors.logits > graph.tolerance) {
                row.fail("wrong: its logits differ from those of the original model");
            }
        }
        Err(CliError::Onnx(OnnxError::Cuda { detail, .. })) => {
            row.state = format!("not run: {detail}");
        }
        // The engine does not support GPUs.
        Err(CliError::Onnx(error @ OnnxError::CpuOnly(_))) => {
            row.state = format!("not run: {error}");
        }
        Err(error) => row.fail(error.to_string()),
    }
}

/// Checks a folder without a manifest: only that the graph can be loaded.
fn without_manifest(folder: &Path, options: &EngineOptions) -> Result<Vec<Checked>, CliError> {
    let (model, engine) = AnyEngine::open(folder, None, options)?;
    let file = model.graph.strip_prefix(folder).unwrap_or(&model.graph);
    let row = Checked {
        file: file.display().to_string(),
        hash: "not known",
        precision: model.precision.clone(),
        state: "the graph loads; its logits cannot be checked without manifest.toml".into(),
        ..Checked::default()
    };
    Labeler::load(model, Box::new(engine), 1)?.check_learned()?;
    Ok(vec![row])
}
