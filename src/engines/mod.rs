//! Opens engines from settings: which model, on which devices, how many engines, and with which token budget.
//!
//! A [`ModelChoice`] opens an [`EnginePool`]. [`estimate`] estimates the cost of labelling. The module does not depend
//! on flags or commands, so every caller that scores texts can use it.

pub mod estimate;

use std::path::{Path, PathBuf};

use topicmill_core::ModelKind;
use topicmill_score::DeviceChoice;
use topicmill_score::batch::batch_tokens_for;
use topicmill_score::library::{PROGRAM_ANCESTORS, data_folder};
use topicmill_score::{
    Device, EngineOptions, Labeler, LabelerError, LoadError, ModelError, ModelFolder, Models,
    OpenedEngine, Shortlist,
};

use crate::gpu::{Residency, check_residency};

/// Reasons why engines cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EnginesError {
    /// An error of the model, its folder, or the inference library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An error of the tokenizer.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// An error of the model folder.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// A shortlist that saves no time, because the large model scores all labels in one pass.
    #[error(
        "a shortlist saves nothing: `{0}` scores all labels in one pass: name an NLI model with --model"
    )]
    OnePass(String),
    /// A shortlist that saves no time, because both models are the same.
    #[error(
        "a shortlist saves nothing: `{0}` is both the large and the small model: name a smaller model with --small-model"
    )]
    Itself(String),
}

/// A model and how to compute it.
#[derive(Debug, Clone)]
pub struct ModelChoice {
    /// Its folder; see [`find_model`].
    pub model: PathBuf,
    /// At least one device; each gets an engine.
    pub devices: Vec<Device>,
    /// The precision of the graph; `None` for the folder's default.
    pub precision: Option<String>,
    /// Padded tokens per batch; `None` for the default of the device.
    pub batch_tokens: Option<usize>,
    /// The libraries, and the threads per engine; without a number, each engine gets its share of the cores.
    pub options: EngineOptions,
}

impl ModelChoice {
    /// Returns the choice of a second model, on the same devices and in its own precision.
    #[must_use]
    pub fn second_model(&self, model: &Path) -> Self {
        Self {
            model: model.to_owned(),
            precision: None,
            batch_tokens: None,
            ..self.clone()
        }
    }

    /// Opens a single engine that has the machine to itself.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn open_one(&self, device: Device) -> Result<OpenedModel, EnginesError> {
        self.open_share(1, device)
    }

    /// Opens as many engines as workers, and at least one per device.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn open(&self, workers: u16) -> Result<EnginePool, EnginesError> {
        // Every named device is used, even with fewer workers.
        let workers = workers.max(u16::try_from(self.devices.len()).unwrap_or(u16::MAX));
        let first = self.open_share(workers, self.devices[0])?;
        log_model(&first.labeler, &first.chosen);
        let mut devices = vec![first.chosen.device];
        let mut models = vec![Models::from(first.labeler)];
        for device in self.devices.iter().cycle().take(workers.into()).skip(1) {
            let opened = self.open_share(workers, *device)?;
            models.push(opened.labeler.into());
            devices.push(opened.chosen.device);
        }
        if devices.len() > 1 {
            let names: Vec<String> = devices.iter().map(Device::to_string).collect();
            let (count, names) = (names.len(), names.join(", "));
            tracing::info!("{count} concurrent engines, on {names}");
        }
        Ok(EnginePool {
            models,
            devices,
            threads: first.threads,
            runtime: first.runtime,
        })
    }

    /// Adds this model to each large model, to shortlist `labels` labels per text.
    ///
    /// # Errors
    /// See [`EnginesError`].
    pub fn add_shortlist(&self, models: &mut [Models], labels: usize) -> Result<(), EnginesError> {
        let workers = u16::try_from(models.len()).unwrap_or(u16::MAX);
        for (models, device) in models.iter_mut().zip(self.devices.iter().cycle()) {
            let large = models.large.folder();
            if !matches!(large.kind, ModelKind::Nli(_)) {
                return Err(EnginesError::OnePass(large.name.clone()));
            }
            let small = self.open_share(workers, *device)?.labeler;
            if large.manifest_hash == small.folder().manifest_hash {
                return Err(EnginesError::Itself(large.name.clone()));
            }
            models.small = Some(Shortlist::new(small, labels));
        }
        tracing::info!(
            "scoring only the {labels} labels that {} ranks highest",
            find_model(&self.model).display()
        );
        Ok(())
    }

    /// Opens the model folder without an engine, with the graph for the first device; `auto` means the CPU here.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn folder(&self) -> Result<ModelFolder, ModelError> {
        let (model, precision) = (find_model(&self.model), self.precision.as_deref());
        ModelFolder::open_for(&model, self.devices[0].into(), precision)
    }

    /// Opens one of several engines that share this machine.
    fn open_share(&self, workers: u16, device: Device) -> Result<OpenedModel, EnginesError> {
        let share = || (workers > 1).then(|| (cores() / usize::from(workers)).max(1));
        let options = EngineOptions {
            device,
            // If each engine used all cores, the engines would compete for them.
            threads: self.options.threads.or_else(share),
            ..self.options.clone()
        };
        let precision = self.precision.as_deref();
        let (folder, opened) = OpenedEngine::open(&find_model(&self.model), precision, &options)?;
        let (chosen, threads) = (opened.chosen, opened.threads);
        check_model_on_gpu(&folder, &chosen, device)?;
        let requested = self.batch_tokens;
        let tokens = requested.unwrap_or_else(|| batch_tokens_for(chosen.device, threads));
        let labeler = Labeler::load(folder, opened.engine, tokens)?;
        if requested.is_some_and(|tokens| tokens != labeler.batch_tokens()) {
            tracing::warn!(
                "ignoring `batch_tokens`: in {} a score depends on its batch, so batches have {} tokens",
                labeler.folder().precision,
                labeler.batch_tokens(),
            );
        }
        Ok(OpenedModel {
            labeler,
            chosen,
            threads,
            runtime: opened.runtime,
        })
    }
}

/// Checks with the driver that the GPU holds the model. A library that silently computes on the CPU would only be
/// noticed by its speed.
fn check_model_on_gpu(
    folder: &ModelFolder,
    chosen: &DeviceChoice,
    requested: Device,
) -> Result<(), LoadError> {
    let Device::Cuda(device) = chosen.device else {
        return Ok(());
    };
    let data_files = folder.spec.iter().flat_map(|spec| &spec.graph.data);
    let weights = data_files
        .map(|name| folder.dir.join(name))
        .chain([folder.graph.clone()])
        .filter_map(|file| Some(file.metadata().ok()?.len()));
    // Half of the weights count, because not everything in the files goes to the GPU.
    let residency = check_residency(weights.sum::<u64>() / 2);
    tracing::debug!(
        "the driver's list of processes on {}: {residency:?}",
        chosen.device
    );
    let detail = "nvidia-smi lists no memory of this process, so the model runs elsewhere; reinstall `onnxruntime-gpu`";
    match residency {
        Residency::NotResident if requested == Device::Auto => {
            tracing::warn!("{} may not be in use: {detail}", chosen.device);
            Ok(())
        }
        Residency::NotResident => Err(LoadError::Cuda {
            device,
            detail: detail.to_owned(),
        }),
        Residency::Resident | Residency::Unknown => Ok(()),
    }
}

/// A model that is ready to score.
pub struct OpenedModel {
    /// The labeler that scores.
    pub labeler: Labeler,
    /// Its device, and the reason for it.
    pub chosen: DeviceChoice,
    /// Threads per batch.
    pub threads: usize,
    /// The library and its version.
    pub runtime: String,
}

/// The engines of one model.
pub struct EnginePool {
    /// The models of each engine; at least one engine.
    pub models: Vec<Models>,
    /// Each engine's device.
    pub devices: Vec<Device>,
    /// Threads per batch of each engine.
    pub threads: usize,
    /// The library and its version.
    pub runtime: String,
}

/// Logs the model and its device.
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

/// Returns the number of cores available to this process.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Resolves the path of a model. Searches for a relative path in the current folder; in the folders above the program
/// (a repository) and their `share/topicmill` (an installed program); and in the user's data folder. Returns the path
/// unchanged if it is not found.
pub fn find_model(named: &Path) -> PathBuf {
    if named.is_absolute() || named.exists() {
        return named.to_owned();
    }
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .unwrap_or_default();
    let folders = program.ancestors().skip(1).take(PROGRAM_ANCESTORS);
    let installed = |folder: &Path| folder.join("share/topicmill").join(named);
    let candidates = folders.flat_map(|folder| [folder.join(named), installed(folder)]);
    candidates
        .chain(data_folder().map(|data| data.join(named)))
        .find(|path| path.exists())
        .unwrap_or_else(|| named.to_owned())
}
