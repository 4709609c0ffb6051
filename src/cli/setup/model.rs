//! Models for the commands that score: which, on what, and how many engines.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Setup;
use crate::classify::autotune::remembered::{Key, Remembered};
use crate::classify::engine::{self, Device};
use crate::classify::labeler::Labeler;
use crate::classify::onnx::{Chosen, EngineOptions, OnnxEngine, SharedWeights};
use crate::classify::shortlist::Shortlist;
use crate::cli::CliError;
use crate::domain::LabelSet;
use crate::model_folder::{ModelFolder, ModelKind, Target};

/// Padded tokens of a batch on a CPU: small sorted batches stay in its caches.
const CPU_BATCH_TOKENS: usize = 1_024;
/// Padded tokens of a batch on a GPU: enough work to hide what a launch costs.
const CUDA_BATCH_TOKENS: usize = 16_384;

/// Flags of commands that use a model.
#[derive(Debug, Clone, Args, Default)]
pub struct ModelFlags {
    /// Use the model in this folder; `topicmill model list` shows which there are
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Compute on this device: auto, cpu, cuda, cuda:N, or several, as in cuda:0,1
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Use the model's graph in this precision: auto, fp32, fp16 or int8
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Put at most this many padded tokens into a batch; auto searches for the best number
    #[arg(long, value_name = "N")]
    batch_tokens: Option<String>,
    /// Compute with this many threads; 0 means one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Score in this mode: single (one label for each text) or multi (each label by itself)
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<String>,
}

/// Flags of commands that may score a few labels only.
#[derive(Debug, Clone, Args)]
pub struct ShortlistFlags {
    /// Score only the K labels that a small model puts first for each text; `bench shortlist` measures it
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: Option<u32>,
    /// Use the small model in this folder
    #[arg(long, value_name = "DIR", requires = "shortlist", default_value = SMALL_MODEL)]
    shortlist_model: PathBuf,
}

/// The model that ships.
pub const SMALL_MODEL: &str = "models/minilm-reddit-topics";

impl ModelFlags {
    /// Those of a command that takes only a folder and a mode; the settings say the rest.
    pub fn new(model: Option<PathBuf>, mode: Option<String>) -> Self {
        Self {
            model,
            mode,
            ..Self::default()
        }
    }

    /// Those of a second model beside this one: on the same device, in its own precision.
    pub fn beside(&self, model: &Path) -> Self {
        Self {
            model: Some(model.to_owned()),
            precision: Some("auto".into()),
            batch_tokens: Some("auto".into()),
            ..self.clone()
        }
    }
}

impl Setup {
    /// Model folder, engine and tokenizer, ready to score; tells which they are.
    pub fn labeler(&self, flags: &ModelFlags) -> Result<Labeler, CliError> {
        let engine = self.only_engine(flags, self.devices(flags)?[0])?;
        told(&engine);
        Ok(engine.labeler)
    }

    /// Several of one model, for as many engines side by side: `workers`, or as many as the setting says, or one a
    /// device where that is more.
    pub fn engines(&self, flags: &ModelFlags, workers: Option<u16>) -> Result<Engines, CliError> {
        let devices = self.devices(flags)?;
        let workers = workers.unwrap_or(self.settings().classify.workers);
        let workers = workers.max(u16::try_from(devices.len()).unwrap_or(u16::MAX));
        let share = Share::of(workers);
        let first = self.engine(flags, &share, devices[0])?;
        told(&first);
        let Engine {
            labeler,
            chosen,
            threads,
            budget,
        } = first;
        let (mut labelers, mut on) = (vec![labeler], vec![chosen.device]);
        for device in devices.iter().cycle().take(workers.into()).skip(1) {
            let engine = self.engine(flags, &share, *device)?;
            labelers.push(engine.labeler);
            on.push(engine.chosen.device);
        }
        if on.len() > 1 {
            let on: Vec<String> = on.iter().map(Device::to_string).collect();
            tracing::info!("{} engines side by side, on {}", on.len(), on.join(", "));
        }
        Ok(Engines {
            labelers,
            devices: on,
            threads,
            budget,
        })
    }

    /// Has labels picked by a small model, where flags ask for it and it leaves any out.
    pub fn shortlisted(
        &self,
        labelers: &mut [Labeler],
        flags: &ShortlistFlags,
        beside: &ModelFlags,
        set: &LabelSet,
    ) -> Result<(), CliError> {
        let Some(labels) = flags.shortlist.map(|labels| labels as usize) else {
            return Ok(());
        };
        if labels >= set.labels.len() {
            tracing::warn!(
                "a shortlist of {labels} leaves out none of {} labels: all are scored, without it",
                set.labels.len()
            );
            return Ok(());
        }
        let share = Share::of(u16::try_from(labelers.len()).unwrap_or(u16::MAX));
        let devices = self.devices(beside)?;
        for (labeler, device) in labelers.iter_mut().zip(devices.iter().cycle()) {
            let small = self.engine(&beside.beside(&flags.shortlist_model), &share, *device)?;
            fit_together(labeler.folder(), small.labeler.folder())?;
            labeler.set_shortlist(Shortlist::new(small.labeler, labels));
        }
        let small = find_model(&flags.shortlist_model);
        tracing::info!(
            "only the {labels} labels that {} puts first are scored",
            small.display()
        );
        Ok(())
    }

    /// The devices that flag or setting name, at least one.
    pub fn devices(&self, flags: &ModelFlags) -> Result<Vec<Device>, CliError> {
        let set = &self.settings().classify.device;
        Ok(engine::devices(flags.device.as_deref().unwrap_or(set))?)
    }

    /// One that has the machine to itself.
    pub fn only_engine(&self, flags: &ModelFlags, device: Device) -> Result<Engine, CliError> {
        self.engine(flags, &Share::of(1), device)
    }

    /// One of several that share this machine.
    fn engine(
        &self,
        flags: &ModelFlags,
        share: &Share,
        device: Device,
    ) -> Result<Engine, CliError> {
        let set = &self.settings().classify;
        let precision = flags.precision.as_deref().unwrap_or(&set.precision);
        let batch_tokens = flags.batch_tokens.as_deref().unwrap_or(&set.batch_tokens);
        let batch_tokens = match batch_tokens {
            "auto" => None,
            text => Some(
                text.parse::<usize>()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| {
                        CliError::Usage(format!(
                            "batch_tokens `{text}` is neither auto nor a number above 0"
                        ))
                    })?,
            ),
        };
        let named = flags.model.as_deref().unwrap_or(&set.model);
        let precision = Some(precision).filter(|precision| *precision != "auto");
        let threads = Some(flags.threads.unwrap_or(set.threads)).filter(|n| *n > 0);
        let threads = threads.or_else(|| share.cores());
        let options = EngineOptions {
            device,
            threads,
            library: self.library(),
            weights: share.weights.clone(),
        };
        let (folder, engine) = OnnxEngine::open(&find_model(named), precision, &options)?;
        let chosen = engine.chosen().clone();
        let default = if chosen.device == Device::Cpu {
            CPU_BATCH_TOKENS
        } else {
            CUDA_BATCH_TOKENS
        };
        let threads = engine.threads();
        let key = Key {
            manifest_hash: folder.manifest_hash.clone(),
            precision: folder.precision.clone(),
            device: make_of(chosen.device),
            threads,
            workers: share.workers,
            runtime: engine.runtime(),
        };
        let (budget, tokens) = match batch_tokens {
            _ if folder.depends_on_batch() => (Budget::OfModel, default),
            Some(tokens) => (Budget::Fixed, tokens),
            None => match remembered().and_then(|remembered| remembered.get(&key)) {
                Some(tokens) => (Budget::Remembered(key), tokens),
                None => (Budget::Open(key), default),
            },
        };
        let labeler = Labeler::load(folder, Box::new(engine), tokens)?;
        if budget == Budget::OfModel && batch_tokens.is_some() {
            tracing::warn!(
                "`batch_tokens` is left aside: in {} a score depends on its batch, so batches keep to {} tokens",
                labeler.folder().precision,
                labeler.batch_tokens(),
            );
        }
        Ok(Engine {
            labeler,
            chosen,
            threads,
            budget,
        })
    }

    /// The model folder alone, with the graph for the device that flag or setting name; `auto` is the CPU here.
    pub fn model_folder(&self, flags: &ModelFlags) -> Result<ModelFolder, CliError> {
        let set = &self.settings().classify;
        let target = match self.devices(flags)?[0] {
            Device::Cuda(_) => Target::Cuda,
            Device::Cpu | Device::Auto => Target::Cpu,
        };
        let precision = flags.precision.as_deref().unwrap_or(&set.precision);
        let precision = Some(precision).filter(|precision| *precision != "auto");
        let named = flags.model.as_deref().unwrap_or(&set.model);
        Ok(ModelFolder::open_for(
            &find_model(named),
            target,
            precision,
        )?)
    }

    /// Where the settings say that ONNX Runtime is, if they do.
    pub fn library(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.settings().onnxruntime.library))
            .filter(|path| !path.as_os_str().is_empty())
    }
}

/// Whether a model gains anything by having its labels picked by another.
pub fn fit_together(large: &ModelFolder, small: &ModelFolder) -> Result<(), CliError> {
    let name = &large.name;
    let wrong = if matches!(large.kind, ModelKind::Embedding(_)) {
        format!("`{name}` scores any number of labels in one pass: name an NLI model with --model")
    } else if large.manifest_hash == small.manifest_hash {
        format!(
            "`{name}` would pick labels for itself: name a smaller model with --shortlist-model"
        )
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!(
        "a shortlist saves nothing: {wrong}"
    )))
}

/// A labeler, and how it was made.
pub struct Engine {
    pub labeler: Labeler,
    /// Where it runs, and why.
    pub chosen: Chosen,
    /// Threads within a batch.
    pub threads: usize,
    /// Where its token budget comes from.
    pub budget: Budget,
}

/// Labelers of one model.
pub struct Engines {
    /// At least one.
    pub labelers: Vec<Labeler>,
    /// What each runs on.
    pub devices: Vec<Device>,
    /// Threads of each within a batch.
    pub threads: usize,
    /// Where their token budget comes from.
    pub budget: Budget,
}

/// Where a token budget comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// Flag or setting.
    Fixed,
    /// The model: with another one its scores would be others.
    OfModel,
    /// An earlier search.
    Remembered(Key),
    /// The default, for want of a search.
    Open(Key),
}

impl Budget {
    /// Keeps what a search found for later commands of this user; why not, if it cannot be kept.
    pub fn remember(&self, batch_tokens: usize) -> Result<(), String> {
        let (Self::Remembered(key) | Self::Open(key)) = self else {
            return Ok(());
        };
        let remembered = remembered().ok_or("neither XDG_CACHE_HOME nor HOME names a folder")?;
        let kept = remembered.put(key, batch_tokens);
        kept.map_err(|error| format!("{}: {error}", remembered.path().display()))
    }
}

/// Where budgets are remembered; nowhere for a user without a home.
fn remembered() -> Option<Remembered> {
    let folder = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        Some(path).filter(|path| path.is_absolute())
    };
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(Remembered::below(&caches))
}

/// A device with its make, where Linux tells: a cache may lie on a disk that several machines share.
fn make_of(device: Device) -> String {
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

fn told(engine: &Engine) {
    let Engine {
        labeler, chosen, ..
    } = engine;
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
    fn of(workers: u16) -> Self {
        Self {
            workers,
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

/// The shipped model is found from wherever the program runs: beside the binary's own folders, too.
pub fn find_model(named: &Path) -> PathBuf {
    if named.is_absolute() || named.exists() {
        return named.to_owned();
    }
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .unwrap_or_default();
    program
        .ancestors()
        .skip(1)
        .map(|folder| folder.join(named))
        .find(|path| path.exists())
        .unwrap_or(named.to_owned())
}
