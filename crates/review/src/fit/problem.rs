//! A fit as a minimisation problem: the penalised negative log-likelihood of the answers.

use ndarray::{Array1, Array2, ArrayView1, ArrayViewMut1, Axis, s};

use super::{Answer, FitError, Link, Parameters, lbfgs};
use topicmill_core::score::log_sum_exp;

/// Penalties on the weights, strongest first. Each fit starts from the parameters of the previous one. With 20 answers,
/// the weakest ones do no harm; with 50 and poor words, those below 0.4 raise accuracy from .60 to .65.
pub(super) const STRENGTHS: [f64; 11] = [
    1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01,
];
/// Penalty on `scale - 1`. Like the penalty on the bias, it is the inverse variance of a normal prior. Halving or
/// doubling both changes the accuracy with 100 answers by less than its standard error.
const SCALE_PENALTY: f64 = 4.0;
/// Penalty on the bias.
const BIAS_PENALTY: f64 = 1.0;
/// A vector is in the span of others if the rest is shorter than this share of it. Stored vectors have five digits.
const SPANNED: f64 = 1e-7;
/// Gradient tolerance for fits in cross-validation; their likelihood has then converged.
const COARSE: f64 = 1e-2;
/// Gradient tolerance for the final fit.
const FINE: f64 = 1e-6;

/// The answers as matrices, with one row per answer.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    link: Link,
    /// Zero-shot logits: rows × classes.
    pub(super) prior: Array2<f64>,
    /// Vectors: rows × dimensions.
    pub(super) vectors: Array2<f64>,
    /// The shares of answers that name each class: rows × classes.
    right: Array2<f64>,
    /// Factor of the zero-shot logits, if it is not learned for each class.
    scale: f64,
    /// Penalty on the bias.
    pub(super) bias_penalty: f64,
}

impl Problem {
    /// Converts answers, of which there must be one.
    pub(super) fn new(answers: &[Answer], link: Link) -> Result<Self, FitError> {
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
            bias_penalty: BIAS_PENALTY,
        };
        let mut numbers = problem.prior.iter().chain(&problem.vectors);
        if numbers.any(|x| !x.is_finite()) {
            return Err(FitError::NotFinite);
        }
        Ok(problem)
    }

    /// Returns the problem with its vectors in coordinates of an orthonormal basis of their span, and the basis: rank ×
    /// dimensions. Weights outside the span would only raise the penalty, so the fit is the same. It takes less time
    /// while there are fewer answers than dimensions.
    pub(super) fn reduced(self) -> (Self, Array2<f64>) {
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
    pub(super) fn rows(&self, rows: &[usize]) -> Self {
        Self {
            link: self.link,
            prior: self.prior.select(Axis(0), rows),
            vectors: self.vectors.select(Axis(0), rows),
            right: self.right.select(Axis(0), rows),
            ..*self
        }
    }

    /// Returns the problem with another scale of the zero-shot logits.
    pub(super) fn scaled(&self, scale: f64) -> Self {
        Self {
            scale,
            ..self.clone()
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
    pub(super) fn start(&self) -> Vec<f64> {
        let (scales, classes, dimensions) = (self.scales(), self.classes(), self.vectors.ncols());
        let mut start = vec![0.0; scales + classes + classes * dimensions];
        start[..scales].fill(1.0);
        start
    }

    pub(super) fn parameters(&self, flat: &[f64]) -> Parameters {
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
    pub(super) fn path(&self, weakest: f64) -> Vec<Parameters> {
        let mut flat = self.start();
        let strengths = STRENGTHS.into_iter().filter(|value| *value >= weakest);
        let fit = |strength: f64| {
            let is_last = strength.to_bits() == weakest.to_bits();
            let tolerance = if is_last { FINE } else { COARSE };
            let is_converged = self.minimise(&mut flat, strength, tolerance);
            if is_last && !is_converged {
                tracing::warn!(
                    "the fit reached its limit of steps and is not exact: check its labels with `topicmill labels diff`"
                );
            }
            self.parameters(&flat)
        };
        strengths.map(fit).collect()
    }

    /// Moves parameters to the minimum; see [`lbfgs::minimise`].
    pub(super) fn minimise(&self, flat: &mut [f64], strength: f64, tolerance: f64) -> bool {
        lbfgs::minimise(flat, tolerance, |flat, gradient| {
            self.loss(flat, strength, gradient)
        })
    }

    /// Returns the penalised loss, and writes its gradient.
    pub(super) fn loss(&self, flat: &[f64], strength: f64, gradient: &mut [f64]) -> f64 {
        let (scales, classes) = (self.scales(), self.classes());
        let parameters = self.parameters(flat);
        let (bias, weights) = (&parameters.bias, &parameters.weights);
        let logits = parameters.logits(&self.prior, &self.vectors);
        let loss = -self.likelihoods(&logits).sum();
        let residuals = self.probabilities(logits) - &self.right;
        let mut gradient = ArrayViewMut1::from(gradient);
        // The penalty pulls a learned scale towards 1.
        let away = Array1::from_iter(flat[..scales].iter().map(|scale| scale - 1.0));
        if scales > 0 {
            let slopes = (&residuals * &self.prior).sum_axis(Axis(0));
            let mut of_scales = gradient.slice_mut(s![..scales]);
            of_scales.assign(&(slopes + &away * SCALE_PENALTY));
        }
        let mut of_bias = gradient.slice_mut(s![scales..scales + classes]);
        of_bias.assign(&(residuals.sum_axis(Axis(0)) + bias * self.bias_penalty));
        if !weights.is_empty() {
            let slopes = residuals.t().dot(&self.vectors) + weights * strength;
            let slopes = slopes.as_slice().expect("a product is contiguous");
            let mut of_weights = gradient.slice_mut(s![scales + classes..]);
            of_weights.assign(&ArrayView1::from(slopes));
        }
        let penalties = SCALE_PENALTY * away.dot(&away)
            + self.bias_penalty * bias.dot(bias)
            + strength * (weights * weights).sum();
        loss + 0.5 * penalties
    }

    /// Returns the log-likelihood of each row's answers.
    pub(super) fn likelihoods(&self, logits: &Array2<f64>) -> Array1<f64> {
        let of_row = |(logits, right): (ArrayView1<'_, f64>, ArrayView1<'_, f64>)| match self.link {
            Link::Softmax => logits.dot(&right) - log_sum_exp(logits.iter().copied()),
            Link::Sigmoid => {
                let of_class = |x: &f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
                logits.dot(&right) - logits.iter().map(of_class).sum::<f64>()
            }
        };
        let rows = logits.rows().into_iter().zip(self.right.rows());
        rows.map(of_row).collect()
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
