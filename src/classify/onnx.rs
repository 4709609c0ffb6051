//! ONNX Runtime, behind [`Engine`]. The only file that names the `ort` crate.
//!
//! The library is loaded once a process, from where [`library`](super::library) finds it, always by its
//! path: left to itself `ort` panics where it finds none. One session computes one batch at a time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::environment::Environment;
use ort::ep::{self, ArenaExtendStrategy, ExecutionProvider};
use ort::logging::LogLevel;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{TensorElementType, TensorRef, ValueType};

use super::batch::Batch;
use super::engine::{Device, Engine, EngineError, Logits};
use super::library::{self, Place};
use crate::model_folder::{ModelFolder, ModelKind};

/// Why ONNX Runtime or a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// There is no library anywhere.
    #[error(
        "find ONNX Runtime: no library in a `.venv` here or in a folder above, nor where the system looks; run `make onnxruntime`, or set `onnxruntime.library` ({0})"
    )]
    NotFound(String),
    /// There is no library where there should be one.
    #[error(
        "load ONNX Runtime: `{by}` says `{path}`, which is no file; correct it, or leave it out and run `make onnxruntime`"
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The setting that names it.
        by: &'static str,
    },
    /// The library is another one, too old, or damaged.
    #[error(
        "load ONNX Runtime from `{path}`: not a library of version 1.24 or later; run `make onnxruntime`, or set `onnxruntime.library` to another one ({detail})"
    )]
    Load {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        detail: String,
    },
    /// The library does not start.
    #[error("start ONNX Runtime: {0}")]
    Start(String),
    /// The GPU asked for cannot be used.
    #[error(
        "use CUDA device {device}: {detail}; install `onnxruntime-gpu` with CUDA 13 and cuDNN 9 and set `onnxruntime.library` to it, or use `--device cpu`"
    )]
    Cuda {
        /// Number of the device.
        device: u16,
        /// What is missing.
        detail: String,
    },
    /// The graph cannot be loaded.
    #[error("load the graph `{path}`: {detail}; copy or export the model again")]
    Graph {
        /// The file.
        path: PathBuf,
        /// What the runtime said.
        detail: String,
    },
    /// The graph wants or gives something else than text models do.
    #[error("use the graph `{path}`: {detail}; export the model with `optimum-cli export onnx`")]
    Contract {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        detail: String,
    },
}

/// ONNX Runtime, loaded.
#[derive(Debug)]
pub struct Runtime {
    environment: Environment,
    library: PathBuf,
}

impl Runtime {
    /// The file it was loaded from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Whether it was built for CUDA; says nothing of a GPU being there.
    pub fn knows_cuda(&self) -> bool {
        ep::CUDA::is_available().unwrap_or(false)
    }
}

/// Loads ONNX Runtime; `setting` is `onnxruntime.library`. A process has one: later calls give the first.
///
/// # Errors
/// [`OnnxError::NotFound`], [`OnnxError::Missing`], [`OnnxError::Load`], [`OnnxError::Start`].
pub fn load_runtime(setting: Option<&Path>) -> Result<&'static Runtime, OnnxError> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());

    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let load = |path: &Path| {
        // Display says too little of a failed dlopen.
        ort::init_from(path).map_err(|e| OnnxError::Load {
            path: path.to_owned(),
            detail: format!("{e:?}"),
        })
    };
    let (builder, library) = match library::place(
        setting,
        std::env::var_os("ORT_DYLIB_PATH"),
        &library::starts(),
    ) {
        Place::Told { path, by } if !path.is_file() => return Err(OnnxError::Missing { path, by }),
        Place::Told { path, .. } | Place::Found(path) => (load(&path)?, path),
        Place::System(names) => {
            let mut tried = Vec::new();
            let loaded = names.into_iter().find_map(|name| match load(&name) {
                Ok(builder) => Some((builder, name)),
                Err(error) => {
                    if let OnnxError::Load { detail, .. } = error {
                        tried.push(detail);
                    }
                    None
                }
            });
            loaded.ok_or_else(|| OnnxError::NotFound(tried.join("; ")))?
        }
    };
    let start = |e: ort::Error| OnnxError::Start(plain(&e.to_string()));
    let environment = builder
        .with_name("topicmill")
        .with_telemetry(false)
        .build()
        .map_err(start)?;
    environment.set_log_level(LogLevel::Warning);
    Ok(RUNTIME.get_or_init(|| Runtime {
        environment,
        library,
    }))
}

/// How a model is loaded.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// What to compute on.
    pub device: Device,
    /// Threads within one batch on the CPU; `None` for one a core that this process may use.
    pub threads: Option<usize>,
    /// Setting `onnxruntime.library`.
    pub library: Option<PathBuf>,
}

/// What a model runs on, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// For people: `asked for`, `no CUDA in this ONNX Runtime`, …
    pub reason: String,
}

/// A graph in a session of ONNX Runtime.
#[derive(Debug)]
pub struct OnnxEngine {
    runtime: &'static Runtime,
    graph: PathBuf,
    threads: usize,
    chosen: Chosen,
    inputs: Vec<Input>,
    output: String,
    vocab_size: Option<usize>,
    /// `None` after a restart that failed.
    session: Option<Session>,
}

/// What a text model may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Ids,
    Mask,
    TypeIds,
}

impl Input {
    const ALL: [Self; 3] = [Self::Ids, Self::Mask, Self::TypeIds];

    fn name(self) -> &'static str {
        match self {
            Self::Ids => "input_ids",
            Self::Mask => "attention_mask",
            Self::TypeIds => "token_type_ids",
        }
    }
}

impl OnnxEngine {
    /// Loads the graph of a model folder.
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn load(folder: &ModelFolder, options: &EngineOptions) -> Result<Self, OnnxError> {
        let runtime = load_runtime(options.library.as_deref())?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.filter(|n| *n > 0).unwrap_or_else(cores);
        let (session, chosen) = open(runtime, &folder.graph, options.device, threads)?;
        let contract = |detail| OnnxError::Contract {
            path: folder.graph.clone(),
            detail,
        };
        Ok(Self {
            runtime,
            graph: folder.graph.clone(),
            threads,
            chosen,
            inputs: inputs_of(&session).map_err(contract)?,
            output: output_of(&session, &folder.kind).map_err(contract)?,
            vocab_size: folder.vocab_size,
            session: Some(session),
        })
    }

    /// What it runs on, and why.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Threads within a batch.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The runtime, told from other versions of it: name and size of its file.
    pub fn runtime(&self) -> String {
        let library = &self.runtime.library;
        let file = std::fs::canonicalize(library).unwrap_or_else(|_| library.clone());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        format!("{name} of {bytes} bytes")
    }

    /// Checks every id: a graph reads a negative one from the end of its table and says nothing.
    fn check_ids(&self, batch: &Batch) -> Result<(), EngineError> {
        let Some(vocab_size) = self.vocab_size else {
            return Ok(());
        };
        let known = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
        match batch.ids.iter().find(|id| !known(id)) {
            Some(id) => Err(EngineError::Token {
                id: *id,
                vocab_size,
            }),
            None => Ok(()),
        }
    }
}

impl Engine for OnnxEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        self.check_ids(batch)?;
        let session = self
            .session
            .as_mut()
            .ok_or_else(|| EngineError::Run("the session was lost; start again".to_owned()))?;
        compute(session, &self.inputs, &self.output, batch).map_err(|e| match e {
            Failure::Ort(e) => classify_error(&e.to_string(), batch),
            Failure::Shape(detail) => EngineError::Shape(detail),
        })
    }

    fn restart(&mut self) -> Result<(), EngineError> {
        // First give back what the old session holds.
        self.session = None;
        let (session, _) = open(self.runtime, &self.graph, self.chosen.device, self.threads)
            .map_err(|e| EngineError::Run(format!("load the model again: {e}")))?;
        self.session = Some(session);
        Ok(())
    }
}

enum Failure {
    Ort(ort::Error),
    Shape(String),
}

impl From<ort::Error> for Failure {
    fn from(error: ort::Error) -> Self {
        Self::Ort(error)
    }
}

fn compute(
    session: &mut Session,
    inputs: &[Input],
    output: &str,
    batch: &Batch,
) -> Result<Logits, Failure> {
    let shape = [batch.rows(), batch.width];
    let mask = batch.attention_mask();
    let mut values: Vec<(&str, SessionInputValue<'_>)> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let data = match input {
            Input::Ids => &batch.ids,
            Input::Mask => &mask,
            Input::TypeIds => &batch.type_ids,
        };
        values.push((
            input.name(),
            TensorRef::from_array_view((shape, data.as_slice()))?.into(),
        ));
    }
    let outputs = session.run(values)?;
    let value = outputs
        .get(output)
        .ok_or_else(|| Failure::Shape(format!("there is no output `{output}`")))?;
    let (dims, data) = if let Ok((dims, data)) = value.try_extract_tensor::<f32>() {
        (dims, data.to_vec())
    } else {
        let (dims, data) = value.try_extract_tensor::<half::f16>()?;
        (dims, data.iter().map(|x| x.to_f32()).collect())
    };
    match dims[..] {
        [rows, width] if rows > 0 && width > 0 => {
            let size = |n: i64| usize::try_from(n).expect("it is positive");
            Ok(Logits {
                rows: size(rows),
                width: size(width),
                data,
            })
        }
        _ => Err(Failure::Shape(format!(
            "output `{output}` has shape {dims:?}, not [rows, numbers]"
        ))),
    }
}

/// The runtime's words without the place in its source and what follows the first line.
fn plain(message: &str) -> String {
    let message = message
        .split_once("[ONNXRuntimeError] : ")
        .map_or(message, |(_, rest)| rest);
    let message = message
        .split_once(" : FAIL : ")
        .map_or(message, |(_, rest)| rest);
    message.lines().next().unwrap_or_default().trim().to_owned()
}

/// Tells out of memory from the rest: the runtime has no code for it.
fn classify_error(message: &str, batch: &Batch) -> EngineError {
    const SIGNS: &[&str] = &[
        "failed to allocate memory",
        "out of memory",
        "bad_alloc",
        "cublas_status_alloc_failed",
        "cudnn_status_alloc_failed",
        "cudaerrormemoryallocation",
    ];
    let lower = message.to_lowercase();
    if SIGNS.iter().any(|sign| lower.contains(sign)) {
        EngineError::OutOfMemory {
            rows: batch.rows(),
            width: batch.width,
            detail: message.to_owned(),
        }
    } else {
        EngineError::Run(message.to_owned())
    }
}

fn open(
    runtime: &Runtime,
    graph: &Path,
    device: Device,
    threads: usize,
) -> Result<(Session, Chosen), OnnxError> {
    let cpu = |reason: &str| {
        let session = session(runtime, graph, threads, None)
            .map_err(|e| graph_error(graph, &plain(&e.to_string())))?;
        Ok((
            session,
            Chosen {
                device: Device::Cpu,
                reason: reason.to_owned(),
            },
        ))
    };
    let cuda = |number: u16, reason: &str| {
        let session = cuda_session(runtime, graph, threads, number)?;
        Ok((
            session,
            Chosen {
                device: Device::Cuda(number),
                reason: reason.to_owned(),
            },
        ))
    };
    match device {
        Device::Cpu => cpu("asked for"),
        Device::Cuda(number) => cuda(number, "asked for"),
        // Asked before it is tried: the runtime logs an error on trying.
        Device::Auto if !runtime.knows_cuda() => cpu("no CUDA in this ONNX Runtime"),
        Device::Auto => match cuda(0, "found") {
            Err(OnnxError::Cuda { detail, .. }) => cpu(&format!("CUDA cannot be used: {detail}")),
            other => other,
        },
    }
}

fn cuda_session(
    runtime: &Runtime,
    graph: &Path,
    threads: usize,
    number: u16,
) -> Result<Session, OnnxError> {
    let error = |detail| OnnxError::Cuda {
        device: number,
        detail,
    };
    if !runtime.knows_cuda() {
        return Err(error(format!(
            "the ONNX Runtime at `{}` was built without CUDA",
            runtime.library.display()
        )));
    }
    // The wheels of NVIDIA keep their libraries where no loader looks.
    if let Some(site) = runtime.library.ancestors().nth(3) {
        let nvidia = site.join("nvidia");
        let dir = |path: &str| Some(nvidia.join(path)).filter(|dir| dir.is_dir());
        let (cuda, cudnn) = (dir("cu13/lib"), dir("cudnn/lib"));
        if let Err(e) = ep::cuda::preload_dylibs(cuda.as_deref(), cudnn.as_deref()) {
            tracing::debug!(error = %e, "cannot preload the CUDA libraries beside ONNX Runtime");
        }
    }
    session(runtime, graph, threads, Some(number)).map_err(|e| {
        let said = plain(&e.to_string());
        // A damaged file is no fault of the GPU.
        if said.starts_with("Load model from") || said.contains("External ") {
            graph_error(graph, &said)
        } else {
            error(said)
        }
    })
}

/// A graph that does not load, without the path that the error tells anyway.
fn graph_error(graph: &Path, said: &str) -> OnnxError {
    let preface = format!("Load model from {} failed:", graph.display());
    let detail = said.strip_prefix(&preface).unwrap_or(said);
    OnnxError::Graph {
        path: graph.to_owned(),
        detail: detail.trim_end_matches('.').to_owned(),
    }
}

fn session(
    runtime: &Runtime,
    graph: &Path,
    threads: usize,
    cuda: Option<u16>,
) -> ort::Result<Session> {
    let mut builder = Session::builder(&runtime.environment)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        // Threads that spin between batches take the core from the tokenizer.
        .with_intra_op_spinning(false)?;
    if let Some(number) = cuda {
        let provider = ep::CUDA::default()
            .with_device_id(i32::from(number))
            .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
            // TF32 has ten bits of mantissa: fp32 scores would leave the reference in the third digit.
            .with_tf32(false)
            .build()
            // Without it a provider that fails is left out in silence.
            .error_on_failure();
        builder = builder.with_execution_providers([provider])?;
    }
    builder.commit_from_file(graph)
}

fn inputs_of(session: &Session) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    for outlet in session.inputs() {
        let input = Input::ALL
            .into_iter()
            .find(|input| input.name() == outlet.name());
        let integers = matches!(
            outlet.dtype(),
            ValueType::Tensor {
                ty: TensorElementType::Int64,
                ..
            }
        );
        match input {
            Some(input) if integers => inputs.push(input),
            Some(input) => {
                return Err(format!(
                    "its input `{}` is {}, not int64",
                    input.name(),
                    outlet.dtype()
                ));
            }
            None => {
                return Err(format!(
                    "it wants the input `{}`; topicmill gives input_ids, attention_mask and token_type_ids",
                    outlet.name()
                ));
            }
        }
    }
    for needed in [Input::Ids, Input::Mask] {
        if !inputs.contains(&needed) {
            return Err(format!("it has no input `{}`", needed.name()));
        }
    }
    Ok(inputs)
}

fn output_of(session: &Session, kind: &ModelKind) -> Result<String, String> {
    let names: Vec<&str> = session
        .outputs()
        .iter()
        .map(ort::value::Outlet::name)
        .collect();
    let wanted = match kind {
        ModelKind::Embedding(head) => head.output.as_str(),
        ModelKind::Nli(_) => "logits",
    };
    if names.contains(&wanted) {
        return Ok(wanted.to_owned());
    }
    match (kind, names.first()) {
        (ModelKind::Nli(_), Some(first)) => Ok((*first).to_owned()),
        _ => Err(format!(
            "it has no output `{wanted}` (there is {})",
            names.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
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
    fn the_runtime_is_quoted_without_its_source() {
        let said = "/src/bridge.cc:2043 Provider& Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so\nmore\n";
        assert_eq!(plain(said), "Failed to load x.so");
        assert_eq!(
            plain("Load model from m.onnx failed"),
            "Load model from m.onnx failed"
        );
    }

    #[test]
    fn a_damaged_graph_is_told_in_one_sentence() {
        let said = "Load model from m/model.onnx failed:Protobuf parsing failed.";
        assert_eq!(
            graph_error(Path::new("m/model.onnx"), said).to_string(),
            "load the graph `m/model.onnx`: Protobuf parsing failed; copy or export the model again"
        );
    }

    #[test]
    fn a_library_that_is_not_there_or_is_none_is_named() {
        let missing = load_error(Path::new("/no/libonnxruntime.so"));
        assert!(
            missing.contains("/no/libonnxruntime.so") && missing.contains("onnxruntime.library"),
            "{missing}"
        );
        let dir = tempfile::tempdir().unwrap();
        let foreign = dir.path().join("libonnxruntime.so");
        std::fs::write(&foreign, "not a library").unwrap();
        let foreign = load_error(&foreign);
        assert!(foreign.contains("make onnxruntime"), "{foreign}");
    }

    fn load_error(path: &Path) -> String {
        load_runtime(Some(path)).unwrap_err().to_string()
    }
}
