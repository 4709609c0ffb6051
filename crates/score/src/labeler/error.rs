//! Why texts have no scores.

use crate::engine::EngineError;
use crate::labels::LabelSetError;
use crate::text::TokenizeError;

/// Why texts cannot be scored at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelerError {
    /// The tokenizer.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// The label set.
    #[error(transparent)]
    LabelSet(#[from] LabelSetError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Labels for a classifier that are not its own.
    #[error(
        "the model `{model}` is a classifier and scores labels of its own ({own}), no others; leave the labels out, or \
         use an NLI or embedding model"
    )]
    OwnLabels {
        /// Name of the model.
        model: String,
        /// Its labels, for people.
        own: String,
    },
    /// A background for a classifier.
    #[error(
        "the model `{0}` is a classifier: it compares a text with nothing, so there is no background beside its labels; \
         leave the background out"
    )]
    NoBackground(String),
    /// A fit to another model.
    #[error(
        "the label set `{labels}` was fitted with the model {fitted_to}, not with `{model}`: name that model with --model, or \
         run `topicmill labels fit` again"
    )]
    FittedToOther {
        /// Name of the label set.
        labels: String,
        /// Name of the model that was to use it.
        model: String,
        /// The beginning of the hash of the model that it was fitted with.
        fitted_to: String,
    },
    /// Logits as scores, of a model whose logits are none of a label.
    #[error(
        "the model `{0}` is no classifier: mode raw gives a classifier's logits as they are; use single or multi"
    )]
    Raw(String),
    /// Learned label vectors of another model.
    #[error(
        "the model `{0}` gives vectors of {1} numbers, and its learned label vectors have {2}; make their file \
         again with this model, or take `label_vectors` out of the block `zero_shot` of its `config.json`"
    )]
    LearnedWidth(String, usize, usize),
    /// A label that leaves no room for a text.
    #[error(
        "label `{label}`: its hypothesis or description has {tokens} tokens, which leaves no room in the model's window of {window}; shorten it"
    )]
    TooLong {
        /// Slug of the label.
        label: String,
        /// Tokens of its text.
        tokens: usize,
        /// Tokens that the model takes.
        window: usize,
    },
    /// A label that the model cannot compute.
    #[error("label `{label}`: {source}")]
    Label {
        /// Slug of the label.
        label: String,
        /// What went wrong.
        #[source]
        source: TextError,
    },
}

impl LabelerError {
    /// Whether the labels or the settings are wrong, rather than the model.
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::LabelSet(_)
            | Self::TooLong { .. }
            | Self::OwnLabels { .. }
            | Self::NoBackground(_)
            | Self::Raw(_)
            | Self::FittedToOther { .. } => true,
            Self::Tokenize(_) | Self::Engine(_) | Self::LearnedWidth(..) | Self::Label { .. } => {
                false
            }
        }
    }
}

/// Why one text has no scores, while others have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// Not even a batch of one row fits.
    #[error(
        "a single row of {0} tokens needs more memory than there is: use a smaller model or another device"
    )]
    OutOfMemory(usize),
    /// The model gave no numbers for it.
    #[error("the model's outputs are not finite")]
    NotFinite,
    /// The engine computes other rows, but not one of this text's.
    #[error(transparent)]
    Engine(EngineError),
}
