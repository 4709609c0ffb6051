//! A graph that OpenVINO has compiled: its inputs and outputs, and how it is run.

use ::openvino::{
    CompiledModel, ElementType, InferRequest, InferenceError, Node, Shape, Tensor as OvTensor,
};

use crate::contract::{NamedTensor, Numbers, Tensor};
use crate::input::{Input, NumberType};
use crate::ports::Port;

/// A compiled graph, and a request to run it.
pub(super) struct Compiled {
    // Dropped before its graph.
    pub request: InferRequest,
    pub graph: CompiledModel,
}

/// Selector of the output; OpenVINO may rename the outputs of a graph.
pub(super) enum Output {
    Named(String),
    First,
}

impl Compiled {
    /// Returns the outputs; first the wanted one, if it exists.
    pub fn outputs(&self, wanted: &str) -> Result<Vec<Port>, InferenceError> {
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
    pub fn inputs(&self) -> Result<Vec<Port>, InferenceError> {
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

    /// Runs the graph on a batch, and returns the shape and the numbers of the output.
    pub fn run(
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

/// Describes an input or an output.
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
