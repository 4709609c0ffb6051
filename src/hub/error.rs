//! Why a model was not fetched, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use topicmill_score::folder::ModelError;

use topicmill_core::FailureKind;

/// Why a model was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// What was asked for is wrong: the name, the folder or the address of the hub.
    #[error("{0}")]
    Asked(String),
    /// The hub does not give it to this user, or the token cannot be sent.
    #[error("{0}")]
    Refused(String),
    /// The hub does not answer, or breaks off.
    #[error("fetch `{what}`: {detail}; give the same command again to go on")]
    Transfer {
        /// File or list.
        what: String,
        /// What went wrong.
        detail: String,
    },
    /// What came was too slow, or is not what the hub lists; another try may go well.
    #[error("{0}")]
    Again(String),
    /// The repository or the hub is none that topicmill can use.
    #[error("{0}")]
    Unfit(String),
    /// Something that is no file of ours lies where one is to be written.
    #[error("write `{0}`: it is a link or no file; remove it, and give the same command again")]
    Link(PathBuf),
    /// A file of ours.
    #[error(
        "write `{path}`: {source}; make room or correct --to, and give the same command again to go on"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The model is none that topicmill can use.
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

    /// `HF_ENDPOINT` is no address; it is not shown, for it may hold a password.
    pub(super) fn endpoint() -> Self {
        let text =
            "use HF_ENDPOINT: it is no address of a hub; write it as `https://huggingface.co`";
        Self::Asked(text.to_owned())
    }

    /// A redirect that is not followed.
    pub(super) fn redirect(what: &str, detail: &str) -> Self {
        Self::Unfit(format!(
            "fetch `{what}`: the hub sends us elsewhere, and {detail}; check HF_ENDPOINT"
        ))
    }

    /// A list that no honest hub has.
    pub(super) fn listing(repo: &str, detail: &str) -> Self {
        Self::Unfit(format!(
            "use the hub's list of `{repo}`: {detail}; nothing of it was fetched, and this repository or this hub is \
             better left alone"
        ))
    }

    /// What came is not what the hub lists.
    pub(super) fn damaged(name: &str) -> Self {
        Self::Again(format!(
            "`{name}` did not arrive as the hub lists it, and was deleted; give the same command again"
        ))
    }

    /// A file that cannot be written.
    pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }
}
