//! Hints on how to fix errors from the scoring crate, which does not know the flags, settings and commands of this
//! program.
//!
//! Each function returns the text to append to the error message: empty, or a separator and a hint.

use std::io;

use topicmill_score::library::Library;
use topicmill_score::{EngineError, LabelerError, LoadError, ModelError, TextError};

use crate::atomic_file::is_full;
use crate::run::StageError;
use crate::score_files::FilesError;

/// The hint for results that are not finite: reduced precision is the usual cause.
const FLOAT32: &str = "; try `--precision fp32`";

/// Returns the hint for an error of a model folder: the commands and flags that name or download a model.
pub fn for_model(error: &ModelError) -> &'static str {
    match error {
        ModelError::NoFolder(_) => {
            ": use the path of one, or download one with `topicmill model pull Xenova/bart-large-mnli` and name it \
             with --model; `topicmill setup` installs the default model"
        }
        ModelError::NoFile { .. } => ", or download the model again with `topicmill model pull`",
        ModelError::Ambiguous(_) => ", with `--precision` or `classify.precision`",
        ModelError::Precision(_) => {
            "; choose a different `--precision` or `classify.precision`, or leave it out"
        }
        ModelError::NoGraph(_) => {
            "; choose a different `--device` or `--precision`, or make the graph with tools/model.py"
        }
        _ => "",
    }
}

/// Returns the hint for an error of loading: how to install the library, or the setting to change.
pub fn for_loading(error: &LoadError) -> &'static str {
    use Library::{OnnxRuntime, OpenVino};
    match error {
        LoadError::NotFound { library, .. } | LoadError::Load { library, .. } => match library {
            OnnxRuntime => {
                "; install it with `topicmill setup`, or set `onnxruntime.library` to a library that you have"
            }
            OpenVino => {
                "; install it with `topicmill setup --openvino`, set `openvino.library` to a library that you have, or \
                 remove the setting `classify.engine`"
            }
        },
        LoadError::Missing { library, .. } => match library {
            OnnxRuntime => {
                "; correct `onnxruntime.library` or `ORT_DYLIB_PATH`, or remove it and run `topicmill setup`"
            }
            OpenVino => {
                "; correct `openvino.library`, or remove it and run `topicmill setup --openvino`"
            }
        },
        LoadError::Dependency { .. } => {
            "; install it with your package manager (Debian and Ubuntu: `apt install libstdc++6` for `libstdc++.so.6`)"
        }
        LoadError::Compile { .. }
        | LoadError::Start {
            library: OpenVino, ..
        } => "; try the setting `classify.engine = \"onnxruntime\"`",
        LoadError::CpuOnly(_) => {
            ": use `--device cpu`, or set `classify.engine` to \"onnxruntime\""
        }
        LoadError::UnsupportedPrecision(_) => {
            ": set `classify.engine` to \"openvino\", or use `--precision fp32`"
        }
        LoadError::Cuda { .. } => {
            ", and name its library with `onnxruntime.library`, or use `--device cpu`"
        }
        LoadError::Memory { .. } => {
            ", reduce `classify.workers`, or use a smaller model or --precision int8"
        }
        LoadError::Mismatch { .. } => ", or see `topicmill model verify`",
        LoadError::Run { source, .. } => for_engine(source),
        LoadError::Folder(error) => for_model(error),
        _ => "",
    }
}

/// Returns the hint for an error of scoring.
pub fn for_labeler(error: &LabelerError) -> &'static str {
    match error {
        LabelerError::Engine(error)
        | LabelerError::Label {
            source: TextError::Engine(error),
            ..
        } => for_engine(error),
        LabelerError::Label {
            source: TextError::NotFinite,
            ..
        } => FLOAT32,
        _ => "",
    }
}

/// Returns the hint for an error of a stage: that of scoring, if scoring failed.
pub fn for_stage(error: &StageError) -> &'static str {
    match error {
        StageError::Labeler(error) => for_labeler(error),
        _ => "",
    }
}

/// Returns the hint for an error of `score`: that of scoring, if scoring failed.
pub fn for_files(error: &FilesError) -> &'static str {
    match error {
        FilesError::Labeler(error) => for_labeler(error),
        _ => "",
    }
}

/// Returns the hint for a file that cannot be written.
pub fn for_io(error: &io::Error) -> &'static str {
    if is_full(error) {
        "; free some space or choose a different location, then run the command again"
    } else {
        ""
    }
}

/// Returns the hint for an error of the engine.
fn for_engine(error: &EngineError) -> &'static str {
    match error {
        EngineError::OutOfMemory { .. } => "; set a smaller `classify.batch_tokens`",
        EngineError::NotFinite(_) => FLOAT32,
        _ => "",
    }
}
