//! Names of devices and inference libraries, as in flags and settings.

use std::fmt;
use std::str::FromStr;

use topicmill_core::string_enum;

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

string_enum! {
    /// Inference library.
    #[derive(Default)]
    EngineName {
        /// ONNX Runtime, or OpenVINO if only OpenVINO supports the precision.
        #[default]
        Auto = "auto",
        /// ONNX Runtime.
        OnnxRuntime = "onnxruntime",
        /// OpenVINO.
        OpenVino = "openvino",
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
