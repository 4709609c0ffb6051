//! Borrows texts from Arrow arrays and Python sequences, without copying them.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyFloat, PyString};
use pyo3_arrow::input::AnyArray;

/// Texts owned by Python.
pub enum Texts {
    /// The chunks of an Arrow column.
    Arrow(Vec<ArrayRef>),
    /// The items of a sequence.
    Objects(Vec<Object>),
}

/// An item of a sequence.
pub enum Object {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    /// `None`, or NaN as in pandas columns.
    Missing,
}

impl Texts {
    /// Accepts an object with the Arrow C data interface, or a sequence of `str`, `bytes` and `None`.
    pub fn from_python(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err(
                "a single text was passed where a list of texts is expected: put it into a list",
            ));
        }
        if given.hasattr("__arrow_c_stream__")? || given.hasattr("__arrow_c_array__")? {
            let column = given.extract::<AnyArray>()?.into_chunked_array()?;
            let (chunks, _) = column.into_inner();
            return Ok(Self::Arrow(chunks));
        }
        let items = given.try_iter()?.enumerate();
        let items = items.map(|(row, item)| object(row, &item?));
        Ok(Self::Objects(items.collect::<PyResult<_>>()?))
    }

    /// Returns the texts, one per row; `None` for a missing text.
    pub fn borrowed(&self) -> PyResult<Vec<Option<&str>>> {
        let mut texts = Vec::new();
        match self {
            Self::Arrow(chunks) => {
                for chunk in chunks {
                    append_array(chunk, &mut texts)?;
                }
            }
            Self::Objects(objects) => {
                for (row, object) in objects.iter().enumerate() {
                    texts.push(match object {
                        Object::Text(text) => Some(&**text),
                        Object::Bytes(bytes) => Some(utf8(row, bytes)?),
                        Object::Missing => None,
                    });
                }
            }
        }
        Ok(texts)
    }
}

fn object(row: usize, item: &Bound<'_, PyAny>) -> PyResult<Object> {
    if item.is_none() {
        Ok(Object::Missing)
    } else if let Ok(text) = item.cast::<PyString>() {
        let text = PyBackedStr::try_from(text.clone());
        text.map(Object::Text).map_err(|_| not_unicode(row))
    } else if let Ok(bytes) = item.cast::<PyBytes>() {
        Ok(Object::Bytes(bytes.clone().into()))
    } else if item.cast::<PyFloat>().is_ok_and(|x| x.value().is_nan()) {
        Ok(Object::Missing)
    } else {
        let kind = item.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "row {row} is of type `{kind}`, which is not text: use str, UTF-8 bytes, or None"
        )))
    }
}

/// Appends the texts in an array.
fn append_array<'a>(array: &'a ArrayRef, texts: &mut Vec<Option<&'a str>>) -> PyResult<()> {
    let start = texts.len();
    match array.data_type() {
        DataType::Utf8 => texts.extend(array.as_string::<i32>()),
        DataType::LargeUtf8 => texts.extend(array.as_string::<i64>()),
        DataType::Utf8View => texts.extend(array.as_string_view()),
        DataType::Binary => append_bytes(array.as_binary::<i32>().iter(), texts)?,
        DataType::LargeBinary => append_bytes(array.as_binary::<i64>().iter(), texts)?,
        DataType::BinaryView => append_bytes(array.as_binary_view().iter(), texts)?,
        DataType::Null => texts.resize(start + array.len(), None),
        DataType::Dictionary(_, _) => return append_dictionary(array, texts),
        other => {
            return Err(PyTypeError::new_err(format!(
                "the text column has the Arrow type {other}: use a column of strings"
            )));
        }
    }
    // Readers of Parquet do not always validate UTF-8, so check every text.
    for (row, text) in texts.iter().enumerate().skip(start) {
        if let Some(text) = text {
            utf8(row, text.as_bytes())?;
        }
    }
    Ok(())
}

fn append_bytes<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    texts: &mut Vec<Option<&'a str>>,
) -> PyResult<()> {
    for value in values {
        let row = texts.len();
        texts.push(value.map(|bytes| utf8(row, bytes)).transpose()?);
    }
    Ok(())
}

fn append_dictionary<'a>(array: &'a ArrayRef, texts: &mut Vec<Option<&'a str>>) -> PyResult<()> {
    let dictionary = array.as_any_dictionary();
    let mut values = Vec::new();
    append_array(dictionary.values(), &mut values)?;
    if values.is_empty() {
        texts.resize(texts.len() + array.len(), None);
        return Ok(());
    }
    let keys = dictionary.normalized_keys();
    let nulls = dictionary.keys().nulls();
    texts.extend(keys.into_iter().enumerate().map(|(row, key)| {
        let is_valid = nulls.is_none_or(|nulls| nulls.is_valid(row));
        is_valid.then(|| values[key]).flatten()
    }));
    Ok(())
}

fn utf8(row: usize, bytes: &[u8]) -> PyResult<&str> {
    std::str::from_utf8(bytes).map_err(|_| not_unicode(row))
}

fn not_unicode(row: usize) -> PyErr {
    PyValueError::new_err(format!(
        "the text in row {row} is not valid UTF-8: decode it with its own encoding first"
    ))
}
