//! Errors from a model download.

use std::error::Error;
use std::io;
use std::path::Path;

use topicmill_core::FailureKind;
use topicmill_http::Refusal;
use topicmill_score::folder::ModelError;

/// Reasons why a model was not downloaded.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// A message, with the kind that decides the exit code. A request that failed temporarily is repeated.
    #[error("{1}")]
    Message(FailureKind, String),
    /// The model cannot be used by topicmill.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl PullError {
    /// Returns the error for a hub that is not responding, or for a broken connection.
    pub(super) fn temporary(what: &str, detail: &str) -> Self {
        let text = format!("cannot fetch `{what}`: {detail}; run the same command again to resume");
        Self::Message(FailureKind::Temporary, text)
    }

    /// Returns the error for a list that no honest hub sends.
    pub(super) fn listing(repo: &str, detail: &str) -> Self {
        let text = format!(
            "the hub's list of `{repo}` is invalid: {detail}; do not use this repository or this hub"
        );
        Self::Message(FailureKind::Model, text)
    }

    /// Returns a closure that converts an HTTP error. Keeps only the innermost cause, which is the most specific and
    /// contains no URL.
    pub(super) fn http(what: &str) -> impl Fn(reqwest::Error) -> Self {
        move |error| {
            let mut cause: &dyn Error = &error;
            while let Some(next) = cause.source() {
                cause = next;
            }
            if error.is_redirect() {
                let text =
                    format!("cannot follow the redirect of `{what}`: {cause}; check HF_ENDPOINT");
                return Self::Message(FailureKind::Model, text);
            }
            if error.is_builder() {
                let text =
                    "the token in HF_TOKEN or HF_HOME contains invalid characters: copy it again";
                return Self::Message(FailureKind::Policy, text.to_owned());
            }
            if let Some(why) = Refusal::of(&error) {
                let text = format!("cannot fetch `{what}`: {why}");
                return Self::Message(FailureKind::Usage, text);
            }
            Self::temporary(what, &cause.to_string())
        }
    }

    /// Returns a closure that adds the path to a write error.
    pub(super) fn write(path: &Path) -> impl Fn(io::Error) -> Self {
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
