//! Reads a model folder: a model's files, in the layout of ONNX exports on the Hugging Face Hub.
//!
//! The input is a folder with `config.json`, `tokenizer.json` and at least one `*.onnx` file, at the top or in `onnx/`.
//! The output is a [`ModelFolder`]: the graph to load, how its outputs become scores, the longest sequence, and the
//! hashes that identify its results. A folder may have a [`manifest`], which gives the device, the inputs and the
//! reference logits of each graph. There are four kinds of models: an NLI cross-encoder (premise and hypothesis in,
//! class logits out), an embedding model (one text in, one vector out; declared by the `zero_shot` block of
//! `config.json`), a [classifier] (one text in, the logits of its own labels out), and GLiClass (one text with all
//! labels in, a logit per label out). This module runs no model.

pub mod bounds;
mod choice;
pub mod classifier;
mod config;
mod error;
mod gliclass;
pub mod graph;
pub mod hashes;
pub mod learned;
pub mod manifest;
mod names;
mod rounding;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::choice::Choice;
use self::config::{Config, TokenizerConfig};
pub use self::error::ModelError;
pub use self::graph::FixedShape;
use self::graph::GraphMetadata;
use self::hashes::{cached_hash, file_hash};
use self::manifest::{GraphSpec, Manifest};
use self::names::external_data;
pub use self::names::{is_external_data, select_graph};
pub use self::rounding::Rounding;
use crate::device::Device;
use topicmill_core::{ModelKind, hex, string_enum};

/// Reason to reject a GLiClass model without a manifest.
const GLICLASS_EXPORT: &str = "a GLiClass model needs `manifest.toml`, because a graph exported elsewhere may read a \
     fixed number of labels, and padding may change its scores; build the folder from the checkpoint with \
     tools/model.py";

/// Name of the manifest in a model folder.
pub const MANIFEST_FILE: &str = "manifest.toml";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

string_enum! {
    /// Processor that a graph is built for.
    Processor {
        /// The CPU.
        Cpu = "cpu",
        /// A GPU with CUDA.
        Cuda = "cuda",
    }
}

impl From<Device> for Processor {
    /// Returns the processor of a device; `auto` counts as the CPU.
    fn from(device: Device) -> Self {
        match device {
            Device::Cuda(_) => Self::Cuda,
            Device::Cpu | Device::Auto => Self::Cpu,
        }
    }
}

/// A model on disk, validated as far as possible without running it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFolder {
    /// The folder.
    pub dir: PathBuf,
    /// Display name: the name of the folder.
    pub name: String,
    /// The graph to load.
    pub graph: PathBuf,
    /// The tokenizer file.
    pub tokenizer: PathBuf,
    /// Precision of the graph: `fp32`, `fp16`, `int8`, …
    pub precision: String,
    /// Kind of the model, which determines its inputs and its scores.
    pub kind: ModelKind,
    /// Hypothesis template of the model, if it declares one.
    pub template: Option<String>,
    /// Token limit of a sequence, special tokens included.
    pub max_tokens: usize,
    /// Number of rows in the embedding table; every id that the graph receives must be below it.
    pub vocab_size: Option<usize>,
    /// Padding id, if the configuration has one.
    pub pad_id: Option<u32>,
    /// Hex SHA-256 of `tokenizer.json`.
    pub tokenizer_hash: String,
    /// Hex SHA-256 of the manifest's settings and of the name and hash of every file that affects a score.
    pub manifest_hash: String,
    /// The manifest's entry for the graph, if there is a manifest.
    pub spec: Option<GraphSpec>,
    /// The fixed sizes of the graph; usually none.
    pub fixed: FixedShape,
    /// Reduced-precision mode of the float32 graph; `precision` is its name unless it is exact.
    pub rounding: Rounding,
}

/// Tolerance of a logit under reduced precision, as a fraction of the standard deviation of the reference logits. In
/// bfloat16 the error was 0.16 to 0.35 with random weights in BART's shape; a wrong graph is off by more than 1.
const ROUNDED_SPREAD: f64 = 0.5;

impl ModelFolder {
    /// Reads a folder for the CPU; see [`ModelFolder::open_for`].
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn open(dir: &Path, precision: Option<&str>) -> Result<Self, ModelError> {
        Self::open_for(dir, Processor::Cpu, precision)
    }

    /// Reads a folder and selects its graph. With a manifest, this is the graph for `processor`, in `precision` if
    /// given. Without a manifest, `precision` selects by the Hub's file names: `fp32` is `model.onnx`, `fp16` is
    /// `model_fp16.onnx`, `int8` is `model_int8.onnx` or `model_quantized.onnx`, and any other value is
    /// `model_VALUE.onnx`. With neither, this is `model.onnx` or the only graph in the folder.
    ///
    /// Every file that affects a score is hashed (see [`hashes`]) and compared with the manifest.
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
        let kind = kind_in(dir, &config, manifest.as_ref())?;
        if let Some(contradiction) = config.contradiction() {
            tracing::warn!(
                "`{}` contradicts itself: {contradiction}; the scores may belong to other labels, so correct one of \
                 the two",
                dir.join("config.json").display()
            );
        }
        let choice = Choice::select(dir, manifest.as_ref(), processor, precision)?;
        let tokenizer_hash = file_hash(&tokenizer)?;
        let files = deciding_files(dir, &config, &choice)?;
        let mut hasher = hash_all(&files, manifest.as_ref())?;
        // Read after the hash check: if there is a manifest, a damaged file should be reported as a hash mismatch.
        let metadata = graph::metadata(&choice.graph)?;
        choice.check(&metadata, precision)?;
        let precision = choice.precision(&metadata);
        let mut max_tokens = config.max_tokens(&tokenizer_config);
        if let (Some(manifest), Some(spec)) = (&manifest, &choice.spec) {
            check_manifest(dir, manifest, spec, &metadata, &kind)?;
            max_tokens = match kind {
                // The `gliclass` package ignores the tokenizer's limit.
                ModelKind::Gliclass(_) => manifest.max_tokens,
                _ => max_tokens.min(manifest.max_tokens),
            };
            hasher.update(spec.identity(max_tokens));
        }
        if !choice.rounding.is_exact() {
            // The same graph gives different scores in this mode.
            hasher.update(format!("{}\n", choice.rounding));
        }
        let fixed = FixedShape::from_dims(&metadata.ids);
        let pad_id = choice.spec.as_ref().map(|spec| spec.contract.pad_id);
        Ok(Self {
            dir: dir.to_owned(),
            name: model_name(dir),
            precision,
            // A longer text does not fit the graph, so it is truncated.
            max_tokens: max_tokens.min(fixed.width.unwrap_or(usize::MAX)),
            vocab_size: config.vocab_size,
            pad_id: pad_id.or(config.pad_token_id),
            template: config.zero_shot.and_then(|z| z.hypothesis_template),
            manifest_hash: hex(&hasher.finalize()),
            tokenizer_hash,
            tokenizer,
            graph: choice.graph,
            kind,
            spec: choice.spec,
            fixed,
            rounding: choice.rounding,
        })
    }

    /// Returns the maximum difference allowed between a logit and its reference in the manifest.
    pub fn tolerance(&self, spec: &GraphSpec) -> f64 {
        if self.rounding.is_exact() {
            return spec.graph.tolerance;
        }
        let logits = spec.vectors.iter().flat_map(|vector| &vector.logits);
        let logits: Vec<f64> = logits.map(|logit| f64::from(*logit)).collect();
        let count = logits.len() as f64;
        let mean = logits.iter().sum::<f64>() / count;
        let variance = logits.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        spec.graph.tolerance.max(ROUNDED_SPREAD * variance.sqrt())
    }

    /// Returns true if a score depends on the other rows of its batch. Dynamic int8 uses one activation scale per
    /// tensor. Under reduced precision, the last layers of NLI and GLiClass models read only a few tokens of each row,
    /// so the number of rows may change the order of summation.
    pub fn depends_on_batch(&self) -> bool {
        match &self.spec {
            _ if !self.rounding.is_exact() => {
                matches!(self.kind, ModelKind::Nli(_) | ModelKind::Gliclass(_))
            }
            Some(spec) => spec.graph.depends_on_batch,
            None => matches!(self.precision.as_str(), "int8" | "uint8"),
        }
    }

    /// Returns true if a score depends on its batch's padded width but not on the other rows. Under reduced precision,
    /// a different width changes the order of summation.
    pub fn depends_on_width(&self) -> bool {
        !self.rounding.is_exact() && !self.depends_on_batch()
    }
}

fn check_folder(dir: &Path) -> Result<(), ModelError> {
    if dir.is_file() {
        return Err(ModelError::File(format!(
            "the model `{}` is a file: give the folder with the model's graph, `config.json` and `tokenizer.json`",
            dir.display()
        )));
    }
    if !dir.is_dir() {
        return Err(ModelError::NoFolder(dir.to_owned()));
    }
    Ok(())
}

fn tokenizer_config_in(dir: &Path) -> Result<TokenizerConfig, ModelError> {
    let path = dir.join(TOKENIZER_CONFIG);
    let config = path.is_file().then(|| read_json(&path)).transpose()?;
    Ok(config.unwrap_or_default())
}

/// Returns the files that affect a score, in hashing order.
fn deciding_files(
    dir: &Path,
    config: &Config,
    choice: &Choice,
) -> Result<Vec<PathBuf>, ModelError> {
    let mut files = vec![dir.join("config.json"), dir.join("tokenizer.json")];
    let tokenizer_config = dir.join(TOKENIZER_CONFIG);
    if tokenizer_config.is_file() {
        // It determines where a text is truncated.
        files.push(tokenizer_config);
    }
    files.extend(label_vectors_in(dir, config)?);
    let graph = &choice.graph;
    files.push(graph.clone());
    match &choice.spec {
        Some(spec) => files.extend(spec.graph.data.iter().map(|name| dir.join(name))),
        None => files.extend(external_data(graph, &graph::metadata(graph)?.weights)?),
    }
    Ok(files)
}

/// Hashes files with their names and compares them with the manifest.
fn hash_all(files: &[PathBuf], manifest: Option<&Manifest>) -> Result<Sha256, ModelError> {
    let mut hasher = Sha256::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        bounds::check_not_pointer(path)?;
        let hash = cached_hash(path)?;
        if let Some(manifest) = manifest
            // A file missing from the manifest counts as changed, because it affects a score.
            && manifest.files.get(&*name) != Some(&hash)
        {
            return Err(ModelError::File(format!(
                "cannot use `{}`: its SHA-256 differs from `manifest.toml`, so the file is damaged or was replaced; copy or \
                 build the model again, or delete the manifest to skip its checks",
                path.display()
            )));
        }
        hasher.update(format!("{name} {hash}\n"));
    }
    Ok(hasher)
}

/// Compares the manifest with the graph and with `config.json`.
fn check_manifest(
    dir: &Path,
    manifest: &Manifest,
    spec: &GraphSpec,
    metadata: &GraphMetadata,
    kind: &ModelKind,
) -> Result<(), ModelError> {
    let mut weights = metadata.weights.iter();
    if let Some(name) = weights.find(|name| !spec.graph.data.contains(name)) {
        let file = &spec.graph.file;
        let detail = format!("it does not list `{name}`, the weights file of `{file}`");
        return Err(ModelError::manifest(dir, detail));
    }
    if !manifest.agrees(kind) {
        let detail = "its kind, classes or output differ from `config.json`; build the folder again with \
                      tools/model.py or tools/train.py";
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
    // Some editors write a byte order mark.
    let json = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    serde_json::from_slice(json).map_err(|error| {
        ModelError::File(format!(
            "cannot read `{}` of the model: {error}; the file is damaged, copy or export it again",
            path.display()
        ))
    })
}

/// Returns a model's name, which is its folder's name.
pub fn model_name(dir: &Path) -> String {
    // `canonicalize` resolves `.` and `..` to a folder with a name.
    let real = dir.canonicalize();
    let name = real.as_deref().unwrap_or(dir).file_name();
    let name = name.map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "model".to_owned())
}

/// Returns the path to the file with a model's learned label vectors, if `config.json` names one.
fn label_vectors_in(dir: &Path, config: &Config) -> Result<Option<PathBuf>, ModelError> {
    let name = config.label_vectors();
    let name = name.map_err(|detail| ModelError::unsuitable(dir, detail))?;
    name.map(|name| required(dir, name)).transpose()
}

/// Returns the kind of a model, without its learned label vectors.
fn kind_without_vectors(
    dir: &Path,
    config: &Config,
    manifest: Option<&Manifest>,
) -> Result<ModelKind, ModelError> {
    let kind = config.kind(manifest.map(Manifest::kind));
    let kind = kind.map_err(|detail| ModelError::unsuitable(dir, detail))?;
    if manifest.is_none() && matches!(kind, ModelKind::Gliclass(_)) {
        return Err(ModelError::unsuitable(dir, GLICLASS_EXPORT));
    }
    Ok(kind)
}

/// Returns the kind of a model, with its learned label vectors.
fn kind_in(
    dir: &Path,
    config: &Config,
    manifest: Option<&Manifest>,
) -> Result<ModelKind, ModelError> {
    let mut kind = kind_without_vectors(dir, config, manifest)?;
    let label_vectors = label_vectors_in(dir, config)?;
    if let (ModelKind::Embedding(head), Some(file)) = (&mut kind, label_vectors) {
        head.learned = Arc::new(learned::read(&file)?);
    }
    Ok(kind)
}

/// Checks that `config.json` describes a model that can score labels, given the manifest if the folder has one. Returns
/// the name of the file with learned label vectors, if the model needs one; this file need not exist yet.
///
/// # Errors
/// See [`ModelError`].
pub fn check_config(dir: &Path) -> Result<Option<String>, ModelError> {
    let config: Config = read_json(&required(dir, "config.json")?)?;
    kind_without_vectors(dir, &config, Manifest::read(dir)?.as_ref())?;
    let name = config.label_vectors();
    let name = name.map_err(|detail| ModelError::unsuitable(dir, detail))?;
    Ok(name.map(str::to_owned))
}

/// Returns the kind of a model, without opening its graph or tokenizer.
///
/// # Errors
/// See [`ModelError`].
pub fn read_kind(dir: &Path) -> Result<ModelKind, ModelError> {
    let config: Config = read_json(&required(dir, "config.json")?)?;
    kind_in(dir, &config, Manifest::read(dir)?.as_ref())
}

#[cfg(test)]
mod tests;
