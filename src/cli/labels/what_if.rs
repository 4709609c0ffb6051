//! `topicmill labels what-if`

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::super::output::{self, OutputFormat};
use super::super::setup::{RunFlags, Setup};
use super::super::{CliError, Exit, labelling};
use super::{
    Found, WhichModel, against, cost, facts, find_model, key_of, label_vectors, moves_json,
    moves_tables, nothing_current, settings_json, short, told_apart, verdict,
};
use crate::classify::{MakeCurrent, Options, model_row};
use crate::pipeline::Context;
use crate::review::gold::Understood;
use crate::review::held::{Labelling, Labels};
use crate::review::relabel::{Answer, Question, keys, relabel};
use crate::store::{Access, ModelRow, Store, Table, Target};
use crate::telemetry::Progress;
use topicmill_score::LabelSet;
use topicmill_score::folder::ModelFolder;

/// Letters of a score in a table.
const SCORE: usize = 5;
/// Blanks between the columns of a table.
const GAP: usize = 3;

/// Flags of `labels what-if`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels what-if my-labels.toml\n\
\x20 topicmill labels what-if my-labels.toml --save trial --compute")]
pub struct WhatIf {
    /// Try the labels of this pipeline file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Store the labels under the file's label set, with this name; the current labels stay
    #[arg(long, value_name = "NAME")]
    save: Option<String>,
    /// With --save, run the model for the pairs that are not stored yet
    #[arg(long, requires = "save")]
    compute: bool,
    /// Stop after this many posts
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Show this many posts that move, those with the highest scores first
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    /// Compare the labels before and after with these gold labels: a file with `id` and `label`, `db`, or `topic`, as in
    /// `labels evaluate`
    #[arg(long, value_name = "FILE|db|topic")]
    gold: Option<String>,
    /// Count gold labels that are in neither label set as out of scope
    #[arg(long, requires = "gold")]
    others_out_of_scope: bool,
    #[command(flatten)]
    which: WhichModel,
    #[command(flatten)]
    record: RunFlags,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl WhatIf {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let mut set = self.which.label_set(setup, Some(&self.file))?;
        let folder = self.which.folder(setup)?;
        let access = if self.save.is_some() {
            Access::Existing
        } else {
            Access::ReadOnly
        };
        if let Some(name) = &self.save {
            set.name.clone_from(name);
        }
        self.record.check(setup)?;
        let context = setup.context(setup.store(access).await?);
        // What would move is asked of labels that are there.
        let current = context.store.current_target().await?;
        current.ok_or_else(nothing_current)?;
        let mut exit = Exit::Done;
        if self.save.is_some() {
            refuse_current(&context.store, &set).await?;
        }
        // Before a model runs: gold labels that cannot be read are told at once.
        let before = self.before(&context.store, &set).await?;
        if self.compute {
            let engines = setup.engines(&self.which.flags(), None)?;
            let options = Options {
                limit: self.limit,
                make_current: MakeCurrent::Never,
                ..setup.backlog()
            };
            exit = labelling::label(&context, engines, &set, &options).await?;
        }
        let wanted = before.as_ref().map(Before::wanted);
        let answer = self
            .ask(setup, &context, &folder, &set, wanted.as_ref())
            .await;
        self.record.write(&context)?;
        let mut answer = answer?;
        if let Some(other) = other_model(&context.store, &folder).await? {
            tracing::warn!(
                "the current labels are by another model, {}, and not by {}: what moves may be its doing",
                told_apart(&other),
                told_apart(&model_row(&folder))
            );
        }
        let mut found = self.found(&context.store, &folder, &set, &answer).await?;
        if let Some(before) = &before {
            let after = Labels::Made(std::mem::take(&mut answer.predictions));
            before
                .beside(&context.store, &set, after, &mut found)
                .await?;
        }
        context.store.close().await?;
        found.print(self.format)?;
        Ok(exit)
    }

    /// Gold labels and what they are held against now, where that is asked for.
    async fn before(&self, store: &Store, set: &LabelSet) -> Result<Option<Before>, CliError> {
        let Some(word) = &self.gold else {
            return Ok(None);
        };
        let target = store.current_target().await?.ok_or_else(nothing_current)?;
        let current = store.label_set(target.label_set).await?;
        let asked = against::rows(store, word).await?.representative(1);
        let sets = [&current, set];
        let gold = against::understood(store, asked, &sets, self.others_out_of_scope).await?;
        Ok(Some(Before {
            target,
            current,
            gold,
        }))
    }

    async fn ask(
        &self,
        setup: &Setup,
        context: &Context,
        folder: &ModelFolder,
        set: &LabelSet,
        wanted: Option<&HashSet<String>>,
    ) -> Result<Answer, CliError> {
        let store = &context.store;
        let labels = label_vectors(setup, &self.which.flags(), store, folder, set).await?;
        let question = Question {
            kind: &folder.kind,
            model: find_model(store, folder).await?,
            set,
            labels: labels.as_deref(),
            baseline: store.current_target().await?,
            limit: self.limit,
            examples: self.show,
            wanted,
        };
        let bar = Progress::counter("what-if", "posts");
        let progress = |n| bar.add(n);
        // What was computed is stored already.
        if self.save.is_some() && !self.compute {
            let target = Target {
                model: store.ensure_model(&model_row(folder)).await?,
                label_set: store
                    .ensure_label_set(set, setup.clock.now().into())
                    .await?,
            };
            if let Some(labels) = &labels {
                let keys = keys(&folder.kind, set);
                let hypotheses = store.ensure_hypotheses(&keys).await?;
                store
                    .save_label_vectors(target.model, &hypotheses, labels)
                    .await?;
            }
            return Ok(context.relabel(&question, target, &progress).await?);
        }
        let mut answer = Answer::default();
        let stop = || setup.stop.is_cancelled();
        relabel(store, &question, None, &stop, &progress, &mut answer).await?;
        Ok(answer)
    }

    async fn found(
        &self,
        store: &Store,
        folder: &ModelFolder,
        set: &LabelSet,
        answer: &Answer,
    ) -> Result<Found, CliError> {
        let lacking = answer.posts - answer.scored;
        if lacking > 0 {
            let missing = cost(store, folder, set).await?.pairs_missing;
            tracing::warn!(
                posts = lacking,
                pairs = missing,
                "these posts need inference, so they are left out; `labels what-if {} --save NAME --compute` \
                 computes them and leaves the current labels as they are",
                self.file.display()
            );
        }
        if answer.without_label > 0 {
            tracing::info!(
                posts = answer.without_label,
                "scored, but without a current label to compare with"
            );
        }
        if self.save.is_some() {
            tracing::info!(
                name = %set.name, version = short(&set.hash()),
                "stored beside the current labels: `topicmill labels diff current {0}` compares them, `topicmill labels use \
                 {0}` makes them the current ones",
                short(&set.hash())
            );
        }
        let moves = &answer.moves;
        let (before, after) = moves.abstained();
        let summary = facts(vec![
            ("posts looked at", json!(answer.posts)),
            ("scored without inference", json!(answer.scored)),
            ("in need of inference", json!(lacking)),
            ("labels that would move", json!(moves.moved())),
            (
                "share that would move",
                json!(moves.agreement().map(|same| 1.0 - same)),
            ),
            ("other or unsure, now", json!(before)),
            ("other or unsure, then", json!(after)),
        ]);
        let mut json = moves_json(moves);
        json["label_set"] = settings_json(set);
        json["model"] = json!(folder.name);
        json["looked_at"] = json!(answer.posts);
        json["scored"] = json!(answer.scored);
        json["lacking_pairs"] = json!(lacking);
        json["saved"] = json!(if self.compute {
            answer.scored
        } else {
            answer.saved
        });
        let examples = answer.examples.iter().map(|post| {
            json!({
                "fullname": post.fullname, "from": post.from, "to": post.to, "score": post.score,
                "title": post.title,
            })
        });
        json["examples"] = examples.collect();
        let mut parts = vec![(String::new(), summary)];
        let (_, biggest) = moves_tables(moves);
        if moves.moved() > 0 {
            parts.push(("The biggest moves".into(), biggest));
        }
        if !answer.examples.is_empty() {
            parts.push(("The surest of them".into(), examples_table(answer)));
        }
        Ok(Found {
            json,
            main: parts.len() - 1,
            parts,
        })
    }
}

/// The labels as they are, and the gold labels to hold them against.
struct Before {
    target: Target,
    current: LabelSet,
    gold: Understood,
}

impl Before {
    /// The posts whose labels after the change are needed one by one.
    fn wanted(&self) -> HashSet<String> {
        let posts = self.gold.posts.iter();
        posts.map(|post| post.id.to_string()).collect()
    }

    async fn beside(
        &self,
        store: &Store,
        set: &LabelSet,
        after: Labels,
        found: &mut Found,
    ) -> Result<(), CliError> {
        let before = Labelling {
            set: &self.current,
            labels: Labels::Stored(self.target),
        };
        let after = Labelling { set, labels: after };
        against::beside(store, [before, after], &self.gold, found).await
    }
}

/// The model that gave the current labels, where it is another one: with a shortlist it is, too.
async fn other_model(store: &Store, folder: &ModelFolder) -> Result<Option<ModelRow>, CliError> {
    let current = store.current_target().await?.map(|target| target.model);
    if current.is_none() || current == find_model(store, folder).await? {
        return Ok(None);
    }
    let models = store.models().await?;
    let found = models.into_iter().find(|(id, _)| Some(*id) == current);
    Ok(found.map(|(_, row)| row))
}

/// The current labels are not stored under another name by the way.
async fn refuse_current(store: &Store, set: &LabelSet) -> Result<(), CliError> {
    let current = store.current_target().await?.map(|target| target.label_set);
    if current.is_some() && current == key_of(&store.label_sets().await?, set) {
        return Err(CliError::Usage(
            "the file's label set is the current one: there is nothing to save beside it".into(),
        ));
    }
    Ok(())
}

fn examples_table(answer: &Answer) -> Table {
    let mut rows: Vec<Vec<Value>> = answer
        .examples
        .iter()
        .map(|post| {
            let (from, to) = (verdict(&post.from), verdict(&post.to));
            vec![json!(post.fullname), from, to, json!(post.score)]
        })
        .collect();
    let widest = |column: usize| {
        let of = |row: &Vec<Value>| {
            row[column]
                .as_str()
                .map_or(SCORE, |text| text.chars().count())
        };
        rows.iter().map(of).max().unwrap_or(0) + GAP
    };
    let beside = (0..4).map(widest).sum::<usize>() + GAP;
    for (row, post) in rows.iter_mut().zip(&answer.examples) {
        row.push(json!(output::shortened(&post.title, beside)));
    }
    Table {
        columns: ["post", "from", "to", "score", "title"]
            .map(String::from)
            .to_vec(),
        rows,
    }
}
