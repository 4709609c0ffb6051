//! Prints the shares of labels by group of posts, and the differences between groups (`labels evaluate --by`).

use serde_json::{Value, json};

use super::figures::estimate;
use super::{NONE, Printout};
use crate::cli::output;
use topicmill_core::LabelSet;
use topicmill_review::change::SIGNIFICANCE;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, GroupDifference, GroupShares, group_differences};
use topicmill_store::Grouping;

/// The number of groups and of differences that the tables show; JSON has all.
const SHOWN: usize = 24;

/// Adds a table of labels' shares in each group and, if two groups have enough answers, one of their differences.
pub fn add_groups(set: &LabelSet, by: Grouping, groups: &[GroupShares], found: &mut Printout) {
    let differences = group_differences(groups);
    let label = |place: usize| set.labels.get(place).map_or(NONE, |label| &label.slug);
    let group_json = |group: &GroupShares| {
        let shares = group.shares.iter().enumerate();
        let shares = shares.map(|(place, (assigned, estimated))| {
            json!({ "label": label(place), "assigned": assigned, "estimated": estimated })
        });
        json!({
            "group": group.group, "posts": group.posts, "answers": group.answers,
            "shares": shares.collect::<Vec<_>>(),
        })
    };
    let difference_json = |one: &GroupDifference| {
        let mut json = json!(one);
        json["label"] = json!(label(one.label));
        json["first"] = json!(groups[one.first].group);
        json["second"] = json!(groups[one.second].group);
        json
    };
    found.json["groups"] = json!({
        "by": by.name(),
        "groups": groups.iter().map(group_json).collect::<Vec<_>>(),
        "differences": differences.iter().map(difference_json).collect::<Vec<_>>(),
    });
    let rows = groups.iter().take(SHOWN).flat_map(|group| {
        let shares = group.shares.iter().enumerate();
        let shown = shares.filter(|(_, (assigned, estimated))| {
            *assigned > 0.0 || estimated.is_some_and(|one| one.value != Some(0.0))
        });
        shown.map(|(place, (assigned, estimated))| {
            let estimated = match estimated {
                Some(estimated) => estimate(estimated),
                None => json!("assigned only"),
            };
            let (name, share) = (name(group), format!("{assigned:.3}"));
            json!([
                name,
                group.posts,
                group.answers,
                label(place),
                share,
                estimated
            ])
        })
    });
    let columns = [
        by.name(),
        "posts",
        "answers",
        "label",
        "assigned",
        "estimated, 95 %",
    ];
    let table = output::table(columns, rows);
    let more = match groups.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" {more} more groups: --format json."),
    };
    let heading = format!(
        "Shares by {}. With under {ENOUGH_ANSWERS} random answers in a group, a share is only assigned, not \
         estimated.{more}",
        by.name()
    );
    found.add_csv(&heading, table);
    add_differences(set, groups, &differences, found);
}

/// Returns the name of a group for a table.
fn name(group: &GroupShares) -> &str {
    group.group.as_deref().unwrap_or("(none)")
}

/// Adds the differences that are significant or, between two groups, all.
fn add_differences(
    set: &LabelSet,
    groups: &[GroupShares],
    differences: &[GroupDifference],
    found: &mut Printout,
) {
    let compared = groups
        .iter()
        .filter(|group| group.answers >= ENOUGH_ANSWERS);
    let compared = compared.count();
    if differences.is_empty() {
        return;
    }
    let is_shown = |one: &&GroupDifference| compared == 2 || one.p_holm < SIGNIFICANCE;
    let mut shown: Vec<&GroupDifference> = differences.iter().filter(is_shown).collect();
    let significant = differences.iter().filter(|one| one.p_holm < SIGNIFICANCE);
    let significant = significant.count();
    shown.sort_by(|a, b| a.p.total_cmp(&b.p));
    let rows = shown.into_iter().take(SHOWN).map(|one| -> Value {
        let label = set.labels.get(one.label).map_or(NONE, |label| &label.slug);
        let share = |group: usize| groups[group].shares[one.label].1?.value;
        let in_group = |group: usize| {
            let share = share(group).map_or_else(String::new, |share| format!(" {share:.3}"));
            format!("{}{share}", name(&groups[group]))
        };
        let p = |p: f64| match p {
            p if p < 0.0001 => "under 0.0001".to_owned(),
            p => format!("{p:.4}"),
        };
        json!([
            label,
            in_group(one.first),
            in_group(one.second),
            estimate(&one.difference),
            p(one.p),
            p(one.p_holm)
        ])
    });
    let columns = [
        "label",
        "first",
        "second",
        "difference, 95 %",
        "p",
        "p (Holm)",
    ];
    let heading = format!(
        "Differences of the estimated shares: {significant} of {} are significant (p < {SIGNIFICANCE}, corrected for \
         their number by Holm's method)",
        differences.len()
    );
    found.add(&heading, output::table(columns, rows));
}
