//! `topicmill labels diff`: compares two label sets or models. Shows the differences, the cost of the change, and the
//! posts whose label changes.

use clap::Args;
use serde_json::json;

use super::super::output::key_value_table;
use super::super::{CliError, Exit, OutputFormat, Setup, output};
use super::side::{Side, split_model};
use super::{Printout, cost, rows_from_objects, settings};
use crate::telemetry::Progress;
use topicmill_review::compare::{Comparison, LabelSource, compare};
use topicmill_score::hypothesis::Pass;
use topicmill_score::{Label, LabelSet, ModelKind};
use topicmill_store::{Access, Store, Table};

/// The number of label changes that the table shows.
const SHOWN_MOVES: usize = 15;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels diff current my-labels.toml
  topicmill labels diff current@minilm-reddit-topics current@models/new")]
pub struct Diff {
    /// Compare the label set A: a pipeline file, `current`, or a stored label set
    ///
    /// Use the name or the version prefix of a stored label set. Append @MODEL for its labels by a certain model: a
    /// folder, or the name or hash prefix of a model with stored labels [default: the model of the current labels if it
    /// has labels of this set, else the model from the settings].
    #[arg(value_name = "A")]
    a: String,
    /// Compare A with the label set B, in the same notation
    #[arg(value_name = "B")]
    b: String,
    /// Show N posts that change their label, highest scores first
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Diff {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let a = Side::find(setup, &store, split_model(&self.a), false).await?;
        let b = Side::find(setup, &store, split_model(&self.b), false).await?;
        let mut found = compare_sets(&a, &b);
        add_cost(&store, &b, &mut found).await?;
        self.moves(setup, &store, [&a, &b], &mut found).await?;
        store.close().await?;
        found.print(self.format)?;
        Ok(Exit::Done)
    }

    async fn moves(
        &self,
        setup: &Setup,
        store: &Store,
        [a, b]: [&Side; 2],
        found: &mut Printout,
    ) -> Result<(), CliError> {
        let of_a = (a.target(), a.known(setup, store).await?);
        let of_b = (b.target(), b.known(setup, store).await?);
        let labels = [of_a, of_b];
        let labels = labels.map(|(stored, known)| LabelSource {
            stored,
            rescorer: known,
        });
        let bar = Progress::counter("diff", "posts");
        let stop = || setup.stop.is_cancelled();
        let compared = compare(store, &labels, self.limit, &stop, &|n| bar.add(n)).await?;
        drop(bar);
        let lacking = compared.unlabelled;
        if lacking.iter().any(|posts| *posts > 0) {
            tracing::warn!(
                of_first = lacking[0],
                of_second = lacking[1],
                "posts without a label that would need inference are left out: `topicmill classify` with this label \
                 set and model labels them and keeps the current label set"
            );
        }
        add_moves(found, &compared);
        Ok(())
    }
}

fn compare_sets(a: &Side, b: &Side) -> Printout {
    let changes = changes(&a.set, &b.set);
    let mut json = json!({ "a": a.json(), "b": b.json(), "cost": null, "moved": null });
    let one = |(what, a, b): &Change| {
        let slug = b.or(*a).map(|label| &label.slug);
        json!({ "change": what, "slug": slug, "a": a, "b": b })
    };
    json["labels"] = changes.iter().map(one).collect();
    let rows = settings(&a.set).into_iter().zip(settings(&b.set));
    let rows = rows.map(|((what, a), (_, b))| json!([what, a, b]));
    let rows = rows.chain([json!(["model", a.model(), b.model()])]);
    let mut found = Printout::new(json).with("", output::table(["", "first", "second"], rows));
    let heading = if changes.is_empty() {
        "The labels are the same."
    } else {
        "Labels"
    };
    found.add_csv(heading, labels_table(&changes));
    found
}

/// Adds the cost of labelling every post with the second label set and model.
async fn add_cost(store: &Store, b: &Side, found: &mut Printout) -> Result<(), CliError> {
    let Some(folder) = &b.folder else {
        return Ok(());
    };
    let cost = cost(store, folder, &b.set).await?;
    found.json["cost"] = json!(cost);
    let ready = cost.posts_without_inference;
    let pass = Pass::of(&folder.kind, &b.set);
    let rows = [
        ("posts with a label".to_owned(), json!(cost.labelled)),
        ("posts to label".to_owned(), json!(cost.posts)),
        ("of these, without inference".to_owned(), json!(ready)),
        (
            format!("{} already computed", pass.unit()),
            json!(pass.count(cost.pairs_stored)),
        ),
        (
            format!("{} to compute", pass.unit()),
            json!(pass.count(cost.pairs_missing)),
        ),
    ];
    let table = key_value_table("what", rows);
    let all = match folder.kind {
        ModelKind::Gliclass(_) => {
            ", which reads all labels together: one changed label requires computing all again"
        }
        _ => "",
    };
    let heading = format!(
        "Cost of labelling every post with the second label set and {}{all}",
        folder.name
    );
    found.add(&heading, table);
    Ok(())
}

fn add_moves(found: &mut Printout, compared: &Comparison) {
    let (posts, moves) = (compared.posts, &compared.moves);
    let (before, after) = moves.abstained();
    let biggest = moves.largest();
    let list = biggest
        .iter()
        .map(|(from, to, posts)| json!({ "from": from, "to": to, "posts": posts }));
    found.json["moved"] = json!({
        "posts": moves.posts(), "moved": moves.moved(), "agreement": moves.agreement(), "kappa": moves.kappa(),
        "none_of_these_before": before, "none_of_these_after": after, "looked_at": posts,
        "lacking": compared.unlabelled, "moves": list.collect::<Vec<_>>(), "examples": compared.examples,
    });
    let rows = [
        ("posts compared", json!(posts)),
        ("posts with both labels", json!(moves.posts())),
        ("posts that change their label", json!(moves.moved())),
        ("share with the same label", json!(moves.agreement())),
        ("Cohen's kappa", json!(moves.kappa())),
        ("other or unsure, in the first", json!(before)),
        ("other or unsure, in the second", json!(after)),
    ];
    found.add("Labels on the same posts", key_value_table("what", rows));
    if moves.moved() == 0 {
        return;
    }
    let rows = rows_from_objects(&found.json["moved"]["moves"], &["from", "to", "posts"]);
    let table = output::table(["from", "to", "posts"], rows.into_iter().take(SHOWN_MOVES));
    found.add_csv("Largest changes", table);
    if !compared.examples.is_empty() {
        let keys = ["fullname", "from", "to", "score", "title"];
        let rows = rows_from_objects(&found.json["moved"]["examples"], &keys);
        let table = output::table(["post", "from", "to", "score", "title"], rows);
        found.add("Changes with the highest scores", table);
    }
}

/// The kind of change, and the label before and after.
type Change<'a> = (&'static str, Option<&'a Label>, Option<&'a Label>);

/// Lists the labels that differ, matched by slug: the labels of `b` in their order, then the removed ones.
fn changes<'a>(a: &'a LabelSet, b: &'a LabelSet) -> Vec<Change<'a>> {
    let find = |set: &'a LabelSet, slug: &str| set.labels.iter().find(|label| label.slug == slug);
    let both = |set: &'a LabelSet, other: &'a LabelSet| -> Vec<&'a str> {
        let labels = set.labels.iter().map(|label| label.slug.as_str());
        labels.filter(|slug| find(other, slug).is_some()).collect()
    };
    // The order breaks ties between equal scores. It is compared only among common labels, so that the labels after a
    // new label do not count as moved.
    let (order_a, order_b) = (both(a, b), both(b, a));
    let moved = |slug: &str| {
        let place = |order: &[&str]| order.iter().position(|one| *one == slug);
        place(&order_a) != place(&order_b)
    };
    let mut changes: Vec<Change> = b
        .labels
        .iter()
        .filter_map(|label| match find(a, &label.slug) {
            None => Some(("added", None, Some(label))),
            Some(before) if before != label => Some(("changed", Some(before), Some(label))),
            before => moved(&label.slug).then_some(("moved", before, Some(label))),
        })
        .collect();
    let gone = a
        .labels
        .iter()
        .filter(|label| find(b, &label.slug).is_none());
    changes.extend(gone.map(|label| ("removed", Some(label), None)));
    changes
}

fn labels_table(changes: &[Change]) -> Table {
    let words = |label: &Label| match label.descriptions.len() {
        0 => label.label.clone(),
        n => format!("{} (+{n} descriptions)", label.label),
    };
    let rows = changes.iter().map(|(what, a, b)| {
        let slug = b.or(*a).map(|label| &label.slug);
        json!([what, slug, a.map(words), b.map(words)])
    });
    output::table(["change", "slug", "first", "second"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_file::Pipeline;
    use topicmill_core::Listing;

    #[test]
    fn labels_are_added_removed_changed_and_moved() {
        let set = |labels: &str| {
            let text = format!("labels = {labels}");
            let read = Pipeline::parse(&text, "t.toml".as_ref(), Listing::Hot, 1);
            read.unwrap().label_set
        };
        let a = set(r#"["x", "y", "z"]"#);
        for (b, expected) in [
            (r#"["x", "y", "z"]"#, ""),
            (r#"["n", "x", "Z"]"#, "added n, changed z, removed y"),
            (r#"["y", "x", "z"]"#, "moved y, moved x"),
        ] {
            let b = set(b);
            let changes = changes(&a, &b).into_iter();
            let described = changes.map(|(what, a, b)| format!("{what} {}", b.or(a).unwrap().slug));
            assert_eq!(described.collect::<Vec<_>>().join(", "), expected);
        }
    }
}
