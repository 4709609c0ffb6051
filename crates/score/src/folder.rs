//! What a model folder is: the files of a model as the hub's ONNX exports lay them out.
//!
//! In goes a folder with `config.json`, `tokenizer.json` and one or more `*.onnx` files (at the top or under
//! `onnx/`); out comes a [`ModelFolder`]: which graph to load, how its outputs become scores, how long a
//! sequence may be, and the hashes under which its results are stored. A folder may have a [`manifest`], which
//! tells of each graph what it is for, what it is fed and what it must say. Three kinds of model are known: an NLI
//! cross-encoder (premise and hypothesis in, class logits out), an embedding model (one text in, one
//! vector out; the block `zero_shot` of `config.json` says so), and a [classifier] (one text in, the logits of its own
//! labels out). Nothing here runs a model.

pub mod bounds;
mod choice;
pub mod classifier;
mod config;
mod error;
pub mod graph;
pub mod hashes;
pub mod learned;
pub mod manifest;
mod names;
mod rounding;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::choice::{Choice, precision_in};
pub use self::classifier::{ClassifierHead, HeadFunction};
use self::config::{Config, TokenizerConfig};
pub use self::error::ModelError;
use self::graph::Facts;
pub use self::graph::Fixed;
pub use self::hashes::hex;
use self::hashes::{file_hash, known_hash};
pub use self::learned::{LearnedLabel, LearnedLabels};
use self::manifest::{Made, Manifest};
use self::names::external_data;
pub use self::names::graph_names;
pub use self::rounding::Rounding;

/// Name of the manifest in a model folder.
pub const MANIFEST_FILE: &str = "manifest.toml";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// What kind of processor a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// The CPU.
    Cpu,
    /// A GPU with CUDA.
    Cuda,
}

impl Processor {
    /// As the manifest writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A model as it lies on disk, checked as far as its files can tell without running it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFolder {
    /// The folder.
    pub dir: PathBuf,
    /// Name of the folder, for people.
    pub name: String,
    /// The graph to load.
    pub graph: PathBuf,
    /// The tokenizer's file.
    pub tokenizer: PathBuf,
    /// Precision as the name of the graph tells it: `fp32`, `fp16`, `int8`, …
    pub precision: String,
    /// What goes in and how scores come out.
    pub kind: ModelKind,
    /// Hypothesis template the model was made for, where it says one.
    pub template: Option<String>,
    /// Longest sequence, special tokens included.
    pub max_tokens: usize,
    /// Rows of the embedding table: an id from here on must never reach the graph.
    pub vocab_size: Option<usize>,
    /// Id that fills a row up to the width of its batch, where the configuration says it.
    pub pad_id: Option<u32>,
    /// SHA-256 of `tokenizer.json`, hex.
    pub tokenizer_hash: String,
    /// SHA-256 over name and SHA-256 of every file that decides a score, and what a manifest adds, hex.
    pub manifest_hash: String,
    /// What the manifest says of the graph, where there is one.
    pub made: Option<Made>,
    /// The sizes that the graph fixes, as a rule none.
    pub fixed: Fixed,
    /// How the graph in float32 is computed with fewer digits. Then `precision` is its name.
    pub rounding: Rounding,
}

/// How far a logit may be off where numbers are rounded, as a share of how far the logits of the vectors lie apart (their
/// standard deviation): in bfloat16 that was 0.16 to 0.35 with random weights of BART's shape, and a wrong graph is off by
/// more than 1.
const ROUNDED_SPREAD: f64 = 0.5;

/// How a model scores a label.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    /// A cross-encoder over (text, hypothesis): class logits.
    Nli(NliClasses),
    /// An encoder of single texts: the cosine of a text's vector and a label's.
    Embedding(EmbeddingHead),
    /// A classifier of single texts: a logit for each of its own labels.
    Classifier(ClassifierHead),
}

impl ModelKind {
    /// `nli`, `embedding` or `classifier`, as stored.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Nli(_) => "nli",
            Self::Embedding(_) => "embedding",
            Self::Classifier(_) => "classifier",
        }
    }

    /// The head of a classifier.
    pub fn head(&self) -> Option<&ClassifierHead> {
        match self {
            Self::Classifier(head) => Some(head),
            Self::Nli(_) | Self::Embedding(_) => None,
        }
    }

    /// How many numbers the model gives for a row, where its configuration says that.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Nli(classes) => Some(classes.count),
            Self::Classifier(head) => Some(head.labels.len()),
            Self::Embedding(_) => None,
        }
    }
}

/// Which logit of an NLI model is which class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NliClasses {
    /// How many classes: 2 or 3.
    pub count: usize,
    /// Index of the class that a label's score is read from.
    pub entailment: usize,
    /// Index of the class that multi mode opposes to it.
    pub contradiction: usize,
    /// Index of the third class, where there is one.
    pub neutral: Option<usize>,
}

impl NliClasses {
    /// Chooses the classes as the zero-shot pipeline of transformers does: entailment by its name,
    /// contradiction by its place. Scores must equal the reference even where its choice is odd: of
    /// (contradiction, entailment, neutral) and (entailment, neutral, contradiction) it opposes the outer
    /// class, of (neutral, entailment, contradiction) the neutral one.
    fn of(count: usize, entailment: usize) -> Self {
        let contradiction = if entailment == 0 { count - 1 } else { 0 };
        let neutral = (0..count).find(|class| ![entailment, contradiction].contains(class));
        Self {
            count,
            entailment,
            contradiction,
            neutral,
        }
    }
}

/// What an embedding model's output is called and how cosines become scores.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingHead {
    /// Name of the output, `[batch, dimension]`.
    pub output: String,
    /// Single mode: softmax(`softmax_scale` · cosine).
    pub softmax_scale: f64,
    /// Multi mode: sigmoid(`sigmoid_scale` · (cosine − `sigmoid_bias`)).
    pub sigmoid_scale: f64,
    /// See `sigmoid_scale`.
    pub sigmoid_bias: f64,
    /// Vectors for certain labels, in place of those of their words.
    pub learned: Arc<LearnedLabels>,
}

impl ModelFolder {
    /// Reads a folder for the CPU, see [`ModelFolder::open_for`].
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn open(dir: &Path, precision: Option<&str>) -> Result<Self, ModelError> {
        Self::open_for(dir, Processor::Cpu, precision)
    }

    /// Reads a folder and chooses its graph. With a manifest it is the graph for `processor`, in `precision` where
    /// one is given. Without, `precision` chooses by the hub's names (`fp32` is `model.onnx`, `fp16` is
    /// `model_fp16.onnx`, `int8` is `model_int8.onnx` or `model_quantized.onnx`, any other word is
    /// `model_WORD.onnx`); without it `model.onnx` is taken, or the only graph there is.
    ///
    /// Every file that decides a score is hashed (see [`hashes`]), and compared with the manifest.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn open_for(
        dir: &Path,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        check_folder(dir)?;
        let config = required(dir, "config.json")?;
        let tokenizer = required(dir, "tokenizer.json")?;
        let config: Config = read_json(&config)?;
        let tokenizer_config = tokenizer_config_in(dir)?;
        let manifest = Manifest::read(dir)?;
        let choice = Choice::of(dir, manifest.as_ref(), processor, precision)?;
        let said = manifest.as_ref().map(Manifest::kind);
        let (kind, label_vectors) = kind_in(dir, &config, said)?;
        let tokenizer_hash = file_hash(&tokenizer)?;

        let parts = deciding_files(dir, label_vectors, &choice)?;
        let mut hasher = hash_all(&parts, manifest.as_ref())?;
        let Choice {
            made,
            graph,
            rounding,
        } = choice;
        // Only now: what is damaged is told by its hash, where that is known.
        let facts = graph::facts(&graph)?;
        let precision = precision_in(&graph, made.as_ref(), &facts, rounding, precision)?;
        let mut max_tokens = config.max_tokens(&tokenizer_config.unwrap_or_default());
        if let (Some(manifest), Some(made)) = (&manifest, &made) {
            check_manifest(dir, manifest, made, &facts, &kind)?;
            max_tokens = max_tokens.min(manifest.max_tokens);
            hasher.update(made.identity(max_tokens));
        }
        if !rounding.is_exact() {
            // The same graph, and other scores.
            hasher.update(format!("{rounding}\n"));
        }
        let fixed = Fixed::of(&facts.ids);
        let pad_id = made.as_ref().map(|made| made.contract.pad_id);
        Ok(Self {
            dir: dir.to_owned(),
            name: name_of(dir),
            precision,
            // A longer text would not fit, so it is cut as by a model that reads no more.
            max_tokens: max_tokens.min(fixed.width.unwrap_or(usize::MAX)),
            vocab_size: config.vocab_size,
            pad_id: pad_id.or(config.pad_token_id),
            template: config.zero_shot.and_then(|z| z.hypothesis_template),
            manifest_hash: hex(&hasher.finalize()),
            tokenizer_hash,
            tokenizer,
            graph,
            kind,
            made,
            fixed,
            rounding,
        })
    }

    /// How far a logit of the manifest's vectors may be off.
    pub fn tolerance(&self, made: &Made) -> f64 {
        if self.rounding.is_exact() {
            return made.graph.tolerance;
        }
        let logits = made.vectors.iter().flat_map(|vector| &vector.logits);
        let logits: Vec<f64> = logits.map(|logit| f64::from(*logit)).collect();
        #[expect(clippy::cast_precision_loss, reason = "a few logits")]
        let count = logits.len() as f64;
        let mean = logits.iter().sum::<f64>() / count;
        let spread = logits.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        made.graph.tolerance.max(ROUNDED_SPREAD * spread.sqrt())
    }

    /// Whether a score depends on what else is in its batch. Dynamic int8 has one activation scale a tensor. Where numbers
    /// are rounded, an NLI model shows the order in which a sum was added up, which its few rows decide.
    pub fn depends_on_batch(&self) -> bool {
        match &self.made {
            _ if !self.rounding.is_exact() => matches!(self.kind, ModelKind::Nli(_)),
            Some(made) => made.graph.depends_on_batch,
            None => matches!(self.precision.as_str(), "int8" | "uint8"),
        }
    }

    /// Whether a score depends on how wide its batch is, and not on its mates: where numbers are rounded, another width
    /// shows, because a sum is added up in another order.
    pub fn depends_on_width(&self) -> bool {
        !self.rounding.is_exact() && !self.depends_on_batch()
    }
}

fn check_folder(dir: &Path) -> Result<(), ModelError> {
    if dir.is_file() {
        return Err(ModelError::File(format!(
            "the model `{}` is a file: give the folder that holds the model's graph, `config.json` and `tokenizer.json`",
            dir.display()
        )));
    }
    if !dir.is_dir() {
        return Err(ModelError::NoFolder(dir.to_owned()));
    }
    Ok(())
}

fn tokenizer_config_in(dir: &Path) -> Result<Option<TokenizerConfig>, ModelError> {
    let path = dir.join(TOKENIZER_CONFIG);
    path.is_file().then(|| read_json(&path)).transpose()
}

/// The files that decide a score, in the order in which they are hashed.
fn deciding_files(
    dir: &Path,
    label_vectors: Option<PathBuf>,
    choice: &Choice,
) -> Result<Vec<PathBuf>, ModelError> {
    let mut files = vec![dir.join("config.json"), dir.join("tokenizer.json")];
    let tokenizer_config = dir.join(TOKENIZER_CONFIG);
    if tokenizer_config.is_file() {
        // It decides where a text is cut.
        files.push(tokenizer_config);
    }
    files.extend(label_vectors);
    let graph = &choice.graph;
    files.push(graph.clone());
    match &choice.made {
        Some(made) => files.extend(made.graph.data.iter().map(|name| dir.join(name))),
        None => files.extend(external_data(graph, &graph::facts(graph)?.weights)?),
    }
    Ok(files)
}

/// Hashes files, each with its name, and compares them with a manifest.
fn hash_all(files: &[PathBuf], manifest: Option<&Manifest>) -> Result<Sha256, ModelError> {
    let mut hasher = Sha256::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hash = known_hash(path)?;
        if let Some(manifest) = manifest
            // A file that the manifest does not list counts as changed, too: it decides a score.
            && manifest.files.get(&*name) != Some(&hash)
        {
            return Err(ModelError::File(format!(
                "use `{}`: its SHA-256 is not the one in `manifest.toml`, so it was damaged or exchanged; copy or make the model again, or remove the manifest to go without its checks",
                path.display()
            )));
        }
        hasher.update(format!("{name} {hash}\n"));
    }
    Ok(hasher)
}

/// Compares what a manifest says with the graph and with `config.json`.
fn check_manifest(
    dir: &Path,
    manifest: &Manifest,
    made: &Made,
    facts: &Facts,
    kind: &ModelKind,
) -> Result<(), ModelError> {
    let mut weights = facts.weights.iter();
    if let Some(name) = weights.find(|name| !made.graph.data.contains(name)) {
        let file = &made.graph.file;
        let detail = format!("it does not list `{name}`, where `{file}` has its weights");
        return Err(ModelError::manifest(dir, detail));
    }
    if !manifest.agrees(kind) {
        let detail = "its kind, classes or output are not those of `config.json`; make the folder again with tools/model.py or tools/train.py";
        return Err(ModelError::manifest(dir, detail));
    }
    Ok(())
}

fn required(dir: &Path, file: &str) -> Result<PathBuf, ModelError> {
    let path = dir.join(file);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ModelError::NoFile(dir.to_owned(), file.to_owned()))
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let bytes = bounds::read(path)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        ModelError::File(format!(
            "read `{}` of the model: {error}; the file is damaged, copy or export it again",
            path.display()
        ))
    })
}

/// What a model is called: the name of its folder.
pub fn name_of(dir: &Path) -> String {
    // `canonicalize` gives a name to `.` and to a path that ends in `..`.
    let real = dir.canonicalize();
    let name = real.as_deref().unwrap_or(dir).file_name();
    name.map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// What kind of model a configuration describes, with the label vectors that it has learned, and the file of these.
fn kind_in(
    dir: &Path,
    config: &Config,
    said: Option<&str>,
) -> Result<(ModelKind, Option<PathBuf>), ModelError> {
    let unsuitable = |detail: String| ModelError::unsuitable(dir, detail);
    let mut kind = config.kind(said).map_err(unsuitable)?;
    let file = match config.label_vectors().map_err(unsuitable)? {
        Some(name) => Some(required(dir, name)?),
        None => None,
    };
    if let (ModelKind::Embedding(head), Some(file)) = (&mut kind, &file) {
        head.learned = Arc::new(LearnedLabels::read(file)?);
    }
    Ok((kind, file))
}

/// Whether `config.json` of a folder describes a model that can score labels; the name of one more file that it then
/// needs, the one with learned label vectors.
///
/// # Errors
/// See [`ModelError`].
pub fn check_config(dir: &Path) -> Result<Option<String>, ModelError> {
    let config: Config = read_json(&required(dir, "config.json")?)?;
    let kind = config.kind(None);
    kind.and_then(|_| Ok(config.label_vectors()?.map(str::to_owned)))
        .map_err(|detail| ModelError::unsuitable(dir, detail))
}

/// What kind of model a folder holds, without reading more of it than that takes.
///
/// # Errors
/// See [`ModelError`].
pub fn kind_of(dir: &Path) -> Result<ModelKind, ModelError> {
    let config: Config = read_json(&required(dir, "config.json")?)?;
    let manifest = Manifest::read(dir)?;
    let said = manifest.as_ref().map(Manifest::kind);
    Ok(kind_in(dir, &config, said)?.0)
}

#[cfg(test)]
mod tests;
