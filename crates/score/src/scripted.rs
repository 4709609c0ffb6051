//! An engine for tests, without a model or a runtime, that fails on demand.

use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::engine::{Engine, EngineError, Logits};
use crate::background::{Background, BackgroundTopic};
use crate::folder::{EmbeddingHead, GliclassHead, ModelFolder, ModelKind, NliClasses};
use crate::labels::{Label, LabelSet, Mode};

/// An engine that computes each row from its ids alone, independently of the other rows of a batch.
pub struct ScriptedEngine {
    /// Numbers per row.
    pub classes: usize,
    /// Maximum number of padded tokens in a batch; a larger batch runs out of memory.
    pub max_batch_tokens: usize,
    /// Rows with this token id yield NaN.
    pub nan_id: i64,
    /// Batches with this token id fail.
    pub failing_id: i64,
    /// Number of batches before the engine breaks permanently.
    pub batches_left: usize,
    /// True if the engine prefers few batch shapes, like a GPU.
    pub few_shapes: bool,
}

impl Default for ScriptedEngine {
    fn default() -> Self {
        Self {
            classes: 3,
            max_batch_tokens: usize::MAX,
            nan_id: -1,
            failing_id: -1,
            batches_left: usize::MAX,
            few_shapes: false,
        }
    }
}

impl Engine for ScriptedEngine {
    #[expect(
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        reason = "small numbers"
    )]
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        if batch.ids.len() > self.max_batch_tokens {
            return Err(EngineError::OutOfMemory {
                rows: batch.rows(),
                width: batch.width,
                detail: "scripted".into(),
            });
        }
        let Some(life) = self.batches_left.checked_sub(1) else {
            return Err(EngineError::Run("no device".into()));
        };
        self.batches_left = life;
        if batch.ids.contains(&self.failing_id) {
            return Err(EngineError::Run("scripted".into()));
        }
        let mut data = Vec::new();
        for (row, len) in batch.lens.iter().enumerate() {
            let ids = &batch.ids[row * batch.width..row * batch.width + len];
            let sum: i64 = ids
                .iter()
                .enumerate()
                .map(|(i, id)| id * (i as i64 + 1))
                .sum();
            let is_nan = ids.contains(&self.nan_id);
            data.extend((0..self.classes).map(|class| {
                if is_nan {
                    f32::NAN
                } else {
                    ((sum + class as i64 * 37) % 101) as f32 / 10.0 - 5.0
                }
            }));
        }
        Ok(Logits {
            rows: batch.rows(),
            width: self.classes,
            data,
        })
    }

    fn wants_few_shapes(&self) -> bool {
        self.few_shapes
    }
}

/// Returns the default model's folder, declared as an NLI model.
pub fn nli_folder() -> ModelFolder {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minilm-reddit-topics");
    let mut folder = ModelFolder::open(&dir, None).unwrap();
    folder.kind = nli();
    folder
}

/// Returns an NLI model with three classes; entailment is the last.
pub fn nli() -> ModelKind {
    ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    })
}

/// Returns a GLiClass model.
pub fn gliclass() -> ModelKind {
    ModelKind::Gliclass(GliclassHead {
        label_id: 0,
        separator_id: 0,
        prompt_first: true,
        max_labels: None,
        task_prompt: String::new(),
    })
}

/// Returns an embedding head with these scales and bias.
pub fn embedding(softmax_scale: f64, sigmoid_scale: f64, sigmoid_bias: f64) -> EmbeddingHead {
    EmbeddingHead {
        output: "v".into(),
        softmax_scale,
        sigmoid_scale,
        sigmoid_bias,
        learned: Arc::default(),
    }
}

/// Returns a label set in single mode, with one description per label.
pub fn set(labels: &[&str]) -> LabelSet {
    let label = |l: &&str| Label {
        slug: (*l).into(),
        label: (*l).into(),
        descriptions: vec!["Of it.".into()],
    };
    LabelSet {
        name: "t".into(),
        template: "This text is about {}.".into(),
        mode: Mode::Single,
        threshold: 0.0,
        temperature: 1.0,
        labels: labels.iter().map(label).collect(),
        background: None,
        fitted: None,
    }
}

/// Returns a background of four topics, three of them for NLI models.
pub fn background() -> Background {
    let topic = |(label, also, nli): &(&str, &str, bool)| BackgroundTopic {
        label: (*label).into(),
        descriptions: vec![format!("All about {label}.")],
        also: vec![(*also).into()],
        nli: *nli,
    };
    let topics = [
        ("video games", "consoles", true),
        ("music", "songs", false),
        ("sports", "football", true),
        ("food", "cooking", true),
    ];
    Background {
        name: "four".into(),
        version: 1,
        weight: 0.5,
        topics: topics.iter().map(topic).collect(),
    }
}
