//! Defines the kinds of models, with the parameters that turn a model's output into scores.

mod learned;

use std::sync::Arc;

pub use self::learned::{LearnedLabel, LearnedLabels};
use crate::first_few;

/// Maximum number of labels to list in a message.
const LISTED: usize = 8;

/// Kind of model, with the parameters that turn its output into scores.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    /// Cross-encoder of text and hypothesis, with a logit per class.
    Nli(NliClasses),
    /// Encoder of single texts; a label is scored from the cosine of its vector and the text's vector.
    Embedding(EmbeddingHead),
    /// Classifier of single texts, with a logit for each of its own labels.
    Classifier(ClassifierHead),
    /// Encoder of a text together with all labels, with a logit for each label.
    Gliclass(GliclassHead),
}

impl ModelKind {
    /// Returns `nli`, `embedding`, `classifier` or `gliclass`, as stored.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Nli(_) => "nli",
            Self::Embedding(_) => "embedding",
            Self::Classifier(_) => "classifier",
            Self::Gliclass(_) => "gliclass",
        }
    }

    /// Returns the head of a classifier.
    pub fn head(&self) -> Option<&ClassifierHead> {
        match self {
            Self::Classifier(head) => Some(head),
            Self::Nli(_) | Self::Embedding(_) | Self::Gliclass(_) => None,
        }
    }

    /// Returns the number of outputs per row, if the configuration determines it.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Nli(classes) => Some(classes.count),
            Self::Classifier(head) => Some(head.labels.len()),
            Self::Embedding(_) | Self::Gliclass(_) => None,
        }
    }
}

/// Indices of an NLI model's classes among its logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NliClasses {
    /// Number of classes: 2 or 3.
    pub count: usize,
    /// Index of the class that scores a label.
    pub entailment: usize,
    /// Index of the class that multi mode contrasts with entailment.
    pub contradiction: usize,
    /// Index of the third class, if there is one.
    pub neutral: Option<usize>,
}

impl NliClasses {
    /// Selects the classes as the zero-shot pipeline of transformers does: entailment by name, contradiction by
    /// position. Scores must equal the pipeline's, even where its choice is odd: for the classes (neutral, entailment,
    /// contradiction), it uses neutral as the contradiction.
    pub fn with_entailment(count: usize, entailment: usize) -> Self {
        let contradiction = if entailment == 0 { count - 1 } else { 0 };
        let neutral = (0..count).find(|class| ![entailment, contradiction].contains(class));
        Self {
            count,
            entailment,
            contradiction,
            neutral,
        }
    }
}

/// Output name of an embedding model, and the parameters that turn cosines into scores.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingHead {
    /// Name of the output, `[batch, dimension]`.
    pub output: String,
    /// Single mode: softmax(`softmax_scale` · cosine).
    pub softmax_scale: f64,
    /// Multi mode: sigmoid(`sigmoid_scale` · (cosine − `sigmoid_bias`)).
    pub sigmoid_scale: f64,
    /// See `sigmoid_scale`.
    pub sigmoid_bias: f64,
    /// Learned vectors of certain labels, used in place of vectors computed from the labels' texts.
    pub learned: Arc<LearnedLabels>,
}

/// Labels and scoring function of a classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassifierHead {
    /// The labels in the order of the logits; unique and never empty.
    pub labels: Vec<String>,
    /// Default scoring function.
    pub function: HeadFunction,
}

/// The `function_to_apply` values in transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFunction {
    /// The labels compete, and a text gets one of them.
    Softmax,
    /// Each label is scored independently.
    Sigmoid,
    /// The logits are the scores, as in a regression.
    Identity,
}

impl ClassifierHead {
    /// Returns true if the labels are the placeholders `LABEL_0`, `LABEL_1`, … from transformers.
    pub fn is_unnamed(&self) -> bool {
        let mut labels = self.labels.iter().enumerate();
        labels.all(|(number, label)| *label == format!("LABEL_{number}"))
    }

    /// Returns advice in case the model is an NLI model with unnamed classes: two or three placeholder labels.
    pub fn nli_advice(&self) -> &'static str {
        if self.is_unnamed() && (2..=3).contains(&self.labels.len()) {
            "; if the model is trained on NLI, name its entailment class `entailment` in `id2label` and `label2id` of \
             its `config.json`, to use it with any labels"
        } else {
            ""
        }
    }

    /// Returns the first few labels for a message, and how many more there are.
    pub fn label_list(&self) -> String {
        first_few(&self.labels, LISTED)
    }
}

/// The prompt for a GLiClass model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GliclassHead {
    /// Token id before each label.
    pub label_id: u32,
    /// Token id after the last label.
    pub separator_id: u32,
    /// True if the labels precede the text.
    pub prompt_first: bool,
    /// Maximum number of labels, if there is one in addition to the token limit.
    pub max_labels: Option<usize>,
    /// Task prompt after the separator: a text that describes the task to the model. Empty if there is none.
    pub task_prompt: String,
}
