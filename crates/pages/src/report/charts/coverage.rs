//! Draws the posts for each topic over time, with gaps.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use super::{Chart, ColumnLayout, MOST, WIDTH, left_out, room_for, time_ticks};
use crate::display::{counted, single_line, thousands};
use crate::report::data::TopicStats;
use crate::report::svg::Svg;
use crate::report::table::ChartTable;
use crate::report::{Report, time};
use topicmill_review::as_f64;
use topicmill_store::Gap;

/// Draws posts by topic and time, and the recorded gaps.
pub fn chart(report: &Report) -> Option<Chart> {
    if report.topics.is_empty() || report.axis.len() < 2 {
        return None;
    }
    let rows = report.gaps.iter().map(|gap| {
        vec![
            single_line(&gap.topic, 60),
            format!("r/{}", single_line(&gap.subreddit, 40)),
            gap.source.to_string(),
            time::moment(gap.from_at),
            time::moment(gap.until_at),
        ]
    });
    let head = ["topic", "subreddit", "source", "from", "until"];
    let cells = report.topics.iter().flat_map(|topic| &topic.series);
    let empty = cells.clone().filter(|posts| **posts == 0).count() as u64;
    let cells = cells.count() as u64;
    let things = report.kind.plural();
    let gaps = match report.gaps.len() as u64 {
        0 => "No gaps were recorded.".to_owned(),
        n => format!(
            "Orange marks {}, in which {things} are missing.",
            counted(n, "recorded gap")
        ),
    };
    Some(Chart {
        id: "coverage",
        title: format!("Collected {things}"),
        explanation: format!(
            "Each row is a topic and each cell {}. Darker cells contain more {things}, relative to the largest cell of \
             the topic. {} of {} cells are empty. {gaps}{}",
            report.axis.one_unit(),
            thousands(empty),
            thousands(cells),
            left_out(report.topics.len().saturating_sub(MOST), "topic")
        ),
        table: ChartTable::new(5, &head, rows),
        svg: draw(report),
    })
}

/// Returns the columns that overlap a topic's recorded gaps.
fn missing(report: &Report, topic: &TopicStats) -> BTreeSet<usize> {
    let mut columns = BTreeSet::new();
    let (Some(first), Some(last)) = (report.first, report.last) else {
        return columns;
    };
    let last_column = report.axis.len() - 1;
    let overlaps = |gap: &&Gap| gap.until_at >= first && gap.from_at <= last;
    let gaps = report.gaps.iter().filter(|gap| gap.topic == topic.slug);
    for gap in gaps.filter(overlaps) {
        let from = report.axis.column_of(gap.from_at).unwrap_or(0);
        // A gap ends before its end, which may be the first second of a column.
        let last_missing = gap.until_at.as_datetime() - TimeDelta::seconds(1);
        let last_missing = gap.from_at.max(last_missing.into());
        let until = report.axis.column_of(last_missing).unwrap_or(0);
        columns.extend(from..=until.min(last_column));
    }
    columns
}

fn draw(report: &Report) -> Svg {
    const ROW: f64 = 20.0;
    let topics = &report.topics[..report.topics.len().min(MOST)];
    let left = room_for(topics.iter().map(|topic| &topic.name));
    let bottom = ROW * as_f64(topics.len() as u64);
    let mut svg = Svg::new(WIDTH, bottom + 26.0);
    let width = (WIDTH - left) / as_f64(report.axis.len() as u64);
    let without_gap = (width - if width > 5.0 { 1.5 } else { 0.0 }).max(0.5);
    for (place, topic) in topics.iter().enumerate() {
        let y = ROW * as_f64(place as u64);
        svg.name(left, y + 10.0, &topic.name);
        let largest = topic.series.iter().max().copied().unwrap_or(0).max(1);
        let missing = missing(report, topic);
        for (column, posts) in topic.series.iter().enumerate() {
            let x = left + width * as_f64(column as u64);
            let step = match posts {
                0 => 0,
                // The step is at least 1 so that a single post is visible.
                posts => 1 + (5 * posts / largest).min(5),
            };
            let name = single_line(&topic.name, 60);
            let (when, posts) = (report.axis.name(column), thousands(*posts));
            let tooltip = format!("{name}, {when}: {posts}");
            let (at, size) = ((x, y + 2.0), (without_gap, ROW - 5.0));
            svg.rect(at, size, &format!("h{step}"), &tooltip);
            if missing.contains(&column) {
                let at = (x, y + ROW - 5.0);
                let note = format!("{} are missing", report.kind.plural());
                svg.rect(at, (without_gap, 3.0), "mark-warm", &note);
            }
        }
    }
    let layout = ColumnLayout { left, width };
    time_ticks(&mut svg, report, &layout, bottom + 20.0);
    svg
}
