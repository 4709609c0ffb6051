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
use pyo3::pybacked::PyBackedStr;
use topicmill_score::reddit;

pyo3::create_exception!(
    topicmill,
    Error,
    pyo3::exceptions::PyRuntimeError,
    "The model, ONNX Runtime or a text's scores cannot be had; the message says what to do."
);

/// Joins the parts of a text with blank lines, without placeholders of removed ones.
#[pyfunction]
fn joined(parts: Vec<PyBackedStr>, is_reddit: bool) -> String {
    if is_reddit {
        reddit::joined(parts.iter().map(|part| reddit::reddit_text(part)))
    } else {
        reddit::joined(parts.iter())
    }
}

/// What `import topicmill._native` gives.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_function(wrap_pyfunction!(joined, module)?)?;
    module.add_class::<scorer::Scorer>()
}
