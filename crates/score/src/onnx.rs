//! ONNX Runtime, behind [`Engine`]. Nothing outside this room names the `ort` crate.
//!
//! The library is loaded once a process, from where [`library`] finds it, always by its
//! path: left to itself `ort` panics where it finds none. One session computes one batch at a time.

mod error;
mod initializers;
pub mod library;
mod runtime;
mod session;
mod weights;

use std::path::{Path, PathBuf};

use ort::session::{Session, SessionInputValue};
use ort::value::TensorRef;

pub use self::error::OnnxError;
pub use self::library::{FoundBy, Library};
pub use self::runtime::{Runtime, load_runtime};
use self::session::{Source, ports_of};
pub use self::weights::SharedWeights;
use super::batch::Batch;
use super::contract::{Numbers, Tensor};
use super::engine::{Device, Engine, EngineError, EngineName, Logits};
use super::graph_check;
use super::ports::{Feed, NamedTensor, output_of};
use crate::folder::{ModelError, ModelFolder, Processor};

/// How a model is loaded.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// What to compute on.
    pub device: Device,
    /// Threads within one batch on the CPU; `None` for one a core that this process may use.
    pub threads: Option<usize>,
    /// The ONNX Runtime library; `None` for where one is found, see [`library`].
    pub library: Option<PathBuf>,
    /// What computes.
    pub engine: EngineName,
    /// The library of OpenVINO; `None` for where one is found.
    pub openvino: Option<PathBuf>,
    /// On a CPU, where several engines compute with one graph: given to all of them, they keep its weights once.
    pub weights: Option<SharedWeights>,
}

/// What a model runs on, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// For people: `asked for`, `no CUDA in this ONNX Runtime`, …
    pub reason: String,
}

/// A graph in a session of ONNX Runtime.
#[derive(Debug)]
pub struct OnnxEngine {
    runtime: &'static Runtime,
    source: Source,
    chosen: DeviceChoice,
    feed: Feed,
    output: String,
    /// `None` after a restart that failed.
    session: Option<Session>,
}

impl OnnxEngine {
    /// Opens a folder with the graph for the device and loads it. [`Device::Auto`] takes the first GPU where it
    /// and a graph for it can be used, else the CPU.
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

    /// Loads the graph that a folder was opened with, on a device that is not [`Device::Auto`], without asking whether the
    /// graph is right.
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
        let source = Source {
            graph: folder.graph.clone(),
            entries: spec.map_or_else(Vec::new, |spec| {
                spec.graph.session.clone().into_iter().collect()
            }),
            threads: options.threads.filter(|n| *n > 0).unwrap_or_else(cores),
            weights: options.weights.clone(),
            whole_on_gpu: spec.is_some_and(|spec| spec.graph.is_whole_on_gpu()),
        };
        let session = source.session(runtime, device)?;
        let contract = |detail| OnnxError::Contract(folder.graph.clone(), detail);
        Ok(Self {
            runtime,
            chosen: DeviceChoice {
                device,
                reason: "asked for".to_owned(),
            },
            feed: Feed::new(&ports_of(session.inputs()), folder).map_err(contract)?,
            output: output_of(&ports_of(session.outputs()), folder).map_err(contract)?,
            session: Some(session),
            source,
        })
    }

    /// What it runs on, and why.
    pub fn chosen(&self) -> &DeviceChoice {
        &self.chosen
    }

    /// The runtime, and threads within a batch.
    pub(crate) fn runtime_and_threads(&self) -> (String, usize) {
        (self.runtime.fingerprint(), self.source.threads)
    }
}

impl Engine for OnnxEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        let session = self
            .session
            .as_mut()
            .ok_or_else(|| EngineError::Run("the session was lost; start again".to_owned()))?;
        self.feed.compute(batch, |part, tensors| {
            run(session, tensors, &self.output).map_err(|e| classify_error(&e.to_string(), part))
        })
    }

    fn restart(&mut self) -> Result<(), EngineError> {
        // First give back what the old session holds.
        self.session = None;
        let session = self
            .source
            .session(self.runtime, self.chosen.device)
            .map_err(|e| EngineError::Run(format!("load the model again: {e}")))?;
        self.session = Some(session);
        Ok(())
    }

    fn wants_few_shapes(&self) -> bool {
        // A graph of one shape fills batches up itself.
        matches!(self.chosen.device, Device::Cuda(_)) && !self.feed.fixed.is_fixed()
    }
}

/// The dimensions of the output, and its numbers.
fn run(
    session: &mut Session,
    tensors: &[NamedTensor<'_>],
    output: &str,
) -> ort::Result<(Vec<i64>, Vec<f32>)> {
    let mut values: Vec<(&str, SessionInputValue<'_>)> = Vec::with_capacity(tensors.len());
    for (name, Tensor { shape, numbers }) in tensors {
        let shape = shape.clone();
        let value = match numbers {
            Numbers::I64(data) => TensorRef::from_array_view((shape, &**data))?.into(),
            Numbers::I32(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into(),
            Numbers::F32(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into(),
        };
        values.push((name, value));
    }
    let outputs = session.run(values)?;
    let value = outputs
        .get(output)
        .ok_or_else(|| ort::Error::new(format!("there is no output `{output}`")))?;
    let (dims, data) = if let Ok((dims, data)) = value.try_extract_tensor::<f32>() {
        (dims, data.to_vec())
    } else {
        let (dims, data) = value.try_extract_tensor::<half::f16>()?;
        // A graph in float16 may give float16; scores are made of float32 whatever the graph.
        (dims, data.iter().map(|x| x.to_f32()).collect())
    };
    Ok((dims.to_vec(), data))
}

/// Asks an engine about the vectors of its folder's manifest, where there is one.
pub(crate) fn check_against_manifest(
    engine: &mut dyn Engine,
    folder: &ModelFolder,
) -> Result<(), OnnxError> {
    let Some(spec) = &folder.spec else {
        return Ok(());
    };
    let path = folder.graph.clone();
    let tolerance = folder.tolerance(spec);
    match graph_check::check_batch(engine, spec, &folder.kind, &spec.vectors) {
        Err(source) => Err(OnnxError::Run { path, source }),
        Ok(errors) if errors.logits > tolerance => {
            let detail = format!(
                "its logits are {:.2} off those that `manifest.toml` records, and {tolerance:.2e} is allowed",
                errors.logits
            );
            Err(OnnxError::Mismatch(path, detail))
        }
        Ok(errors) => {
            tracing::debug!(
                error = errors.logits,
                tolerance,
                "the graph says what its manifest says"
            );
            Ok(())
        }
    }
}

/// Tells out of memory from the rest: the runtime has no code for it.
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
    // So does a loader speak of a disk that runs no programs.
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

/// Loads on the device asked for; [`Device::Auto`] tries a GPU first and tells why it is not taken.
fn load_on_device<T>(
    runtime: &Runtime,
    device: Device,
    load: impl Fn(Device) -> Result<T, OnnxError>,
) -> Result<(T, DeviceChoice), OnnxError> {
    let (device, reason) = match device {
        // Asked before it is tried: the runtime logs an error on trying.
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
        device => (device, "asked for".to_owned()),
    };
    Ok((load(device)?, DeviceChoice { device, reason }))
}

#[cfg(test)]
mod tests {
    use super::runtime::plain;
    use super::session::cuda_provider;
    use super::*;

    #[test]
    fn out_of_memory_is_told_from_other_failures_by_its_words() {
        let batch = Batch {
            ids: vec![1, 2],
            type_ids: vec![0, 0],
            lens: vec![2],
            width: 2,
        };
        for message in [
            "Non-zero status code: BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 99",
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
    fn float32_is_never_tf32_on_a_gpu() {
        // ONNX Runtime computes in TF32 unless it is told not to.
        let options = format!("{:?}", cuda_provider(3));
        for (key, value) in [("use_tf32", "false"), ("device_id", "3")] {
            let said = [key, value].map(|word| options.find(&format!("\"{word}\"")));
            assert!(matches!(said, [Some(k), Some(v)] if k < v), "{options}");
        }
    }

    #[test]
    fn the_runtime_is_quoted_without_its_source() {
        let said = "/src/bridge.cc:2043 Provider& Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so\nmore\n";
        assert_eq!(strip_location(said), "Failed to load x.so");
        assert_eq!(
            strip_location("Load model from m.onnx failed"),
            "Load model from m.onnx failed"
        );
    }
}
