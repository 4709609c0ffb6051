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
        least = library.min_version()
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
    UnsupportedPrecision(Rounding),
    /// The GPU asked for cannot be used.
    #[error("use CUDA device {device}: {detail}")]
    Cuda {
        /// Number of the device.
        device: u16,
        /// What is missing.
        detail: String,
    },
    /// The graph cannot be loaded.
    #[error("load the graph `{0}`: {1}; copy or export the model again")]
    Graph(PathBuf, String),
    /// OpenVINO cannot make the graph ready.
    #[error("compile the graph `{0}` with OpenVINO: {1}")]
    Compile(PathBuf, String),
    /// The graph is not at fault: there is too little memory for it.
    #[error(
        "load `{0}`: memory is short ({1}); free some or raise the limit (`ulimit -v`, or the container's)"
    )]
    Memory(PathBuf, String),
    /// The graph computes something else than the model that it was made from.
    #[error("refuse the graph `{0}`: {1}; make the folder again with tools/model.py")]
    Mismatch(PathBuf, String),
    /// The graph does not run.
    #[error("try the graph `{path}`: {source}")]
    Run {
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
    #[error("use the graph `{0}`: {1}; export the model with `optimum-cli export onnx`")]
    Contract(PathBuf, String),
}

impl OnnxError {
    /// Whether what was asked for cannot be had, rather than the model or the library being wrong.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::CpuOnly(_) | Self::UnsupportedPrecision(_))
    }
}
