//! Why a folder is not a model.

use std::io;
use std::path::PathBuf;

use super::Processor;

/// Why a folder is not a model that topicmill can use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// A graph that is not computed in the precision asked for.
    #[error("compute the graph `{path}` in {precision}: {detail}")]
    OfAnother {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        precision: String,
        /// Why not.
        detail: &'static str,
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
    /// Learned label vectors that cannot be used.
    #[error(
        "use the label vectors in `{path}`: {detail}; make the file again, or take `label_vectors` out of the block \
         `zero_shot` of `config.json` to compare labels by their words"
    )]
    LabelVectors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
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
    #[error("`{path}` describes no model that can score labels: {detail}")]
    Unsuitable {
        /// The configuration.
        path: PathBuf,
        /// What is missing, and what to do.
        detail: String,
    },
}
