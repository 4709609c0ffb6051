//! ONNX Runtime's library, loaded once a process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider};
use ort::logging::LogLevel;

use super::library::{FoundBy, Library, load_error, locate_and_load};
use super::{OnnxError, is_out_of_memory};

const LIBRARY: Library = Library::OnnxRuntime;

/// ONNX Runtime, loaded.
#[derive(Debug)]
pub struct Runtime {
    pub(super) environment: Environment,
    library: PathBuf,
    found_by: FoundBy,
}

impl Runtime {
    /// The file it was loaded from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Why that file.
    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }

    /// Told from other versions of it: name and size of its file.
    pub fn fingerprint(&self) -> String {
        let file = std::fs::canonicalize(&self.library).unwrap_or_else(|_| self.library.clone());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        format!("{name} of {bytes} bytes")
    }

    /// Whether it was built for CUDA; says nothing of a GPU being there.
    pub fn has_cuda(&self) -> bool {
        ep::CUDA::is_available().unwrap_or(false)
    }
}

/// Loads ONNX Runtime; `asked` is where it should be, where the caller knows. A process has one: later calls give the first. Its telemetry
/// is off only where `ORT_DISABLE_TELEMETRY` is set by then: the program's `main` does it, other callers have to.
///
/// # Errors
/// [`OnnxError::NotFound`], [`OnnxError::Missing`], [`OnnxError::Load`], [`OnnxError::Start`].
pub fn load_runtime(asked: Option<&Path>) -> Result<&'static Runtime, OnnxError> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    // `OnceLock` has no way to begin that may fail, so a lock keeps two threads from loading the library at once.
    static LOADING: Mutex<()> = Mutex::new(());

    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let variable = std::env::var_os("ORT_DYLIB_PATH");
    let load = |path: &Path| {
        // Display says too little of a failed dlopen.
        ort::init_from(path).map_err(|e| load_error(LIBRARY, path, format!("{e:?}")))
    };
    let (builder, library, found_by) = locate_and_load(LIBRARY, asked, variable, load)?;
    let start = |e: ort::Error| {
        let (path, detail) = (library.clone(), strip_location(&e.to_string()));
        if is_out_of_memory(&detail) {
            OnnxError::Memory(path, detail)
        } else {
            OnnxError::Start {
                library: LIBRARY,
                detail,
            }
        }
    };
    let environment = builder
        .with_name("topicmill")
        .with_telemetry(false)
        .build()
        .map_err(start)?;
    environment.set_log_level(LogLevel::Warning);
    Ok(RUNTIME.get_or_init(|| Runtime {
        environment,
        library,
        found_by,
    }))
}

/// The runtime's words without the place in its source and what follows the first line.
pub(super) fn strip_location(message: &str) -> String {
    let message = message
        .split_once("[ONNXRuntimeError] : ")
        .map_or(message, |(_, rest)| rest);
    let message = message
        .split_once(" : FAIL : ")
        .map_or(message, |(_, rest)| rest);
    message.lines().next().unwrap_or_default().trim().to_owned()
}
