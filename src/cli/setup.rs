//! What several commands need: settings in force, and from them a store, a pipeline, a Reddit, a model.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{CliError, Global};
use crate::classify::autotune::remembered::{Key, Remembered};
use crate::classify::backlog::{self, Options, worker_name};
use crate::classify::engine::{self, Device};
use crate::classify::gpu::Watch;
use crate::classify::labeler::Labeler;
use crate::classify::onnx::{Chosen, EngineOptions, OnnxEngine};
use crate::classify::shortlist::Shortlist;
use crate::classify::verdict;
use crate::clock::{SharedClock, SystemClock};
use crate::collect::Pace;
use crate::config::{self, Loaded, Settings};
use crate::domain::{LabelSet, Listing, Mode, SourceKind, UnknownWord};
use crate::model_folder::{ModelFolder, ModelKind, Target};
use crate::pipeline::{Context, Pipeline, RunRecord};
use crate::source::arctic_shift::{self, ArcticShift};
use crate::source::reddit::{self, Reddit};
use crate::store::{Access, Store};
use crate::telemetry::{self, LogFormat};

/// Padded tokens of a batch on a CPU: small sorted batches stay in its caches.
const CPU_BATCH_TOKENS: usize = 1_024;
/// Padded tokens of a batch on a GPU: enough work to hide what a launch costs.
const CUDA_BATCH_TOKENS: usize = 16_384;

/// Settings and what every command shares.
#[derive(Debug)]
pub struct Setup {
    pub loaded: Loaded,
    pub clock: SharedClock,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
}

/// Flags of commands that use a model.
#[derive(Debug, Clone, Args, Default)]
pub struct ModelFlags {
    /// Folder of the model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// auto, cpu, cuda, cuda:N, or several as cuda:0,1: an engine each
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// auto, fp32, fp16 or int8
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Padded tokens a batch may hold, or auto
    #[arg(long, value_name = "N")]
    batch_tokens: Option<String>,
    /// Threads of the model; 0: one a core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// single (one label a text) or multi (each label for itself)
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
}

/// Flags of commands that may score a few labels only.
#[derive(Debug, Clone, Args)]
pub struct ShortlistFlags {
    /// Score only the K labels of each text that a small model puts first
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: Option<u32>,
    /// Folder of the small model
    #[arg(long, value_name = "DIR", requires = "shortlist", default_value = SMALL_MODEL)]
    shortlist_model: PathBuf,
}

/// The model that ships.
pub const SMALL_MODEL: &str = "models/minilm-reddit-topics";

/// Flags of commands that read a pipeline file.
#[derive(Debug, Clone, Args)]
pub struct PipelineFlags {
    /// Pipeline file [default: the sixteen topics, built in]
    #[arg(long, value_name = "F")]
    pub pipeline: Option<PathBuf>,
}

/// Flags of commands that record a run.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Also write the record of the run to a file, as JSON
    #[arg(long, value_name = "F")]
    pub run_json: Option<PathBuf>,
}

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
    /// Reads the settings and starts logging.
    pub fn load(global: &Global) -> Result<Self, CliError> {
        let mut flags = Vec::new();
        flags.extend(global.database.clone().map(|url| ("database.url", url)));
        flags.extend(
            global
                .log_format
                .clone()
                .map(|format| ("log.format", format)),
        );
        let loaded = config::load(
            global.config.as_deref(),
            std::env::vars_os().filter_map(as_text),
            &flags,
        )?;
        let lease_secs = loaded.settings.classify.lease_secs;
        if !(3..=86_400).contains(&lease_secs) {
            let text =
                format!("classify.lease_secs is {lease_secs}: set it to between 3 and 86400");
            return Err(CliError::Usage(text));
        }
        if loaded.settings.collect.page_cap == 0 {
            return Err(CliError::Usage(
                "collect.page_cap is 0: set it to 1 or more".into(),
            ));
        }
        let format = match loaded.settings.log.format.as_str() {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            other => {
                return Err(CliError::Usage(format!(
                    "log.format `{other}` is none of text, json"
                )));
            }
        };
        let verbosity = if global.quiet {
            -1
        } else {
            i8::try_from(global.verbose).unwrap_or(i8::MAX)
        };
        telemetry::init(format, verbosity);
        Ok(Self {
            loaded,
            clock: SystemClock::shared(),
            stop: CancellationToken::new(),
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// The database of the settings.
    pub async fn store(&self, access: Access) -> Result<Store, CliError> {
        Ok(Store::open(self.settings().database.url.reveal(), access).await?)
    }

    /// What the stages of a run share.
    pub fn context(&self, store: Store) -> Context {
        Context::new(store, self.clock.clone(), self.stop.clone(), worker_name())
    }

    /// The pipeline file that the flags name, else the built-in one.
    pub fn pipeline(&self, flags: &PipelineFlags) -> Result<Pipeline, CliError> {
        let collect = &self.settings().collect;
        let listing = word::<Listing>("collect.listing", &collect.listing)?;
        Ok(Pipeline::load(
            flags.pipeline.as_deref(),
            listing,
            collect.limit,
        )?)
    }

    /// A client for Reddit itself.
    pub fn reddit(&self) -> Result<Reddit, CliError> {
        Ok(Reddit::new(
            self.reddit_settings(),
            SourceKind::Reddit,
            self.clock.clone(),
        )?)
    }

    /// The section `[reddit]` as the client takes it.
    pub fn reddit_settings(&self) -> reddit::Settings {
        let set = &self.settings().reddit;
        reddit::Settings {
            auth_url: set.auth_url.clone(),
            api_url: set.api_url.clone(),
            client_id: set.client_id.clone(),
            client_secret: set.client_secret.reveal().to_owned(),
            username: set.username.clone(),
            password: set.password.reveal().to_owned(),
            user_agent: set.user_agent.clone(),
            requests_per_minute: set.requests_per_minute,
            wait_budget: Duration::from_secs(set.wait_budget_secs),
            tries: set.tries,
            retry_after_cap: Duration::from_secs(set.retry_after_cap_secs),
            token_margin: Duration::from_secs(set.token_margin_secs),
            timeouts: reddit::Timeouts {
                connect: Duration::from_secs(set.connect_timeout_secs),
                read: Duration::from_secs(set.read_timeout_secs),
                total: Duration::from_secs(set.total_timeout_secs),
            },
        }
    }

    /// How topics are read.
    pub fn pace(&self) -> Pace {
        let set = &self.settings().collect;
        Pace {
            concurrency: set.concurrency,
            overlap: Duration::from_secs(set.overlap_secs),
            page_cap: set.page_cap,
        }
    }

    /// A client for the archive.
    pub fn arctic_shift(&self) -> Result<ArcticShift, CliError> {
        let set = &self.settings().arctic_shift;
        let settings = arctic_shift::Settings {
            api_url: set.api_url.clone(),
            user_agent: self.settings().reddit.user_agent.clone(),
            requests_per_minute: set.requests_per_minute,
            wait_budget: Duration::from_secs(set.wait_budget_secs),
            timeouts: self.reddit_settings().timeouts,
        };
        Ok(ArcticShift::new(&settings, self.clock.clone())?)
    }

    /// The label set of a pipeline, in the mode that flag or setting ask for.
    pub fn label_set(&self, flags: &ModelFlags, mut set: LabelSet) -> Result<LabelSet, CliError> {
        let mode = flags
            .mode
            .as_deref()
            .unwrap_or(&self.settings().classify.mode);
        if !mode.is_empty() {
            set.mode = word::<Mode>("mode", mode)?;
        }
        Ok(set)
    }

    /// Model folder, engine and tokenizer, ready to score; tells which they are. Of `workers` on this machine
    /// each gets its share of the cores.
    pub fn labeler(&self, flags: &ModelFlags, workers: u16) -> Result<Labeler, CliError> {
        let device = self.devices(flags)?[0];
        let (labeler, chosen) = self.load_labeler(flags, workers, device)?;
        told(&labeler, &chosen);
        Ok(labeler)
    }

    /// Several of one model, for as many engines side by side: `workers`, or one a device where that is more.
    pub fn engines(&self, flags: &ModelFlags, workers: u16) -> Result<Engines, CliError> {
        let devices = self.devices(flags)?;
        let workers = workers.max(u16::try_from(devices.len()).unwrap_or(u16::MAX));
        let Engine {
            labeler: first,
            chosen,
            threads,
            budget,
        } = self.engine(flags, workers, devices[0])?;
        told(&first, &chosen);
        let (mut labelers, mut on) = (vec![first], vec![chosen.device]);
        for device in devices.iter().cycle().take(workers.into()).skip(1) {
            let (labeler, chosen) = self.load_labeler(flags, workers, *device)?;
            labelers.push(labeler);
            on.push(chosen.device);
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
        let workers = u16::try_from(labelers.len()).unwrap_or(u16::MAX);
        let devices = self.devices(beside)?;
        for (labeler, device) in labelers.iter_mut().zip(devices.iter().cycle()) {
            let small = self.small_model(&flags.shortlist_model, beside, workers, *device)?;
            fit_together(labeler.folder(), small.folder())?;
            labeler.set_shortlist(Shortlist::new(small, labels));
        }
        let small = find_model(&flags.shortlist_model);
        tracing::info!(
            "only the {labels} labels that {} puts first are scored",
            small.display()
        );
        Ok(())
    }

    /// The model that picks labels for another.
    pub fn small_model(
        &self,
        folder: &Path,
        beside: &ModelFlags,
        workers: u16,
        device: Device,
    ) -> Result<Labeler, CliError> {
        Ok(self
            .load_labeler(&beside.beside(folder), workers, device)?
            .0)
    }

    /// The devices that flag or setting name, at least one.
    pub fn devices(&self, flags: &ModelFlags) -> Result<Vec<Device>, CliError> {
        let set = &self.settings().classify.device;
        Ok(engine::devices(flags.device.as_deref().unwrap_or(set))?)
    }

    /// One of `workers` that share this machine, on a device, and where it runs.
    pub fn load_labeler(
        &self,
        flags: &ModelFlags,
        workers: u16,
        device: Device,
    ) -> Result<(Labeler, Chosen), CliError> {
        let Engine {
            labeler, chosen, ..
        } = self.engine(flags, workers, device)?;
        Ok((labeler, chosen))
    }

    /// One of `workers` that share this machine, with all that there is to know about it.
    pub fn engine(
        &self,
        flags: &ModelFlags,
        workers: u16,
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
        let threads = threads.or_else(|| (workers > 1).then(|| share_of_cores(workers)));
        let options = EngineOptions {
            device,
            threads,
            library: self.library(),
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
            workers,
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

    /// How the backlog is worked off.
    pub fn backlog(&self) -> backlog::Options {
        let set = &self.settings().classify;
        Options {
            lease: Duration::from_secs(set.lease_secs),
            max_attempts: set.max_attempts,
            limit: None,
            retry_failed: false,
            watch: false,
            make_current: true,
            settings: verdict::Settings::default(),
            gpus: Watch::default(),
        }
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
    /// Keeps what a search found for later runs.
    pub fn remember(&self, batch_tokens: usize) {
        let (Self::Remembered(key) | Self::Open(key)) = self else {
            return;
        };
        let kept = remembered().map(|remembered| remembered.put(key, batch_tokens));
        if let Some(Err(error)) = kept {
            tracing::debug!(%error, "the token budget found is not kept for later runs");
        }
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

fn told(labeler: &Labeler, chosen: &Chosen) {
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

impl RunFlags {
    /// Makes the file of `--run-json`, so that a path that cannot be written is told before the work.
    pub fn check(&self) -> Result<(), CliError> {
        let Some(path) = &self.run_json else {
            return Ok(());
        };
        std::fs::write(path, "").map_err(|error| {
            let path = path.display();
            CliError::Usage(format!("write `{path}`: {error}; correct --run-json"))
        })
    }

    /// Writes the runs recorded so far where `--run-json` says: one as an object, several as an array.
    pub fn write(&self, context: &Context) -> Result<(), CliError> {
        let Some(path) = &self.run_json else {
            return Ok(());
        };
        let records: Vec<_> = context.records().iter().map(RunRecord::to_json).collect();
        let text = match records.as_slice() {
            [one] => format!("{one:#}\n"),
            several => format!("{:#}\n", serde_json::Value::from(several)),
        };
        std::fs::write(path, text).map_err(|source| CliError::Write {
            path: path.display().to_string(),
            source,
        })
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Cores for each of several workers of this machine.
fn share_of_cores(workers: u16) -> usize {
    (cores() / usize::from(workers)).max(1)
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

/// Reads a setting that is one of a few words.
pub fn word<T: FromStr<Err = UnknownWord>>(what: &'static str, text: &str) -> Result<T, CliError> {
    text.parse()
        .map_err(|source| CliError::Word { what, source })
}

/// A variable of the environment as text; one that is no text is none of ours.
fn as_text((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}
