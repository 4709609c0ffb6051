//! Posts over time: all of them, and those of each label.

use super::super::Report;
use super::super::data::Line;
use super::super::drift::real;
use super::super::svg::{Anchor, Svg};
use super::super::table::Table;
use super::{Chart, MOST, NARROW, WIDE, grid, time_ticks};
use crate::look::{percent, whole};

/// What is drawn of a post, from the ground up: with the class of its mark and its name.
const KINDS: [(&str, &str); 3] = [
    ("mark", "with a label"),
    ("mark-grey", "none of the labels"),
    ("mark-soft", "not labelled"),
];

/// All posts, by whether they have a label.
pub fn posts(report: &Report) -> Option<Chart> {
    if report.posts == 0 {
        return None;
    }
    let rows = report.totals.iter().enumerate().map(|(column, totals)| {
        let numbers = totals.iter().map(|n| whole(*n));
        std::iter::once(report.axis.name(column))
            .chain(numbers)
            .collect()
    });
    let [labelled, none, waiting] = KINDS.map(|(_, name)| name);
    Some(Chart {
        id: "posts-over-time",
        title: "Posts over time".to_owned(),
        read: format!(
            "A column is a {}, by when the posts were posted (UTC), not when they were collected.",
            report.axis.unit()
        ),
        table: Table::new(1, &["from", labelled, none, waiting], rows),
        wide: draw(report, WIDE, 220.0),
        narrow: draw(report, NARROW, 190.0),
    })
}

fn draw(report: &Report, width: f64, height: f64) -> Svg {
    let mut svg = Svg::new(width, height);
    let (top, bottom) = (30.0, height - 26.0);
    let used: Vec<usize> = (0..KINDS.len())
        .filter(|kind| report.totals.iter().any(|totals| totals[*kind] > 0))
        .collect();
    let mut x = 0.0;
    for kind in &used {
        let (class, name) = KINDS[*kind];
        svg.rect((x, 3.0), (10.0, 10.0), class, "");
        svg.text((x + 15.0, 12.0), Anchor::Start, "", name, 130.0);
        x += 15.0 + super::super::svg::width(name).min(130.0) + 12.0;
    }
    let largest = report.totals.iter().map(|totals| totals.iter().sum()).max();
    let largest: u64 = largest.unwrap_or(0);
    let left = super::super::svg::width(&whole(super::ticks(largest).pop().unwrap_or(0))) + 9.0;
    let height = grid(&mut svg, left, top, bottom, largest);
    let column = (width - left) / real(report.axis.len().max(1) as u64);
    let gap = if column > 4.0 { 1.5 } else { 0.3 };
    for (place, totals) in report.totals.iter().enumerate() {
        let x = left + column * real(place as u64);
        let mut below = 0;
        for kind in &used {
            let posts = totals[*kind];
            if posts == 0 {
                continue;
            }
            let (class, name) = KINDS[*kind];
            let (foot, head) = (height(below), height(below + posts));
            let told = format!("{}: {} {name}", report.axis.name(place), whole(posts));
            svg.rect(
                (x, head),
                ((column - gap).max(0.5), foot - head),
                class,
                &told,
            );
            below += posts;
        }
    }
    time_ticks(&mut svg, report, left, bottom + 20.0, column);
    svg
}

/// Each label in a small chart of its own, all on one scale.
pub fn labels(report: &Report) -> Option<Chart> {
    let lines: Vec<&Line> = report.lines.iter().filter(|line| line.posts > 0).collect();
    if lines.is_empty() || report.axis.len() < 2 {
        return None;
    }
    let head: Vec<String> = std::iter::once("from".to_owned())
        .chain(
            lines
                .iter()
                .take(MOST)
                .map(|line| crate::look::line(&line.name, 60)),
        )
        .collect();
    let rows = (0..report.axis.len()).map(|column| {
        let numbers = lines
            .iter()
            .take(MOST)
            .map(|line| whole(line.series[column]));
        std::iter::once(report.axis.name(column))
            .chain(numbers)
            .collect()
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let left_out = lines.len().saturating_sub(MOST);
    let rest = match left_out {
        0 => String::new(),
        1 => " One smaller label is left out.".to_owned(),
        n => format!(" {n} smaller labels are left out."),
    };
    Some(Chart {
        id: "labels-over-time",
        title: "Each label over time".to_owned(),
        read: format!(
            "Posts a {}; all of these share one scale, so that heights compare.{rest}",
            report.axis.unit()
        ),
        table: Table::new(1, &head, rows),
        wide: multiples(report, &lines, WIDE, 3),
        narrow: multiples(report, &lines, NARROW, 2),
    })
}

fn multiples(report: &Report, lines: &[&Line], width: f64, across: usize) -> Svg {
    const HEIGHT: f64 = 92.0;
    const GAP: f64 = 22.0;
    let lines = &lines[..lines.len().min(MOST)];
    let down = lines.len().div_ceil(across);
    let mut svg = Svg::new(width, HEIGHT * real(down as u64) + 16.0);
    let each = (width - GAP * real(across as u64 - 1)) / real(across as u64);
    let largest = lines.iter().flat_map(|line| line.series.iter()).max();
    let largest = real(largest.copied().unwrap_or(1).max(1));
    let columns = report.axis.len();
    for (place, line) in lines.iter().enumerate() {
        let left = (each + GAP) * real((place % across) as u64);
        let top = HEIGHT * real((place / across) as u64);
        let (head, foot) = (top + 24.0, top + HEIGHT - 18.0);
        let share = percent(line.share);
        let room = each - super::super::svg::width(&share) - 8.0;
        svg.text((left, top + 13.0), Anchor::Start, "name", &line.name, room);
        svg.text((left + each, top + 13.0), Anchor::End, "", &share, 60.0);
        let places: Vec<_> = line
            .series
            .iter()
            .enumerate()
            .map(|(column, posts)| {
                let x = left + each * real(column as u64) / real(columns as u64 - 1);
                (x, foot - (foot - head) * real(*posts) / largest)
            })
            .collect();
        let is_label = line.fate == crate::store::Fate::Labelled;
        let (area, stroke) = if is_label {
            ("mark-soft", "stroke")
        } else {
            ("h1", "stroke-grey")
        };
        svg.area(&places, foot, area);
        svg.path(&places, stroke);
        svg.line((left, foot), (left + each, foot), "axis");
    }
    let y = svg.height - 4.0;
    let (first, last) = (report.axis.name(0), report.axis.name(columns - 1));
    svg.text((0.0, y), Anchor::Start, "", &first, each / 2.0);
    svg.text((each, y), Anchor::End, "", &last, each / 2.0);
    svg
}
