//! Errors from reading a model folder.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use super::MANIFEST_FILE;

/// Reasons why a folder cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The folder does not exist.
    #[error("the model folder `{0}` does not exist")]
    NoFolder(PathBuf),
    /// A required file is missing. Contains the folder and the file's name or glob pattern.
    #[error("the model folder `{0}` has no `{1}`: copy it from the model's source")]
    NoFile(PathBuf, String),
    /// There are several graphs, and nothing selects one.
    #[error("{0}")]
    Ambiguous(String),
    /// No graph has the requested precision.
    #[error("{0}")]
    Precision(String),
    /// The manifest has no graph for this device and precision.
    #[error("{0}")]
    NoGraph(String),
    /// A file cannot be read, is damaged, or does not describe a model that can score labels.
    #[error("{0}")]
    File(String),
}

impl ModelError {
    /// Wraps an I/O error on a file.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| {
            let path = path.display();
            Self::File(format!(
                "cannot read `{path}` of the model: {error}; check the permissions of the file"
            ))
        }
    }

    /// Reports an unusable graph.
    pub(super) fn graph(path: &Path, detail: impl Display) -> Self {
        let path = path.display();
        Self::File(format!(
            "cannot load the graph `{path}`: {detail}; download the model again"
        ))
    }

    /// Reports an unusable manifest.
    pub(super) fn manifest(dir: &Path, detail: impl Display) -> Self {
        let path = dir.join(MANIFEST_FILE);
        Self::File(format!("cannot use `{}`: {detail}", path.display()))
    }

    /// Reports a configuration that does not describe a model that can score labels.
    pub(super) fn unsuitable(dir: &Path, detail: impl Display) -> Self {
        let path = dir.join("config.json");
        Self::File(format!(
            "`{}` does not describe a model that can score labels: {detail}",
            path.display()
        ))
    }
}
