//! Draws the shares of labels in groups of posts, such as subreddits or months.

use super::heat::{HeatRow, draw};
use super::{Chart, MOST};
use crate::display::{interval, percent, single_line, thousands};
use crate::report::Report;
use crate::report::table::ChartTable;
use topicmill_core::ThingKind;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, GroupShare, GroupShares};

/// A column: the position of its share in a group, and its name.
type Column = (usize, String);

/// Returns the heat map of groups and labels, if the report has groups.
pub fn chart(report: &Report) -> Option<Chart> {
    let groups = report.groups.as_ref()?;
    if groups.groups.is_empty() {
        return None;
    }
    let by = groups.by.name().replace('_', " ");
    let labels = report.labels().filter_map(|line| {
        let place = groups.labels.iter().position(|slug| *slug == line.slug)?;
        groups.has_posts(place).then(|| (place, line.name.clone()))
    });
    let none = (groups.labels.len(), "no label".to_owned());
    let labels: Vec<Column> = labels.collect();
    let listed: Vec<&Column> = labels.iter().chain([&none]).collect();
    let columns: Vec<&Column> = labels.iter().take(MOST - 1).chain([&none]).collect();
    let shown = groups.groups.iter().take(MOST);
    let rows = shown.map(|group| HeatRow {
        name: name(group),
        note: match group.answers {
            answers if answers >= ENOUGH_ANSWERS => format!(" ({answers} answers)"),
            _ => " (assigned)".to_owned(),
        },
        shares: columns
            .iter()
            .map(|(place, _)| best_share(group, *place))
            .collect(),
    });
    let names: Vec<String> = columns.iter().map(|(_, name)| name.clone()).collect();
    let in_table_only = match (listed.len() - columns.len(), groups.groups.len()) {
        (0, ..=MOST) => "",
        _ => " Further labels and groups are in the table only.",
    };
    let explanation = match report.kind {
        ThingKind::Post => format!(
            "percentages of its posts: estimated shares where there are {ENOUGH_ANSWERS} random answers, else the \
             shares that the model assigned. “topicmill labels evaluate --by {}” tests the differences.",
            groups.by.name()
        ),
        ThingKind::Comment => {
            "percentages of its comments: the shares that the model assigned.".to_owned()
        }
    };
    Some(Chart {
        id: "labels-by-group",
        title: format!("Labels by {by}"),
        explanation: format!(
            "Each row is a {by}, and shades and numbers are {explanation}{in_table_only}"
        ),
        table: table([&by, report.kind.plural()], &groups.groups, &listed),
        svg: draw(&rows.collect::<Vec<_>>(), &names),
    })
}

fn name(group: &GroupShares) -> String {
    single_line(group.group.as_deref().unwrap_or("(none)"), 60)
}

/// Returns the estimated share or, without an estimate, the assigned share.
fn best_share(group: &GroupShares, place: usize) -> f64 {
    let share = group.shares[place];
    let estimated = share.estimated.and_then(|estimate| estimate.value);
    estimated.unwrap_or(share.assigned)
}

fn table([by, things]: [&str; 2], groups: &[GroupShares], columns: &[&Column]) -> ChartTable {
    let rows = groups.iter().flat_map(|group| {
        let shown = columns.iter().filter(|(place, _)| {
            let share = group.shares[*place];
            share.assigned > 0.0 || share.estimated.is_some()
        });
        shown.map(|(place, label)| {
            let GroupShare {
                assigned,
                estimated,
            } = group.shares[*place];
            let value = estimated.and_then(|share| share.value);
            vec![
                name(group),
                single_line(label, 60),
                thousands(group.posts),
                thousands(group.answers as u64),
                percent(assigned),
                value.map_or_else(String::new, percent),
                estimated.map_or_else(String::new, |share| interval(share.low, share.high)),
            ]
        })
    });
    let head = [
        by,
        "label",
        things,
        "answers",
        "assigned",
        "estimated",
        "95 % interval",
    ];
    ChartTable::new(2, &head, rows)
}
