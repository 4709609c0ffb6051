//! Texts in, labels and scores out: zero-shot classification, and classifiers with labels of their own, on ONNX Runtime, in
//! batches.
//!
//! A zero-shot model labels texts with words that it was never trained on. This crate reads a model folder as the
//! Hugging Face Hub's ONNX exports lay it out, tokenises each text once, packs texts of similar length into batches, and gives
//! the scores that the reference pipeline of transformers gives, to 1e-4 in float32, whatever the batch. It needs no
//! database, no network and no asynchronous runtime.
//!
//! ```
//! use topicmill_score::{Device, Scorer};
//!
//! # fn main() -> Result<(), topicmill_score::ScorerError> {
//! # let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
//! # use topicmill_score::onnx::Library;
//! # let Some(library) = Library::OnnxRuntime.in_venv(&repository.join(".venv")) else {
//! #     return Ok(());
//! # };
//! # let model = repository.join("models/minilm-reddit-topics");
//! let mut scorer = Scorer::builder(model)
//!     .label("cooking", "Recipes, kitchens and food.")
//!     .label("travel", "Trips, hotels and flights.")
//!     .device(Device::Cpu)
//!     .threads(2)
//! #   .library(library)
//!     .load()?;
//!
//! let scored = scorer.score_all(&["My sourdough starter died.", "Three days in Lisbon."])?;
//! assert_eq!(scored[0].label.as_deref(), Some("cooking"));
//! assert_eq!(scored[1].label.as_deref(), Some("travel"));
//! assert!((scored[0].scores.iter().sum::<f64>() - 1.0).abs() < 1e-9);
//! # Ok(())
//! # }
//! ```
//!
//! # The rooms
//!
//! ```text
//! labels ─▶ hypothesis ─┐
//! texts ──▶ text ───────┴▶ batch ─▶ engine (onnx, openvino) ─▶ score
//! ```
//!
//! - [`labels`]: a label set with its template, mode, threshold and temperature.
//!   [`background`]: topics beside it, so that a text may belong to none of the labels.
//! - [`folder`]: what a model folder is, its manifest and its hashes.
//! - [`text`]: texts to token ids; [`hypothesis`]: what a label is compared as.
//! - [`reddit`]: the text of a Reddit post without what its readers do not see.
//! - [`batch`]: rows into batches within a token budget; `contract`: the tensors that a graph is fed.
//! - [`engine`]: the trait of what computes a batch; [`onnx`]: ONNX Runtime behind it, the only room that names the
//!   `ort` crate; [`openvino`]: the same with OpenVINO; [`opened`]: whichever of both a caller asks for. `ports`: what a
//!   graph takes and gives; `fixed`: graphs of one shape; [`vectors`]: whether a graph says what its manifest says.
//! - [`score`]: logits into scores, in one place. [`embedded`]: a text's vector as it is stored, and its cosines.
//! - [`labeler`]: folder, encoder and engine put together. [`shortlist`]: a small model before a large one, which picks
//!   the labels that are scored.
//! - [`scorer`]: the short way through all of these, as above.
//!
//! # Errors
//!
//! An error says what failed and with which file or label. What to do about it depends on the program that uses the
//! crate, so errors name no flag and no setting.

pub mod background;
pub mod batch;
mod contract;
pub mod embedded;
pub mod engine;
pub mod fitted;
mod fixed;
pub mod folder;
pub mod hypothesis;
pub mod labeler;
pub mod labels;
pub mod onnx;
pub mod opened;
pub mod openvino;
mod ports;
pub mod reddit;
pub mod score;
pub mod scorer;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod shortlist;
pub mod text;
pub mod vectors;

pub use self::background::{Background, BackgroundError, BackgroundTopic};
pub use self::embedded::{LabelVector, TextVector};
pub use self::engine::{Device, Engine, EngineError, EngineName};
pub use self::fitted::{Fitted, FittedClass, FittedError, Provenance};
pub use self::folder::{ClassifierHead, HeadFunction, ModelError, ModelFolder, ModelKind, hex};
pub use self::labeler::{Labeler, LabelerError, TextError, TextResult};
pub use self::labels::{Label, LabelSet, LabelSetError, Mode};
pub use self::onnx::{EngineOptions, OnnxEngine, OnnxError, SharedWeights};
pub use self::opened::OpenedEngine;
pub use self::openvino::OpenVinoEngine;
pub use self::score::{Outcome, PairLogits, Scores};
pub use self::scorer::{Scored, Scorer, ScorerBuilder, ScorerError};
pub use self::shortlist::{Models, Shortlist};
