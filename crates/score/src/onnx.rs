//! ONNX Runtime as an [`Engine`]. No other module uses the `ort` crate.
//!
//! The library is loaded once per process, always from a path that [`library`] finds, because `ort` panics if its own
//! search fails. A session computes one batch at a time.

mod error;
pub mod library;
mod nvidia;
mod runtime;
mod session;

use std::path::{Path, PathBuf};

use ort::session::{Session, SessionInputValue};
use ort::value::TensorRef;

pub use self::error::OnnxError;
pub(crate) use self::error::load_error;
pub use self::library::{FoundBy, Library};
pub use self::runtime::{Runtime, load_runtime};
use self::session::{GraphSource, ports_of};
use super::batch::Batch;
use super::contract::{Numbers, Tensor};
use super::device::{Device, EngineName};
use super::engine::{Engine, EngineError, Logits};
use super::graph_check;
use super::ports::{Feed, output_of};
use crate::folder::{ModelError, ModelFolder, Processor};

/// Options for loading a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The device to compute on.
    pub device: Device,
    /// Number of threads that compute a batch on a CPU; `None` for one per available core.
    pub threads: Option<usize>,
    /// Path to the ONNX Runtime library; `None` to search for it, see [`library`].
    pub library: Option<PathBuf>,
    /// The inference library.
    pub engine: EngineName,
    /// Path to the OpenVINO library; `None` to search for it.
    pub openvino: Option<PathBuf>,
}

/// The device of a loaded model, and the reason why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// User-facing reason: `as requested`, `no CUDA in this ONNX Runtime`, …
    pub reason: String,
}

/// A graph in an ONNX Runtime session.
#[derive(Debug)]
pub struct OnnxEngine {
    runtime: &'static Runtime,
    source: GraphSource,
    chosen: DeviceChoice,
    feed: Feed,
    output: String,
    /// `None` after a failed restart.
    session: Option<Session>,
}

impl OnnxEngine {
    /// Opens a folder with the graph for the device and loads the graph. [`Device::Auto`] uses the first GPU if it
    /// works and there is a graph for it, otherwise the CPU.
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn open(
        dir: &Path,
        precision: Option<&str>,
        options: &EngineOptions,
    ) -> Result<(ModelFolder, Self), OnnxError> {
        let runtime = load_runtime(options.library.as_deref())?;
        let ((folder, mut engine), chosen) = load_on_device(runtime, options.device, |device| {
            let processor = match device {
                Device::Cuda(_) => Processor::Cuda,
                Device::Cpu | Device::Auto => Processor::Cpu,
            };
            let folder = ModelFolder::open_for(dir, processor, precision)?;
            let mut engine = Self::on(runtime, &folder, device, options)?;
            check_against_manifest(&mut engine, &folder)?;
            Ok((folder, engine))
        })?;
        engine.chosen = chosen;
        Ok((folder, engine))
    }

    /// Loads the graph of an open folder without checking it against its manifest. The device must not be
    /// [`Device::Auto`].
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn load_unchecked(
        folder: &ModelFolder,
        options: &EngineOptions,
    ) -> Result<Self, OnnxError> {
        let runtime = load_runtime(options.library.as_deref())?;
        Self::on(runtime, folder, options.device, options)
    }

    fn on(
        runtime: &'static Runtime,
        folder: &ModelFolder,
        device: Device,
        options: &EngineOptions,
    ) -> Result<Self, OnnxError> {
        if !folder.rounding.is_exact() {
            return Err(OnnxError::UnsupportedPrecision(folder.rounding));
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let spec = folder.spec.as_ref();
        let source = GraphSource {
            graph: folder.graph.clone(),
            entries: spec.map_or_else(Vec::new, |spec| {
                spec.graph.session.clone().into_iter().collect()
            }),
            threads: options.threads.filter(|n| *n > 0).unwrap_or_else(cores),
            whole_on_gpu: spec.is_some_and(|spec| spec.graph.is_whole_on_gpu()),
        };
        let session = source.session(runtime, device)?;
        let contract = |detail| OnnxError::Contract(folder.graph.clone(), detail);
        Ok(Self {
            runtime,
            chosen: DeviceChoice {
                device,
                reason: "as requested".to_owned(),
            },
            feed: Feed::new(&ports_of(session.inputs()), folder).map_err(contract)?,
            output: output_of(&ports_of(session.outputs()), folder).map_err(contract)?,
            session: Some(session),
            source,
        })
    }

    /// Returns the number of threads that compute a batch.
    pub(crate) fn threads(&self) -> usize {
        self.source.threads
    }

    /// Returns the library and its version.
    pub(crate) fn fingerprint(&self) -> String {
        self.runtime.fingerprint()
    }

    /// Returns the device and the reason why it was chosen.
    pub fn chosen(&self) -> &DeviceChoice {
        &self.chosen
    }
}

impl Engine for OnnxEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        let session = self.session.as_mut().ok_or_else(|| {
            EngineError::Run(
                "the session was lost in a failed restart; start the program again".to_owned(),
            )
        })?;
        let tensors = self.feed.tensors(batch)?;
        let failed = |error: ort::Error| classify_error(&error.to_string(), batch);
        let mut values: Vec<(&str, SessionInputValue<'_>)> = Vec::with_capacity(tensors.len());
        for (name, Tensor { shape, numbers }) in &tensors {
            let shape = shape.clone();
            let value = match numbers {
                Numbers::I64(data) => TensorRef::from_array_view((shape, &**data)).map(Into::into),
                Numbers::I32(data) => {
                    TensorRef::from_array_view((shape, data.as_slice())).map(Into::into)
                }
                Numbers::F32(data) => {
                    TensorRef::from_array_view((shape, data.as_slice())).map(Into::into)
                }
            };
            values.push((name, value.map_err(failed)?));
        }
        let outputs = session.run(values).map_err(failed)?;
        let output = outputs
            .get(&self.output)
            .ok_or_else(|| EngineError::Run(format!("there is no output `{}`", self.output)))?;
        if let Ok((dims, data)) = output.try_extract_tensor::<f32>() {
            return Logits::shaped(dims, data.to_vec());
        }
        // A float16 graph may return float16; scores are always computed from float32.
        let (dims, data) = output.try_extract_tensor::<half::f16>().map_err(failed)?;
        Logits::shaped(dims, data.iter().map(|x| x.to_f32()).collect())
    }

    fn restart(&mut self) -> Result<(), EngineError> {
        // Free the old session's memory first.
        self.session = None;
        let session = self
            .source
            .session(self.runtime, self.chosen.device)
            .map_err(|e| EngineError::Run(format!("cannot load the model again: {e}")))?;
        self.session = Some(session);
        Ok(())
    }

    fn wants_few_shapes(&self) -> bool {
        matches!(self.chosen.device, Device::Cuda(_))
    }
}

/// Checks an engine against the reference vectors of its manifest, if there is one.
pub(crate) fn check_against_manifest(
    engine: &mut dyn Engine,
    folder: &ModelFolder,
) -> Result<(), OnnxError> {
    let Some(spec) = &folder.spec else {
        return Ok(());
    };
    let path = folder.graph.clone();
    let tolerance = folder.tolerance(spec);
    match graph_check::check_batch(engine, folder, spec, &spec.vectors) {
        Err(source) => Err(OnnxError::Run { path, source }),
        Ok(errors) if errors.logits > tolerance => {
            let detail = format!(
                "its logits differ by {:.1e} from those in `manifest.toml`; the tolerance is {tolerance:.1e}",
                errors.logits
            );
            Err(OnnxError::Mismatch(path, detail))
        }
        Ok(errors) => {
            tracing::debug!(
                error = errors.logits,
                tolerance,
                "the graph matches its manifest"
            );
            Ok(())
        }
    }
}

/// Recognises out-of-memory errors by their text, because the runtime has no error code for them.
pub(crate) fn is_out_of_memory(message: &str) -> bool {
    const SIGNS: &[&str] = &[
        "failed to allocate memory",
        "cannot allocate memory",
        "failed to map segment from shared object",
        "out of memory",
        "bad_alloc",
        "cublas_status_alloc_failed",
        "cudnn_status_alloc_failed",
        "cudaerrormemoryallocation",
    ];
    let lower = message.to_lowercase();
    // On a file system that is mounted `noexec`, loaders fail with `failed to map segment … not permitted`.
    SIGNS.iter().any(|sign| lower.contains(sign)) && !lower.contains("not permitted")
}

pub(crate) fn classify_error(message: &str, batch: &Batch) -> EngineError {
    if is_out_of_memory(message) {
        EngineError::OutOfMemory {
            rows: batch.rows(),
            width: batch.width,
            detail: message.to_owned(),
        }
    } else {
        EngineError::Run(message.to_owned())
    }
}

/// Loads on the given device. [`Device::Auto`] tries a GPU first and returns the reason if it is not used.
fn load_on_device<T>(
    runtime: &Runtime,
    device: Device,
    load: impl Fn(Device) -> Result<T, OnnxError>,
) -> Result<(T, DeviceChoice), OnnxError> {
    let (device, reason) = match device {
        // Checked before loading, because the runtime logs an error on a failed attempt.
        Device::Auto if !runtime.has_cuda() => {
            (Device::Cpu, "no CUDA in this ONNX Runtime".to_owned())
        }
        Device::Auto => match load(Device::Cuda(0)) {
            Err(OnnxError::Cuda { detail, .. }) => {
                (Device::Cpu, format!("CUDA cannot be used: {detail}"))
            }
            Err(OnnxError::Folder(ModelError::NoGraph(_))) => {
                (Device::Cpu, "its folder has no graph for CUDA".to_owned())
            }
            loaded => {
                let chosen = DeviceChoice {
                    device: Device::Cuda(0),
                    reason: "found".to_owned(),
                };
                return Ok((loaded?, chosen));
            }
        },
        device => (device, "as requested".to_owned()),
    };
    Ok((load(device)?, DeviceChoice { device, reason }))
}

#[cfg(test)]
mod tests {
    use super::runtime::strip_location;
    use super::session::cuda_provider;
    use super::*;

    #[test]
    fn out_of_memory_is_recognised_by_the_message() {
        let batch = Batch {
            ids: vec![1, 2],
            type_ids: vec![0, 0],
            lens: vec![2],
            width: 2,
        };
        for message in [
            "Non-zero status code: BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of \
             size 99",
            "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0",
            "CUDA failure 2: out of memory ; GPU=0",
            "std::bad_alloc",
        ] {
            assert!(
                matches!(
                    classify_error(message, &batch),
                    EngineError::OutOfMemory { .. }
                ),
                "{message}"
            );
        }
        assert!(matches!(
            classify_error("indices element out of data bounds", &batch),
            EngineError::Run(_)
        ));
    }

    #[test]
    fn tf32_is_disabled_on_a_gpu() {
        // ONNX Runtime uses TF32 by default.
        let options = format!("{:?}", cuda_provider(3));
        for (key, value) in [("use_tf32", "false"), ("device_id", "3")] {
            let places = [key, value].map(|word| options.find(&format!("\"{word}\"")));
            assert!(matches!(places, [Some(k), Some(v)] if k < v), "{options}");
        }
    }

    #[test]
    fn source_locations_are_stripped_from_runtime_messages() {
        let message = "/src/bridge.cc:2043 Provider& Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so\nmore\n";
        assert_eq!(strip_location(message), "Failed to load x.so");
        assert_eq!(
            strip_location("Load model from m.onnx failed"),
            "Load model from m.onnx failed"
        );
    }
}
