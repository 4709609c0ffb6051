//! `topicmill model verify`: every file of a folder by its hash, and every graph by what it computes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::super::setup::{PipelineFlags, aside, word};
use super::super::{CliError, Exit, OutputFormat, Setup, output};
use crate::cli::bench::read_texts;
use crate::engines::find_model;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Agreement, Graph, Manifest, Verified};
use topicmill_score::folder::{Processor, kind_of, name_of};
use topicmill_score::text::Encoder;
use topicmill_score::vectors::{self, Errors};
use topicmill_score::{
    Device, EngineOptions, LabelSet, Labeler, LabelerError, ModelFolder, ModelKind, OnnxError,
    OpenedEngine,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model verify models/bart-large-mnli
  topicmill model verify models/made --texts texts.ndjson")]
pub struct Verify {
    /// Check the model in this folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Also label these texts in float32 and in int8, and record how often both agree: one JSON object on each line (text,
    /// or title and selftext)
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Print in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// What came of one file of the folder.
#[derive(Default, Clone)]
struct Checked {
    file: String,
    hash: &'static str,
    graph: String,
    precision: String,
    errors: Option<Errors>,
    tolerance: Option<f64>,
    agreement: Option<Agreement>,
    state: String,
    wrong: bool,
}

impl Checked {
    fn row(&self) -> Value {
        // Small numbers would be zeros with three digits behind the point.
        let small = |x: Option<f64>| x.map(|x| format!("{x:.1e}"));
        let agreement = self.agreement;
        let agreement = agreement.map(|found| format!("{} of {}", found.agreed, found.texts));
        json!({
            "file": self.file, "hash": self.hash, "graph": self.graph, "precision": self.precision,
            "logits off": small(self.errors.map(|errors| errors.logits)),
            "scores off": small(self.errors.map(|errors| errors.scores)),
            "allowed": small(self.tolerance), "labelled as fp32": agreement, "state": self.state,
        })
    }

    fn fail(&mut self, state: impl Into<String>) {
        self.state = state.into();
        self.wrong = true;
    }
}

impl Verify {
    /// What texts are labelled with.
    fn label_set(&self, setup: &Setup, folder: &Path) -> Result<LabelSet, CliError> {
        let ModelKind::Classifier(head) = kind_of(folder)? else {
            return Ok(setup.pipeline(&self.pipeline)?.label_set);
        };
        if head.labels.len() == 1 {
            return Err(CliError::Usage(
                "--texts counts how often two graphs choose the same label, and this model has one label: leave it out, \
                 and use `--precision int8` where the errors in the table are small enough"
                    .into(),
            ));
        }
        Ok(LabelSet::of_classifier(&name_of(folder), &head))
    }

    pub(super) async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let options = EngineOptions {
            engine: word("classify.engine", &setup.settings().classify.engine)?,
            ..setup.engine_options()
        };
        let set = match &self.texts {
            Some(_) => Some(self.label_set(setup, &folder)?),
            None => None,
        };
        let stop = setup.stop.clone();
        let (texts, format) = (self.texts, self.format);
        let checked = aside(move || {
            let mut checked = verify(&folder, &options)?;
            if let (Some(texts), Some(set)) = (&texts, &set) {
                let found = agreement(&folder, &options, texts, set, &|| stop.is_cancelled())?;
                if let Some(row) = checked.iter_mut().find(|row| row.precision == "int8") {
                    row.agreement = Some(found);
                }
            }
            Ok(checked)
        });
        let checked = checked.await?;
        let table = output::objects(&checked.iter().map(Checked::row).collect::<Vec<_>>());
        output::print_table(&table, format)?;
        let is_wrong = checked.iter().any(|row| row.wrong);
        Ok(if is_wrong { Exit::Model } else { Exit::Done })
    }
}

/// Looks at every file of a folder and runs every graph that this machine can run.
fn verify(folder: &Path, options: &EngineOptions) -> Result<Vec<Checked>, CliError> {
    let Some(manifest) = Manifest::read(folder)? else {
        return without_manifest(folder, options);
    };
    let verified = Verified::read(folder);
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
            row.state = "not here".into();
            row.wrong = !of_a_graph;
        } else if file_hash(&path)? != *wanted {
            row.hash = "other";
            row.fail("damaged or exchanged: copy or make it again");
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
            // One file, and a graph for each device.
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
        row.agreement = verified.as_ref().and_then(|verified| verified.of(name));
        if whole {
            try_graph(folder, graph, options, row);
        } else if row.hash == "ok" {
            row.state = "not tried: another of its files is wrong".into();
        }
    }
    Ok(checked)
}

/// Runs a graph on what it is made for, and compares it with the manifest.
fn try_graph(folder: &Path, graph: &Graph, options: &EngineOptions, row: &mut Checked) {
    let (processor, device) = if graph.device == Processor::Cuda.as_str() {
        (Processor::Cuda, Device::Cuda(0))
    } else {
        (Processor::Cpu, Device::Cpu)
    };
    let options = EngineOptions {
        device,
        ..options.clone()
    };
    let tried = || -> Result<Option<Errors>, CliError> {
        let model = ModelFolder::open_for(folder, processor, Some(&graph.precision))?;
        Encoder::load(&model).map_err(LabelerError::from)?;
        let mut engine = OpenedEngine::load_unchecked(&model, &options)?;
        let Some(made) = &model.made else {
            return Ok(None);
        };
        let errors = vectors::alone_and_together(&mut engine, made, &model.kind);
        Ok(Some(errors.map_err(LabelerError::from)?))
    };
    match tried() {
        Ok(errors) => {
            row.errors = errors;
            if errors.is_some_and(|errors| errors.logits > graph.tolerance) {
                row.fail("wrong: it computes something else than its model");
            }
        }
        Err(CliError::Onnx(OnnxError::Cuda { detail, .. })) => {
            row.state = format!("not tried: {detail}");
        }
        // An engine that knows no GPU.
        Err(CliError::Onnx(error @ OnnxError::CpuOnly(_))) => {
            row.state = format!("not tried: {error}");
        }
        Err(error) => row.fail(error.to_string()),
    }
}

/// Without a manifest nobody knows what a graph must say; it can be loaded, and that is all.
fn without_manifest(folder: &Path, options: &EngineOptions) -> Result<Vec<Checked>, CliError> {
    let (model, engine) = OpenedEngine::open(folder, None, options)?;
    let file = model.graph.strip_prefix(folder).unwrap_or(&model.graph);
    let row = Checked {
        file: file.display().to_string(),
        hash: "not known",
        precision: model.precision.clone(),
        state: "it loads; without manifest.toml nothing shows whether it is right".into(),
        ..Checked::default()
    };
    Labeler::load(model, Box::new(engine), 1)?.check_learned()?;
    Ok(vec![row])
}

/// Labels texts in float32 and in int8, and writes down how often both agree.
fn agreement(
    folder: &Path,
    options: &EngineOptions,
    texts: &Path,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
) -> Result<Agreement, CliError> {
    let options = EngineOptions {
        device: Device::Cpu,
        ..options.clone()
    };
    let texts = read_texts(texts, usize::MAX)?;
    let labels = |precision: &str| -> Result<(String, Vec<Option<usize>>), CliError> {
        let (model, engine) = OpenedEngine::open(folder, Some(precision), &options)?;
        let graph = model.made.as_ref().map(|made| made.graph.clone());
        let mut labeler = Labeler::load(model, Box::new(engine), 1_024)?;
        let prepared = labeler.prepare(set)?;
        let scored = labeler.score_all(&prepared, &texts, stop)?;
        let stopped = || CliError::Usage("stopped before all texts were labelled".into());
        let scored = scored.ok_or_else(stopped)?.into_iter();
        let scores = scored.map(|scored| scored.ok().map(|it| it.scores));
        let labels = scores.map(|it| it.filter(|it| !it.abstained).map(|it| it.best));
        Ok((graph.unwrap_or_default(), labels.collect()))
    };
    let (_, exact) = labels("fp32")?;
    let (graph, fast) = labels("int8")?;
    // Of a text without a label in float32 there is nothing to agree with.
    let pairs = || exact.iter().zip(&fast).filter(|(a, _)| a.is_some());
    let found = Agreement {
        texts: pairs().count() as u64,
        agreed: pairs().filter(|(a, b)| a == b).count() as u64,
        labels: set.labels.len() as u64,
    };
    let path = Verified::record(folder, &graph, found)?;
    tracing::info!(
        texts = found.texts,
        agreed = found.agreed,
        enough = found.is_enough(),
        "written to {}",
        path.display()
    );
    Ok(found)
}
