//! Formats an evaluation as tables: its figures, confusions and reliability, and the figures of two side by side.

use serde_json::{Value, json};

use super::figures::{estimate, share, slug};
use crate::cli::output;
use topicmill_core::LabelSet;
use topicmill_review::evaluate::{Difference, Estimate, Evaluation, Proportion};
use topicmill_store::Table;

/// The number of confusions that the table shows.
const SHOWN_CONFUSIONS: usize = 8;
/// Minimum number of gold posts in scope for a macro-F1. With fewer, some labels have only one or two posts, and their
/// F1 is mostly chance.
const MACRO_F1_POSTS: usize = 50;
/// A note on the confidence intervals and macro-F1, for table headings.
pub const INTERVALS: &str = "Intervals are 95 %: Wilson intervals, or a bootstrap for macro-F1, which needs 50 gold \
                             posts in scope.";

/// A row of the summary.
struct Figure {
    name: &'static str,
    /// The value with its interval; null if it is undefined.
    value: Value,
    /// The number of posts that it is computed from.
    posts: usize,
    /// Returns the difference of this figure, if a comparison estimates it.
    difference: fn(&Difference) -> Option<&Estimate>,
}

fn figures(evaluation: &Evaluation) -> [Figure; 8] {
    let error = evaluation.calibration_error;
    let error = error.map(|error| format!("{error:.3}"));
    let (in_scope, labelled) = (evaluation.in_scope.all, evaluation.precision.all);
    let macro_f1 = if in_scope < MACRO_F1_POSTS {
        Value::Null
    } else {
        estimate(&evaluation.macro_f1)
    };
    let figure = |name, value, posts| Figure {
        name,
        value,
        posts,
        difference: |_| None,
    };
    let share = |name, proportion: &Proportion| figure(name, share(proportion, 3), proportion.all);
    [
        Figure {
            difference: |difference| Some(&difference.outcome),
            ..share("accuracy (including none of these)", &evaluation.outcome)
        },
        share("recall (in scope: right label)", &evaluation.in_scope),
        share(
            "coverage in scope (any label)",
            &evaluation.in_scope_labelled,
        ),
        share("out of scope: no label", &evaluation.out_of_scope),
        share("precision of assigned labels", &evaluation.precision),
        share("coverage (posts with a label)", &evaluation.coverage),
        Figure {
            difference: |difference| Some(&difference.macro_f1),
            ..figure("macro-F1", macro_f1, in_scope)
        },
        figure("calibration error (10 bins)", json!(error), labelled),
    ]
}

/// Returns a table of the figures of an evaluation, without undefined ones.
pub fn summary_table(evaluation: &Evaluation) -> Table {
    let figures = figures(evaluation).into_iter();
    let rows = figures
        .filter(|figure| !figure.value.is_null())
        .map(|figure| json!([figure.name, figure.value, figure.posts]));
    output::table(["figure", "value, 95 %", "posts"], rows)
}

/// Returns a table of the figures of two evaluations on the same posts, with the differences that are estimated.
pub fn comparison_table(first: &Evaluation, second: &Evaluation, difference: &Difference) -> Table {
    let pairs = figures(first).into_iter().zip(figures(second));
    let rows = pairs
        .filter(|(a, b)| !(a.value.is_null() && b.value.is_null()))
        .map(|(a, b)| {
            let change = (a.difference)(difference).map(estimate);
            json!([a.name, a.value, b.value, change])
        });
    output::table(["figure", "first", "second", "difference"], rows)
}

/// Returns a table of the most frequent wrong outcomes.
pub fn confusions_table(set: &LabelSet, evaluation: &Evaluation) -> Table {
    let cells = evaluation.confusion.iter();
    let mut wrong: Vec<_> = cells.filter(|cell| cell.gold != cell.given).collect();
    wrong.sort_by_key(|cell| std::cmp::Reverse(cell.posts));
    let rows = wrong.into_iter().take(SHOWN_CONFUSIONS).map(|cell| {
        let (gold, given) = (slug(set, cell.gold), slug(set, cell.given));
        json!([gold, given, cell.posts])
    });
    output::table(["gold", "assigned", "posts"], rows)
}

/// Returns a table of the mean score and the share of right labels in each range of scores that has posts.
pub fn reliability_table(evaluation: &Evaluation) -> Table {
    let bins = evaluation.reliability.iter();
    let rows = bins.filter(|bin| bin.right.all > 0).map(|bin| {
        let range = format!("{:.1}–{:.1}", bin.from, bin.to);
        let mean = format!("{:.2}", bin.mean_score);
        json!([range, bin.right.all, mean, share(&bin.right, 2)])
    });
    output::table(["score", "posts", "mean score", "right"], rows)
}
