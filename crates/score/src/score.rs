//! Logits into scores. Pure, and the one place where scores are made, so that stored logits give the same
//! scores as fresh ones.
//!
//! The reference is the zero-shot pipeline of transformers. Single mode: softmax of the entailment logits
//! over the labels. Multi mode, and a single label in either mode: softmax of (contradiction, entailment) for
//! each label by itself. An embedding model puts its scaled cosine in place of the logit. A temperature divides
//! what stands under the softmax or the sigmoid.
//!
//! A classifier is scored as the text-classification pipeline does: a softmax over its labels, even where there is one, a
//! sigmoid of each, or the logits as they are.
//!
//! A background stands beside the labels like one more of them: the logits of its topics are [folded](fold) into one. A
//! text that fits it better than every label is *other*.

use crate::embedding::TextVector;
use crate::fitted::Fitted;
use crate::folder::{HeadFunction, ModelKind};
use crate::labels::Mode;

/// What a model said of one (text, hypothesis) pair.
///
/// With an embedding model, `entailment` is the cosine of the two vectors, and the others are `None`; with a classifier it
/// is the logit of the label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairLogits {
    /// Logit of the class that the label is read from.
    pub entailment: f32,
    /// Logit of the class that multi mode opposes to it.
    pub contradiction: Option<f32>,
    /// Logit of the third class, where there is one.
    pub neutral: Option<f32>,
}

impl PairLogits {
    /// What a classifier says of a text and one of its labels.
    pub fn class(logit: f32) -> Self {
        Self::cosine(logit)
    }

    /// What an embedding model says of a pair.
    pub fn cosine(cosine: f32) -> Self {
        Self {
            entailment: cosine,
            contradiction: None,
            neutral: None,
        }
    }
}

/// Scores of one text over a label set.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// One a label, in the order of the set, 0 to 1; in [`Mode::Raw`] any number.
    pub scores: Vec<f64>,
    /// Index of the best; the first among equals.
    pub best: usize,
    /// What came first less what came second, the background included; of one label alone its score.
    pub margin: f64,
    /// The text gets none of the labels: it is other, or the best lies under the label set's threshold.
    pub abstained: bool,
    /// The background came before every label.
    pub other: bool,
    /// The background's score, where there is one.
    pub other_score: Option<f64>,
}

/// What becomes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It gets the best label.
    Label,
    /// It belongs to none of the labels.
    Other,
    /// The best label lies under the threshold.
    Unsure,
}

impl Scores {
    /// What becomes of the text.
    pub fn outcome(&self) -> Outcome {
        match (self.other, self.abstained) {
            (true, _) => Outcome::Other,
            (false, true) => Outcome::Unsure,
            (false, false) => Outcome::Label,
        }
    }
}

/// The logits of one text as they become scores, before the temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// One a label, in the order of the set.
    logits: Vec<f64>,
    /// The background's, with its prior.
    other: Option<f64>,
    /// What is made of them.
    function: HeadFunction,
}

/// What there is for each label, given the logits of one text against each label in the order of the set.
///
/// # Panics
/// If an NLI model lacks a logit.
pub fn evidence(kind: &ModelKind, mode: Mode, logits: &[PairLogits]) -> Evidence {
    evidence_with_background(kind, mode, logits, None)
}

/// As [`evidence`], where the last of the logits are the background's, if there is a
/// [prior](crate::labels::LabelSet::prior_for) for it.
///
/// # Panics
/// As [`evidence`].
pub fn evidence_with_background(
    kind: &ModelKind,
    mode: Mode,
    logits: &[PairLogits],
    prior: Option<f64>,
) -> Evidence {
    let function = match (kind, mode) {
        (ModelKind::Classifier(_), Mode::Raw) => HeadFunction::None,
        (ModelKind::Classifier(_), Mode::Single) => HeadFunction::Softmax,
        (_, Mode::Multi) => HeadFunction::Sigmoid,
        // As the pipeline does with a single label: a softmax of one number is always 1. A background counts as company.
        // `Raw` is a mode that a label set of another kind cannot have: see `LabelerError::Raw`.
        (_, Mode::Single | Mode::Raw) if logits.len() == 1 => HeadFunction::Sigmoid,
        (_, Mode::Single | Mode::Raw) => HeadFunction::Softmax,
    };
    let each_by_itself = function == HeadFunction::Sigmoid;
    let of = |pair: &PairLogits| {
        let first = f64::from(pair.entailment);
        match kind {
            ModelKind::Nli(_) if each_by_itself => {
                let contradiction = pair
                    .contradiction
                    .expect("an NLI model gives a logit to every class");
                first - f64::from(contradiction)
            }
            ModelKind::Nli(_) | ModelKind::Classifier(_) => first,
            ModelKind::Embedding(head) if each_by_itself => {
                head.sigmoid_scale * (first - head.sigmoid_bias)
            }
            ModelKind::Embedding(head) => head.softmax_scale * first,
        }
    };
    let mut logits: Vec<f64> = logits.iter().map(of).collect();
    let other = prior.and_then(|prior| Some(logits.pop()? + prior));
    Evidence {
        logits,
        other,
        function,
    }
}

/// The logits of several topics as those of one: the log of the mean of their odds, in the unit of a logit, or of an
/// embedding model of its cosine. One topic stays what it is.
///
/// # Panics
/// If an NLI model lacks a logit, and for a classifier, which has no topics.
pub fn fold(kind: &ModelKind, logits: &[PairLogits]) -> PairLogits {
    if let [one] = logits {
        return *one;
    }
    let first = || logits.iter().map(|pair| f64::from(pair.entailment));
    match kind {
        ModelKind::Classifier(_) => unreachable!("a classifier has no background"),
        ModelKind::Embedding(head) => PairLogits {
            entailment: fold_cosines(head.softmax_scale, first()),
            contradiction: None,
            neutral: None,
        },
        ModelKind::Nli(_) => {
            let second = || {
                logits.iter().map(|pair| {
                    let logit = pair.contradiction;
                    f64::from(logit.expect("an NLI model gives a logit to every class"))
                })
            };
            // What multi mode needs is the difference, so that is what is folded.
            let entailment = log_mean(first());
            let apart = log_mean(first().zip(second()).map(|(a, b)| a - b));
            let neutral: Option<Vec<f64>> = logits
                .iter()
                .map(|pair| pair.neutral.map(f64::from))
                .collect();
            PairLogits {
                entailment: single(entailment),
                contradiction: Some(single(entailment - apart)),
                neutral: neutral.map(|all| single(log_mean(all.into_iter()))),
            }
        }
    }
}

/// The cosine that stands for several, of a model with this scale for a softmax: see [`fold`].
pub(crate) fn fold_cosines(scale: f64, cosines: impl Iterator<Item = f64> + Clone) -> f32 {
    single(log_mean(cosines.map(|cosine| scale * cosine)) / scale)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "stored as f32, and exact enough"
)]
fn single(x: f64) -> f32 {
    x as f32
}

/// The log of the mean of eˣ.
fn log_mean(logits: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let (sum, count) = logits.fold((0.0, 0.0), |(sum, count), x| {
        (sum + (x - top).exp(), count + 1.0)
    });
    let mean: f64 = sum / count;
    top + mean.ln()
}

impl Evidence {
    /// Corrects the logits as a fit says, see [`Fitted::apply`]. `labels` are the positions of the labels that the text has
    /// logits for.
    pub fn fitted(
        &self,
        fitted: &Fitted,
        labels: &[usize],
        vector: Option<&TextVector>,
    ) -> Option<Self> {
        let (logits, other) = fitted.apply(labels, &self.logits, self.other, vector)?;
        Some(self.with_logits(logits, other))
    }

    /// Scores under a temperature, and what follows from a threshold. At temperature 1 they are the reference's
    /// to the bit: a division by 1 changes no number.
    ///
    /// # Panics
    /// Without a label: a label set is never empty.
    pub fn scores(&self, temperature: f64, threshold: f64) -> Scores {
        let logits = self.all().map(|x| x / temperature);
        let mut scores: Vec<f64> = match self.function {
            HeadFunction::Sigmoid => logits.map(sigmoid).collect(),
            HeadFunction::Softmax => softmax(logits),
            // No share of 1, so there is no threshold for it either.
            HeadFunction::None => return rank(self.all().collect(), None, f64::NEG_INFINITY),
        };
        let other = self.other.and_then(|_| scores.pop());
        rank(scores, other, threshold)
    }

    /// Returns the logits of the labels, and that of the background.
    pub fn logits(&self) -> (&[f64], Option<f64>) {
        (&self.logits, self.other)
    }

    /// Returns the same with other logits.
    #[must_use]
    pub fn with_logits(&self, logits: Vec<f64>, other: Option<f64>) -> Self {
        Self {
            logits,
            other,
            function: self.function,
        }
    }

    /// Returns the same with a summand on the background's logit; as it is without a background.
    #[must_use]
    pub fn shifted(&self, shift: f64) -> Self {
        self.with_logits(self.logits.clone(), self.other.map(|other| other + shift))
    }

    /// True if the labels compete for the text: a softmax over all of them, rather than a sigmoid for each.
    pub fn is_softmax(&self) -> bool {
        self.function == HeadFunction::Softmax
    }

    /// The labels' logits, and the background's.
    fn all(&self) -> impl Iterator<Item = f64> + Clone {
        self.logits.iter().copied().chain(self.other)
    }

    /// The places of the labels, and of the background after the last of them, the best first; of equals the first.
    pub fn order(&self) -> Vec<usize> {
        let all: Vec<f64> = self.all().collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|a, b| all[*b].total_cmp(&all[*a]));
        order
    }

    /// Minus the log of the probability that scores under a temperature give to the right labels; where none of them
    /// is right, to the background. `None` where they share one softmax and there is no background: none of these has
    /// no place in it; and for a regression, which gives no probability.
    pub fn loss(&self, temperature: f64, right: &[usize]) -> Option<f64> {
        let logits = || self.all().map(|x| x / temperature);
        let is_right = |place: usize| {
            let background = place == self.logits.len();
            (background && right.is_empty()) || right.contains(&place)
        };
        if self.function == HeadFunction::None {
            return None;
        }
        if self.function == HeadFunction::Sigmoid {
            let signed = logits().enumerate();
            let signed = signed.map(|(i, x)| if is_right(i) { -x } else { x });
            return Some(signed.map(softplus).sum());
        }
        // In single mode one label is right, so a second one in the gold table would not count.
        let right = match right.first() {
            Some(right) => self.logits[*right],
            None => self.other?,
        };
        let top = logits().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits().map(|x| (x - top).exp()).sum();
        Some(sum.ln() + top - right / temperature)
    }
}

/// Scores of some labels as scores of all: those that were left out get 0. `labels` are the places of the
/// others, in order.
pub fn spread(some: Scores, labels: &[usize], count: usize) -> Scores {
    if labels.len() == count {
        return some;
    }
    let mut scores = vec![0.0; count];
    for (label, score) in labels.iter().zip(&some.scores) {
        scores[*label] = *score;
    }
    Scores {
        best: labels[some.best],
        scores,
        ..some
    }
}

/// ln(1 + eˣ), for any x.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Entailment against contradiction: the score of one pair by itself.
pub fn entailment_probability(entailment: f32, contradiction: f32) -> f64 {
    sigmoid(f64::from(entailment) - f64::from(contradiction))
}

fn rank(scores: Vec<f64>, other_score: Option<f64>, threshold: f64) -> Scores {
    let mut best = 0;
    for (i, score) in scores.iter().enumerate() {
        // `>` and not `>=`: of equal scores the first label wins, as in the reference.
        if *score > scores[best] {
            best = i;
        }
    }
    let others = scores
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != best)
        .map(|(_, score)| *score);
    let second = others.chain(other_score).reduce(f64::max).unwrap_or(0.0);
    let other = other_score.is_some_and(|score| score > scores[best]);
    let margin = if other {
        second - scores[best]
    } else {
        scores[best] - second
    };
    Scores {
        best,
        margin,
        abstained: other || scores[best] < threshold,
        other,
        other_score,
        scores,
    }
}

/// The softmax of two numbers is the sigmoid of their difference.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softmax(logits: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    // Less the greatest, or exp overflows.
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.map(|x| (x - top).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests;
