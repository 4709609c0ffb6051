//! Learned label vectors: vectors that an embedding model has learned for certain labels, used in place of vectors
//! computed from the labels' texts.
//!
//! The input is the JSON file named in the `zero_shot` block of `config.json`; the output is the vectors, keyed by the
//! texts of their labels. The vectors were trained on labelled texts, so they fit their labels better than vectors
//! computed from descriptions do. A label with different texts has no learned vector; see
//! [`hypothesis`](crate::labels::hypothesis).

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;

/// Labels with learned vectors of the same length, in file order; usually none.
#[derive(Clone, PartialEq, Default)]
pub struct LearnedLabels(Vec<LearnedLabel>);

/// A label and its vector.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LearnedLabel {
    /// The texts that represent the label to a model without learned vectors; see
    /// [`texts`](crate::labels::hypothesis::texts).
    pub texts: Vec<String>,
    /// The label's vector, of any length above 0; only the direction counts.
    pub vector: Vec<f64>,
}

impl LearnedLabels {
    /// Validates labels and vectors.
    ///
    /// # Errors
    /// Describes the first invalid label.
    pub fn new(labels: Vec<LearnedLabel>) -> Result<Self, String> {
        let Some(first) = labels.first() else {
            return Err("it has no labels".to_owned());
        };
        let (dimensions, mut known) = (first.vector.len(), HashSet::new());
        for (number, LearnedLabel { texts, vector }) in (1..).zip(&labels) {
            if texts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
                return Err(format!("label {number} has no text, or an empty one"));
            }
            if vector.len() != dimensions {
                let numbers = vector.len();
                return Err(format!(
                    "the vector for label {number} has {numbers} dimensions, but the one for label 1 has {dimensions}"
                ));
            }
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            // The vector is zero, or the squares of its numbers underflow or overflow.
            if !(length.is_finite() && length > 0.0) {
                return Err(format!(
                    "the vector for label {number} has no direction: its length is {length}"
                ));
            }
            if !known.insert(texts) {
                return Err(format!(
                    "label {number} has the same texts as another label: `{}`",
                    texts[0]
                ));
            }
        }
        Ok(Self(labels))
    }

    /// Returns true if there are no learned vectors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of dimensions of each vector.
    pub fn dimensions(&self) -> usize {
        self.0.first().map_or(0, |label| label.vector.len())
    }

    /// Returns the vector for the label with these texts.
    pub fn vector(&self, texts: &[String]) -> Option<&[f64]> {
        let label = self.0.iter().find(|label| label.texts == texts)?;
        Some(&label.vector)
    }

    /// Returns the first text of each label, its hypothesis, in file order.
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|label| label.texts[0].as_str())
    }
}

impl fmt::Debug for LearnedLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The vectors would print thousands of numbers.
        f.debug_struct("LearnedLabels")
            .field("labels", &self.0.len())
            .field("dimensions", &self.dimensions())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(texts: &[&str], vector: &[f64]) -> LearnedLabel {
        LearnedLabel {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            vector: vector.to_vec(),
        }
    }

    #[test]
    fn invalid_labels_are_named_in_the_error() {
        let good = || label(&["a"], &[1.0, 0.0]);
        for (bad, message) in [
            (label(&[], &[1.0, 0.0]), "label 2 has no text"),
            (label(&["b", " "], &[1.0, 0.0]), "label 2 has no text"),
            (label(&["b"], &[1.0]), "has 1 dimensions"),
            (label(&["b"], &[0.0, 0.0]), "its length is 0"),
            (label(&["b"], &[1e200, 0.0]), "its length is inf"),
            (label(&["b"], &[f64::NAN, 0.0]), "its length is NaN"),
            (label(&["a"], &[0.0, 1.0]), "as another label: `a`"),
        ] {
            let error = LearnedLabels::new(vec![good(), bad]).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!(LearnedLabels::new(Vec::new()).is_err());
        let empty = LearnedLabels::new(vec![label(&["a"], &[])]).unwrap_err();
        assert!(empty.contains("no direction"), "{empty}");
    }
}
