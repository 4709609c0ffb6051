//! A label set prepared for one model. In: tokenised texts, and the model's output for their rows. Out: the rows to
//! compute, and the scores of each text.

use super::{PairState, TextError, TextResult};
use crate::batch::BatchRow;
use crate::engine::EngineError;
use crate::text::{EncodedText, Encoder};
use topicmill_core::labels::hypothesis;
use topicmill_core::score::{self, Evidence};
use topicmill_core::{
    Fitted, LabelSet, LabelVector, Mode, ModelKind, PairLogits, Scores, TextVector,
};

/// A label set prepared for one model.
#[derive(Debug, Clone)]
pub struct PreparedLabels {
    kind: ModelKind,
    mode: Mode,
    temperature: f64,
    threshold: f64,
    fitted: Option<Fitted>,
    pub(super) keys: Vec<String>,
    /// Number of labels, without the background.
    count: usize,
    /// Prior of the background, if any topic remains. The background's index follows the last label's.
    prior: Option<f64>,
    /// Index of the label that each hypothesis, prompt label or vector belongs to. A background has one hypothesis or
    /// prompt label per topic, but a single vector.
    pub(super) owners: Vec<usize>,
    pub(super) labels: Labels,
}

#[derive(Debug, Clone)]
pub(super) enum Labels {
    /// One hypothesis per entry of `owners`.
    Hypotheses(Vec<EncodedText>),
    /// One [`LabelVector`] per entry of `owners`; the background's entry has one vector per topic.
    Vectors(Vec<LabelVector>),
    /// Index of each label's logit, for a classifier.
    Classes(Vec<usize>),
    /// One label per entry of `owners`, read together with each text.
    Prompt(EncodedText),
}

/// The outputs of a text's rows, as far as they are computed.
#[derive(Debug, Clone, Default)]
pub(super) struct Outputs {
    /// The output for each entry of `owners`; empty if it is known, or not computed yet.
    raw: Vec<Vec<f32>>,
    /// Vector of the text, if an embedding model computed it.
    vector: Option<TextVector>,
    /// Number of wanted entries of `owners` that are not computed yet.
    pub missing: usize,
}

impl Outputs {
    pub(super) fn new(missing: usize) -> Self {
        Self {
            missing,
            ..Self::default()
        }
    }
}

impl PreparedLabels {
    /// Combines a label set and what the model reads of it. `owners` has the label's index for each entry of `labels`.
    pub(super) fn new(
        kind: &ModelKind,
        set: &LabelSet,
        owners: Vec<usize>,
        labels: Labels,
    ) -> Self {
        Self {
            kind: kind.clone(),
            mode: set.mode,
            temperature: set.temperature,
            threshold: set.threshold,
            fitted: set.fitted.clone(),
            keys: hypothesis::keys(kind, set),
            count: set.labels.len(),
            prior: set.prior_for(kind),
            owners,
            labels,
        }
    }

    /// Returns the scoring mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the offset of the background's logit; `None` without a background.
    pub fn prior(&self) -> Option<f64> {
        self.prior
    }

    /// Returns the keys to store logits under: one per label, in the order of the set, then one for the background, if
    /// any of its topics remains.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the label vectors in the order of the set, then the background's; `None` if the model is not an
    /// embedding model.
    pub fn label_vectors(&self) -> Option<&[LabelVector]> {
        match &self.labels {
            Labels::Hypotheses(_) | Labels::Classes(_) | Labels::Prompt(_) => None,
            Labels::Vectors(vectors) => Some(vectors),
        }
    }

    /// Returns the rows of texts for the wanted labels, in the order of the texts. `is_wanted` receives the indices of
    /// the text and the label.
    pub fn rows<'a>(
        &'a self,
        encoder: &'a Encoder,
        texts: &'a [EncodedText],
        is_wanted: impl Fn(usize, usize) -> bool,
    ) -> Vec<BatchRow<'a>> {
        let mut rows = Vec::new();
        for (text, ids) in texts.iter().enumerate() {
            let mut owners = self.owners.iter();
            let mut add = |label, sequence| {
                rows.push(BatchRow {
                    text,
                    label,
                    sequence,
                });
            };
            match &self.labels {
                Labels::Hypotheses(hypotheses) => {
                    for (label, (hypothesis, owner)) in hypotheses.iter().zip(owners).enumerate() {
                        if is_wanted(text, *owner) {
                            add(label, encoder.pair(ids, hypothesis));
                        }
                    }
                }
                _ if !owners.any(|owner| is_wanted(text, *owner)) => {}
                Labels::Prompt(prompt) => add(0, encoder.prompted(ids, prompt)),
                Labels::Vectors(_) | Labels::Classes(_) => add(0, encoder.single(ids)),
            }
        }
        rows
    }

    /// Scores a text by its vector, like [`Labeler::score`]; `None` if the vector is from a different model, or the
    /// model is not an embedding model.
    ///
    /// # Panics
    /// If there are no labels; a label set is never empty.
    pub fn scores_of(&self, vector: &TextVector) -> Option<Scores> {
        let cosines = vector.cosines(self.label_vectors()?)?;
        let logits: Vec<PairLogits> = cosines.into_iter().map(PairLogits::single).collect();
        let mut evidence = Evidence::new(&self.kind, self.mode, &logits, self.prior);
        if let Some(fitted) = &self.fitted {
            let labels: Vec<usize> = (0..self.count).collect();
            evidence = evidence.fitted(fitted, &labels, Some(vector))?;
        }
        Some(evidence.scores(self.temperature, self.threshold))
    }

    /// Returns true if scores depend on the text's vector, and not only on its logits. Known pairs then save no
    /// inference.
    pub fn needs_vectors(&self) -> bool {
        let fitted = self.fitted.as_ref();
        fitted.is_some_and(|fitted| fitted.dimensions() > 0)
    }

    /// Adds the output of a row to the outputs of its text. `label` is the label of the row, for a model that reads
    /// pairs.
    pub(super) fn add_row(
        &self,
        outputs: &mut Outputs,
        label: usize,
        row: &[f32],
    ) -> Result<(), TextError> {
        let mismatch = |detail| TextError::Engine(EngineError::Shape(detail));
        let raw = match &self.labels {
            Labels::Hypotheses(_) => {
                // Rows arrive in any order, because batches are planned by length.
                outputs.raw.resize(self.owners.len(), Vec::new());
                outputs.raw[label] = row.to_vec();
                outputs.missing -= 1;
                return Ok(());
            }
            Labels::Vectors(labels) => {
                let vector = outputs.vector.insert(TextVector::quantize(row));
                vector.cosines(labels).ok_or_else(|| {
                    mismatch(format!(
                        "the vector of a text has {} numbers, but that of a label has another length",
                        row.len()
                    ))
                })?
            }
            Labels::Classes(classes) => classes.iter().map(|class| row[*class]).collect(),
            Labels::Prompt(_) if row.len() == self.owners.len() => row.to_vec(),
            Labels::Prompt(_) => {
                return Err(mismatch(format!(
                    "the graph returned {} logits for {} labels",
                    row.len(),
                    self.owners.len()
                )));
            }
        };
        outputs.raw = raw.into_iter().map(|logit| vec![logit]).collect();
        outputs.missing = 0;
        Ok(())
    }

    /// Builds the result of a text from its outputs.
    pub(super) fn result(
        &self,
        pair_state: &dyn Fn(usize) -> PairState,
        outputs: Outputs,
    ) -> TextResult {
        let Outputs { raw, vector, .. } = outputs;
        // A background has one row per topic.
        let mut rows_by_key: Vec<Vec<Vec<f32>>> = vec![Vec::new(); self.keys.len()];
        for (key, row) in self.owners.iter().zip(raw) {
            rows_by_key[*key].push(row);
        }
        let logits: Vec<Option<PairLogits>> = rows_by_key
            .iter()
            .enumerate()
            .map(|(key, rows)| match pair_state(key) {
                PairState::Wanted => {
                    let logits: Vec<_> = rows.iter().map(|row| self.pair_logits(row)).collect();
                    Some(score::fold(&self.kind, &logits))
                }
                PairState::Known(logits) => Some(logits),
                PairState::Skipped => None,
            })
            .collect();
        let raw = rows_by_key.into_iter().map(|mut rows| match rows.len() {
            1 => rows.remove(0),
            _ => Vec::new(),
        });
        TextResult {
            scores: self.scores(&logits, vector.as_ref()),
            raw: raw.collect(),
            logits,
            vector,
        }
    }

    /// Scores a text by the logits of its keys, `None` for skipped labels, and by its vector, if a fit reads it.
    fn scores(&self, logits: &[Option<PairLogits>], vector: Option<&TextVector>) -> Scores {
        let (labels, mut pairs): (Vec<usize>, Vec<PairLogits>) = (0..)
            .zip(&logits[..self.count])
            .filter_map(|(label, logits)| Some((label, (*logits)?)))
            .unzip();
        let other = logits.get(self.count).copied().flatten();
        pairs.extend(other);
        // If the shortlist skipped the background, the last logit is a label's.
        let prior = self.prior.filter(|_| other.is_some());
        let mut evidence = Evidence::new(&self.kind, self.mode, &pairs, prior);
        if let Some(fitted) = &self.fitted {
            evidence = evidence
                .fitted(fitted, &labels, vector)
                .expect("an embedding model computes a vector for each text");
        }
        let scores = evidence.scores(self.temperature, self.threshold);
        if labels.len() < self.count {
            score::spread(&scores, &labels, self.count)
        } else {
            scores
        }
    }

    /// Returns the logits of a pair from a raw output.
    fn pair_logits(&self, raw: &[f32]) -> PairLogits {
        match self.kind {
            ModelKind::Nli(classes) => PairLogits {
                entailment: raw[classes.entailment],
                contradiction: Some(raw[classes.contradiction]),
                neutral: classes.neutral.map(|class| raw[class]),
            },
            ModelKind::Embedding(_) | ModelKind::Classifier(_) | ModelKind::Gliclass(_) => {
                PairLogits::single(raw[0])
            }
        }
    }

    /// Returns the number of rows per text.
    pub fn rows_per_text(&self) -> usize {
        match &self.labels {
            Labels::Hypotheses(hypotheses) => hypotheses.len(),
            Labels::Vectors(_) | Labels::Classes(_) | Labels::Prompt(_) => 1,
        }
    }
}
