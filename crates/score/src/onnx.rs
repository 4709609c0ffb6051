//! ONNX Runtime as an [`Engine`]. No other module uses the `ort` crate.
//!
//! The library is loaded once per process, always from a path that [`library`](crate::library) finds, because `ort`
//! panics if its own search fails. A session computes one batch at a time.

mod cuda;
mod runtime;
mod session;

use std::path::Path;

use ort::session::{Session, SessionInputValue};
use ort::value::TensorRef;

pub use self::runtime::{Runtime, load_runtime};
use self::session::{GraphSource, ports_of};
use super::batch::Batch;
use super::contract::{Feed, Numbers, Tensor};
use super::device::Device;
use super::engine::{Engine, EngineError, Logits};
use super::graph_check::check_against_manifest;
use super::ports::output_of;
use crate::folder::{ModelError, ModelFolder};
use crate::library::Library;
use crate::loading::{DeviceChoice, EngineOptions, LoadError, OpenedEngine};

/// Reason for a device that the caller chose.
const AS_REQUESTED: &str = "as requested";

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
    /// See [`LoadError`].
    pub fn open(
        dir: &Path,
        precision: Option<&str>,
        options: &EngineOptions,
    ) -> Result<(ModelFolder, Self), LoadError> {
        let runtime = load_runtime(options.library.as_deref())?;
        let open_on = |device: Device, reason: &str| -> Result<(ModelFolder, Self), LoadError> {
            let folder = ModelFolder::open_for(dir, device.into(), precision)?;
            let chosen = DeviceChoice::new(device, reason);
            let mut engine = Self::new(runtime, &folder, options, chosen)?;
            check_against_manifest(&mut engine, &folder)?;
            Ok((folder, engine))
        };
        match options.device {
            // Checked before loading, because the runtime logs an error on a failed attempt.
            Device::Auto if !runtime.has_cuda() => {
                open_on(Device::Cpu, "no CUDA in this ONNX Runtime")
            }
            Device::Auto => match open_on(Device::Cuda(0), "found") {
                Err(LoadError::Cuda { detail, .. }) => {
                    open_on(Device::Cpu, &format!("CUDA cannot be used: {detail}"))
                }
                Err(LoadError::Folder(ModelError::NoGraph(_))) => {
                    open_on(Device::Cpu, "its folder has no graph for CUDA")
                }
                opened => opened,
            },
            device => open_on(device, AS_REQUESTED),
        }
    }

    /// Loads the graph of an open folder without checking it against its manifest. The device must not be
    /// [`Device::Auto`].
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_unchecked(model: &ModelFolder, options: &EngineOptions) -> Result<Self, LoadError> {
        let runtime = load_runtime(options.library.as_deref())?;
        let chosen = DeviceChoice::new(options.device, AS_REQUESTED);
        Self::new(runtime, model, options, chosen)
    }

    /// Loads the graph of an open folder on the chosen device.
    fn new(
        runtime: &'static Runtime,
        folder: &ModelFolder,
        options: &EngineOptions,
        chosen: DeviceChoice,
    ) -> Result<Self, LoadError> {
        if !folder.rounding.is_exact() {
            return Err(LoadError::UnsupportedPrecision(folder.rounding));
        }
        let spec = folder.spec.as_ref();
        let source = GraphSource {
            graph: folder.graph.clone(),
            entries: spec.map_or_else(Vec::new, |spec| {
                spec.graph.session.clone().into_iter().collect()
            }),
            threads: options.thread_count(),
            whole_on_gpu: spec.is_some_and(|spec| spec.graph.is_whole_on_gpu()),
        };
        let session = source.session(runtime, chosen.device)?;
        let contract = |detail| LoadError::Contract(folder.graph.clone(), detail);
        Ok(Self {
            runtime,
            chosen,
            feed: Feed::new(&ports_of(session.inputs()), folder).map_err(contract)?,
            output: output_of(&ports_of(session.outputs()), folder).map_err(contract)?,
            session: Some(session),
            source,
        })
    }

    /// Returns the device and the reason why it was chosen.
    pub fn chosen(&self) -> &DeviceChoice {
        &self.chosen
    }
}

impl From<OnnxEngine> for OpenedEngine {
    fn from(engine: OnnxEngine) -> Self {
        Self {
            library: Library::OnnxRuntime,
            chosen: engine.chosen.clone(),
            threads: engine.source.threads,
            runtime: engine.runtime.fingerprint(),
            engine: Box::new(engine),
        }
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
        let failed = |error: ort::Error| EngineError::from_message(&error.to_string(), batch);
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
        let session = self.source.session(self.runtime, self.chosen.device);
        let failed = |e: LoadError| EngineError::Run(format!("cannot load the model again: {e}"));
        self.session = Some(session.map_err(failed)?);
        Ok(())
    }

    fn wants_few_shapes(&self) -> bool {
        matches!(self.chosen.device, Device::Cuda(_))
    }
}
