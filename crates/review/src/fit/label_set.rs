//! Turns a label set and its gold posts into the fitted label set.

use serde::Serialize;

use super::{Answer, Fit, FitError, Link, fit};
use crate::calibrate::{GoldEvidence, Quality, Setting, fit_threshold, judge};
use crate::rescore::TextEvidence;
use topicmill_core::TextHash;
use topicmill_score::fitted::log_sum_exp;
use topicmill_score::score::Evidence;
use topicmill_score::{Fitted, FittedClass, LabelSet, Provenance, TextVector};

/// Logit of "none of these" less the log-sum-exp of the labels' logits, in a label set without a background. It leaves none
/// of these a score of 0.02, so that without answers every text keeps its label.
const NONE_BELOW: f64 = -4.0;

/// A gold post, as far as the fit reads it.
#[derive(Debug, Clone)]
pub struct GoldText {
    /// Hash of its text.
    pub text_hash: TextHash,
    /// What the model gave for it under the label set that is fitted.
    pub known: TextEvidence,
    /// Positions of the right labels; empty for none of these.
    pub right: Vec<usize>,
    /// True if it was drawn at random, or if all answers count as if they were: it stands for all posts.
    pub is_random: bool,
}

/// What a fit is for: a share of right labels, or of posts found, that the threshold is to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FitGoal {
    /// The threshold of the label set stays.
    KeepThreshold,
    /// This share of the labels that are given is right.
    Precision(f64),
    /// This share of the posts that have a label gets it.
    Recall(f64),
}

/// A fitted label set, and how good it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedSet {
    /// The label set.
    #[serde(skip)]
    pub set: LabelSet,
    /// Gold texts that it was fitted to.
    pub answers: usize,
    /// Those of them that have none of the labels.
    pub none: usize,
    /// Those of them that the figures are of.
    pub judged: usize,
    /// The zero-shot labels, on the texts that are judged.
    pub before: Quality,
    /// The fitted labels, each by a fit that did not see its text.
    pub held_out: Quality,
    /// Strength of the penalty on the weights that cross-validation chose.
    pub strength: f64,
    /// How much likelier the right label of a held-out text is, in nats, and the standard error of that.
    pub gain: (f64, f64),
    /// False if no threshold reaches what is wanted; the threshold is then that of the base.
    pub reaches: bool,
}

impl FittedSet {
    /// True if the fit is better than the words, by more than chance makes likely: two standard errors.
    pub fn is_better(&self) -> bool {
        self.gain.0 > 2.0 * self.gain.1
    }
}

/// Fits a label set with the model of this manifest hash. `provenance` comes without its counts.
///
/// # Errors
/// See [`FitError`].
pub fn fit_label_set(
    base: &LabelSet,
    model: &str,
    texts: &[GoldText],
    wanted: FitGoal,
    provenance: Provenance,
) -> Result<FittedSet, FitError> {
    let first = texts.first().ok_or(FitError::TooFew(0))?;
    let link = if first.known.evidence.is_softmax() {
        Link::Softmax
    } else {
        Link::Sigmoid
    };
    let open = link == Link::Softmax && first.known.evidence.logits().1.is_none();
    let none_below = open.then_some(NONE_BELOW);
    let answers: Vec<Answer> = texts
        .iter()
        .map(|text| answer(text, base.temperature, none_below))
        .collect();
    let found = fit(&answers, link)?;
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
        .map(zero_shot_scores)
        .collect();
    let rows: Vec<&GoldEvidence> = held_out.iter().collect();
    let threshold = match wanted {
        FitGoal::KeepThreshold => Some(base.threshold),
        FitGoal::Precision(share) => fit_threshold(&rows, (1.0, 0.0), share),
        FitGoal::Recall(share) => threshold_for_recall(&rows, share),
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
        strength: found.strength,
        gain: found.gain(),
        reaches: threshold.is_some(),
        set,
    })
}

/// The largest threshold at which this share of the rows with a label gets it; `None` if no threshold does.
fn threshold_for_recall(rows: &[&GoldEvidence], share: f64) -> Option<f64> {
    let mut scores: Vec<f64> = rows
        .iter()
        .filter(|row| !row.right.is_empty())
        .map(|row| {
            let scores = row.evidence.scores(1.0, 0.0);
            let is_found = !scores.other && row.right.contains(&scores.best);
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
        clippy::cast_precision_loss,
        reason = "a share of a number of rows"
    )]
    let needed = (share * scores.len() as f64).ceil() as usize;
    let lowest = *scores.get(needed.max(1) - 1)?;
    // Rounded down, so that the row itself still passes.
    (lowest >= 0.0).then(|| (lowest * 1e4).floor() / 1e4)
}

fn answer(text: &GoldText, temperature: f64, none_below: Option<f64>) -> Answer {
    let (labels, other) = text.known.evidence.logits();
    let none = other.or_else(|| Some(none_below? * temperature + log_sum_exp(labels)));
    let logits = labels
        .iter()
        .copied()
        .chain(none)
        .map(|logit| logit / temperature);
    let right = (0..labels.len()).map(|label| text.right.contains(&label));
    Answer {
        text_hash: text.text_hash,
        logits: logits.collect(),
        vector: text
            .known
            .vector
            .as_ref()
            .map_or_else(Vec::new, TextVector::numbers),
        right: right.chain(none.map(|_| text.right.is_empty())).collect(),
    }
}

fn zero_shot_scores(text: &GoldText) -> GoldEvidence {
    scores_of(text, text.known.evidence.clone())
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
    }
}

/// The parameters in the form that a label set keeps. The temperature of the base is in the scale.
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
