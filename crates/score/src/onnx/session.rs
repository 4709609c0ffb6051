//! How a graph becomes a session of ONNX Runtime, and what that takes and gives.

use std::path::{Path, PathBuf};

use ort::ep::{self, ArenaExtendStrategy};
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{Outlet, TensorElementType, ValueType};

use super::library;
use super::runtime::{Runtime, strip_location};
use super::weights::SharedWeights;
use super::{OnnxError, is_out_of_memory};
use crate::engine::Device;
use crate::ports::Port;

/// What a session is made of.
#[derive(Debug)]
pub(super) struct Source {
    pub graph: PathBuf,
    /// Entries of its configuration.
    pub entries: Vec<(String, String)>,
    pub threads: usize,
    /// On a CPU, where other sessions of the graph are to use them too.
    pub weights: Option<SharedWeights>,
    /// Whether a GPU has to compute all of its nodes.
    pub whole_on_gpu: bool,
}

/// What ONNX Runtime says where a node would be computed on the CPU that may not be.
const NO_KERNEL: &str = "fallback to CPU EP has been explicitly disabled";

impl Source {
    pub fn session(&self, runtime: &Runtime, device: Device) -> Result<Session, OnnxError> {
        let Device::Cuda(number) = device else {
            let shared = self.weights.as_ref();
            let built = self.build(runtime, None, shared);
            let built = match built {
                // A kernel may have no way to share what it makes of a matrix.
                Err(error) if shared.is_some() => self.build(runtime, None, None).inspect(|_| {
                    let said = strip_location(&error.to_string());
                    tracing::warn!("engines do not share their weights: {said}");
                }),
                built => built,
            };
            return built.map_err(|e| graph_error(&self.graph, &strip_location(&e.to_string())));
        };
        let missing = cuda::preload(runtime).map_err(|detail| OnnxError::Cuda {
            device: number,
            detail,
        })?;
        self.build(runtime, Some(number), None).map_err(|e| {
            let said = strip_location(&e.to_string());
            // A damaged file is no fault of the GPU.
            if said.starts_with("Load model from") || said.contains("External ") {
                return graph_error(&self.graph, &said);
            }
            let detail = if said.contains(NO_KERNEL) {
                format!(
                    "this ONNX Runtime has no kernel on a GPU for some nodes of `{}`, which was made to run there as a whole; make the folder again with tools/model.py, or install ONNX Runtime 1.31.1",
                    self.graph.display()
                )
            } else if missing.is_empty() {
                said
            } else {
                let missing = missing.join(", ");
                format!("{said}; neither beside ONNX Runtime nor where the system looks there is {missing}: install CUDA 13 and cuDNN 9, say with `pip install onnxruntime-gpu[cuda,cudnn]`")
            };
            OnnxError::Cuda {
                device: number,
                detail,
            }
        })
    }

    fn build(
        &self,
        runtime: &Runtime,
        cuda: Option<u16>,
        weights: Option<&SharedWeights>,
    ) -> ort::Result<Session> {
        let mut builder = Session::builder(&runtime.environment)?
            .with_optimization_level(GraphOptimizationLevel::Level3)?
            .with_intra_threads(self.threads)?
            // Nodes of a graph run one after the other, so threads between nodes would have nothing to do.
            .with_inter_threads(1)?
            // Threads that spin between batches take the core from the tokenizer.
            .with_intra_op_spinning(false)?
            // A CPU without VNNI multiplies int8 with sums of 16 bits, which overflow: logits were off by 1.5 there.
            // ONNX Runtime then takes kernels that do not, and changes nothing where the CPU has VNNI.
            .with_config_entry("session.x64quantprecision", "1")?;
        for (key, value) in &self.entries {
            builder = builder.with_config_entry(key, value)?;
        }
        if let Some(number) = cuda {
            // Without it a provider that fails is left out in silence.
            let provider = cuda_provider(number).build().error_on_failure();
            if self.whole_on_gpu {
                // Else a node without a kernel for its types would be computed on the CPU in silence.
                builder = builder.with_config_entry("session.disable_cpu_ep_fallback", "1")?;
            }
            builder = builder.with_execution_providers([provider])?;
        } else if let Some(weights) = weights {
            builder = weights.apply(builder, &self.graph)?;
        }
        builder.commit_from_file(&self.graph)
    }
}

/// How a GPU is used.
pub(super) fn cuda_provider(number: u16) -> ep::CUDA {
    ep::CUDA::default()
        .with_device_id(i32::from(number))
        // By default, each growth of the arena takes more than was asked for. Batches have few shapes, so it soon
        // has what each of them takes.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // TF32 has ten bits of mantissa: fp32 scores would leave the reference in the third digit.
        .with_tf32(false)
}

/// A graph that does not load, without the path that the error tells anyway.
pub(super) fn graph_error(graph: &Path, said: &str) -> OnnxError {
    let preface = format!("Load model from {} failed:", graph.display());
    let detail = said.strip_prefix(&preface).unwrap_or(said);
    let (path, detail) = (graph.to_owned(), detail.trim_end_matches('.').to_owned());
    if is_out_of_memory(said) {
        OnnxError::Memory(path, detail)
    } else {
        OnnxError::Graph(path, detail)
    }
}

/// Inputs or outputs of a session.
pub(super) fn ports_of(outlets: &[Outlet]) -> Vec<Port> {
    let port = |outlet: &Outlet| {
        let (kind, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => {
                let kind = match ty {
                    TensorElementType::Int64 => "int64".to_owned(),
                    TensorElementType::Int32 => "int32".to_owned(),
                    TensorElementType::Float32 => "float32".to_owned(),
                    TensorElementType::Float16 => "float16".to_owned(),
                    other => other.to_string(),
                };
                (Some(kind), Some(shape.to_vec()))
            }
            _ => (None, None),
        };
        Port {
            name: outlet.name().to_owned(),
            kind,
            shape,
        }
    };
    outlets.iter().map(port).collect()
}

/// What CUDA needs besides ONNX Runtime.
mod cuda {
    use ort::ep::cuda::{CUDA_DYLIBS, CUDNN_DYLIBS};
    use ort::util::preload_dylib;

    use super::{Runtime, library};

    /// The driver, which comes with the kernel's module and in no wheel.
    const DRIVER: &str = if cfg!(windows) {
        "nvcuda.dll"
    } else {
        "libcuda.so.1"
    };

    /// Loads the libraries that the CUDA provider needs, from pip's folders beside ONNX Runtime or from where
    /// the system looks, so that the provider finds them; gives the names of those that are nowhere. Fails where
    /// CUDA cannot work whatever else is there.
    pub fn preload(runtime: &Runtime) -> Result<Vec<&'static str>, String> {
        if !runtime.has_cuda() {
            return Err(format!(
                "the ONNX Runtime at `{}` was built without CUDA; install `onnxruntime-gpu`",
                runtime.library().display()
            ));
        }
        if preload_dylib(DRIVER).is_err() {
            return Err(format!(
                "`{DRIVER}` cannot be loaded, so there is no NVIDIA driver and no GPU here; install the driver"
            ));
        }
        let folders = library::nvidia_folders(runtime.library());
        let load = |name: &str| {
            folders
                .iter()
                .any(|folder| preload_dylib(folder.join(name)).is_ok())
                || preload_dylib(name).is_ok()
        };
        let needed = CUDA_DYLIBS.iter().chain(CUDNN_DYLIBS);
        Ok(needed.copied().filter(|name| !load(name)).collect())
    }
}
