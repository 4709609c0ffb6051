//! Draws posts over time, in total and per label.

use super::{Chart, Column, HEIGHT, MOST, WIDTH, left_out, stack, time_ticks};
use crate::display::{percent, single_line, thousands};
use crate::report::Report;
use crate::report::data::OutcomeStats;
use crate::report::headline::capital;
use crate::report::svg::{Anchor, Svg, width};
use crate::report::table::ChartTable;
use topicmill_core::ThingKind;
use topicmill_review::as_f64;
use topicmill_store::PostOutcome;

/// Kinds of posts from bottom to top: (CSS class, name).
const KINDS: [(&str, &str); 3] = [
    ("mark", "with a label"),
    ("mark-grey", "no label"),
    ("mark-soft", "not labelled"),
];

/// Returns the name of a column in a table.
fn row_name(report: &Report, column: usize) -> String {
    let name = report.axis.name(column);
    if report.axis.is_incomplete(column) {
        format!("{name} (incomplete)")
    } else {
        name
    }
}

/// Draws all posts, with and without a label.
pub fn posts(report: &Report) -> Option<Chart> {
    if report.posts == 0 {
        return None;
    }
    let rows = report.totals.iter().enumerate().map(|(column, totals)| {
        let numbers = totals.iter().map(|n| thousands(*n));
        std::iter::once(row_name(report, column))
            .chain(numbers)
            .collect()
    });
    let [labelled, none, waiting] = KINDS.map(|(_, name)| name);
    let things = report.kind.plural();
    let name = capital(things);
    Some(Chart {
        id: match report.kind {
            ThingKind::Post => "posts-over-time",
            ThingKind::Comment => "comments-over-time",
        },
        title: format!("{name} over time"),
        explanation: format!(
            "Each column is {}. {name} are counted by the time of posting (UTC), not of collection.{}",
            report.axis.one_unit(),
            report.axis.about_columns(things)
        ),
        table: ChartTable::new(1, &["from", labelled, none, waiting], rows),
        svg: draw(report),
    })
}

fn draw(report: &Report) -> Svg {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let bottom = HEIGHT - 26.0;
    let columns = report.totals.iter().enumerate();
    let columns: Vec<_> = columns
        .map(|(column, posts)| Column {
            name: report.axis.name(column),
            posts: *posts,
            is_incomplete: report.axis.is_incomplete(column),
        })
        .collect();
    let layout = stack(&mut svg, KINDS, &columns, (30.0, bottom));
    time_ticks(&mut svg, report, &layout, bottom + 20.0);
    svg
}

/// Draws a small chart per label, all on the same scale.
pub fn labels(report: &Report) -> Option<Chart> {
    let scored = report.outcomes.iter().filter(|stats| stats.posts > 0);
    let (labels, without_label): (Vec<&OutcomeStats>, Vec<_>) =
        scored.partition(|stats| stats.outcome == PostOutcome::Labelled);
    let more = (labels.len() + without_label.len()).saturating_sub(MOST);
    let shown = labels[..labels.len() - more].iter().chain(&without_label);
    let shown: Vec<&OutcomeStats> = shown.copied().collect();
    // The chart of a single label would be the same as that of all posts.
    if shown.len() < 2 || report.axis.len() < 2 {
        return None;
    }
    let names = shown.iter().map(|stats| single_line(&stats.name, 60));
    let names: Vec<String> = names.collect();
    let head: Vec<&str> = std::iter::once("from")
        .chain(names.iter().map(String::as_str))
        .collect();
    let rows = (0..report.axis.len()).map(|column| {
        let numbers = shown.iter().map(|stats| thousands(stats.series[column]));
        std::iter::once(row_name(report, column))
            .chain(numbers)
            .collect()
    });
    let things = report.kind.plural();
    Some(Chart {
        id: "labels-over-time",
        title: "Each label over time".to_owned(),
        explanation: format!(
            "{} per {}, and the label's share of {} scored {things}. All charts use the same scale.{}{}",
            capital(things),
            report.axis.unit(),
            thousands(report.scored()),
            report.axis.about_lines(),
            left_out(more, "smaller label")
        ),
        table: ChartTable::new(1, &head, rows),
        svg: multiples(report, &shown),
    })
}

/// Number of small charts in a row.
const ACROSS: usize = 2;
/// Height of a small chart, with its name and its axis.
const EACH_HEIGHT: f64 = 92.0;
/// Space between two small charts.
const GAP: f64 = 22.0;
/// Width of a small chart.
const EACH_WIDTH: f64 = (WIDTH - GAP) / 2.0;

fn multiples(report: &Report, outcomes: &[&OutcomeStats]) -> Svg {
    let down = outcomes.len().div_ceil(ACROSS);
    let mut svg = Svg::new(WIDTH, EACH_HEIGHT * as_f64(down as u64) + 16.0);
    let largest = outcomes.iter().flat_map(|stats| &stats.series).max();
    let largest = as_f64(largest.copied().unwrap_or(1).max(1));
    for (place, stats) in outcomes.iter().enumerate() {
        let left = (EACH_WIDTH + GAP) * as_f64((place % ACROSS) as u64);
        let top = EACH_HEIGHT * as_f64((place / ACROSS) as u64);
        draw_outcome(&mut svg, report, stats, (left, top), largest);
    }
    let (axis, y) = (&report.axis, svg.height - 4.0);
    let [first, last] = [0, axis.len() - 1].map(|column| axis.name(column));
    svg.text((0.0, y), Anchor::Start, "", &first, EACH_WIDTH / 2.0);
    svg.text((EACH_WIDTH, y), Anchor::End, "", &last, EACH_WIDTH / 2.0);
    svg
}

/// Draws the small chart of an outcome. A line at its top stands for the number `largest` of posts.
fn draw_outcome(
    svg: &mut Svg,
    report: &Report,
    stats: &OutcomeStats,
    (left, top): (f64, f64),
    largest: f64,
) {
    let right = left + EACH_WIDTH;
    let (head, foot) = (top + 24.0, top + EACH_HEIGHT - 18.0);
    let share = percent(stats.share);
    let room = EACH_WIDTH - width(&share) - 8.0;
    svg.text((left, top + 13.0), Anchor::Start, "name", &stats.name, room);
    svg.text((right, top + 13.0), Anchor::End, "", &share, 60.0);
    let last_column = as_f64(report.axis.len() as u64 - 1);
    let place = |(column, posts): (usize, &u64)| {
        let x = left + EACH_WIDTH * as_f64(column as u64) / last_column;
        (x, foot - (foot - head) * as_f64(*posts) / largest)
    };
    let columns = stats.series.iter().enumerate();
    let complete = columns.filter(|(column, _)| report.axis.complete().contains(column));
    let places: Vec<(f64, f64)> = complete.map(place).collect();
    let (area, stroke) = match stats.outcome {
        PostOutcome::Labelled => ("mark-soft", "stroke"),
        _ => ("h1", "stroke-grey"),
    };
    svg.area(&places, foot, area);
    svg.path(&places, stroke);
    svg.line((left, foot), (right, foot), "axis");
}
