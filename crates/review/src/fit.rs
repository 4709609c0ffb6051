//! Fits a label set to gold labels: regularised logistic regression that starts from the zero-shot logits.
//!
//! For a text with zero-shot logits `l` (one for each label, then one for "none of these") and vector `v`, the fitted
//! logit of class `k` is `l[k] + bias[k] + weights[k] · v`. Penalties pull `bias` and `weights` towards 0, so that a
//! few answers change the zero-shot labels only slightly. Cross-validation over the answers chooses the strength of the
//! penalty on `weights`. For a model without vectors, the fitted logit is `scale[k] * l[k] + bias[k]`, with `scale`
//! pulled towards 1: Platt scaling for each label.
//!
//! With vectors, no scale is learned, because few answers would determine it too imprecisely. Without a scale, the
//! calibration error of labels after 100 answers is .048 instead of .058, at the same accuracy
//! (benches/results/fit.md).
//!
//! Nothing here does I/O, and the same answers give the same fit.

mod label_set;
mod lbfgs;

use ndarray::{Array1, Array2, ArrayView1, Axis, s};

pub use self::label_set::{FittedSet, fit_label_set};
use topicmill_core::TextHash;
use topicmill_core::labels::log_sum_exp;

/// Penalties on the weights, strongest first. Each fit starts from the parameters of the previous one.
const STRENGTHS: [f64; 10] = [1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03];
/// For `n` answers, penalties below this value divided by `n` are not tried, because with few answers, cross-validation
/// chooses among weak penalties by chance: with 20 answers, leaving out the weak ones raises accuracy from .871 to
/// .877.
const WEAKEST_TIMES_ANSWERS: f64 = 20.0;
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
    /// True for each class that is correct.
    pub right: Vec<bool>,
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
    /// Factor of the zero-shot logit, for each class; 1 if the model has vectors.
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
    /// The penalty on the weights that cross-validation chose.
    pub strength: f64,
    /// Each answer's logits from a fit to the other folds: answers × classes.
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
    let problem = Problem::new(answers, link)?;
    let repeats = if answers.len() <= REPEATED_UP_TO {
        REPEATS
    } else {
        1
    };
    let rounds: Vec<Vec<usize>> = (0..repeats).map(|round| folds(answers, round)).collect();
    let strengths: Vec<f64> = STRENGTHS
        .into_iter()
        .filter(|strength| strength * float(answers.len()) >= WEAKEST_TIMES_ANSWERS)
        .collect();
    let parts: Vec<(&Vec<usize>, usize)> = rounds
        .iter()
        .flat_map(|round| (0..FOLDS).map(move |fold| (round, fold)))
        .collect();
    // Held-out logits for each strength, summed over the repeats.
    let mut held_out = vec![Array2::<f64>::zeros(problem.prior.dim()); strengths.len()];
    for (logits, (fold_of, fold)) in cross_validate(&problem, &strengths, &parts)
        .iter()
        .zip(&parts)
    {
        for (sum, of_fold) in held_out.iter_mut().zip(logits) {
            for (row, logits) in held_out_rows(fold_of, *fold).zip(of_fold.rows()) {
                let mut sum = sum.row_mut(row);
                sum.scaled_add(1.0 / float(rounds.len()), &logits);
            }
        }
    }
    let likelihoods = held_out
        .iter()
        .map(|logits| problem.likelihoods(logits).sum());
    let best = (0..).zip(likelihoods).max_by(|a, b| a.1.total_cmp(&b.1));
    let (best, _) = best.expect("the strongest penalty is always tried");
    let held_out = held_out.swap_remove(best);
    let zero_shot = problem.likelihoods(&problem.prior);
    let gains = problem.likelihoods(&held_out) - &zero_shot;
    let mut parameters = problem.start();
    for strength in &strengths[..=best] {
        let tolerance = if std::ptr::eq(strength, &raw const strengths[best]) {
            FINE
        } else {
            COARSE
        };
        parameters = problem.minimise(parameters, *strength, tolerance);
    }
    Ok(Fit {
        parameters: problem.parameters(&parameters),
        strength: strengths[best],
        held_out,
        gains: gains.to_vec(),
    })
}

/// Returns the fitted logits of texts: rows × classes.
pub fn logits(parameters: &Parameters, prior: &Array2<f64>, vectors: &Array2<f64>) -> Array2<f64> {
    let mut logits = prior * &parameters.scale + &parameters.bias;
    if !vectors.is_empty() {
        logits += &vectors.dot(&parameters.weights.t());
    }
    logits
}

/// Fits the complement of each fold with each penalty. Returns the logits of the fold's rows: a matrix per strength.
fn cross_validate(
    problem: &Problem,
    strengths: &[f64],
    parts: &[(&Vec<usize>, usize)],
) -> Vec<Vec<Array2<f64>>> {
    let of_part = |(fold_of, fold): &(&Vec<usize>, usize)| {
        let (held_out, kept): (Vec<usize>, Vec<usize>) =
            (0..fold_of.len()).partition(|row| fold_of[*row] == *fold);
        let kept = problem.rows(&kept);
        let held_out = problem.rows(&held_out);
        let mut parameters = kept.start();
        let logits = strengths.iter().map(|strength| {
            parameters = kept.minimise(std::mem::take(&mut parameters), *strength, COARSE);
            let parameters = kept.parameters(&parameters);
            logits(&parameters, &held_out.prior, &held_out.vectors)
        });
        logits.collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = parts.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let chunks = parts.chunks(each);
        let running: Vec<_> = chunks
            .map(|chunk| scope.spawn(move || chunk.iter().map(of_part).collect::<Vec<_>>()))
            .collect();
        let done = running.into_iter();
        done.flat_map(|thread| thread.join().expect("a fit does not panic"))
            .collect()
    })
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
    /// 1 for a right class, 0 otherwise: rows × classes.
    right: Array2<f64>,
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
            right: shape(classes, &|answer| {
                answer
                    .right
                    .iter()
                    .map(|right| f64::from(u8::from(*right)))
                    .collect()
            }),
            penalties: (SCALE_PENALTY, BIAS_PENALTY),
        };
        let numbers = problem.prior.iter().chain(&problem.vectors);
        if numbers.into_iter().any(|x| !x.is_finite()) {
            return Err(FitError::NotFinite);
        }
        Ok(problem)
    }

    /// Returns the problem restricted to some of the rows.
    fn rows(&self, rows: &[usize]) -> Self {
        Self {
            link: self.link,
            prior: self.prior.select(Axis(0), rows),
            vectors: self.vectors.select(Axis(0), rows),
            right: self.right.select(Axis(0), rows),
            penalties: self.penalties,
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

    /// Returns the parameters that leave the zero-shot logits unchanged.
    fn start(&self) -> Vec<f64> {
        let (scales, classes, dimensions) = (self.scales(), self.classes(), self.vectors.ncols());
        let mut start = vec![0.0; scales + classes + classes * dimensions];
        start[..scales].fill(1.0);
        start
    }

    fn parameters(&self, flat: &[f64]) -> Parameters {
        let (scales, classes, dimensions) = (self.scales(), self.classes(), self.vectors.ncols());
        let scale = if scales == 0 {
            Array1::ones(classes)
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

    /// Returns the log-likelihood of each row's right classes.
    fn likelihoods(&self, logits: &Array2<f64>) -> Array1<f64> {
        let of_row = |(logits, right): (ArrayView1<'_, f64>, ArrayView1<'_, f64>)| match self.link {
            Link::Softmax => logits.dot(&right) - log_sum_exp(&logits.to_vec()),
            Link::Sigmoid => {
                let signed = logits
                    .iter()
                    .zip(right)
                    .map(|(x, right)| x * (2.0 * right - 1.0));
                -signed
                    .map(|x| (-x).max(0.0) + (-x.abs()).exp().ln_1p())
                    .sum::<f64>()
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
                    let all = log_sum_exp(&row.to_vec());
                    row.mapv_inplace(|x| (x - all).exp());
                }
            }
            Link::Sigmoid => logits.mapv_inplace(|x| 1.0 / (1.0 + (-x).exp())),
        }
        logits
    }
}

#[expect(clippy::cast_precision_loss, reason = "the number of answers")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
