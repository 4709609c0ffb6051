//! Fits a label set to posts with gold labels, chooses its threshold, and measures it on held-out answers.

use serde::Serialize;

use super::{Answer, Fit, FitError, Link, fit};
use crate::calibrate::{FOLDS, GoldEvidence, Quality, Setting, fit_threshold, fold_of, judge};
use crate::evaluate::{EvaluatedPost, LabelQuality, evaluate};
use crate::join::GoldText;
use crate::rescore::prediction;
use crate::{float, floor};
use topicmill_core::score::log_sum_exp;
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
    /// Cross-validated quality of the fitted labels, whose threshold is chosen by cross-validation too.
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
        match (self.set.threshold, self.target()) {
            (threshold, Some(target)) if self.reaches => {
                format!(" The threshold {threshold:.3} is chosen for {target}.")
            }
            _ => String::new(),
        }
    }

    /// Returns the labels with too few answers to learn from.
    pub fn with_few_answers(&self) -> impl Iterator<Item = &FittedLabel> {
        let labels = self.labels.iter();
        labels.filter(|label| label.answers < FEW_ANSWERS)
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

/// A row, and the setting under which it is judged.
type JudgedRow<'r> = (&'r GoldEvidence, Setting);

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
    let (fit, none_below) = fit_texts(base, texts)?;
    let held_out: Vec<GoldEvidence> = texts
        .iter()
        .zip(fit.held_out.rows())
        .map(|(text, logits)| held_out_evidence(text, &logits.to_vec(), base.labels.len()))
        .collect();
    let random = texts.iter().zip(&held_out);
    let random = random.filter(|(text, _)| text.is_random);
    let random: Vec<&GoldEvidence> = random.map(|(_, row)| row).collect();
    let target = provenance.target;
    let threshold = threshold_for(target, base, &random);
    let is_none = |text: &&GoldText| text.gold.right.is_empty();
    let none = texts.iter().filter(is_none).count();
    let provenance = Provenance {
        answers: texts.len() as u64,
        none: none as u64,
        ..provenance
    };
    let set = LabelSet {
        temperature: 1.0,
        threshold: threshold.unwrap_or(base.threshold),
        fitted: Some(corrections(base, model, &fit, none_below, provenance)),
        ..base.clone()
    };
    // A row is judged at a threshold that other rows choose, because at their own, rows always reach the target.
    let setting_of_fold = |fold: usize| {
        let mut others = random.clone();
        others.retain(|row| fold_of(&row.text_hash) != fold);
        Setting {
            threshold: threshold_for(target, base, &others).unwrap_or(base.threshold),
            ..Setting::UNCHANGED
        }
    };
    let settings: Vec<Setting> = (0..FOLDS).map(setting_of_fold).collect();
    let setting = |row: &GoldEvidence| settings[fold_of(&row.text_hash)];
    let judged: Vec<JudgedRow<'_>> = random.iter().map(|row| (*row, setting(row))).collect();
    let before = texts.iter().filter(|text| text.is_random);
    let before_fit = Setting {
        temperature: base.temperature,
        threshold: base.threshold,
        shift: 0.0,
    };
    Ok(FittedSet {
        answers: texts.len(),
        none,
        judged: judged.len(),
        before: judge(before.map(|text| (&text.gold, before_fit))),
        held_out: judge(judged.iter().copied()),
        labels: label_figures(&set, texts, &judged),
        scale: fit.scale,
        strength: fit.strength,
        gain: fit.gain,
        reaches: threshold.is_some(),
        crossed: texts
            .iter()
            .zip(&held_out)
            .map(|(text, row)| cross_fitted(&set, text, (row, setting(row))))
            .collect(),
        set,
    })
}

/// Returns the threshold for a target that rows choose, or the label set's without a target. `None` if no threshold
/// reaches the target.
fn threshold_for(target: Option<FitTarget>, set: &LabelSet, rows: &[&GoldEvidence]) -> Option<f64> {
    match target {
        None => Some(set.threshold),
        Some(FitTarget::Precision(share)) => fit_threshold(rows, Setting::UNCHANGED, share),
        Some(FitTarget::Recall(share)) => threshold_for_recall(rows, share),
    }
}

/// Returns the figures of each label on the rows that quality is measured on.
fn label_figures(set: &LabelSet, texts: &[GoldText], rows: &[JudgedRow<'_>]) -> Vec<FittedLabel> {
    let posts = rows.iter().map(|(row, setting)| row.evaluated(*setting));
    let posts: Vec<EvaluatedPost> = posts.collect();
    let qualities = evaluate(&posts, set.labels.len()).labels;
    let labels = set.labels.iter().zip(qualities).enumerate();
    labels
        .map(|(position, (label, quality))| FittedLabel {
            slug: label.slug.clone(),
            answers: texts
                .iter()
                .filter(|text| text.gold.answers().any(|answer| answer.contains(&position)))
                .count(),
            gold: quality.support(),
            given: quality.given(),
            quality,
        })
        .collect()
}

/// Returns the label of a text by a fit without it. Unlike the fitted label, it can be compared with the answer.
fn cross_fitted(set: &LabelSet, text: &GoldText, (row, setting): JudgedRow<'_>) -> CrossFitted {
    let scores = row.evidence.scores(setting.temperature, setting.threshold);
    CrossFitted {
        fullname: text.post.clone(),
        text_hash: row.text_hash,
        prediction: prediction(set, &scores),
    }
}

/// Fits parameters to texts. Also returns the logit of "none of these" below the labels', if the label set has no
/// background.
fn fit_texts(base: &LabelSet, texts: &[GoldText]) -> Result<(Fit, Option<f64>), FitError> {
    let first = texts.first().ok_or(FitError::TooFew(0))?;
    let link = if first.gold.evidence.is_softmax() {
        Link::Softmax
    } else {
        Link::Sigmoid
    };
    // A softmax without a background has no class for "none of these".
    let lacks_none = link == Link::Softmax && first.gold.evidence.logits().1.is_none();
    let none_below = lacks_none.then_some(NONE_BELOW);
    let to_answer = |text: &GoldText| answer(text, base.temperature, none_below);
    let answers: Vec<Answer> = texts.iter().map(to_answer).collect();
    Ok((fit(&answers, link)?, none_below))
}

/// Returns the largest threshold with at least this recall; `None` if no threshold reaches it.
fn threshold_for_recall(rows: &[&GoldEvidence], share: f64) -> Option<f64> {
    let in_scope = rows.iter().filter(|row| row.is_in_scope());
    // A row with a wrong best label is not found at any threshold.
    let score = |row: &&GoldEvidence| {
        let post = row.evaluated(Setting::UNCHANGED);
        (post.is_labelled() && post.is_right()).then_some(post.score)
    };
    let mut scores: Vec<Option<f64>> = in_scope.map(score).collect();
    scores.sort_by(|a, b| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0)));
    let needed = floor((share * float(scores.len())).ceil());
    let lowest = (*scores.get(needed.max(1) - 1)?)?;
    // Round down, so that the row itself still gets its label.
    Some((lowest * 1e4).floor() / 1e4)
}

/// Converts a text to an answer with logits at the label set's temperature.
fn answer(text: &GoldText, temperature: f64, none_below: Option<f64>) -> Answer {
    let gold = &text.gold;
    let (labels, other) = gold.evidence.logits();
    let none =
        other.or_else(|| Some(none_below? * temperature + log_sum_exp(labels.iter().copied())));
    let logits = labels.iter().copied().chain(none);
    let share = |is_named: &dyn Fn(&Vec<usize>) -> bool| {
        let named = gold.answers().filter(|answer| is_named(answer)).count();
        float(named) / float(gold.answers().count())
    };
    let right = (0..labels.len()).map(|label| share(&|answer| answer.contains(&label)));
    Answer {
        text_hash: gold.text_hash,
        logits: logits.map(|logit| logit / temperature).collect(),
        vector: (text.vector.as_ref()).map_or_else(Vec::new, TextVector::numbers),
        right: right.chain(none.map(|_| share(&Vec::is_empty))).collect(),
    }
}

/// Returns a text's evidence from the logits of a fit without it.
fn held_out_evidence(text: &GoldText, logits: &[f64], labels: usize) -> GoldEvidence {
    let (of_labels, none) = logits.split_at(labels);
    let evidence = &text.gold.evidence;
    GoldEvidence {
        evidence: evidence.with_logits(of_labels.to_vec(), none.first().copied()),
        ..text.gold.clone()
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
    let class = |class: usize| {
        let weights = parameters.weights.row(class);
        FittedClass {
            scale: parameters.scale[class] / base.temperature,
            bias: parameters.bias[class],
            weights: weights.iter().map(|weight| *weight as f32).collect(),
        }
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

#[cfg(test)]
mod tests {
    use topicmill_core::score::Evidence;
    use topicmill_core::test_examples::{embedding, set};
    use topicmill_core::{ModelKind, PairLogits, TextHash};

    use super::*;

    /// Returns a text with the right best label. Only the first text is a random post.
    fn text(key: usize) -> GoldText {
        let right = key % 2;
        let logit = |label| PairLogits::single(if label == right { 3.0 } else { 0.0 });
        let kind = ModelKind::Embedding(embedding(1.0, 1.0, 0.0));
        GoldText {
            post: format!("p{key}").parse().unwrap(),
            gold: GoldEvidence {
                text_hash: TextHash::new(&key.to_string()),
                evidence: Evidence::new(&kind, Mode::Single, &[0, 1].map(logit), None),
                right: vec![right],
                ties: Vec::new(),
                weight: 1.0,
            },
            vector: None,
            is_random: key == 0,
        }
    }

    #[test]
    fn a_fold_whose_other_answers_find_no_threshold_is_judged_at_the_previous_one() {
        let texts: Vec<GoldText> = (0..20).map(text).collect();
        for (threshold, labelled) in [(0.0, 1), (1.0, 0)] {
            let mut base = set(&["x", "y"]);
            base.threshold = threshold;
            let provenance = Provenance {
                target: Some(FitTarget::Recall(1.0)),
                ..Provenance::default()
            };
            let fitted = fit_label_set(&base, "m", &texts, provenance).unwrap();
            // The random post chooses the threshold of the label set, at which it would always get its label.
            let prediction = &fitted.crossed[0].prediction;
            assert!((0.5..=prediction.score).contains(&fitted.set.threshold));
            assert_eq!(fitted.held_out.coverage.of, labelled, "{threshold}");
            assert_eq!(prediction.abstained, labelled == 0);
        }
    }
}
