//! Why there is no engine, in words for people.

use std::path::PathBuf;

use super::library::{FoundBy, Library};
use crate::engine::{Device, EngineError};
use crate::folder::{ModelError, Rounding};

/// Why an ONNX model, or the library that computes it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// There is no library anywhere.
    #[error(
        "find {library}: no library in a `.venv` beside the program or in its repository, nor among the Python packages beside it, nor in `lib/topicmill` there, nor in this user's data folder, nor in the `.venv` of the current folder, nor where the system looks ({tried})"
    )]
    NotFound {
        /// Which one.
        library: Library,
        /// What was tried last.
        tried: String,
    },
    /// There is no library where there should be one.
    #[error("load {library}: {by} says `{path}`, which is no file")]
    Missing {
        /// Which one.
        library: Library,
        /// The file.
        path: PathBuf,
        /// Who says so.
        by: FoundBy,
    },
    /// The library is another one, too old, or damaged.
    #[error(
        "load {library} from `{path}`: not a library of version {least} or later ({detail})",
        least = library.least_version()
    )]
    Load {
        /// Which one.
        library: Library,
        /// The file.
        path: PathBuf,
        /// What the loader said.
        detail: String,
    },
    /// The library does not start.
    #[error("start {library}: {detail}")]
    Start {
        /// Which one.
        library: Library,
        /// What it said, or what it lacks.
        detail: String,
    },
    /// OpenVINO computes on CPUs here.
    #[error("compute on {0}: OpenVINO is used for CPUs only")]
    CpuOnly(Device),
    /// ONNX Runtime rounds nothing that a graph does not say.
    #[error(
        "compute in {0} with ONNX Runtime: it has no such arithmetic on a CPU, and OpenVINO has"
    )]
    NoRounding(Rounding),
    /// The GPU asked for cannot be used.
    #[error("use CUDA device {device}: {detail}")]
    Cuda {
        /// Number of the device.
        device: u16,
        /// What is missing.
        detail: String,
    },
    /// The graph cannot be loaded.
    #[error("load the graph `{path}`: {detail}; copy or export the model again")]
    Graph {
        /// The file.
        path: PathBuf,
        /// What the runtime said.
        detail: String,
    },
    /// OpenVINO cannot make the graph ready.
    #[error("compile the graph `{path}` with OpenVINO: {detail}")]
    Uncompiled {
        /// The file.
        path: PathBuf,
        /// What OpenVINO said.
        detail: String,
    },
    /// The graph is not at fault: there is too little memory for it.
    #[error(
        "load `{path}`: memory is short ({detail}); free some or raise the limit (`ulimit -v`, or the container's)"
    )]
    Memory {
        /// The file.
        path: PathBuf,
        /// What the runtime said.
        detail: String,
    },
    /// The graph computes something else than the model that it was made from.
    #[error(
        "refuse the graph `{path}`: its logits are {error:.2} off those that `manifest.toml` records, and {tolerance:.2e} is allowed; make the folder again with tools/model.py"
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Largest error seen.
        error: f64,
        /// Largest error allowed.
        tolerance: f64,
    },
    /// The graph does not run.
    #[error("try the graph `{path}`: {source}")]
    Try {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: EngineError,
    },
    /// The folder.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// The graph wants or gives something else than text models do.
    #[error("use the graph `{path}`: {detail}; export the model with `optimum-cli export onnx`")]
    Contract {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        detail: String,
    },
}
