//! Errors from scoring texts.

use crate::engine::EngineError;
use crate::text::TokenizeError;
use topicmill_core::{FailureKind, LabelSetError};

/// Reasons why no text can be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelerError {
    /// Tokenizer error.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// Invalid label set.
    #[error(transparent)]
    LabelSet(#[from] LabelSetError),
    /// Engine error.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The labels are not the classifier's own.
    #[error(
        "the model `{model}` is a classifier and scores only its own labels ({own}); omit the labels, or \
         use an NLI or embedding model"
    )]
    OwnLabels {
        /// Name of the model.
        model: String,
        /// The model's labels, as a list for messages.
        own: String,
    },
    /// A classifier cannot be combined with a background.
    #[error(
        "the model `{0}` is a classifier, which cannot be combined with a background; omit the background"
    )]
    NoBackground(String),
    /// The label set was fitted with a different model.
    #[error(
        "the label set `{labels}` was fitted with the model {fitted_to}, not with `{model}`: use that model, or fit \
         the labels again"
    )]
    FittedToOther {
        /// Name of the label set.
        labels: String,
        /// Name of the model in use.
        model: String,
        /// Hash prefix of the model that the label set was fitted with.
        fitted_to: String,
    },
    /// The fit reads vectors of a different length than the model computes.
    #[error(
        "the label set `{labels}` has a fit with {weights} weights for each label, but the vectors of `{model}` have \
         {width} numbers: the fit was edited or damaged; fit the labels again"
    )]
    FittedWidth {
        /// Name of the label set.
        labels: String,
        /// Name of the model in use.
        model: String,
        /// Number of weights per label.
        weights: usize,
        /// Number of dimensions in the model's vectors; 0 for a model without vectors.
        width: usize,
    },
    /// Mode raw was requested for a model other than a classifier.
    #[error(
        "mode raw returns the logits of a classifier, and the model `{0}` is not one; use single or multi"
    )]
    Raw(String),
    /// The learned label vectors belong to a different model.
    #[error(
        "the model `{model}` computes vectors of {width} dimensions, but its learned label vectors have {learned}; \
         build their file again with this model, or remove `label_vectors` from the `zero_shot` block of its \
         `config.json`"
    )]
    LearnedWidth {
        /// Name of the model.
        model: String,
        /// Number of dimensions in the model's vectors.
        width: usize,
        /// Number of dimensions in its learned label vectors.
        learned: usize,
    },
    /// A label's text leaves no room for the text to score.
    #[error(
        "label `{label}`: its hypothesis or description has {tokens} tokens, which leaves no room in the model's \
         window of {window}; shorten it"
    )]
    TooLong {
        /// Slug of the label.
        label: String,
        /// Number of tokens in the label's text.
        tokens: usize,
        /// Token limit of the model.
        window: usize,
    },
    /// A label contains a special token of the model.
    #[error(
        "label `{label}`: it contains `{token}`, which separates labels in the model `{model}`; use different words"
    )]
    Reserved {
        /// Slug of the label.
        label: String,
        /// The token as text.
        token: String,
        /// Name of the model.
        model: String,
    },
    /// A model that reads all labels at once has no room for some of them.
    #[error(
        "the model `{model}` reads all labels with each text, and has no room for {labels}: its limit is {limit}; use \
         fewer or shorter labels, or omit the background"
    )]
    TooManyLabels {
        /// Name of the model.
        model: String,
        /// The labels that do not fit, as a list for messages.
        labels: String,
        /// The limit that they exceed.
        limit: String,
    },
    /// A label's text cannot be computed.
    #[error("label `{label}`: {source}")]
    Label {
        /// Slug of the label.
        label: String,
        /// The cause.
        #[source]
        source: TextError,
    },
}

impl LabelerError {
    /// Returns the kind of the error: whether the labels and settings, or the model, are at fault.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::LabelSet(_)
            | Self::TooLong { .. }
            | Self::Reserved { .. }
            | Self::TooManyLabels { .. }
            | Self::OwnLabels { .. }
            | Self::NoBackground(_)
            | Self::Raw(_)
            | Self::FittedToOther { .. }
            | Self::FittedWidth { .. } => FailureKind::Usage,
            Self::Tokenize(_)
            | Self::Engine(_)
            | Self::LearnedWidth { .. }
            | Self::Label { .. } => FailureKind::Model,
        }
    }
}

/// Reasons why one text has no scores although other texts do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// Even a batch of one row does not fit in memory.
    #[error(
        "a single row of {0} tokens does not fit in memory: use a smaller model or a different device"
    )]
    OutOfMemory(usize),
    /// The model returned NaN or infinity for this text.
    #[error("the model's outputs are not finite")]
    NotFinite,
    /// The engine fails on this text but computes other rows.
    #[error(transparent)]
    Engine(EngineError),
}
