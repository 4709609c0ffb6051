//! Why a folder is not a model.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use super::MANIFEST_FILE;

/// Why a folder is not a model that topicmill can use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no such folder.
    #[error("the model folder `{0}` does not exist")]
    NoFolder(PathBuf),
    /// A file that every model has is not there: the folder, and the name of the file or a pattern.
    #[error("the model folder `{0}` has no `{1}`: copy the file from where the model came from")]
    NoFile(PathBuf, String),
    /// Several graphs and no rule to choose one.
    #[error("{0}")]
    Ambiguous(String),
    /// No graph that is computed in the precision asked for.
    #[error("{0}")]
    Precision(String),
    /// No graph of the manifest is for this device and precision.
    #[error("{0}")]
    NoGraph(String),
    /// A file cannot be read, is damaged, or describes no model that can score labels.
    #[error("{0}")]
    File(String),
}

impl ModelError {
    /// What the system says of a file.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| {
            let path = path.display();
            Self::File(format!(
                "read `{path}` of the model: {error}; check the permissions of the file"
            ))
        }
    }

    /// A graph that cannot be used, whatever is in its weights.
    pub(super) fn graph(path: &Path, detail: impl Display) -> Self {
        let path = path.display();
        Self::File(format!(
            "load the graph `{path}`: {detail}; take the model from where it came from again"
        ))
    }

    /// A manifest that cannot be used.
    pub(super) fn manifest(dir: &Path, detail: impl Display) -> Self {
        let path = dir.join(MANIFEST_FILE);
        Self::File(format!("use `{}`: {detail}", path.display()))
    }

    /// A configuration that describes no model that can score labels.
    pub(super) fn unsuitable(dir: &Path, detail: impl Display) -> Self {
        let path = dir.join("config.json");
        Self::File(format!(
            "`{}` describes no model that can score labels: {detail}",
            path.display()
        ))
    }
}
