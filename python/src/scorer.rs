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
    model: Mutex<Option<Model>>,
    about: About,
    /// Id of the process that loaded the model; other processes do not have its threads.
    process: u32,
}

/// Properties of a loaded model.
struct About {
    labels: Vec<String>,
    model: String,
    hash: String,
    kind: &'static str,
    precision: String,
    device: String,
    reason: String,
    engine: &'static str,
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
        let labels = self.about.labels.len();
        let rows = py.detach(|| -> PyResult<Rows> {
            let texts = texts.borrowed()?;
            let mut rows = Rows::new(texts.len(), labels, with_scores, with_logits);
            let mut set = |row, outcome| rows.set(row, outcome);
            self.with_model(interruptible, |model, stop| {
                model.score(&texts, reddit_text, stop, &mut set)
            })?;
            Ok(rows)
        })?;
        let matrix = |numbers: Option<Vec<f32>>| {
            let numbers = numbers.map(|numbers| PyArray1::from_vec(py, numbers));
            let count = rows.label.len();
            numbers
                .map(|numbers| numbers.reshape([count, labels]))
                .transpose()
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
        let Some(dimensions) = self.about.dimensions else {
            let About { model, kind, .. } = &self.about;
            return Err(Error::new_err(format!(
                "the model `{model}` is of the kind `{kind}`, which computes no text vectors: use an embedding \
                    model"
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

    /// Id of the process that loaded the model.
    #[getter]
    fn process(&self) -> u32 {
        self.process
    }

    /// Slugs of the labels, in order.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.about.labels.clone()
    }

    /// Name of the model folder.
    #[getter]
    fn model(&self) -> &str {
        &self.about.model
    }

    /// Hash of every file that affects scores.
    #[getter]
    fn model_hash(&self) -> &str {
        &self.about.hash
    }

    /// `nli`, `embedding`, `classifier` or `gliclass`.
    #[getter]
    fn kind(&self) -> &str {
        self.about.kind
    }

    /// Precision of the graph.
    #[getter]
    fn precision(&self) -> &str {
        &self.about.precision
    }

    /// `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> &str {
        &self.about.device
    }

    /// Reason why the device was chosen.
    #[getter]
    fn reason(&self) -> &str {
        &self.about.reason
    }

    /// Inference library: `onnxruntime` or `openvino`.
    #[getter]
    fn engine(&self) -> &str {
        self.about.engine
    }

    /// Threads within a batch.
    #[getter]
    fn threads(&self) -> usize {
        self.about.threads
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
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let model = model.as_mut().ok_or_else(|| forked(self.process))?;
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
            let model = self.model.get_mut();
            std::mem::forget(model.unwrap_or_else(PoisonError::into_inner).take());
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
    let mut about = About {
        labels: set.labels.iter().map(|label| label.slug.clone()).collect(),
        model: folder.name.clone(),
        hash: folder.manifest_hash.clone(),
        kind: folder.kind.as_str(),
        precision: folder.precision.clone(),
        device: chosen.device.to_string(),
        reason: chosen.reason,
        engine: match opened.library {
            Library::OnnxRuntime => EngineName::OnnxRuntime.as_str(),
            Library::OpenVino => EngineName::OpenVino.as_str(),
        },
        threads,
        dimensions: None,
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
    about.dimensions = labeler
        .dimensions()
        .map_err(|error| labeler_error(error.into()))?;
    Ok(Scorer {
        model: Mutex::new(Some(Model {
            labeler,
            prepared,
            pool,
        })),
        about,
        process: std::process::id(),
    })
}

/// Returns the error for a scorer that another process loaded. A safeguard: the Python package checks the process
/// before each call.
fn forked(process: u32) -> PyErr {
    Error::new_err(format!(
        "the model was loaded by process {process}: create a new Labeler in this one"
    ))
}
