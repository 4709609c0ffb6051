//! Fits a label set to posts with gold labels.

use ndarray::ArrayView1;
use serde::Serialize;

use super::{Answer, Fit, FitError, Link, fit};
use crate::calibrate::{GoldEvidence, Quality, Setting, fit_threshold, judge};
use crate::evaluate::{EvaluatedPost, LabelQuality, evaluate};
use crate::join::GoldText;
use crate::rescore::prediction;
use topicmill_core::score::Evidence;
use topicmill_core::score::{LabelOutcome, log_sum_exp};
use topicmill_core::{FitTarget, Fitted, FittedClass, LabelSet, Mode, Provenance, TextVector};
use topicmill_store::CrossFitted;

/// Logit of "none of these" minus the log-sum-exp of the labels' logits, in a label set without a background. It
/// results in a score of 0.02 for "none of these", so that, without answers, every text keeps its label.
const NONE_BELOW: f64 = -4.0;

/// With fewer answers, a label's weights are mostly chance.
const FEW_ANSWERS: usize = 5;

/// A label's answers, and its quality on held-out answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedLabel {
    /// Slug of the label.
    pub slug: String,
    /// Number of texts in the fit that have this gold label.
    pub answers: usize,
    /// Number of texts among those used to measure the quality that have this gold label.
    pub gold: usize,
    /// Number of these texts that get the label.
    pub given: usize,
    /// Cross-validated quality.
    #[serde(flatten)]
    pub quality: LabelQuality,
}

/// A fitted label set and its quality.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedSet {
    /// The fitted label set.
    #[serde(skip)]
    pub set: LabelSet,
    /// The label of each text by a fit without it.
    #[serde(skip)]
    pub crossed: Vec<CrossFitted>,
    /// Number of texts in the fit.
    pub answers: usize,
    /// Number of out-of-scope texts among them.
    pub none: usize,
    /// Number of texts used to measure the quality.
    pub judged: usize,
    /// Quality of the zero-shot labels.
    pub before: Quality,
    /// Cross-validated quality of the fitted labels.
    pub held_out: Quality,
    /// Cross-validated quality of each label, in the order of the label set.
    pub labels: Vec<FittedLabel>,
    /// Factor of the zero-shot logits, chosen by cross-validation: 1 if the words of the labels count fully, 0 if the
    /// labels are learned from the answers alone.
    pub scale: f64,
    /// Penalty on the weights, chosen by cross-validation.
    pub strength: f64,
    /// Mean gain in a held-out text's log-likelihood, in nats, and its standard error.
    pub gain: (f64, f64),
    /// False if no threshold reaches the target; the threshold is then unchanged.
    pub reaches: bool,
}

impl FittedSet {
    /// Returns the target that the threshold was chosen for.
    pub fn target(&self) -> Option<FitTarget> {
        self.set.fitted.as_ref()?.provenance.target
    }

    /// Returns a sentence about the threshold and its target, with a leading space; empty without a target.
    pub fn threshold_in_words(&self) -> String {
        let threshold = self.set.threshold;
        self.target()
            .filter(|_| self.reaches)
            .map_or_else(String::new, |target| {
                format!(" The threshold {threshold:.3} is chosen for {target}.")
            })
    }

    /// Returns the labels with too few answers to learn from.
    pub fn with_few_answers(&self) -> impl Iterator<Item = &FittedLabel> {
        self.labels
            .iter()
            .filter(|label| label.answers < FEW_ANSWERS)
    }

    /// Returns the labels that get less than half of their share in the held-out answers.
    pub fn too_rarely_given(&self) -> impl Iterator<Item = &FittedLabel> {
        // If several labels may be correct, only the best one of a post is known here.
        let labels = self.labels.iter().filter(|_| self.set.mode == Mode::Single);
        labels.filter(|label| 2 * label.given < label.gold)
    }

    /// Returns true if the fit is better than the zero-shot labels by more than two standard errors.
    pub fn is_better(&self) -> bool {
        self.gain.0 > 2.0 * self.gain.1
    }
}

/// Fits a label set. `model` is the model's manifest hash. Quality is measured on random posts only. Without a target
/// in `provenance`, the label set keeps its threshold; the counts in `provenance` are filled in.
///
/// # Errors
/// Returns [`FitError`] if the answers do not determine a fit.
pub fn fit_label_set(
    base: &LabelSet,
    model: &str,
    texts: &[GoldText],
    provenance: Provenance,
) -> Result<FittedSet, FitError> {
    let (found, none_below) = fit_texts(base, texts)?;
    let labels = base.labels.len();
    let held_out: Vec<GoldEvidence> = texts
        .iter()
        .zip(found.held_out.rows())
        .filter(|(text, _)| text.is_random)
        .map(|(text, row)| held_out_scores(text, &row.to_vec(), labels))
        .collect();
    let before: Vec<GoldEvidence> = texts
        .iter()
        .filter(|text| text.is_random)
        .map(|text| scores_of(text, text.known.evidence.clone()))
        .collect();
    let rows: Vec<&GoldEvidence> = held_out.iter().collect();
    let threshold = match provenance.target {
        None => Some(base.threshold),
        Some(FitTarget::Precision(share)) => fit_threshold(&rows, (1.0, 0.0), share),
        Some(FitTarget::Recall(share)) => threshold_for_recall(&rows, share),
    };
    let none = texts.iter().filter(|text| text.right.is_empty()).count();
    let set = LabelSet {
        temperature: 1.0,
        threshold: threshold.unwrap_or(base.threshold),
        fitted: Some(corrections(
            base,
            model,
            &found,
            none_below,
            Provenance {
                answers: texts.len() as u64,
                none: none as u64,
                ..provenance
            },
        )),
        ..base.clone()
    };
    let setting = |temperature, threshold| Setting {
        temperature,
        threshold,
        shift: 0.0,
    };
    let judge_all = |rows: &[GoldEvidence], setting| judge(rows.iter().map(|row| (row, setting)));
    Ok(FittedSet {
        answers: texts.len(),
        none,
        judged: held_out.len(),
        before: judge_all(&before, setting(base.temperature, base.threshold)),
        held_out: judge_all(&held_out, setting(1.0, set.threshold)),
        labels: label_figures(&set, texts, &held_out),
        scale: found.scale,
        strength: found.strength,
        gain: found.gain,
        reaches: threshold.is_some(),
        crossed: cross_fitted(&set, texts, &found),
        set,
    })
}

/// Returns the figures of each label. `held_out` contains the texts that quality is measured on.
fn label_figures(
    set: &LabelSet,
    texts: &[GoldText],
    held_out: &[GoldEvidence],
) -> Vec<FittedLabel> {
    let post = |row: &GoldEvidence| {
        let scores = row.evidence.scores(1.0, set.threshold);
        EvaluatedPost {
            right: row.right.clone(),
            ties: row.ties.clone(),
            best: scores.best,
            score: scores.scores[scores.best],
            abstained: scores.is_abstention(),
            weight: row.weight,
        }
    };
    let posts: Vec<EvaluatedPost> = held_out.iter().map(post).collect();
    let labels = evaluate(&posts, set.labels.len()).labels;
    let figures = |(place, quality): (usize, LabelQuality)| FittedLabel {
        slug: set.labels[place].slug.clone(),
        answers: texts
            .iter()
            .filter(|text| text.answers().any(|answer| answer.contains(&place)))
            .count(),
        gold: quality.support(),
        given: quality.given(),
        quality,
    };
    labels.into_iter().enumerate().map(figures).collect()
}

/// Returns the label of each text by a fit without it. Unlike the fitted labels, these can be compared with the
/// answers.
fn cross_fitted(set: &LabelSet, texts: &[GoldText], found: &Fit) -> Vec<CrossFitted> {
    let label = |(text, row): (&GoldText, ArrayView1<'_, f64>)| {
        let held_out = held_out_scores(text, &row.to_vec(), set.labels.len());
        CrossFitted {
            fullname: text.post.clone(),
            text_hash: text.text_hash,
            prediction: prediction(set, &held_out.evidence.scores(1.0, set.threshold)),
        }
    };
    texts.iter().zip(found.held_out.rows()).map(label).collect()
}

/// Fits parameters to texts. Also returns the logit of "none of these" below the labels', if the label set has no
/// background.
fn fit_texts(base: &LabelSet, texts: &[GoldText]) -> Result<(Fit, Option<f64>), FitError> {
    let first = texts.first().ok_or(FitError::TooFew(0))?;
    let link = if first.known.evidence.is_softmax() {
        Link::Softmax
    } else {
        Link::Sigmoid
    };
    let open = link == Link::Softmax && first.known.evidence.logits().1.is_none();
    let none_below = open.then_some(NONE_BELOW);
    let answers = texts
        .iter()
        .map(|text| answer(text, base.temperature, none_below));
    let answers: Vec<Answer> = answers.collect();
    Ok((fit(&answers, link)?, none_below))
}

/// Returns the largest threshold with at least this recall; `None` if no threshold reaches it.
fn threshold_for_recall(rows: &[&GoldEvidence], share: f64) -> Option<f64> {
    let mut scores: Vec<f64> = rows
        .iter()
        .filter(|row| row.is_in_scope())
        .map(|row| {
            let scores = row.evidence.scores(1.0, 0.0);
            let is_found = scores.outcome != LabelOutcome::Other
                && row.answers().all(|answer| answer.contains(&scores.best));
            if is_found {
                scores.scores[scores.best]
            } else {
                -1.0
            }
        })
        .collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of the row count"
    )]
    let needed = (share * scores.len() as f64).ceil() as usize;
    let lowest = *scores.get(needed.max(1) - 1)?;
    // Round down, so that the row itself still gets its label.
    (lowest >= 0.0).then(|| (lowest * 1e4).floor() / 1e4)
}

fn answer(text: &GoldText, temperature: f64, none_below: Option<f64>) -> Answer {
    let (labels, other) = text.known.evidence.logits();
    let none =
        other.or_else(|| Some(none_below? * temperature + log_sum_exp(labels.iter().copied())));
    let logits = labels
        .iter()
        .copied()
        .chain(none)
        .map(|logit| logit / temperature);
    let share = |is_named: &dyn Fn(&Vec<usize>) -> bool| {
        let named = text.answers().filter(|answer| is_named(answer)).count();
        named as f64 / text.answers().count() as f64
    };
    let right = (0..labels.len()).map(|label| share(&|answer| answer.contains(&label)));
    Answer {
        text_hash: text.text_hash,
        logits: logits.collect(),
        vector: text
            .known
            .vector
            .as_ref()
            .map_or_else(Vec::new, TextVector::numbers),
        right: right.chain(none.map(|_| share(&Vec::is_empty))).collect(),
    }
}

fn held_out_scores(text: &GoldText, row: &[f64], labels: usize) -> GoldEvidence {
    let (of_labels, none) = row.split_at(labels);
    let evidence = text
        .known
        .evidence
        .with_logits(of_labels.to_vec(), none.first().copied());
    scores_of(text, evidence)
}

fn scores_of(text: &GoldText, evidence: Evidence) -> GoldEvidence {
    GoldEvidence {
        text_hash: text.text_hash,
        evidence,
        right: text.right.clone(),
        ties: text.ties.clone(),
        weight: 1.0,
    }
}

/// Converts the parameters for storage in a label set. The scale includes the base label set's temperature.
fn corrections(
    base: &LabelSet,
    model: &str,
    fit: &Fit,
    none_below: Option<f64>,
    provenance: Provenance,
) -> Fitted {
    let parameters = &fit.parameters;
    #[expect(clippy::cast_possible_truncation, reason = "as exact as the vectors")]
    let class = |class: usize| FittedClass {
        scale: parameters.scale[class] / base.temperature,
        bias: parameters.bias[class],
        weights: parameters
            .weights
            .row(class)
            .iter()
            .map(|weight| *weight as f32)
            .collect(),
    };
    let labels = base.labels.len();
    Fitted {
        base: base.hash(),
        model: model.to_owned(),
        labels: (0..labels).map(class).collect(),
        none: (parameters.bias.len() > labels).then(|| class(labels)),
        none_below: none_below.map(|below| below * base.temperature),
        provenance,
    }
}
