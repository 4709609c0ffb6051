//! Logits into scores. Pure, and the one place where scores are made, so that stored logits give the same
//! scores as fresh ones.
//!
//! The reference is the zero-shot pipeline of transformers. Single mode: softmax of the entailment logits
//! over the labels. Multi mode, and a single label in either mode: softmax of (contradiction, entailment) for
//! each label by itself. An embedding model puts its scaled cosine in place of the logit. A temperature divides
//! what stands under the softmax or the sigmoid.

use crate::folder::ModelKind;
use crate::labels::Mode;

/// What a model said of one (text, hypothesis) pair.
///
/// With an embedding model, `entailment` is the cosine of the two vectors, and the others are `None`.
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
    /// One a label, in the order of the set, 0 to 1.
    pub scores: Vec<f64>,
    /// Index of the best; the first among equals.
    pub best: usize,
    /// Best less second best; of one label its score.
    pub margin: f64,
    /// The best lies under the label set's threshold: none of these.
    pub abstained: bool,
}

/// The logits of one text as they become scores, before the temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// One a label, in the order of the set.
    logits: Vec<f64>,
    /// Whether each label stands for itself, or all of them share one softmax.
    each_by_itself: bool,
}

/// What there is for each label, given the logits of one text against each label in the order of the set.
///
/// # Panics
/// If an NLI model lacks a logit.
pub fn evidence(kind: &ModelKind, mode: Mode, logits: &[PairLogits]) -> Evidence {
    let each_by_itself = mode == Mode::Multi || logits.len() == 1;
    let of = |pair: &PairLogits| {
        let first = f64::from(pair.entailment);
        match kind {
            ModelKind::Nli(_) if each_by_itself => {
                let contradiction = pair
                    .contradiction
                    .expect("an NLI model gives a logit to every class");
                first - f64::from(contradiction)
            }
            ModelKind::Nli(_) => first,
            ModelKind::Embedding(head) if each_by_itself => {
                head.sigmoid_scale * (first - head.sigmoid_bias)
            }
            ModelKind::Embedding(head) => head.softmax_scale * first,
        }
    };
    Evidence {
        logits: logits.iter().map(of).collect(),
        each_by_itself,
    }
}

impl Evidence {
    /// Scores under a temperature, and what follows from a threshold. At temperature 1 they are the reference's
    /// to the bit: a division by 1 changes no number.
    ///
    /// # Panics
    /// Without a label: a label set is never empty.
    pub fn scores(&self, temperature: f64, threshold: f64) -> Scores {
        let logits = self.logits.iter().map(|x| x / temperature);
        let scores = if self.each_by_itself {
            logits.map(sigmoid).collect()
        } else {
            softmax(logits)
        };
        rank(scores, threshold)
    }

    /// The places of the labels, the best first; of equals the first.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.logits.len()).collect();
        order.sort_by(|a, b| self.logits[*b].total_cmp(&self.logits[*a]));
        order
    }

    /// Minus the log of the probability that scores under a temperature give to the right labels. `None` where
    /// they share one softmax and none of them is right: that has no place in it.
    pub fn loss(&self, temperature: f64, right: &[usize]) -> Option<f64> {
        let logits = || self.logits.iter().map(|x| x / temperature);
        if self.each_by_itself {
            let signed = logits().enumerate();
            let signed = signed.map(|(i, x)| if right.contains(&i) { -x } else { x });
            return Some(signed.map(softplus).sum());
        }
        let right = right.first()?;
        let top = logits().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits().map(|x| (x - top).exp()).sum();
        Some(sum.ln() + top - self.logits[*right] / temperature)
    }
}

/// Scores of some labels as scores of all: those that were left out get 0. `labels` are the places of the
/// others, in order.
pub fn among(some: Scores, labels: &[usize], count: usize) -> Scores {
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
pub fn opposed(entailment: f32, contradiction: f32) -> f64 {
    sigmoid(f64::from(entailment) - f64::from(contradiction))
}

fn rank(scores: Vec<f64>, threshold: f64) -> Scores {
    let mut best = 0;
    for (i, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = i;
        }
    }
    let others = scores
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != best)
        .map(|(_, score)| *score);
    let margin = scores[best] - others.fold(0.0, f64::max);
    Scores {
        best,
        margin,
        abstained: scores[best] < threshold,
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
mod tests {
    use super::*;
    use crate::folder::{EmbeddingHead, NliClasses};

    const NLI: ModelKind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    });

    fn pairs(values: &[(f32, f32)]) -> Vec<PairLogits> {
        let pair = |&(entailment, contradiction)| PairLogits {
            entailment,
            contradiction: Some(contradiction),
            neutral: Some(0.5),
        };
        values.iter().map(pair).collect()
    }

    fn scores(kind: &ModelKind, mode: Mode, threshold: f64, logits: &[PairLogits]) -> Scores {
        evidence(kind, mode, logits).scores(1.0, threshold)
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn single_mode_is_a_softmax_of_entailment_over_the_labels() {
        let scores = scores(
            &NLI,
            Mode::Single,
            0.7,
            &pairs(&[(1.0, 9.0), (2.0, -9.0), (0.0, 0.0)]),
        );
        let sum = 1f64.exp() + 2f64.exp() + 1.0;
        close(
            &scores.scores,
            &[1f64.exp() / sum, 2f64.exp() / sum, 1.0 / sum],
        );
        assert_eq!((scores.best, scores.abstained), (1, true));
        close(&[scores.margin], &[(2f64.exp() - 1f64.exp()) / sum]);
    }

    #[test]
    fn multi_mode_and_a_single_label_oppose_contradiction_to_entailment() {
        let of = |e: f64, c: f64| e.exp() / (e.exp() + c.exp());
        let multi = scores(&NLI, Mode::Multi, 0.0, &pairs(&[(1.0, 3.0), (2.0, -1.0)]));
        close(&multi.scores, &[of(1.0, 3.0), of(2.0, -1.0)]);
        let alone = scores(&NLI, Mode::Single, 0.0, &pairs(&[(1.0, 3.0)]));
        close(&alone.scores, &[of(1.0, 3.0)]);
        close(&[alone.margin], &alone.scores);
    }

    #[test]
    fn an_embedding_model_scales_its_cosines() {
        let kind = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 21.0,
            sigmoid_scale: 23.5,
            sigmoid_bias: 0.281,
        });
        let cosine = |x| PairLogits {
            entailment: x,
            contradiction: None,
            neutral: None,
        };
        let logits = [cosine(0.5), cosine(0.25)];
        let (a, b) = ((21.0f64 * 0.5).exp(), (21.0f64 * 0.25).exp());
        close(
            &scores(&kind, Mode::Single, 0.0, &logits).scores,
            &[a / (a + b), b / (a + b)],
        );
        let sigmoid = |x: f64| 1.0 / (1.0 + (-23.5 * (x - 0.281)).exp());
        close(
            &scores(&kind, Mode::Multi, 0.0, &logits).scores,
            &[sigmoid(0.5), sigmoid(0.25)],
        );
        close(
            &scores(&kind, Mode::Single, 0.0, &logits[..1]).scores,
            &[sigmoid(0.5)],
        );
    }

    #[test]
    fn huge_logits_stay_finite_and_the_first_of_equals_is_best() {
        let huge = scores(
            &NLI,
            Mode::Single,
            0.0,
            &pairs(&[(3e38, 0.0), (3e38, 0.0), (-3e38, 0.0)]),
        );
        close(&huge.scores, &[0.5, 0.5, 0.0]);
        assert_eq!((huge.best, huge.margin), (0, 0.0));
        let multi = scores(
            &NLI,
            Mode::Multi,
            0.0,
            &pairs(&[(-3e38, 3e38), (3e38, -3e38)]),
        );
        close(&multi.scores, &[0.0, 1.0]);
    }

    #[test]
    fn a_temperature_divides_what_stands_under_softmax_and_sigmoid() {
        let pairs = pairs(&[(1.0, 3.0), (2.0, -1.0)]);
        let (a, b) = (0.5f64.exp(), 1f64.exp());
        let single = evidence(&NLI, Mode::Single, &pairs);
        close(&single.scores(2.0, 0.0).scores, &[a / (a + b), b / (a + b)]);
        let of = |x: f64| 1.0 / (1.0 + (-x).exp());
        let multi = evidence(&NLI, Mode::Multi, &pairs);
        close(&multi.scores(4.0, 0.0).scores, &[of(-0.5), of(0.75)]);
    }

    #[test]
    fn what_is_left_out_has_no_score_and_is_never_best() {
        let all = [(1.0, 9.0), (5.0, 0.0), (2.0, -9.0), (0.0, 0.0)];
        let some = pairs(&[all[0], all[2]]);
        for mode in [Mode::Single, Mode::Multi] {
            let of_some = scores(&NLI, mode, 0.0, &some);
            let spread = among(of_some.clone(), &[0, 2], 4);
            close(
                &spread.scores,
                &[of_some.scores[0], 0.0, of_some.scores[1], 0.0],
            );
            assert_eq!(spread.best, 2);
            close(&[spread.margin], &[of_some.margin]);
        }
        // Scores of nothing are no reason to take a label that was left out.
        let lost = scores(&NLI, Mode::Multi, 0.0, &pairs(&[(-3e38, 3e38)]));
        assert_eq!(among(lost, &[1], 3).best, 1);
        assert_eq!(
            evidence(&NLI, Mode::Single, &pairs(&all)).order(),
            [1, 2, 0, 3]
        );
        assert_eq!(
            evidence(&NLI, Mode::Multi, &pairs(&all)).order(),
            [2, 1, 3, 0]
        );
    }

    #[test]
    fn the_loss_is_minus_the_log_of_what_the_right_labels_get() {
        let pairs = pairs(&[(1.0, 3.0), (2.0, -1.0)]);
        let single = evidence(&NLI, Mode::Single, &pairs);
        let expected = -single.scores(2.0, 0.0).scores[1].ln();
        close(&[single.loss(2.0, &[1]).unwrap()], &[expected]);
        assert_eq!(
            single.loss(2.0, &[]),
            None,
            "no label of a softmax is right"
        );
        let multi = evidence(&NLI, Mode::Multi, &pairs);
        let scores = multi.scores(2.0, 0.0).scores;
        let expected = -(1.0 - scores[0]).ln() - scores[1].ln();
        close(&[multi.loss(2.0, &[1]).unwrap()], &[expected]);
        let expected = -(1.0 - scores[0]).ln() - (1.0 - scores[1]).ln();
        close(&[multi.loss(2.0, &[]).unwrap()], &[expected]);
    }
}
