//! Texts with labels of their own: many label sets made ready at once.
//!
//! In go label sets, one for each list of labels that a text brings; out comes each of them ready, or why it cannot be
//! used. An embedding model computes the vectors of all labels that it has not seen yet together, so that batches are
//! full although each set is small, and remembers them for the texts that follow.

use std::collections::{HashMap, HashSet};

use super::prepared::{Prepared, fits};
use super::{Labeler, LabelerError};
use crate::embedded::LabelVector;
use crate::folder::ModelKind;
use crate::hypothesis;
use crate::labels::LabelSet;

/// Vectors of labels by their keys: those that were used last, no more than a given number.
///
/// It has two halves. What is used moves into the new one; when that is full, the old one is forgotten.
#[derive(Debug)]
pub struct KnownVectors {
    new: HashMap<String, LabelVector>,
    old: HashMap<String, LabelVector>,
    half: usize,
}

impl KnownVectors {
    /// An empty store for `most` vectors.
    pub fn new(most: usize) -> Self {
        Self {
            new: HashMap::new(),
            old: HashMap::new(),
            half: most.div_ceil(2).max(1),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&mut self, key: &str) -> Option<LabelVector> {
        if let Some(vector) = self.new.get(key) {
            return Some(vector.clone());
        }
        let (key, vector) = self.old.remove_entry(key)?;
        self.put(key, vector.clone());
        Some(vector)
    }

    fn put(&mut self, key: String, vector: LabelVector) {
        if self.new.len() >= self.half {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, vector);
    }
}

impl Labeler {
    /// Makes label sets ready; what is wrong with one of them is said in its place.
    ///
    /// # Errors
    /// [`LabelerError::Engine`], [`LabelerError::Tokenize`] and [`LabelerError::LearnedWidth`], where the trouble is not
    /// with one set.
    pub fn prepare_each(
        &mut self,
        sets: &[LabelSet],
        known: &mut KnownVectors,
    ) -> Result<Vec<Result<Prepared, LabelerError>>, LabelerError> {
        let keys: Vec<Vec<String>> = sets
            .iter()
            .map(|set| match (&self.folder.kind, set.validate()) {
                (kind @ ModelKind::Embedding(_), Ok(())) => hypothesis::keys(kind, set),
                _ => Vec::new(),
            })
            .collect();
        let mut here: HashMap<&str, Option<LabelVector>> = HashMap::new();
        for key in keys.iter().flatten() {
            here.entry(key).or_insert_with(|| known.get(key));
        }
        let computed = match self.missing_vectors(sets, &keys, &here) {
            Ok(computed) => computed,
            Err(error) if is_of_the_model(&error) => return Err(error),
            // The set at fault says so below, where each computes its own.
            Err(_) => Vec::new(),
        };
        for (key, vector) in &computed {
            known.put((*key).to_owned(), vector.clone());
        }
        for (key, vector) in computed {
            here.insert(key, Some(vector));
        }
        let ready = |(set, keys): (&LabelSet, &Vec<String>)| {
            let of_set: Vec<Option<LabelVector>> =
                keys.iter().map(|key| here[key.as_str()].clone()).collect();
            match self.make_ready(set, &of_set) {
                Err(error) if is_of_the_model(&error) => Err(error),
                ready => Ok(ready),
            }
        };
        sets.iter().zip(&keys).map(ready).collect()
    }

    /// The vectors of all places that are not known, each once.
    fn missing_vectors<'k>(
        &mut self,
        sets: &[LabelSet],
        keys: &'k [Vec<String>],
        known: &HashMap<&str, Option<LabelVector>>,
    ) -> Result<Vec<(&'k str, LabelVector)>, LabelerError> {
        let kind = &self.folder.kind;
        let (mut wanted, mut owners, mut texts) = (Vec::<&str>::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (set, keys) in sets.iter().zip(keys).filter(|(_, keys)| !keys.is_empty()) {
            let learned = hypothesis::learned(kind, set).map_or(0, |vectors| vectors.len());
            let groups = hypothesis::groups(kind, set).into_iter().zip(keys);
            // A learned vector is not computed.
            for (group, key) in groups.skip(learned) {
                if known[key.as_str()].is_some() || !seen.insert(key.as_str()) {
                    continue;
                }
                for of_one in group {
                    texts.extend(of_one.into_iter().map(|text| (owners.len(), text)));
                    owners.push(wanted.len());
                }
                wanted.push(key);
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut encoded = Vec::with_capacity(texts.len());
        for (owner, text) in texts {
            let text = self.encoder.encode_whole(&text)?;
            if !fits(kind, &self.encoder, text.len()) {
                return Err(LabelerError::TooLong {
                    label: String::new(),
                    tokens: text.len(),
                    window: self.encoder.max_tokens(),
                });
            }
            encoded.push((owner, text));
        }
        let nameless = |_| String::new();
        let vectors = self.label_vectors(&nameless, &owners, wanted.len(), encoded, &[])?;
        Ok(wanted.into_iter().zip(vectors).collect())
    }
}

/// Whether the trouble is with the model, and so with every set.
fn is_of_the_model(error: &LabelerError) -> bool {
    matches!(
        error,
        LabelerError::Engine(_) | LabelerError::Tokenize(_) | LabelerError::LearnedWidth { .. }
    )
}

#[cfg(test)]
mod tests;
