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
