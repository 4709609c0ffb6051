//! Tests of scores for every kind of model.

use super::*;
use crate::model_kind::{ClassifierHead, NliClasses};
use crate::test_examples::embedding;

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
    Evidence::new(kind, mode, logits, None).scores(1.0, threshold)
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
    assert_eq!((scores.best, scores.outcome), (1, LabelOutcome::Unsure));
    close(&[scores.margin], &[(2f64.exp() - 1f64.exp()) / sum]);
}

#[test]
fn multi_mode_and_a_single_label_use_entailment_against_contradiction() {
    let of = |e: f64, c: f64| e.exp() / (e.exp() + c.exp());
    let multi = scores(&NLI, Mode::Multi, 0.0, &pairs(&[(1.0, 3.0), (2.0, -1.0)]));
    close(&multi.scores, &[of(1.0, 3.0), of(2.0, -1.0)]);
    let alone = scores(&NLI, Mode::Single, 0.0, &pairs(&[(1.0, 3.0)]));
    close(&alone.scores, &[of(1.0, 3.0)]);
    close(&[alone.margin], &alone.scores);
}

#[test]
fn an_embedding_model_scales_its_cosines() {
    let kind = ModelKind::Embedding(embedding(21.0, 23.5, 0.281));
    let logits = [0.5, 0.25].map(PairLogits::single);
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
fn a_classifier_is_scored_as_the_text_classification_pipeline_does() {
    let kind = |labels: &[&str]| {
        ModelKind::Classifier(ClassifierHead {
            labels: labels.iter().map(ToString::to_string).collect(),
            function: HeadFunction::Softmax,
        })
    };
    let logits = [-1.0, -3.0].map(PairLogits::single);
    let two = kind(&["a", "b"]);
    let sum = (-1f64).exp() + (-3f64).exp();
    let single = scores(&two, Mode::Single, 0.0, &logits);
    close(&single.scores, &[(-1f64).exp() / sum, (-3f64).exp() / sum]);
    let multi = scores(&two, Mode::Multi, 0.0, &logits);
    close(&multi.scores, &[sigmoid(-1.0), sigmoid(-3.0)]);
    let raw = scores(&two, Mode::Raw, 0.0, &logits);
    close(&raw.scores, &[-1.0, -3.0]);
    close(&[raw.margin], &[2.0]);
    assert_eq!((raw.best, raw.outcome), (0, LabelOutcome::Label));
    assert_eq!(
        Evidence::new(&two, Mode::Raw, &logits, None).loss(1.0, &[0]),
        None
    );
    // With one label the softmax is 1, unlike for a zero-shot model.
    let one = kind(&["a"]);
    close(
        &scores(&one, Mode::Single, 0.0, &logits[..1]).scores,
        &[1.0],
    );
    let raw = scores(&one, Mode::Raw, 0.0, &logits[..1]);
    close(&raw.scores, &[-1.0]);
    assert!(!raw.is_abstention(), "a negative score is still a label");
}

#[test]
fn huge_logits_give_finite_scores_and_the_first_label_wins_a_tie() {
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
fn a_temperature_divides_the_logits() {
    let pairs = pairs(&[(1.0, 3.0), (2.0, -1.0)]);
    let (a, b) = (0.5f64.exp(), 1f64.exp());
    let single = Evidence::new(&NLI, Mode::Single, &pairs, None);
    close(&single.scores(2.0, 0.0).scores, &[a / (a + b), b / (a + b)]);
    let of = |x: f64| 1.0 / (1.0 + (-x).exp());
    let multi = Evidence::new(&NLI, Mode::Multi, &pairs, None);
    close(&multi.scores(4.0, 0.0).scores, &[of(-0.5), of(0.75)]);
}

#[test]
fn skipped_labels_score_zero_and_are_never_best() {
    let all = [(1.0, 9.0), (5.0, 0.0), (2.0, -9.0), (0.0, 0.0)];
    let some = pairs(&[all[0], all[2]]);
    for mode in [Mode::Single, Mode::Multi] {
        let of_some = scores(&NLI, mode, 0.0, &some);
        let spread = spread(&of_some, &[0, 2], 4);
        close(
            &spread.scores,
            &[of_some.scores[0], 0.0, of_some.scores[1], 0.0],
        );
        assert_eq!(spread.best, 2);
        close(&[spread.margin], &[of_some.margin]);
    }
    // A score of 0 must not select a skipped label.
    let lost = scores(&NLI, Mode::Multi, 0.0, &pairs(&[(-3e38, 3e38)]));
    assert_eq!(spread(&lost, &[1], 3).best, 1);
    assert_eq!(
        Evidence::new(&NLI, Mode::Single, &pairs(&all), None).order(),
        [1, 2, 0, 3]
    );
    assert_eq!(
        Evidence::new(&NLI, Mode::Multi, &pairs(&all), None).order(),
        [2, 1, 3, 0]
    );
}

#[test]
fn a_background_is_scored_like_one_more_label() {
    let three = pairs(&[(1.0, 3.0), (2.0, -1.0), (2.5, 0.0)]);
    let prior = 0.25;
    let single = Evidence::new(&NLI, Mode::Single, &three, Some(prior)).scores(1.0, 0.0);
    let sum = 1f64.exp() + 2f64.exp() + 2.75f64.exp();
    close(&single.scores, &[1f64.exp() / sum, 2f64.exp() / sum]);
    close(&[single.other_score.unwrap()], &[2.75f64.exp() / sum]);
    assert_eq!((single.best, single.outcome), (1, LabelOutcome::Other));
    assert!(single.margin > 0.0);
    let multi = Evidence::new(&NLI, Mode::Multi, &three, Some(prior));
    assert_eq!(multi.order(), [1, 2, 0]);
    let multi = multi.scores(1.0, 0.0);
    close(&[multi.scores[1]], &[sigmoid(3.0)]);
    close(&[multi.other_score.unwrap()], &[sigmoid(2.75)]);
    close(&[multi.margin], &[sigmoid(3.0) - sigmoid(2.75)]);
    assert_eq!(multi.outcome, LabelOutcome::Label);
    // A single label competes with the background in a softmax.
    let one = Evidence::new(&NLI, Mode::Single, &three[1..], Some(prior)).scores(1.0, 0.0);
    close(&one.scores, &[sigmoid(2.0 - 2.75)]);
    let unsure = Evidence::new(&NLI, Mode::Single, &three, Some(-9.0)).scores(1.0, 0.9);
    assert_eq!(unsure.outcome, LabelOutcome::Unsure);
    let evidence = Evidence::new(&NLI, Mode::Single, &three, Some(prior));
    close(
        &[evidence.loss(1.0, &[]).unwrap()],
        &[-single.other_score.unwrap().ln()],
    );
}

#[test]
fn topics_fold_to_the_mean_of_their_odds() {
    let two = pairs(&[(1.0, 3.0), (2.0, -1.0)]);
    assert_eq!(fold(&NLI, &two[..1]), two[0]);
    let folded = fold(&NLI, &two);
    let mean = |a: f64, b: f64| f64::midpoint(a.exp(), b.exp()).ln();
    let near = |found: f32, expected: f64| {
        assert!(
            (f64::from(found) - expected).abs() < 1e-6,
            "{found} {expected}"
        );
    };
    near(folded.entailment, mean(1.0, 2.0));
    near(
        folded.entailment - folded.contradiction.unwrap(),
        mean(-2.0, 3.0),
    );
    let kind = ModelKind::Embedding(embedding(21.0, 23.5, 0.281));
    let folded = fold(&kind, &two);
    near(folded.entailment, mean(21.0, 42.0) / 21.0);
    assert_eq!(folded.contradiction, None);
}

#[test]
fn the_loss_is_the_negative_log_likelihood_of_the_right_labels() {
    let pairs = pairs(&[(1.0, 3.0), (2.0, -1.0)]);
    let single = Evidence::new(&NLI, Mode::Single, &pairs, None);
    let expected = -single.scores(2.0, 0.0).scores[1].ln();
    close(&[single.loss(2.0, &[1]).unwrap()], &[expected]);
    assert_eq!(
        single.loss(2.0, &[]),
        None,
        "a softmax without a right label or a background has no loss"
    );
    let multi = Evidence::new(&NLI, Mode::Multi, &pairs, None);
    let scores = multi.scores(2.0, 0.0).scores;
    let expected = -(1.0 - scores[0]).ln() - scores[1].ln();
    close(&[multi.loss(2.0, &[1]).unwrap()], &[expected]);
    let expected = -(1.0 - scores[0]).ln() - (1.0 - scores[1]).ln();
    close(&[multi.loss(2.0, &[]).unwrap()], &[expected]);
}

#[test]
fn evidence_is_recovered_from_scores() {
    let logits = pairs(&[(3.0, -1.0), (0.5, 2.0), (-40.0, 1.0), (1.0, 0.0)]);
    for (mode, prior) in [
        (Mode::Single, None),
        (Mode::Single, Some(0.7)),
        (Mode::Multi, None),
    ] {
        let evidence = Evidence::new(&NLI, mode, &logits, prior);
        let stored = evidence.scores(1.5, 0.0).scores;
        let recovered = Evidence::of_scores(&NLI, mode, &stored, prior.is_some(), 1.5).unwrap();
        for temperature in [0.5, 1.5, 4.0] {
            let [found, expected] = [&recovered, &evidence].map(|one| one.scores(temperature, 0.3));
            close(&found.scores, &expected.scores);
            assert_eq!(
                (found.best, found.outcome),
                (expected.best, expected.outcome)
            );
        }
    }
    assert!(Evidence::of_scores(&NLI, Mode::Multi, &[0.5], true, 1.0).is_none());
}
