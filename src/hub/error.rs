//! Errors from a model download.

use std::error::Error;
use std::io;
use std::path::Path;

use topicmill_core::FailureKind;
use topicmill_score::folder::ModelError;

/// Reasons why a model was not downloaded.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// A message, with the kind that decides the exit code.
    #[error("{1}")]
    Message(FailureKind, String),
    /// The hub is not responding, or the connection broke.
    #[error("cannot fetch `{what}`: {detail}; run the same command again to resume")]
    Transfer {
        /// The file or list.
        what: String,
        /// The error.
        detail: String,
    },
    /// The model cannot be used by topicmill.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl PullError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Message(kind, _) => *kind,
            Self::Transfer { .. } => FailureKind::Temporary,
            Self::Model(_) => FailureKind::Model,
        }
    }

    /// Returns the error for an invalid `HF_ENDPOINT`. Does not show its value, which may contain a password.
    pub(super) fn endpoint() -> Self {
        let text = "HF_ENDPOINT is not the URL of a hub: write it as `https://huggingface.co`";
        Self::Message(FailureKind::Usage, text.to_owned())
    }

    /// Returns the error for a list that no honest hub sends.
    pub(super) fn listing(repo: &str, detail: &str) -> Self {
        let text = format!(
            "the hub's list of `{repo}` is invalid: {detail}; do not use this repository or this hub"
        );
        Self::Message(FailureKind::Model, text)
    }

    /// Returns the error for a file that does not match the list.
    pub(super) fn damaged(name: &str) -> Self {
        let text = format!(
            "`{name}` does not match the hub's list and was deleted; run the same command again"
        );
        Self::Message(FailureKind::Temporary, text)
    }

    /// Converts an HTTP error. Keeps only the innermost cause, which is the most specific and contains no URL.
    pub(super) fn transfer(what: &str, error: &reqwest::Error) -> Self {
        let mut cause: &dyn Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let (what, detail) = (what.to_owned(), cause.to_string());
        if error.is_redirect() {
            let text =
                format!("cannot follow the redirect of `{what}`: {detail}; check HF_ENDPOINT");
            return Self::Message(FailureKind::Model, text);
        }
        if error.is_builder() {
            let text =
                "the token in HF_TOKEN or HF_HOME contains invalid characters: copy it again";
            return Self::Message(FailureKind::Policy, text.to_owned());
        }
        Self::Transfer { what, detail }
    }

    /// Returns a closure that adds the path to a write error.
    pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| {
            let path = path.display();
            let text = format!(
                "cannot write `{path}`: {error}; free some space or correct --to, then run the same command again to \
                 resume"
            );
            Self::Message(FailureKind::Unfinished, text)
        }
    }
}
