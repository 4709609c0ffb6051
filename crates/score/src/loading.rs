//! Options, results and errors of loading a model, the same for each inference library.

use std::path::{Path, PathBuf};

use crate::device::{Device, EngineName};
use crate::engine::{Engine, EngineError, is_out_of_memory};
use crate::folder::{ModelError, Rounding};
use crate::library::{FoundBy, Library};
use topicmill_core::FailureKind;

/// Options for loading a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The device to compute on.
    pub device: Device,
    /// Number of threads that compute a batch on a CPU; `None` for one per available core.
    pub threads: Option<usize>,
    /// Path to the ONNX Runtime library; `None` to search for it, see [`library`](crate::library).
    pub library: Option<PathBuf>,
    /// The inference library.
    pub engine: EngineName,
    /// Path to the OpenVINO library; `None` to search for it.
    pub openvino: Option<PathBuf>,
}

impl EngineOptions {
    /// Returns the number of threads that compute a batch on a CPU.
    pub(crate) fn thread_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.filter(|n| *n > 0).unwrap_or_else(cores)
    }
}

/// The device of a loaded model, and the reason why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// User-facing reason: `as requested`, `no CUDA in this ONNX Runtime`, …
    pub reason: String,
}

impl DeviceChoice {
    pub(crate) fn new(device: Device, reason: &str) -> Self {
        let reason = reason.to_owned();
        Self { device, reason }
    }
}

/// A loaded engine of either library, and what it runs on.
pub struct OpenedEngine {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// The inference library.
    pub library: Library,
    /// The device, and the reason why it was chosen.
    pub chosen: DeviceChoice,
    /// Number of threads that compute a batch.
    pub threads: usize,
    /// The library and its version, to distinguish measurements made with different versions.
    pub runtime: String,
}

/// Reasons why a model or its inference library cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library was not found anywhere.
    #[error(
        "cannot find {library}: no library in a `.venv` next to the program or in its repository, in the program's \
         prefix (Python packages, `lib/topicmill`), in this user's data folder, in the `.venv` of the current folder, \
         or in the system's library path ({tried})"
    )]
    NotFound {
        /// The library.
        library: Library,
        /// The candidates that were rejected, and why.
        tried: String,
    },
    /// The library is not at the given path.
    #[error("cannot load {library}: `{path}`, given by {by}, is not a file")]
    Missing {
        /// The library.
        library: Library,
        /// The file.
        path: PathBuf,
        /// Origin of the path.
        by: FoundBy,
    },
    /// The file is not this library, or is too old or damaged.
    #[error(
        "cannot load {library} from `{path}`: not a library of version {least} or later ({detail})",
        least = library.min_version()
    )]
    Load {
        /// The library.
        library: Library,
        /// The file.
        path: PathBuf,
        /// The loader's message.
        detail: String,
    },
    /// The library depends on another one that this system lacks.
    #[error(
        "cannot load {library} from `{path}`: it needs `{dependency}`, which is not on this system"
    )]
    Dependency {
        /// The library.
        library: Library,
        /// The file.
        path: PathBuf,
        /// File name of the missing library.
        dependency: String,
    },
    /// The library cannot be initialised.
    #[error("cannot start {library}: {detail}")]
    Start {
        /// The library.
        library: Library,
        /// The cause.
        detail: String,
    },
    /// OpenVINO is used for CPUs only.
    #[error("cannot compute on {0}: OpenVINO is used for CPUs only")]
    CpuOnly(Device),
    /// ONNX Runtime has no reduced-precision modes.
    #[error(
        "cannot compute in {0} with ONNX Runtime: only OpenVINO supports this precision on a CPU"
    )]
    UnsupportedPrecision(Rounding),
    /// The requested GPU cannot be used.
    #[error("cannot use CUDA device {device}: {detail}")]
    Cuda {
        /// Device number.
        device: u16,
        /// The cause.
        detail: String,
    },
    /// The graph cannot be loaded.
    #[error("cannot load the graph `{0}`: {1}; copy or export the model again")]
    Graph(PathBuf, String),
    /// OpenVINO cannot compile the graph.
    #[error("cannot compile the graph `{0}` with OpenVINO: {1}")]
    Compile(PathBuf, String),
    /// There is not enough memory to load the file.
    #[error(
        "cannot load `{0}`: out of memory ({1}); free memory, or raise the limit (`ulimit -v` or the container's)"
    )]
    Memory(PathBuf, String),
    /// The graph differs from the model that it was built from.
    #[error("cannot use the graph `{0}`: {1}; build the folder again with tools/model.py")]
    Mismatch(PathBuf, String),
    /// The graph fails at run time.
    #[error("cannot run the graph `{path}`: {source}")]
    Run {
        /// The graph file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: EngineError,
    },
    /// Invalid model folder.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// The graph does not have the inputs or outputs of a text model.
    #[error("cannot use the graph `{0}`: {1}; export the model with `optimum-cli export onnx`")]
    Contract(PathBuf, String),
}

impl LoadError {
    /// Returns the kind of the error: whether the request, or the model or its library, is at fault.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::CpuOnly(_) | Self::UnsupportedPrecision(_) => FailureKind::Usage,
            _ => FailureKind::Model,
        }
    }

    /// Returns the error for a file that does not load: there is too little memory, or what `other` returns.
    pub(crate) fn of_file(
        path: &Path,
        detail: String,
        other: impl FnOnce(PathBuf, String) -> Self,
    ) -> Self {
        let is_memory = is_out_of_memory(&detail);
        let path = path.to_owned();
        if is_memory {
            Self::Memory(path, detail)
        } else {
            other(path, detail)
        }
    }

    /// Returns the error for a library that does not load: it is the wrong file, a library that it needs is missing, or
    /// there is too little memory.
    pub(crate) fn of_library(library: Library, path: &Path, detail: String) -> Self {
        Self::of_file(path, detail, |path, detail| {
            match missing_dependency(&path, &detail).map(str::to_owned) {
                Some(dependency) => Self::Dependency {
                    library,
                    path,
                    dependency,
                },
                None => Self::Load {
                    library,
                    path,
                    detail,
                },
            }
        })
    }
}

/// Returns the library that the loader did not find, if it is not `path` itself.
fn missing_dependency<'m>(path: &Path, message: &'m str) -> Option<&'m str> {
    let (name, _) = message.split_once(": cannot open shared object file")?;
    (Path::new(name) != path && !name.contains('/')).then_some(name)
}
