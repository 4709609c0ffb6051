//! The module `topicmill._native`: texts of Python in, arrays of scores out.
//!
//! It is a thin face of `topicmill-score`. The package around it, in `topicmill/`, finds the model and ONNX Runtime, and
//! reads and writes tables; here are what must not hold the interpreter's lock and what must not copy texts.
//!
//! - [`settings`]: what Python asks for, into a label set and options.
//! - [`texts`]: Arrow arrays and Python sequences as borrowed texts.
//! - [`scorer`]: a loaded model as a Python class. [`rows`]: what it computes, a row a text.

mod rows;
mod scorer;
mod settings;
mod texts;

use pyo3::prelude::*;

pyo3::create_exception!(
    topicmill,
    Error,
    pyo3::exceptions::PyRuntimeError,
    "The model, ONNX Runtime or a text's scores cannot be had; the message says what to do."
);

/// What `import topicmill._native` gives.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<scorer::Scorer>()
}
