//! Draws the change in the label mix between two periods.

use super::super::Report;
use super::super::data::{Change, OutcomeStats, Period};
use super::super::svg::{Anchor, Svg, width as measure};
use super::super::table::ChartTable;
use super::{Chart, MOST, WIDTH, room_for};
use crate::display::{percent, points, single_line, thousands};
use topicmill_review::drift::{Drift, DriftVerdict, LARGE, MODERATE, as_f64};

/// Draws the shares in both periods.
pub fn chart(report: &Report) -> Option<Chart> {
    let (period, drift) = (report.period?, report.drift?);
    let mut lines: Vec<(&OutcomeStats, Change)> = report
        .outcomes
        .iter()
        .filter_map(|line| Some((line, line.change?)))
        .filter(|(_, change)| change.before + change.after > 0)
        .collect();
    lines.sort_by(|a, b| b.1.difference().abs().total_cmp(&a.1.difference().abs()));
    let (before, after) = period.names();
    let rows = lines.iter().map(|(one, change)| {
        vec![
            single_line(&one.name, 60),
            thousands(change.before),
            thousands(change.after),
            percent(change.from),
            percent(change.to),
            points(change.difference()),
            if change.is_significant { "yes" } else { "no" }.to_owned(),
        ]
    });
    let head = [
        "label",
        "posts before",
        "posts after",
        "share before",
        "share after",
        "change (points)",
        "significant",
    ];
    Some(Chart {
        id: "mix-of-labels",
        title: "Change in label mix".to_owned(),
        explanation: format!("{} {}", describe(&drift), legend(&drift, before, after)),
        table: ChartTable::new(1, &head, rows),
        svg: draw(&lines, period),
    })
}

fn legend(drift: &Drift, before: &str, after: &str) -> String {
    format!(
        "The ring is a label's share of {} posts in {before}, and the dot its share of {} posts in {after}. The dots \
         of significant changes are coloured.",
        thousands(drift.before),
        thousands(drift.after)
    )
}

/// Returns a sentence with the drift index and its interpretation.
fn describe(drift: &Drift) -> String {
    let (before, after) = (thousands(drift.before), thousands(drift.after));
    let verdict = match drift.verdict() {
        DriftVerdict::Chance => format!(
            "within chance, which explains up to {} for samples of {before} and {after} posts",
            index(drift.chance)
        ),
        DriftVerdict::Small => "significant, but small".to_owned(),
        DriftVerdict::Moderate => "a moderate shift".to_owned(),
        DriftVerdict::Large => "a large shift".to_owned(),
    };
    format!(
        "The population stability index is {}: {verdict}. By the usual thresholds, a shift is moderate from \
         {MODERATE} and large from {LARGE}.",
        index(drift.index)
    )
}

/// Formats an index with three decimals.
fn index(index: f64) -> String {
    if index < 0.0005 {
        return "less than 0.001".to_owned();
    }
    format!("{index:.3}")
}

/// Height of a row in pixels.
const ROW: f64 = 24.0;
/// y coordinate of the first row.
const TOP: f64 = 22.0;

fn draw(lines: &[(&OutcomeStats, Change)], period: Period) -> Svg {
    let lines = &lines[..lines.len().min(MOST)];
    let left = room_for(lines.iter().map(|(line, _)| &line.name));
    let bottom = TOP + ROW * as_f64(lines.len() as u64);
    let mut svg = Svg::new(WIDTH, bottom + 22.0);
    let x = scale(&mut svg, lines, left, bottom);
    let (before, after) = key(&mut svg, period);
    for (place, (line, change)) in lines.iter().enumerate() {
        let y = TOP + ROW * (as_f64(place as u64) + 0.5);
        svg.name(left, y, &line.name);
        let (from, to) = (x(change.from), x(change.to));
        let class = match (change.is_significant, change.difference() > 0.0) {
            (false, _) => "mark-grey",
            (true, true) => "mark",
            (true, false) => "mark-warm",
        };
        svg.rect((from.min(to), y - 1.0), ((to - from).abs(), 2.0), class, "");
        let tooltip = |share: f64, when: &str| {
            crate::display::single_line(
                &format!("{}: {} in {when}", line.name, percent(share)),
                200,
            )
        };
        svg.dot((from, y), 4.0, "ring", &tooltip(change.from, before));
        svg.dot((to, y), 5.0, class, &tooltip(change.to, after));
        let weight = if change.is_significant { "strong" } else { "" };
        let number = points(change.difference());
        svg.text((WIDTH, y + 4.0), Anchor::End, weight, &number, 46.0);
    }
    svg
}

/// Draws vertical grid lines with shares and returns the function that maps a share to its x coordinate.
fn scale(
    svg: &mut Svg,
    lines: &[(&OutcomeStats, Change)],
    left: f64,
    bottom: f64,
) -> impl Fn(f64) -> f64 + use<> {
    let shares = lines.iter().map(|(_, change)| change.from.max(change.to));
    // The largest share is rounded up to a whole percentage, and the last tick to a round number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a percentage"
    )]
    let ticks = super::ticks((shares.fold(0.0, f64::max) * 100.0).ceil() as u64);
    let highest = as_f64(ticks.last().copied().unwrap_or(1).max(1)) / 100.0;
    let room = svg.width - 52.0 - left - 12.0;
    let x = move |share: f64| left + room * share / highest;
    for tick in &ticks {
        let at = x(as_f64(*tick) / 100.0);
        svg.line((at, TOP - 4.0), (at, bottom), "axis");
        let share = format!("{tick} %");
        svg.text((at, bottom + 16.0), Anchor::Middle, "", &share, 48.0);
    }
    x
}

/// Draws the legend and returns the periods' names.
fn key(svg: &mut Svg, period: Period) -> (&'static str, &'static str) {
    let (before, after) = match period {
        Period::Halves => ("earlier half", "later half"),
        Period::SameLengthBefore => ("period before", "this period"),
    };
    svg.dot((5.0, 8.0), 4.0, "ring", before);
    svg.text((13.0, 12.0), Anchor::Start, "", before, 120.0);
    let next = 13.0 + measure(before) + 16.0;
    svg.dot((next, 8.0), 5.0, "mark", after);
    svg.text((next + 9.0, 12.0), Anchor::Start, "", after, 120.0);
    svg.text((svg.width, 12.0), Anchor::End, "", "points", 60.0);
    (before, after)
}
