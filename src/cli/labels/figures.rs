//! Formats figures with their confidence intervals.

use serde_json::{Value, json};

use crate::cli::output;
use topicmill_core::LabelSet;
use topicmill_review::calibrate::{Proportion, Quality};
use topicmill_review::evaluate::{Estimate, LabelQuality};
use topicmill_store::Table;

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
        let most = share.share_if_right;
        let most = most.map_or_else(String::new, |most| format!(" to {most:.digits$}"));
        json!(format!("{value:.digits$}{most} ({low:.2}–{high:.2})"))
    })
}

/// Returns a table with a column of figures for each quality, below the rows in `head`.
pub fn quality_table(columns: &[(&str, &Quality)], head: Vec<Value>) -> Table {
    let row = |what: &str, figure: &dyn Fn(&Quality) -> Value| {
        let figures = columns.iter().map(|(_, quality)| figure(quality));
        std::iter::once(json!(what)).chain(figures).collect()
    };
    let four = |x: f64| json!(format!("{x:.4}"));
    let rows = [
        row("posts", &|of| json!(of.accuracy.all.to_string())),
        row("accuracy (including none of these)", &|of| {
            share(&of.accuracy, 3)
        }),
        row("precision of assigned labels", &|of| {
            share(&of.precision, 3)
        }),
        row("recall (in scope: right label)", &|of| share(&of.found, 3)),
        row("coverage (posts with a label)", &|of| {
            share(&of.coverage, 3)
        }),
        row("calibration error", &|of| four(of.calibration_error)),
        row("loss", &|of| four(of.loss)),
    ];
    let names = std::iter::once("").chain(columns.iter().map(|(name, _)| *name));
    output::table(names, head.into_iter().chain(rows))
}

/// Returns a table of each label's quality, in the order of the label set.
pub fn labels_table(set: &LabelSet, qualities: &[LabelQuality]) -> Table {
    let labels = set.labels.iter().zip(qualities);
    let rows = labels.map(|(label, of)| {
        let (precision, recall) = (share(&of.precision, 2), share(&of.recall, 2));
        let f1 = of.f1.map(|f1| format!("{f1:.2}"));
        json!([label.slug, precision, recall, f1, of.support(), of.given()])
    });
    let columns = ["label", "precision", "recall", "F1", "gold", "assigned"];
    output::table(columns, rows)
}
