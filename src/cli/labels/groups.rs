//! Prints the shares of labels by group of posts, and the differences between groups (`labels evaluate --by`).

use serde_json::{Value, json};

use super::Printout;
use super::figures::{estimate, p_value, slug};
use crate::cli::output::{self, counted};
use topicmill_core::LabelSet;
use topicmill_review::change::SIGNIFICANCE;
use topicmill_review::evaluate::{
    ENOUGH_ANSWERS, GroupDifference, GroupShare, GroupShares, group_differences,
};
use topicmill_store::Grouping;

/// The number of groups and of differences that the tables show; JSON has all.
const SHOWN: usize = 24;

/// Adds a table of labels' shares in each group and, if two groups have enough answers, one of their differences.
pub fn add_groups(set: &LabelSet, by: Grouping, groups: &[GroupShares], printout: &mut Printout) {
    let differences = group_differences(groups);
    let share_json = |(label, share): (usize, &GroupShare)| {
        let label = slug(set, label);
        json!({ "label": label, "assigned": share.assigned, "estimated": share.estimated })
    };
    let group_json = |group: &GroupShares| {
        let shares: Value = group.shares.iter().enumerate().map(share_json).collect();
        json!({
            "group": group.group, "posts": group.posts, "answers": group.answers, "shares": shares,
        })
    };
    let difference_json = |difference: &GroupDifference| {
        let mut json = json!(difference);
        json["label"] = json!(slug(set, difference.label));
        json["first"] = json!(groups[difference.first].group);
        json["second"] = json!(groups[difference.second].group);
        json
    };
    printout.json["groups"] = json!({
        "by": by.name(),
        "groups": groups.iter().map(group_json).collect::<Vec<_>>(),
        "differences": differences.iter().map(difference_json).collect::<Vec<_>>(),
    });
    let rows = groups.iter().take(SHOWN).flat_map(|group| {
        let shares = group.shares.iter().enumerate();
        let shown = shares.filter(|(_, share)| {
            share.assigned > 0.0 || share.estimated.is_some_and(|one| one.value != Some(0.0))
        });
        shown.map(|(label, share)| {
            let estimated = match &share.estimated {
                Some(estimated) => estimate(estimated),
                None => json!("assigned only"),
            };
            let assigned = format!("{:.3}", share.assigned);
            let (posts, answers, label) = (group.posts, group.answers, slug(set, label));
            json!([name(group), posts, answers, label, assigned, estimated])
        })
    });
    let columns = ["posts", "answers", "label", "assigned", "estimated, 95 %"];
    let table = output::table([by.name()].into_iter().chain(columns), rows);
    let more = match groups.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" {}: --format json.", counted(more as u64, "more group")),
    };
    let heading = format!(
        "Shares by {}. With under {ENOUGH_ANSWERS} random answers in a group, a share is only assigned, not \
         estimated.{more}",
        by.name()
    );
    printout.add_csv(&heading, table);
    add_differences(set, groups, &differences, printout);
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
    printout: &mut Printout,
) {
    if differences.is_empty() {
        return;
    }
    let has_enough = |group: &&GroupShares| group.answers >= ENOUGH_ANSWERS;
    let are_two = groups.iter().filter(has_enough).count() == 2;
    let is_significant = |difference: &&GroupDifference| difference.p_holm < SIGNIFICANCE;
    let mut shown: Vec<&GroupDifference> = differences
        .iter()
        .filter(|difference| are_two || is_significant(difference))
        .collect();
    shown.sort_by(|a, b| a.p.total_cmp(&b.p));
    let rows = shown.into_iter().take(SHOWN).map(|pair| -> Value {
        let in_group = |group: &GroupShares| {
            let name = name(group);
            let estimated = group.shares[pair.label].estimated;
            match estimated.and_then(|share| share.value) {
                Some(share) => format!("{name} {share:.3}"),
                None => name.to_owned(),
            }
        };
        let [first, second] = [pair.first, pair.second].map(|group| in_group(&groups[group]));
        let (label, difference) = (slug(set, pair.label), estimate(&pair.difference));
        let [p, p_holm] = [pair.p, pair.p_holm].map(p_value);
        json!([label, first, second, difference, p, p_holm])
    });
    let names = ["label", "first", "second", "difference, 95 %"];
    let columns = names.into_iter().chain(["p", "p (Holm)"]);
    let heading = format!(
        "Differences of the estimated shares: {} of {} are significant (p < {SIGNIFICANCE}, corrected for \
         their number by Holm's method)",
        differences.iter().filter(is_significant).count(),
        differences.len()
    );
    printout.add(&heading, output::table(columns, rows));
}
