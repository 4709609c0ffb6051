//! Whether a graph says what its folder's manifest says that it must.
//!
//! A graph may load, run, and be wrong: an optimizer that takes one kind of model for another changes the
//! logits and says nothing. So a folder carries a few pairs of texts with the logits of the original model, and
//! each graph that is loaded is asked about them first.

use super::batch::Batch;
use super::engine::{Engine, EngineError};
use super::labels::Mode;
use super::score::{PairLogits, entailment_probability, evidence};
use super::text::Sequence;
use crate::folder::ModelKind;
use crate::folder::manifest::{GraphSpec, Vector};

/// How far a graph is off what it should say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MaxErrors {
    /// Largest error of a logit; infinite where one is no number.
    pub logits: f64,
    /// Largest error of a score, as multi mode makes it; of a classifier as its own function does; of an embedding model
    /// that of a label whose vector is the one that it should be.
    pub scores: f64,
}

impl MaxErrors {
    fn and(self, other: Self) -> Self {
        Self {
            logits: self.logits.max(other.logits),
            scores: self.scores.max(other.scores),
        }
    }
}

/// Runs each vector alone, then all in one batch.
///
/// # Errors
/// What the engine says.
pub fn check_alone_and_batched(
    engine: &mut dyn Engine,
    spec: &GraphSpec,
    kind: &ModelKind,
) -> Result<MaxErrors, EngineError> {
    let mut errors = check_batch(engine, spec, kind, &spec.vectors)?;
    for vector in spec.vectors.chunks(1) {
        errors = errors.and(check_batch(engine, spec, kind, vector)?);
    }
    Ok(errors)
}

/// Runs vectors in one padded batch, the cheapest way that a wrong mask shows in, too.
pub(crate) fn check_batch(
    engine: &mut dyn Engine,
    spec: &GraphSpec,
    kind: &ModelKind,
    vectors: &[Vector],
) -> Result<MaxErrors, EngineError> {
    let batch = Batch::new(
        &vectors.iter().map(sequence).collect::<Vec<_>>(),
        spec.contract.pad_id,
    );
    let found = engine.infer(&batch)?;
    let classes = kind.width().unwrap_or(vectors[0].logits.len());
    if (found.rows, found.width) != (vectors.len(), classes) {
        return Err(EngineError::Shape(format!(
            "it gave {} × {} numbers for {} rows of {classes} classes",
            found.rows,
            found.width,
            vectors.len(),
        )));
    }
    let mut errors = MaxErrors::default();
    for (row, vector) in vectors.iter().enumerate() {
        let (found, wanted) = (found.row(row), vector.logits.as_slice());
        let logits = found.iter().zip(wanted).map(|(a, b)| distance(*a, *b));
        errors.logits = logits.fold(errors.logits, f64::max);
        let pairs = scores(kind, found, wanted).into_iter();
        for (found, wanted) in pairs.zip(scores(kind, wanted, wanted)) {
            let off = (found - wanted).abs();
            // `max` passes over what is no number, which would hide the worst error.
            errors.scores = errors.scores.max(if off.is_nan() { 1.0 } else { off });
        }
    }
    Ok(errors)
}

/// What a row of logits becomes; a vector is compared with the one that it should be.
fn scores(kind: &ModelKind, logits: &[f32], wanted: &[f32]) -> Vec<f64> {
    match kind {
        ModelKind::Nli(classes) => {
            vec![entailment_probability(
                logits[classes.entailment],
                logits[classes.contradiction],
            )]
        }
        ModelKind::Classifier(head) => {
            let logits: Vec<PairLogits> = logits.iter().copied().map(PairLogits::class).collect();
            evidence(kind, head.function.into(), &logits)
                .scores(1.0, 0.0)
                .scores
        }
        ModelKind::Embedding(_) => {
            let cosine = PairLogits::cosine(cosine(logits, wanted));
            evidence(kind, Mode::Multi, &[cosine])
                .scores(1.0, 0.0)
                .scores
        }
    }
}

/// The cosine of two vectors.
#[expect(clippy::cast_possible_truncation, reason = "a cosine is stored so")]
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let sum = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b);
        products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    (sum(a, b) / (sum(a, a) * sum(b, b)).sqrt()) as f32
}

fn sequence(vector: &Vector) -> Sequence {
    let type_ids = if vector.token_type_ids.is_empty() {
        vec![0; vector.input_ids.len()]
    } else {
        vector.token_type_ids.clone()
    };
    Sequence {
        ids: vector.input_ids.clone(),
        type_ids,
    }
}

/// A value that is no number is infinitely wrong.
fn distance(a: f32, b: f32) -> f64 {
    let distance = (f64::from(a) - f64::from(b)).abs();
    if distance.is_nan() {
        f64::INFINITY
    } else {
        distance
    }
}
