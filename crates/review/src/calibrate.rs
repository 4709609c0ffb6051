//! Calibrates a label set on posts with gold labels.
//!
//! The input is the logits and the gold labels of each post, and a target precision. The output is the
//! maximum-likelihood temperature (Guo et al., On Calibration of Modern Neural Networks, ICML 2017) and shift of the
//! background logit, the smallest threshold that reaches the precision, and quality figures before and after. Figures
//! for the rows used in the fit are optimistic, so the same figures are computed for held-out rows. Nothing here does
//! I/O.

use serde::Serialize;

use crate::evaluate::{
    Accuracies, Bound, EvaluatedPost, Proportion, Reliability, ReliabilityBin, share,
};
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
pub const FOLDS: usize = 5;

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

    /// Returns the post with its prediction under a setting.
    pub(crate) fn evaluated(&self, setting: Setting) -> EvaluatedPost {
        let evidence = self.evidence.shifted(setting.shift);
        let scores = evidence.scores(setting.temperature, setting.threshold);
        EvaluatedPost {
            right: self.right.clone(),
            ties: self.ties.clone(),
            best: scores.best,
            score: scores.scores[scores.best],
            abstained: scores.is_abstention(),
            weight: self.weight,
        }
    }

    /// Returns the mean negative log-likelihood of the answers; see [`Evidence::loss`].
    fn loss(&self, evidence: &Evidence, temperature: f64) -> Option<f64> {
        let loss = |answer: &Vec<usize>| evidence.loss(temperature, answer);
        let losses = self.answers().map(loss);
        Some(losses.sum::<Option<f64>>()? / float(self.answers().count()))
    }
}

/// Parameters that turn logits into labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Divides the logits.
    pub temperature: f64,
    /// The lowest score that gets a label.
    pub threshold: f64,
    /// Added to the background's logit.
    pub shift: f64,
}

impl Setting {
    /// Leaves the logits as they are, and labels every row that is not `other`.
    pub(crate) const UNCHANGED: Self = Self {
        temperature: 1.0,
        threshold: 0.0,
        shift: 0.0,
    };

    /// Returns the setting with a threshold; without one, no row gets a label.
    fn at(self, threshold: Option<f64>) -> Self {
        Self {
            threshold: threshold.unwrap_or(f64::INFINITY),
            ..self
        }
    }
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
    /// Expected calibration error of assigned labels; 0 without labels.
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
/// current setting. Returns `None` if no row has a [loss](Evidence::loss).
pub fn calibrate(
    rows: &[GoldEvidence],
    before: Setting,
    target_precision: f64,
) -> Option<Calibration> {
    let all: Vec<&GoldEvidence> = rows.iter().collect();
    let scaled = fit_scale(&all)?;
    let threshold = fit_threshold(&all, scaled, target_precision);
    let mut held_out: Vec<(&GoldEvidence, Setting)> = Vec::with_capacity(rows.len());
    for fold in 0..FOLDS {
        let (rows, others): (Vec<&GoldEvidence>, Vec<&GoldEvidence>) =
            rows.iter().partition(|row| fold_of(&row.text_hash) == fold);
        let scaled = fit_scale(&others).unwrap_or(before);
        let setting = scaled.at(fit_threshold(&others, scaled, target_precision));
        held_out.extend(rows.into_iter().map(|row| (row, setting)));
    }
    let judge_all = |setting| judge(rows.iter().map(|row| (row, setting)));
    Some(Calibration {
        temperature: scaled.temperature,
        shift: scaled.shift,
        threshold,
        before: judge_all(before),
        after: judge_all(scaled.at(threshold)),
        held_out: judge(held_out.into_iter()),
    })
}

/// Returns the cross-validation fold of a text. Equal texts are in the same fold, so no held-out text is in the
/// training set.
pub(crate) fn fold_of(text: &TextHash) -> usize {
    let head = &text.as_bytes()[..8];
    let head = u64::from_be_bytes(head.try_into().expect("eight of sixteen bytes"));
    usize::try_from(head % FOLDS as u64).expect("less than the number of folds")
}

/// Returns a setting with the maximum-likelihood temperature and shift of the background logit, to four decimals;
/// `None` if no row has a [loss](Evidence::loss). If no row is out of scope, the shift stays 0, because such rows alone
/// limit how far it falls.
///
/// A temperature alone cannot calibrate assigned labels if too few or too many posts are `other`: on 960 posts with
/// five labels, the two reduce the held-out calibration error from .137 to .026 (`benches/results/fit.md`).
fn fit_scale(rows: &[&GoldEvidence]) -> Option<Setting> {
    let mut shift = 0.0;
    let has_out_of_scope = rows.iter().any(|row| !row.is_in_scope());
    if has_out_of_scope && rows.iter().any(|row| row.evidence.logits().1.is_some()) {
        // The loss is convex in 1/T and shift/T, so its minimum over T is unimodal in the shift.
        let least_loss = |shift: f64| {
            let rows = shifted(rows, shift);
            total_loss(&rows, fit_temperature(&rows)?)
        };
        shift = rounded(minimum(SHIFTS, 1e-4, least_loss)?);
    }
    Some(Setting {
        temperature: rounded(fit_temperature(&shifted(rows, shift))?),
        shift,
        ..Setting::UNCHANGED
    })
}

/// Returns the rows with an offset on the background's logit.
fn shifted(rows: &[&GoldEvidence], shift: f64) -> Vec<GoldEvidence> {
    let shifted = |row: &&GoldEvidence| GoldEvidence {
        evidence: row.evidence.shifted(shift),
        ..(*row).clone()
    };
    rows.iter().map(shifted).collect()
}

/// Returns the maximum-likelihood temperature; `None` if no row has a loss.
fn fit_temperature(rows: &[GoldEvidence]) -> Option<f64> {
    // The search is in log space, because temperature is a ratio scale.
    let logs = (TEMPERATURES.0.ln(), TEMPERATURES.1.ln());
    let log = minimum(logs, 1e-7, |log| total_loss(rows, log.exp()))?;
    Some(log.exp())
}

/// Returns the weighted sum of the rows' losses; `None` if no row has one.
fn total_loss(rows: &[GoldEvidence], temperature: f64) -> Option<f64> {
    let loss = |row: &GoldEvidence| Some(row.weight * row.loss(&row.evidence, temperature)?);
    rows.iter().filter_map(loss).reduce(|a, b| a + b)
}

/// Returns the argument that minimises a unimodal function, by golden-section search (Kiefer, 1953); `None` if the
/// function returns `None`.
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

/// Returns the smallest threshold whose assigned labels reach a precision; `None` if no such threshold has at least
/// [`MIN_ANSWERED`] rows above it. The threshold of `setting` has no effect.
pub(crate) fn fit_threshold(
    rows: &[&GoldEvidence],
    setting: Setting,
    target_precision: f64,
) -> Option<f64> {
    let setting = setting.at(Some(0.0));
    let mut labelled: Vec<EvaluatedPost> = rows.iter().map(|row| row.evaluated(setting)).collect();
    // A row that is `other` gets no label at any threshold.
    labelled.retain(EvaluatedPost::is_labelled);
    labelled.sort_by(|a, b| a.score.total_cmp(&b.score));
    let mut weight_above: f64 = labelled.iter().map(|row| row.weight).sum();
    let right = labelled.iter().filter(|row| row.is_right());
    let mut right_above: f64 = right.map(|row| row.weight).sum();
    let mut below: Option<f64> = None;
    for (position, row) in labelled.iter().enumerate() {
        if labelled.len() - position < MIN_ANSWERED {
            return None;
        }
        // Rows with equal scores pass a threshold together.
        let is_first_of_score = below.is_none_or(|below| below < row.score);
        if is_first_of_score && right_above >= target_precision * weight_above - ROUNDING {
            return Some(below.map_or(0.0, |below| short_between(below, row.score)));
        }
        weight_above -= row.weight;
        right_above -= if row.is_right() { row.weight } else { 0.0 };
        below = Some(row.score);
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

/// Measures quality, with a setting for each row.
pub(crate) fn judge<'a>(
    rows: impl Iterator<Item = (&'a GoldEvidence, Setting)> + Clone,
) -> Quality {
    let posts = rows.clone().map(|(row, setting)| row.evaluated(setting));
    let posts: Vec<EvaluatedPost> = posts.collect();
    let Accuracies { outcome, precision } = Accuracies::of(posts.iter());
    let recall = |bound: Bound| {
        let in_scope = posts.iter().filter(|post| post.is_in_scope());
        let is_found = |post: &EvaluatedPost| post.is_labelled() && post.is_right_at(bound);
        share(in_scope, is_found)
    };
    let reliability = Reliability::of(posts.iter().filter(|post| post.is_labelled()));
    Quality {
        accuracy: outcome,
        precision,
        coverage: share(posts.iter(), EvaluatedPost::is_labelled),
        found: recall(Bound::Lower).between(recall(Bound::Upper)),
        loss: mean_loss(rows),
        calibration_error: reliability.calibration_error,
        bins: reliability.bins,
    }
}

/// Returns the weighted mean of the rows' losses; 0 if no row has one.
fn mean_loss<'a>(rows: impl Iterator<Item = (&'a GoldEvidence, Setting)>) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (row, setting) in rows {
        let evidence = row.evidence.shifted(setting.shift);
        if let Some(loss) = row.loss(&evidence, setting.temperature) {
            sum += row.weight * loss;
            weight += row.weight;
        }
    }
    sum / weight.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests;
