//! Compares a graph with the reference logits in its manifest.
//!
//! A graph may load, run, and still be wrong: an optimizer that mistakes a model's type changes its logits without
//! reporting an error. A manifest therefore contains the original model's logits for a few texts, and every graph is
//! checked against them when it is loaded.

use std::iter;

use super::engine::{Engine, EngineError};
use super::fixed;
use super::folder::ModelFolder;
use crate::folder::manifest::{GraphSpec, Vector};
use crate::loading::LoadError;
use topicmill_core::score::{Evidence, entailment_probability};
use topicmill_core::{Mode, ModelKind, PairLogits};

/// Largest differences between a graph and its reference vectors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MaxErrors {
    /// Largest error of a logit; infinite if one is NaN.
    pub logits: f64,
    /// Largest error of a score. A classifier is scored with its own function; other models are scored in multi mode.
    /// An embedding is scored against a label whose vector is the expected embedding.
    pub scores: f64,
}

impl MaxErrors {
    fn max(self, other: Self) -> Self {
        Self {
            logits: self.logits.max(other.logits),
            scores: self.scores.max(other.scores),
        }
    }
}

/// Checks an engine against the reference vectors of its manifest, if there is one.
pub(crate) fn check_against_manifest(
    engine: &mut dyn Engine,
    folder: &ModelFolder,
) -> Result<(), LoadError> {
    let Some(spec) = &folder.spec else {
        return Ok(());
    };
    let path = folder.graph.clone();
    let tolerance = folder.tolerance(spec);
    match check_batch(engine, folder, spec, &spec.vectors) {
        Err(source) => Err(LoadError::Run { path, source }),
        Ok(errors) if errors.logits > tolerance => {
            let detail = format!(
                "its logits differ by {:.1e} from those in `manifest.toml`; the tolerance is {tolerance:.1e}",
                errors.logits
            );
            Err(LoadError::Mismatch(path, detail))
        }
        Ok(errors) => {
            let error = errors.logits;
            tracing::debug!(error, tolerance, "the graph matches its manifest");
            Ok(())
        }
    }
}

/// Checks each reference vector alone, then all in one batch.
///
/// # Errors
/// Returns the engine's errors.
pub fn check_alone_and_batched(
    engine: &mut dyn Engine,
    folder: &ModelFolder,
    spec: &GraphSpec,
) -> Result<MaxErrors, EngineError> {
    let mut errors = check_batch(engine, folder, spec, &spec.vectors)?;
    for vector in spec.vectors.chunks(1) {
        errors = errors.max(check_batch(engine, folder, spec, vector)?);
    }
    Ok(errors)
}

/// Checks reference vectors in one padded batch, which also exposes a wrong mask.
pub(crate) fn check_batch(
    engine: &mut dyn Engine,
    folder: &ModelFolder,
    spec: &GraphSpec,
    vectors: &[Vector],
) -> Result<MaxErrors, EngineError> {
    let kind = &folder.kind;
    let rows = vectors.iter().map(|vector| {
        // Models without type ids have none in the manifest.
        let type_ids = vector.token_type_ids.iter().copied();
        let ids = vector.input_ids.iter().copied();
        ids.zip(type_ids.chain(iter::repeat(0)))
    });
    let rows: Vec<_> = rows.collect();
    let longest = vectors.iter().map(|vector| vector.input_ids.len()).max();
    let longest = longest.unwrap_or(0);
    let classes = kind.width().unwrap_or(vectors[0].logits.len());
    let (shape, pad_id) = (folder.fixed, spec.contract.pad_id);
    let logits = fixed::infer(engine, &rows, longest, shape, pad_id, Some(classes))?;
    let mut errors = MaxErrors::default();
    for (row, vector) in vectors.iter().enumerate() {
        let (actual, expected) = (logits.row(row), vector.logits.as_slice());
        let distances = actual.iter().zip(expected).map(|(a, b)| distance(*a, *b));
        errors.logits = distances.fold(errors.logits, f64::max);
        let scores_of = |logits| scores(kind, logits, expected).into_iter();
        for (actual, expected) in scores_of(actual).zip(scores_of(expected)) {
            let error = (actual - expected).abs();
            // `max` ignores NaN, so NaN counts as the largest possible error.
            errors.scores = errors.scores.max(if error.is_nan() { 1.0 } else { error });
        }
    }
    Ok(errors)
}

/// Returns the scores for a row of logits; for an embedding, the score of its cosine with the expected embedding.
fn scores(kind: &ModelKind, logits: &[f32], expected: &[f32]) -> Vec<f64> {
    let classes = || logits.iter().copied().map(PairLogits::single).collect();
    let (mode, logits): (Mode, Vec<PairLogits>) = match kind {
        ModelKind::Nli(classes) => {
            return vec![entailment_probability(
                logits[classes.entailment],
                logits[classes.contradiction],
            )];
        }
        ModelKind::Classifier(head) => (head.function.into(), classes()),
        ModelKind::Gliclass(_) => (Mode::Multi, classes()),
        ModelKind::Embedding(_) => {
            let cosine = PairLogits::single(cosine(logits, expected));
            (Mode::Multi, vec![cosine])
        }
    };
    Evidence::new(kind, mode, &logits, None)
        .scores(1.0, 0.0)
        .scores
}

/// Returns the cosine of two vectors.
#[expect(clippy::cast_possible_truncation, reason = "a cosine is stored as f32")]
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let sum = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b);
        products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    (sum(a, b) / (sum(a, a) * sum(b, b)).sqrt()) as f32
}

/// Returns the absolute difference, infinite for NaN.
fn distance(a: f32, b: f32) -> f64 {
    let distance = (f64::from(a) - f64::from(b)).abs();
    if distance.is_nan() {
        f64::INFINITY
    } else {
        distance
    }
}
