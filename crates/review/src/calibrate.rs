//! Calibrates a label set on rows with a known right label. Pure.
//!
//! The input is the logits of each row, its right labels (empty for none of these) and the wanted precision. The output is
//! the temperature and the shift of the background's logit under which the right labels are likeliest, the smallest
//! threshold that reaches the precision, and the quality of scores and labels before and after. Quality on the rows of the
//! fit is too good to be true, so the same figures are given for held-out rows.

use serde::Serialize;

use topicmill_core::TextHash;
use topicmill_score::score::Evidence;

/// Temperatures that are tried; beyond them the rows say nothing about it.
pub const TEMPERATURES: (f64, f64) = (0.05, 20.0);
/// Shifts of the background's logit that are tried: at their ends it has 3,000 times its weight, or a 3,000th of it.
const SHIFTS: (f64, f64) = (-8.0, 8.0);
/// A threshold that fewer rows reach is no threshold but a lucky row.
pub const MIN_ANSWERED: usize = 10;
/// Parts that the rows are divided into; each is judged by a fit to the others.
pub const FOLDS: u64 = 5;
/// Bins of scores, of equal width.
pub const BINS: usize = 10;
/// The normal distribution has 95 % within this many standard deviations.
pub(super) const Z95: f64 = 1.959_963_984_540_054;

#[derive(Debug, Clone, PartialEq)]
pub struct GoldEvidence {
    /// Equal texts are held out together.
    pub text_hash: TextHash,
    pub evidence: Evidence,
    /// Positions of the right labels in their set; empty for none of these.
    pub right: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Setting {
    pub temperature: f64,
    pub threshold: f64,
    /// Summand of the background's logit.
    pub shift: f64,
}

/// So many of so many, and where the true share lies with 95 % certainty (Wilson).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Proportion {
    pub of: usize,
    pub all: usize,
    pub share: Option<f64>,
    pub low: f64,
    pub high: f64,
}

impl Proportion {
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
pub struct ReliabilityBin {
    pub from: f64,
    pub to: f64,
    /// Mean of the best scores; 0 without rows.
    pub mean_score: f64,
    /// Rows whose best label is right.
    pub right: Proportion,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Rows whose best label is right, whatever the threshold; or that are other, and have none of the labels.
    pub accuracy: Proportion,
    /// Rows that got a label and got a right one, among those that got one.
    pub precision: Proportion,
    /// Rows that got a label, among all.
    pub coverage: Proportion,
    /// Rows that got their right label, among those that have one.
    pub found: Proportion,
    /// Mean of minus the log of the probability of the right labels.
    pub loss: f64,
    /// Expected calibration error of the labels that are given: the mean difference between score and share of right labels,
    /// over bins of the score. 0 without labels.
    pub calibration_error: f64,
    pub bins: Vec<ReliabilityBin>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    pub temperature: f64,
    /// Summand of the background's logit; 0 without a background.
    pub shift: f64,
    /// The smallest that gives the precision that is wanted.
    pub threshold: Option<f64>,
    pub before: Quality,
    /// With what was fitted, on the rows that it was fitted to.
    pub after: Quality,
    /// The same, each row judged by a fit that did not see it: what to expect of new posts.
    pub held_out: Quality,
}

/// Fits temperature and threshold, and judges them. `None` without a row that has a right label.
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
    Some(Calibration {
        temperature,
        shift,
        threshold,
        before: judge_all(before),
        after: judge_all(setting((temperature, shift), threshold)),
        held_out: judge(held_out),
    })
}

/// Without a threshold that would do nothing gets a label.
fn setting((temperature, shift): (f64, f64), threshold: Option<f64>) -> Setting {
    Setting {
        temperature,
        shift,
        // No threshold reaches the precision that is wanted, so no label is given.
        threshold: threshold.unwrap_or(f64::INFINITY),
    }
}

fn fold_of(row: &GoldEvidence) -> u64 {
    let head = &row.text_hash.as_bytes()[..8];
    // By the hash of the text: equal texts are in one fold, and nobody is judged by what he learned from.
    u64::from_be_bytes(head.try_into().expect("eight of sixteen bytes")) % FOLDS
}

/// Returns the temperature and the shift of the background's logit under which the right labels are likeliest, to four
/// decimals; `None` if no row has a right label.
///
/// A temperature alone cannot calibrate the labels that are given where too few or too many posts are other: on 960 posts
/// with five labels, the held-out error of labels is .139 with the temperature, and .031 with the shift.
pub fn fit_scale(rows: &[&GoldEvidence]) -> Option<(f64, f64)> {
    let (mut shift, mut temperature) = (0.0, None);
    if rows.iter().any(|row| row.evidence.logits().1.is_some()) {
        // Convex in 1/T and shift/T, so the least loss over all temperatures has one minimum along the shift.
        let loss = |shift: f64| Some(least_loss(&shifted(rows, shift))?.1);
        shift = rounded(minimum(SHIFTS, 1e-4, loss)?);
    }
    if let Some((found, _)) = least_loss(&shifted(rows, shift)) {
        temperature = Some(rounded(found));
    }
    Some((temperature?, shift))
}

fn shifted<'a>(rows: &[&'a GoldEvidence], shift: f64) -> Vec<(Evidence, &'a [usize])> {
    let rows = rows.iter();
    rows.map(|row| (row.evidence.shifted(shift), row.right.as_slice()))
        .collect()
}

/// Returns the temperature under which the right labels are likeliest, and minus the log of their probability; `None` if no
/// row has a right label.
fn least_loss(rows: &[(Evidence, &[usize])]) -> Option<(f64, f64)> {
    let loss = |log: f64| -> Option<f64> {
        let losses = rows
            .iter()
            .filter_map(|(evidence, right)| evidence.loss(log.exp(), right));
        losses.reduce(|a, b| a + b)
    };
    // By the logarithm, because halving a temperature changes as much as doubling it.
    let log = minimum((TEMPERATURES.0.ln(), TEMPERATURES.1.ln()), 1e-7, loss)?;
    Some((log.exp(), loss(log)?))
}

/// Finds the minimum of a function that falls and then rises, by golden-section search; `None` where it has no value.
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

/// Rounds to four digits: people copy the number into a file, and more of them change no label.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

/// The smallest threshold at which the share `wanted` of the labels given is right; `None` where there is none
/// that [`MIN_ANSWERED`] rows reach.
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
    let mut best: Vec<(f64, bool)> = rows
        .iter()
        .filter_map(|row| {
            let (score, right, given) = best_of(row, setting);
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
        if answered < MIN_ANSWERED {
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
fn best_of(row: &GoldEvidence, setting: Setting) -> (f64, bool, bool) {
    let evidence = row.evidence.shifted(setting.shift);
    let scores = evidence.scores(setting.temperature, setting.threshold);
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
pub(crate) fn judge<'a>(rows: impl Iterator<Item = (&'a GoldEvidence, Setting)>) -> Quality {
    let (mut all, mut right, mut given, mut given_right, mut in_scope) = (0, 0, 0, 0, 0);
    let (mut loss, mut told) = (0.0, 0);
    let mut best = Vec::new();
    for (row, setting) in rows {
        let (score, is_right, is_given) = best_of(row, setting);
        all += 1;
        in_scope += usize::from(!row.right.is_empty());
        right += usize::from(is_right);
        given += usize::from(is_given);
        given_right += usize::from(is_given && is_right);
        if let Some(of_row) = row
            .evidence
            .shifted(setting.shift)
            .loss(setting.temperature, &row.right)
        {
            loss += of_row;
            told += 1;
        }
        if is_given {
            best.push((score, is_right));
        }
    }
    let (calibration_error, bins) = reliability(best.into_iter());
    Quality {
        accuracy: Proportion::new(right, all),
        precision: Proportion::new(given_right, given),
        coverage: Proportion::new(given, all),
        found: Proportion::new(given_right, in_scope),
        loss: loss / float(told).max(1.0),
        calibration_error,
        bins,
    }
}

/// Scores with whether their labels are right, in bins; and by how much the two differ, on average.
pub fn reliability(rows: impl Iterator<Item = (f64, bool)>) -> (f64, Vec<ReliabilityBin>) {
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
    let error = bins.iter().map(apart).sum::<f64>() / float(all).max(1.0);
    let bins = bins
        .iter()
        .enumerate()
        .map(|(i, (sum, n, right))| ReliabilityBin {
            from: float(i) / float(BINS),
            to: float(i + 1) / float(BINS),
            mean_score: sum / float(*n).max(1.0),
            right: Proportion::new(*right, *n),
        });
    (error, bins.collect())
}

#[expect(clippy::cast_precision_loss, reason = "counts of rows")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
