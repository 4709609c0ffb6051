//! Draws the change in the label mix between two periods.

use super::{Chart, MOST, WIDTH, only_in_table, room_for};
use crate::display::{p_value, percent, points, single_line, thousands};
use crate::report::Report;
use crate::report::data::{Change, Compared};
use crate::report::svg::{Anchor, Svg, width as measure};
use crate::report::table::ChartTable;
use topicmill_review::as_f64;

/// Names of the two periods, in the legend and in tooltips.
const PERIODS: [&str; 2] = ["earlier period", "later period"];

/// The change in an outcome's share.
struct OutcomeChange<'r> {
    name: &'r String,
    change: Change,
}

/// Draws the shares in both periods.
pub fn chart(report: &Report) -> Option<Chart> {
    let compared = report.compared.as_ref().ok()?;
    let outcomes = report.outcomes.iter().filter_map(|stats| {
        let (name, change) = (&stats.name, stats.change?);
        (change.posts != [0, 0]).then_some(OutcomeChange { name, change })
    });
    let mut outcomes: Vec<OutcomeChange<'_>> = outcomes.collect();
    let size = |outcome: &OutcomeChange<'_>| outcome.change.share.difference().abs();
    outcomes.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let rows = outcomes.iter().map(|OutcomeChange { name, change }| {
        let [before, after] = change.posts.map(thousands);
        let share = &change.share;
        let interval = &share.difference;
        vec![
            single_line(name, 60),
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
        explanation: explanation(compared, &outcomes, things),
        table: ChartTable::new(1, &head, rows),
        svg: draw(&outcomes),
    })
}

fn explanation(compared: &Compared, outcomes: &[OutcomeChange<'_>], things: &str) -> String {
    let [before, after] = compared.dates();
    let [posts_before, posts_after] = compared.posts.map(thousands);
    let place = match compared.which_subreddits() {
        Some(which) => format!(" of {which}, read without gaps"),
        None => String::new(),
    };
    let mut text = format!(
        "The ring is a label's assigned share of {posts_before} {things} from {before}, and the dot its share \
         of {posts_after} {things} from {after}{place}. Both are for the same mix of subreddits, so a change is one within \
         subreddits. The dots of significant changes are coloured, rises and falls differently (Cochran-Mantel-Haenszel test, corrected for the \
         number of labels)."
    );
    let most_affected = outcomes
        .iter()
        .max_by(|a, b| a.change.mix_effect().total_cmp(&b.change.mix_effect()));
    if let Some(OutcomeChange { name, change }) = most_affected
        && change.depends_on_mix()
    {
        let [from, to] = [change.share.raw_from, change.share.raw_to].map(percent);
        let name = single_line(name, 60);
        let sentence = format!(" In the mix as it was, {name} went from {from} to {to}.");
        text.push_str(&sentence);
    }
    text + &only_in_table(outcomes.len(), "label")
}

/// Height of a row in pixels.
const ROW: f64 = 24.0;
/// y coordinate of the first row.
const TOP: f64 = 22.0;

fn draw(outcomes: &[OutcomeChange<'_>]) -> Svg {
    let outcomes = &outcomes[..outcomes.len().min(MOST)];
    let left = room_for(outcomes.iter().map(|outcome| outcome.name));
    let bottom = TOP + ROW * as_f64(outcomes.len() as u64);
    let mut svg = Svg::new(WIDTH, bottom + 22.0);
    let x = draw_scale(&mut svg, outcomes, left, bottom);
    draw_legend(&mut svg);
    let [before, after] = PERIODS;
    for (place, OutcomeChange { name, change }) in outcomes.iter().enumerate() {
        let y = TOP + ROW * (as_f64(place as u64) + 0.5);
        svg.name(left, y, name);
        let (from, to) = (x(change.share.from), x(change.share.to));
        let class = match (change.is_significant(), change.share.difference() > 0.0) {
            (false, _) => "mark-grey",
            (true, true) => "mark",
            (true, false) => "mark-warm",
        };
        svg.rect((from.min(to), y - 1.0), ((to - from).abs(), 2.0), class, "");
        let tooltip = |share: f64, when: &str| {
            single_line(&format!("{name}: {} in {when}", percent(share)), 200)
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
fn draw_scale(
    svg: &mut Svg,
    outcomes: &[OutcomeChange<'_>],
    left: f64,
    bottom: f64,
) -> impl Fn(f64) -> f64 + use<> {
    let shares = outcomes.iter().map(|outcome| {
        let share = &outcome.change.share;
        share.from.max(share.to)
    });
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

/// Draws the legend and the heading of the numbers.
fn draw_legend(svg: &mut Svg) {
    let [before, after] = PERIODS;
    svg.dot((5.0, 8.0), 4.0, "ring", before);
    svg.text((13.0, 12.0), Anchor::Start, "", before, 120.0);
    let next = 13.0 + measure(before) + 16.0;
    svg.dot((next, 8.0), 5.0, "mark", after);
    svg.text((next + 9.0, 12.0), Anchor::Start, "", after, 120.0);
    svg.text((svg.width, 12.0), Anchor::End, "", "points", 60.0);
}
