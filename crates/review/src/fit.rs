//! Fits a label set to gold labels: regularised logistic regression that starts from the zero-shot logits.
//!
//! For a text with zero-shot logits `l` (one for each label, then one for "none of these") and vector `v`, the fitted
//! logit of class `k` is `scale * l[k] + bias[k] + weights[k] · v`. Penalties pull `bias` and `weights` towards 0.
//! Cross-validation over the answers chooses the penalty on `weights` and the `scale`, from 1 (trust the words of the
//! labels) to 0 (learn from the answers alone). For a model without vectors, the fitted logit is
//! `scale[k] * l[k] + bias[k]`, with `scale` pulled towards 1: Platt scaling for each label.
//!
//! Where words are good, a fit gains little from a smaller scale and loses nothing; where they are poor, it gains 4 to
//! 5 points (benches/results/fit.md). A scale for each class would have to be learned from too few answers.
//!
//! Nothing here does I/O, and the same answers give the same fit.

mod cross_validation;
mod label_set;
mod lbfgs;
mod problem;

use ndarray::{Array1, Array2};

use self::cross_validation::{CrossValidation, FOLDS};
pub use self::label_set::{FittedSet, fit_label_set};
use self::problem::Problem;
use crate::float;
use topicmill_core::TextHash;

/// A post with a gold label.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Hash of the post's text; posts with the same text are held out together.
    pub text_hash: TextHash,
    /// Zero-shot logits, divided by the temperature of the label set: one for each class.
    pub logits: Vec<f64>,
    /// Vector of the text; empty if the model has none.
    pub vector: Vec<f32>,
    /// The share of the post's answers that names each class; they sum to 1 if only one class can be right.
    pub right: Vec<f64>,
}

/// The function that turns logits into scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Softmax: one class is correct.
    Softmax,
    /// Sigmoid per class: any number of classes is correct.
    Sigmoid,
}

/// Parameters of a fitted label set.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Factor of the zero-shot logit, for each class; the same for all classes if the model has vectors.
    pub scale: Array1<f64>,
    /// Added to the logit, for each class.
    pub bias: Array1<f64>,
    /// Factors of the vector: classes × dimensions.
    pub weights: Array2<f64>,
}

impl Parameters {
    /// Returns the fitted logits of texts with these zero-shot logits and vectors: rows × classes.
    fn logits(&self, prior: &Array2<f64>, vectors: &Array2<f64>) -> Array2<f64> {
        let mut logits = prior * &self.scale + &self.bias;
        if !vectors.is_empty() {
            logits += &vectors.dot(&self.weights.t());
        }
        logits
    }
}

/// A fit and its cross-validation results.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The fit to all answers.
    pub parameters: Parameters,
    /// The factor of the zero-shot logits that cross-validation chose; 1 for a model without vectors.
    pub scale: f64,
    /// The penalty on the weights that cross-validation chose.
    pub strength: f64,
    /// Each answer's logits from a fit to the other folds: answers × classes. Scale and penalty of this fit are chosen
    /// without the answer's fold too.
    pub held_out: Array2<f64>,
    /// Mean gain in the log-likelihood of a held-out answer over its zero-shot scores, and its standard error.
    pub gain: (f64, f64),
}

/// An error that prevents a fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// There are fewer texts than folds.
    #[error("{0} different texts have answers; at least {FOLDS} are needed")]
    TooFew(usize),
    /// All answers have the same class.
    #[error("all {0} answers are the same: there is nothing to learn from them")]
    OneClass(usize),
    /// A logit or a number in a vector is not finite.
    #[error(
        "the vector or a logit of an answered post is not a finite number: run `topicmill db check`"
    )]
    NotFinite,
    /// Two vectors have different lengths; a missing vector has length 0.
    #[error(
        "the vectors of answered posts have {0} and {1} numbers, so they are from different models: run `topicmill db \
         check`"
    )]
    Uneven(usize, usize),
}

/// Fits parameters to answers. All answers must have the same number of classes.
///
/// # Errors
/// Returns [`FitError`] if the answers do not determine a fit.
pub fn fit(answers: &[Answer], link: Link) -> Result<Fit, FitError> {
    let texts = distinct_texts(answers).len();
    if texts < FOLDS {
        return Err(FitError::TooFew(texts));
    }
    let (problem, basis) = Problem::new(answers, link)?.reduced();
    let validation = CrossValidation::run(&problem, answers);
    let chosen = validation.chosen();
    let held_out = validation.held_out();
    let gains = problem.likelihoods(&held_out) - problem.likelihoods(&problem.prior);
    let mean_gain = gains.mean().expect("there are answers");
    let standard_error = gains.std(1.0) / float(gains.len()).sqrt();
    let exact = problem.scaled(chosen.scale).path(chosen.strength).pop();
    let mut parameters = exact.expect("a strength was chosen");
    parameters.weights = parameters.weights.dot(&basis);
    Ok(Fit {
        parameters,
        scale: chosen.scale,
        strength: chosen.strength,
        held_out,
        gain: (mean_gain, standard_error),
    })
}

/// Returns the texts of answers, sorted.
fn distinct_texts(answers: &[Answer]) -> Vec<&TextHash> {
    let mut texts: Vec<&TextHash> = answers.iter().map(|answer| &answer.text_hash).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests;
