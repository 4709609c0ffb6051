//! Calibrates a label set on posts with gold labels.
//!
//! The input is the logits and the gold labels of each post, and a target precision. The output is the
//! maximum-likelihood temperature and shift of the background logit, the smallest threshold that reaches the precision,
//! and quality figures before and after. Figures for the rows used in the fit are optimistic, so the same figures are
//! computed for held-out rows. Nothing here does I/O.

use serde::Serialize;

use crate::float;
use topicmill_core::TextHash;
use topicmill_core::score::Evidence;

/// Bounds of the temperature search. A result at a bound means that the rows do not determine the temperature.
pub const TEMPERATURES: (f64, f64) = (0.05, 20.0);
/// Bounds of the search for the background shift. A bound multiplies or divides the background's weight by e^8, about
/// 3,000.
const SHIFTS: (f64, f64) = (-8.0, 8.0);
/// Minimum number of rows above a threshold; with fewer, chance affects the precision too much.
pub const MIN_ANSWERED: usize = 10;
/// Tolerance for sums of weights.
const ROUNDING: f64 = 1e-9;
/// Number of cross-validation folds.
pub const FOLDS: u64 = 5;
/// Number of reliability bins, all of equal width.
pub const BINS: usize = 10;
/// The 97.5th percentile of the standard normal distribution, for 95 % confidence intervals.
pub(super) const Z95: f64 = 1.959_963_984_540_054;

/// The logits and gold labels of a post.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldEvidence {
    /// Hash of the text; equal texts are held out together.
    pub text_hash: TextHash,
    /// Logits of the labels.
    pub evidence: Evidence,
    /// Positions of the gold labels in the label set; empty for "none of these".
    pub right: Vec<usize>,
    /// The other answers if annotators disagree and none decides.
    pub ties: Vec<Vec<usize>>,
    /// The number of posts that this one stands for, relative to the others.
    pub weight: f64,
}

impl GoldEvidence {
    /// Returns the answers: one, or several if annotators disagree and none decides.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Vec<usize>> + Clone {
        std::iter::once(&self.right).chain(&self.ties)
    }

    /// Returns true if a label is right, by at least one answer.
    pub(crate) fn is_in_scope(&self) -> bool {
        self.answers().any(|answer| !answer.is_empty())
    }

    /// Returns the mean negative log-likelihood of the answers; see [`Evidence::loss`].
    fn loss(&self, evidence: &Evidence, temperature: f64) -> Option<f64> {
        let losses = self
            .answers()
            .map(|answer| evidence.loss(temperature, answer));
        Some(losses.sum::<Option<f64>>()? / float(self.answers().count()))
    }
}

/// Parameters that turn logits into labels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Setting {
    /// Divides the logits.
    pub temperature: f64,
    /// The lowest score that gets a label.
    pub threshold: f64,
    /// Added to the background's logit.
    pub shift: f64,
}

/// A proportion with its 95 % confidence interval (Wilson score interval).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Proportion {
    /// Numerator.
    pub of: usize,
    /// Denominator.
    pub all: usize,
    /// The proportion; `None` if the denominator is 0.
    pub share: Option<f64>,
    /// The proportion if each post on which annotators disagree is counted; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_if_right: Option<f64>,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Proportion {
    /// Returns the proportion `of` / `all`.
    pub fn new(of: usize, all: usize) -> Self {
        if all == 0 {
            let (share, low, high) = (None, 0.0, 1.0);
            return Self {
                of,
                all,
                share,
                share_if_right: None,
                low,
                high,
            };
        }
        Self {
            of,
            all,
            ..Self::wilson(float(of) / float(all), float(all))
        }
    }

    /// Returns the weighted share of the true values. The interval is that of the share in a sample without weights
    /// whose mean varies as much (Kish's effective sample size).
    pub(crate) fn weighted(rows: impl Iterator<Item = (bool, f64)>) -> Self {
        let rows: Vec<(bool, f64)> = rows.collect();
        let of = rows.iter().filter(|(is_of, _)| *is_of).count();
        let plain = Self::new(of, rows.len());
        #[expect(clippy::float_cmp, reason = "the same weight, not a similar one")]
        if rows.iter().all(|(_, weight)| *weight == rows[0].1) {
            return plain;
        }
        let weights = rows.iter().map(|(_, weight)| weight);
        let squares: f64 = weights.clone().map(|weight| weight * weight).sum();
        let all: f64 = weights.sum();
        let weights_of = rows.iter().filter(|(is_of, _)| *is_of);
        let share = weights_of.map(|(_, weight)| weight).sum::<f64>() / all;
        Self {
            of,
            all: plain.all,
            ..Self::wilson(share, all * all / squares)
        }
    }

    /// Returns a share `p` of `n` with its interval, without counts.
    fn wilson(p: f64, n: f64) -> Self {
        // The Wald interval has no width at 0 and 1, which are common with few answers.
        let z2 = Z95 * Z95;
        let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
        Self {
            of: 0,
            all: 0,
            share: Some(p),
            share_if_right: None,
            low: (middle - half).max(0.0),
            high: (middle + half).min(1.0),
        }
    }

    /// Returns bounds of a proportion that is known to be between two: `self` counts no post on which annotators
    /// disagree, and `other` counts them. The interval covers both.
    #[must_use]
    pub fn between(self, other: Self) -> Self {
        let upper = other.share.filter(|_| other.share != self.share);
        Self {
            share_if_right: upper,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            ..self
        }
    }
}

/// Rows with a best score in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// Lower bound of the bin.
    pub from: f64,
    /// Upper bound of the bin.
    pub to: f64,
    /// Mean of the best scores; 0 without rows.
    pub mean_score: f64,
    /// Share of rows whose best label is correct.
    pub right: Proportion,
}

/// Quality of scores and labels under a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Accuracy: the share of rows with the correct outcome, which is a correct label for in-scope rows, and no label
    /// for out-of-scope rows.
    pub accuracy: Proportion,
    /// Precision: the share of assigned labels that are correct.
    pub precision: Proportion,
    /// Coverage: the share of rows that get a label.
    pub coverage: Proportion,
    /// Recall: the share of in-scope rows that get a correct label.
    pub found: Proportion,
    /// Mean negative log-likelihood of the gold labels.
    pub loss: f64,
    /// Expected calibration error of assigned labels: the mean absolute difference between score and precision over
    /// score bins. 0 without labels.
    pub calibration_error: f64,
    /// Reliability bins of assigned labels.
    pub bins: Vec<ReliabilityBin>,
}

/// A fitted calibration and its quality.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The fitted temperature.
    pub temperature: f64,
    /// Added to the background's logit; 0 without a background.
    pub shift: f64,
    /// The smallest threshold that reaches the target precision; `None` if no threshold does.
    pub threshold: Option<f64>,
    /// Quality before the fit.
    pub before: Quality,
    /// Quality after the fit, on the same rows (optimistic).
    pub after: Quality,
    /// Cross-validated quality: an estimate for new posts.
    pub held_out: Quality,
}

/// Fits the temperature, the background shift and the threshold, and measures the resulting quality. `before` is the
/// current setting; `wanted` is the target precision. Returns `None` if no row has a [loss](Evidence::loss).
pub fn calibrate(rows: &[GoldEvidence], before: Setting, wanted: f64) -> Option<Calibration> {
    let all: Vec<&GoldEvidence> = rows.iter().collect();
    let (temperature, shift) = fit_scale(&all)?;
    let threshold = fit_threshold(&all, (temperature, shift), wanted);
    let judge_all = |setting| judge(rows.iter().map(|row| (row, setting)));
    let held_out = (0..FOLDS).flat_map(|fold| {
        let (out, kept): (Vec<&GoldEvidence>, Vec<&GoldEvidence>) =
            all.iter().partition(|row| fold_of(row) == fold);
        let scale = fit_scale(&kept).unwrap_or((before.temperature, before.shift));
        let setting = setting(scale, fit_threshold(&kept, scale, wanted));
        out.into_iter().map(move |row| (row, setting))
    });
    let held_out: Vec<(&GoldEvidence, Setting)> = held_out.collect();
    Some(Calibration {
        temperature,
        shift,
        threshold,
        before: judge_all(before),
        after: judge_all(setting((temperature, shift), threshold)),
        held_out: judge(held_out.into_iter()),
    })
}

/// Builds a setting; without a threshold, no row gets a label.
fn setting((temperature, shift): (f64, f64), threshold: Option<f64>) -> Setting {
    Setting {
        temperature,
        shift,
        threshold: threshold.unwrap_or(f64::INFINITY),
    }
}

fn fold_of(row: &GoldEvidence) -> u64 {
    let head = &row.text_hash.as_bytes()[..8];
    // Equal texts are in the same fold, so no held-out text is in the training set.
    u64::from_be_bytes(head.try_into().expect("eight of sixteen bytes")) % FOLDS
}

/// Returns the maximum-likelihood temperature and shift of the background logit, to four decimals; `None` if no row has
/// a [loss](Evidence::loss). If no row is out of scope, the shift stays 0, because such rows alone limit how far it
/// falls.
///
/// A temperature alone cannot calibrate assigned labels if too few or too many posts are `other`: on 960 posts with
/// five labels, the shift reduces the held-out calibration error from .139 to .031.
pub fn fit_scale(rows: &[&GoldEvidence]) -> Option<(f64, f64)> {
    let mut shift = 0.0;
    let out_of_scope = rows.iter().any(|row| !row.is_in_scope());
    if out_of_scope && rows.iter().any(|row| row.evidence.logits().1.is_some()) {
        // The loss is convex in 1/T and shift/T, so its minimum over T is unimodal in the shift.
        let loss = |shift: f64| Some(least_loss(&shifted(rows, shift))?.1);
        shift = rounded(minimum(SHIFTS, 1e-4, loss)?);
    }
    let (temperature, _) = least_loss(&shifted(rows, shift))?;
    Some((rounded(temperature), shift))
}

fn shifted(rows: &[&GoldEvidence], shift: f64) -> Vec<GoldEvidence> {
    let shifted = |row: &&GoldEvidence| GoldEvidence {
        evidence: row.evidence.shifted(shift),
        ..(*row).clone()
    };
    rows.iter().map(shifted).collect()
}

/// Returns the maximum-likelihood temperature and the negative log-likelihood; `None` if no row has a loss.
fn least_loss(rows: &[GoldEvidence]) -> Option<(f64, f64)> {
    let loss = |log: f64| -> Option<f64> {
        let losses = rows
            .iter()
            .filter_map(|row| Some(row.weight * row.loss(&row.evidence, log.exp())?));
        losses.reduce(|a, b| a + b)
    };
    // The search is in log space, because temperature is a ratio scale.
    let log = minimum((TEMPERATURES.0.ln(), TEMPERATURES.1.ln()), 1e-7, loss)?;
    Some((log.exp(), loss(log)?))
}

/// Returns the argument that minimises a unimodal function, by golden-section search; `None` if the function returns
/// `None`.
fn minimum(
    (mut low, mut high): (f64, f64),
    width: f64,
    function: impl Fn(f64) -> Option<f64>,
) -> Option<f64> {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let (mut left, mut right) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_left, mut at_right) = (function(left)?, function(right)?);
    while high - low > width {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - ratio * (high - low);
            at_left = function(left)?;
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + ratio * (high - low);
            at_right = function(right)?;
        }
    }
    Some(f64::midpoint(low, high))
}

/// Rounds to four decimals, because users copy the number into a file and more decimals change no label.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

/// Returns the smallest threshold whose assigned labels have a precision of at least `wanted`; `None` if no such
/// threshold has at least [`MIN_ANSWERED`] rows above it.
pub fn fit_threshold(
    rows: &[&GoldEvidence],
    (temperature, shift): (f64, f64),
    wanted: f64,
) -> Option<f64> {
    let setting = Setting {
        temperature,
        shift,
        threshold: 0.0,
    };
    let judged = rows.iter().map(|row| JudgedRow::new(row, setting, false));
    // A row that is `other` gets no label at any threshold.
    let mut labelled: Vec<JudgedRow<'_>> = judged.filter(|row| row.is_given).collect();
    labelled.sort_by(|a, b| a.score.total_cmp(&b.score));
    let mut weight_above: f64 = labelled.iter().map(JudgedRow::weight).sum();
    let right = labelled.iter().filter(|row| row.is_right);
    let mut right_above: f64 = right.map(JudgedRow::weight).sum();
    for (place, row) in labelled.iter().enumerate() {
        let below = place.checked_sub(1).map(|place| labelled[place].score);
        // Rows with equal scores pass a threshold together.
        let is_first_of_score = below.is_none_or(|below| below < row.score);
        if labelled.len() - place < MIN_ANSWERED {
            return None;
        }
        if is_first_of_score && right_above >= wanted * weight_above - ROUNDING {
            return Some(below.map_or(0.0, |below| short_between(below, row.score)));
        }
        weight_above -= row.weight();
        right_above -= if row.is_right { row.weight() } else { 0.0 };
    }
    None
}

/// Returns a number with few digits in (`low`, `high`], near the middle.
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

/// A row with its outcome under a setting.
struct JudgedRow<'r> {
    row: &'r GoldEvidence,
    /// The best score.
    score: f64,
    /// True if the outcome is correct.
    is_right: bool,
    /// True if a label is assigned.
    is_given: bool,
}

impl<'r> JudgedRow<'r> {
    /// Judges a row. With `counts_ties`, a post on which annotators disagree is correct if any of their answers is;
    /// without, only if all are.
    fn new(row: &'r GoldEvidence, setting: Setting, counts_ties: bool) -> Self {
        let evidence = row.evidence.shifted(setting.shift);
        let scores = evidence.scores(setting.temperature, setting.threshold);
        let is_given = !scores.is_abstention();
        let agrees = |answer: &Vec<usize>| {
            if is_given {
                answer.contains(&scores.best)
            } else {
                answer.is_empty()
            }
        };
        let mut answers = row.answers();
        Self {
            row,
            score: scores.scores[scores.best],
            is_right: if counts_ties {
                answers.any(agrees)
            } else {
                answers.all(agrees)
            },
            is_given,
        }
    }

    fn weight(&self) -> f64 {
        self.row.weight
    }
}

/// Measures quality, with a setting for each row.
pub(crate) fn judge<'a>(
    rows: impl Iterator<Item = (&'a GoldEvidence, Setting)> + Clone,
) -> Quality {
    let quality = judge_with(rows.clone(), false);
    if rows.clone().all(|(row, _)| row.ties.is_empty()) {
        return quality;
    }
    let upper = judge_with(rows, true);
    Quality {
        accuracy: quality.accuracy.between(upper.accuracy),
        precision: quality.precision.between(upper.precision),
        found: quality.found.between(upper.found),
        ..quality
    }
}

fn judge_with<'a>(
    rows: impl Iterator<Item = (&'a GoldEvidence, Setting)>,
    counts_ties: bool,
) -> Quality {
    let mut judged = Vec::new();
    let (mut loss, mut weight_with_loss) = (0.0, 0.0);
    for (row, setting) in rows {
        let evidence = row.evidence.shifted(setting.shift);
        if let Some(of_row) = row.loss(&evidence, setting.temperature) {
            loss += row.weight * of_row;
            weight_with_loss += row.weight;
        }
        judged.push(JudgedRow::new(row, setting, counts_ties));
    }
    let given = judged.iter().filter(|row| row.is_given);
    let in_scope = judged.iter().filter(|row| row.row.is_in_scope());
    let scored = given
        .clone()
        .map(|row| (row.score, row.is_right, row.weight()));
    let (calibration_error, bins) = reliability(scored);
    Quality {
        accuracy: Proportion::weighted(judged.iter().map(|row| (row.is_right, row.weight()))),
        precision: Proportion::weighted(given.map(|row| (row.is_right, row.weight()))),
        coverage: Proportion::weighted(judged.iter().map(|row| (row.is_given, row.weight()))),
        found: Proportion::weighted(
            in_scope.map(|row| (row.is_right && row.is_given, row.weight())),
        ),
        loss: if weight_with_loss > 0.0 {
            loss / weight_with_loss
        } else {
            0.0
        },
        calibration_error,
        bins,
    }
}

/// Returns the expected calibration error and the reliability bins of (score, is correct, weight) rows.
pub fn reliability(rows: impl Iterator<Item = (f64, bool, f64)>) -> (f64, Vec<ReliabilityBin>) {
    let mut bins = [const { Vec::new() }; BINS];
    for (score, is_right, weight) in rows {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a score is 0 to 1"
        )]
        let bin: &mut Vec<_> = &mut bins[((score * float(BINS)) as usize).min(BINS - 1)];
        bin.push((score, is_right, weight));
    }
    let (mut error, mut all) = (0.0, 0.0);
    let bins = bins.iter().enumerate().map(|(i, rows)| {
        let weight: f64 = rows.iter().map(|row| row.2).sum();
        let sum: f64 = rows.iter().map(|row| row.0 * row.2).sum();
        let right = Proportion::weighted(rows.iter().map(|row| (row.1, row.2)));
        error += (sum - right.share.unwrap_or(0.0) * weight).abs();
        all += weight;
        ReliabilityBin {
            from: float(i) / float(BINS),
            to: float(i + 1) / float(BINS),
            // All rows may belong to a wave that has no labelled posts.
            mean_score: if weight > 0.0 { sum / weight } else { 0.0 },
            right,
        }
    });
    let bins = bins.collect();
    (if all > 0.0 { error / all } else { 0.0 }, bins)
}

#[cfg(test)]
mod tests;
