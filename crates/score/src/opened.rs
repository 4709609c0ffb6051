//! Opens a model folder with either inference engine. In: a folder and [`EngineOptions`]. Out: the folder and a loaded
//! engine.
//!
//! ONNX Runtime is the default. OpenVINO is used if it is requested, or if only it supports the precision.

use std::path::Path;

use crate::device::{Device, EngineName};
use crate::folder::{ModelFolder, Rounding};
use crate::loading::{EngineOptions, LoadError, OpenedEngine};
use crate::onnx::OnnxEngine;
use crate::openvino::OpenVinoEngine;

impl OpenedEngine {
    /// Opens a folder with the graph for the device and loads the graph.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn open(
        dir: &Path,
        precision: Option<&str>,
        options: &EngineOptions,
    ) -> Result<(ModelFolder, Self), LoadError> {
        let onnx = || {
            let opened = OnnxEngine::open(dir, precision, options);
            opened.map(|(folder, engine)| (folder, engine.into()))
        };
        let openvino = || {
            let opened = OpenVinoEngine::open(dir, precision, options);
            opened.map(|(folder, engine)| (folder, engine.into()))
        };
        match options.engine {
            EngineName::OpenVino => openvino(),
            EngineName::Auto if needs_openvino(dir, precision, options.device) => openvino(),
            EngineName::Auto | EngineName::OnnxRuntime => onnx(),
        }
    }

    /// Loads the graph of an open folder without checking it against its manifest. The device must not be
    /// [`Device::Auto`].
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_unchecked(
        folder: &ModelFolder,
        options: &EngineOptions,
    ) -> Result<Self, LoadError> {
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

/// Returns true if only OpenVINO supports the precision for the graphs of this folder.
fn needs_openvino(dir: &Path, precision: Option<&str>, device: Device) -> bool {
    let is_mode = precision.and_then(Rounding::from_name).is_some();
    if !is_mode || matches!(device, Device::Cuda(_)) {
        return false;
    }
    match ModelFolder::open(dir, precision) {
        Ok(folder) => !folder.rounding.is_exact(),
        // OpenVINO reports the problem.
        Err(_) => true,
    }
}
