//! `topicmill labels diff`

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::super::output::OutputFormat;
use super::super::setup::Setup;
use super::super::{CliError, Exit};
use super::{
    Found, Named, WhichModel, against, cost, cost_table, find_model, moves_json, moves_tables,
    named_model, nothing_current, settings, settings_json, short,
};
use crate::review::compare::Moves;
use crate::review::held::{Labelling, Labels};
use crate::store::{Access, ModelRow, Store, StoreError, Table, Target};
use topicmill_score::{Label, LabelSet};

/// Flags of `labels diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels diff current my-labels.toml\n\
\x20 topicmill labels diff --models minilm-reddit-topics bart-large-mnli")]
pub struct Diff {
    /// Compare this label set: a pipeline file, `current`, or the name or first letters of the version of a stored one
    #[arg(value_name = "A", required_unless_present = "models")]
    a: Option<String>,
    /// Compare A with this label set, given in the same way
    #[arg(value_name = "B", required_unless_present = "models")]
    b: Option<String>,
    /// Compare two models instead, each given by its name or the first letters of its hash
    #[arg(long, num_args = 2, value_names = ["M1", "M2"], conflicts_with_all = ["a", "b"])]
    models: Option<Vec<String>>,
    /// Compare the two models under this label set
    #[arg(
        long,
        value_name = "SET",
        requires = "models",
        default_value = "current"
    )]
    under: String,
    /// Compare both with these gold labels: a file with `id` and `label`, `db`, or `topic`, as in `labels evaluate`
    #[arg(long, value_name = "FILE|db|topic")]
    gold: Option<String>,
    /// Count gold labels that are in neither label set as out of scope
    #[arg(long, requires = "gold")]
    others_out_of_scope: bool,
    #[command(flatten)]
    which: WhichModel,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Diff {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let found = match (&self.models, &self.a, &self.b) {
            (Some(models), ..) => self.models(setup, models).await?,
            (None, Some(a), Some(b)) => self.label_sets(setup, a, b).await?,
            _ => unreachable!("clap asks for A and B, or for --models"),
        };
        found.print(self.format)?;
        Ok(Exit::Done)
    }

    async fn label_sets(&self, setup: &Setup, a: &str, b: &str) -> Result<Found, CliError> {
        let store = match setup.store(Access::ReadOnly).await {
            // Two files can be compared without a database, too.
            Err(CliError::Store(
                error @ (StoreError::Open { .. } | StoreError::NotMigrated(_)),
            )) if Path::new(a).is_file() && Path::new(b).is_file() => {
                tracing::warn!("what it costs cannot be told: {error}");
                None
            }
            store => Some(store?),
        };
        let a = Named::find(setup, &self.which, store.as_ref(), a).await?;
        let b = Named::find(setup, &self.which, store.as_ref(), b).await?;
        let changes = changes(&a.set, &b.set);
        let mut found = Found {
            json: json!({
                "a": settings_json(&a.set), "b": settings_json(&b.set), "labels": as_json(&changes),
                "cost": null, "moved": null,
            }),
            main: 1,
            parts: vec![
                (String::new(), beside(&a.set, &b.set)),
                labels_part(&changes),
            ],
        };
        let Some(store) = store else { return Ok(found) };
        let folder = self.which.folder(setup)?;
        let cost = cost(&store, &folder, &b.set).await?;
        found.json["model"] = json!(folder.name);
        found.json["cost"] = json!(cost);
        found.parts.push((
            format!("To label every post as in the second, with {}", folder.name),
            cost_table(&cost),
        ));
        let model = find_model(&store, &folder).await?;
        if let (Some(model), Some(a_key), Some(b_key)) = (model, a.stored, b.stored) {
            let target = |label_set| Target { model, label_set };
            let moves = compare(&store, target(a_key), target(b_key)).await?;
            if moves.posts() > 0 {
                found.moved(&moves);
                let sides = [(&a.set, target(a_key)), (&b.set, target(b_key))];
                self.hold(&store, sides, &mut found).await?;
            }
        }
        if found.json["moved"].is_null() && self.gold.is_some() {
            return Err(CliError::Usage(
                "hold both against gold: no post is labelled under both; `topicmill labels what-if FILE --gold G` needs \
                 no stored labels"
                    .into(),
            ));
        }
        if found.json["moved"].is_null() {
            tracing::info!(
                "no post is labelled under both: `topicmill labels what-if` shows what would move"
            );
        }
        Ok(found)
    }

    async fn models(&self, setup: &Setup, models: &[String]) -> Result<Found, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let under = Named::find(setup, &self.which, Some(&store), &self.under).await?;
        let label_set = under.stored.ok_or_else(nothing_current)?;
        let rows = store.models().await?;
        let (one, two) = (
            named_model(&rows, &models[0])?,
            named_model(&rows, &models[1])?,
        );
        let target = |(model, _): &(i64, ModelRow)| Target {
            model: *model,
            label_set,
        };
        let moves = compare(&store, target(one), target(two)).await?;
        if moves.posts() == 0 {
            return Err(CliError::Usage(format!(
                "no post has a label of both models under the label set {}: `topicmill classify --model DIR` gives it",
                short(&under.set.hash())
            )));
        }
        let of = |row: &ModelRow| {
            [&row.name, short(&row.manifest_hash), &row.precision].map(Value::from)
        };
        let names = ["model", "hash", "precision"];
        let rows = names.iter().zip(of(&one.1)).zip(of(&two.1));
        let mut found = Found {
            json: json!({
                "a": { "name": one.1.name, "manifest_hash": one.1.manifest_hash, "precision": one.1.precision },
                "b": { "name": two.1.name, "manifest_hash": two.1.manifest_hash, "precision": two.1.precision },
                "label_set": settings_json(&under.set),
            }),
            main: 2,
            parts: vec![(
                String::new(),
                Table {
                    columns: ["", "first", "second"].map(String::from).to_vec(),
                    rows: rows
                        .map(|((what, a), b)| vec![Value::from(*what), a, b])
                        .collect(),
                },
            )],
        };
        found.moved(&moves);
        let sides = [one, two].map(|model| (&under.set, target(model)));
        self.hold(&store, sides, &mut found).await?;
        Ok(found)
    }

    /// Holds both against gold, where that is asked for.
    async fn hold(
        &self,
        store: &Store,
        sides: [(&LabelSet, Target); 2],
        found: &mut Found,
    ) -> Result<(), CliError> {
        let Some(word) = &self.gold else {
            return Ok(());
        };
        let asked = against::rows(store, word).await?.representative(1);
        let sets = sides.map(|(set, _)| set);
        let gold = against::understood(store, asked, &sets, self.others_out_of_scope).await?;
        let labellings = sides.map(|(set, target)| Labelling {
            set,
            labels: Labels::Stored(target),
        });
        against::beside(store, labellings, &gold, found).await
    }
}

impl Found {
    /// Adds how labels differ.
    fn moved(&mut self, moves: &Moves) {
        let (summary, biggest) = moves_tables(moves);
        self.json["moved"] = moves_json(moves);
        self.parts
            .push(("Labels on the same posts".into(), summary));
        if moves.moved() > 0 {
            self.parts.push(("The biggest moves".into(), biggest));
        } else {
            self.main = self.main.min(self.parts.len() - 1);
        }
    }
}

async fn compare(store: &Store, from: Target, to: Target) -> Result<Moves, CliError> {
    Ok(store.compare(from, to).await?.into_iter().collect())
}

/// What became of a label.
enum Change<'a> {
    Added(&'a Label),
    Removed(&'a Label),
    Changed(&'a Label, &'a Label),
    /// Only its place differs, which decides between equal scores.
    Moved(&'a Label),
}

/// Labels by their slugs: those of `b` in its order, then those that are gone.
fn changes<'a>(a: &'a LabelSet, b: &'a LabelSet) -> Vec<Change<'a>> {
    let of = |set: &'a LabelSet, slug: &str| set.labels.iter().find(|label| label.slug == slug);
    let both = |set: &'a LabelSet, other: &'a LabelSet| -> Vec<&'a str> {
        let labels = set.labels.iter().map(|label| label.slug.as_str());
        labels.filter(|slug| of(other, slug).is_some()).collect()
    };
    // Only among labels that both have: one that is new moves none of the others.
    let (order_a, order_b) = (both(a, b), both(b, a));
    let moved = |slug: &str| {
        let place = |order: &[&str]| order.iter().position(|one| *one == slug);
        place(&order_a) != place(&order_b)
    };
    let mut changes: Vec<Change> = b
        .labels
        .iter()
        .filter_map(|label| match of(a, &label.slug) {
            None => Some(Change::Added(label)),
            Some(before) if before != label => Some(Change::Changed(before, label)),
            Some(_) => moved(&label.slug).then_some(Change::Moved(label)),
        })
        .collect();
    let gone = a.labels.iter().filter(|label| of(b, &label.slug).is_none());
    changes.extend(gone.map(Change::Removed));
    changes
}

impl Change<'_> {
    /// What happened, to which label, and its words before and after.
    fn parts(&self) -> (&'static str, &str, Option<&Label>, Option<&Label>) {
        match self {
            Self::Added(label) => ("added", &label.slug, None, Some(label)),
            Self::Removed(label) => ("removed", &label.slug, Some(label), None),
            Self::Changed(a, b) => ("changed", &b.slug, Some(a), Some(b)),
            Self::Moved(label) => ("moved", &label.slug, Some(label), Some(label)),
        }
    }
}

fn as_json(changes: &[Change]) -> Vec<Value> {
    let one = |change: &Change| {
        let (what, slug, a, b) = change.parts();
        json!({ "change": what, "slug": slug, "a": a, "b": b })
    };
    changes.iter().map(one).collect()
}

fn labels_part(changes: &[Change]) -> (String, Table) {
    let heading = if changes.is_empty() {
        "The labels are the same."
    } else {
        "Labels"
    };
    let words = |label: &Label| match label.descriptions.len() {
        0 => label.label.clone(),
        n => format!("{} (+{n} descriptions)", label.label),
    };
    let row = |change: &Change| {
        let (what, slug, a, b) = change.parts();
        vec![
            json!(what),
            json!(slug),
            json!(a.map(words)),
            json!(b.map(words)),
        ]
    };
    let table = Table {
        columns: ["change", "slug", "first", "second"]
            .map(String::from)
            .to_vec(),
        rows: changes.iter().map(row).collect(),
    };
    (heading.to_owned(), table)
}

/// The settings of both.
fn beside(a: &LabelSet, b: &LabelSet) -> Table {
    let rows = settings(a).into_iter().zip(settings(b));
    Table {
        columns: ["", "first", "second"].map(String::from).to_vec(),
        rows: rows
            .map(|((what, a), (_, b))| vec![Value::from(what), a, b])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_score::Mode;

    fn set(labels: &[(&str, &str)]) -> LabelSet {
        let label = |(slug, label): &(&str, &str)| Label {
            slug: (*slug).into(),
            label: (*label).into(),
            descriptions: vec![],
        };
        LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: labels.iter().map(label).collect(),
            background: None,
        }
    }

    fn told(a: &[(&str, &str)], b: &[(&str, &str)]) -> Vec<String> {
        let (a, b) = (set(a), set(b));
        let tell = |change: &Change| {
            let (what, slug, ..) = change.parts();
            format!("{what} {slug}")
        };
        changes(&a, &b).iter().map(tell).collect()
    }

    #[test]
    fn labels_are_added_removed_changed_and_moved() {
        let a = [("x", "ex"), ("y", "why"), ("z", "zed")];
        assert!(told(&a, &a).is_empty());
        assert_eq!(
            told(&a, &[("n", "new"), ("x", "ex"), ("z", "zet")]),
            ["added n", "changed z", "removed y"]
        );
        assert_eq!(
            told(&a, &[("y", "why"), ("x", "ex"), ("z", "zed")]),
            ["moved y", "moved x"]
        );
    }
}
