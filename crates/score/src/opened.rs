//! A model folder and the engine that computes it, whichever that is.
//!
//! In go a folder and [`EngineOptions`]; out come the folder as it was read and an engine. ONNX Runtime is taken unless
//! somebody asks for OpenVINO, or only OpenVINO can do what is asked for.

use std::path::Path;

use crate::batch::Batch;
use crate::engine::{Device, Engine, EngineError, EngineName, Logits};
use crate::folder::{ModelFolder, Rounding};
use crate::onnx::library::Library;
use crate::onnx::{Chosen, EngineOptions, OnnxEngine, OnnxError};
use crate::openvino::OpenVinoEngine;

/// An engine that was opened, whichever library computes.
pub struct OpenedEngine {
    engine: Box<dyn Engine>,
    /// The library.
    pub library: Library,
    /// What it runs on, and why.
    pub chosen: Chosen,
    /// Threads within a batch.
    pub threads: usize,
    /// The library, told from other versions of it.
    pub runtime: String,
}

impl From<OnnxEngine> for OpenedEngine {
    fn from(engine: OnnxEngine) -> Self {
        let (runtime, threads) = engine.computes_with();
        Self {
            library: Library::OnnxRuntime,
            chosen: engine.chosen().clone(),
            threads,
            runtime,
            engine: Box::new(engine),
        }
    }
}

impl From<OpenVinoEngine> for OpenedEngine {
    fn from(engine: OpenVinoEngine) -> Self {
        let (runtime, threads) = engine.computes_with();
        Self {
            library: Library::OpenVino,
            chosen: Chosen {
                device: Device::Cpu,
                reason: runtime.clone(),
            },
            threads,
            runtime,
            engine: Box::new(engine),
        }
    }
}

impl OpenedEngine {
    /// Opens a folder with the graph for the device and loads it.
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn open(
        dir: &Path,
        precision: Option<&str>,
        options: &EngineOptions,
    ) -> Result<(ModelFolder, Self), OnnxError> {
        let onnx = || {
            let opened = OnnxEngine::open(dir, precision, options);
            opened.map(|(folder, engine)| (folder, engine.into()))
        };
        let openvino = || {
            let opened = OpenVinoEngine::open(dir, precision, options);
            opened.map(|(folder, engine)| (folder, engine.into()))
        };
        match options.engine {
            EngineName::OnnxRuntime => onnx(),
            EngineName::OpenVino => openvino(),
            EngineName::Auto if asks_to_round(dir, precision, options.device) => openvino(),
            EngineName::Auto => onnx().or_else(|error| without_onnx(error, options, openvino)),
        }
    }

    /// Loads the graph that a folder was opened with, without asking whether the graph is right; the device is not
    /// [`Device::Auto`].
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn load_unchecked(
        folder: &ModelFolder,
        options: &EngineOptions,
    ) -> Result<Self, OnnxError> {
        let by_openvino = match options.engine {
            EngineName::Auto => !folder.rounding.is_exact(),
            named => named == EngineName::OpenVino,
        };
        if by_openvino {
            OpenVinoEngine::load_unchecked(folder, options).map(Self::from)
        } else {
            OnnxEngine::load_unchecked(folder, options).map(Self::from)
        }
    }
}

impl Engine for OpenedEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        self.engine.infer(batch)
    }

    fn restart(&mut self) -> Result<(), EngineError> {
        self.engine.restart()
    }

    fn wants_few_shapes(&self) -> bool {
        self.engine.wants_few_shapes()
    }
}

/// Whether the precision is one that only OpenVINO has for the graphs of this folder.
fn asks_to_round(dir: &Path, precision: Option<&str>, device: Device) -> bool {
    let way = precision.and_then(Rounding::named);
    let rounds = |_| match ModelFolder::open(dir, precision) {
        Ok(folder) => !folder.rounding.is_exact(),
        // OpenVINO says what is wrong with it.
        Err(_) => true,
    };
    !matches!(device, Device::Cuda(_)) && way.is_some_and(rounds)
}

/// Where there is no ONNX Runtime at all, OpenVINO gives the same scores.
fn without_onnx<T>(
    error: OnnxError,
    options: &EngineOptions,
    openvino: impl FnOnce() -> Result<T, OnnxError>,
) -> Result<T, OnnxError> {
    let nowhere = matches!(error, OnnxError::NotFound { .. });
    if !nowhere || matches!(options.device, Device::Cuda(_)) {
        return Err(error);
    }
    match openvino() {
        Ok(opened) => {
            tracing::warn!("OpenVINO computes, because there is no ONNX Runtime: {error}");
            Ok(opened)
        }
        // What is missing is ONNX Runtime, and that is what most people install.
        Err(OnnxError::NotFound { .. }) => Err(error),
        Err(other) => Err(other),
    }
}
