//! Vectors that an embedding model has learned for certain labels, in place of those that it makes of their words.
//!
//! In goes the JSON file that the block `zero_shot` of `config.json` names; out come the vectors, found by the texts of
//! their labels. They were trained on labelled texts, so they fit their labels better than words do. A label with other
//! texts is not among them: then words count as before, see [`hypothesis`](crate::hypothesis).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use super::{ModelError, bounds, read_json};

/// Labels with their learned vectors; as a rule none.
#[derive(Clone, PartialEq, Default)]
pub struct LearnedLabels {
    /// The texts of each label, in the order of the file.
    labels: Vec<Vec<String>>,
    /// By the texts of a label.
    vectors: HashMap<Vec<String>, Vec<f64>>,
    dimensions: usize,
}

/// The file.
#[derive(Debug, Deserialize)]
struct File {
    labels: Vec<LearnedLabel>,
}

/// A label and its vector.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LearnedLabel {
    /// What the label is compared as without a learned vector: see [`texts`](crate::hypothesis::texts).
    pub texts: Vec<String>,
    /// Its vector, of any length above 0: only its direction counts.
    pub vector: Vec<f64>,
}

impl LearnedLabels {
    /// Reads a model's file.
    pub(super) fn read(path: &Path) -> Result<Self, ModelError> {
        let file: File = read_json(path)?;
        Self::of(file.labels).map_err(|detail| {
            ModelError::File(format!(
                "use the label vectors in `{}`: {detail}; make the file again, or take `label_vectors` out of the block \
                 `zero_shot` of `config.json` to compare labels by their words",
                path.display()
            ))
        })
    }

    /// Checks labels and their vectors; says what is wrong with the first that cannot be used.
    pub(crate) fn of(labels: Vec<LearnedLabel>) -> Result<Self, String> {
        let dimensions = labels.first().map_or(0, |first| first.vector.len());
        if labels.is_empty() {
            return Err("it has no label".to_owned());
        }
        let mut learned = Self {
            dimensions,
            ..Self::default()
        };
        for (number, LearnedLabel { texts, vector }) in (1..).zip(labels) {
            if texts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
                return Err(format!("label {number} has no text, or an empty one"));
            }
            if vector.len() != dimensions {
                let numbers = vector.len();
                return Err(format!(
                    "the vector of label {number} has {numbers} numbers, and that of label 1 has {dimensions}"
                ));
            }
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            // Zeros, and numbers whose squares are too small or too large to be added up.
            if !(length.is_finite() && length > 0.0) {
                return Err(format!(
                    "the vector of label {number} has no direction: its length is {length}"
                ));
            }
            match learned.vectors.entry(texts) {
                Entry::Occupied(there) => {
                    return Err(format!(
                        "label {number} has the texts of another label: `{}`",
                        there.key()[0]
                    ));
                }
                Entry::Vacant(free) => {
                    learned.labels.push(free.key().clone());
                    free.insert(vector);
                }
            }
        }
        Ok(learned)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many numbers a vector has.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of the label with these texts.
    pub fn vector(&self, texts: &[String]) -> Option<&[f64]> {
        self.vectors.get(texts).map(Vec::as_slice)
    }

    /// The first text of each label, in the order of the file: the hypothesis.
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.labels.iter().map(|texts| texts[0].as_str())
    }
}

impl fmt::Debug for LearnedLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Thousands of numbers say nothing.
        f.debug_struct("LearnedLabels")
            .field("labels", &self.labels.len())
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

/// Whether a configuration may name this file: one that lies beside it.
pub(super) fn is_beside(name: &str) -> bool {
    let path = Path::new(name);
    path.file_name().is_some_and(|file| file == name) && bounds::is_json(path)
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
    fn labels_that_cannot_be_used_are_named() {
        let good = || label(&["a"], &[1.0, 0.0]);
        for (bad, said) in [
            (label(&[], &[1.0, 0.0]), "label 2 has no text"),
            (label(&["b", " "], &[1.0, 0.0]), "label 2 has no text"),
            (label(&["b"], &[1.0]), "has 1 numbers"),
            (label(&["b"], &[0.0, 0.0]), "its length is 0"),
            (label(&["b"], &[1e200, 0.0]), "its length is inf"),
            (label(&["b"], &[f64::NAN, 0.0]), "its length is NaN"),
            (label(&["a"], &[0.0, 1.0]), "of another label: `a`"),
        ] {
            let error = LearnedLabels::of(vec![good(), bad]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(LearnedLabels::of(Vec::new()).is_err());
        let empty = LearnedLabels::of(vec![label(&["a"], &[])]).unwrap_err();
        assert!(empty.contains("no direction"), "{empty}");
    }
}
