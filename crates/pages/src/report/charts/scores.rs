//! Draws score distributions for all posts and for each label.

use super::{Chart, Column, HEIGHT, MOST, WIDTH, only_in_table, room_for, stack};
use crate::display::{percent, score, single_line, thousands};
use crate::report::Report;
use crate::report::data::{BINS, OutcomeStats};
use crate::report::svg::{Anchor, Svg};
use crate::report::table::ChartTable;
use topicmill_review::as_f64;
use topicmill_store::PostOutcome;

/// Number of columns in the chart. A column is two bins wide.
const COLUMNS: usize = BINS / 2;

/// Kinds of outcomes, from bottom to top: (outcome, CSS class, name).
const KINDS: [(PostOutcome, &str, &str); 3] = [
    (PostOutcome::Labelled, "mark", "with a label"),
    (PostOutcome::Unsure, "mark-warm", "unsure"),
    (PostOutcome::Other, "mark-grey", "other"),
];

/// Returns the lowest score in a column.
fn start_of(column: usize) -> f64 {
    as_f64(column as u64) / as_f64(COLUMNS as u64)
}

/// Returns the posts per column and kind.
fn counts(report: &Report) -> Vec<[u64; 3]> {
    let mut columns = vec![[0; 3]; COLUMNS];
    for (kind, (outcome, ..)) in KINDS.into_iter().enumerate() {
        let outcomes = report.outcomes.iter();
        for stats in outcomes.filter(|stats| stats.outcome == outcome) {
            for (bin, posts) in stats.bins.iter().enumerate() {
                columns[(bin / 2).min(COLUMNS - 1)][kind] += posts;
            }
        }
    }
    columns
}

/// Draws a histogram of the best scores of all posts.
pub fn all(report: &Report) -> Option<Chart> {
    let scored = report.scored();
    if scored == 0 || !report.scores_are_shares {
        return None;
    }
    let counts = counts(report);
    let rows = counts.iter().enumerate().map(|(column, posts)| {
        let numbers = posts.iter().map(|posts| thousands(*posts));
        let from = score(start_of(column));
        std::iter::once(from).chain(numbers).collect()
    });
    let [labelled, unsure, other] = KINDS.map(|(.., name)| name);
    Some(Chart {
        id: "scores",
        title: "Score distribution".to_owned(),
        explanation: format!(
            "The score of each {}'s best label, including {} that were not assigned that label. {}",
            report.kind,
            report.kind.plural(),
            about_posts_without_label(report, scored)
        ),
        table: ChartTable::new(1, &["score from", labelled, unsure, other], rows),
        svg: draw(report, &counts),
    })
}

/// Returns a sentence about posts without a label and why they have none.
fn about_posts_without_label(report: &Report, scored: u64) -> String {
    let why_unsure = format!(
        "“unsure”: their best score is below the threshold of {}",
        score(report.threshold)
    );
    let why_other = "“other”: a background topic fits better than all labels";
    let mut reasons = Vec::new();
    for (outcome, why) in [
        (PostOutcome::Other, why_other),
        (PostOutcome::Unsure, why_unsure.as_str()),
    ] {
        let posts = report.posts_with(outcome);
        if posts > 0 {
            let share = percent(as_f64(posts) / as_f64(scored));
            let (all, things) = (thousands(scored), report.kind.plural());
            reasons.push(format!("{share} of {all} {things} are {why}"));
        }
    }
    if reasons.is_empty() {
        return format!("Every {} has a label.", report.kind);
    }
    format!("{}.", reasons.join("; "))
}

/// Draws the histogram, with the threshold.
fn draw(report: &Report, counts: &[[u64; 3]]) -> Svg {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let (top, bottom) = (44.0, HEIGHT - 26.0);
    let column = |(column, posts): (usize, &[u64; 3])| {
        let [from, to] = [column, column + 1].map(|column| score(start_of(column)));
        Column {
            name: format!("{from} to {to}"),
            posts: *posts,
            is_incomplete: false,
        }
    };
    let columns: Vec<_> = counts.iter().enumerate().map(column).collect();
    let kinds = KINDS.map(|(_, class, name)| (class, name));
    let left = stack(&mut svg, kinds, &columns, (top, bottom)).left;
    for tenth in [0_u32, 2, 4, 6, 8, 10] {
        let share = f64::from(tenth) / 10.0;
        let x = left + (WIDTH - left) * share;
        let anchor = match tenth {
            0 => Anchor::Start,
            10 => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.text((x, bottom + 18.0), anchor, "", &format!("{share:.1}"), 40.0);
    }
    if report.threshold > 0.0 && report.threshold <= 1.0 {
        let x = left + (WIDTH - left) * report.threshold;
        svg.line((x, top - 14.0), (x, bottom), "stroke-warm");
        let caption = format!("threshold {}", score(report.threshold));
        let (anchor, at) = if x > WIDTH / 2.0 {
            (Anchor::End, x - 6.0)
        } else {
            (Anchor::Start, x + 6.0)
        };
        svg.text((at, top - 5.0), anchor, "warm", &caption, WIDTH / 2.0);
    }
    svg
}

/// Quantiles of an outcome's best scores.
struct Quantiles<'r> {
    stats: &'r OutcomeStats,
    /// 10th percentile.
    low: f64,
    median: f64,
    /// 90th percentile.
    high: f64,
}

/// Returns a quantile of scores, interpolated from their histogram; `None` if it is empty.
fn quantile(bins: &[u64], share: f64) -> Option<f64> {
    let all: u64 = bins.iter().sum();
    let wanted = as_f64(all) * share;
    let mut below = 0.0;
    for (bin, posts) in bins.iter().enumerate() {
        let posts = as_f64(*posts);
        if posts > 0.0 && below + posts >= wanted {
            // This assumes a uniform distribution within a bin.
            let within = ((wanted - below) / posts).clamp(0.0, 1.0);
            return Some((as_f64(bin as u64) + within) / as_f64(BINS as u64));
        }
        below += posts;
    }
    None
}

/// Draws the median and the 10th to 90th percentile of each label's scores.
pub fn by_label(report: &Report) -> Option<Chart> {
    if !report.scores_are_shares {
        return None;
    }
    let mut labels: Vec<Quantiles<'_>> = report
        .outcomes
        .iter()
        // The best label's score says little about a post that is `other`.
        .filter(|stats| stats.outcome != PostOutcome::Other)
        .filter_map(|stats| {
            Some(Quantiles {
                stats,
                low: quantile(&stats.bins, 0.1)?,
                median: quantile(&stats.bins, 0.5)?,
                high: quantile(&stats.bins, 0.9)?,
            })
        })
        .collect();
    if labels.len() < 2 {
        return None;
    }
    labels.sort_by(|a, b| b.median.total_cmp(&a.median));
    let rows = labels.iter().map(|label| {
        vec![
            single_line(&label.stats.name, 60),
            thousands(label.stats.posts),
            score(label.low),
            score(label.median),
            score(label.high),
        ]
    });
    let things = report.kind.plural();
    let head = [
        "label",
        things,
        "10th percentile",
        "median",
        "90th percentile",
    ];
    let left_out = match report.posts_with(PostOutcome::Other) {
        0 => String::new(),
        other => {
            let other = thousands(other);
            format!(" {other} {things} that are “other” are left out.")
        }
    };
    Some(Chart {
        id: "scores-by-label",
        title: "Scores by label".to_owned(),
        explanation: format!(
            "The dot is the median score of a label's {things}, and the bar spans the 10th to the 90th percentile. A long \
             bar with low scores suggests that the label text could be more specific.{left_out}{}",
            only_in_table(labels.len(), "label")
        ),
        table: ChartTable::new(1, &head, rows),
        svg: ranges(&labels),
    })
}

/// Draws a row for each label, up to the maximum number of labels.
fn ranges(labels: &[Quantiles<'_>]) -> Svg {
    const ROW: f64 = 24.0;
    let labels = &labels[..labels.len().min(MOST)];
    let left = room_for(labels.iter().map(|label| &label.stats.name));
    let bottom = ROW * as_f64(labels.len() as u64) + 2.0;
    let mut svg = Svg::new(WIDTH, bottom + 22.0);
    let right = WIDTH - 40.0;
    let x = |score: f64| left + (right - left - 8.0) * score;
    for quarter in [0.0, 0.25, 0.5, 0.75, 1.0] {
        svg.line((x(quarter), 0.0), (x(quarter), bottom), "axis");
        let at = (x(quarter), bottom + 16.0);
        svg.text(at, Anchor::Middle, "", &format!("{quarter}"), 40.0);
    }
    for (place, label) in labels.iter().enumerate() {
        let Quantiles {
            stats,
            low,
            median,
            high,
        } = *label;
        let y = ROW * (as_f64(place as u64) + 0.5);
        svg.name(left, y, &stats.name);
        let (bar, dot) = match stats.outcome {
            PostOutcome::Labelled => ("mark-soft", "mark"),
            _ => ("h2", "mark-grey"),
        };
        svg.rect((x(low), y - 4.0), (x(high) - x(low), 8.0), bar, "");
        let tooltip = format!(
            "{}: median {}, 10th to 90th percentile {} to {}",
            stats.name,
            score(median),
            score(low),
            score(high)
        );
        svg.dot((x(median), y), 5.0, dot, &single_line(&tooltip, 200));
        svg.text((WIDTH, y + 4.0), Anchor::End, "", &score(median), 36.0);
    }
    svg
}
