//! OpenVINO as an [`Engine`]. No other module uses the `openvino` crate.
//!
//! OpenVINO runs the graphs of the same model folders as ONNX Runtime, but only on CPUs: in float32, or on request in a
//! [reduced precision](Rounding). The library is loaded on first use, once per process, from the path found by
//! [`library`](crate::library).
//!
//! By default OpenVINO reduces the precision itself: to bfloat16 if the CPU supports it, and to 8-bit activations for
//! 8-bit weights. A score would then depend on its batch, so both settings are always set explicitly.

mod compiled;
mod runtime;

use std::path::{Path, PathBuf};

use ::openvino::InferenceError;

use self::compiled::{Compiled, Output};
pub use self::runtime::{OpenVino, load_openvino};
use crate::batch::Batch;
use crate::contract::Feed;
use crate::device::Device;
use crate::engine::{Engine, EngineError, Logits};
use crate::folder::{ModelFolder, Processor, Rounding};
use crate::graph_check::check_against_manifest;
use crate::library::Library;
use crate::loading::{DeviceChoice, EngineOptions, LoadError, OpenedEngine};
use crate::ports::{output_of, wanted_output};

/// A graph compiled by OpenVINO for this CPU.
pub struct OpenVinoEngine {
    runtime: &'static OpenVino,
    source: GraphSource,
    feed: Feed,
    output: Output,
    /// `None` after a failed restart.
    compiled: Option<Compiled>,
}

/// Parameters of a compiled graph, kept to rebuild it.
struct GraphSource {
    graph: PathBuf,
    threads: usize,
    rounding: Rounding,
}

impl OpenVinoEngine {
    /// Opens a folder with its graph for CPUs and loads the graph.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn open(
        dir: &Path,
        precision: Option<&str>,
        options: &EngineOptions,
    ) -> Result<(ModelFolder, Self), LoadError> {
        let folder = ModelFolder::open_for(dir, Processor::Cpu, precision)?;
        let mut engine = Self::load_unchecked(&folder, options)?;
        check_against_manifest(&mut engine, &folder)?;
        Ok((folder, engine))
    }

    /// Loads the graph of an open folder without checking it against its manifest.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_unchecked(model: &ModelFolder, options: &EngineOptions) -> Result<Self, LoadError> {
        if let device @ Device::Cuda(_) = options.device {
            return Err(LoadError::CpuOnly(device));
        }
        let runtime = load_openvino(options.openvino.as_deref())?;
        let source = GraphSource {
            graph: model.graph.clone(),
            threads: options.thread_count(),
            rounding: model.rounding,
        };
        if source.rounding.is_bf16() && !runtime.has_bf16() {
            tracing::warn!(
                "this CPU has no bf16 instructions, so OpenVINO emulates them: float32 is faster here"
            );
        }
        let compiled = source.compile(runtime)?;
        let contract = |detail| LoadError::Contract(model.graph.clone(), detail);
        let unknown = |error: InferenceError| contract(error_line(&error));
        let inputs = compiled.inputs().map_err(unknown)?;
        let feed = Feed::new(&inputs, model).map_err(contract)?;
        let outputs = compiled.outputs(wanted_output(model)).map_err(unknown)?;
        let name = output_of(&outputs, model).map_err(contract)?;
        let output = if name == wanted_output(model) {
            Output::Named(name)
        } else {
            Output::First
        };
        Ok(Self {
            runtime,
            feed,
            output,
            compiled: Some(compiled),
            source,
        })
    }
}

impl From<OpenVinoEngine> for OpenedEngine {
    fn from(engine: OpenVinoEngine) -> Self {
        let runtime = engine.runtime.fingerprint();
        Self {
            library: Library::OpenVino,
            chosen: DeviceChoice::new(Device::Cpu, &runtime),
            threads: engine.source.threads,
            runtime,
            engine: Box::new(engine),
        }
    }
}

impl Engine for OpenVinoEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        let compiled = self.compiled.as_mut().ok_or_else(|| {
            EngineError::Run(
                "the graph was lost in a failed restart; start the program again".to_owned(),
            )
        })?;
        let tensors = self.feed.tensors(batch)?;
        let output = compiled.run(&tensors, &self.output);
        let (dims, data) =
            output.map_err(|error| EngineError::from_message(&error_line(&error), batch))?;
        Logits::shaped(&dims, data)
    }

    fn restart(&mut self) -> Result<(), EngineError> {
        // Free the old graph's memory first.
        self.compiled = None;
        let failed = |e: LoadError| EngineError::Run(format!("cannot load the model again: {e}"));
        self.compiled = Some(self.source.compile(self.runtime).map_err(failed)?);
        Ok(())
    }
}

impl GraphSource {
    fn compile(&self, runtime: &OpenVino) -> Result<Compiled, LoadError> {
        let failed = |detail| LoadError::of_file(&self.graph, detail, LoadError::Compile);
        let path = self.graph.to_str();
        let path = path.ok_or_else(|| failed("its path is not valid UTF-8".to_owned()))?;
        let compile = || {
            let mut graph = runtime.compile(path, self.threads, self.rounding)?;
            let request = graph.create_infer_request()?;
            Ok(Compiled { request, graph })
        };
        compile().map_err(|error| failed(error_line(&error)))
    }
}

/// Returns an OpenVINO error in one line.
fn error_line(error: &InferenceError) -> String {
    match &error.message {
        Some(message) => in_one_line(message),
        None => error.kind.to_string(),
    }
}

/// Strips source locations and OpenVINO's own error names from a message.
fn in_one_line(message: &str) -> String {
    const UNSUPPORTED: &str = "No conversion rule found for operations: ";
    if let Some((_, operators)) = message.split_once(UNSUPPORTED) {
        let operators = operators.lines().next().unwrap_or_default().trim();
        return format!("the operators {operators} are not supported");
    }
    let is_location =
        |line: &str| line.starts_with("Exception from ") || line.starts_with("Check '");
    let lines = message.lines().map(str::trim);
    let texts: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !is_location(line))
        .collect();
    if texts.is_empty() {
        let first = message.lines().next();
        return first.unwrap_or_default().trim().to_owned();
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests;
