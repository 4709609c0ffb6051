//! Draws the change in the label mix between two periods.

use super::{Chart, MOST, WIDTH, room_for};
use crate::display::{p_value, percent, points, single_line, thousands};
use crate::report::Report;
use crate::report::data::{Change, Compared, OutcomeStats};
use crate::report::svg::{Anchor, Svg, width as measure};
use crate::report::table::ChartTable;
use topicmill_review::as_f64;

/// Draws the shares in both periods.
pub fn chart(report: &Report) -> Option<Chart> {
    let compared = report.compared.as_ref().ok()?;
    let mut lines: Vec<(&OutcomeStats, Change)> = report
        .outcomes
        .iter()
        .filter_map(|line| Some((line, line.change?)))
        .filter(|(_, change)| change.posts != [0, 0])
        .collect();
    let size = |change: &Change| change.share.difference().abs();
    lines.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)));
    let rows = lines.iter().map(|(line, change)| {
        let [before, after] = change.posts.map(thousands);
        let share = &change.share;
        let interval = &share.difference;
        vec![
            single_line(&line.name, 60),
            before,
            after,
            percent(share.from),
            percent(share.to),
            points(share.difference()),
            format!("{} to {}", points(interval.low), points(interval.high)),
            p_value(change.p),
            points(share.raw_difference()),
        ]
    });
    let things = report.kind.plural();
    let [before, after] = ["before", "after"].map(|when| format!("{things} {when}"));
    let head = [
        "label",
        &before,
        &after,
        "share before",
        "share after",
        "change (points)",
        "95 % interval",
        "p (Holm)",
        "raw change",
    ];
    Some(Chart {
        id: "mix-of-labels",
        title: "Change in label mix".to_owned(),
        explanation: explanation(compared, &lines, things),
        table: ChartTable::new(1, &head, rows),
        svg: draw(&lines),
    })
}

fn explanation(compared: &Compared, lines: &[(&OutcomeStats, Change)], things: &str) -> String {
    let [before, after] = compared.dates();
    let [posts_before, posts_after] = compared.posts.map(thousands);
    let place = match compared.which_subreddits() {
        Some(which) => format!(" of {which}, read without gaps"),
        None => String::new(),
    };
    let mut text = format!(
        "The ring is a label's assigned share of {posts_before} {things} from {before}, and the dot its share \
         of {posts_after} {things} from {after}{place}. Both are for the same mix of subreddits, so a change is one within \
         subreddits. The dots of significant changes are coloured (Cochran-Mantel-Haenszel test, corrected for the \
         number of labels)."
    );
    let apart = |change: &Change| (change.share.raw_difference() - change.share.difference()).abs();
    let most = (lines.iter()).max_by(|(_, a), (_, b)| apart(a).total_cmp(&apart(b)));
    if let Some((line, change)) = most
        && change.depends_on_mix()
    {
        let [from, to] = [change.share.raw_from, change.share.raw_to].map(percent);
        let name = single_line(&line.name, 60);
        let sentence = format!(" In the mix as it was, {name} went from {from} to {to}.");
        text.push_str(&sentence);
    }
    text
}

/// Height of a row in pixels.
const ROW: f64 = 24.0;
/// y coordinate of the first row.
const TOP: f64 = 22.0;

fn draw(lines: &[(&OutcomeStats, Change)]) -> Svg {
    let lines = &lines[..lines.len().min(MOST)];
    let left = room_for(lines.iter().map(|(line, _)| &line.name));
    let bottom = TOP + ROW * as_f64(lines.len() as u64);
    let mut svg = Svg::new(WIDTH, bottom + 22.0);
    let x = scale(&mut svg, lines, left, bottom);
    let (before, after) = key(&mut svg);
    for (place, (line, change)) in lines.iter().enumerate() {
        let y = TOP + ROW * (as_f64(place as u64) + 0.5);
        svg.name(left, y, &line.name);
        let (from, to) = (x(change.share.from), x(change.share.to));
        let class = match (change.is_significant(), change.share.difference() > 0.0) {
            (false, _) => "mark-grey",
            (true, true) => "mark",
            (true, false) => "mark-warm",
        };
        svg.rect((from.min(to), y - 1.0), ((to - from).abs(), 2.0), class, "");
        let tooltip = |share: f64, when: &str| {
            single_line(&format!("{}: {} in {when}", line.name, percent(share)), 200)
        };
        svg.dot((from, y), 4.0, "ring", &tooltip(change.share.from, before));
        svg.dot((to, y), 5.0, class, &tooltip(change.share.to, after));
        let weight = if change.is_significant() {
            "strong"
        } else {
            ""
        };
        let number = points(change.share.difference());
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
    let shares = lines
        .iter()
        .map(|(_, change)| change.share.from.max(change.share.to));
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
fn key(svg: &mut Svg) -> (&'static str, &'static str) {
    let (before, after) = ("earlier period", "later period");
    svg.dot((5.0, 8.0), 4.0, "ring", before);
    svg.text((13.0, 12.0), Anchor::Start, "", before, 120.0);
    let next = 13.0 + measure(before) + 16.0;
    svg.dot((next, 8.0), 5.0, "mark", after);
    svg.text((next + 9.0, 12.0), Anchor::Start, "", after, 120.0);
    svg.text((svg.width, 12.0), Anchor::End, "", "points", 60.0);
    (before, after)
}
