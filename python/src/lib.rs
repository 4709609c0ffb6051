//! The native module `topicmill._native`: Python texts in, arrays of scores out.
//!
//! A thin wrapper around `topicmill-score`. The Python package in `topicmill/` finds the model and ONNX Runtime, and
//! reads and writes tables. This module does the work that must release the GIL and must not copy texts.
//!
//! - [`settings`]: converts Python settings to a label set and engine options.
//! - [`texts`]: borrows texts from Arrow arrays and Python sequences.
//! - [`scorer`]: a loaded model as a Python class. [`rows`]: scores texts, one row per text.

mod rows;
mod scorer;
mod settings;
mod texts;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use topicmill_core::reddit;

pyo3::create_exception!(
    topicmill,
    Error,
    pyo3::exceptions::PyRuntimeError,
    "The model or the inference library cannot be used, or a text cannot be scored; the message says how to fix it."
);

/// Joins the parts of a text with blank lines, without placeholders for removed parts.
#[pyfunction]
#[expect(
    clippy::needless_pass_by_value,
    reason = "pyo3 converts a list to a value"
)]
fn joined(parts: Vec<PyBackedStr>, is_reddit: bool) -> String {
    if is_reddit {
        reddit::join_parts(parts.iter().map(|part| rows::as_displayed(part)))
    } else {
        reddit::join_parts(parts.iter())
    }
}

/// The `topicmill._native` module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_function(wrap_pyfunction!(joined, module)?)?;
    module.add_function(wrap_pyfunction!(settings::read_pipeline, module)?)?;
    module.add_class::<scorer::Scorer>()
}
