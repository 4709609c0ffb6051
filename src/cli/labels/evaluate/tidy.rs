//! An evaluation as one table for programs that read CSV: a figure in each row.

use serde_json::{Value, json};

use super::show::{Names, figures};
use crate::review::calibrate::Share;
use crate::review::evaluate::{Evaluation, LabelQuality};
use crate::store::Table;

/// Summary, labels, confusions and bins of scores, in this order.
pub(super) fn table(names: &Names, of: &Evaluation) -> Table {
    let slug = |label: usize| names.set.labels.get(label).map_or("", |label| &label.slug);
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for figure in figures(of) {
        let value = (json!(figure.value), figure.interval);
        rows.push(row(["summary", figure.key, "", ""], value, figure.posts));
    }
    for (label, of) in names.set.labels.iter().zip(&of.labels) {
        rows.extend(of_label(&label.slug, of));
    }
    for cell in &of.confusion {
        let names = ["confusion", "posts", slug(cell.gold), slug(cell.given)];
        rows.push(row(names, (json!(cell.posts), None), cell.posts));
    }
    for bin in of.reliability.iter().filter(|bin| bin.right.all > 0) {
        let scores = format!("{:.1}-{:.1}", bin.from, bin.to);
        rows.push(of_share(["reliability", &scores, "", ""], &bin.right));
    }
    Table {
        columns: [
            "part", "figure", "gold", "given", "value", "low", "high", "posts",
        ]
        .map(String::from)
        .to_vec(),
        rows,
    }
}

fn of_label(slug: &str, of: &LabelQuality) -> [Vec<Value>; 3] {
    [
        of_share(["label", "precision", "", slug], &of.precision),
        of_share(["label", "recall", slug, ""], &of.recall),
        row(
            ["label", "f1", slug, slug],
            (json!(of.f1), None),
            of.support(),
        ),
    ]
}

fn of_share(names: [&str; 4], of: &Share) -> Vec<Value> {
    let interval = of.share.map(|_| (of.low, of.high));
    row(names, (json!(of.share), interval), of.all)
}

fn row(names: [&str; 4], value: (Value, Option<(f64, f64)>), posts: usize) -> Vec<Value> {
    let (low, high) = value.1.unzip();
    let mut row = names.map(Value::from).to_vec();
    row.extend([value.0, json!(low), json!(high), json!(posts)]);
    row
}
