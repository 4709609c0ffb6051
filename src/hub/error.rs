//! Errors from a model download.

use std::io;
use std::path::{Path, PathBuf};

use topicmill_score::folder::ModelError;

use topicmill_core::FailureKind;

/// Reasons why a model was not downloaded.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// An invalid name, folder or endpoint.
    #[error("{0}")]
    Asked(String),
    /// The hub denies access, or the token cannot be sent.
    #[error("{0}")]
    Refused(String),
    /// The hub is not responding, or the connection broke.
    #[error("cannot fetch `{what}`: {detail}; run the same command again to resume")]
    Transfer {
        /// The file or list.
        what: String,
        /// The error.
        detail: String,
    },
    /// The download was too slow or does not match the list; a retry may succeed.
    #[error("{0}")]
    Again(String),
    /// The repository or the hub cannot be used by topicmill.
    #[error("{0}")]
    Unfit(String),
    /// There is a link or a folder where a file must be written.
    #[error(
        "cannot write `{0}`: it is a link or not a file; remove it, then run the same command again"
    )]
    Link(PathBuf),
    /// A file cannot be written.
    #[error(
        "cannot write `{path}`: {source}; free some space or correct --to, then run the same command again to resume"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The model cannot be used by topicmill.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl PullError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Asked(_) => FailureKind::Usage,
            Self::Refused(_) => FailureKind::Policy,
            Self::Transfer { .. } | Self::Again(_) => FailureKind::Temporary,
            Self::Write { .. } | Self::Link(_) => FailureKind::Unfinished,
            Self::Unfit(_) | Self::Model(_) => FailureKind::Model,
        }
    }

    /// Returns the error for an invalid `HF_ENDPOINT`. Does not show its value, which may contain a password.
    pub(super) fn endpoint() -> Self {
        let text = "HF_ENDPOINT is not the URL of a hub: write it as `https://huggingface.co`";
        Self::Asked(text.to_owned())
    }

    /// Returns the error for a redirect that is not followed.
    pub(super) fn redirect(what: &str, detail: &str) -> Self {
        Self::Unfit(format!(
            "cannot fetch `{what}`: the hub's redirect cannot be followed: {detail}; check HF_ENDPOINT"
        ))
    }

    /// Returns the error for a list that no honest hub sends.
    pub(super) fn listing(repo: &str, detail: &str) -> Self {
        Self::Unfit(format!(
            "the hub's list of `{repo}` is invalid: {detail}; nothing was fetched; do not use this repository or \
             this hub"
        ))
    }

    /// Returns the error for a download that does not match the list.
    pub(super) fn damaged(name: &str) -> Self {
        Self::Again(format!(
            "`{name}` does not match the hub's list and was deleted; run the same command again"
        ))
    }

    /// Returns a closure that adds the path to a write error.
    pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }
}
