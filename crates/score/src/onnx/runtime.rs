//! Loads ONNX Runtime, once per process.

use std::error::Error;
use std::path::{Path, PathBuf};

use ort::environment::{Environment, EnvironmentBuilder};
use ort::ep::{self, ExecutionProvider};
use ort::logging::LogLevel;

use crate::library::{FoundBy, Library, LoadOnce, locate_and_load};
use crate::loading::LoadError;

const LIBRARY: Library = Library::OnnxRuntime;

/// The loaded ONNX Runtime.
#[derive(Debug)]
pub struct Runtime {
    pub(super) environment: Environment,
    library: PathBuf,
    found_by: FoundBy,
}

impl Runtime {
    /// Returns the path to the library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Returns the origin of the path.
    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }

    /// Returns the library file's name and size, which differ between versions.
    pub fn fingerprint(&self) -> String {
        let file = std::fs::canonicalize(&self.library).unwrap_or_else(|_| self.library.clone());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        format!("{name} of {bytes} bytes")
    }

    /// Returns true if the library was built with CUDA; there may still be no GPU.
    pub fn has_cuda(&self) -> bool {
        ep::CUDA::is_available().unwrap_or(false)
    }
}

/// Loads ONNX Runtime from `asked`, or from where the search finds it. Later calls in the process return the library
/// that the first call loaded. Callers must set the environment variable `ORT_DISABLE_TELEMETRY` first, as the program
/// does in `main`, because the API call does not turn off all telemetry.
///
/// # Errors
/// See [`LoadError`].
pub fn load_runtime(asked: Option<&Path>) -> Result<&'static Runtime, LoadError> {
    static RUNTIME: LoadOnce<Runtime> = LoadOnce::new();
    RUNTIME.get_or_load(|| start_runtime(asked))
}

/// Loads the library and starts its environment.
fn start_runtime(asked: Option<&Path>) -> Result<Runtime, LoadError> {
    let variable = std::env::var_os("ORT_DYLIB_PATH");
    let loaded = locate_and_load(LIBRARY, asked, variable, load)?;
    let environment = loaded
        .value
        .with_name("topicmill")
        .with_telemetry(false)
        .build()
        .map_err(|error| {
            let detail = strip_location(&error.to_string());
            LoadError::of_file(&loaded.path, detail, |_, detail| LoadError::Start {
                library: LIBRARY,
                detail,
            })
        })?;
    environment.set_log_level(LogLevel::Warning);
    Ok(Runtime {
        environment,
        library: loaded.path,
        found_by: loaded.found_by,
    })
}

fn load(path: &Path) -> Result<EnvironmentBuilder, LoadError> {
    // `ort` searches for a relative path next to the program, and panics if the program's path is unknown.
    if path.is_relative()
        && let Err(error) = std::env::current_exe()
    {
        let detail =
            format!("the system does not show the path of the program ({error}): mount /proc");
        return Err(LoadError::of_library(LIBRARY, path, detail));
    }
    ort::init_from(path).map_err(|error| {
        // The `Display` of a failed dlopen omits the loader's message.
        let message = match &error {
            ort::LoadDynamicError::Dlopen { error, .. } => error.source().map(ToString::to_string),
            _ => None,
        };
        let detail = message.unwrap_or_else(|| error.to_string());
        LoadError::of_library(LIBRARY, path, detail)
    })
}

/// Strips the source location and all but the first line from a runtime message.
pub(super) fn strip_location(message: &str) -> String {
    let message = message
        .split_once("[ONNXRuntimeError] : ")
        .map_or(message, |(_, rest)| rest);
    let message = message
        .split_once(" : FAIL : ")
        .map_or(message, |(_, rest)| rest);
    message.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_locations_are_stripped_from_runtime_messages() {
        let message = "/src/bridge.cc:2043 Provider& Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so\nmore\n";
        assert_eq!(strip_location(message), "Failed to load x.so");
        let plain = "Load model from m.onnx failed";
        assert_eq!(strip_location(plain), plain);
    }
}
