//! The short way: a model folder, labels and texts in; a label and a score for each label out.

use std::path::PathBuf;

use crate::any_engine::AnyEngine;
use crate::background::Background;
use crate::engine::{Device, EngineName};
use crate::labeler::{Labeler, LabelerError, PreparedLabels, TextError};
use crate::labels::{Label, LabelSet, Mode};
use crate::onnx::{EngineOptions, OnnxError};
use crate::score::Outcome;

/// Padded tokens of a batch on a CPU for each thread that computes it: small sorted batches stay in its caches and have
/// little padding, and fewer tokens do not fill the units of a thread (benches/results/python.md).
pub const THREAD_BATCH_TOKENS: usize = 256;
/// Padded tokens of a batch on a CPU, however many threads: more are slower (benches/results/sweep.md).
pub const CPU_BATCH_TOKENS: usize = 1_024;
/// Padded tokens of a batch on a GPU: enough work to hide what a launch costs.
pub const CUDA_BATCH_TOKENS: usize = 16_384;

/// Why a [`Scorer`] cannot be made or cannot score.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScorerError {
    /// The model, its folder, or ONNX Runtime.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The labels, the tokenizer, or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// One of the texts.
    #[error("score text {index}: {source}")]
    Text {
        /// Its place among the texts, from 0.
        index: usize,
        /// What went wrong.
        #[source]
        source: TextError,
    },
}

/// Collects what a [`Scorer`] needs; made by [`Scorer::builder`].
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
    /// Adds a label with a plain description. A classifier has labels of its own, so it is given none. A description helps an embedding model; an NLI model reads the label
    /// alone. An empty description counts as none.
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

    /// Takes a whole label set, with its template, in place of everything said about labels so far.
    pub fn label_set(mut self, set: LabelSet) -> Self {
        self.template = Some(set.template.clone());
        self.mode = Some(set.mode);
        self.set = set;
        self
    }

    /// One label a text (the default), or each label for itself. The default for a classifier is the function that
    /// transformers would apply.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// The hypothesis template, with one `{}` where the label goes. The default is the model's own, or else
    /// `This text is about {}.`
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.template = Some(template.into());
        self
    }

    /// A text whose best score is lower gets no label: from 0 (the default) to 1.
    pub fn threshold(mut self, threshold: f64) -> Self {
        self.set.threshold = threshold;
        self
    }

    /// Ordinary topics beside the labels: a text that fits them better than every label gets none.
    pub fn background(mut self, background: Background) -> Self {
        self.set.background = Some(background);
        self
    }

    /// What to compute on; the default takes a GPU where one can be used.
    pub fn device(mut self, device: Device) -> Self {
        self.options.device = device;
        self
    }

    /// Which graph of the folder to take, such as `fp32`, `fp16` or `int8`; the default is the folder's choice.
    pub fn precision(mut self, precision: impl Into<String>) -> Self {
        self.precision = Some(precision.into());
        self
    }

    /// Threads within a batch on a CPU; the default is one for each core that this process may use.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Padded tokens (rows × longest row) that a batch may hold.
    pub fn batch_tokens(mut self, batch_tokens: usize) -> Self {
        self.batch_tokens = Some(batch_tokens);
        self
    }

    /// The ONNX Runtime library; the default is [where one is found](crate::onnx::library).
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.options.library = Some(library.into());
        self
    }

    /// The library that computes; the default is ONNX Runtime.
    pub fn engine(mut self, engine: EngineName) -> Self {
        self.options.engine = engine;
        self
    }

    /// The library of OpenVINO; the default is [where one is found](crate::onnx::library).
    pub fn openvino(mut self, library: impl Into<PathBuf>) -> Self {
        self.options.openvino = Some(library.into());
        self
    }

    /// Reads the folder, checks the graph against its manifest, and makes the labels ready.
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

/// Padded tokens of a batch where nobody says how many; `threads` compute it.
pub fn batch_tokens_for(device: Device, threads: usize) -> usize {
    match device {
        Device::Cpu | Device::Auto => {
            let of_threads = threads.max(1).saturating_mul(THREAD_BATCH_TOKENS);
            of_threads.min(CPU_BATCH_TOKENS)
        }
        Device::Cuda(_) => CUDA_BATCH_TOKENS,
    }
}

/// What came of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scored {
    /// Slug of the best label; `None` where its score lies under the threshold, or the text is other.
    pub label: Option<String>,
    /// Whether the text got the label, fits the background better, or is unsure.
    pub outcome: Outcome,
    /// The best score, 0 to 1; in [`Mode::Raw`] any number.
    pub score: f64,
    /// What came first less what came second, the background included; with one label alone its score.
    pub margin: f64,
    /// The score of each label, in the order of the label set.
    pub scores: Vec<f64>,
}

/// A model with a label set made ready for it.
pub struct Scorer {
    labeler: Labeler,
    set: LabelSet,
    prepared: PreparedLabels,
}

impl Scorer {
    /// Begins with the path of a model folder, see [`folder`](crate::folder).
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

    /// The label set that texts are scored against.
    pub fn label_set(&self) -> &LabelSet {
        &self.set
    }

    /// Scores texts, in their order. Texts are put into batches by length, so one call with many texts is faster than
    /// many calls.
    ///
    /// # Errors
    /// [`ScorerError::Text`] for the first text that cannot be scored, [`ScorerError::Labeler`] where none can.
    pub fn score_all<T: AsRef<str>>(&mut self, texts: &[T]) -> Result<Vec<Scored>, ScorerError> {
        let texts: Vec<String> = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        let results = self.labeler.score_all(&self.prepared, &texts, &|| false)?;
        let results = results.expect("nobody asked it to stop");
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
