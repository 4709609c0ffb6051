//! `topicmill labels diff`: what changes from one label set to another, or from one model to another, what it costs,
//! and which posts move.

use clap::Args;
use serde_json::{Value, json};

use super::super::output::OutputFormat;
use super::super::setup::Setup;
use super::super::{CliError, Exit};
use super::side::{Side, parts};
use super::{Found, NONE, cost, facts, settings, with_titles};
use crate::review::compare::{Compared, LabelVerdict, Labels, compare};
use crate::store::{Access, Store, StoreError, Table};
use crate::telemetry::Progress;
use topicmill_score::{Label, LabelSet};

/// Moves from label to label that people are shown of all there are.
const MOVES: usize = 15;

/// Flags of `labels diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels diff current my-labels.toml\n\
\x20 topicmill labels diff current@minilm-reddit-topics current@models/new")]
pub struct Diff {
    /// Compare this label set: a pipeline file, `current`, or the name or first letters of the version of a stored one;
    /// with @MODEL behind it, under this model: a folder, or the name or first letters of the hash of one that labelled
    /// here [default: the model of the current labels, or that of the settings where the former has none of this set]
    #[arg(value_name = "A")]
    a: String,
    /// Compare A with this label set, given in the same way
    #[arg(value_name = "B")]
    b: String,
    /// Show this many posts that move, those with the highest scores first
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Diff {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let words = [parts(&self.a), parts(&self.b)];
        let are_files = words
            .iter()
            .all(|(set, _)| std::path::Path::new(set).is_file());
        let store = match setup.store(Access::ReadOnly).await {
            // Two files can be compared without a database, too.
            Err(CliError::Store(
                error @ (StoreError::Open { .. } | StoreError::NotMigrated(_)),
            )) if are_files => {
                tracing::warn!("what it costs and which posts move cannot be told: {error}");
                None
            }
            store => Some(store?),
        };
        let a = Side::find(setup, store.as_ref(), words[0], false).await?;
        let b = Side::find(setup, store.as_ref(), words[1], false).await?;
        let mut found = sets(&a, &b);
        if let Some(store) = store {
            costs(&store, &b, &mut found).await?;
            self.moves(setup, &store, [&a, &b], &mut found).await?;
            store.close().await?;
        }
        found.print(self.format)?;
        Ok(Exit::Done)
    }

    async fn moves(
        &self,
        setup: &Setup,
        store: &Store,
        [a, b]: [&Side; 2],
        found: &mut Found,
    ) -> Result<(), CliError> {
        let labels = [
            Labels {
                stored: a.target(),
                known: a.known(setup, store).await?,
            },
            Labels {
                stored: b.target(),
                known: b.known(setup, store).await?,
            },
        ];
        let bar = Progress::counter("diff", "posts");
        let stop = || setup.stop.is_cancelled();
        let compared = compare(store, &labels, self.limit, &stop, &|n| bar.add(n)).await?;
        drop(bar);
        let lacking = compared.lacking;
        if lacking.iter().any(|posts| *posts > 0) {
            tracing::warn!(
                of_first = lacking[0],
                of_second = lacking[1],
                "posts that have no label, and would need inference, are left out: `topicmill classify` with this label set \
                 and model labels them, and the current labels stay"
            );
        }
        found.moved(&compared);
        Ok(())
    }
}

/// What differs between the label sets.
fn sets(a: &Side, b: &Side) -> Found {
    let changes = changes(&a.set, &b.set);
    let mut json = json!({ "a": a.json(), "b": b.json(), "cost": null, "moved": null });
    let one = |(what, a, b): &Change| {
        let slug = b.or(*a).map(|label| &label.slug);
        json!({ "change": what, "slug": slug, "a": a, "b": b })
    };
    json["labels"] = changes.iter().map(one).collect();
    let rows = settings(&a.set).into_iter().zip(settings(&b.set));
    let rows = rows.map(|((what, a), (_, b))| vec![json!(what), a, b]);
    let model = vec![json!("model"), json!(a.model()), json!(b.model())];
    Found {
        json,
        main: 1,
        parts: vec![
            (
                String::new(),
                Table {
                    columns: ["", "first", "second"].map(String::from).to_vec(),
                    rows: rows.chain([model]).collect(),
                },
            ),
            labels_part(&changes),
        ],
    }
}

/// What it takes to label every post as in the second.
async fn costs(store: &Store, b: &Side, found: &mut Found) -> Result<(), CliError> {
    let Some(folder) = &b.folder else {
        return Ok(());
    };
    let cost = cost(store, folder, &b.set).await?;
    found.json["cost"] = json!(cost);
    let table = facts(vec![
        ("posts labelled already", json!(cost.labelled)),
        ("posts to label", json!(cost.posts)),
        (
            "of those, without inference",
            json!(cost.posts_without_inference),
        ),
        ("pairs of text and label, stored", json!(cost.pairs_stored)),
        ("pairs to compute", json!(cost.pairs_missing)),
    ]);
    let heading = format!("To label every post as in the second, with {}", folder.name);
    found.parts.push((heading, table));
    Ok(())
}

impl Found {
    /// Adds which posts move.
    fn moved(&mut self, compared: &Compared) {
        let Compared {
            posts,
            lacking,
            moves,
            examples,
        } = compared;
        let (before, after) = moves.abstained();
        let biggest = moves.biggest();
        let list = biggest
            .iter()
            .map(|(from, to, posts)| json!({ "from": from, "to": to, "posts": posts }));
        self.json["moved"] = json!({
            "posts": moves.posts(), "moved": moves.moved(), "agreement": moves.agreement(), "kappa": moves.kappa(),
            "none_of_these_before": before, "none_of_these_after": after, "looked_at": posts, "lacking": lacking,
            "moves": list.collect::<Vec<_>>(), "examples": examples,
        });
        let summary = facts(vec![
            ("posts looked at", json!(posts)),
            ("posts with both labels", json!(moves.posts())),
            ("posts that move", json!(moves.moved())),
            ("share with the same label", json!(moves.agreement())),
            ("Cohen's kappa", json!(moves.kappa())),
            ("other or unsure, in the first", json!(before)),
            ("other or unsure, in the second", json!(after)),
        ]);
        self.parts
            .push(("Labels on the same posts".into(), summary));
        if moves.moved() == 0 {
            return;
        }
        let verdict = |of: &LabelVerdict| json!(of.as_deref().unwrap_or(NONE));
        let rows = biggest.iter().take(MOVES);
        let table = Table {
            columns: ["from", "to", "posts"].map(String::from).to_vec(),
            rows: rows
                .map(|(from, to, posts)| vec![verdict(from), verdict(to), json!(posts)])
                .collect(),
        };
        self.main = self.parts.len();
        self.parts.push(("The biggest moves".into(), table));
        if !examples.is_empty() {
            let rows = examples.iter().map(|post| {
                let (from, to) = (verdict(&post.from), verdict(&post.to));
                vec![json!(post.fullname), from, to, json!(post.score)]
            });
            let titles = examples.iter().map(|post| post.title.as_str());
            let table = with_titles(&["post", "from", "to", "score"], rows.collect(), titles);
            self.parts.push(("The surest of them".into(), table));
        }
    }
}

/// What became of a label, and the label before and after.
type Change<'a> = (&'static str, Option<&'a Label>, Option<&'a Label>);

/// Labels by their slugs: those of `b` in its order, then those that are gone.
fn changes<'a>(a: &'a LabelSet, b: &'a LabelSet) -> Vec<Change<'a>> {
    let of = |set: &'a LabelSet, slug: &str| set.labels.iter().find(|label| label.slug == slug);
    let both = |set: &'a LabelSet, other: &'a LabelSet| -> Vec<&'a str> {
        let labels = set.labels.iter().map(|label| label.slug.as_str());
        labels.filter(|slug| of(other, slug).is_some()).collect()
    };
    // Only among labels that both have: one that is new moves none of the others. The order decides between equal scores.
    let (order_a, order_b) = (both(a, b), both(b, a));
    let moved = |slug: &str| {
        let place = |order: &[&str]| order.iter().position(|one| *one == slug);
        place(&order_a) != place(&order_b)
    };
    let mut changes: Vec<Change> = b
        .labels
        .iter()
        .filter_map(|label| match of(a, &label.slug) {
            None => Some(("added", None, Some(label))),
            Some(before) if before != label => Some(("changed", Some(before), Some(label))),
            before => moved(&label.slug).then_some(("moved", before, Some(label))),
        })
        .collect();
    let gone = a.labels.iter().filter(|label| of(b, &label.slug).is_none());
    changes.extend(gone.map(|label| ("removed", Some(label), None)));
    changes
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
    let row = |(what, a, b): &Change| -> Vec<Value> {
        let slug = b.or(*a).map(|label| &label.slug);
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

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_score::Mode;

    #[test]
    fn labels_are_added_removed_changed_and_moved() {
        let set = |labels: &[(&str, &str)]| LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: labels
                .iter()
                .map(|(slug, label)| Label {
                    slug: (*slug).into(),
                    label: (*label).into(),
                    descriptions: vec![],
                })
                .collect(),
            background: None,
        };
        let told = |b: &[(&str, &str)]| -> Vec<String> {
            let (a, b) = (set(&[("x", "ex"), ("y", "why"), ("z", "zed")]), set(b));
            changes(&a, &b)
                .iter()
                .map(|(what, a, b)| format!("{what} {}", b.or(*a).unwrap().slug))
                .collect()
        };
        assert!(told(&[("x", "ex"), ("y", "why"), ("z", "zed")]).is_empty());
        assert_eq!(
            told(&[("n", "new"), ("x", "ex"), ("z", "zet")]),
            ["added n", "changed z", "removed y"]
        );
        assert_eq!(
            told(&[("y", "why"), ("x", "ex"), ("z", "zed")]),
            ["moved y", "moved x"]
        );
    }
}
