//! Loads OpenVINO, once per process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ::openvino::{CompiledModel, Core, DeviceType, InferenceError, PropertyKey, RwPropertyKey};
use openvino_sys::library as c_library;

use crate::folder::Rounding;
use crate::library::{FoundBy, Library, LoadOnce, locate_and_load};
use crate::loading::LoadError;

const LIBRARY: Library = Library::OpenVino;
/// A function that every version of the library exports; it identifies the file.
const MARKER_SYMBOL: &[u8] = b"ov_get_openvino_version";
/// Size of the kernel cache, in shapes: batches have hundreds of shapes, and each kernel takes memory.
const KERNEL_CACHE_SHAPES: &str = "128";

/// The loaded OpenVINO.
pub struct OpenVino {
    /// Shared by all engines, along with their compiled weights.
    core: Mutex<Core>,
    library: PathBuf,
    found_by: FoundBy,
    version: String,
    has_bf16: bool,
}

impl OpenVino {
    /// Returns the path to the library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Returns the origin of the path.
    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }

    /// Returns the release, such as `2026.4.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the name and version.
    pub fn fingerprint(&self) -> String {
        format!("OpenVINO {}", self.version)
    }

    /// Returns true if this CPU has bfloat16 instructions.
    pub fn has_bf16(&self) -> bool {
        self.has_bf16
    }

    /// Compiles a graph for this CPU.
    pub(super) fn compile(
        &self,
        graph: &str,
        threads: usize,
        rounding: Rounding,
    ) -> Result<CompiledModel, InferenceError> {
        let other = |key: &'static str| RwPropertyKey::Other(key.into());
        let threads = threads.to_string();
        let group = rounding.group().unwrap_or_default().to_string();
        let properties = [
            // Always set: the default is bfloat16 if the CPU supports it.
            (
                RwPropertyKey::HintInferencePrecision,
                if rounding.is_bf16() { "bf16" } else { "f32" },
            ),
            // By default, activations are rounded to 8 bits in products with 8-bit weights; 0 disables this.
            (other("DYNAMIC_QUANTIZATION_GROUP_SIZE"), group.as_str()),
            (RwPropertyKey::NumStreams, "1"),
            (RwPropertyKey::InferenceNumThreads, threads.as_str()),
            // Threads are not pinned, because other threads run concurrently and a container may move threads between
            // cores.
            (RwPropertyKey::HintEnableCpuPinning, "NO"),
            (RwPropertyKey::HintSchedulingCoreType, "ANY_CORE"),
            (other("CPU_RUNTIME_CACHE_CAPACITY"), KERNEL_CACHE_SHAPES),
        ];
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.set_properties(&DeviceType::CPU, properties)?;
        let model = core.read_model_from_file(graph, "")?;
        core.compile_model(&model, DeviceType::CPU)
    }
}

/// Loads OpenVINO from `asked`, or from where the search finds it. Later calls in the process return the library that
/// the first call loaded.
///
/// # Errors
/// See [`LoadError`].
pub fn load_openvino(asked: Option<&Path>) -> Result<&'static OpenVino, LoadError> {
    static RUNTIME: LoadOnce<OpenVino> = LoadOnce::new();
    RUNTIME.get_or_load(|| start_openvino(asked))
}

/// Loads the library and starts its CPU plugin.
fn start_openvino(asked: Option<&Path>) -> Result<OpenVino, LoadError> {
    if !is_cpu_supported() {
        return Err(start_error("this CPU has no AVX2, which OpenVINO requires"));
    }
    let loaded = locate_and_load(LIBRARY, asked, None, load)?;
    let core = Core::new().map_err(|error| start_error(&error.to_string()))?;
    let capabilities = core
        .get_property(&DeviceType::CPU, &PropertyKey::DeviceCapabilities)
        .map_err(|error| start_error(&format!("its CPU plugin does not work ({error})")))?;
    let build = ::openvino::version().build_number;
    Ok(OpenVino {
        core: Mutex::new(core),
        library: loaded.path,
        found_by: loaded.found_by,
        // The rest is the build number and the branch.
        version: build.split('-').next().unwrap_or_default().to_owned(),
        has_bf16: capabilities.split_whitespace().any(|word| word == "BF16"),
    })
}

fn start_error(detail: &str) -> LoadError {
    LoadError::Start {
        library: LIBRARY,
        detail: detail.lines().last().unwrap_or_default().trim().to_owned(),
    }
}

fn load(path: &Path) -> Result<(), LoadError> {
    let wrong = |detail: String| LoadError::of_library(LIBRARY, path, detail);
    // The crate accepts any library and panics at the first missing function.
    if path.is_file() {
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        if !bytes
            .windows(MARKER_SYMBOL.len())
            .any(|bytes| bytes == MARKER_SYMBOL)
        {
            return Err(wrong("it is not OpenVINO".to_owned()));
        }
    }
    c_library::load_from(path).map_err(wrong)?;
    Ok(())
}

/// Returns true if OpenVINO's own builds support this CPU; they require AVX2 on x86-64.
fn is_cpu_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    true
}
