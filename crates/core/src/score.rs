//! Turns logits into scores, without I/O. All scores are computed here, so that stored logits give the same scores as
//! fresh ones.
//!
//! The reference is the zero-shot pipeline of transformers. Single mode is a softmax of the entailment logits over the
//! labels. Multi mode is a softmax of (contradiction, entailment) per label; with a single label, single mode does the
//! same. An embedding model uses its scaled cosine as the logit. A temperature divides the logits.
//!
//! A GLiClass model is scored as in the `gliclass` package: a softmax over the labels, even over a single one, or a
//! sigmoid per label. A classifier is scored as in the text-classification pipeline: a softmax over its labels, even
//! over a single one, a sigmoid per label, or the logits unchanged.
//!
//! A background is scored like one more label: the logits of its topics are [folded](fold) into one. A text that fits
//! it better than every label is *other*.

use crate::labels::{Fitted, Mode};
use crate::model_kind::{HeadFunction, ModelKind};
pub use crate::numeric::log_sum_exp;
use crate::numeric::{log_mean, sigmoid, softmax, softplus, to_f32};
use crate::vectors::{TextVector, fold_cosines};

/// Logits of one (text, hypothesis) pair.
///
/// For an embedding model, `entailment` is the cosine of the two vectors; for a classifier or GLiClass model, it is the
/// label's logit. The other fields are then `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairLogits {
    /// Logit of the class that scores the label.
    pub entailment: f32,
    /// Logit of the class that multi mode contrasts with `entailment`.
    pub contradiction: Option<f32>,
    /// Logit of the third class, if there is one.
    pub neutral: Option<f32>,
}

impl PairLogits {
    /// Wraps the number that a model other than an NLI model computes for a label.
    pub fn single(logit: f32) -> Self {
        Self {
            entailment: logit,
            contradiction: None,
            neutral: None,
        }
    }

    /// Returns the logit of entailment minus that of contradiction.
    ///
    /// # Panics
    /// If the logit of contradiction is missing, which an NLI model always has.
    fn contrast(&self) -> f64 {
        let contradiction = self
            .contradiction
            .expect("an NLI model has a logit for every class");
        f64::from(self.entailment) - f64::from(contradiction)
    }
}

/// Scores of one text over a label set.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// One score per label, in the order of the set, from 0 to 1; any number in [`Mode::Raw`].
    pub scores: Vec<f64>,
    /// Index of the best label; on a tie, the first.
    pub best: usize,
    /// Best score minus second-best score, including the background; the score itself if it is the only one.
    pub margin: f64,
    /// The outcome: the best label, `other` or `unsure`.
    pub outcome: LabelOutcome,
    /// Score of the background, if there is one.
    pub other_score: Option<f64>,
}

string_enum! {
    /// The outcome of labelling a text.
    LabelOutcome {
        /// The text gets the best label.
        Label = "label",
        /// The background scores higher than every label.
        Other = "other",
        /// The best score is below the threshold.
        Unsure = "unsure",
    }
}

impl LabelOutcome {
    /// Returns the outcome as one word: the slug of the label, `other` or `unsure`.
    pub fn word(self, label: &str) -> &str {
        match self {
            Self::Label => label,
            Self::Other | Self::Unsure => self.as_str(),
        }
    }
}

impl Scores {
    /// Returns true if the text gets no label.
    pub fn is_abstention(&self) -> bool {
        self.outcome != LabelOutcome::Label
    }
}

/// Logits of one text, combined per label and ready for scoring, before the temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// One logit per label, in the order of the set.
    logits: Vec<f64>,
    /// Logit of the background, with its prior.
    other: Option<f64>,
    /// Function that turns the logits into scores.
    function: HeadFunction,
}

/// Returns the function that turns `count` logits into scores.
fn function_of(kind: &ModelKind, mode: Mode, count: usize) -> HeadFunction {
    match (kind, mode) {
        (ModelKind::Classifier(_), Mode::Raw) => HeadFunction::Identity,
        (ModelKind::Classifier(_) | ModelKind::Gliclass(_), Mode::Single) => HeadFunction::Softmax,
        (_, Mode::Multi) => HeadFunction::Sigmoid,
        // A single label gets a sigmoid, as in the pipeline, because a softmax of one number is always 1; a background
        // counts as a second label. `LabelerError::Raw` rules out mode raw here.
        (_, Mode::Single | Mode::Raw) if count == 1 => HeadFunction::Sigmoid,
        (_, Mode::Single | Mode::Raw) => HeadFunction::Softmax,
    }
}

/// Folds the logits of several topics into one: the log of the mean of their odds, or, for an embedding model, the
/// equivalent cosine. A single topic is returned unchanged.
///
/// # Panics
/// If an NLI model's logit is missing, or if the model is a classifier, which has no background.
pub fn fold(kind: &ModelKind, logits: &[PairLogits]) -> PairLogits {
    if let [only] = logits {
        return *only;
    }
    let entailments = || logits.iter().map(|pair| f64::from(pair.entailment));
    match kind {
        ModelKind::Classifier(_) => unreachable!("a classifier has no background"),
        ModelKind::Gliclass(_) => PairLogits::single(to_f32(log_mean(entailments()))),
        ModelKind::Embedding(head) => {
            PairLogits::single(fold_cosines(head.softmax_scale, entailments()))
        }
        ModelKind::Nli(_) => {
            // Multi mode uses the contrast of the two logits, so that contrast is folded too.
            let entailment = log_mean(entailments());
            let contrast = log_mean(logits.iter().map(PairLogits::contrast));
            let neutral = logits.iter().map(|pair| pair.neutral.map(f64::from));
            let neutral: Option<Vec<f64>> = neutral.collect();
            PairLogits {
                entailment: to_f32(entailment),
                contradiction: Some(to_f32(entailment - contrast)),
                neutral: neutral.map(|neutral| to_f32(log_mean(neutral.into_iter()))),
            }
        }
    }
}

impl Evidence {
    /// Combines the logits of one text for each label, in the order of the set. If there is a
    /// [prior](crate::LabelSet::prior_for), the last entry of `logits` belongs to the background.
    ///
    /// # Panics
    /// If an NLI model's logit is missing.
    pub fn new(kind: &ModelKind, mode: Mode, logits: &[PairLogits], prior: Option<f64>) -> Self {
        let function = function_of(kind, mode, logits.len());
        let is_sigmoid = function == HeadFunction::Sigmoid;
        let combined = |pair: &PairLogits| {
            let logit = f64::from(pair.entailment);
            match kind {
                ModelKind::Nli(_) if is_sigmoid => pair.contrast(),
                ModelKind::Nli(_) | ModelKind::Classifier(_) | ModelKind::Gliclass(_) => logit,
                ModelKind::Embedding(head) if is_sigmoid => {
                    head.sigmoid_scale * (logit - head.sigmoid_bias)
                }
                ModelKind::Embedding(head) => head.softmax_scale * logit,
            }
        };
        let mut logits: Vec<f64> = logits.iter().map(combined).collect();
        let other = prior.and_then(|prior| Some(logits.pop()? + prior));
        Self {
            logits,
            other,
            function,
        }
    }

    /// Recovers evidence from the stored scores of the labels, at the temperature that they were computed with. The
    /// logits of a softmax are recovered up to a constant, which has no effect.
    ///
    /// Returns `None` in mode raw, and for sigmoids with a background, whose score is not stored.
    pub fn of_scores(
        kind: &ModelKind,
        mode: Mode,
        scores: &[f64],
        has_background: bool,
        temperature: f64,
    ) -> Option<Self> {
        // The smallest positive number stands for a score that was rounded to 0.
        let ln = |score: f64| temperature * score.max(f64::MIN_POSITIVE).ln();
        let function = function_of(kind, mode, scores.len() + usize::from(has_background));
        let (logits, other) = match function {
            HeadFunction::Softmax => {
                let rest = (1.0 - scores.iter().sum::<f64>()).max(f64::EPSILON);
                let other = has_background.then(|| ln(rest));
                (scores.iter().copied().map(ln).collect(), other)
            }
            HeadFunction::Sigmoid if !has_background => {
                let logit = |score: &f64| ln(*score) - ln((1.0 - score).max(f64::EPSILON));
                (scores.iter().map(logit).collect(), None)
            }
            HeadFunction::Sigmoid | HeadFunction::Identity => return None,
        };
        Some(Self {
            logits,
            other,
            function,
        })
    }

    /// Applies a label set's fit; see [`Fitted::apply`]. `labels` are the indices of the labels with a logit. `None` if
    /// the fit needs the text's vector and there is none.
    pub fn fitted(
        &self,
        fitted: &Fitted,
        labels: &[usize],
        vector: Option<&TextVector>,
    ) -> Option<Self> {
        let numbers = vector.map(TextVector::numbers);
        let (logits, other) = fitted.apply(labels, &self.logits, self.other, numbers.as_deref())?;
        Some(self.with_logits(logits, other))
    }

    /// Returns scores at a temperature, and the outcome at a threshold. At temperature 1 they equal the reference
    /// exactly.
    ///
    /// # Panics
    /// If there are no labels; a label set is never empty.
    pub fn scores(&self, temperature: f64, threshold: f64) -> Scores {
        let logits = self.all_logits().map(|x| x / temperature);
        let mut scores: Vec<f64> = match self.function {
            HeadFunction::Sigmoid => logits.map(sigmoid).collect(),
            HeadFunction::Softmax => softmax(logits),
            HeadFunction::Identity => self.all_logits().collect(),
        };
        let other_score = self.other.and_then(|_| scores.pop());
        let mut best = 0;
        for (i, score) in scores.iter().enumerate() {
            // Strictly greater, so that the first wins a tie, as in the reference.
            if *score > scores[best] {
                best = i;
            }
        }
        let others = scores[..best].iter().chain(&scores[best + 1..]).copied();
        let second = others.chain(other_score).reduce(f64::max).unwrap_or(0.0);
        let outcome = if other_score.is_some_and(|score| score > scores[best]) {
            LabelOutcome::Other
        // Logits are not probabilities, so they have no threshold.
        } else if scores[best] < threshold && self.function != HeadFunction::Identity {
            LabelOutcome::Unsure
        } else {
            LabelOutcome::Label
        };
        let margin = match outcome {
            LabelOutcome::Other => second - scores[best],
            LabelOutcome::Label | LabelOutcome::Unsure => scores[best] - second,
        };
        Scores {
            scores,
            best,
            margin,
            outcome,
            other_score,
        }
    }

    /// Returns the logits of the labels, and of the background.
    pub fn logits(&self) -> (&[f64], Option<f64>) {
        (&self.logits, self.other)
    }

    /// Returns a copy with these logits.
    #[must_use]
    pub fn with_logits(&self, logits: Vec<f64>, other: Option<f64>) -> Self {
        Self {
            logits,
            other,
            function: self.function,
        }
    }

    /// Returns a copy with an offset on the background's logit, if there is a background.
    #[must_use]
    pub fn shifted(&self, shift: f64) -> Self {
        self.with_logits(self.logits.clone(), self.other.map(|other| other + shift))
    }

    /// Returns true if the labels compete: a softmax over all of them, rather than a sigmoid per label.
    pub fn is_softmax(&self) -> bool {
        self.function == HeadFunction::Softmax
    }

    /// Returns the labels' logits, then the background's.
    fn all_logits(&self) -> impl Iterator<Item = f64> + Clone {
        self.logits.iter().copied().chain(self.other)
    }

    /// Returns the indices of the labels from best to worst; the background has the index after the last label. Ties
    /// keep their order.
    pub fn order(&self) -> Vec<usize> {
        let logits: Vec<f64> = self.all_logits().collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        order
    }

    /// Returns the negative log-likelihood of the right labels at a temperature, or of the background if no label is
    /// right. `None` for a regression, and for a softmax if there is neither a right label nor a background, because
    /// "none of these" then has no probability.
    pub fn loss(&self, temperature: f64, right: &[usize]) -> Option<f64> {
        let logits = || self.all_logits().map(|x| x / temperature);
        let is_right = |place: usize| {
            let background = place == self.logits.len();
            (background && right.is_empty()) || right.contains(&place)
        };
        if self.function == HeadFunction::Identity {
            return None;
        }
        if self.function == HeadFunction::Sigmoid {
            let loss = |(place, x): (usize, f64)| softplus(if is_right(place) { -x } else { x });
            return Some(logits().enumerate().map(loss).sum());
        }
        // Single mode has one right label; any further gold label is ignored.
        let right = match right.first() {
            Some(right) => self.logits[*right],
            None => self.other?,
        };
        Some(log_sum_exp(logits()) - right / temperature)
    }
}

/// Expands the scores of some labels to all labels; skipped labels get 0. `labels` are the indices of the scored
/// labels, in order.
pub fn spread(part: &Scores, labels: &[usize], count: usize) -> Scores {
    let mut scores = vec![0.0; count];
    for (label, score) in labels.iter().zip(&part.scores) {
        scores[*label] = *score;
    }
    Scores {
        best: labels[part.best],
        scores,
        ..*part
    }
}

/// Returns the probability of entailment in a softmax of entailment and contradiction.
pub fn entailment_probability(entailment: f32, contradiction: f32) -> f64 {
    sigmoid(f64::from(entailment) - f64::from(contradiction))
}

#[cfg(test)]
mod tests;
