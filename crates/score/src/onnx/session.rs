//! Builds ONNX Runtime sessions and describes their inputs and outputs.

use std::path::{Path, PathBuf};

use ort::ep::{self, ArenaExtendStrategy};
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{Outlet, TensorElementType, ValueType};

use super::cuda;
use super::runtime::{Runtime, strip_location};
use crate::device::Device;
use crate::input::NumberType;
use crate::loading::LoadError;
use crate::ports::Port;

/// Parameters of a session, kept to rebuild it.
#[derive(Debug)]
pub(super) struct GraphSource {
    pub graph: PathBuf,
    /// Session options.
    pub entries: Vec<(String, String)>,
    pub threads: usize,
    /// True if a GPU must run all nodes.
    pub whole_on_gpu: bool,
}

/// ONNX Runtime's message if a node would fall back to the CPU.
const NO_KERNEL: &str = "fallback to CPU EP has been explicitly disabled";

impl GraphSource {
    /// Loads the graph on a device, which must not be [`Device::Auto`].
    pub fn session(&self, runtime: &Runtime, device: Device) -> Result<Session, LoadError> {
        let Device::Cuda(number) = device else {
            let built = self.build(runtime, None);
            return built.map_err(|e| graph_error(&self.graph, &strip_location(&e.to_string())));
        };
        let missing = cuda::preload(runtime).map_err(|detail| LoadError::Cuda {
            device: number,
            detail,
        })?;
        self.build(runtime, Some(number)).map_err(|e| {
            let message = strip_location(&e.to_string());
            self.cuda_error(number, message, &missing)
        })
    }

    /// Returns the error for a session that a GPU does not run. `missing` are libraries that were not found.
    fn cuda_error(&self, device: u16, message: String, missing: &[&str]) -> LoadError {
        // A damaged file is not the GPU's fault.
        if message.starts_with("Load model from") || message.contains("External ") {
            return graph_error(&self.graph, &message);
        }
        let detail = if message.contains(NO_KERNEL) {
            format!(
                "this ONNX Runtime has no GPU kernel for some nodes of `{}`, which was built to run entirely on a \
                 GPU; build the folder again with tools/model.py, or install ONNX Runtime 1.31.1",
                self.graph.display()
            )
        } else if missing.is_empty() {
            message
        } else {
            let verb = if missing.len() == 1 { "is" } else { "are" };
            let missing = missing.join(", ");
            format!(
                "{message}; {missing} {verb} missing next to ONNX Runtime and in the system's library path: install \
                 CUDA 13 and cuDNN 9, for example with `pip install onnxruntime-gpu[cuda,cudnn]`"
            )
        };
        LoadError::Cuda { device, detail }
    }

    fn build(&self, runtime: &Runtime, cuda: Option<u16>) -> ort::Result<Session> {
        let mut builder = Session::builder(&runtime.environment)?
            .with_optimization_level(GraphOptimizationLevel::Level3)?
            .with_intra_threads(self.threads)?
            // Nodes run one after the other, so threads between nodes would be idle.
            .with_inter_threads(1)?
            // Threads that spin between batches take a core from the tokenizer.
            .with_intra_op_spinning(false)?
            // CPUs without VNNI sum int8 products in 16 bits, which overflow: logits were off by 1.5. On such CPUs,
            // this option selects different kernels; with VNNI, it has no effect.
            .with_config_entry("session.x64quantprecision", "1")?;
        for (key, value) in &self.entries {
            builder = builder.with_config_entry(key, value)?;
        }
        if let Some(number) = cuda {
            // By default, a failing provider is silently skipped.
            let provider = cuda_provider(number).build().error_on_failure();
            if self.whole_on_gpu {
                // By default, a node without a GPU kernel silently runs on the CPU.
                builder = builder.with_config_entry("session.disable_cpu_ep_fallback", "1")?;
            }
            builder = builder.with_execution_providers([provider])?;
        }
        builder.commit_from_file(&self.graph)
    }
}

/// Returns the CUDA provider for a device.
fn cuda_provider(number: u16) -> ep::CUDA {
    ep::CUDA::default()
        .with_device_id(i32::from(number))
        // By default, the arena grows by more than requested. Batches have few shapes, so it soon fits all of them.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // TF32 has a ten-bit mantissa, so fp32 scores would differ from the reference in the third digit.
        .with_tf32(false)
}

/// Reports a graph that does not load, without the path in the runtime's message.
fn graph_error(graph: &Path, message: &str) -> LoadError {
    let preface = format!("Load model from {} failed:", graph.display());
    let detail = message.strip_prefix(&preface).unwrap_or(message);
    let detail = detail.trim_end_matches('.').to_owned();
    LoadError::of_file(graph, detail, LoadError::Graph)
}

/// Returns the inputs or outputs of a session.
pub(super) fn ports_of(outlets: &[Outlet]) -> Vec<Port> {
    let port = |outlet: &Outlet| {
        let (number_type, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => {
                let number_type = match ty {
                    TensorElementType::Int64 => NumberType::Int64,
                    TensorElementType::Int32 => NumberType::Int32,
                    TensorElementType::Float32 => NumberType::Float32,
                    TensorElementType::Float16 => NumberType::Float16,
                    other => NumberType::Other(other.to_string()),
                };
                (Some(number_type), Some(shape.to_vec()))
            }
            _ => (None, None),
        };
        Port {
            name: outlet.name().to_owned(),
            number_type,
            shape,
        }
    };
    outlets.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::cuda_provider;

    #[test]
    fn tf32_is_disabled_on_a_gpu() {
        // ONNX Runtime uses TF32 by default.
        let options = format!("{:?}", cuda_provider(3));
        for (key, value) in [("use_tf32", "false"), ("device_id", "3")] {
            let places = [key, value].map(|word| options.find(&format!("\"{word}\"")));
            assert!(matches!(places, [Some(k), Some(v)] if k < v), "{options}");
        }
    }
}
