//! The engine trait. In: one batch of tokens, padded to a shape that the graph accepts. Out: the model's logits. It is
//! implemented with ONNX Runtime, with OpenVINO and, for tests, by a scripted engine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::batch::Batch;

/// Output of a model for a batch: `rows` × `width` numbers, row by row.
///
/// A row contains the logit of each class for an NLI model or a classifier, the logit of each label for a GLiClass
/// model, or the text's vector for an embedding model.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Number of rows, the same as in the batch.
    pub rows: usize,
    /// Numbers per row: classes, labels or dimensions.
    pub width: usize,
    /// The numbers, row by row.
    pub data: Vec<f32>,
}

impl Logits {
    /// Checks the shape of an engine's output.
    ///
    /// # Errors
    /// [`EngineError::Shape`] unless the output is a matrix, or a vector with one number per row.
    pub(crate) fn shaped(dims: &[i64], data: Vec<f32>) -> Result<Self, EngineError> {
        let size = |n: i64| usize::try_from(n).expect("the size is positive");
        let (rows, width) = match *dims {
            [rows, width] if rows > 0 && width > 0 => (size(rows), size(width)),
            // Some exports omit the last dimension if it is 1.
            [rows] if rows > 0 => (size(rows), 1),
            _ => {
                return Err(EngineError::Shape(format!(
                    "the output has shape {dims:?}, not [rows, numbers]"
                )));
            }
        };
        Ok(Self { rows, width, data })
    }

    /// Returns the numbers of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..(row + 1) * self.width]
    }
}

/// Reasons why a batch could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The batch needs more memory than is available.
    #[error("cannot compute a batch of {rows} × {width} tokens: out of memory ({detail})")]
    OutOfMemory {
        /// Rows in the batch.
        rows: usize,
        /// Width of the batch.
        width: usize,
        /// The runtime's message.
        detail: String,
    },
    /// The model returned infinities or NaN.
    #[error("cannot use the model's output: {0} of the numbers are not finite")]
    NotFinite(usize),
    /// The output does not have the shape that the model folder declares.
    #[error(
        "cannot use the model's output: {0}; the graph does not match its `config.json`, export the model again"
    )]
    Shape(String),
    /// The batch contains a token id outside the vocabulary.
    #[error(
        "cannot compute a batch: token id {0} is outside the model's vocabulary of {1}; `tokenizer.json` belongs to \
         another model, export the model and its tokenizer again"
    )]
    Token(i64, usize),
    /// The runtime failed.
    #[error("cannot compute a batch: {0}")]
    Run(String),
}

/// Runs batches. Synchronous, and owned by the thread that feeds it.
pub trait Engine: Send {
    /// Runs one batch.
    ///
    /// # Errors
    /// See [`EngineError`]. After [`EngineError::OutOfMemory`], call [`restart`](Self::restart). After any other error
    /// the engine may still work; the next batch shows whether it does.
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError>;

    /// Rebuilds the engine after [`EngineError::OutOfMemory`], which may leave it unusable.
    ///
    /// # Errors
    /// See [`EngineError`].
    fn restart(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns true if each new batch shape costs time or memory, as on a GPU; the labeler then uses few shapes.
    fn wants_few_shapes(&self) -> bool {
        false
    }
}

/// Device to compute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// A GPU if one can be used, otherwise the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device with this number, without a fallback.
    Cuda(u16),
}

/// Inference library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// ONNX Runtime, or OpenVINO if only OpenVINO supports the precision.
    #[default]
    Auto,
    /// ONNX Runtime.
    OnnxRuntime,
    /// OpenVINO.
    OpenVino,
}

/// An error for text that is not an engine name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an engine: use `auto`, `onnxruntime` or `openvino`")]
pub struct EngineNameError(String);

impl FromStr for EngineName {
    type Err = EngineNameError;

    fn from_str(text: &str) -> Result<Self, EngineNameError> {
        [Self::Auto, Self::OnnxRuntime, Self::OpenVino]
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| EngineNameError(text.to_owned()))
    }
}

impl EngineName {
    /// Returns the name used in flags and settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::OnnxRuntime => "onnxruntime",
            Self::OpenVino => "openvino",
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error for text that is not a device name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device: use `auto`, `cpu`, `cuda`, `cuda:N` or several as `cuda:0,1`")]
pub struct DeviceError(String);

/// Parses one device, or several GPUs (`cuda:0,1`); each GPU gets an engine.
///
/// # Errors
/// [`DeviceError`].
pub fn devices(text: &str) -> Result<Vec<Device>, DeviceError> {
    match text.strip_prefix("cuda:") {
        Some(numbers) => numbers
            .split(',')
            .map(|number| format!("cuda:{number}").parse())
            .collect::<Result<_, DeviceError>>()
            .map_err(|_| DeviceError(text.to_owned())),
        None => Ok(vec![text.parse()?]),
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| DeviceError(text.to_owned())),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_gpus_are_parsed_from_one_text() {
        let of = |text| devices(text).unwrap();
        assert_eq!(of("cuda:0,2"), [Device::Cuda(0), Device::Cuda(2)]);
        assert_eq!(of("cuda:1"), [Device::Cuda(1)]);
        assert_eq!(of("auto"), [Device::Auto]);
        for text in ["cuda:0,", "cuda:0,x", "cpu,cuda:0", "cuda:"] {
            let error = devices(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn devices_are_printed_as_they_are_parsed() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
