//! Draws the shares of labels in groups of posts, such as subreddits or months.

use super::heat::{HeatRow, draw};
use super::{Chart, MOST, only_in_table};
use crate::display::{interval, percent, single_line, thousands};
use crate::report::Report;
use crate::report::table::ChartTable;
use topicmill_core::ThingKind;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, GroupShare, GroupShares};

/// A label, or no label.
struct LabelColumn {
    /// Position of its share in a group.
    place: usize,
    name: String,
}

/// Returns the heat map of groups and labels, if the report has groups.
pub fn chart(report: &Report) -> Option<Chart> {
    let groups = report.groups.as_ref()?;
    if groups.groups.is_empty() {
        return None;
    }
    let by = groups.by.name().replace('_', " ");
    let labels = report.labels().filter_map(|stats| {
        let place = groups.labels.iter().position(|slug| *slug == stats.slug)?;
        groups.has_posts(place).then(|| LabelColumn {
            place,
            name: stats.name.clone(),
        })
    });
    let labels: Vec<LabelColumn> = labels.collect();
    let no_label = LabelColumn {
        place: groups.labels.len(),
        name: "no label".to_owned(),
    };
    let listed: Vec<&LabelColumn> = labels.iter().chain([&no_label]).collect();
    let drawn: Vec<&LabelColumn> = labels.iter().take(MOST - 1).chain([&no_label]).collect();
    let rows = groups.groups.iter().take(MOST).map(|group| HeatRow {
        name: name(group),
        note: match group.answers {
            answers if answers >= ENOUGH_ANSWERS => format!(" ({answers} answers)"),
            _ => " (assigned)".to_owned(),
        },
        shares: drawn
            .iter()
            .map(|column| best_share(group, column.place))
            .collect(),
    });
    let names: Vec<String> = drawn.iter().map(|column| column.name.clone()).collect();
    let percentages = match report.kind {
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
            "Each row is a {by}, and shades and numbers are {percentages}{}{}",
            only_in_table(listed.len(), "label"),
            only_in_table(groups.groups.len(), "group")
        ),
        table: table([&by, report.kind.plural()], &groups.groups, &listed),
        svg: draw(&rows.collect::<Vec<_>>(), &names),
    })
}

/// Returns the name of a group.
fn name(group: &GroupShares) -> String {
    single_line(group.group.as_deref().unwrap_or("(none)"), 60)
}

/// Returns the estimated share or, without an estimate, the assigned share.
fn best_share(group: &GroupShares, place: usize) -> f64 {
    let share = group.shares[place];
    let estimated = share.estimated.and_then(|estimate| estimate.value);
    estimated.unwrap_or(share.assigned)
}

/// Returns a row for each group and each label that has a share of it.
fn table([by, things]: [&str; 2], groups: &[GroupShares], columns: &[&LabelColumn]) -> ChartTable {
    let rows = groups.iter().flat_map(|group| {
        let with_share = columns.iter().filter(|column| {
            let share = group.shares[column.place];
            share.assigned > 0.0 || share.estimated.is_some()
        });
        with_share.map(|column| {
            let GroupShare {
                assigned,
                estimated,
            } = group.shares[column.place];
            let value = estimated.and_then(|share| share.value);
            vec![
                name(group),
                single_line(&column.name, 60),
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
