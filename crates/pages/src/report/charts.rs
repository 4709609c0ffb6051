//! The charts in the report. Each has a data table. The style sheet scales charts to the width of the page.

mod coverage;
mod groups;
mod heat;
mod mix;
mod over_time;
mod scores;

use super::Report;
use super::svg::{Anchor, Svg, width as measure};
use super::table::ChartTable;
use crate::display::{counted, thousands};
use topicmill_review::as_f64;

/// Width of a chart in its own coordinates. The style sheet shows it at 340 pixels (on a phone) to 540, so that its
/// text has a height of 10 to 15 pixels.
const WIDTH: f64 = 420.0;
/// Height of a column chart.
const HEIGHT: f64 = 190.0;
/// Maximum width of the column of names.
const NAMES: f64 = 150.0;
/// Maximum number of labels or topics in a chart; the chart's table contains more.
const MOST: usize = 24;

/// A chart.
pub struct Chart {
    /// File name and HTML id.
    pub id: &'static str,
    /// Title.
    pub title: String,
    /// Explanation of how to read the chart.
    pub explanation: String,
    /// The chart's data.
    pub table: ChartTable,
    svg: Svg,
}

impl Chart {
    /// Returns the drawing as HTML.
    pub fn html(&self) -> String {
        let alt = format!("{}. {}", self.title, self.explanation);
        let class = if self.svg.width > WIDTH {
            "plot wide"
        } else {
            "plot"
        };
        self.svg.inline(class, &alt)
    }

    /// Returns the drawing as an SVG file.
    pub fn file(&self) -> String {
        self.svg.alone(&self.title, &self.explanation)
    }
}

/// Returns all charts that have data.
pub fn charts(report: &Report) -> Vec<Chart> {
    [
        over_time::posts(report),
        over_time::labels(report),
        groups::chart(report),
        heat::chart(report),
        scores::all(report),
        scores::by_label(report),
        mix::chart(report),
        coverage::chart(report),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a sentence about what does not fit into a chart of [`MOST`] labels or topics but is in its table, with a
/// leading space; empty if everything fits.
fn only_in_table(all: usize, thing: &str) -> String {
    match all.saturating_sub(MOST) {
        0 => String::new(),
        left_out => format!(" Only in the table: {}.", counted(left_out as u64, thing)),
    }
}

/// Returns a sentence about what a chart and its table leave out, with a leading space; empty if that is nothing.
fn left_out(number: usize, thing: &str) -> String {
    match number as u64 {
        0 => String::new(),
        number => format!(" Left out: {}.", counted(number, thing)),
    }
}

/// Returns about three round tick values from 0 up to at least `largest`.
fn ticks(largest: u64) -> Vec<u64> {
    let largest = largest.max(1);
    let mut steps = (0..19).flat_map(|power| [1, 2, 5].map(|factor| factor * 10_u64.pow(power)));
    let step = steps
        .find(|step| largest.div_ceil(*step) <= 3)
        .expect("no count exceeds 10^19");
    (0..=largest.div_ceil(step)).map(|n| n * step).collect()
}

/// Draws horizontal grid lines with numbers and returns the function that maps a number to its y coordinate.
fn grid(
    svg: &mut Svg,
    left: f64,
    top: f64,
    bottom: f64,
    largest: u64,
) -> impl Fn(u64) -> f64 + use<> {
    let ticks = ticks(largest);
    let highest = as_f64(*ticks.last().expect("there is a first tick")).max(1.0);
    let height = move |n: u64| bottom - (bottom - top) * as_f64(n) / highest;
    for tick in ticks {
        let y = height(tick);
        svg.line((left, y), (svg.width, y), "axis");
        let number = thousands(tick);
        svg.text((left - 7.0, y + 4.0), Anchor::End, "", &number, left - 7.0);
    }
    height
}

/// A column of a stacked column chart.
struct Column<const KINDS: usize> {
    name: String,
    /// Posts of each kind, from bottom to top.
    posts: [u64; KINDS],
    is_incomplete: bool,
}

/// The places of the columns in a chart.
struct ColumnLayout {
    /// The x coordinate of the first column.
    left: f64,
    /// The width of a column with its gap.
    width: f64,
}

/// Draws a stacked column chart with a legend; incomplete columns are paler. `kinds` are the CSS classes and names of
/// the kinds of posts.
fn stack<const KINDS: usize>(
    svg: &mut Svg,
    kinds: [(&str, &str); KINDS],
    columns: &[Column<KINDS>],
    (top, bottom): (f64, f64),
) -> ColumnLayout {
    draw_legend(svg, kinds, columns);
    let sums = columns.iter().map(|column| column.posts.iter().sum());
    let largest = sums.max().unwrap_or(0);
    let left = measure(&thousands(ticks(largest).pop().unwrap_or(0))) + 9.0;
    let height = grid(svg, left, top, bottom, largest);
    let width = (svg.width - left) / as_f64(columns.len().max(1) as u64);
    let without_gap = (width - if width > 4.0 { 1.5 } else { 0.3 }).max(0.5);
    for (place, column) in columns.iter().enumerate() {
        let x = left + width * as_f64(place as u64);
        let mut below = 0;
        let (pale, note) = if column.is_incomplete {
            (" pale", " (incomplete)")
        } else {
            ("", "")
        };
        let parts = kinds.iter().zip(column.posts);
        for ((class, kind), posts) in parts.filter(|(_, posts)| *posts > 0) {
            let (foot, head) = (height(below), height(below + posts));
            let tooltip = format!("{}{note}: {} {kind}", column.name, thousands(posts));
            let class = format!("{class}{pale}");
            svg.rect((x, head), (without_gap, foot - head), &class, &tooltip);
            below += posts;
        }
    }
    ColumnLayout { left, width }
}

/// Draws the legend of the kinds of posts that occur.
fn draw_legend<const KINDS: usize>(
    svg: &mut Svg,
    kinds: [(&str, &str); KINDS],
    columns: &[Column<KINDS>],
) {
    let mut x = 0.0;
    for (kind, (class, name)) in kinds.iter().enumerate() {
        if columns.iter().any(|column| column.posts[kind] > 0) {
            svg.rect((x, 3.0), (10.0, 10.0), class, "");
            svg.text((x + 15.0, 12.0), Anchor::Start, "", name, 130.0);
            x += 15.0 + measure(name).min(130.0) + 12.0;
        }
    }
}

/// Returns the width of the widest name.
fn widest<'n>(names: impl Iterator<Item = &'n String>) -> f64 {
    names.map(|name| measure(name)).fold(0.0, f64::max)
}

/// Returns the width of the name column: the widest name and a margin, at most [`NAMES`].
fn room_for<'n>(names: impl Iterator<Item = &'n String>) -> f64 {
    (widest(names) + 14.0).min(NAMES)
}

/// Draws the time axis's tick labels at the height `y`, below a chart.
fn time_ticks(svg: &mut Svg, report: &Report, layout: &ColumnLayout, y: f64) {
    let ColumnLayout { left, width } = *layout;
    let room = 92.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "there are only a few ticks"
    )]
    let most = ((svg.width - left) / room).floor().max(1.0) as usize;
    for tick in report.axis.ticks(most) {
        let x = left + width * as_f64(tick as u64);
        let name = report.axis.name(tick);
        // A name that does not fit is left out.
        if tick > 0 && x + measure(&name) > svg.width {
            continue;
        }
        svg.line((x, y - 20.0), (x, y - 15.0), "axis");
        svg.text((x, y), Anchor::Start, "", &name, svg.width - x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_few_round_numbers() {
        assert_eq!(ticks(0), [0, 1]);
        assert_eq!(ticks(7), [0, 5, 10]);
        assert_eq!(ticks(512), [0, 200, 400, 600]);
        assert_eq!(ticks(1_000_000), [0, 500_000, 1_000_000]);
        assert!(ticks(u64::MAX / 4).len() <= 4);
    }
}
