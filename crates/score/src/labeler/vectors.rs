//! The vectors of labels: learned ones from the model folder, or computed from the texts of each label.

use super::{Labeler, LabelerError, name_of};
use crate::batch::BatchRow;
use crate::text::EncodedText;
use topicmill_core::labels::hypothesis;
use topicmill_core::{LabelSet, LabelVector, ModelKind, unit};

/// The tokenised texts of a label set.
pub(super) struct LabelTexts {
    /// Each text, with the index of its label or topic in `owners`.
    pub texts: Vec<(usize, EncodedText)>,
    /// For each label and background topic, the index of its key; all topics have the background's.
    pub owners: Vec<usize>,
    /// Number of keys.
    pub keys: usize,
}

impl Labeler {
    /// Logs, once per label set, whether learned vectors are used; logs nothing if the model has none for these labels.
    pub(super) fn log_learned_vectors(&mut self, set: &LabelSet) {
        let keys = hypothesis::keys(&self.folder.kind, set);
        if self.logged_keys == keys {
            return;
        }
        self.logged_keys = keys;
        let (model, kind, labels) = (&self.folder.name, &self.folder.kind, set.labels.len());
        if hypothesis::learned(kind, set).is_some() {
            tracing::info!(
                model,
                labels,
                "the model has learned vectors for these labels"
            );
            return;
        }
        if let Some(why) = hypothesis::missing_learned_vectors(kind, set) {
            tracing::warn!(model, "{why}");
        }
    }

    /// Returns the learned vectors of a label set, if every label has one.
    pub(super) fn learned_vectors(
        &mut self,
        set: &LabelSet,
    ) -> Result<Option<Vec<LabelVector>>, LabelerError> {
        let ModelKind::Embedding(head) = &self.folder.kind else {
            return Ok(None);
        };
        let Some(learned) = hypothesis::learned(&self.folder.kind, set) else {
            return Ok(None);
        };
        let label_vector =
            |numbers: &[f64]| LabelVector::from_sums(head.softmax_scale, vec![numbers.to_vec()]);
        let vectors = learned.into_iter().map(label_vector).collect();
        self.check_learned()?;
        Ok(Some(vectors))
    }

    /// Checks that the learned label vectors, if any, have as many dimensions as the vectors that the model computes.
    ///
    /// # Errors
    /// [`LabelerError::LearnedWidth`] and [`LabelerError::Engine`].
    pub fn check_learned(&mut self) -> Result<(), LabelerError> {
        let learned = match &self.folder.kind {
            ModelKind::Embedding(head) if !head.learned.is_empty() => head.learned.dimensions(),
            _ => return Ok(()),
        };
        let width = self.width()?;
        if width == learned {
            return Ok(());
        }
        Err(LabelerError::LearnedWidth {
            model: self.folder.name.clone(),
            width,
            learned,
        })
    }

    /// Computes the label vectors that are not known, one per key: the mean of the vectors of each label's texts.
    pub(super) fn label_vectors(
        &mut self,
        set: &LabelSet,
        texts: LabelTexts,
        known: &[Option<LabelVector>],
    ) -> Result<Vec<LabelVector>, LabelerError> {
        let LabelTexts {
            mut texts,
            owners,
            keys,
        } = texts;
        let known = |key: usize| known.get(key).and_then(Option::as_ref);
        texts.retain(|(owner, _)| known(owners[*owner]).is_none());
        let encoder = self.encoder();
        let rows = texts.iter().enumerate();
        let rows = rows
            .map(|(text, (_, ids))| BatchRow {
                text,
                label: 0,
                sequence: encoder.single(ids),
            })
            .collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut failed = None;
        self.compute(rows, &|| false, &mut |row, computed| match computed {
            Ok(vector) => {
                // Normalized before the mean, so that all texts of a label have equal weight.
                vectors[row.text] = unit(vector.iter().map(|x| f64::from(*x)).collect());
            }
            Err(source) => failed = Some((row.text, source)),
        })?;
        if let Some((text, source)) = failed {
            return Err(LabelerError::Label {
                label: name_of(set, owners[texts[text].0]).to_owned(),
                source,
            });
        }
        let mut sums: Vec<Vec<f64>> = vec![Vec::new(); owners.len()];
        // In the order of the texts, so that batching does not change the result.
        for ((owner, _), vector) in texts.iter().zip(vectors) {
            let sum = &mut sums[*owner];
            sum.resize(vector.len(), 0.0);
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
        }
        let mut sums_by_key: Vec<Vec<Vec<f64>>> = vec![Vec::new(); keys];
        for (sum, key) in sums.into_iter().zip(owners) {
            sums_by_key[key].push(sum);
        }
        let scale = match &self.folder.kind {
            ModelKind::Embedding(head) => head.softmax_scale,
            _ => unreachable!("only an embedding model has vectors"),
        };
        let vector = |(key, sums)| match known(key) {
            Some(vector) => vector.clone(),
            None => LabelVector::from_sums(scale, sums),
        };
        Ok(sums_by_key.into_iter().enumerate().map(vector).collect())
    }
}
