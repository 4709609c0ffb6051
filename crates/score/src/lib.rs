//! Scores texts against labels with zero-shot models and classifiers, in batches, on ONNX Runtime or OpenVINO.
//!
//! A zero-shot model assigns labels that it was not trained on. This crate reads a model folder in the layout of the
//! Hugging Face Hub's ONNX exports, tokenises each text once, packs texts of similar length into batches, and returns
//! the scores of the transformers reference pipeline, to within 1e-4 in float32 for any batch. It needs no database, no
//! network and no async runtime.
//!
//! # Modules
//!
//! ```text
//! labels ─▶ hypotheses ─┐
//! texts ──▶ text ───────┴▶ batch ─▶ engine (onnx, openvino) ─▶ logits ─▶ scores
//! ```
//!
//! Label sets, hypotheses, and the rule from logits to scores need no model and are in [`topicmill_core`].
//!
//! - [`folder`]: the model folder, its manifest and its hashes.
//! - [`text`]: tokenises texts.
//! - [`batch`]: plans batches within a token budget. `contract`: the tensors that a graph reads for a batch.
//! - [`device`]: names of devices and libraries. [`library`]: finds and loads a library. `loading`: options and errors.
//! - [`engine`]: the trait that runs a batch. [`onnx`]: ONNX Runtime, the only module that uses the `ort` crate.
//!   [`openvino`]: OpenVINO. [`opened`]: opens either of the two.
//! - `ports`: checks a graph's inputs and outputs. `fixed`: pads batches to a fixed shape. [`graph_check`]: compares a
//!   graph with its reference logits.
//! - [`labeler`]: combines the folder, the tokenizer and the engine, and is what callers use. [`shortlist`]: a small
//!   model that picks the labels for a large model to score.
//!
//! # Errors
//!
//! Errors name the operation that failed and its file or label. The remedy depends on the calling program, so errors
//! name no flags and no settings.

pub mod batch;
mod contract;
pub mod device;
pub mod engine;
mod fixed;
pub mod folder;
pub mod graph_check;
mod input;
pub mod labeler;
pub mod library;
mod loading;
pub mod onnx;
pub mod opened;
pub mod openvino;
mod ports;
pub mod shortlist;
#[cfg(any(test, feature = "scripted"))]
pub mod test_engine;
pub mod text;

pub use self::device::{Device, EngineName};
pub use self::engine::{Engine, EngineError};
pub use self::folder::{ModelError, ModelFolder};
pub use self::labeler::{Labeler, LabelerError, TextError, TextResult};
pub use self::loading::{DeviceChoice, EngineOptions, LoadError, OpenedEngine};
pub use self::onnx::OnnxEngine;
pub use self::openvino::OpenVinoEngine;
pub use self::shortlist::{Models, Shortlist};
