//! A loaded model as a Python class.

use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;
use topicmill_score::batch::batch_tokens_for;
use topicmill_score::labeler::Completion;
use topicmill_score::library::Library;
use topicmill_score::{EngineName, Labeler, LabelerError, OpenedEngine};

use crate::Error;
use crate::rows::{Model, Rows, Vectors};
use crate::settings::{Settings, labeler_error, load_error};
use crate::texts::Texts;

/// A model with prepared labels. Immutable and thread-safe; concurrent calls wait for each other.
#[pyclass(frozen, module = "topicmill._native")]
pub struct Scorer {
    /// `None` only in a forked process that has dropped the scorer.
    loaded: Mutex<Option<Model>>,
    /// Id of the process that loaded the model; other processes do not have its threads.
    #[pyo3(get)]
    process: u32,
    /// Slugs of the labels, in order.
    #[pyo3(get)]
    labels: Vec<String>,
    /// Name of the model folder.
    #[pyo3(get)]
    model: String,
    /// Hash of every file that affects scores.
    #[pyo3(get)]
    model_hash: String,
    /// `nli`, `embedding`, `classifier` or `gliclass`.
    #[pyo3(get)]
    kind: String,
    /// Precision of the graph.
    #[pyo3(get)]
    precision: String,
    /// `cpu` or `cuda:N`.
    #[pyo3(get)]
    device: String,
    /// Reason why the device was chosen.
    #[pyo3(get)]
    reason: String,
    /// Inference library: `onnxruntime` or `openvino`.
    #[pyo3(get)]
    engine: String,
    /// Threads within a batch.
    #[pyo3(get)]
    threads: usize,
    /// Length of a text's vector; `None` if the model is not an embedding model.
    dimensions: Option<usize>,
}

/// Result of [`Scorer::score`]: label, score, margin, scores, logits, failures.
type Scored<'py> = (
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Option<Bound<'py, PyArray2<f32>>>,
    Option<Bound<'py, PyArray2<f32>>>,
    Vec<(usize, String)>,
);

/// Result of [`Scorer::vectors`]: vectors, failures.
type Embedded<'py> = (Bound<'py, PyArray2<f32>>, Vec<(usize, String)>);

#[pymethods]
impl Scorer {
    /// Loads a model and prepares labels. Releases the GIL.
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Self> {
        let settings: Settings = settings.extract()?;
        py.detach(|| load(&settings))
    }

    /// Scores texts: Arrow strings, or a sequence of str, bytes and None. Releases the GIL. With `interruptible`, for
    /// the main thread only, signals are handled between batches. With `reddit_text`, texts are cleaned first.
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the package passes each flag separately"
    )]
    fn score<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        with_scores: bool,
        with_logits: bool,
        reddit_text: bool,
        interruptible: bool,
    ) -> PyResult<Scored<'py>> {
        let texts = Texts::from_python(texts)?;
        let labels = self.labels.len();
        let rows = py.detach(|| -> PyResult<Rows> {
            let texts = texts.borrowed()?;
            let mut rows = Rows::new(texts.len(), labels, with_scores, with_logits);
            let mut set = |row, outcome| rows.set(row, outcome);
            self.with_model(interruptible, |model, stop| {
                model.score(&texts, reddit_text, stop, &mut set)
            })?;
            Ok(rows)
        })?;
        let shape = [rows.label.len(), labels];
        let matrix = |numbers: Option<Vec<f32>>| {
            let numbers = numbers.map(|numbers| PyArray1::from_vec(py, numbers).reshape(shape));
            numbers.transpose()
        };
        Ok((
            PyArray1::from_slice(py, &rows.label),
            PyArray1::from_slice(py, &rows.score),
            PyArray1::from_slice(py, &rows.margin),
            matrix(rows.scores)?,
            matrix(rows.logits)?,
            rows.failed,
        ))
    }

    /// Computes the vectors of texts, like `score`. Returns them, and the rows that failed.
    fn vectors<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        reddit_text: bool,
        interruptible: bool,
    ) -> PyResult<Embedded<'py>> {
        let Some(dimensions) = self.dimensions else {
            let Self { model, kind, .. } = self;
            return Err(Error::new_err(format!(
                "the model `{model}` is of the kind `{kind}`, which computes no text vectors: use an embedding model"
            )));
        };
        let texts = Texts::from_python(texts)?;
        let (count, vectors) = py.detach(|| -> PyResult<(usize, Vectors)> {
            let texts = texts.borrowed()?;
            let mut vectors = Vectors::new(texts.len(), dimensions);
            let mut set = |row, outcome| vectors.set(row, outcome);
            self.with_model(interruptible, |model, stop| {
                model.score(&texts, reddit_text, stop, &mut set)
            })?;
            Ok((texts.len(), vectors))
        })?;
        let numbers = PyArray1::from_vec(py, vectors.numbers);
        Ok((numbers.reshape([count, dimensions])?, vectors.failed))
    }
}

impl Scorer {
    /// Runs `compute` with the model and a function that returns true to stop. If a signal handler raised an exception,
    /// returns that exception.
    fn with_model(
        &self,
        interruptible: bool,
        compute: impl FnOnce(&mut Model, &dyn Fn() -> bool) -> Result<Completion, LabelerError>,
    ) -> PyResult<()> {
        let interrupt: Mutex<Option<PyErr>> = Mutex::new(None);
        let stop = || {
            interruptible && {
                let error = Python::attach(|py| py.check_signals().err());
                let is_interrupted = error.is_some();
                if is_interrupted {
                    *interrupt.lock().unwrap_or_else(PoisonError::into_inner) = error;
                }
                is_interrupted
            }
        };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let model = loaded.as_mut().ok_or_else(|| forked(self.process))?;
        let ended = compute(model, &stop).map_err(labeler_error)?;
        let interrupt = interrupt.into_inner();
        match (ended, interrupt.unwrap_or_else(PoisonError::into_inner)) {
            (Completion::Cancelled, Some(interrupt)) => Err(interrupt),
            _ => Ok(()),
        }
    }
}

impl Drop for Scorer {
    fn drop(&mut self) {
        // After a fork, dropping a session would wait forever for threads that do not exist here.
        if std::process::id() != self.process {
            let loaded = self.loaded.get_mut();
            std::mem::forget(loaded.unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

fn load(settings: &Settings) -> PyResult<Scorer> {
    let options = settings.engine()?;
    let precision = settings.precision.as_deref();
    let opened = OpenedEngine::open(&settings.model, precision, &options);
    let (folder, opened) = opened.map_err(|error| load_error(&error))?;
    let set = settings.label_set(&folder)?;
    let (chosen, threads) = (opened.chosen, opened.threads);
    let (model, model_hash) = (folder.name.clone(), folder.manifest_hash.clone());
    let (kind, precision) = (folder.kind.as_str().to_owned(), folder.precision.clone());
    let engine = match opened.library {
        Library::OnnxRuntime => EngineName::OnnxRuntime,
        Library::OpenVino => EngineName::OpenVino,
    };
    let tokens = settings
        .batch_tokens
        .unwrap_or_else(|| batch_tokens_for(chosen.device, threads));
    let pool = ThreadPoolBuilder::new()
        .num_threads(settings.threads.unwrap_or(0))
        .thread_name(|thread| format!("topicmill-tokens-{thread}"))
        .build()
        .map_err(|error| Error::new_err(format!("cannot start tokeniser threads: {error}")))?;
    let mut labeler = Labeler::load(folder, opened.engine, tokens).map_err(labeler_error)?;
    let prepared = labeler.prepare(&set).map_err(labeler_error)?;
    let dimensions = labeler.dimensions();
    let dimensions = dimensions.map_err(|error| labeler_error(error.into()))?;
    let loaded = Model {
        labeler,
        prepared,
        pool,
    };
    Ok(Scorer {
        loaded: Mutex::new(Some(loaded)),
        process: std::process::id(),
        labels: set.labels.into_iter().map(|label| label.slug).collect(),
        model,
        model_hash,
        kind,
        precision,
        device: chosen.device.to_string(),
        reason: chosen.reason,
        engine: engine.to_string(),
        threads,
        dimensions,
    })
}

/// Returns the error for a scorer that another process loaded. A safeguard: the Python package checks the process
/// before each call.
fn forked(process: u32) -> PyErr {
    Error::new_err(format!(
        "the model was loaded by process {process}: create a new Labeler in this one"
    ))
}
