//! Formats figures with their confidence intervals.

use serde_json::{Value, json};

use super::NONE;
use crate::cli::output;
use topicmill_core::LabelSet;
use topicmill_review::calibrate::Quality;
use topicmill_review::evaluate::{Estimate, LabelQuality, Proportion};
use topicmill_store::Table;

/// Formats a p-value.
pub fn p_value(p: f64) -> String {
    if p < 0.0001 {
        "under 0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

/// Returns the slug of the label at an index of the label set, or the word for none.
pub fn slug(set: &LabelSet, label: usize) -> &str {
    set.labels.get(label).map_or(NONE, |label| &label.slug)
}

/// Formats an estimate with its confidence interval.
pub fn estimate(estimate: &Estimate) -> Value {
    estimate.value.map_or(Value::Null, |value| {
        json!(format!("{value:.3} ({:.3}–{:.3})", estimate.low, estimate.high).replace('-', "−"))
    })
}

/// Formats a share, or its bounds if annotators disagree, with its confidence interval.
pub fn share(share: &Proportion, digits: usize) -> Value {
    share.share.map_or(Value::Null, |value| {
        let (low, high) = (share.low, share.high);
        let upper_bound = share
            .share_if_right
            .map_or_else(String::new, |most| format!(" to {most:.digits$}"));
        json!(format!(
            "{value:.digits$}{upper_bound} ({low:.2}–{high:.2})"
        ))
    })
}

/// Returns a table with a column of figures for each quality, below the rows in `head`.
pub fn quality_table(columns: &[(&str, &Quality)], head: Vec<Value>) -> Table {
    let row = |what: &str, figure: fn(&Quality) -> Value| -> Value {
        let figures = columns.iter().map(|(_, quality)| figure(quality));
        std::iter::once(json!(what)).chain(figures).collect()
    };
    let rows = [
        row("posts", |q| json!(q.accuracy.all.to_string())),
        row("accuracy (including none of these)", |q| {
            share(&q.accuracy, 3)
        }),
        row("precision of assigned labels", |q| share(&q.precision, 3)),
        row("recall (in scope: right label)", |q| share(&q.found, 3)),
        row("coverage (posts with a label)", |q| share(&q.coverage, 3)),
        row("calibration error", |q| {
            json!(format!("{:.4}", q.calibration_error))
        }),
        row("loss", |q| json!(format!("{:.4}", q.loss))),
    ];
    let names = std::iter::once("").chain(columns.iter().map(|(name, _)| *name));
    output::table(names, head.into_iter().chain(rows))
}

/// Returns a table of each label's quality, in the order of the label set.
pub fn labels_table(set: &LabelSet, qualities: &[LabelQuality]) -> Table {
    let labels = set.labels.iter().zip(qualities);
    let rows = labels.map(|(label, quality)| {
        let (precision, recall) = (share(&quality.precision, 2), share(&quality.recall, 2));
        let f1 = quality.f1.map(|f1| format!("{f1:.2}"));
        let (gold, assigned) = (quality.support(), quality.given());
        json!([label.slug, precision, recall, f1, gold, assigned])
    });
    let columns = ["label", "precision", "recall", "F1", "gold", "assigned"];
    output::table(columns, rows)
}
