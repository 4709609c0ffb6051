//! Tests fits with known solutions and inputs without a solution.

use std::sync::Arc;

use super::*;
use topicmill_core::model_kind::EmbeddingHead;
use topicmill_core::score::Evidence;
use topicmill_core::{Mode, ModelKind, PairLogits};

/// Returns a row with these softmax logits; with a background, the last one is the background's.
fn row(key: usize, logits: &[f32], right: &[usize], prior: Option<f64>) -> GoldEvidence {
    let kind = ModelKind::Embedding(EmbeddingHead {
        output: "v".into(),
        softmax_scale: 1.0,
        sigmoid_scale: 1.0,
        sigmoid_bias: 0.0,
        learned: Arc::default(),
    });
    let pairs: Vec<PairLogits> = logits.iter().map(|x| PairLogits::single(*x)).collect();
    GoldEvidence {
        text_hash: TextHash::new(&key.to_string()),
        evidence: Evidence::new(&kind, Mode::Single, &pairs, prior),
        right: right.to_vec(),
        ties: Vec::new(),
        weight: 1.0,
    }
}

fn refs(rows: &[GoldEvidence]) -> Vec<&GoldEvidence> {
    rows.iter().collect()
}

fn temperature_of(rows: &[GoldEvidence]) -> Option<f64> {
    fit_scale(&refs(rows)).map(|scale| scale.temperature)
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
}

/// Returns `all` rows with two labels; the first label is correct in `right` of them.
fn two_labels(logit: f32, right: usize, all: usize) -> Vec<GoldEvidence> {
    (0..all)
        .map(|i| row(i, &[logit, 0.0], &[usize::from(i >= right)], None))
        .collect()
}

#[test]
fn the_temperature_makes_the_score_equal_the_precision() {
    // 80 of 100 right at a logit of 4: sigmoid(4 / T) = 0.8, so T = 4 / ln 4 = 2.8854.
    close(temperature_of(&two_labels(4.0, 80, 100)).unwrap(), 2.8854);
    // 60 of 100 at a logit of 0.1: T = 0.1 / ln 1.5 = 0.2466.
    close(temperature_of(&two_labels(0.1, 60, 100)).unwrap(), 0.2466);
    // If all rows are right, no temperature is too low.
    let lowest = temperature_of(&two_labels(1.0, 50, 50)).unwrap();
    close(lowest, TEMPERATURES.0);
}

#[test]
fn out_of_scope_rows_inform_a_single_label_but_not_a_softmax() {
    // One label, a logit of 2, right in 70 of 100: T = 2 / ln(7/3) = 2.3604.
    let rows: Vec<GoldEvidence> = (0..100)
        .map(|i| row(i, &[2.0], if i < 70 { &[0] } else { &[] }, None))
        .collect();
    close(temperature_of(&rows).unwrap(), 2.3604);
    assert_eq!(temperature_of(&[row(0, &[1.0, 2.0], &[], None)]), None);
    assert_eq!(temperature_of(&[]), None);
}

/// Returns twenty rows with scores from 0.5 to 0.98. Every second row of the lower ten is correct, and all of the upper
/// ten are.
fn ladder() -> Vec<GoldEvidence> {
    (0..20)
        .map(|i| {
            let logit = i as f32 * 0.2;
            let right = i >= 10 || i % 2 == 1;
            row(i, &[logit, 0.0], &[usize::from(!right)], None)
        })
        .collect()
}

#[test]
fn the_threshold_is_the_smallest_that_reaches_the_target_precision() {
    let rows = ladder();
    let threshold =
        |rows: &[GoldEvidence], wanted| fit_threshold(&refs(rows), Setting::UNCHANGED, wanted);
    let score = |i: f64| 1.0 / (1.0 + (-0.2 * i).exp());
    // Rows 0, 2, 4, 6 and 8 are wrong. The precision of all 20 rows is 15/20 = 0.75; from row 1 on: 15/19 = 0.789; from
    // row 3 on: 14/17 = 0.824; from row 5 on: 13/15 = 0.867; from row 7 on: 12/13 = 0.923; from row 9 on: 11/11.
    for (wanted, from) in [(0.78, 1.0), (0.8, 3.0), (0.85, 5.0), (0.9, 7.0), (1.0, 9.0)] {
        let found = threshold(&rows, wanted).unwrap();
        let is_between = score(from - 1.0) < found && found <= score(from);
        assert!(is_between, "{wanted}: {found}");
    }
    assert_eq!(threshold(&rows, 0.75), Some(0.0));
    assert_eq!(threshold(&rows[..9], 0.1), None, "too few rows");
    assert_eq!(threshold(&two_labels(1.0, 0, 50), 0.5), None);
    // Rows with equal scores pass a threshold together or not at all.
    assert_eq!(threshold(&two_labels(1.0, 25, 50), 0.6), None);
}

#[test]
fn a_short_number_is_between_its_bounds() {
    assert_eq!(short_between(0.4, 0.6).to_string(), "0.5");
    assert_eq!(short_between(0.123_451, 0.123_459).to_string(), "0.123455");
    let (low, high) = (0.5, 0.5 + f64::EPSILON);
    assert_eq!(short_between(low, high).to_bits(), high.to_bits());
}

#[test]
fn equal_texts_are_held_out_together() {
    // The labels of one fold contradict the labels of the others.
    let mut rows = two_labels(3.0, 90, 100);
    for row in &mut rows {
        let right = fold_of(&row.text_hash) != 0;
        row.right = vec![usize::from(!right)];
    }
    let wrong = rows
        .iter()
        .filter(|row| fold_of(&row.text_hash) == 0)
        .count();
    let found = calibrate(&rows, Setting::UNCHANGED, 0.5).unwrap();
    assert!(wrong > 10, "{wrong}");
    // A fit to the other folds is confident, so its loss on the contradicting fold is high.
    assert!(found.held_out.loss > 2.0 * found.after.loss, "{found:?}");
    assert_eq!(found.held_out.accuracy, found.after.accuracy);
}

#[test]
fn calibration_error_and_bins_match_known_values() {
    // At a logit of 4 the score is 0.982, and 80 of 100 are right.
    let rows = two_labels(4.0, 80, 100);
    let found = calibrate(&rows, Setting::UNCHANGED, 0.75).unwrap();
    let score = 1.0 / (1.0 + (-4f64).exp());
    close(found.before.calibration_error, score - 0.8);
    close(found.before.bins[9].mean_score, score);
    assert_eq!(found.before.bins[9].right, Proportion::new(80, 100));
    assert_eq!(found.before.bins[0].right.all, 0);
    let loss = -(0.8 * score.ln() + 0.2 * (1.0 - score).ln());
    close(found.before.loss, loss);
    close(found.after.calibration_error, 0.0);
    close(found.after.loss, -(0.8 * 0.8f64.ln() + 0.2 * 0.2f64.ln()));
    assert_eq!(found.threshold, Some(0.0));
    assert_eq!(found.after.coverage, Proportion::new(100, 100));
    assert_eq!(found.held_out.accuracy, Proportion::new(80, 100));
    assert_eq!(
        calibrate(&rows, Setting::UNCHANGED, 0.85)
            .unwrap()
            .threshold,
        None
    );
}

#[test]
fn a_background_shift_calibrates_assigned_labels() {
    // The label has a logit of 2 and the background has a logit of 0. The label is correct in 30 of 100 rows; the other
    // rows are out of scope. At temperature 1 and a shift of `s`, the label's score is sigmoid(2 - s) = 0.3, so s = 2 -
    // ln(3/7).
    // Rows with a logit of 4 determine the temperature: a share of sigmoid(4 - s) is correct.
    let shift = 2.0 - (3.0f64 / 7.0).ln();
    let likely = 1.0 / (1.0 + (shift - 4.0).exp());
    let rows = (0..1000_u16).map(|i| {
        let (logit, share) = [(2.0, 0.3), (4.0, likely)][usize::from(i % 2)];
        let is_right = f64::from(i / 2) < share * 500.0;
        let right: &[usize] = if is_right { &[0] } else { &[] };
        row(i.into(), &[logit, 0.0], right, Some(0.0))
    });
    let rows: Vec<GoldEvidence> = rows.collect();
    let found = calibrate(&rows, Setting::UNCHANGED, 0.1).unwrap();
    assert!((found.shift - shift).abs() < 0.02, "{found:?}");
    assert!((found.temperature - 1.0).abs() < 0.02, "{found:?}");
    // Before the fit, every row gets the label, and half of the labels are wrong.
    assert!(found.before.calibration_error > 0.3, "{found:?}");
    assert!(found.held_out.calibration_error < 0.05, "{found:?}");
    assert_eq!(found.before.coverage.of, 1000);
    // Without a row that is out of scope, nothing limits how far the shift falls.
    let in_scope = rows.into_iter().filter(|row| !row.right.is_empty());
    let found = calibrate(&in_scope.collect::<Vec<_>>(), Setting::UNCHANGED, 0.1).unwrap();
    assert_eq!(found.shift.to_bits(), 0.0f64.to_bits());
}

#[test]
fn accuracy_counts_posts_below_the_threshold_as_without_a_label() {
    let mut rows = ladder();
    let judge = |rows: &[GoldEvidence], threshold: f64| {
        let setting = Setting {
            threshold,
            ..Setting::UNCHANGED
        };
        judge(rows.iter().map(|row| (row, setting)))
    };
    let median = 1.0 / (1.0 + (-1.9f64).exp());
    // Of the lower ten, five are right; without a label, none is.
    assert_eq!(judge(&rows, 0.0).accuracy, Proportion::new(15, 20));
    assert_eq!(judge(&rows, median).accuracy, Proportion::new(10, 20));
    // A post that is out of scope rightly gets no label.
    rows[0].right.clear();
    assert_eq!(judge(&rows, median).accuracy, Proportion::new(11, 20));
    // Posts on which annotators disagree count as wrong, or as right if any answer is.
    rows[0].ties = vec![vec![0]];
    rows[19].ties = vec![vec![1], vec![]];
    rows[1].ties = vec![vec![1]];
    let found = judge(&rows, median).accuracy;
    let (least, most) = (Proportion::new(9, 20), Proportion::new(11, 20));
    assert_eq!(found.share, least.share);
    assert_eq!(found.share_if_right, most.share);
    assert_eq!(found.low.to_bits(), least.low.to_bits());
    assert_eq!(found.high.to_bits(), most.high.to_bits());
}
