//! Texts in, labels and scores out.
//!
//! ```text
//! label set ─▶ hypothesis ─┐
//! texts ─▶ tokenize ───────┴▶ batch ─▶ engine (onnx) ─▶ score
//! ```
//!
//! Each text is tokenised once ([`tokenize`]), its rows are sorted by length and packed into batches within a
//! token budget ([`batch`]), an [`Engine`] computes them ([`onnx`] is the real one and the only file that
//! names the `ort` crate), and logits become scores in one place ([`score`]). [`Labeler`] glues these;
//! [`files`] puts files through it. Where a [`shortlist`] picks the labels of each text, only those are computed.
//! [`relabel`] asks what another label set would change, [`calibrate`] fits one to labels that are known
//! ([`gold`]), and [`compare`] tells two labellings apart. [`gpu`] watches the GPUs of a run, and [`verdict`] tells
//! what limits it.

pub mod autotune;
pub mod backlog;
pub mod batch;
pub mod calibrate;
pub mod compare;
pub mod contract;
pub mod engine;
pub mod estimate;
pub mod files;
pub mod gold;
pub mod gpu;
pub mod hypothesis;
pub mod labeler;
pub mod library;
pub mod onnx;
pub mod relabel;
pub mod score;
#[cfg(test)]
mod scripted;
pub mod shortlist;
pub mod tokenize;
pub mod vectors;
pub mod verdict;

pub use self::engine::{Device, Engine, EngineError};
pub use self::files::{FileJob, FileReport, FilesError, score_files};
pub use self::labeler::{Ended, Labeler, LabelerError, Prepared, TextError, TextResult};
pub use self::onnx::{EngineOptions, OnnxEngine, OnnxError, SharedWeights};
pub use self::shortlist::Shortlist;
