//! Fits a temperature and a threshold to rows of which the right label is known. Pure.
//!
//! In go the evidence for each row and its right labels (none: none of these), and the precision that is
//! wanted; out come the temperature under which the scores are likeliest, the smallest threshold above which
//! that share of the labels is right, and how good scores and labels are before and after. Whoever fits and
//! judges on the same rows fools himself, so the same is told of rows that were held out of the fit, too.

use serde::Serialize;

use crate::domain::TextHash;
use topicmill_score::score::Evidence;

/// Temperatures that are tried; beyond them the rows say nothing about it.
pub const TEMPERATURES: (f64, f64) = (0.05, 20.0);
/// A threshold that fewer rows reach is no threshold but a lucky row.
pub const FEWEST_ANSWERED: usize = 10;
/// Parts that the rows are divided into; each is judged by a fit to the others.
pub const FOLDS: u64 = 5;
/// Bins of scores, of equal width.
pub const BINS: usize = 10;
/// The normal distribution has 95 % within this many standard deviations.
pub(super) const Z95: f64 = 1.959_963_984_540_054;

/// A row of which the right labels are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Equal texts are held out together.
    pub text_hash: TextHash,
    /// What the model says of it.
    pub evidence: Evidence,
    /// Positions of the right labels in their set; empty for none of these.
    pub right: Vec<usize>,
}

/// What turns evidence into a label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Setting {
    /// Divides logits.
    pub temperature: f64,
    /// Below it there is no label.
    pub threshold: f64,
}

/// So many of so many, and where the true share lies with 95 % certainty (Wilson).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// How many.
    pub of: usize,
    /// Out of how many.
    pub all: usize,
    /// The one by the other; `None` of nothing.
    pub share: Option<f64>,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Share {
    /// The share of `of` in `all`.
    pub fn new(of: usize, all: usize) -> Self {
        if all == 0 {
            let (share, low, high) = (None, 0.0, 1.0);
            return Self {
                of,
                all,
                share,
                low,
                high,
            };
        }
        // Wilson's interval: the usual one has no width where all or none are right, which is common with few answers.
        let (n, z2) = (float(all), Z95 * Z95);
        let p = float(of) / n;
        let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
        Self {
            of,
            all,
            share: Some(p),
            low: (middle - half).max(0.0),
            high: (middle + half).min(1.0),
        }
    }
}

/// Rows whose best score lies in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// Lower end.
    pub from: f64,
    /// Upper end.
    pub to: f64,
    /// Mean of the best scores; 0 without rows.
    pub mean_score: f64,
    /// Rows whose best label is right.
    pub right: Share,
}

/// How good scores and labels are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Rows whose best label is right, whatever the threshold; or that are other, and have none of the labels.
    pub accuracy: Share,
    /// Rows that got a label and got a right one, among those that got one.
    pub precision: Share,
    /// Rows that got a label.
    pub coverage: Share,
    /// Rows that got their right label, among those that have one.
    pub found: Share,
    /// Mean of minus the log of the probability of the right labels.
    pub loss: f64,
    /// Expected calibration error: by how much score and accuracy differ, on average.
    pub ece: f64,
    /// The best scores, in bins.
    pub bins: Vec<Bin>,
}

/// What came of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Fitted; its threshold is `None` where no threshold gives the precision that is wanted.
    pub temperature: f64,
    /// The smallest that gives the precision that is wanted.
    pub threshold: Option<f64>,
    /// As it was.
    pub before: Quality,
    /// With what was fitted, on the rows that it was fitted to.
    pub after: Quality,
    /// The same, each row judged by a fit that did not see it: what to expect of new posts.
    pub held_out: Quality,
}

/// Fits temperature and threshold, and judges them. `None` without a row that has a right label.
pub fn calibrate(rows: &[Known], before: Setting, wanted: f64) -> Option<Calibration> {
    let all: Vec<&Known> = rows.iter().collect();
    let temperature = fit_temperature(&all)?;
    let threshold = fit_threshold(&all, temperature, wanted);
    let judge_all = |setting| judge(rows.iter().map(|row| (row, setting)));
    let held_out = (0..FOLDS).flat_map(|fold| {
        let (out, kept): (Vec<&Known>, Vec<&Known>) =
            all.iter().partition(|row| fold_of(row) == fold);
        let temperature = fit_temperature(&kept).unwrap_or(before.temperature);
        let threshold = fit_threshold(&kept, temperature, wanted);
        let setting = setting(temperature, threshold);
        out.into_iter().map(move |row| (row, setting))
    });
    Some(Calibration {
        temperature,
        threshold,
        before: judge_all(before),
        after: judge_all(setting(temperature, threshold)),
        held_out: judge(held_out),
    })
}

/// The same rows as if there were no background.
pub fn without_background(rows: &[Known]) -> Vec<Known> {
    let plain = |row: &Known| Known {
        evidence: row.evidence.without_other(),
        ..row.clone()
    };
    rows.iter().map(plain).collect()
}

/// Without a threshold that would do nothing gets a label.
fn setting(temperature: f64, threshold: Option<f64>) -> Setting {
    Setting {
        temperature,
        // No threshold reaches the precision that is wanted, so no label is given.
        threshold: threshold.unwrap_or(f64::INFINITY),
    }
}

fn fold_of(row: &Known) -> u64 {
    let head = &row.text_hash.as_bytes()[..8];
    // By the hash of the text: equal texts are in one fold, and nobody is judged by what he learned from.
    u64::from_be_bytes(head.try_into().expect("eight of sixteen bytes")) % FOLDS
}

/// The temperature under which the right labels are likeliest, to four decimals; `None` where no row tells.
///
/// The loss is convex in 1/T, so on the way from the one end to the other it falls and then rises, once: a
/// golden-section search finds the place.
pub fn fit_temperature(rows: &[&Known]) -> Option<f64> {
    let loss = |log: f64| -> Option<f64> {
        let losses = rows
            .iter()
            .filter_map(|row| row.evidence.loss(log.exp(), &row.right));
        losses.reduce(|a, b| a + b)
    };
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    // By the logarithm, because halving a temperature changes as much as doubling it.
    let (mut low, mut high) = (TEMPERATURES.0.ln(), TEMPERATURES.1.ln());
    let (mut left, mut right) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_left, mut at_right) = (loss(left)?, loss(right)?);
    while high - low > 1e-7 {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - ratio * (high - low);
            at_left = loss(left)?;
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + ratio * (high - low);
            at_right = loss(right)?;
        }
    }
    // Four digits: people copy this number into a file, and more of them change no label.
    Some((f64::midpoint(low, high).exp() * 1e4).round() / 1e4)
}

/// The smallest threshold at which the share `wanted` of the labels given is right; `None` where there is none
/// that [`FEWEST_ANSWERED`] rows reach.
pub fn fit_threshold(rows: &[&Known], temperature: f64, wanted: f64) -> Option<f64> {
    let mut best: Vec<(f64, bool)> = rows
        .iter()
        .filter_map(|row| {
            let (score, right, given) = best_of(row, temperature, 0.0);
            // What is other gets no label under any threshold.
            given.then_some((score, right))
        })
        .collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut right = best.iter().filter(|(_, right)| *right).count();
    for (i, (score, is_right)) in best.iter().enumerate() {
        let below = i.checked_sub(1).map(|i| best[i].0);
        // Rows of one score pass a threshold together.
        let first_of_score = below.is_none_or(|below| below < *score);
        let answered = best.len() - i;
        if answered < FEWEST_ANSWERED {
            return None;
        }
        if first_of_score && float(right) >= wanted * float(answered) {
            return Some(below.map_or(0.0, |below| short_between(below, *score)));
        }
        right -= usize::from(*is_right);
    }
    None
}

/// A number of few digits above `low` and not above `high`, near their middle.
fn short_between(low: f64, high: f64) -> f64 {
    let middle = f64::midpoint(low, high);
    (2..=12)
        .map(|digits| {
            let scale = 10f64.powi(digits);
            (middle * scale).round() / scale
        })
        .find(|short| low < *short && *short <= high)
        .unwrap_or(high)
}

/// Best score, whether it is of the right label, and whether a label is given.
fn best_of(row: &Known, temperature: f64, threshold: f64) -> (f64, bool, bool) {
    let scores = row.evidence.scores(temperature, threshold);
    // Other is the right outcome of a row that has none of the labels.
    match scores.other_score.filter(|_| scores.other) {
        Some(score) => (score, row.right.is_empty(), false),
        None => (
            scores.scores[scores.best],
            row.right.contains(&scores.best),
            !scores.abstained,
        ),
    }
}

/// How good rows come out, each under a setting.
fn judge<'a>(rows: impl Iterator<Item = (&'a Known, Setting)>) -> Quality {
    let (mut all, mut right, mut given, mut given_right, mut in_scope) = (0, 0, 0, 0, 0);
    let (mut loss, mut told) = (0.0, 0);
    let mut best = Vec::new();
    for (row, setting) in rows {
        let (score, is_right, is_given) = best_of(row, setting.temperature, setting.threshold);
        all += 1;
        in_scope += usize::from(!row.right.is_empty());
        right += usize::from(is_right);
        given += usize::from(is_given);
        given_right += usize::from(is_given && is_right);
        if let Some(of_row) = row.evidence.loss(setting.temperature, &row.right) {
            loss += of_row;
            told += 1;
        }
        best.push((score, is_right));
    }
    let (ece, bins) = reliability(best.into_iter());
    Quality {
        accuracy: Share::new(right, all),
        precision: Share::new(given_right, given),
        coverage: Share::new(given, all),
        found: Share::new(given_right, in_scope),
        loss: loss / float(told).max(1.0),
        ece,
        bins,
    }
}

/// Scores with whether their labels are right, in bins; and by how much the two differ, on average.
pub fn reliability(rows: impl Iterator<Item = (f64, bool)>) -> (f64, Vec<Bin>) {
    let mut all = 0;
    let mut bins = [(0.0, 0, 0); BINS];
    for (score, is_right) in rows {
        all += 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a score is 0 to 1"
        )]
        let bin = &mut bins[((score * float(BINS)) as usize).min(BINS - 1)];
        *bin = (bin.0 + score, bin.1 + 1, bin.2 + usize::from(is_right));
    }
    let apart =
        |(sum, n, right): &(f64, usize, usize)| (sum - float(*right)).abs() * f64::from(*n > 0);
    let ece = bins.iter().map(apart).sum::<f64>() / float(all).max(1.0);
    let bins = bins.iter().enumerate().map(|(i, (sum, n, right))| Bin {
        from: float(i) / float(BINS),
        to: float(i + 1) / float(BINS),
        mean_score: sum / float(*n).max(1.0),
        right: Share::new(*right, *n),
    });
    (ece, bins.collect())
}

#[expect(clippy::cast_precision_loss, reason = "counts of rows")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use topicmill_score::folder::{EmbeddingHead, ModelKind};
    use topicmill_score::score::evidence;
    use topicmill_score::{Mode, PairLogits};

    /// A row whose logits under the softmax are these.
    fn row(key: usize, logits: &[f32], right: &[usize], mode: Mode) -> Known {
        let kind = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 1.0,
            sigmoid_scale: 1.0,
            sigmoid_bias: 0.0,
            learned: Arc::default(),
        });
        let pairs: Vec<PairLogits> = logits
            .iter()
            .map(|x| PairLogits {
                entailment: *x,
                contradiction: None,
                neutral: None,
            })
            .collect();
        Known {
            text_hash: TextHash::of(&key.to_string()),
            evidence: evidence(&kind, mode, &pairs),
            right: right.to_vec(),
        }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
    }

    /// Rows of which the first of two labels is right in `right` of `all`.
    fn two_labels(logit: f32, right: usize, all: usize) -> Vec<Known> {
        (0..all)
            .map(|i| row(i, &[logit, 0.0], &[usize::from(i >= right)], Mode::Single))
            .collect()
    }

    #[test]
    fn the_temperature_makes_the_score_what_the_share_of_right_labels_is() {
        // 80 of 100 right at a logit of 4: sigmoid(4 / T) = 0.8, so T = 4 / ln 4 = 2.8854.
        let rows = two_labels(4.0, 80, 100);
        let all: Vec<&Known> = rows.iter().collect();
        close(fit_temperature(&all).unwrap(), 2.8854);
        // 60 of 100 at a logit of 0.1: T = 0.1 / ln 1.5 = 0.2466.
        let rows = two_labels(0.1, 60, 100);
        close(
            fit_temperature(&rows.iter().collect::<Vec<_>>()).unwrap(),
            0.2466,
        );
    }

    #[test]
    fn a_single_label_learns_from_none_of_these_and_a_softmax_does_not() {
        // One label, a logit of 2, right in 70 of 100: T = 2 / ln(7/3) = 2.3604.
        let rows: Vec<Known> = (0..100)
            .map(|i| row(i, &[2.0], if i < 70 { &[0] } else { &[] }, Mode::Single))
            .collect();
        close(
            fit_temperature(&rows.iter().collect::<Vec<_>>()).unwrap(),
            2.3604,
        );
        let none = [row(0, &[1.0, 2.0], &[], Mode::Single)];
        assert_eq!(fit_temperature(&[&none[0]]), None);
        assert_eq!(fit_temperature(&[]), None);
    }

    #[test]
    fn rows_that_are_all_right_end_at_the_edge() {
        let rows = two_labels(1.0, 50, 50);
        close(
            fit_temperature(&rows.iter().collect::<Vec<_>>()).unwrap(),
            TEMPERATURES.0,
        );
    }

    /// Twenty rows of two labels: of scores 0.5 to 0.98 the ten lower ones right every other time.
    fn ladder() -> Vec<Known> {
        (0..20)
            .map(|i| {
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let logit = i as f32 * 0.2;
                let right = i >= 10 || i % 2 == 1;
                row(i, &[logit, 0.0], &[usize::from(!right)], Mode::Single)
            })
            .collect()
    }

    #[test]
    fn the_threshold_is_the_smallest_with_the_precision_that_is_wanted() {
        let rows = ladder();
        let all: Vec<&Known> = rows.iter().collect();
        let score = |i: f64| 1.0 / (1.0 + (-0.2 * i).exp());
        // Wrong are 0, 2, 4, 6 and 8. All 20: 15 right, 0.75. From 1 on 15 of 19 = 0.789; from 3 on 14 of 17 =
        // 0.824; from 5 on 13 of 15 = 0.867; from 7 on 12 of 13 = 0.923; from 9 on 11 of 11.
        for (wanted, from) in [(0.78, 1.0), (0.8, 3.0), (0.85, 5.0), (0.9, 7.0), (1.0, 9.0)] {
            let threshold = fit_threshold(&all, 1.0, wanted).unwrap();
            assert!(
                score(from - 1.0) < threshold && threshold <= score(from),
                "{wanted}: {threshold}"
            );
        }
        assert_eq!(fit_threshold(&all, 1.0, 0.75), Some(0.0));
        assert_eq!(fit_threshold(&all[..9], 1.0, 0.1), None, "too few rows");
        let wrong = two_labels(1.0, 0, 50);
        assert_eq!(
            fit_threshold(&wrong.iter().collect::<Vec<_>>(), 1.0, 0.5),
            None
        );
        // All of one score: they pass together or not at all.
        let even = two_labels(1.0, 25, 50);
        assert_eq!(
            fit_threshold(&even.iter().collect::<Vec<_>>(), 1.0, 0.6),
            None
        );
    }

    #[test]
    fn a_short_number_stays_in_its_gap() {
        assert_eq!(short_between(0.4, 0.6).to_string(), "0.5");
        assert_eq!(short_between(0.123_451, 0.123_459).to_string(), "0.123455");
        let (low, high) = (0.5, 0.5 + f64::EPSILON);
        assert_eq!(short_between(low, high).to_bits(), high.to_bits());
    }

    #[test]
    fn shares_have_wilsons_interval() {
        let share = Share::new(8, 10);
        close(share.low, 0.490_16);
        close(share.high, 0.943_32);
        assert_eq!(share.share, Some(0.8));
        let all = Share::new(10, 10);
        close(all.low, 0.722_47);
        close(all.high, 1.0);
        let none = Share::new(0, 0);
        assert_eq!((none.share, none.low, none.high), (None, 0.0, 1.0));
    }

    #[test]
    fn scores_are_judged_in_bins() {
        // At a logit of 4 the score is 0.982, and 80 of 100 are right.
        let rows = two_labels(4.0, 80, 100);
        let before = Setting {
            temperature: 1.0,
            threshold: 0.0,
        };
        let found = calibrate(&rows, before, 0.75).unwrap();
        let score = 1.0 / (1.0 + (-4f64).exp());
        close(found.before.ece, score - 0.8);
        close(found.before.bins[9].mean_score, score);
        assert_eq!(found.before.bins[9].right, Share::new(80, 100));
        assert_eq!(found.before.bins[0].right.all, 0);
        close(
            found.before.loss,
            -(0.8 * score.ln() + 0.2 * (1.0 - score).ln()),
        );
        close(found.after.ece, 0.0);
        close(found.after.loss, -(0.8 * 0.8f64.ln() + 0.2 * 0.2f64.ln()));
        assert_eq!(found.threshold, Some(0.0));
        assert_eq!(found.after.coverage, Share::new(100, 100));
        assert_eq!(found.held_out.accuracy, Share::new(80, 100));
        assert_eq!(calibrate(&rows, before, 0.85).unwrap().threshold, None);
    }

    #[test]
    fn rows_are_held_out_with_their_equals_and_judged_by_a_fit_to_the_others() {
        // One text a fold is right and the others are not: whoever sees only the others must call it unlikely.
        let mut rows = two_labels(3.0, 90, 100);
        for row in &mut rows {
            let right = fold_of(row) != 0;
            row.right = vec![usize::from(!right)];
        }
        let wrong = rows.iter().filter(|row| fold_of(row) == 0).count();
        let before = Setting {
            temperature: 1.0,
            threshold: 0.0,
        };
        let found = calibrate(&rows, before, 0.7).unwrap();
        assert!(wrong > 10, "{wrong}");
        // To the fit on the other folds all was right, so it is sure of the fold that is wrong.
        assert!(found.held_out.loss > 2.0 * found.after.loss, "{found:?}");
        assert_eq!(found.held_out.accuracy, found.after.accuracy);
    }
}
