//! Models for the commands that score: flags and settings in, engines out.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use topicmill_score::engine::devices;
use topicmill_score::folder;
use topicmill_score::{
    Cascade, ClassifierHead, EngineOptions, Keep, LabelSet, LabelerError, Mode, ModelFolder,
    ModelKind, SmallTask,
};

use super::Setup;
use crate::cli::CliError;
use crate::config::WORKERS;
use crate::engines::{EnginePool, ModelChoice, find_model, log_model};

/// Threads for one batch: more than any machine has cores, and few enough to be started.
const MOST_THREADS: usize = 1024;

/// Flags of commands that use a model.
#[derive(Debug, Clone, Args, Default)]
pub struct ModelFlags {
    /// Use the model in this folder; `topicmill model list` shows which there are
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Compute on this device: auto, cpu, cuda, cuda:N, or several, as in cuda:0,1
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Compute with this library: auto, onnxruntime or openvino
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Use the model's graph in this precision: auto, fp32, fp16 or int8; or fp32 computed faster by OpenVINO: bf16,
    /// int8-g32 or int8-g128
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Take the fastest engine and precision whose labels come this close to float32: exact, near (99.5 % of the labels)
    /// or rough (98 %); `bench closeness` measures them
    #[arg(long, value_name = "C")]
    closeness: Option<String>,
    /// Put at most this many padded tokens into a batch; auto searches for the best number
    #[arg(long, value_name = "N")]
    batch_tokens: Option<String>,
    /// Compute with this many threads; 0 means one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Score in this mode: single (one label for each text), multi (each label by itself) or, with a classifier, raw
    /// (its logits) [default: the pipeline's, or the classifier's own]
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<String>,
}

/// Flags of commands that may put a small model before the large one.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("small").args(["shortlist", "cascade"]).multiple(true)))]
pub struct SmallFlags {
    /// Score only the K labels that a small model puts first for each text; `bench cascade` measures it
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: Option<u32>,
    /// Let a small model label the texts of which it is at least P sure, above 0 and up to 1, and the large model the
    /// others; `bench cascade` measures it
    #[arg(long, value_name = "P", value_parser = certainty)]
    cascade: Option<f64>,
    /// With --shortlist or --cascade: use the small model in this folder
    #[arg(long, alias = "shortlist-model", value_name = "DIR", requires = "small", default_value = SMALL_MODEL)]
    small_model: PathBuf,
    /// Divide the small model's logits by T before its scores are compared with P [default: the pipeline's temperature]
    #[arg(long, value_name = "T", requires = "cascade", value_parser = temperature)]
    small_temperature: Option<f64>,
}

impl SmallFlags {
    /// What the small model is to do; `None` where there is none, or it would save nothing.
    fn task(&self, set: &LabelSet) -> Result<Option<SmallTask>, CliError> {
        let shortlist = self.shortlist.map(|labels| labels as usize);
        let task = SmallTask {
            shortlist: shortlist.filter(|labels| *labels < set.labels.len()),
            keep: keep(self.cascade, self.small_temperature, set)?,
        };
        Ok((task.shortlist.is_some() || task.keep.is_some()).then_some(task))
    }
}

/// How sure the small model of a cascade must be.
pub fn certainty(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|p| *p > 0.0 && *p <= 1.0)
        .ok_or_else(|| "give a number above 0 and up to 1, such as 0.9".to_owned())
}

/// What logits are divided by.
pub fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|t| *t > 0.0 && t.is_finite())
        .ok_or_else(|| "give a number above 0, such as 1.5; `labels calibrate` finds it".to_owned())
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
}

impl ModelFlags {
    /// Whether they say by which library or how exactly to compute.
    pub fn names_a_way(&self) -> bool {
        self.engine.is_some() || self.precision.is_some() || self.closeness.is_some()
    }
}

/// The labels that a classifier scores: those of a pipeline file if they are the classifier's own, whatever their slugs,
/// else the classifier's as they are.
pub(super) fn labels_of(model: &str, head: &ClassifierHead, of_file: LabelSet) -> LabelSet {
    if head.is_unnamed() && head.labels.len() > 1 {
        tracing::warn!(
            "nobody named the labels of `{model}`: they are {}; name them with `id2label` in its `config.json`",
            head.listed()
        );
    }
    if of_file.classes_of(head).is_some() {
        // A file that says nothing of the mode says single, too.
        let mode = match of_file.mode {
            Mode::Single => head.function.into(),
            mode => mode,
        };
        return LabelSet { mode, ..of_file };
    }
    tracing::info!(
        "`{model}` is a classifier: the labels are its own ({}), and not those of the pipeline `{}`",
        head.listed(),
        of_file.name
    );
    LabelSet::of_classifier(model, head)
}

/// Which texts a small model keeps, and by which scores: the temperature of the pipeline stands where none is given.
pub fn keep(
    least: Option<f64>,
    temperature: Option<f64>,
    set: &LabelSet,
) -> Result<Option<Keep>, CliError> {
    let Some(least) = least else {
        return Ok(None);
    };
    if set.mode == Mode::Raw {
        return Err(CliError::Usage(
            "in mode raw the scores are logits, and no logit says how sure the small model is: leave out --cascade, or \
             use --mode single or multi"
                .into(),
        ));
    }
    #[expect(clippy::float_cmp, reason = "1 is written as 1")]
    if temperature.is_none() && set.temperature == 1.0 {
        tracing::warn!(
            "nobody calibrated the small model for these labels: its scores are compared as they are; \
             `topicmill labels calibrate` finds a temperature for --small-temperature"
        );
    }
    Ok(Some(Keep {
        least,
        temperature: temperature.unwrap_or(set.temperature),
    }))
}

/// Whether a model can read the labels of a set: a classifier has only its own.
fn has_labels(folder: &ModelFolder, set: &LabelSet) -> Result<(), CliError> {
    let Some(head) = folder.kind.head() else {
        return Ok(());
    };
    let model = folder.name.clone();
    if set.background.is_some() {
        return Err(LabelerError::NoBackground(model).into());
    }
    let own = head.listed();
    let is_own = set.classes_of(head).is_some();
    is_own
        .then_some(())
        .ok_or_else(|| LabelerError::OwnLabels { model, own }.into())
}

impl Setup {
    /// The model that flags and settings name, and how it is to be computed.
    pub fn model_choice(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
        let closeness = flags.closeness.as_ref();
        let closeness = closeness.unwrap_or(&self.settings().classify.closeness);
        let closeness = closeness.parse()?;
        Ok(self.model_asked_for(flags)?.as_measured(closeness)?)
    }

    /// The same without looking at what was measured.
    pub fn model_asked_for(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
        let set = &self.settings().classify;
        let batch_tokens = match flags.batch_tokens.as_deref().unwrap_or(&set.batch_tokens) {
            "auto" => None,
            text => {
                let number = text.parse::<usize>().ok().filter(|n| *n > 0);
                let wrong = || {
                    CliError::Usage(format!(
                        "batch_tokens `{text}` is neither auto nor a number above 0"
                    ))
                };
                Some(number.ok_or_else(wrong)?)
            }
        };
        let threads = flags.threads.unwrap_or(set.threads);
        if threads > MOST_THREADS {
            return Err(CliError::Usage(format!(
                "threads is {threads}: set it to 0, which means one for each core, or to a number up to {MOST_THREADS}"
            )));
        }
        let precision = flags.precision.as_deref().unwrap_or(&set.precision);
        Ok(ModelChoice {
            model: flags.model.clone().unwrap_or_else(|| set.model.clone()),
            devices: devices(flags.device.as_deref().unwrap_or(&set.device))?,
            precision: (precision != "auto").then(|| precision.to_owned()),
            batch_tokens,
            threads: Some(threads).filter(|n| *n > 0),
            library: self.library(),
            engine: flags.engine.as_deref().unwrap_or(&set.engine).parse()?,
            openvino: self.openvino(),
            why: None,
        })
    }

    /// The head of the model that flags and settings name, if it is a classifier, and what the model is called. A folder
    /// that cannot be read is told by whoever opens it.
    pub fn classifier(&self, flags: &ModelFlags) -> Option<(String, ClassifierHead)> {
        let named = flags.model.as_ref();
        let folder = find_model(named.unwrap_or(&self.settings().classify.model));
        match folder::kind_of(&folder) {
            Ok(ModelKind::Classifier(head)) => Some((folder::name_of(&folder), head)),
            _ => None,
        }
    }

    /// One model, ready to score; logs which it is.
    pub fn cascade(&self, flags: &ModelFlags) -> Result<Cascade, CliError> {
        let choice = self.model_choice(flags)?;
        let opened = choice.open_one(choice.devices[0])?;
        log_model(&opened.labeler, &opened.chosen);
        Ok(opened.labeler.into())
    }

    /// Several of one model, side by side: `workers`, or as many as the setting says, or one a device where that is
    /// more.
    pub fn engines(
        &self,
        flags: &ModelFlags,
        workers: Option<u16>,
    ) -> Result<EnginePool, CliError> {
        let workers = workers.unwrap_or(self.settings().classify.workers);
        if !WORKERS.contains(&workers) {
            return Err(CliError::Usage(format!(
                "workers is {workers}: set it to a number from {} to {}; each takes the memory of a model",
                WORKERS.start(),
                WORKERS.end()
            )));
        }
        Ok(self.model_choice(flags)?.open(workers)?)
    }

    /// Puts a small model before large ones, where flags ask for it and it saves anything.
    pub fn put_small_before(
        &self,
        cascades: &mut [Cascade],
        flags: &SmallFlags,
        beside: &ModelFlags,
        set: &LabelSet,
    ) -> Result<(), CliError> {
        let shortlist = flags.shortlist.map(|labels| labels as usize);
        let is_whole = |labels: &usize| *labels >= set.labels.len();
        if let Some(labels) = shortlist.filter(is_whole) {
            tracing::warn!(
                "a shortlist of {labels} leaves out none of {} labels: all are scored, without it",
                set.labels.len()
            );
        }
        let Some(task) = flags.task(set)? else {
            return Ok(());
        };
        let small = self.model_choice(beside)?.beside(&flags.small_model);
        small.put_before(cascades, task)?;
        // Told now, and not after an hour of collecting.
        let small = cascades.iter().find_map(|cascade| cascade.small.as_ref());
        small.map_or(Ok(()), |small| has_labels(small.labeler().folder(), set))
    }

    /// How models are loaded where no flag says more.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            library: self.library(),
            openvino: self.openvino(),
            ..EngineOptions::default()
        }
    }

    /// Where the settings say that OpenVINO is, if they do.
    pub fn openvino(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.settings().openvino.library))
            .filter(|path| !path.as_os_str().is_empty())
    }

    /// Where the settings say that ONNX Runtime is, if they do.
    pub fn library(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.settings().onnxruntime.library))
            .filter(|path| !path.as_os_str().is_empty())
    }
}
