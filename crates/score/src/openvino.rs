//! OpenVINO as an [`Engine`]. No other module uses the `openvino` crate.
//!
//! OpenVINO runs the graphs of the same model folders as ONNX Runtime, but only on CPUs: in float32, or on request in a
//! [reduced precision](Rounding). The library is loaded on first use, once per process, from the path found by
//! [`library`](crate::library).
//!
//! By default OpenVINO reduces the precision itself: to bfloat16 if the CPU supports it, and to 8-bit activations for
//! 8-bit weights. A score would then depend on its batch, so both settings are always set explicitly.

mod runtime;

use std::path::{Path, PathBuf};

use ::openvino::{
    CompiledModel, ElementType, InferRequest, InferenceError, Node, Shape, Tensor as OvTensor,
};

pub use self::runtime::{OpenVino, load_openvino};
use crate::batch::Batch;
use crate::contract::{Feed, Input, NamedTensor, NumberType, Numbers, Tensor};
use crate::device::Device;
use crate::engine::{Engine, EngineError, Logits};
use crate::folder::{ModelFolder, Processor, Rounding};
use crate::graph_check::check_against_manifest;
use crate::library::Library;
use crate::loading::{DeviceChoice, EngineOptions, LoadError, OpenedEngine};
use crate::ports::{Port, output_of, wanted_output};

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

struct Compiled {
    // Dropped before its graph.
    request: InferRequest,
    graph: CompiledModel,
}

/// Selector of the output; OpenVINO may rename the outputs of a graph.
enum Output {
    Named(String),
    First,
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

impl Compiled {
    /// Returns the outputs; first the wanted one, if it exists.
    fn outputs(&self, wanted: &str) -> Result<Vec<Port>, InferenceError> {
        let mut outputs = Vec::new();
        // A node may have several names, and OpenVINO may list any of them.
        if let Ok(node) = self.graph.get_output_by_name(wanted) {
            let name = wanted.to_owned();
            let port = port(&node)?;
            outputs.push(Port { name, ..port });
        }
        for index in 0..self.graph.get_output_size()? {
            outputs.push(port(&self.graph.get_output_by_index(index)?)?);
        }
        Ok(outputs)
    }

    /// Returns the inputs; those that no model reads have the names that OpenVINO gives them.
    fn inputs(&self) -> Result<Vec<Port>, InferenceError> {
        let mut inputs = Vec::new();
        for input in Input::ALL {
            if let Ok(node) = self.graph.get_input_by_name(input.as_str()) {
                let name = input.as_str().to_owned();
                let port = port(&node)?;
                inputs.push(Port { name, ..port });
            }
        }
        if inputs.len() == self.graph.get_input_size()? {
            return Ok(inputs);
        }
        for index in 0..self.graph.get_input_size()? {
            let port = port(&self.graph.get_input_by_index(index)?)?;
            if port.name.parse::<Input>().is_err() {
                inputs.push(port);
            }
        }
        Ok(inputs)
    }

    fn run(
        &mut self,
        tensors: &[NamedTensor<'_>],
        output: &Output,
    ) -> Result<(Vec<i64>, Vec<f32>), InferenceError> {
        for (name, Tensor { shape, numbers }) in tensors {
            let size = |size: &usize| i64::try_from(*size).expect("a batch fits in memory");
            let dims: Vec<i64> = shape.iter().map(size).collect();
            let shape = Shape::new(&dims)?;
            let tensor = match numbers {
                Numbers::I64(data) => new_tensor(ElementType::I64, &shape, data)?,
                Numbers::I32(data) => new_tensor(ElementType::I32, &shape, data)?,
                Numbers::F32(data) => new_tensor(ElementType::F32, &shape, data)?,
            };
            self.request.set_tensor(name, &tensor)?;
        }
        self.request.infer()?;
        let output = match output {
            Output::Named(name) => self.request.get_tensor(name)?,
            Output::First => self.request.get_output_tensor_by_index(0)?,
        };
        let dims = output.get_shape()?.get_dimensions().to_vec();
        let data = match output.get_element_type()? {
            // Scores are always computed from float32.
            ElementType::F16 => {
                let data = output.get_data::<half::f16>()?;
                data.iter().map(|x| x.to_f32()).collect()
            }
            _ => output.get_data::<f32>()?.to_vec(),
        };
        Ok((dims, data))
    }
}

fn new_tensor<T: Copy>(
    kind: ElementType,
    shape: &Shape,
    data: &[T],
) -> Result<OvTensor, InferenceError> {
    let mut tensor = OvTensor::new(kind, shape)?;
    tensor.get_data_mut()?.copy_from_slice(data);
    Ok(tensor)
}

fn port(node: &Node) -> Result<Port, InferenceError> {
    let number_type = match node.get_element_type()? {
        ElementType::I64 => NumberType::Int64,
        ElementType::I32 => NumberType::Int32,
        ElementType::F32 => NumberType::Float32,
        ElementType::F16 => NumberType::Float16,
        other => NumberType::Other(format!("{other:?}").to_lowercase()),
    };
    let shape = node.get_partial_shape()?;
    let dims = shape.get_dimensions().iter();
    // A dimension is fixed if its minimum and maximum are equal.
    let dims = dims.map(|dim| {
        let (min, max) = (dim.get_min(), dim.get_max());
        if min == max { max } else { -1 }
    });
    let dims: Vec<i64> = dims.collect();
    Ok(Port {
        name: node.get_name()?,
        number_type: Some(number_type),
        // An unknown rank also yields no dimensions.
        shape: (!dims.is_empty()).then_some(dims),
    })
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
