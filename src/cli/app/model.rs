//! Opens models for the commands that score: takes flags and settings, returns engines.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use topicmill_core::model_kind::ClassifierHead;
use topicmill_core::{LabelSet, Mode, ModelKind};
use topicmill_score::device::devices;
use topicmill_score::{EngineOptions, LabelerError, ModelFolder, Models, folder};

use super::App;
use crate::cli::CliError;
use crate::config::MAX_THREADS;
use crate::engines::{EnginePool, ModelChoice, find_model, log_model};

/// Flags of commands that use a model.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Model options")]
pub struct ModelFlags {
    /// Use the model in DIR; `topicmill model list` lists models
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Compute on DEVICE: auto, cpu, cuda, cuda:N, or several, like cuda:0,1
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Compute with precision P: auto, fp32, bf16, fp16, int8, int8-g32 or int8-g128
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Compute with N threads; 0 means one per core
    #[arg(hide_short_help = true, long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_THREADS)))]
    threads: Option<u16>,
    /// Score in MODE: single, multi or raw
    ///
    /// The default is the pipeline's mode, or the classifier's own. single assigns one label per text, multi scores
    /// each label independently, and raw returns the logits of a classifier.
    #[arg(hide_short_help = true, long, value_name = "MODE")]
    pub(super) mode: Option<Mode>,
}

/// Flags of commands that can shortlist labels with a small model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model options")]
pub struct SmallFlags {
    /// Score only the K labels that a small model ranks highest for each text
    #[arg(hide_short_help = true, long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: Option<u32>,
    /// With --shortlist, use the small model in DIR
    #[arg(hide_short_help = true, long, value_name = "DIR", requires = "shortlist", default_value = DEFAULT_MODEL)]
    small_model: PathBuf,
}

/// The folder of the default model.
pub const DEFAULT_MODEL: &str = "models/minilm-reddit-topics";

impl ModelFlags {
    /// Creates flags with a folder and a mode; the settings supply the rest.
    pub fn new(model: Option<PathBuf>, mode: Option<Mode>) -> Self {
        Self {
            model,
            mode,
            ..Self::default()
        }
    }
}

/// Returns the label set for a classifier: the pipeline file's label set if it has the classifier's labels, under any
/// slugs; otherwise one made from the classifier's labels.
pub(super) fn classifier_label_set(
    model: &str,
    head: &ClassifierHead,
    from_file: LabelSet,
) -> LabelSet {
    if head.is_unnamed() && head.labels.len() > 1 {
        tracing::warn!(
            "the labels of `{model}` have no names: they are {}; name them with `id2label` in its `config.json`{}",
            head.label_list(),
            head.nli_advice()
        );
    }
    if from_file.classes_of(head).is_some() {
        // A file without a mode also yields `Single`, so the classifier's own mode is used instead.
        let mode = match from_file.mode {
            Mode::Single => head.function.into(),
            mode => mode,
        };
        return LabelSet { mode, ..from_file };
    }
    tracing::info!(
        "`{model}` is a classifier: using its own labels ({}) instead of the labels in the pipeline `{}`",
        head.label_list(),
        from_file.name
    );
    LabelSet::of_classifier(model, head)
}

/// Returns an error if a model cannot score the labels of a set, because it is a classifier with different labels.
fn check_labels(folder: &ModelFolder, set: &LabelSet) -> Result<(), CliError> {
    let Some(head) = folder.kind.head() else {
        return Ok(());
    };
    let model = folder.name.clone();
    if set.background.is_some() {
        return Err(LabelerError::NoBackground(model).into());
    }
    if set.classes_of(head).is_some() {
        return Ok(());
    }
    let own = head.label_list() + head.nli_advice();
    Err(LabelerError::OwnLabels { model, own }.into())
}

impl App {
    /// Returns the model and how to run it, from flags and settings.
    pub fn model_choice(&self, flags: &ModelFlags) -> Result<ModelChoice, CliError> {
        let set = &self.settings().classify;
        Ok(ModelChoice {
            model: flags.model.clone().unwrap_or_else(|| set.model.clone()),
            devices: match &flags.device {
                Some(device) => devices(device)?,
                None => set.devices.clone(),
            },
            precision: match flags.precision.as_deref() {
                Some("auto") => None,
                Some(name) => Some(name.to_owned()),
                None => set.precision.clone(),
            },
            batch_tokens: set.batch_tokens.map(NonZeroUsize::get),
            options: EngineOptions {
                threads: Some(flags.threads.unwrap_or(set.threads).into()).filter(|n| *n > 0),
                engine: set.engine,
                ..self.engine_options()
            },
        })
    }

    /// Returns the model's name and kind. An unreadable folder is reported when it is opened.
    pub fn model_kind(&self, flags: &ModelFlags) -> Option<(String, ModelKind)> {
        let model = flags.model.as_ref();
        let folder = find_model(model.unwrap_or(&self.settings().classify.model));
        let kind = folder::read_kind(&folder).ok()?;
        Some((folder::model_name(&folder), kind))
    }

    /// Returns the model's name and head if it is a classifier.
    pub fn classifier(&self, flags: &ModelFlags) -> Option<(String, ClassifierHead)> {
        match self.model_kind(flags)? {
            (name, ModelKind::Classifier(head)) => Some((name, head)),
            _ => None,
        }
    }

    /// Opens one model, ready to score, and logs its name.
    pub fn models(&self, flags: &ModelFlags) -> Result<Models, CliError> {
        let choice = self.model_choice(flags)?;
        let opened = choice.open_one(choice.devices[0])?;
        log_model(&opened.labeler, &opened.chosen);
        Ok(opened.labeler.into())
    }

    /// Opens several engines of one model: as many as `classify.workers`, and at least one per device.
    pub fn engines(&self, flags: &ModelFlags) -> Result<EnginePool, CliError> {
        let workers = self.settings().classify.workers;
        Ok(self.model_choice(flags)?.open(workers)?)
    }

    /// Adds a small model that shortlists labels, if requested and useful.
    pub fn add_small_model(
        &self,
        models: &mut [Models],
        flags: &SmallFlags,
        model: &ModelFlags,
        set: &LabelSet,
    ) -> Result<(), CliError> {
        let Some(shortlist) = flags.shortlist else {
            return Ok(());
        };
        let (shortlist, all) = (shortlist as usize, set.labels.len());
        if shortlist >= all {
            tracing::warn!(
                "a shortlist of {shortlist} does not exclude any of the {all} labels: scoring all of them without a \
                 shortlist"
            );
            return Ok(());
        }
        let small = self.model_choice(model)?.second_model(&flags.small_model);
        small.add_shortlist(models, shortlist)?;
        // The labels are checked now, not after an hour of collecting.
        match models.iter().find_map(|models| models.small.as_ref()) {
            Some(small) => check_labels(small.labeler().folder(), set),
            None => Ok(()),
        }
    }

    /// Returns the default options for loading a model.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            library: self.settings().onnxruntime.library.clone(),
            openvino: self.settings().openvino.library.clone(),
            ..EngineOptions::default()
        }
    }
}
