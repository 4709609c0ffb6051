//! Corrections of zero-shot logits that were learned from gold labels.
//!
//! A fitted label set has a [`FittedClass`] for each label, and one for "none of these" if labels compete for a text.
//! For a text with zero-shot logits `l` and vector `v`, the logit of class `k` becomes
//! `scale[k] * l[k] + bias[k] + weights[k] · v`. The zero-shot logits are stored for each text, or follow from its
//! stored vector, so a fit changes labels without inference.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::numeric::log_sum_exp;

/// The largest scale and bias of a correction: far above any that a fit finds, and small enough for finite scores.
/// The message of [`FittedError::OutOfRange`] names it.
const MAX_CORRECTION: f64 = 1e6;

/// The learned part of a label set. It belongs to one model, because a different model's logits and vectors have a
/// different meaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Hash of the label set that the fit is for.
    pub base: String,
    /// The model's manifest hash.
    pub model: String,
    /// The labels' corrections, in the order of the set.
    pub labels: Vec<FittedClass>,
    /// The correction of "none of these"; `None` if each label is scored independently and there is no background.
    pub none: Option<FittedClass>,
    /// Logit of "none of these" before its correction, minus the log-sum-exp of the labels' logits; `None` if the
    /// background's logit is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none_below: Option<f64>,
    /// The gold labels of the fit. They are not part of the label set's version.
    pub provenance: Provenance,
}

/// The correction of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedClass {
    /// Factor of the zero-shot logit.
    pub scale: f64,
    /// Added to the logit.
    pub bias: f64,
    /// Factors of the text's vector; empty for a model without vectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f32>,
}

/// The origin of a fit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Number of posts with a gold label in the fit.
    pub answers: u64,
    /// Number of these posts whose gold label is "none".
    pub none: u64,
    /// The annotators.
    pub by: Vec<String>,
    /// The time of the fit, as RFC 3339.
    pub at: String,
    /// The goal that the threshold was chosen for; `None` if the fit kept the threshold of the label set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<FitTarget>,
}

/// The goal that a fit chooses its threshold for: a share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FitTarget {
    /// The precision of assigned labels.
    Precision(f64),
    /// The recall of in-scope posts.
    Recall(f64),
}

impl fmt::Display for FitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Precision(share) => write!(f, "a precision of {share}"),
            Self::Recall(share) => write!(f, "a recall of {share}"),
        }
    }
}

/// Reasons to reject a fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FittedError {
    /// The fit contains corrections for a different number of labels.
    #[error("the fit is for {0} labels, and the set has {1}")]
    Labels(usize, usize),
    /// The classes have weights for vectors of different lengths.
    #[error("the classes of the fit have weights of different lengths")]
    Ragged,
    /// A number in the fit is not finite, or a scale or bias is far larger than any that a fit finds.
    #[error("a number of the fit is not finite or is beyond ±1000000")]
    OutOfRange,
}

impl Fitted {
    /// Validates the fit against the number of labels of its set.
    ///
    /// # Errors
    /// See [`FittedError`].
    pub fn validate(&self, labels: usize) -> Result<(), FittedError> {
        if self.labels.len() != labels {
            return Err(FittedError::Labels(self.labels.len(), labels));
        }
        let dimensions = self.dimensions();
        let mut classes = self.labels.iter().chain(&self.none);
        let is_ragged = |class: &FittedClass| class.weights.len() != dimensions;
        if classes.clone().any(is_ragged) {
            return Err(FittedError::Ragged);
        }
        let is_bounded = |class: &FittedClass| {
            let weights = class.weights.iter().all(|weight| weight.is_finite());
            weights && class.scale.abs() <= MAX_CORRECTION && class.bias.abs() <= MAX_CORRECTION
        };
        if !classes.all(is_bounded) || self.none_below.is_some_and(|below| !below.is_finite()) {
            return Err(FittedError::OutOfRange);
        }
        Ok(())
    }

    /// Returns the number of dimensions of the text vectors that the fit needs; 0 for a model without vectors.
    pub fn dimensions(&self) -> usize {
        self.labels.first().map_or(0, |class| class.weights.len())
    }

    /// Corrects the logits of a text. `labels` are the indices of the labels that have a logit, in order; `other` is
    /// the logit of the background, if there is one.
    ///
    /// Returns the logits of these labels and of "none of these"; `None` if the fit needs the text's vector and the
    /// vector is missing or from a different model.
    pub fn apply(
        &self,
        labels: &[usize],
        logits: &[f64],
        other: Option<f64>,
        vector: Option<&[f32]>,
    ) -> Option<(Vec<f64>, Option<f64>)> {
        let numbers = match self.dimensions() {
            0 => &[],
            dimensions => vector.filter(|vector| vector.len() == dimensions)?,
        };
        let correct = |class: &FittedClass, logit: f64| {
            // Sum in a fixed order, for the same result on every machine.
            let products = class.weights.iter().zip(numbers);
            let learned: f64 = products
                .map(|(weight, x)| f64::from(*weight) * f64::from(*x))
                .sum();
            class.scale * logit + class.bias + learned
        };
        let below = || Some(self.none_below? + log_sum_exp(logits.iter().copied()));
        let none = self.none.as_ref().zip(other.or_else(below));
        let none = none.map(|(class, logit)| correct(class, logit));
        let pairs = labels.iter().zip(logits);
        let fitted = pairs.map(|(label, logit)| correct(&self.labels[*label], *logit));
        Some((fitted.collect(), none))
    }

    /// Returns the fields that affect scores, for a label set's hash.
    pub(crate) fn content(&self) -> impl Serialize {
        (
            &self.base,
            &self.model,
            &self.labels,
            &self.none,
            self.none_below,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(labels: u8, weights: &[f32]) -> Fitted {
        let class = |bias: u8| FittedClass {
            scale: 2.0,
            bias: f64::from(bias),
            weights: weights.to_vec(),
        };
        Fitted {
            base: "b".into(),
            model: "m".into(),
            labels: (0..labels).map(class).collect(),
            none: Some(class(labels)),
            none_below: None,
            provenance: Provenance::default(),
        }
    }

    #[test]
    fn a_correction_is_scale_bias_and_weights() {
        let fit = fitted(2, &[1.0, 2.0]);
        let corrected = fit.apply(&[0, 1], &[5.0, 6.0], Some(7.0), Some(&[0.6, 0.8]));
        let (labels, none) = corrected.unwrap();
        let learned = 0.6 + 2.0 * 0.8;
        for (logit, expected) in labels.iter().chain(&none).zip([10.0, 13.0, 16.0]) {
            assert!((logit - expected - learned).abs() < 1e-4, "{logit}");
        }
    }

    #[test]
    fn a_shortlist_may_leave_out_labels_and_the_background() {
        let corrected = fitted(2, &[]).apply(&[1], &[6.0], None, None);
        assert_eq!(corrected, Some((vec![13.0], None)));
    }

    #[test]
    fn without_a_background_none_of_these_is_an_offset_below_the_labels() {
        let open = Fitted {
            none_below: Some(-2.0),
            ..fitted(2, &[])
        };
        let (_, none) = open.apply(&[0, 1], &[0.0, 0.0], None, None).unwrap();
        assert!((none.unwrap() - (2.0 * (2f64.ln() - 2.0) + 2.0)).abs() < 1e-12);
    }

    #[test]
    fn a_fit_returns_nothing_without_the_vector_it_needs() {
        let needs = fitted(2, &[1.0, 2.0]);
        assert_eq!(needs.apply(&[0], &[1.0], None, None), None);
        assert_eq!(needs.apply(&[0], &[1.0], None, Some(&[1.0; 3])), None);
    }

    #[test]
    fn a_broken_fit_is_rejected() {
        assert_eq!(fitted(2, &[1.0]).validate(2), Ok(()));
        assert_eq!(fitted(2, &[]).validate(3), Err(FittedError::Labels(2, 3)));
        let mut ragged = fitted(2, &[1.0]);
        ragged.none.as_mut().unwrap().weights.clear();
        assert_eq!(ragged.validate(2), Err(FittedError::Ragged));
        let mut huge = fitted(2, &[1.0]);
        huge.labels[1].bias = 2e6;
        for fit in [huge, fitted(2, &[f32::NAN])] {
            assert_eq!(fit.validate(2), Err(FittedError::OutOfRange));
        }
    }
}
