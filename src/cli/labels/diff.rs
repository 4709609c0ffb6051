//! `topicmill labels diff`: compares two label sets or models. Shows the differences, the cost of the change, and the
//! posts whose label changes.

use clap::Args;
use serde_json::json;

use super::side::{Side, split_model};
use super::{Printout, or_none, settings};
use crate::classify::model_row;
use crate::cli::output::{counted, key_value_table, thousands};
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use crate::telemetry::Progress;
use topicmill_core::labels::hypothesis::{self, Pass};
use topicmill_core::{Label, ModelKind};
use topicmill_review::compare::{Comparison, LabelChange, compare, label_changes};
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
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let current = store.labels().current_target().await?;
        let a = Side::find(app, &store, split_model(&self.a), current).await?;
        let b = Side::find(app, &store, split_model(&self.b), current).await?;
        let mut printout = compare_sets(&a, &b);
        add_cost(&store, &b, &mut printout).await?;
        let compared = compare_sides(app, &store, [&a, &b], self.limit).await?;
        let [of_first, of_second] = compared.unlabelled;
        if of_first + of_second > 0 {
            tracing::warn!(
                of_first,
                of_second,
                "posts without a label that would need inference are left out: `topicmill classify` with this label \
                 set and model labels those that still have their text, and keeps the current label set"
            );
        }
        let without_fit = compare_without_fit(app, &store, [&a, &b]).await?;
        add_moves(&mut printout, &compared, without_fit.as_ref());
        store.close().await?;
        printout.print(self.format)?;
        Ok(Exit::Done)
    }
}

/// Compares the labels of two sides on all posts.
async fn compare_sides(
    app: &App,
    store: &Store,
    [a, b]: [&Side; 2],
    examples: usize,
) -> Result<Comparison, CliError> {
    let labels = [a.labels(app, store).await?, b.labels(app, store).await?];
    let bar = Progress::counter("diff", "posts");
    let stop = || app.stop.is_cancelled();
    Ok(compare(store, &labels, examples, &stop, &|n| bar.add(n)).await?)
}

/// If only one side is fitted to gold labels, compares the label set that it was fitted from with the other side: the
/// changes that remain are those of the labels and settings.
async fn compare_without_fit(
    app: &App,
    store: &Store,
    [a, b]: [&Side; 2],
) -> Result<Option<Comparison>, CliError> {
    if a.set.fitted.is_some() == b.set.fitted.is_some() {
        return Ok(None);
    }
    let (base_of_a, base_of_b) = (a.before_fit(store).await?, b.before_fit(store).await?);
    let sides = match (&base_of_a, &base_of_b) {
        (Some(base), _) => [base, b],
        (None, Some(base)) => [a, base],
        (None, None) => return Ok(None),
    };
    Ok(Some(compare_sides(app, store, sides, 0).await?))
}

/// Compares the settings and labels of two sides.
fn compare_sets(a: &Side, b: &Side) -> Printout {
    let changes = label_changes(&a.set, &b.set);
    let json =
        json!({ "a": a.json(), "b": b.json(), "cost": null, "moved": null, "labels": changes });
    let both = settings(&a.set).into_iter().zip(settings(&b.set));
    let rows = both.map(|((what, a), (_, b))| json!([what, a, b]));
    let rows = rows.chain([json!(["model", a.model(), b.model()])]);
    let mut printout = Printout::new(json).with("", output::table(["", "first", "second"], rows));
    let heading = if changes.is_empty() {
        "The labels are the same."
    } else {
        "Labels"
    };
    printout.add_csv(heading, labels_table(&changes));
    printout
}

/// Adds the cost of labelling every post with the second label set and model.
async fn add_cost(store: &Store, b: &Side, printout: &mut Printout) -> Result<(), CliError> {
    let Some(folder) = &b.folder else {
        return Ok(());
    };
    let labels = store.labels();
    let (model, hash) = (model_row(folder), b.set.hash());
    let keys = hypothesis::keys(&folder.kind, &b.set);
    let existing = labels.find_existing(&model, &hash, &keys).await?;
    let cost = labels.cost(existing.model, existing.label_set, &existing.hypotheses);
    let cost = cost.await?;
    printout.json["cost"] = json!(cost);
    let ready = cost.posts_without_inference;
    let pass = Pass::of(&folder.kind, &b.set);
    let [stored, missing] = [cost.pairs_stored, cost.pairs_missing].map(|pairs| pass.count(pairs));
    let unit = pass.unit();
    let rows = [
        ("posts with a label".to_owned(), json!(cost.labelled)),
        ("posts to label".to_owned(), json!(cost.posts)),
        ("of these, without inference".to_owned(), json!(ready)),
        (format!("{unit} already computed"), json!(stored)),
        (format!("{unit} to compute"), json!(missing)),
    ];
    let table = key_value_table("what", rows);
    let note = match folder.kind {
        ModelKind::Gliclass(_) => {
            ", which reads all labels together: one changed label requires computing all again"
        }
        _ => "",
    };
    let heading = format!(
        "Cost of labelling every post with the second label set and {}{note}",
        folder.name
    );
    printout.add(&heading, table);
    Ok(())
}

/// Adds the agreement of the labels, and the changes.
fn add_moves(printout: &mut Printout, compared: &Comparison, without_fit: Option<&Comparison>) {
    let moves = &compared.moves;
    let [none_before, none_after] = moves.abstained();
    let rows = [
        ("posts compared", json!(compared.posts)),
        ("posts with both labels", json!(moves.posts())),
        ("posts that change their label", json!(moves.moved())),
        ("share with the same label", json!(moves.agreement())),
        ("Cohen's kappa", json!(moves.kappa())),
        ("other or unsure, in the first", json!(none_before)),
        ("other or unsure, in the second", json!(none_after)),
    ];
    let note = without_fit.map_or(String::new(), |without| {
        format!(
            " (only one of the two label sets is fitted to gold labels: without this fit, {} posts change their label)",
            thousands(without.moves.moved())
        )
    });
    printout.json["moved"] = compared.to_json();
    printout.json["moved"]["without_fit"] = json!(without_fit.map(|without| {
        let moves = &without.moves;
        json!({
            "posts": moves.posts(), "moved": moves.moved(), "agreement": moves.agreement(), "kappa": moves.kappa(),
        })
    }));
    printout.add(
        &format!("Labels on the same posts{note}"),
        key_value_table("what", rows),
    );
    if moves.moved() == 0 {
        return;
    }
    let largest = moves.largest().into_iter().take(SHOWN_MOVES);
    let rows = largest.map(|one| {
        let [from, to] = [one.from, one.to].map(|label| or_none(label.as_deref()));
        json!([from, to, one.posts])
    });
    let table = output::table(["from", "to", "posts"], rows);
    printout.add_csv("Largest changes", table);
    if !compared.examples.is_empty() {
        let rows = compared.examples.iter().map(|post| {
            let [from, to] = [&post.from, &post.to].map(|label| or_none(label.as_deref()));
            json!([post.fullname, from, to, post.score, post.title])
        });
        let table = output::table(["post", "from", "to", "score", "title"], rows);
        printout.add("Changes with the highest scores", table);
    }
}

fn labels_table(changes: &[LabelChange<'_>]) -> Table {
    let shown = |label: &Label| match label.descriptions.len() {
        0 => label.label.clone(),
        n => format!("{} (+{})", label.label, counted(n as u64, "description")),
    };
    let rows = changes.iter().map(|label| {
        let (first, second) = (label.a.map(shown), label.b.map(shown));
        json!([label.change, label.slug, first, second])
    });
    output::table(["change", "slug", "first", "second"], rows)
}
