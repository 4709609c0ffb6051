//! `manifest.toml`: what `tools/model.py` and `tools/train.py` write down about the graphs of a folder.
//!
//! The file says which graph is for which device, what a graph is fed, the hash of every file, and for a few
//! pairs of texts the logits that the model gives, so that a graph that computes something else is noticed.
//! tools/README.md describes each key.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;

use super::{MANIFEST_FILE, ModelError, ModelKind, Processor, bounds};

/// Entries of a session that a manifest may make: how the graph is optimised. Others name files to read and to write.
const SESSION: &str = "optimization.";
/// Kinds of model that may have a manifest.
const KINDS: [&str; 3] = ["nli", "classifier", EMBEDDING];
const EMBEDDING: &str = "embedding";
/// The only format there is.
const FORMAT: u32 = 1;

/// A manifest as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Manifest {
    format: u32,
    kind: String,
    /// Names of the classes in the order of the logits; none of an embedding model.
    pub classes: Vec<String>,
    /// Longest pair, special tokens included.
    pub max_tokens: usize,
    /// Ids are below.
    pub vocab_size: usize,
    /// SHA-256 of every other file, hex.
    pub files: BTreeMap<String, String>,
    contract: Contract,
    /// The graphs by name.
    pub graphs: BTreeMap<String, Graph>,
    #[serde(default)]
    vectors: Vec<Vector>,
}

/// What the inputs of a graph hold where the model's configuration decides it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Contract {
    /// Name of the output.
    pub output: String,
    /// Id that fills a row up to the width of its batch.
    pub pad_id: u32,
    /// Value of the input `mask` where a row is filled up.
    pub masked: f32,
    /// First id of the input `decoder_ids`, of a model that has a decoder.
    pub decoder_start_id: Option<u32>,
}

/// One graph of the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Graph {
    /// Its file, and the files of its weights.
    pub file: String,
    /// Weights that lie beside it.
    #[serde(default)]
    pub data: Vec<String>,
    /// `cpu` or `cuda`.
    pub device: String,
    /// `fp32`, `fp16` or `int8`.
    pub precision: String,
    /// How far a logit of a vector may be off.
    pub tolerance: f64,
    /// Whether a score depends on what else is in the batch.
    #[serde(default)]
    pub depends_on_batch: bool,
    /// Kinds of its nodes that a GPU has to wait for; `None` where nobody looked.
    host_ops: Option<Vec<String>>,
    /// Entries of the session's configuration.
    #[serde(default)]
    pub session: BTreeMap<String, String>,
}

/// A pair of texts, or for other models than NLI one text, with what the model says of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Vector {
    /// First text.
    pub premise: String,
    /// Second text, made from a label; empty where the model reads one text.
    #[serde(default)]
    pub hypothesis: String,
    /// Ids of the row, special tokens included.
    pub input_ids: Vec<u32>,
    /// Which text an id belongs to; empty where the model does not ask.
    #[serde(default)]
    pub token_type_ids: Vec<u32>,
    /// Logits of the original model in float32, one a class; of an embedding model the vector of the text.
    pub logits: Vec<f32>,
}

/// What a manifest says of the graph that was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// Name of the graph, as `cpu-fp32`.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// What it is fed.
    pub contract: Contract,
    /// What it must say.
    pub vectors: Vec<Vector>,
}

impl Manifest {
    /// The manifest of a folder that has one.
    ///
    /// # Errors
    /// [`ModelError::File`].
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

    /// Reads and checks what a manifest says of itself.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The format alone first: of another one, a key that is missing would be told as a mistake.
        let format = toml::from_str::<Format>(text).map_err(|error| said(&error))?;
        if format.format != FORMAT {
            return Err(format!(
                "its format is {}, and this version of topicmill knows {FORMAT}; make the folder again with tools/model.py",
                format.format
            ));
        }
        let manifest: Self = toml::from_str(text).map_err(|error| said(&error))?;
        if !KINDS.contains(&manifest.kind.as_str()) {
            return Err(format!(
                "its kind is `{}`; only {} have a manifest",
                manifest.kind,
                KINDS.join(", ")
            ));
        }
        let names = manifest.graphs.values().flat_map(Graph::files);
        if let Some(name) = names
            .chain(manifest.files.keys().map(String::as_str))
            .find(|name| !is_plain(name))
        {
            return Err(format!(
                "`{name}` is not the name of a file in the same folder"
            ));
        }
        let mut entries = manifest
            .graphs
            .values()
            .flat_map(|graph| graph.session.keys());
        // Other entries could make the runtime load a library or write a file.
        if let Some(key) = entries.find(|key| !key.starts_with(SESSION)) {
            return Err(format!(
                "its entry `{key}` of `session` is none of those that begin with `{SESSION}`"
            ));
        }
        for (number, vector) in (1..).zip(&manifest.vectors) {
            manifest
                .check_vector(vector)
                .map_err(|problem| format!("vector {number} {problem}"))?;
        }
        if manifest.vectors.is_empty() {
            return Err("it has no `[[vectors]]` to check a graph with".to_owned());
        }
        Ok(manifest)
    }

    fn check_vector(&self, vector: &Vector) -> Result<(), &'static str> {
        let ids = &vector.input_ids;
        let known = |id: &u32| usize::try_from(*id).is_ok_and(|id| id < self.vocab_size);
        let width = match self.kind.as_str() {
            EMBEDDING => self.vectors[0].logits.len(),
            _ => self.classes.len(),
        };
        if vector.logits.len() != width {
            return Err("has not one logit a class, or not as many numbers as the first");
        }
        if !vector.token_type_ids.is_empty() && vector.token_type_ids.len() != ids.len() {
            return Err("has not one type id a token");
        }
        if ids.is_empty() || ids.len() > self.max_tokens || !ids.iter().all(known) {
            return Err("has ids that the model cannot read");
        }
        Ok(())
    }

    /// One of [`KINDS`].
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether kind and classes are those of `config.json`.
    pub(super) fn agrees(&self, kind: &ModelKind) -> bool {
        match kind {
            ModelKind::Nli(classes) => {
                let entailment = self.classes.get(classes.entailment);
                self.kind == kind.as_str()
                    && self.classes.len() == classes.count
                    && entailment.is_some_and(|name| name.to_lowercase().starts_with("entail"))
            }
            ModelKind::Classifier(head) => {
                self.kind == kind.as_str() && self.classes == head.labels
            }
            ModelKind::Embedding(head) => {
                self.kind == kind.as_str() && self.contract.output == head.output
            }
        }
    }

    /// The graph for a device: of the precision asked for, or float32 on a CPU and float16 on a GPU.
    pub(super) fn choose(
        &self,
        dir: &Path,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<&str, ModelError> {
        let here: Vec<(&String, &Graph)> = self
            .graphs
            .iter()
            .filter(|(_, graph)| {
                graph.device == processor.as_str() && dir.join(&graph.file).is_file()
            })
            .collect();
        let of = |wanted: &str| here.iter().find(|(_, graph)| graph.precision == wanted);
        let found = match (precision, processor) {
            (Some(precision), _) => of(precision),
            (None, Processor::Cuda) => of("fp16").or_else(|| of("fp32")),
            (None, Processor::Cpu) => of("fp32"),
        };
        found.map(|(name, _)| name.as_str()).ok_or_else(|| {
            let is_here = |graph: &Graph| dir.join(&graph.file).is_file();
            let found = self.graphs.iter().filter(|(_, graph)| is_here(graph));
            let found: Vec<&str> = found.map(|(name, _)| name.as_str()).collect();
            ModelError::NoGraph(format!(
                "the model folder `{}` has no graph for {processor} in {} (there is {})",
                dir.display(),
                precision.unwrap_or("fp32 or fp16"),
                found.join(", ")
            ))
        })
    }

    /// What it says of one of its graphs.
    pub(super) fn made(&self, name: &str) -> Made {
        Made {
            name: name.to_owned(),
            graph: self.graphs[name].clone(),
            contract: self.contract.clone(),
            vectors: self.vectors.clone(),
        }
    }
}

impl Graph {
    /// Whether it was made so that a GPU computes every one of its nodes.
    pub(crate) fn is_whole_on_gpu(&self) -> bool {
        self.host_ops.as_ref().is_some_and(Vec::is_empty)
    }

    /// The file of the graph and those of its weights.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.file)
            .chain(&self.data)
            .map(String::as_str)
    }
}

impl Made {
    /// What of the manifest decides a score, in one line.
    pub(super) fn identity(&self, max_tokens: usize) -> String {
        let Contract { output, pad_id, .. } = &self.contract;
        let (masked, start) = (self.contract.masked, self.contract.decoder_start_id);
        let session: Vec<String> = self
            .graph
            .session
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        format!(
            "{output} {pad_id} {masked} {start:?} {max_tokens} {}",
            session.join(" ")
        )
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// An error of the parser in one line.
fn said(error: &toml::de::Error) -> String {
    error.message().replace('\n', "; ")
}

/// Whether a name is that of a file in the folder of the manifest.
fn is_plain(name: &str) -> bool {
    // `Path` takes `a/`, `a/.` and `a` for the same.
    let mut parts = Path::new(name).components();
    let first = parts.next();
    first == Some(Component::Normal(name.as_ref())) && !name.contains('\0')
}
