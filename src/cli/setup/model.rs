//! Models for the commands that score: flags and settings in, engines out.

use std::path::PathBuf;

use clap::Args;
use topicmill_score::cascade::identity_of;
use topicmill_score::engine::devices;
use topicmill_score::folder::{self, ModelFolder, Processor};
use topicmill_score::{Cascade, ClassifierHead, LabelSet, Mode, ModelKind};

use super::Setup;
use crate::cli::CliError;
use crate::engines::{EnginePool, ModelChoice, find_model, log_model};
use crate::files::shards::Named;

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
    /// Score in this mode: single (one label for each text), multi (each label by itself) or, with a classifier, raw
    /// (its logits) [default: the pipeline's, or the classifier's own]
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

impl Setup {
    /// The model that flags and settings name, and how it is to be computed.
    pub fn model_choice(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
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
        let precision = flags.precision.as_deref().unwrap_or(&set.precision);
        Ok(ModelChoice {
            model: flags.model.clone().unwrap_or_else(|| set.model.clone()),
            devices: devices(flags.device.as_deref().unwrap_or(&set.device))?,
            precision: (precision != "auto").then(|| precision.to_owned()),
            batch_tokens,
            threads: Some(flags.threads.unwrap_or(set.threads)).filter(|n| *n > 0),
            library: self.library(),
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
        Ok(self.model_choice(flags)?.open(workers)?)
    }

    /// Has labels picked by a small model, where flags ask for it and it leaves any out.
    pub fn shortlisted(
        &self,
        cascades: &mut [Cascade],
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
        let small = self.model_choice(beside)?.beside(&flags.shortlist_model);
        Ok(small.pick_for(cascades, labels)?)
    }

    /// Names and hashes that the models of these flags may have, on whatever device they are computed; none where a
    /// folder cannot be read, which is told by whoever loads it. Nothing is loaded.
    pub fn identities(
        &self,
        flags: &ModelFlags,
        shortlist: &ShortlistFlags,
        set: &LabelSet,
    ) -> Vec<Named> {
        let Ok(choice) = self.model_choice(flags) else {
            return Vec::new();
        };
        let labels = shortlist.shortlist.map(|labels| labels as usize);
        let labels = labels.filter(|labels| *labels < set.labels.len());
        let small = choice.beside(&shortlist.shortlist_model);
        let on = |processor: Processor| {
            let open = |choice: &ModelChoice| {
                let precision = choice.precision.as_deref();
                ModelFolder::open_for(&find_model(&choice.model), processor, precision).ok()
            };
            let large = open(&choice)?;
            let (name, hash) = match labels {
                Some(labels) => identity_of(&large, Some((&open(&small)?, labels))),
                None => identity_of(&large, None),
            };
            Some(Named { name, hash })
        };
        [Processor::Cpu, Processor::Cuda]
            .into_iter()
            .filter_map(on)
            .collect()
    }

    /// Where the settings say that ONNX Runtime is, if they do.
    pub fn library(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.settings().onnxruntime.library))
            .filter(|path| !path.as_os_str().is_empty())
    }
}
