//! Prints the shares of labels by group of posts, and the differences between groups (`labels evaluate --by`).

use serde_json::{Value, json};

use super::Printout;
use super::figures::{estimate, p_value, slug};
use super::side::Side;
use crate::cli::CliError;
use crate::cli::output::{self, counted};
use topicmill_core::{LabelSet, ThingKind};
use topicmill_review::change::SIGNIFICANCE;
use topicmill_review::evaluate::{
    Counted, ENOUGH_ANSWERS, GroupDifference, GroupShare, GroupShares, RandomSample,
    group_differences, groups_of,
};
use topicmill_store::{Grouping, Store};

/// The number of groups and of differences that the tables show; JSON has all.
const SHOWN: usize = 24;

/// Adds a table of labels' shares in each group and, if two groups have enough answers, one of their differences.
/// Without a random sample, all shares are assigned ones.
pub async fn add_groups(
    store: &Store,
    side: &Side,
    by: Grouping,
    kind: ThingKind,
    sample: Option<&RandomSample>,
    printout: &mut Printout,
) -> Result<(), CliError> {
    let Some(target) = side.target() else {
        return Err(CliError::Usage(format!(
            "--by {} counts stored labels, and this label set has none: run `topicmill classify` with it first",
            by.name()
        )));
    };
    let set = &side.set;
    let groups = groups_of(store, target, set, by, kind, sample, Counted::All).await?;
    let differences = group_differences(&groups);
    let groups_json: Vec<Value> = groups.iter().map(|group| group_json(set, group)).collect();
    let pairs = differences.iter();
    let differences_json = pairs.map(|pair| difference_json(set, &groups, pair));
    printout.json["groups"] = json!({
        "by": by.name(), "groups": groups_json, "differences": differences_json.collect::<Vec<Value>>(),
    });
    let shown = groups.iter().take(SHOWN);
    let rows = shown.flat_map(|group| share_rows(set, group));
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
    add_differences(set, &groups, &differences, printout);
    Ok(())
}

fn group_json(set: &LabelSet, group: &GroupShares) -> Value {
    let labels = group.shares.iter().enumerate();
    let shares: Vec<Value> = labels
        .map(|(label, share)| {
            let label = slug(set, label);
            json!({ "label": label, "assigned": share.assigned, "estimated": share.estimated })
        })
        .collect();
    json!({
        "group": group.group, "posts": group.posts, "answers": group.answers, "shares": shares,
    })
}

fn difference_json(set: &LabelSet, groups: &[GroupShares], difference: &GroupDifference) -> Value {
    let mut json = json!(difference);
    json["label"] = json!(slug(set, difference.label));
    json["first"] = json!(groups[difference.first].group);
    json["second"] = json!(groups[difference.second].group);
    json
}

/// Returns a row for each label that posts of a group have, or may have by the estimate.
fn share_rows(set: &LabelSet, group: &GroupShares) -> Vec<Value> {
    let mut rows = Vec::new();
    for (label, share) in group.shares.iter().enumerate() {
        let GroupShare {
            assigned,
            estimated,
        } = share;
        if *assigned == 0.0 && estimated.is_none_or(|share| share.value == Some(0.0)) {
            continue;
        }
        let estimated = match estimated {
            Some(estimated) => estimate(estimated),
            None => json!("assigned only"),
        };
        let (label, assigned) = (slug(set, label), format!("{assigned:.3}"));
        let (name, posts, answers) = (name(group), group.posts, group.answers);
        rows.push(json!([name, posts, answers, label, assigned, estimated]));
    }
    rows
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
    let is_shown = |pair: &&GroupDifference| are_two || is_significant(pair);
    let mut shown: Vec<&GroupDifference> = differences.iter().filter(is_shown).collect();
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
