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

mod label_set;
mod lbfgs;

use ndarray::{Array1, Array2, ArrayView1, Axis, s};

pub use self::label_set::{FittedSet, fit_label_set};
use crate::float;
use topicmill_core::TextHash;
use topicmill_core::score::log_sum_exp;

/// Penalties on the weights, strongest first. Each fit starts from the parameters of the previous one. With 20 answers,
/// the weakest ones do no harm; with 50 and poor words, those below 0.4 raise accuracy from .60 to .65.
const STRENGTHS: [f64; 11] = [
    1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01,
];
/// Factors of the zero-shot logits for a model with vectors. Cross-validation cannot tell finer steps apart.
const SCALES: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.0];
/// Log-likelihood that a scale of 0 must gain to be chosen over a scale of 1. It keeps good words from being given up
/// by chance, and costs poor ones nothing.
const TRUST_IN_WORDS: f64 = 1.0;
/// Penalty on `scale - 1`. Like the penalty on the bias, it is the inverse variance of a normal prior. Halving or
/// doubling both changes the accuracy with 100 answers by less than its standard error.
const SCALE_PENALTY: f64 = 4.0;
/// Penalty on the bias.
const BIAS_PENALTY: f64 = 1.0;
/// Number of cross-validation folds.
const FOLDS: usize = 5;
/// Up to this many answers, cross-validation is repeated with different folds, because the result depends on the split.
const REPEATED_UP_TO: usize = 200;
/// Number of times that cross-validation is run for few answers.
const REPEATS: u64 = 3;
/// A vector is in the span of others if the rest is shorter than this share of it. Stored vectors have five digits.
const SPANNED: f64 = 1e-7;
/// Gradient tolerance for fits in cross-validation; their likelihood has then converged.
const COARSE: f64 = 1e-2;
/// Gradient tolerance for the final fit.
const FINE: f64 = 1e-6;

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
    /// Log-likelihood of each held-out answer under the fit, minus its log-likelihood under the zero-shot scores.
    pub gains: Vec<f64>,
}

impl Fit {
    /// Returns the mean of [`gains`](Self::gains) and its standard error.
    pub fn gain(&self) -> (f64, f64) {
        let gains = ArrayView1::from(&self.gains);
        let n = float(self.gains.len());
        (gains.mean().unwrap_or(0.0), gains.std(1.0) / n.sqrt())
    }
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
    let (problem, basis) = Problem::new(answers, link)?.reduced();
    let repeats = if answers.len() <= REPEATED_UP_TO {
        REPEATS
    } else {
        1
    };
    let rounds: Vec<Vec<usize>> = (0..repeats).map(|round| folds(answers, round)).collect();
    let candidates = cross_validate(&problem, &rounds);
    // For each round and candidate, the log-likelihood of each answer.
    let likelihoods: Vec<Vec<Array1<f64>>> = candidates
        .iter()
        .map(|fits| fits.iter().map(|fit| problem.likelihoods(fit)).collect())
        .collect();
    let mean_of_rounds = |place: usize| {
        let sum: f64 = likelihoods.iter().map(|round| round[place].sum()).sum();
        sum / float(rounds.len())
    };
    let chosen = best((0..candidates[0].len()).map(mean_of_rounds));
    let (scale, strength) = candidate(chosen);
    let held_out = chosen_by_others(&rounds, &candidates, &likelihoods);
    let gains = problem.likelihoods(&held_out) - problem.likelihoods(&problem.prior);
    let parameters = problem.scaled(scale).path(strength).pop();
    let mut parameters = parameters.expect("a strength was chosen");
    parameters.weights = parameters.weights.dot(&basis);
    Ok(Fit {
        parameters,
        scale,
        strength,
        held_out,
        gains: gains.to_vec(),
    })
}

/// Returns held-out logits, averaged over the rounds. For each fold, the other folds choose the candidate: if all folds
/// chose it, accuracy with 50 answers would look 2 points better than it is for new posts.
fn chosen_by_others(
    rounds: &[Vec<usize>],
    candidates: &[Vec<Array2<f64>>],
    likelihoods: &[Vec<Array1<f64>>],
) -> Array2<f64> {
    let mut mean = Array2::zeros(candidates[0][0].dim());
    for ((fold_of, logits), likelihoods) in rounds.iter().zip(candidates).zip(likelihoods) {
        for fold in 0..FOLDS {
            let sum_of_others = |likelihoods: &Array1<f64>| {
                let rows = likelihoods.iter().zip(fold_of);
                rows.filter(|row| *row.1 != fold).map(|row| row.0).sum()
            };
            let logits = &logits[best(likelihoods.iter().map(sum_of_others))];
            for row in held_out_rows(fold_of, fold) {
                let mut mean = mean.row_mut(row);
                mean.scaled_add(1.0 / float(rounds.len()), &logits.row(row));
            }
        }
    }
    mean
}

/// Returns the scale and the strength of a candidate.
fn candidate(place: usize) -> (f64, f64) {
    let scale = SCALES[place / STRENGTHS.len()];
    (scale, STRENGTHS[place % STRENGTHS.len()])
}

/// Returns the best candidate by log-likelihood and scale, the first of equal ones.
fn best(likelihoods: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (place, likelihood) in likelihoods.enumerate() {
        let (scale, _) = candidate(place);
        let worth = likelihood - TRUST_IN_WORDS * (1.0 - scale);
        if worth > best.1 {
            best = (place, worth);
        }
    }
    best.0
}

/// Returns the fitted logits of texts: rows × classes.
pub fn logits(parameters: &Parameters, prior: &Array2<f64>, vectors: &Array2<f64>) -> Array2<f64> {
    let mut logits = prior * &parameters.scale + &parameters.bias;
    if !vectors.is_empty() {
        logits += &vectors.dot(&parameters.weights.t());
    }
    logits
}

/// Returns the held-out logits for each round and candidate. `rounds` contains the fold of each answer.
fn cross_validate(problem: &Problem, rounds: &[Vec<usize>]) -> Vec<Vec<Array2<f64>>> {
    let parts: Vec<(usize, usize)> = (0..rounds.len())
        .flat_map(|round| (0..FOLDS).map(move |fold| (round, fold)))
        .collect();
    let fit_part = |(round, fold): &(usize, usize)| {
        let (held_out, kept): (Vec<usize>, Vec<usize>) =
            (0..rounds[*round].len()).partition(|row| rounds[*round][*row] == *fold);
        let (kept, held_out) = (problem.rows(&kept), problem.rows(&held_out));
        let scales = problem.scales_to_try().iter();
        let fits = scales.flat_map(|scale| kept.scaled(*scale).path(0.0));
        fits.map(|fit| logits(&fit, &held_out.prior, &held_out.vectors))
            .collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = parts.len().div_ceil(threads).max(1);
    let done: Vec<Vec<Array2<f64>>> = std::thread::scope(|scope| {
        let chunks = parts.chunks(each);
        let running: Vec<_> = chunks
            .map(|chunk| scope.spawn(move || chunk.iter().map(fit_part).collect::<Vec<_>>()))
            .collect();
        let done = running.into_iter();
        done.flat_map(|thread| thread.join().expect("a fit does not panic"))
            .collect()
    });
    let zeros = vec![Array2::zeros(problem.prior.dim()); done[0].len()];
    let mut all = vec![zeros; rounds.len()];
    for ((round, fold), fits) in parts.into_iter().zip(done) {
        for (whole, of_fold) in all[round].iter_mut().zip(fits) {
            for (row, logits) in held_out_rows(&rounds[round], fold).zip(of_fold.rows()) {
                whole.row_mut(row).assign(&logits);
            }
        }
    }
    all
}

/// Returns the fold of each answer. Equal texts are in the same fold, and fold sizes differ by at most one distinct
/// text.
fn folds(answers: &[Answer], round: u64) -> Vec<usize> {
    let mut texts: Vec<&TextHash> = answers.iter().map(|answer| &answer.text_hash).collect();
    texts.sort_unstable();
    texts.dedup();
    // The seed is fixed, so that the same answers give the same fit.
    let mut random = fastrand::Rng::with_seed(round);
    let mut order: Vec<usize> = (0..texts.len()).collect();
    random.shuffle(&mut order);
    let part = |answer: &Answer| {
        let place = texts
            .binary_search(&&answer.text_hash)
            .expect("each text is listed");
        order[place] % FOLDS
    };
    answers.iter().map(part).collect()
}

/// Returns the rows of a fold, in order.
fn held_out_rows(fold_of: &[usize], fold: usize) -> impl Iterator<Item = usize> {
    (0..fold_of.len()).filter(move |row| fold_of[*row] == fold)
}

/// The answers as matrices, with one row per answer.
#[derive(Debug, Clone)]
struct Problem {
    link: Link,
    /// Zero-shot logits: rows × classes.
    prior: Array2<f64>,
    /// Vectors: rows × dimensions.
    vectors: Array2<f64>,
    /// The shares of answers that name each class: rows × classes.
    right: Array2<f64>,
    /// Factor of the zero-shot logits, if it is not learned for each class.
    scale: f64,
    /// Penalties on scale and bias.
    penalties: (f64, f64),
}

impl Problem {
    fn new(answers: &[Answer], link: Link) -> Result<Self, FitError> {
        let mut texts: Vec<&TextHash> = answers.iter().map(|answer| &answer.text_hash).collect();
        texts.sort_unstable();
        texts.dedup();
        if texts.len() < FOLDS {
            return Err(FitError::TooFew(texts.len()));
        }
        let first = &answers[0];
        if answers.iter().all(|answer| answer.right == first.right) {
            return Err(FitError::OneClass(answers.len()));
        }
        let (rows, classes, dimensions) = (answers.len(), first.logits.len(), first.vector.len());
        let mut lengths = answers.iter().map(|answer| answer.vector.len());
        if let Some(other) = lengths.find(|length| *length != dimensions) {
            return Err(FitError::Uneven(dimensions, other));
        }
        let shape = |columns: usize, get: &dyn Fn(&Answer) -> Vec<f64>| {
            let values = answers.iter().flat_map(get).collect();
            Array2::from_shape_vec((rows, columns), values)
                .expect("all answers have the first one's shape")
        };
        let problem = Self {
            link,
            prior: shape(classes, &|answer| answer.logits.clone()),
            vectors: shape(dimensions, &|answer| {
                answer.vector.iter().map(|x| f64::from(*x)).collect()
            }),
            right: shape(classes, &|answer| answer.right.clone()),
            scale: 1.0,
            penalties: (SCALE_PENALTY, BIAS_PENALTY),
        };
        let numbers = problem.prior.iter().chain(&problem.vectors);
        if numbers.into_iter().any(|x| !x.is_finite()) {
            return Err(FitError::NotFinite);
        }
        Ok(problem)
    }

    /// Returns the problem with its vectors in coordinates of an orthonormal basis of their span, and the basis: rank ×
    /// dimensions. Weights outside the span would only raise the penalty, so the fit is the same. It takes less time
    /// while there are fewer answers than dimensions.
    fn reduced(self) -> (Self, Array2<f64>) {
        let mut basis: Vec<Array1<f64>> = Vec::new();
        for vector in self.vectors.rows() {
            let mut rest = vector.to_owned();
            // Twice, because rounding leaves a component in the span (Giraud et al. 2005).
            for _ in 0..2 {
                for direction in &basis {
                    let along = rest.dot(direction);
                    rest.scaled_add(-along, direction);
                }
            }
            let length = rest.dot(&rest).sqrt();
            if length > SPANNED * vector.dot(&vector).sqrt() {
                basis.push(rest / length);
            }
        }
        let dimensions = self.vectors.ncols();
        let numbers = basis.iter().flatten().copied().collect();
        let basis = Array2::from_shape_vec((basis.len(), dimensions), numbers)
            .expect("a row for each direction");
        let vectors = self.vectors.dot(&basis.t());
        (Self { vectors, ..self }, basis)
    }

    /// Returns the problem restricted to some of the rows.
    fn rows(&self, rows: &[usize]) -> Self {
        Self {
            link: self.link,
            prior: self.prior.select(Axis(0), rows),
            vectors: self.vectors.select(Axis(0), rows),
            right: self.right.select(Axis(0), rows),
            ..*self
        }
    }

    /// Returns the problem with another scale of the zero-shot logits.
    fn scaled(&self, scale: f64) -> Self {
        Self {
            scale,
            ..self.clone()
        }
    }

    /// Returns the scales that cross-validation compares.
    fn scales_to_try(&self) -> &'static [f64] {
        if self.vectors.is_empty() {
            &SCALES[..1]
        } else {
            &SCALES
        }
    }

    fn classes(&self) -> usize {
        self.prior.ncols()
    }

    /// Returns the number of scales to fit: one for each class, or none if there are vectors.
    fn scales(&self) -> usize {
        if self.vectors.is_empty() {
            self.classes()
        } else {
            0
        }
    }

    /// Returns the parameters that leave the zero-shot logits unchanged, up to the scale.
    fn start(&self) -> Vec<f64> {
        let (scales, classes, dimensions) = (self.scales(), self.classes(), self.vectors.ncols());
        let mut start = vec![0.0; scales + classes + classes * dimensions];
        start[..scales].fill(1.0);
        start
    }

    fn parameters(&self, flat: &[f64]) -> Parameters {
        let (scales, classes, dimensions) = (self.scales(), self.classes(), self.vectors.ncols());
        let scale = if scales == 0 {
            Array1::from_elem(classes, self.scale)
        } else {
            ArrayView1::from(&flat[..scales]).to_owned()
        };
        let weights = flat[scales + classes..].to_vec();
        Parameters {
            scale,
            bias: ArrayView1::from(&flat[scales..scales + classes]).to_owned(),
            weights: Array2::from_shape_vec((classes, dimensions), weights)
                .expect("a row for each class"),
        }
    }

    /// Returns the fits from the strongest penalty to `weakest`. Only a fit with `weakest` itself is exact.
    fn path(&self, weakest: f64) -> Vec<Parameters> {
        let mut flat = self.start();
        let strengths = STRENGTHS.into_iter().filter(|value| *value >= weakest);
        let fit = |strength: f64| {
            let is_last = strength.to_bits() == weakest.to_bits();
            let tolerance = if is_last { FINE } else { COARSE };
            flat = self.minimise(std::mem::take(&mut flat), strength, tolerance);
            self.parameters(&flat)
        };
        strengths.map(fit).collect()
    }

    fn minimise(&self, start: Vec<f64>, strength: f64, tolerance: f64) -> Vec<f64> {
        lbfgs::minimise(start, tolerance, |flat, gradient| {
            self.loss(flat, strength, gradient)
        })
    }

    /// Returns the penalised loss and writes its gradient.
    fn loss(&self, flat: &[f64], strength: f64, gradient: &mut [f64]) -> f64 {
        let (scales, classes) = (self.scales(), self.classes());
        let parameters = self.parameters(flat);
        let logits = logits(&parameters, &self.prior, &self.vectors);
        let loss = -self.likelihoods(&logits).sum();
        let apart = self.probabilities(logits) - &self.right;
        let (of_scale, of_bias) = self.penalties;
        let away = Array1::from_iter(flat[..scales].iter().map(|scale| scale - 1.0));
        let bias = &parameters.bias;
        let weights = &parameters.weights;
        let mut put = ndarray::ArrayViewMut1::from(gradient);
        if scales > 0 {
            let of_scales = (&apart * &self.prior).sum_axis(Axis(0));
            put.slice_mut(s![..scales])
                .assign(&(of_scales + &away * of_scale));
        }
        put.slice_mut(s![scales..scales + classes])
            .assign(&(apart.sum_axis(Axis(0)) + bias * of_bias));
        if !weights.is_empty() {
            let of_weights = apart.t().dot(&self.vectors) + weights * strength;
            put.slice_mut(s![scales + classes..])
                .assign(&ArrayView1::from(
                    of_weights.as_slice().expect("a product is contiguous"),
                ));
        }
        loss + 0.5
            * (of_scale * away.dot(&away)
                + of_bias * bias.dot(bias)
                + strength * (weights * weights).sum())
    }

    /// Returns the log-likelihood of each row's answers.
    fn likelihoods(&self, logits: &Array2<f64>) -> Array1<f64> {
        let of_row = |(logits, right): (ArrayView1<'_, f64>, ArrayView1<'_, f64>)| match self.link {
            Link::Softmax => logits.dot(&right) - log_sum_exp(logits.iter().copied()),
            Link::Sigmoid => {
                let of_class = |x: &f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
                logits.dot(&right) - logits.iter().map(of_class).sum::<f64>()
            }
        };
        logits
            .rows()
            .into_iter()
            .zip(self.right.rows())
            .map(of_row)
            .collect()
    }

    fn probabilities(&self, mut logits: Array2<f64>) -> Array2<f64> {
        match self.link {
            Link::Softmax => {
                for mut row in logits.rows_mut() {
                    let all = log_sum_exp(row.iter().copied());
                    row.mapv_inplace(|x| (x - all).exp());
                }
            }
            Link::Sigmoid => logits.mapv_inplace(|x| 1.0 / (1.0 + (-x).exp())),
        }
        logits
    }
}

#[cfg(test)]
mod tests;
