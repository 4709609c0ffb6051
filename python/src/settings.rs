//! Converts the settings of a Python `Labeler` to those of the scoring crate.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use topicmill_score::onnx::Library;
use topicmill_score::{
    Device, EngineName, EngineOptions, Label, LabelSet, LabelerError, Mode, ModelFolder, OnnxError,
};

use crate::Error;

/// The default topics of the program.
const DEFAULT_LABELS: &str = include_str!("../../pipelines/sixteen-topics.toml");

/// Default template for labels, if the model has none.
const DEFAULT_TEMPLATE: &str = "This text is about {}.";

/// Settings of a `Labeler`, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    pub model: PathBuf,
    /// Labels with their descriptions; `None` for the default labels.
    pub labels: Option<Vec<(String, Vec<String>)>>,
    pub template: Option<String>,
    pub mode: Option<String>,
    pub threshold: f64,
    pub device: String,
    pub precision: Option<String>,
    pub threads: Option<usize>,
    pub batch_tokens: Option<usize>,
    pub library: Option<PathBuf>,
    pub engine: String,
    pub openvino: Option<PathBuf>,
    pub reddit_text: bool,
}

/// The keys of a pipeline file that define a label set.
#[derive(Deserialize)]
struct Pipeline {
    name: String,
    hypothesis_template: String,
    mode: Mode,
    threshold: f64,
    temperature: f64,
    topic: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    slug: String,
    label: String,
    descriptions: Vec<String>,
}

impl Settings {
    /// Returns the engine options.
    pub fn engine(&self) -> PyResult<EngineOptions> {
        let device: Device = self.device.parse().map_err(value_error)?;
        let engine: EngineName = self.engine.parse().map_err(value_error)?;
        if self.threads == Some(0) {
            return Err(PyValueError::new_err(
                "`threads` is 0: give a number from 1 on, or None for one thread a core",
            ));
        }
        Ok(EngineOptions {
            device,
            threads: self.threads,
            library: self.library.clone(),
            engine,
            openvino: self.openvino.clone(),
            // This process has only one engine with these settings.
            weights: None,
        })
    }

    /// Returns the label set for a model.
    pub fn label_set(&self, folder: &ModelFolder) -> PyResult<LabelSet> {
        let mut set = match &self.labels {
            None => match folder.kind.head() {
                Some(head) => LabelSet::of_classifier(&folder.name, head),
                None => default_labels(),
            },
            Some(labels) => LabelSet {
                name: "python".to_owned(),
                template: folder
                    .template
                    .clone()
                    .unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned()),
                mode: Mode::Single,
                threshold: 0.0,
                temperature: 1.0,
                labels: labels.iter().map(label).collect(),
                background: None,
                fitted: None,
            },
        };
        if let Some(mode) = &self.mode {
            set.mode = mode
                .parse()
                .map_err(|error| PyValueError::new_err(format!("`mode`: {error}")))?;
        }
        if let Some(template) = &self.template {
            set.template.clone_from(template);
        }
        set.threshold = self.threshold;
        set.validate().map_err(value_error)?;
        Ok(set)
    }
}

fn label((label, descriptions): &(String, Vec<String>)) -> Label {
    let mut descriptions = descriptions.clone();
    descriptions.retain(|text| !text.trim().is_empty());
    Label {
        slug: label.clone(),
        label: label.clone(),
        descriptions,
    }
}

fn default_labels() -> LabelSet {
    let pipeline: Pipeline =
        toml::from_str(DEFAULT_LABELS).expect("the program's own pipeline file can be read");
    let labels = pipeline.topic.into_iter().map(|topic| Label {
        slug: topic.slug,
        label: topic.label,
        descriptions: topic.descriptions,
    });
    LabelSet {
        name: pipeline.name,
        template: pipeline.hypothesis_template,
        mode: pipeline.mode,
        threshold: pipeline.threshold,
        temperature: pipeline.temperature,
        labels: labels.collect(),
        background: None,
        fitted: None,
    }
}

/// Reports an invalid argument as `ValueError`.
fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Converts an error in the model or the inference library, with a hint for Python users.
pub fn onnx_error(error: &OnnxError) -> PyErr {
    let hint = match error {
        OnnxError::NotFound {
            library: Library::OpenVino,
            ..
        } => "; install topicmill[openvino], or give engine=\"onnxruntime\"",
        OnnxError::NotFound { .. } => {
            "; install the package `onnxruntime` in the same environment as topicmill"
        }
        OnnxError::CpuOnly(_) => "; give device=\"cpu\", or engine=\"onnxruntime\"",
        OnnxError::UnsupportedPrecision(_) => "; give engine=\"openvino\", or precision=\"fp32\"",
        OnnxError::Cuda { .. } => {
            "; install topicmill[cuda] in an environment without `onnxruntime`, or give device=\"cpu\""
        }
        _ => "",
    };
    Error::new_err(format!("{error}{hint}"))
}

/// Converts an error in the labels, the tokenizer or the engine.
pub fn labeler_error(error: LabelerError) -> PyErr {
    match error {
        LabelerError::LabelSet(_)
        | LabelerError::TooLong { .. }
        | LabelerError::OwnLabels { .. }
        | LabelerError::Raw(_) => value_error(error),
        error => Error::new_err(error.to_string()),
    }
}
