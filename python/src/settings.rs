//! Converts the settings of a Python `Labeler` to settings of the scoring crate.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use topicmill_core::labels::label_file;
use topicmill_core::labels::label_file::{DEFAULT_TEMPLATE, LabelFileError};
use topicmill_core::{Background, FailureKind, Label, LabelSet, Mode};
use topicmill_score::library::Library;
use topicmill_score::{EngineOptions, LabelerError, LoadError, ModelFolder};

use crate::Error;

/// The default topics of the program.
const DEFAULT_LABELS: &str = include_str!("../../pipelines/sixteen-topics.toml");

/// Settings of a `Labeler`, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    pub model: PathBuf,
    /// Labels with their descriptions; `None` for the default labels.
    pub labels: Option<Vec<(String, Vec<String>)>>,
    /// The text of a pipeline file that names no other file. Labels, template, mode, threshold and background are then
    /// `None`.
    pub pipeline: Option<String>,
    pub template: Option<String>,
    pub mode: Option<String>,
    pub threshold: Option<f64>,
    pub background: Option<String>,
    pub device: String,
    pub precision: Option<String>,
    pub threads: Option<usize>,
    pub batch_tokens: Option<usize>,
    pub library: Option<PathBuf>,
    pub engine: String,
    pub openvino: Option<PathBuf>,
}

impl Settings {
    /// Returns the engine options. The package has checked that `threads` is not 0.
    pub fn engine(&self) -> PyResult<EngineOptions> {
        Ok(EngineOptions {
            device: self.device.parse().map_err(value_error)?,
            threads: self.threads,
            library: self.library.clone(),
            engine: self.engine.parse().map_err(value_error)?,
            openvino: self.openvino.clone(),
        })
    }

    /// Returns the label set for a model.
    pub fn label_set(&self, folder: &ModelFolder) -> PyResult<LabelSet> {
        let mut set = match (&self.pipeline, &self.labels, folder.kind.head()) {
            (Some(text), _, head) => {
                let mut set = label_file::read(text, "", no_file).map_err(value_error)?;
                // A classifier keeps its own mode if the file's mode is single, which is the default.
                if let Some(head) = head.filter(|_| set.mode == Mode::Single) {
                    set.mode = head.function.into();
                }
                set
            }
            (None, Some(labels), _) => {
                let template = folder.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
                let labels = labels.iter().map(label).collect();
                LabelSet {
                    background: Background::default_for(&folder.kind),
                    ..LabelSet::new("python".to_owned(), template.to_owned(), labels)
                }
            }
            (None, None, Some(head)) => LabelSet::of_classifier(&folder.name, head),
            (None, None, None) => label_file::read(DEFAULT_LABELS, "", no_file)
                .expect("the program's own pipeline file can be read"),
        };
        if let Some(mode) = &self.mode {
            set.mode = mode
                .parse()
                .map_err(|error| PyValueError::new_err(format!("`mode`: {error}")))?;
        }
        if let Some(template) = &self.template {
            set.template.clone_from(template);
        }
        if let Some(threshold) = self.threshold {
            set.threshold = threshold;
        }
        if let Some(background) = &self.background {
            set.background = Background::named(background, no_file).map_err(value_error)?;
        }
        set.validate().map_err(value_error)?;
        Ok(set)
    }
}

/// Reads a pipeline file. Returns the text of an equivalent pipeline file that names no other file, and the slugs of
/// the labels.
#[pyfunction]
#[expect(
    clippy::needless_pass_by_value,
    reason = "pyo3 converts a path to a value"
)]
pub fn read_pipeline(text: &str, path: PathBuf) -> PyResult<(String, Vec<String>)> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new(""));
    let text_of = |other: &str| {
        let other = folder.join(other);
        let text = std::fs::read_to_string(&other);
        text.map_err(|error| format!("{}: {error}", other.display()))
    };
    let set = label_file::read(text, &name, text_of).map_err(|error| {
        let gap = if matches!(error, LabelFileError::Toml(_)) {
            "\n"
        } else {
            " "
        };
        value_error(format!("pipeline file `{}`:{gap}{error}", path.display()))
    })?;
    let slugs = set.labels.iter().map(|label| label.slug.clone());
    Ok((label_file::write(&set), slugs.collect()))
}

fn no_file(path: &str) -> Result<String, String> {
    Err(format!("`{path}` cannot be read here"))
}

fn label((label, descriptions): &(String, Vec<String>)) -> Label {
    let mut descriptions = descriptions.clone();
    descriptions.retain(|text| !text.trim().is_empty());
    Label {
        descriptions,
        ..Label::new(label)
    }
}

/// Reports an invalid argument as `ValueError`.
fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Converts an error in the model or the inference library, with a hint for Python users.
pub fn load_error(error: &LoadError) -> PyErr {
    let hint = match error {
        LoadError::NotFound {
            library: Library::OpenVino,
            ..
        } => "; install topicmill[openvino], or use engine=\"onnxruntime\"",
        LoadError::NotFound { .. } => {
            "; install the package `onnxruntime` in the same environment as topicmill"
        }
        LoadError::CpuOnly(_) => "; use device=\"cpu\", or engine=\"onnxruntime\"",
        LoadError::UnsupportedPrecision(_) => "; use engine=\"openvino\", or precision=\"fp32\"",
        LoadError::Cuda { .. } => {
            "; install topicmill[cuda] in an environment without `onnxruntime`, or use device=\"cpu\""
        }
        _ => "",
    };
    Error::new_err(format!("{error}{hint}"))
}

/// Converts an error in the labels, the tokenizer or the engine.
pub fn labeler_error(error: LabelerError) -> PyErr {
    if error.kind() == FailureKind::Usage {
        value_error(error)
    } else {
        Error::new_err(error.to_string())
    }
}
