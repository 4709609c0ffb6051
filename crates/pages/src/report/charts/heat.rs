//! Draws a heat map of topics (the reason of collection) against predicted labels.

use super::super::Report;
use super::super::data::{OutcomeStats, TopicStats};
use super::super::svg::{Anchor, Svg, width as measure};
use super::super::table::ChartTable;
use super::{Chart, MOST, NARROW, WIDE};
use crate::display::{percent, single_line};
use topicmill_review::drift::as_f64;
use topicmill_store::PostOutcome;

/// The smallest share that is printed in a cell.
const PRINTED_FROM: f64 = 0.045;
/// The most pixels of a column name.
const HEADING: f64 = 175.0;
/// Upper bounds of the colour steps; the last step has the rest.
const STEPS: [f64; 7] = [0.005, 0.04, 0.1, 0.2, 0.35, 0.5, 0.7];

/// Draws the heat map; `None` with fewer than two topics.
pub fn chart(report: &Report) -> Option<Chart> {
    let rows: Vec<&TopicStats> = report
        .topics
        .iter()
        .filter(|topic| topic.scored > 0)
        .collect();
    if rows.len() < 2 || report.outcomes.len() < 2 {
        return None;
    }
    let shown = &rows[..rows.len().min(MOST)];
    let columns = columns(report, shown);
    let head = ["topic", "label", "posts", "share of topic"];
    let mut pairs: Vec<(u64, f64, &TopicStats, &OutcomeStats)> = rows
        .iter()
        .flat_map(|topic| {
            topic
                .row
                .iter()
                .zip(&report.outcomes)
                .map(move |(posts, line)| {
                    (*posts, as_f64(*posts) / as_f64(topic.scored), *topic, line)
                })
        })
        .filter(|(posts, ..)| *posts > 0)
        .collect();
    pairs.sort_by(|a, b| {
        b.0.cmp(&a.0)
            .then(a.2.slug.cmp(&b.2.slug))
            .then(a.3.slug.cmp(&b.3.slug))
    });
    let table = pairs.iter().map(|(posts, share, topic, label)| {
        vec![
            single_line(&topic.name, 60),
            single_line(&label.name, 60),
            crate::display::thousands(*posts),
            percent(*share),
        ]
    });
    Some(Chart {
        id: "topics-against-labels",
        title: "Topics against labels".to_owned(),
        read: format!(
            "Each row is the topic that posts were collected for, and each column the label that they got. Numbers are \
             percentages of the row. On the diagonal, topic and label agree.{}",
            largest_disagreement(&pairs, &report.outcomes)
        ),
        table: ChartTable::new(2, &head, table),
        wide: draw(shown, &columns, WIDE, true),
        narrow: draw(shown, &columns, NARROW, false),
    })
}

/// Returns a sentence about the topic that most often gets another label.
fn largest_disagreement(
    pairs: &[(u64, f64, &TopicStats, &OutcomeStats)],
    lines: &[OutcomeStats],
) -> String {
    let is_label = |slug: &str| lines.iter().any(|line| line.slug == slug);
    let apart = pairs
        .iter()
        .filter(|(_, _, topic, line)| {
            topic.slug != line.slug
                && is_label(&topic.slug)
                && line.outcome == PostOutcome::Labelled
        })
        .max_by(|a, b| a.1.total_cmp(&b.1));
    apart.map_or_else(String::new, |(_, share, topic, label)| {
        format!(
            " Largest disagreement: {}, with {} of its posts labelled {}.",
            single_line(&topic.name, 48),
            percent(*share),
            single_line(&label.name, 48)
        )
    })
}

/// Returns the outcomes that are columns: those of the rows in order, then the largest others.
fn columns<'r>(report: &'r Report, rows: &[&TopicStats]) -> Vec<(usize, &'r OutcomeStats)> {
    let place = |slug: &str| report.outcomes.iter().position(|line| line.slug == slug);
    let mut places: Vec<usize> = rows.iter().filter_map(|row| place(&row.slug)).collect();
    for (place, line) in report.outcomes.iter().enumerate() {
        if !places.contains(&place) && line.posts > 0 {
            places.push(place);
        }
    }
    places.truncate(MOST);
    places
        .into_iter()
        .map(|place| (place, &report.outcomes[place]))
        .collect()
}

fn step(share: f64) -> usize {
    STEPS
        .iter()
        .position(|most| share < *most)
        .unwrap_or(STEPS.len())
}

/// The layout of the heat map, in pixels.
struct Grid {
    left: f64,
    top: f64,
    cell: f64,
    tall: f64,
    /// Width of the column numbers, which replace names on narrow screens; 0 on wide ones.
    numbers: f64,
}

impl Grid {
    fn is_wide(&self) -> bool {
        self.numbers == 0.0
    }
}

fn draw(
    rows: &[&TopicStats],
    columns: &[(usize, &OutcomeStats)],
    width: f64,
    is_wide: bool,
) -> Svg {
    let widest = |names: &mut dyn Iterator<Item = &String>| {
        names.map(|name| measure(name)).fold(0.0, f64::max)
    };
    let names = widest(&mut rows.iter().map(|row| &row.name));
    let heading = widest(&mut columns.iter().map(|(_, line)| &line.name)).min(HEADING);
    let numbers = if is_wide { 0.0 } else { 22.0 };
    let left = (names + 12.0).min(if is_wide { 220.0 } else { 118.0 }) + numbers;
    // A name rotated by 45 degrees needs its length times sin 45° in both directions.
    let climb = if is_wide { heading * 0.72 } else { 0.0 };
    let cell = ((width - left - climb) / as_f64(columns.len() as u64)).min(44.0);
    let (least, most) = if is_wide { (24.0, 34.0) } else { (17.0, 26.0) };
    let grid = Grid {
        left,
        top: climb + 18.0,
        cell,
        tall: cell.clamp(least, most),
        numbers,
    };
    let mut svg = Svg::new(
        width,
        grid.top + grid.tall * as_f64(rows.len() as u64) + 4.0,
    );
    for (n, (_, line)) in columns.iter().enumerate() {
        let x = left + cell * (as_f64(n as u64) + 0.5);
        if is_wide {
            svg.slanted((x, grid.top - 7.0), "", &line.name, HEADING);
        } else if cell >= 17.0 || n % 2 == 0 {
            let number = (n + 1).to_string();
            svg.text((x, grid.top - 6.0), Anchor::Middle, "", &number, 30.0);
        }
    }
    for (m, row) in rows.iter().enumerate() {
        draw_row(
            &mut svg,
            &grid,
            row,
            columns,
            grid.top + grid.tall * as_f64(m as u64),
        );
    }
    svg
}

fn draw_row(
    svg: &mut Svg,
    grid: &Grid,
    row: &TopicStats,
    columns: &[(usize, &OutcomeStats)],
    y: f64,
) {
    let middle = y + grid.tall / 2.0 + 4.0;
    let place = columns.iter().position(|(_, line)| line.slug == row.slug);
    if let (false, Some(place)) = (grid.is_wide(), place) {
        let number = (place + 1).to_string();
        svg.text((grid.left - 8.0, middle), Anchor::End, "", &number, 20.0);
    }
    let name = grid.left - grid.numbers - 8.0;
    svg.text((name, middle), Anchor::End, "name", &row.name, name - 2.0);
    for (n, (place, line)) in columns.iter().enumerate() {
        let share = as_f64(row.row[*place]) / as_f64(row.scored.max(1));
        let x = grid.left + grid.cell * as_f64(n as u64);
        let step = step(share);
        let tooltip = format!("{} → {}: {}", row.name, line.name, percent(share));
        let tooltip = crate::display::single_line(&tooltip, 200);
        let size = (grid.cell - 2.0, grid.tall - 2.0);
        svg.rect((x, y), size, &format!("h{step}"), &tooltip);
        if grid.is_wide() && grid.cell >= 22.0 && share >= PRINTED_FROM {
            let class = if step < 6 { "on-light" } else { "on-dark" };
            let number = format!("{:.0}", share * 100.0);
            let at = (x + grid.cell / 2.0 - 1.0, middle);
            svg.text(at, Anchor::Middle, class, &number, grid.cell);
        }
    }
}
