//! Reads `manifest.toml`, which `tools/model.py` and `tools/train.py` write.
//!
//! The manifest contains the device, the precision and the inputs of each graph, the hash of every file, and reference
//! logits for a few texts or pairs of texts, which reveal a graph that computes something different.
//! tools/README.md documents the keys.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;

use super::config::is_entailment;
use super::{MANIFEST_FILE, ModelError, ModelKind, Processor, bounds};

/// Prefix of the session options that a manifest may set. Other options can make the runtime read or write files.
const SESSION: &str = "optimization.";
/// Kinds of models that may have a manifest.
const KINDS: [&str; 4] = ["nli", "classifier", EMBEDDING, GLICLASS];
const EMBEDDING: &str = "embedding";
const GLICLASS: &str = "gliclass";
/// The only supported format version.
const FORMAT: u32 = 1;

/// A parsed manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Manifest {
    format: u32,
    kind: String,
    /// Class names in the order of the logits; empty for an embedding model and for GLiClass.
    pub classes: Vec<String>,
    /// Token limit for a sequence, including special tokens.
    pub max_tokens: usize,
    /// Vocabulary size; all ids are below it.
    pub vocab_size: usize,
    /// Hex SHA-256 of every other file.
    pub files: BTreeMap<String, String>,
    contract: Contract,
    /// The graphs, by name.
    pub graphs: BTreeMap<String, Graph>,
    #[serde(default)]
    vectors: Vec<Vector>,
}

/// Input parameters from the model's configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Contract {
    /// The output's name.
    pub output: String,
    /// Padding id.
    pub pad_id: u32,
    /// Value for padding in the `mask` input.
    pub masked: f32,
    /// First id in the `decoder_ids` input, for a model with a decoder.
    pub decoder_start_id: Option<u32>,
}

/// One graph in the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Graph {
    /// The graph file.
    pub file: String,
    /// External weights files.
    #[serde(default)]
    pub data: Vec<String>,
    /// The processor that the graph is built for.
    pub device: Processor,
    /// `fp32`, `fp16` or `int8`.
    pub precision: String,
    /// Maximum difference allowed between a logit and its reference.
    pub tolerance: f64,
    /// True if a score depends on the other rows of its batch.
    #[serde(default)]
    pub depends_on_batch: bool,
    /// Operators that run on the CPU when the graph runs on a GPU; `None` if not recorded.
    host_ops: Option<Vec<String>>,
    /// Session options.
    #[serde(default)]
    pub session: BTreeMap<String, String>,
}

/// A reference vector: a text, or a pair of texts for NLI, with the model's logits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Vector {
    /// First text.
    pub premise: String,
    /// Second text, made from a label; empty if the model reads one text.
    #[serde(default)]
    pub hypothesis: String,
    /// The labels in the prompt, for GLiClass.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Token ids in the row, including special tokens.
    pub input_ids: Vec<u32>,
    /// Type ids in the row; empty if the model does not read them.
    #[serde(default)]
    pub token_type_ids: Vec<u32>,
    /// Logits from the original model in float32, one per class or label; for an embedding model, the text's vector.
    pub logits: Vec<f32>,
}

/// The manifest's entry for the selected graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphSpec {
    /// The graph's name, such as `cpu-fp32`.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// Input parameters.
    pub contract: Contract,
    /// Reference vectors.
    pub vectors: Vec<Vector>,
}

impl Manifest {
    /// Reads a folder's manifest if it has one.
    ///
    /// # Errors
    /// Returns [`ModelError::File`].
    pub fn read(dir: &Path) -> Result<Option<Self>, ModelError> {
        let path = dir.join(MANIFEST_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let bytes = bounds::read(&path)?;
        std::str::from_utf8(&bytes)
            .map_err(|error| error.to_string())
            .and_then(Self::parse)
            .map(Some)
            .map_err(|detail| ModelError::manifest(dir, detail))
    }

    /// Parses a manifest and checks that it is consistent.
    ///
    /// # Errors
    /// Returns a description of the first problem, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The format version is checked first: in a different version, a missing key is not a mistake.
        let format = toml::from_str::<Format>(text).map_err(|error| one_line(&error))?;
        if format.format != FORMAT {
            return Err(format!(
                "its format is {}, but this version of topicmill supports {FORMAT}; build the folder again with \
                 tools/model.py",
                format.format
            ));
        }
        let manifest: Self = toml::from_str(text).map_err(|error| one_line(&error))?;
        if !KINDS.contains(&manifest.kind.as_str()) {
            return Err(format!(
                "its kind is `{}`; supported kinds are {}",
                manifest.kind,
                KINDS.join(", ")
            ));
        }
        let graph_files = manifest.graphs.values().flat_map(Graph::files);
        let other_files = manifest.files.keys().map(String::as_str);
        if let Some(name) = graph_files.chain(other_files).find(|name| !is_plain(name)) {
            let text = format!("`{name}` is not the name of a file in the same folder");
            return Err(text);
        }
        let graphs = manifest.graphs.values();
        let mut options = graphs.flat_map(|graph| graph.session.keys());
        // Other options could make the runtime load a library or write a file.
        if let Some(key) = options.find(|key| !key.starts_with(SESSION)) {
            return Err(format!(
                "its `session` option `{key}` is not allowed; only options that begin with `{SESSION}` are"
            ));
        }
        for (number, vector) in (1..).zip(&manifest.vectors) {
            manifest
                .check_vector(vector)
                .map_err(|problem| format!("vector {number} {problem}"))?;
        }
        if manifest.vectors.is_empty() {
            return Err("it has no `[[vectors]]` to check a graph against".to_owned());
        }
        Ok(manifest)
    }

    fn check_vector(&self, vector: &Vector) -> Result<(), &'static str> {
        let ids = &vector.input_ids;
        let known = |id: &u32| usize::try_from(*id).is_ok_and(|id| id < self.vocab_size);
        let width = match self.kind.as_str() {
            EMBEDDING => self.vectors[0].logits.len(),
            // The graph is checked with one batch, so all vectors must have the same number of labels.
            GLICLASS => self.vectors[0].labels.len(),
            _ => self.classes.len(),
        };
        if vector.logits.len() != width {
            return Err("needs one logit per class or label, or as many as vector 1");
        }
        if !vector.token_type_ids.is_empty() && vector.token_type_ids.len() != ids.len() {
            return Err("does not have one type id per token");
        }
        if ids.is_empty() || ids.len() > self.max_tokens || !ids.iter().all(known) {
            return Err("has ids outside the vocabulary, too many ids, or none");
        }
        Ok(())
    }

    /// Returns the kind of the model, one of [`KINDS`].
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns true if the kind, the classes and the output match `config.json`.
    pub(super) fn agrees(&self, kind: &ModelKind) -> bool {
        let same_head = match kind {
            ModelKind::Nli(classes) => {
                let entailment = self.classes.get(classes.entailment);
                self.classes.len() == classes.count
                    && entailment.is_some_and(|name| is_entailment(name))
            }
            ModelKind::Classifier(head) => self.classes == head.labels,
            ModelKind::Embedding(head) => self.contract.output == head.output,
            ModelKind::Gliclass(_) => true,
        };
        self.kind == kind.as_str() && same_head
    }

    /// Selects the entry of the graph for a device, in the given precision; the default is float32 on a CPU and float16
    /// on a GPU.
    pub(super) fn choose(
        &self,
        dir: &Path,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<GraphSpec, ModelError> {
        let is_present = |(_, graph): &(&String, &Graph)| dir.join(&graph.file).is_file();
        let present: Vec<_> = self.graphs.iter().filter(is_present).collect();
        let with_precision = |precision: &str| {
            let mut graphs = present.iter();
            graphs.find(|(_, graph)| graph.device == processor && graph.precision == precision)
        };
        let chosen = match (precision, processor) {
            (Some(precision), _) => with_precision(precision),
            (None, Processor::Cuda) => with_precision("fp16").or_else(|| with_precision("fp32")),
            (None, Processor::Cpu) => with_precision("fp32"),
        };
        let Some((name, graph)) = chosen else {
            let names: Vec<&str> = present.iter().map(|(name, _)| name.as_str()).collect();
            return Err(ModelError::NoGraph(format!(
                "the model folder `{}` has no graph for {processor} in {} (there is {})",
                dir.display(),
                precision.unwrap_or("fp32 or fp16"),
                names.join(", ")
            )));
        };
        Ok(GraphSpec {
            name: (*name).clone(),
            graph: (*graph).clone(),
            contract: self.contract.clone(),
            vectors: self.vectors.clone(),
        })
    }
}

impl Graph {
    /// Returns true if the graph was built so that a GPU runs all of its nodes.
    pub(crate) fn is_whole_on_gpu(&self) -> bool {
        self.host_ops.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns the graph file and its weights files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.file)
            .chain(&self.data)
            .map(String::as_str)
    }
}

impl GraphSpec {
    /// Returns, in one line, the settings that affect scores, for the model's hash.
    pub(super) fn identity(&self, max_tokens: usize) -> String {
        let Contract { output, pad_id, .. } = &self.contract;
        let (masked, start) = (self.contract.masked, self.contract.decoder_start_id);
        let entries = self.graph.session.iter();
        let session: Vec<String> = entries.map(|(k, v)| format!("{k}={v}")).collect();
        let session = session.join(" ");
        format!("{output} {pad_id} {masked} {start:?} {max_tokens} {session}")
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Returns the message from a parser error in one line.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', "; ")
}

/// Returns true for a plain file name, so that the file can only be in the manifest's folder.
fn is_plain(name: &str) -> bool {
    // `Path` treats `a/`, `a/.` and `a` as equal.
    let mut parts = Path::new(name).components();
    let first = parts.next();
    first == Some(Component::Normal(name.as_ref())) && !name.contains('\0')
}
