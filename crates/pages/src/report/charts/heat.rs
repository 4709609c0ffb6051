//! Draws a heat map: the rows are the topics that posts were collected for, and the columns are their predicted labels.

use super::{Chart, MOST, WIDTH, only_in_table, widest};
use crate::display::{percent, single_line, thousands};
use crate::report::Report;
use crate::report::data::{OutcomeStats, TopicStats};
use crate::report::svg::{Anchor, Svg, fit, width as measure};
use crate::report::table::ChartTable;
use topicmill_review::as_f64;
use topicmill_store::PostOutcome;

/// The smallest share printed in a cell.
const PRINTED_FROM: f64 = 0.045;
/// Width of a map with more columns than fit into other charts.
const WIDE: f64 = 720.0;
/// Maximum width of the column of row names.
const NAMES: f64 = 190.0;
/// Maximum width of a column name.
const HEADING: f64 = 175.0;
/// Upper bounds of the colour steps. The last step has no bound and covers the rest.
const STEPS: [f64; 7] = [0.005, 0.04, 0.1, 0.2, 0.35, 0.5, 0.7];

/// Draws the heat map; `None` with fewer than two topics or outcomes.
pub fn chart(report: &Report) -> Option<Chart> {
    let topics = report.topics.iter().filter(|topic| topic.scored > 0);
    let topics: Vec<&TopicStats> = topics.collect();
    if topics.len() < 2 || report.outcomes.len() < 2 {
        return None;
    }
    let shown = &topics[..topics.len().min(MOST)];
    let columns = columns(report, shown);
    let drawn = &columns[..columns.len().min(MOST)];
    let name = |place: &usize| report.outcomes[*place].name.clone();
    let names: Vec<String> = drawn.iter().map(name).collect();
    let things = report.kind.plural();
    let head = ["topic", "label", things, "share of topic"];
    let pairs = pairs(report, &topics);
    let table = pairs.iter().map(|pair| {
        let (share, scored) = (percent(pair.share()), thousands(pair.topic.scored));
        vec![
            single_line(&pair.topic.name, 60),
            single_line(&pair.outcome.name, 60),
            thousands(pair.posts),
            format!("{share} of {scored}"),
        ]
    });
    Some(Chart {
        id: "topics-against-labels",
        title: "Topics against labels".to_owned(),
        explanation: format!(
            "Each row is the topic that {things} were collected for, and each column is the label that they got. \
             Shades and numbers are percentages of the row; its number of {things} is in brackets.{}{}{}{}",
            about_agreement(report, &topics),
            only_in_table(topics.len(), "topic"),
            only_in_table(columns.len(), "label"),
            largest_disagreement(&pairs, report)
        ),
        table: ChartTable::new(2, &head, table),
        svg: draw(&heat_rows(shown, drawn), &names),
    })
}

/// The posts of a topic with an outcome.
struct Pair<'r> {
    topic: &'r TopicStats,
    outcome: &'r OutcomeStats,
    posts: u64,
}

impl Pair<'_> {
    /// Returns the share of the topic's scored posts.
    fn share(&self) -> f64 {
        as_f64(self.posts) / as_f64(self.topic.scored)
    }
}

/// Returns the pairs with posts, largest first.
fn pairs<'r>(report: &'r Report, topics: &[&'r TopicStats]) -> Vec<Pair<'r>> {
    let of_topic = |topic: &&'r TopicStats| {
        let topic = *topic;
        let outcomes = topic.row.iter().zip(&report.outcomes);
        outcomes.map(move |(&posts, outcome)| Pair {
            topic,
            outcome,
            posts,
        })
    };
    let mut pairs: Vec<Pair<'_>> = topics.iter().flat_map(of_topic).collect();
    pairs.retain(|pair| pair.posts > 0);
    pairs.sort_by_key(|pair| {
        let slugs = (&pair.topic.slug, &pair.outcome.slug);
        (std::cmp::Reverse(pair.posts), slugs)
    });
    pairs
}

/// Returns a row for each topic, with its shares in these columns.
fn heat_rows(topics: &[&TopicStats], columns: &[usize]) -> Vec<HeatRow> {
    let row = |topic: &&TopicStats| {
        let scored = as_f64(topic.scored.max(1));
        let share = |place: &usize| as_f64(topic.row[*place]) / scored;
        HeatRow {
            name: topic.name.clone(),
            note: format!(" ({})", thousands(topic.scored)),
            shares: columns.iter().map(share).collect(),
        }
    };
    topics.iter().map(row).collect()
}

/// A row of a heat map.
pub(super) struct HeatRow {
    pub name: String,
    /// Text after the name, which is never shortened.
    pub note: String,
    /// A share for each column.
    pub shares: Vec<f64>,
}

/// Returns sentences about posts that cannot agree, because their topic is not a label or they have none, with a leading
/// space.
fn about_agreement(report: &Report, topics: &[&TopicStats]) -> String {
    let of_topics: u64 = topics.iter().map(|topic| topic.scored).sum();
    let can_agree = topics.iter().filter(|topic| topic.label.is_some());
    let can_agree: u64 = can_agree.map(|topic| topic.scored).sum();
    let things = report.kind.plural();
    let mut text = match of_topics - can_agree {
        _ if can_agree == 0 => " None of these topics is a label, so none can agree.".to_owned(),
        0 => " On the diagonal, topic and label agree.".to_owned(),
        others => format!(
            " On the diagonal, topic and label agree. They cannot agree for {} of {} {things}, whose topics \
             are not labels.",
            thousands(others),
            thousands(of_topics)
        ),
    };
    let without_topic = report.scored().saturating_sub(of_topics);
    if without_topic > 0 {
        let posts = thousands(without_topic);
        text.extend([" ", &posts, " ", things, " without a topic are left out."]);
    }
    text
}

/// Returns a sentence about the topic and the other label with most posts, with a leading space. Topics that are not
/// labels do not count because their posts cannot agree.
fn largest_disagreement(pairs: &[Pair<'_>], report: &Report) -> String {
    let differs = |pair: &&Pair<'_>| {
        let label = pair.topic.label.as_ref();
        label.is_some_and(|label| *label != pair.outcome.slug)
            && pair.outcome.outcome == PostOutcome::Labelled
    };
    let Some(largest) = pairs.iter().find(differs) else {
        return String::new();
    };
    let topics = report.topics.iter().filter(|topic| topic.scored > 0);
    let labels = topics.clone().filter(|topic| topic.label.is_some()).count();
    let among = match labels {
        1 => " of the topic that is a label".to_owned(),
        labels if labels < topics.count() => format!(" among the {labels} topics that are labels"),
        _ => String::new(),
    };
    format!(
        " Largest disagreement{among}: {}, with {} of its {} ({} of {}) labelled {}.",
        single_line(&largest.topic.name, 48),
        percent(largest.share()),
        report.kind.plural(),
        thousands(largest.posts),
        thousands(largest.topic.scored),
        single_line(&largest.outcome.name, 48)
    )
}

/// Returns the positions of the outcomes that are columns: first the labels for the rows' topics, in order, then the
/// others with posts, largest first.
fn columns(report: &Report, rows: &[&TopicStats]) -> Vec<usize> {
    let place = |slug: &str| report.outcomes.iter().position(|stats| stats.slug == slug);
    let of_rows = rows.iter().filter_map(|row| place(row.label.as_ref()?));
    let all = 0..report.outcomes.len();
    let with_posts = all.filter(|place| report.outcomes[*place].posts > 0);
    let mut places: Vec<usize> = Vec::new();
    for place in of_rows.chain(with_posts) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Returns the colour step of a share.
fn step(share: f64) -> usize {
    let place = STEPS.iter().position(|most| share < *most);
    place.unwrap_or(STEPS.len())
}

/// The layout of the heat map, in pixels.
struct Grid {
    left: f64,
    cell: f64,
    tall: f64,
}

/// Draws a heat map of rows against columns.
pub(super) fn draw(rows: &[HeatRow], columns: &[String]) -> Svg {
    let row_name = |row: &HeatRow| fit(&row.name, NAMES - 12.0 - measure(&row.note)) + &row.note;
    let row_names: Vec<String> = rows.iter().map(row_name).collect();
    let left = (widest(row_names.iter()) + 12.0).min(NAMES);
    let heading = widest(columns.iter()).min(HEADING);
    // A name rotated by 45 degrees needs its length times sin 45° in both directions.
    let climb = heading * 0.72;
    let across = as_f64(columns.len() as u64);
    let cell = ((WIDE - left - climb) / across).min(44.0);
    let width = if left + across * cell + climb > WIDTH {
        WIDE
    } else {
        WIDTH
    };
    let tall = cell.clamp(24.0, 34.0);
    let grid = Grid { left, cell, tall };
    let top = climb + 18.0;
    let mut svg = Svg::new(width, top + tall * as_f64(rows.len() as u64) + 6.0);
    for (place, name) in columns.iter().enumerate() {
        let x = left + cell * (as_f64(place as u64) + 0.5);
        svg.slanted((x, top - 7.0), "", name, HEADING);
    }
    for (place, (row, name)) in rows.iter().zip(&row_names).enumerate() {
        let y = top + tall * as_f64(place as u64);
        draw_row(&mut svg, &grid, (row, name), columns, y);
    }
    svg
}

/// Draws a row at the height `y`, with its shortened name.
fn draw_row(svg: &mut Svg, grid: &Grid, (row, name): (&HeatRow, &str), columns: &[String], y: f64) {
    let middle = y + grid.tall / 2.0 + 4.0;
    let end = grid.left - 8.0;
    svg.text((end, middle), Anchor::End, "name", name, end - 2.0);
    for (place, (column, &share)) in columns.iter().zip(&row.shares).enumerate() {
        let x = grid.left + grid.cell * as_f64(place as u64);
        let step = step(share);
        let tooltip = format!("{} → {column}: {}", row.name, percent(share));
        let size = (grid.cell - 2.0, grid.tall - 2.0);
        let class = format!("h{step}");
        svg.rect((x, y), size, &class, &single_line(&tooltip, 200));
        if grid.cell >= 22.0 && share >= PRINTED_FROM {
            let class = if step < 6 { "on-light" } else { "on-dark" };
            let number = format!("{:.0}", share * 100.0);
            let at = (x + grid.cell / 2.0 - 1.0, middle);
            svg.text(at, Anchor::Middle, class, &number, grid.cell);
        }
    }
}
