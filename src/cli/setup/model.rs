//! Models for the commands that score: flags and settings in, engines out.

use std::path::PathBuf;

use clap::Args;
use topicmill_score::engine::devices;
use topicmill_score::folder::{self, Rounding};
use topicmill_score::{
    ClassifierHead, EngineOptions, LabelSet, LabelerError, Mode, ModelFolder, ModelKind, Models,
};

use super::{Setup, parse_word};
use crate::cli::CliError;
use crate::config::WORKERS;
use crate::engines::agreement::Agreement;
use crate::engines::{EnginePool, ModelChoice, find_model, log_model};

/// Threads for one batch: more than any machine has cores, and few enough to be started.
const MAX_THREADS: usize = 1024;

/// Flags of commands that use a model.
#[derive(Debug, Clone, Args, Default)]
pub struct ModelFlags {
    /// Use the model in this folder; `topicmill model list` shows which there are
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Compute on this device: auto, cpu, cuda, cuda:N, or several, as in cuda:0,1
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Compute in this precision: auto, fp32, bf16, fp16 or int8
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Compute with this many threads; 0 means one for each core
    #[arg(hide_short_help = true, long, value_name = "N")]
    threads: Option<usize>,
    /// Score in this mode: single (one label for each text), multi (each label by itself) or, with a classifier, raw
    /// (its logits) [default: the pipeline's, or the classifier's own]
    #[arg(hide_short_help = true, long, value_name = "MODE")]
    pub(super) mode: Option<String>,
}

/// Flags of commands that may put a small model before the large one.
#[derive(Debug, Clone, Args)]
pub struct SmallFlags {
    /// Score only the K labels that a small model puts first for each text
    #[arg(hide_short_help = true, long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: Option<u32>,
    /// With --shortlist: use the small model in this folder
    #[arg(hide_short_help = true, long, value_name = "DIR", requires = "shortlist", default_value = DEFAULT_MODEL)]
    small_model: PathBuf,
}

/// The model that ships.
pub const DEFAULT_MODEL: &str = "models/minilm-reddit-topics";

impl ModelFlags {
    /// Those of a command that takes only a folder and a mode; the settings say the rest.
    pub fn new(model: Option<PathBuf>, mode: Option<String>) -> Self {
        Self {
            model,
            mode,
            ..Self::default()
        }
    }

    /// Whether they say how exactly to compute.
    pub fn has_precision(&self) -> bool {
        self.precision.is_some()
    }
}

/// The labels that a classifier scores: those of a pipeline file if they are the classifier's own, whatever their slugs,
/// else the classifier's as they are.
pub(super) fn classifier_label_set(
    model: &str,
    head: &ClassifierHead,
    from_file: LabelSet,
) -> LabelSet {
    if head.is_unnamed() && head.labels.len() > 1 {
        tracing::warn!(
            "nobody named the labels of `{model}`: they are {}; name them with `id2label` in its `config.json`{}",
            head.listed(),
            head.nli_advice()
        );
    }
    if from_file.classes_of(head).is_some() {
        // A file that says nothing of the mode says single, too.
        let mode = match from_file.mode {
            Mode::Single => head.function.into(),
            mode => mode,
        };
        return LabelSet { mode, ..from_file };
    }
    tracing::info!(
        "`{model}` is a classifier: the labels are its own ({}), and not those of the pipeline `{}`",
        head.listed(),
        from_file.name
    );
    LabelSet::of_classifier(model, head)
}

/// Whether a model can read the labels of a set: a classifier has only its own.
fn check_labels(folder: &ModelFolder, set: &LabelSet) -> Result<(), CliError> {
    let Some(head) = folder.kind.head() else {
        return Ok(());
    };
    let model = folder.name.clone();
    if set.background.is_some() {
        return Err(LabelerError::NoBackground(model).into());
    }
    let own = head.listed() + head.nli_advice();
    let is_own = set.classes_of(head).is_some();
    is_own
        .then_some(())
        .ok_or_else(|| LabelerError::OwnLabels { model, own }.into())
}

impl Setup {
    /// The model that flags and settings name, and how it is to be computed.
    pub fn model_choice(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
        let agreement = self.settings().classify.agreement;
        let agreement = Agreement::of(agreement).ok_or_else(|| {
            CliError::Usage(format!(
                "classify.agreement is {agreement}: set it to a number above 0 and up to 1"
            ))
        })?;
        Ok(self.requested_model(flags)?.as_measured(agreement)?)
    }

    /// The same without looking at what was measured.
    pub fn requested_model(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
        let set = &self.settings().classify;
        let batch_tokens = match set.batch_tokens.as_str() {
            "auto" => None,
            text => {
                let number = text.parse::<usize>().ok().filter(|n| *n > 0);
                let wrong = || {
                    CliError::Usage(format!(
                        "classify.batch_tokens `{text}` is neither auto nor a number above 0"
                    ))
                };
                Some(number.ok_or_else(wrong)?)
            }
        };
        let threads = flags.threads.unwrap_or(set.threads);
        if threads > MAX_THREADS {
            return Err(CliError::Usage(format!(
                "threads is {threads}: set it to 0, which means one for each core, or to a number up to {MAX_THREADS}"
            )));
        }
        let group = set.int8_group;
        if !Rounding::GROUPS.contains(&group) {
            return Err(CliError::Usage(format!(
                "classify.int8_group is {group}: set it to 32 or 128"
            )));
        }
        let precision = flags.precision.as_deref().unwrap_or(&set.precision);
        let choice = ModelChoice {
            model: flags.model.clone().unwrap_or_else(|| set.model.clone()),
            devices: devices(flags.device.as_deref().unwrap_or(&set.device))?,
            precision: (precision != "auto").then(|| precision.to_owned()),
            batch_tokens,
            threads: Some(threads).filter(|n| *n > 0),
            library: self.library(),
            engine: parse_word("classify.engine", &set.engine)?,
            openvino: self.openvino(),
            why: None,
        };
        Ok(choice.in_groups_of(group))
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
    pub fn models(&self, flags: &ModelFlags) -> Result<Models, CliError> {
        let choice = self.model_choice(flags)?;
        let opened = choice.open_one(choice.devices[0])?;
        log_model(&opened.labeler, &opened.chosen);
        Ok(opened.labeler.into())
    }

    /// Several of one model, side by side: as many as the setting says, or one a device where that is more.
    pub fn engines(&self, flags: &ModelFlags) -> Result<EnginePool, CliError> {
        let workers = self.settings().classify.workers;
        if !WORKERS.contains(&workers) {
            return Err(CliError::Usage(format!(
                "classify.workers is {workers}: set it to a number from {} to {}; each takes the memory of a model",
                WORKERS.start(),
                WORKERS.end()
            )));
        }
        Ok(self.model_choice(flags)?.open(workers)?)
    }

    /// Puts a small model before large ones, where flags ask for it and it saves anything.
    pub fn add_small_model(
        &self,
        models: &mut [Models],
        flags: &SmallFlags,
        beside: &ModelFlags,
        set: &LabelSet,
    ) -> Result<(), CliError> {
        let (Some(labels), all) = (flags.shortlist, set.labels.len()) else {
            return Ok(());
        };
        let labels = labels as usize;
        if labels >= all {
            tracing::warn!(
                "a shortlist of {labels} leaves out none of {all} labels: all are scored, without it"
            );
            return Ok(());
        }
        let small = self.model_choice(beside)?.beside(&flags.small_model);
        small.put_before(models, labels)?;
        // Told now, and not after an hour of collecting.
        let small = models.iter().find_map(|models| models.small.as_ref());
        small.map_or(Ok(()), |small| check_labels(small.labeler().folder(), set))
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
        non_empty_path(&self.settings().openvino.library)
    }

    /// Where the settings say that ONNX Runtime is, if they do.
    pub fn library(&self) -> Option<PathBuf> {
        non_empty_path(&self.settings().onnxruntime.library)
    }
}

fn non_empty_path(path: &str) -> Option<PathBuf> {
    Some(path)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}
