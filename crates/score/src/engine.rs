//! What computes a batch: the face behind which ONNX Runtime stands, and a scripted engine in tests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::batch::Batch;

/// What a model gave for a batch: `rows` × `width` numbers, row after row.
///
/// A row of an NLI model or a classifier holds the logit of each class, a row of an embedding model a text's vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Rows, as many as the batch has.
    pub rows: usize,
    /// Numbers a row: classes or dimensions.
    pub width: usize,
    /// The numbers.
    pub data: Vec<f32>,
}

impl Logits {
    /// An output as an engine gives it.
    ///
    /// # Errors
    /// [`EngineError::Shape`] for one that is no rows of numbers.
    pub(crate) fn shaped(dims: &[i64], data: Vec<f32>) -> Result<Self, EngineError> {
        let size = |n: i64| usize::try_from(n).expect("it is positive");
        let (rows, width) = match *dims {
            [rows, width] if rows > 0 && width > 0 => (size(rows), size(width)),
            // Some exports leave out the dimension of a single number.
            [rows] if rows > 0 => (size(rows), 1),
            _ => {
                return Err(EngineError::Shape(format!(
                    "the output has shape {dims:?}, not [rows, numbers]"
                )));
            }
        };
        Ok(Self { rows, width, data })
    }

    /// The numbers of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..(row + 1) * self.width]
    }
}

/// Why a batch was not computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The batch needs more memory than there is.
    #[error("compute a batch of {rows} × {width} tokens: out of memory ({detail})")]
    OutOfMemory {
        /// Rows of the batch.
        rows: usize,
        /// Width of the batch.
        width: usize,
        /// What the runtime said.
        detail: String,
    },
    /// The model gave infinities or no numbers for this batch.
    #[error("use what the model gave: {0} of its outputs are not finite")]
    NotFinite(usize),
    /// The model is not of the kind that its folder says.
    #[error(
        "use what the model gave: {0}; the graph does not fit its `config.json`, export the model again"
    )]
    Shape(String),
    /// The batch holds what the model cannot read.
    #[error(
        "compute a batch: token id {0} is outside of the model's vocabulary of {1}; `tokenizer.json` belongs to another model, export both again"
    )]
    Token(i64, usize),
    /// The runtime failed.
    #[error("compute a batch: {0}")]
    Run(String),
}

/// Computes batches. Synchronous, and owned by the thread that feeds it.
pub trait Engine: Send {
    /// Computes one batch.
    ///
    /// # Errors
    /// See [`EngineError`]. After [`EngineError::OutOfMemory`] the engine wants a [`restart`](Self::restart);
    /// after any other it may go on, and the next batch tells whether it can.
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError>;

    /// Makes the engine anew after [`EngineError::OutOfMemory`], which may leave it unusable.
    ///
    /// # Errors
    /// See [`EngineError`].
    fn restart(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether each new shape of a batch costs it time or memory, as on a GPU: then batches keep to few shapes.
    fn wants_few_shapes(&self) -> bool {
        false
    }
}

/// What to compute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// A GPU where one can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number, or an error.
    Cuda(u16),
}

/// Which library computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// ONNX Runtime; OpenVINO where only that can do it, or where ONNX Runtime is nowhere.
    #[default]
    Auto,
    /// ONNX Runtime, or an error.
    OnnxRuntime,
    /// OpenVINO, or an error.
    OpenVino,
}

/// A word that names no engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no engine: use `auto`, `onnxruntime` or `openvino`")]
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
    /// As flags and settings write it.
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

/// A word that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no device: use `auto`, `cpu`, `cuda`, `cuda:N` or several as `cuda:0,1`")]
pub struct DeviceError(String);

/// Reads one device or several of a kind (`cuda:0,1`): each gets an engine.
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
    fn several_devices_of_a_kind_are_told_at_once() {
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
    fn devices_are_written_as_they_are_read() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
