//! OpenVINO's library, loaded once a process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ::openvino::{CompiledModel, Core, DeviceType, InferenceError, PropertyKey, RwPropertyKey};
use openvino_sys::library as c_library;

use crate::folder::Rounding;
use crate::onnx::OnnxError;
use crate::onnx::library::{FoundBy, Library, load_error, locate_and_load};

const LIBRARY: Library = Library::OpenVino;
/// A function that each version of the library has, by which it is told from other files.
const MARKER_SYMBOL: &[u8] = b"ov_get_openvino_version";

/// OpenVINO, loaded.
pub struct OpenVino {
    /// One for all engines: they share what it makes of weights.
    core: Mutex<Core>,
    library: PathBuf,
    found_by: FoundBy,
    version: String,
    has_bf16: bool,
}

impl OpenVino {
    /// The file it was loaded from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Why that file.
    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }

    /// The release, such as `2026.4.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Told from other versions of it.
    pub fn fingerprint(&self) -> String {
        format!("OpenVINO {}", self.version)
    }

    /// Whether this CPU has instructions for bfloat16.
    pub fn has_bf16(&self) -> bool {
        self.has_bf16
    }

    /// Whether this CPU multiplies bfloat16 faster than float32, as far as is known: Intel's do with AMX only, which a
    /// virtual machine may hide. Without it, bf16 took 1.5 times as long as float32 (benches/results/openvino.md).
    pub fn has_fast_bf16(&self) -> bool {
        self.has_bf16 && !is_intel_without_amx()
    }

    /// Makes a graph ready for this CPU.
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
            // Always said: left open it is bfloat16 where the CPU has that.
            (
                RwPropertyKey::HintInferencePrecision,
                if rounding.is_bf16() { "bf16" } else { "f32" },
            ),
            // 0 turns it off. Left open, inputs of weights in eight bits are rounded to eight bits.
            (other("DYNAMIC_QUANTIZATION_GROUP_SIZE"), group.as_str()),
            (RwPropertyKey::NumStreams, "1"),
            (RwPropertyKey::InferenceNumThreads, threads.as_str()),
            // Other threads compute beside these, and a container moves its threads as it likes.
            (RwPropertyKey::HintEnableCpuPinning, "NO"),
            (RwPropertyKey::HintSchedulingCoreType, "ANY_CORE"),
            (other("CPU_RUNTIME_CACHE_CAPACITY"), KERNEL_CACHE_SHAPES),
        ];
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.set_properties(&DeviceType::CPU, properties)?;
        let read = core.read_model_from_file(graph, "")?;
        core.compile_model(&read, DeviceType::CPU)
    }
}

/// How many kernels it keeps for shapes that were seen: batches have hundreds of shapes, and each takes memory.
const KERNEL_CACHE_SHAPES: &str = "128";

/// Loads OpenVINO; `asked` is where it should be, where the caller knows. A process has one: later calls give the first.
///
/// # Errors
/// [`OnnxError::NotFound`], [`OnnxError::Missing`], [`OnnxError::Load`], [`OnnxError::Start`].
pub fn load_openvino(asked: Option<&Path>) -> Result<&'static OpenVino, OnnxError> {
    static RUNTIME: OnceLock<OpenVino> = OnceLock::new();
    // `OnceLock` has no way to begin that may fail, so a lock keeps two threads from loading the library at once.
    static LOADING: Mutex<()> = Mutex::new(());

    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    if !is_cpu_supported() {
        return Err(start("this CPU has no AVX2, which OpenVINO computes with"));
    }
    let ((), library, found_by) = locate_and_load(LIBRARY, asked, None, load)?;
    let core = Core::new().map_err(|error| start(&error.to_string()))?;
    let can = PropertyKey::DeviceCapabilities;
    let can = core
        .get_property(&DeviceType::CPU, &can)
        .map_err(|error| start(&format!("its plugin for CPUs does not work ({error})")))?;
    let build = ::openvino::version().build_number;
    Ok(RUNTIME.get_or_init(|| OpenVino {
        core: Mutex::new(core),
        library,
        found_by,
        // What follows is the number of the build and the name of the branch.
        version: build.split('-').next().unwrap_or_default().to_owned(),
        has_bf16: can.split_whitespace().any(|word| word == "BF16"),
    }))
}

fn start(detail: &str) -> OnnxError {
    OnnxError::Start {
        library: LIBRARY,
        detail: detail.lines().last().unwrap_or_default().trim().to_owned(),
    }
}

fn load(path: &Path) -> Result<(), OnnxError> {
    let wrong = |detail: String| load_error(LIBRARY, path, detail);
    // The crate takes any library and stops the program at the first function that it lacks.
    if path.is_file() {
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        if !bytes
            .windows(MARKER_SYMBOL.len())
            .any(|bytes| bytes == MARKER_SYMBOL)
        {
            return Err(wrong("it has no function of OpenVINO".to_owned()));
        }
    }
    c_library::load_from(path).map_err(wrong)?;
    Ok(())
}

fn is_intel_without_amx() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let vendor = __cpuid(0);
        let letters = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        let is_intel = letters.as_flattened() == b"GenuineIntel";
        // Leaf 7 lists features; bit 22 of EDX is AMX-BF16.
        let has_amx = vendor.eax >= 7 && __cpuid_count(7, 0).edx & (1 << 22) != 0;
        is_intel && !has_amx
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// OpenVINO's own builds are tested with AVX2 on x86-64 and with what every 64-bit ARM has.
fn is_cpu_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    true
}
