//! Logits into scores. Pure, and the one place where scores are made, so that stored logits give the same
//! scores as fresh ones.
//!
//! The reference is the zero-shot pipeline of transformers. Single mode: softmax of the entailment logits
//! over the labels. Multi mode, and a single label in either mode: softmax of (contradiction, entailment) for
//! each label by itself. An embedding model puts its scaled cosine in place of the logit.

use crate::domain::{Mode, PairLogits, Scores};
use crate::model_folder::ModelKind;

/// Scores of one text, given its logits against each label in the order of the set.
///
/// # Panics
/// Without a label: a label set is never empty.
pub fn scores(kind: &ModelKind, mode: Mode, threshold: f64, logits: &[PairLogits]) -> Scores {
    let each_by_itself = mode == Mode::Multi || logits.len() == 1;
    let scores: Vec<f64> = match kind {
        ModelKind::Nli(_) if each_by_itself => logits
            .iter()
            .map(|pair| {
                let contradiction = pair
                    .contradiction
                    .expect("an NLI model gives a logit to every class");
                opposed(pair.entailment, contradiction)
            })
            .collect(),
        ModelKind::Nli(_) => softmax(logits.iter().map(|pair| f64::from(pair.entailment))),
        ModelKind::Embedding(head) if each_by_itself => logits
            .iter()
            .map(|pair| {
                sigmoid(head.sigmoid_scale * (f64::from(pair.entailment) - head.sigmoid_bias))
            })
            .collect(),
        ModelKind::Embedding(head) => softmax(
            logits
                .iter()
                .map(|pair| head.softmax_scale * f64::from(pair.entailment)),
        ),
    };
    rank(scores, threshold)
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
    use crate::model_folder::{EmbeddingHead, NliClasses};

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
}
