//! What a model folder is: the files of a model as the hub's ONNX exports lay them out.
//!
//! In goes a folder with `config.json`, `tokenizer.json` and one or more `*.onnx` files (at the top or under
//! `onnx/`); out comes a [`ModelFolder`]: which graph to load, how its outputs become scores, how long a
//! sequence may be, and the hashes under which its results are stored. A folder may have a [`manifest`], which
//! tells of each graph what it is for, what it is fed and what it must say. Two kinds of model are known: an NLI
//! cross-encoder (premise and hypothesis in, class logits out), and an embedding model (one text in, one
//! vector out), told apart by the block `zero_shot` of `config.json`. Nothing here runs a model.

pub mod bounds;
pub mod graph;
pub mod hashes;
pub mod manifest;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub use self::hashes::hex;
use self::hashes::{file_hash, known_hash};
use self::manifest::{Made, Manifest};

/// Name of the manifest in a model folder.
pub const MANIFEST_FILE: &str = "manifest.toml";
/// Name of the file that holds what verifications found.
pub const VERIFIED_FILE: &str = "verified.toml";
/// Longest sequence of a model that does not say how long it may be.
const DEFAULT_MAX_TOKENS: usize = 512;

/// `tokenizer_config.json` writes 1e30 where there is no limit.
const NO_LIMIT: f64 = 1e6;
/// The same for numbers that are whole.
const MOST_TOKENS: usize = 1_000_000;

/// Families that count positions from the padding id on, so that two of their positions are never used.
const OFFSET_POSITIONS: &[&str] = &[
    "camembert",
    "data2vec-text",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
];

/// Why a folder is not a model that topicmill can use.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// There is no such folder.
    #[error("the model folder `{0}` does not exist")]
    NoFolder(PathBuf),
    /// A file stands where the folder should.
    #[error(
        "the model `{0}` is a file: give the folder that holds the model's graph, `config.json` and `tokenizer.json`"
    )]
    NotAFolder(PathBuf),
    /// A file that every model has is not there.
    #[error(
        "the model folder `{folder}` has no `{file}`: copy the file from where the model came from"
    )]
    NoFile {
        /// The folder.
        folder: PathBuf,
        /// Name of the file, or pattern.
        file: String,
    },
    /// A file cannot be read.
    #[error("read `{path}` of the model: {source}; check the permissions of the file")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is far larger than any of its name.
    #[error(
        "read `{path}` of the model: it has over {} MiB, and none that a model needs is so large; take the model from somebody you trust",
        limit >> 20
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it may have.
        limit: u64,
    },
    /// A file is not JSON, or not of the expected shape.
    #[error("read `{path}` of the model: {source}; the file is damaged, copy or export it again")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A graph that cannot be used, whatever is in its weights.
    #[error("load the graph `{path}`: {detail}; take the model from where it came from again")]
    Graph {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Several graphs and no rule to choose one.
    #[error(
        "the model folder `{folder}` has several graphs ({}): choose one by its precision",
        found.join(", ")
    )]
    Ambiguous {
        /// The folder.
        folder: PathBuf,
        /// The graphs, relative to the folder.
        found: Vec<String>,
    },
    /// No graph of the precision asked for.
    #[error(
        "the model folder `{folder}` has no graph of precision `{precision}` (looked for {}; there is {})",
        wanted.join(", "), found.join(", ")
    )]
    Precision {
        /// The folder.
        folder: PathBuf,
        /// What was asked for.
        precision: String,
        /// File names that would have done.
        wanted: Vec<String>,
        /// The graphs that are there.
        found: Vec<String>,
    },
    /// A file cannot be written.
    #[error("write `{path}` of the model: {source}; check the permissions of its folder")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A manifest that cannot be used.
    #[error("use `{path}`: {detail}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file is not the one that the manifest describes.
    #[error(
        "use `{0}`: its SHA-256 is not the one in `manifest.toml`, so it was damaged or exchanged; copy or make the model again, or remove the manifest to go without its checks"
    )]
    Changed(PathBuf),
    /// No graph of the manifest is for this device and precision.
    #[error(
        "the model folder `{folder}` has no graph for {processor} in {precision} (there is {})",
        found.join(", ")
    )]
    NoGraph {
        /// The folder.
        folder: PathBuf,
        /// What it is to run on.
        processor: Processor,
        /// What was looked for.
        precision: String,
        /// Names of the graphs that are there.
        found: Vec<String>,
    },
    /// The configuration describes no model that can score labels.
    #[error("`{path}` describes no zero-shot model: {detail}")]
    Unsuitable {
        /// The configuration.
        path: PathBuf,
        /// What is missing, and what to do.
        detail: String,
    },
}

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
}

/// How a model scores a label.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    /// A cross-encoder over (text, hypothesis): class logits.
    Nli(NliClasses),
    /// An encoder of single texts: the cosine of a text's vector and a label's.
    Embedding(EmbeddingHead),
}

impl ModelKind {
    /// `nli` or `embedding`, as stored.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Nli(_) => "nli",
            Self::Embedding(_) => "embedding",
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
}

/// The part of `config.json` that matters here.
#[derive(Debug, Deserialize)]
struct Config {
    #[serde(default)]
    model_type: String,
    id2label: Option<Map<String, Value>>,
    label2id: Option<Map<String, Value>>,
    max_position_embeddings: Option<usize>,
    vocab_size: Option<usize>,
    pad_token_id: Option<u32>,
    zero_shot: Option<ZeroShot>,
}

/// Block `zero_shot` of `config.json`: topicmill's own, so unlike the rest it is read strictly where it counts.
#[derive(Debug, Deserialize)]
struct ZeroShot {
    mode: String,
    output: Option<String>,
    hypothesis_template: Option<String>,
    softmax_scale: Option<f64>,
    sigmoid_scale: Option<f64>,
    sigmoid_bias: Option<f64>,
    max_length: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
struct TokenizerConfig {
    model_max_length: Option<f64>,
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
        if dir.is_file() {
            return Err(ModelError::NotAFolder(dir.to_owned()));
        }
        if !dir.is_dir() {
            return Err(ModelError::NoFolder(dir.to_owned()));
        }
        let config_path = required(dir, "config.json")?;
        let tokenizer = required(dir, "tokenizer.json")?;
        let tokenizer_config_path = dir.join("tokenizer_config.json");
        let config: Config = read_json(&config_path)?;
        let tokenizer_config: TokenizerConfig = if tokenizer_config_path.is_file() {
            read_json(&tokenizer_config_path)?
        } else {
            TokenizerConfig::default()
        };

        let manifest = Manifest::read(dir)?;
        let made = match &manifest {
            Some(manifest) => Some(manifest.made(manifest.choose(dir, processor, precision)?)),
            None => None,
        };
        let graph = match &made {
            Some(made) => dir.join(&made.file),
            None => choose_graph(dir, precision)?,
        };
        let kind = config.kind().map_err(|detail| ModelError::Unsuitable {
            path: config_path.clone(),
            detail,
        })?;
        let tokenizer_hash = file_hash(&tokenizer)?;

        let mut parts = vec![config_path, tokenizer.clone()];
        if tokenizer_config_path.is_file() {
            // It decides where a text is cut.
            parts.push(tokenizer_config_path);
        }
        parts.push(graph.clone());
        match &made {
            Some(made) => parts.extend(made.data.iter().map(|name| dir.join(name))),
            None => parts.extend(external_data(&graph)?),
        }
        let mut hasher = Sha256::new();
        for path in &parts {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hash = known_hash(path)?;
            if let Some(manifest) = &manifest
                && manifest.files.get(&*name) != Some(&hash)
            {
                return Err(ModelError::Changed(path.clone()));
            }
            hasher.update(format!("{name} {hash}\n"));
        }
        if let Some(made) = &made
            && let Some(name) = graph::weights(&graph)?
                .iter()
                .find(|name| !made.data.contains(name))
        {
            let file = &made.file;
            return Err(ModelError::Manifest {
                path: dir.join(MANIFEST_FILE),
                detail: format!("it does not list `{name}`, where `{file}` has its weights"),
            });
        }
        let mut max_tokens = config.max_tokens(&tokenizer_config);
        if let (Some(manifest), Some(made)) = (&manifest, &made) {
            if !matches!(&kind, ModelKind::Nli(classes) if manifest.agrees(classes)) {
                return Err(ModelError::Manifest {
                    path: dir.join(MANIFEST_FILE),
                    detail: "its classes are not those of `config.json`; make the folder again with tools/model.py".to_owned(),
                });
            }
            max_tokens = max_tokens.min(manifest.max_tokens);
            hasher.update(made.identity(max_tokens));
        }
        // `canonicalize` gives a name to `.` and to a path that ends in `..`.
        let name = dir
            .canonicalize()
            .ok()
            .as_deref()
            .unwrap_or(dir)
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        Ok(Self {
            dir: dir.to_owned(),
            name: name.unwrap_or_else(|| "model".to_owned()),
            precision: match &made {
                Some(made) => made.precision.clone(),
                None => precision_of(&graph),
            },
            max_tokens,
            vocab_size: config.vocab_size,
            pad_id: made
                .as_ref()
                .map(|made| made.contract.pad_id)
                .or(config.pad_token_id),
            template: config.zero_shot.and_then(|z| z.hypothesis_template),
            manifest_hash: hex(&hasher.finalize()),
            tokenizer_hash,
            tokenizer,
            graph,
            kind,
            made,
        })
    }

    /// Whether a score depends on what else is in its batch: dynamic int8 has one activation scale a tensor.
    pub fn depends_on_batch(&self) -> bool {
        match &self.made {
            Some(made) => made.depends_on_batch,
            None => matches!(self.precision.as_str(), "int8" | "uint8"),
        }
    }
}

impl Config {
    fn kind(&self) -> Result<ModelKind, String> {
        match &self.zero_shot {
            Some(block) if block.mode == "embedding" => block.embedding().map(ModelKind::Embedding),
            Some(block) if block.mode != "nli" => Err(format!(
                "`zero_shot.mode` is `{}`; topicmill knows `embedding` and `nli`",
                block.mode
            )),
            _ => self.nli().map(ModelKind::Nli),
        }
    }

    fn nli(&self) -> Result<NliClasses, String> {
        let classes = self.classes()?;
        let names = || {
            classes
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (_, entailment) =
            classes.iter().find(|(name, _)| name.to_lowercase().starts_with("entail")).ok_or_else(|| {
                format!(
                    "none of its classes ({}) is called `entailment`; take a model trained on NLI, such as facebook/bart-large-mnli, or correct `label2id`",
                    names()
                )
            })?;
        let count = classes.len();
        if !(2..=3).contains(&count) || *entailment >= count {
            return Err(format!(
                "its classes ({}) are not 2 or 3 numbered from 0; correct `label2id`",
                names()
            ));
        }
        Ok(NliClasses::of(count, *entailment))
    }

    /// (name, index) of each class, in the order of `label2id`, which is where the reference looks.
    fn classes(&self) -> Result<Vec<(String, usize)>, String> {
        let pairs: Option<Vec<_>> = match (&self.label2id, &self.id2label) {
            (Some(map), _) => map
                .iter()
                .map(|(name, id)| Some((name.clone(), usize::try_from(id.as_u64()?).ok()?)))
                .collect(),
            (None, Some(map)) => map
                .iter()
                .map(|(id, name)| Some((name.as_str()?.to_owned(), id.parse().ok()?)))
                .collect(),
            (None, None) => {
                return Err(
                    "it has neither `label2id` nor a block `zero_shot`; take a model trained on NLI, such as facebook/bart-large-mnli".to_owned(),
                );
            }
        };
        pairs.ok_or_else(|| {
            "`label2id` or `id2label` does not map names and numbers; correct it".to_owned()
        })
    }

    fn max_tokens(&self, tokenizer: &TokenizerConfig) -> usize {
        let unused = if OFFSET_POSITIONS.contains(&self.model_type.as_str()) {
            2
        } else {
            0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and a million"
        )]
        let tokenizer = tokenizer
            .model_max_length
            .filter(|n| (1.0..NO_LIMIT).contains(n))
            .map(|n| n as usize);
        let positions = self
            .max_position_embeddings
            .map(|n| n.saturating_sub(unused));
        let own = self.zero_shot.as_ref().and_then(|z| z.max_length);
        [tokenizer, positions, own]
            .into_iter()
            .flatten()
            .filter(|n| (1..MOST_TOKENS).contains(n))
            .min()
            .unwrap_or(DEFAULT_MAX_TOKENS)
    }
}

impl ZeroShot {
    fn embedding(&self) -> Result<EmbeddingHead, String> {
        let number = |value: Option<f64>, name: &str| {
            value
                .filter(|x| x.is_finite())
                .ok_or_else(|| format!("`zero_shot.{name}` is missing; add the number"))
        };
        Ok(EmbeddingHead {
            output: self
                .output
                .clone()
                .ok_or("`zero_shot.output` is missing; add the name of the graph's output")?,
            softmax_scale: number(self.softmax_scale, "softmax_scale")?,
            sigmoid_scale: number(self.sigmoid_scale, "sigmoid_scale")?,
            sigmoid_bias: number(self.sigmoid_bias, "sigmoid_bias")?,
        })
    }
}

fn required(dir: &Path, file: &str) -> Result<PathBuf, ModelError> {
    let path = dir.join(file);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ModelError::NoFile {
            folder: dir.to_owned(),
            file: file.to_owned(),
        })
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let bytes = bounds::read(path)?;
    serde_json::from_slice(&bytes).map_err(|source| ModelError::Json {
        path: path.to_owned(),
        source,
    })
}

fn choose_graph(dir: &Path, precision: Option<&str>) -> Result<PathBuf, ModelError> {
    let folders = [dir.to_owned(), dir.join("onnx")];
    let first_of = |names: &[String]| {
        folders
            .iter()
            .flat_map(|folder| names.iter().map(|name| folder.join(name)))
            .find(|path| path.is_file())
    };
    let relative = |path: &PathBuf| path.strip_prefix(dir).unwrap_or(path).display().to_string();

    let mut found = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        found.extend(
            files_in(folder)?
                .into_iter()
                .filter(|path| path.extension().is_some_and(|e| e == "onnx")),
        );
    }
    if found.is_empty() {
        return Err(ModelError::NoFile {
            folder: dir.to_owned(),
            file: "*.onnx".to_owned(),
        });
    }
    if let Some(precision) = precision {
        let wanted = graph_names(precision);
        return first_of(&wanted).ok_or_else(|| ModelError::Precision {
            folder: dir.to_owned(),
            precision: precision.to_owned(),
            wanted,
            found: found.iter().map(relative).collect(),
        });
    }
    match (first_of(&["model.onnx".to_owned()]), found.as_slice()) {
        (Some(graph), _) => Ok(graph),
        (None, [only]) => Ok(only.clone()),
        (None, several) => Err(ModelError::Ambiguous {
            folder: dir.to_owned(),
            found: several.iter().map(relative).collect(),
        }),
    }
}

/// What the hub calls a graph of a precision.
pub fn graph_names(precision: &str) -> Vec<String> {
    match precision {
        "fp32" => vec!["model.onnx".to_owned()],
        "int8" => vec![
            "model_int8.onnx".to_owned(),
            "model_quantized.onnx".to_owned(),
        ],
        other => vec![format!("model_{other}.onnx")],
    }
}

/// Whether `config.json` of a folder describes a model that can score labels.
///
/// # Errors
/// See [`ModelError`].
pub fn check_config(dir: &Path) -> Result<(), ModelError> {
    let path = required(dir, "config.json")?;
    let config: Config = read_json(&path)?;
    config
        .kind()
        .map(|_| ())
        .map_err(|detail| ModelError::Unsuitable { path, detail })
}

/// Files of a folder, sorted by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let read = |source| ModelError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The precision that the hub's file names tell: `model_fp16.onnx` is `fp16`.
fn precision_of(graph: &Path) -> String {
    let stem = graph.file_stem().unwrap_or_default().to_string_lossy();
    match stem.strip_prefix("model_") {
        Some("quantized") => "int8".to_owned(),
        Some(word) => word.to_owned(),
        None => "fp32".to_owned(),
    }
}

/// Weights too large for the graph's own file lie beside it, in files that it names, as a rule `model.onnx.data`,
/// `model.onnx_data`, `…_data_1`.
fn external_data(graph: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let name = graph
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let folder = graph.parent().expect("the graph was found in a folder");
    let mut files = files_in(folder)?;
    files.retain(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.strip_prefix(&name)
            .is_some_and(|rest| rest.starts_with(".data") || rest.starts_with("_data"))
    });
    for name in graph::weights(graph)? {
        files.push(required(folder, &name)?);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests;
