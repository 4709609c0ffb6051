//! From settings to engines that compute: which model, on which devices, in how many engines, with how large a batch.
//!
//! A [`ModelChoice`] goes in, an [`EnginePool`] comes out. [`autotune`] searches for the best size of a batch and
//! remembers it; [`estimate`] says what labelling would cost. No flag and no command is known here, so that whatever
//! scores texts can use it.

pub mod agreement;
pub mod autotune;
mod cache_file;
pub mod estimate;
mod measured;

use std::path::{Path, PathBuf};

use topicmill_score::folder::{Processor, Rounding};
use topicmill_score::onnx::library::{PROGRAM_ANCESTORS, data_folder};
use topicmill_score::onnx::{DeviceChoice, Library};
use topicmill_score::scorer::batch_tokens_for;
use topicmill_score::{
    AnyEngine, Device, EngineName, EngineOptions, Labeler, LabelerError, ModelError, ModelFolder,
    ModelKind, Models, OnnxError, SharedWeights, Shortlist,
};

use self::agreement::Agreement;
use self::cache_file::CacheFile;
use crate::gpu::{Residency, check_residency};

/// Why there are no engines.
#[derive(Debug, thiserror::Error)]
pub enum EnginesError {
    /// The model, its folder, or ONNX Runtime.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The tokenizer.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// The model folder.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// Nobody measured what would have to be chosen from.
    #[error("choose the fastest way with agreement {0} for `{1}` on this machine: {2}")]
    NotMeasured(Agreement, String, String),
    /// A shortlist that saves no time: the large model is one that scores all labels in one pass.
    #[error("a shortlist saves nothing: `{0}` scores all labels in one pass")]
    OnePass(String),
    /// A shortlist that saves no time: the small model is the large one.
    #[error("a shortlist saves nothing: `{0}` would pick labels for itself")]
    Itself(String),
}

/// A model, and how it is to be computed.
#[derive(Debug, Clone)]
pub struct ModelChoice {
    /// Its folder, see [`find_model`].
    pub model: PathBuf,
    /// At least one; each gets an engine.
    pub devices: Vec<Device>,
    /// Which graph of the folder; `None` for the folder's choice.
    pub precision: Option<String>,
    /// Padded tokens that a batch may hold; `None` for what was remembered, or else the default.
    pub batch_tokens: Option<usize>,
    /// Threads of each engine within a batch; `None` for its share of the cores.
    pub threads: Option<usize>,
    /// The ONNX Runtime library; `None` for where one is found.
    pub library: Option<PathBuf>,
    /// What computes.
    pub engine: EngineName,
    /// Why it does, where that was measured.
    pub why: Option<String>,
    /// The library of OpenVINO; `None` for where one is found.
    pub openvino: Option<PathBuf>,
}

impl ModelChoice {
    /// A second model beside this one: on the same devices, in its own precision.
    #[must_use]
    pub fn beside(&self, model: &Path) -> Self {
        Self {
            model: model.to_owned(),
            precision: None,
            batch_tokens: None,
            // That was measured of this one.
            why: None,
            ..self.clone()
        }
    }

    /// The same with groups of so many numbers, if `int8` is no graph of the folder but a way to compute the one in float32.
    #[must_use]
    pub fn with_int8_group(mut self, group: u16) -> Self {
        if self.precision.as_deref() == Some("int8")
            && self
                .folder()
                .is_ok_and(|folder| folder.rounding.group().is_some())
        {
            self.precision = Some(Rounding::Int8 { group }.to_string());
        }
        self
    }

    /// One engine, which has the machine to itself.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn open_one(&self, device: Device) -> Result<OpenedModel, EnginesError> {
        self.open_share(&Share::new(1), device)
    }

    /// As many engines as workers, and at least one a device.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn open(&self, workers: u16) -> Result<EnginePool, EnginesError> {
        // Whoever names a device wants it used, also where fewer workers are set.
        let workers = workers.max(u16::try_from(self.devices.len()).unwrap_or(u16::MAX));
        let share = Share::new(workers);
        let first = self.open_share(&share, self.devices[0])?;
        log_model(&first.labeler, &first.chosen);
        let mut on = vec![first.chosen.device];
        let mut models = vec![Models::from(first.labeler)];
        for device in self.devices.iter().cycle().take(workers.into()).skip(1) {
            let opened = self.open_share(&share, *device)?;
            models.push(opened.labeler.into());
            on.push(opened.chosen.device);
        }
        if on.len() > 1 {
            let on: Vec<String> = on.iter().map(Device::to_string).collect();
            tracing::info!("{} engines side by side, on {}", on.len(), on.join(", "));
        }
        Ok(EnginePool {
            models,
            devices: on,
            threads: first.threads,
            runtime: first.runtime,
            budget: first.budget,
        })
    }

    /// Puts this model before each large one: it picks so many labels of each text.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn add_shortlist(&self, models: &mut [Models], labels: usize) -> Result<(), EnginesError> {
        let share = Share::new(u16::try_from(models.len()).unwrap_or(u16::MAX));
        for (models, device) in models.iter_mut().zip(self.devices.iter().cycle()) {
            let small = self.open_share(&share, *device)?.labeler;
            let large = models.large.folder();
            if !matches!(large.kind, ModelKind::Nli(_)) {
                return Err(EnginesError::OnePass(large.name.clone()));
            }
            if large.manifest_hash == small.folder().manifest_hash {
                return Err(EnginesError::Itself(large.name.clone()));
            }
            models.small = Some(Shortlist::new(small, labels));
        }
        let small = find_model(&self.model);
        tracing::info!(
            "only the {labels} labels that {} puts first are scored",
            small.display()
        );
        Ok(())
    }

    /// The model folder alone, with the graph for the first device; `auto` is the CPU here.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn folder(&self) -> Result<ModelFolder, ModelError> {
        let processor = match self.devices[0] {
            Device::Cuda(_) => Processor::Cuda,
            Device::Cpu | Device::Auto => Processor::Cpu,
        };
        let precision = self.precision.as_deref();
        ModelFolder::open_for(&find_model(&self.model), processor, precision)
    }

    /// One of several that share this machine.
    fn open_share(&self, share: &Share, device: Device) -> Result<OpenedModel, EnginesError> {
        let options = EngineOptions {
            device,
            // Several engines with all cores each would take them from one another.
            threads: self.threads.or_else(|| share.cores()),
            library: self.library.clone(),
            engine: self.engine,
            openvino: self.openvino.clone(),
            weights: share.weights.clone(),
        };
        let precision = self.precision.as_deref();
        let (folder, engine) = OpenedEngine::open(&find_model(&self.model), precision, &options)?;
        check_model_on_gpu(&folder, &engine.chosen, device)?;
        let mut chosen = engine.chosen.clone();
        if let Some(why) = &self.why {
            let by = match engine.library {
                Library::OpenVino => engine.runtime.clone(),
                library @ Library::OnnxRuntime => library.to_string(),
            };
            chosen.reason = format!("{by}, {why}");
        }
        let threads = engine.threads;
        let default = batch_tokens_for(chosen.device, threads);
        // All that the best size depends on. What was found on one machine or for one model says nothing about
        // another.
        let (runtime, device) = (engine.runtime.clone(), device_model(chosen.device));
        let key = format!(
            "{} {} on {device}, {} × {threads} threads, {runtime}",
            folder.manifest_hash, folder.precision, share.workers
        );
        let (budget, tokens) = match self.batch_tokens {
            // Before the flag: a score that depends on its batch may not change with a setting.
            _ if folder.depends_on_batch() => (Budget::FromModel, default),
            Some(tokens) => (Budget::Fixed, tokens),
            None => match budget_cache().and_then(|remembered| remembered.get::<usize>(&key)) {
                Some(tokens) if tokens > 0 => (Budget::Remembered(key), tokens),
                _ => (Budget::Unsearched(key), default),
            },
        };
        let labeler = Labeler::load(folder, Box::new(engine), tokens)?;
        if budget == Budget::FromModel && self.batch_tokens.is_some() {
            tracing::warn!(
                "`batch_tokens` is left aside: in {} a score depends on its batch, so batches keep to {} tokens",
                labeler.folder().precision,
                labeler.batch_tokens(),
            );
        }
        Ok(OpenedModel {
            labeler,
            chosen,
            threads,
            runtime,
            budget,
        })
    }
}

/// Whether the GPU that a model was loaded on holds it, as the driver lists it. A library that computes elsewhere in silence
/// would be slow, and nothing else would show it.
fn check_model_on_gpu(
    folder: &ModelFolder,
    chosen: &Chosen,
    asked: Device,
) -> Result<(), OnnxError> {
    let Device::Cuda(device) = chosen.device else {
        return Ok(());
    };
    let beside = folder.spec.iter().flat_map(|spec| &spec.graph.data);
    let files = beside.map(|name| folder.dir.join(name));
    let files = files.chain([folder.graph.clone()]);
    let weights = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    // Half, because a file has more than what goes to the GPU.
    let found = check_residency(device, weights.sum::<u64>() / 2);
    tracing::debug!(
        "the driver's list of processes on {}: {found:?}",
        chosen.device
    );
    let detail = "NVML lists no memory of this process on it after the model was loaded, so the model is elsewhere; install `onnxruntime-gpu` again";
    match found {
        Residency::NotResident if asked == Device::Auto => {
            tracing::warn!("{} may not compute: {detail}", chosen.device);
            Ok(())
        }
        Residency::NotResident => Err(OnnxError::Cuda {
            device,
            detail: detail.to_owned(),
        }),
        Residency::Resident | Residency::Unknown => Ok(()),
    }
}

/// A model that is ready to score, and how it was opened.
pub struct OpenedModel {
    /// Scores.
    pub labeler: Labeler,
    /// Where it runs, and why.
    pub chosen: DeviceChoice,
    /// Threads within a batch.
    pub threads: usize,
    /// The library that computes, with its version.
    pub runtime: String,
    /// Where its token budget comes from.
    pub budget: Budget,
}

/// Engines of one model.
pub struct EnginePool {
    /// At least one.
    pub models: Vec<Models>,
    /// What each runs on.
    pub devices: Vec<Device>,
    /// Threads of each within a batch.
    pub threads: usize,
    /// The library that computes, with its version.
    pub runtime: String,
    /// Where their token budget comes from.
    pub budget: Budget,
}

/// Where a token budget comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// Flag or setting.
    Fixed,
    /// The model: with another one its scores would be others.
    FromModel,
    /// An earlier search, cache_file under this key.
    Remembered(String),
    /// The default, for want of a search. A database notes it under the same key: what it is asked for then holds wherever
    /// the program runs.
    Unsearched(String),
}

impl Budget {
    /// Keeps what a search found for later commands of this user.
    ///
    /// # Errors
    /// Why it cannot be kept, in words.
    pub fn remember(&self, batch_tokens: usize) -> Result<(), String> {
        let (Self::Remembered(key) | Self::Unsearched(key)) = self else {
            return Ok(());
        };
        let remembered = budget_cache().ok_or("neither XDG_CACHE_HOME nor HOME names a folder")?;
        remembered.insert(key, batch_tokens).map(drop)
    }
}

/// Where budgets are remembered; nowhere for a user without a home.
fn budget_cache() -> Option<CacheFile> {
    Some(CacheFile::in_folder(&cache_folder()?, "batch-tokens.json"))
}

/// This user's folder for what can be found out again.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        Some(path).filter(|path| path.is_absolute())
    };
    folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
}

/// A device with its make, where Linux tells: a cache may lie on a disk that several machines share.
fn device_model(device: Device) -> String {
    let line = |path: &Path, name: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let make = match device {
        Device::Cpu | Device::Auto => line(Path::new("/proc/cpuinfo"), "model name"),
        Device::Cuda(_) => std::fs::read_dir("/proc/driver/nvidia/gpus")
            .into_iter()
            .flatten()
            .find_map(|gpu| line(&gpu.ok()?.path().join("information"), "Model")),
    };
    make.map_or_else(|| device.to_string(), |make| format!("{device} ({make})"))
}

/// Logs which model scores, and on what.
pub fn log_model(labeler: &Labeler, chosen: &DeviceChoice) {
    let folder = labeler.folder();
    tracing::info!(
        "scoring with {} in {} on {}: {}",
        folder.name,
        folder.precision,
        chosen.device,
        chosen.reason
    );
    tracing::debug!(
        kind = folder.kind.as_str(), graph = %folder.graph.display(), max_tokens = folder.max_tokens,
        batch_tokens = labeler.batch_tokens(), "model"
    );
}

/// What an engine has of this machine and of the model, beside others like it.
#[derive(Debug)]
struct Share {
    workers: u16,
    weights: Option<SharedWeights>,
}

impl Share {
    /// The share of each of several workers.
    fn new(workers: u16) -> Self {
        Self {
            workers,
            // An engine alone has nobody to share with.
            weights: (workers > 1).then(SharedWeights::default),
        }
    }

    /// Cores for each, where there are several.
    fn cores(&self) -> Option<usize> {
        (self.workers > 1).then(|| (cores() / usize::from(self.workers)).max(1))
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where a model that is named by a relative path lies: in the current folder; beside the program, in one of the folders
/// above it (a repository) or in `share/topicmill` there (an installed program); in this user's data folder. Found
/// nowhere, it is left as it is named.
pub fn find_model(named: &Path) -> PathBuf {
    if named.is_absolute() || named.exists() {
        return named.to_owned();
    }
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .unwrap_or_default();
    let beside = program.ancestors().skip(1).take(PROGRAM_ANCESTORS);
    let beside = beside.flat_map(|folder| {
        [
            folder.join(named),
            folder.join("share/topicmill").join(named),
        ]
    });
    beside
        .chain(data_folder().map(|data| data.join(named)))
        .find(|path| path.exists())
        .unwrap_or(named.to_owned())
}
