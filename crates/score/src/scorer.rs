//! The high-level API: takes a model folder, labels and texts, and returns a label and scores for each text.

use std::path::PathBuf;

use crate::any_engine::AnyEngine;
use crate::background::Background;
use crate::engine::{Device, EngineName};
use crate::labeler::{Labeler, LabelerError, PreparedLabels, TextError};
use crate::labels::{Label, LabelSet, Mode};
use crate::onnx::{EngineOptions, OnnxError};
use crate::score::Outcome;

/// Default batch size on a CPU in padded tokens, per thread. Batches of this size stay in cache and need little
/// padding; smaller ones leave threads underused (benches/results/python.md).
pub const THREAD_BATCH_TOKENS: usize = 256;
/// Upper limit of this default, for any number of threads; larger batches are slower (benches/results/stages.md).
pub const CPU_BATCH_TOKENS: usize = 1_024;
/// Default batch size on a GPU in padded tokens, large enough to hide the launch overhead.
pub const CUDA_BATCH_TOKENS: usize = 16_384;

/// Reasons why a [`Scorer`] cannot be built or cannot score.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScorerError {
    /// An error in the model folder or the inference library.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// An error in the labels, the tokenizer or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// One of the texts could not be scored.
    #[error("cannot score text {index}: {source}")]
    Text {
        /// Index of the text, from 0.
        index: usize,
        /// The cause.
        #[source]
        source: TextError,
    },
}

/// Builder of a [`Scorer`], returned by [`Scorer::builder`].
#[derive(Debug, Clone)]
#[must_use = "`load` makes the scorer"]
pub struct ScorerBuilder {
    model: PathBuf,
    set: LabelSet,
    template: Option<String>,
    mode: Option<Mode>,
    precision: Option<String>,
    batch_tokens: Option<usize>,
    options: EngineOptions,
}

impl ScorerBuilder {
    /// Adds a label with a plain-language description, for any model but a classifier, which has its own labels.
    /// Embedding models use the description; NLI and GLiClass models read only the label. The description may be empty.
    pub fn label(mut self, label: impl Into<String>, description: impl Into<String>) -> Self {
        let (label, description) = (label.into(), description.into());
        let mut descriptions = vec![description];
        descriptions.retain(|text| !text.trim().is_empty());
        self.set.labels.push(Label {
            slug: label.clone(),
            label,
            descriptions,
        });
        self
    }

    /// Sets the label set, including its template and mode. Replaces all earlier label settings.
    pub fn label_set(mut self, set: LabelSet) -> Self {
        self.template = Some(set.template.clone());
        self.mode = Some(set.mode);
        self.set = set;
        self
    }

    /// Sets the scoring mode. The default is one label per text; for a classifier, the function that transformers would
    /// use.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the hypothesis template, with one `{}` for the label. The default is the model's own, or
    /// `This text is about {}.`
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.template = Some(template.into());
        self
    }

    /// Sets the minimum score of a label, from 0 (the default) to 1.
    pub fn threshold(mut self, threshold: f64) -> Self {
        self.set.threshold = threshold;
        self
    }

    /// Sets background topics: a text that fits them better than every label gets no label.
    pub fn background(mut self, background: Background) -> Self {
        self.set.background = Some(background);
        self
    }

    /// Sets the device. The default is a GPU if one can be used.
    pub fn device(mut self, device: Device) -> Self {
        self.options.device = device;
        self
    }

    /// Sets the precision of the graph, such as `fp32`, `fp16` or `int8`. The default depends on the folder.
    pub fn precision(mut self, precision: impl Into<String>) -> Self {
        self.precision = Some(precision.into());
        self
    }

    /// Sets the number of threads that compute a batch on a CPU. The default is one per available core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Sets the maximum number of padded tokens (rows × longest row) in a batch.
    pub fn batch_tokens(mut self, batch_tokens: usize) -> Self {
        self.batch_tokens = Some(batch_tokens);
        self
    }

    /// Sets the path of the ONNX Runtime library. By default, it is [searched for](crate::onnx::library).
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.options.library = Some(library.into());
        self
    }

    /// Sets the inference library. The default is ONNX Runtime.
    pub fn engine(mut self, engine: EngineName) -> Self {
        self.options.engine = engine;
        self
    }

    /// Sets the path of the OpenVINO library. By default, it is [searched for](crate::onnx::library).
    pub fn openvino(mut self, library: impl Into<PathBuf>) -> Self {
        self.options.openvino = Some(library.into());
        self
    }

    /// Loads the model, checks its graph against the manifest, and prepares the labels.
    ///
    /// # Errors
    /// See [`ScorerError`].
    pub fn load(self) -> Result<Scorer, ScorerError> {
        let precision = self.precision.as_deref();
        let (folder, engine) = AnyEngine::open(&self.model, precision, &self.options)?;
        let mut set = self.set;
        if let Some(template) = self.template.or_else(|| folder.template.clone()) {
            set.template = template;
        }
        if let Some(head) = folder.kind.head().filter(|_| set.labels.is_empty()) {
            set = LabelSet {
                threshold: set.threshold,
                background: set.background,
                ..LabelSet::of_classifier(&folder.name, head)
            };
        }
        set.mode = self.mode.unwrap_or(set.mode);
        let default = batch_tokens_for(engine.chosen.device, engine.threads);
        let tokens = self.batch_tokens.unwrap_or(default);
        let mut labeler = Labeler::load(folder, Box::new(engine), tokens)?;
        let prepared = labeler.prepare(&set)?;
        Ok(Scorer {
            labeler,
            set,
            prepared,
        })
    }
}

/// Returns the default batch size in padded tokens, for this number of threads.
pub fn batch_tokens_for(device: Device, threads: usize) -> usize {
    match device {
        Device::Cpu | Device::Auto => {
            let of_threads = threads.max(1).saturating_mul(THREAD_BATCH_TOKENS);
            of_threads.min(CPU_BATCH_TOKENS)
        }
        Device::Cuda(_) => CUDA_BATCH_TOKENS,
    }
}

/// Result of one text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scored {
    /// Slug of the best label; `None` if its score is below the threshold, or the text is *other*.
    pub label: Option<String>,
    /// Labelling outcome: labelled, other or unsure.
    pub outcome: Outcome,
    /// Best score, from 0 to 1; any number in [`Mode::Raw`].
    pub score: f64,
    /// Best score minus second-best score, including the background; the score itself if it is the only one.
    pub margin: f64,
    /// Score of each label, in the order of the label set.
    pub scores: Vec<f64>,
}

/// A loaded model with a prepared label set.
pub struct Scorer {
    labeler: Labeler,
    set: LabelSet,
    prepared: PreparedLabels,
}

impl Scorer {
    /// Returns a builder for a model folder; see [`folder`](crate::folder).
    pub fn builder(model: impl Into<PathBuf>) -> ScorerBuilder {
        let set = LabelSet {
            name: "labels".to_owned(),
            template: "This text is about {}.".to_owned(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: Vec::new(),
            background: None,
            fitted: None,
        };
        ScorerBuilder {
            model: model.into(),
            set,
            template: None,
            mode: None,
            precision: None,
            batch_tokens: None,
            options: EngineOptions::default(),
        }
    }

    /// Returns the label set in use.
    pub fn label_set(&self) -> &LabelSet {
        &self.set
    }

    /// Scores texts, in order. Texts are batched by length, so one call with many texts is faster than many calls.
    ///
    /// # Errors
    /// [`ScorerError::Text`] for the first text that cannot be scored, [`ScorerError::Labeler`] if none can be.
    pub fn score_all<T: AsRef<str>>(&mut self, texts: &[T]) -> Result<Vec<Scored>, ScorerError> {
        let texts: Vec<String> = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        let results = self.labeler.score_all(&self.prepared, &texts, &|| false)?;
        let results = results.expect("scoring was not cancelled");
        let scored = results.into_iter().enumerate().map(|(index, result)| {
            let scores = result
                .map_err(|source| ScorerError::Text { index, source })?
                .scores;
            let best = self.set.labels[scores.best].slug.clone();
            Ok(Scored {
                label: (!scores.abstained).then_some(best),
                outcome: scores.outcome(),
                score: scores.scores[scores.best],
                margin: scores.margin,
                scores: scores.scores,
            })
        });
        scored.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_grows_with_the_threads_that_compute_it() {
        let tokens = [0, 1, 2, 4, 64].map(|threads| batch_tokens_for(Device::Cpu, threads));
        assert_eq!(tokens, [256, 256, 512, 1_024, 1_024]);
        assert_eq!(batch_tokens_for(Device::Cuda(0), 1), CUDA_BATCH_TOKENS);
    }
}
