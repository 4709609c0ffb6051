//! `topicmill labels evaluate`

mod beside;
mod confusion;
mod show;
mod tidy;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::output::{self, OutputFormat};
use super::super::setup::{ModelFlags, Setup};
use super::super::{CliError, Exit, labelling};
use super::named_model;
use super::{
    Named, WhichModel, against, find_model, key_of, label_vectors, nothing_current, short,
};
use crate::classify::{MakeCurrent, Options, model_row};
use crate::pipeline::Context;
use crate::review::evaluate::{Difference, evaluate};
use crate::review::held::{Labelling, Labels};
use crate::review::relabel::{Answer, Question, relabel};
use crate::store::{Access, ModelRow, Store, Target};
use topicmill_score::LabelSet;
use topicmill_score::folder::ModelFolder;

/// Flags of `labels evaluate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels evaluate --gold db\n\
\x20 topicmill labels evaluate --gold gold.csv --label-set first --label-set trial\n\
\x20 topicmill labels evaluate --gold db --model old --model new --require-better")]
pub struct Evaluate {
    /// Compare labels with these gold labels: `db`, what people answered here; a CSV, TSV, NDJSON, JSON or Parquet file with
    /// `id` and `label` (a slug or the words of a label; empty, none or other means out of scope); or `topic`, the topic that
    /// each post was collected for
    #[arg(long, value_name = "FILE|db|topic")]
    gold: String,
    /// Count gold labels that are not in the label set as out of scope
    #[arg(long)]
    others_out_of_scope: bool,
    /// Evaluate this label set: `current`, a pipeline file, or the name or first letters of the version of a stored
    /// one; give it twice to compare two [default: current]
    #[arg(long, value_name = "SET")]
    label_set: Vec<String>,
    /// Evaluate the labels of this model: a folder, or the name or first letters of the hash of a model that labelled
    /// here; give it twice to compare two [default: the model of the current labels; with --compute, and for a label set that is
    /// not stored, the model of the settings]
    #[arg(long, value_name = "MODEL")]
    model: Vec<String>,
    /// Run the model for posts that have no label yet; the current labels stay
    #[arg(long)]
    compute: bool,
    /// Exit with 1 unless the second of two is better than the first, by more than chance makes likely (p < 0.05)
    #[arg(long)]
    require_better: bool,
    /// Show this many posts: the surest wrong labels, or those that two labellings label differently
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// A label set and the model that labels with it.
struct Side {
    set: LabelSet,
    /// Its key, where it was ever used.
    stored: Option<i64>,
    /// Where it ever labelled here.
    model: Option<(i64, ModelRow)>,
    /// Where labels are to be made.
    folder: Option<ModelFolder>,
    /// The folder, where it was given.
    path: Option<PathBuf>,
}

impl Evaluate {
    /// Whether it computes, which a signal lets it finish in order.
    pub fn drains(&self) -> bool {
        self.compute
    }

    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        if self.label_set.len() > 2 || self.model.len() > 2 {
            return Err(CliError::Usage(
                "compare two at a time: give --label-set and --model twice at most".into(),
            ));
        }
        let places = self.label_set.len().max(self.model.len()).max(1);
        if self.require_better && places < 2 {
            return Err(CliError::Usage(
                "--require-better compares two: give --model or --label-set twice, the new one last".into(),
            ));
        }
        let access = if self.compute {
            Access::Existing
        } else {
            Access::ReadOnly
        };
        let context = setup.context(setup.store(access).await?);
        let store = &context.store;
        let asked = against::rows(store, &self.gold).await?;
        let sample = asked.sample(1).cloned();
        let mut sides = Vec::new();
        for place in 0..places {
            sides.push(self.side(setup, store, place).await?);
        }
        let sets: Vec<&LabelSet> = sides.iter().map(|side| &side.set).collect();
        let gold = against::understood(store, asked, &sets, self.others_out_of_scope).await?;
        let mut exit = Exit::Done;
        if self.compute {
            for side in &mut sides {
                // The first thing that went wrong is what the exit code says.
                let computed = side.compute(setup, &context).await?;
                exit = if exit == Exit::Done { computed } else { exit };
            }
            if setup.stop.is_cancelled() {
                return Ok(exit);
            }
        }
        let wanted: HashSet<String> = gold.posts.iter().map(|post| post.id.to_string()).collect();
        let mut labellings = Vec::new();
        for side in &sides {
            let labels = side.labels(setup, store, &wanted).await?;
            labellings.push(Labelling {
                set: &side.set,
                labels,
            });
        }
        let whole = against::hold(store, &labellings, &gold).await?;
        store.close().await?;
        let drawn = sample.map(|sample| whole.only(&sample));
        let drawn = drawn.filter(|drawn| !drawn.posts.is_empty());
        let held = drawn.as_ref().unwrap_or(&whole);
        let names: Vec<show::Names> = sides.iter().map(Side::names).collect();
        match &names[..] {
            [one] if self.format == OutputFormat::Csv => {
                let of = evaluate(&held.rows[0], one.set.labels.len());
                output::print_table(&tidy::table(one, &of), self.format)?;
            }
            [one] => {
                let whole = drawn.as_ref().map(|_| &whole);
                show::print(one, held, whole, self.limit, self.format)?;
            }
            [a, b] => {
                let difference = beside::print([a, b], held, self.limit, self.format)?;
                if self.require_better && !difference.is_better() {
                    warn_of(&difference);
                    exit = if exit == Exit::Done {
                        Exit::Partial
                    } else {
                        exit
                    };
                }
            }
            _ => unreachable!("one side, or two"),
        }
        Ok(exit)
    }

    /// The first or the second of what is compared; what is given once holds for both.
    async fn side(&self, setup: &Setup, store: &Store, place: usize) -> Result<Side, CliError> {
        // One label set beside two models is meant for both, and one model beside two label sets, too.
        let of = |words: &[String]| words.get(place).or(words.last()).cloned();
        let word = of(&self.label_set).unwrap_or_else(|| "current".to_owned());
        let which = WhichModel::default();
        let Named { set, stored } = Named::find(setup, &which, Some(store), &word).await?;
        let rows = store.models().await?;
        let word = of(&self.model);
        let mut side = Side {
            set,
            stored,
            model: None,
            folder: None,
            path: word
                .as_ref()
                .filter(|word| Path::new(word).is_dir())
                .map(PathBuf::from),
        };
        match word.filter(|_| side.path.is_none()) {
            Some(word) => side.model = Some(named_model(&rows, &word)?.clone()),
            None if side.path.is_none() => {
                let current = store.current_target().await?.map(|target| target.model);
                side.model = rows.iter().find(|(id, _)| Some(*id) == current).cloned();
            }
            None => {}
        }
        // Stored labels need no folder, so they can be evaluated where there is none.
        let is_named = !self.model.is_empty() && side.path.is_none();
        if side.path.is_some() || !is_named && (self.compute || side.stored.is_none()) {
            let folder = setup.model_choice(&side.flags())?.folder()?;
            let id = find_model(store, &folder).await?;
            side.model = rows.into_iter().find(|(row, _)| Some(*row) == id);
            side.folder = Some(folder);
        }
        Ok(side)
    }
}

/// Says why the second is not better.
fn warn_of(difference: &Difference) {
    tracing::warn!(
        right_in_first_only = difference.only_first,
        right_in_second_only = difference.only_second,
        p = difference.p,
        "the second is not better than the first, or chance alone makes such a difference: keep the first, or collect more gold"
    );
}

impl Side {
    fn flags(&self) -> ModelFlags {
        ModelFlags::new(self.path.clone(), None)
    }

    /// Labels what has no label yet under this model and label set.
    async fn compute(&mut self, setup: &Setup, context: &Context) -> Result<Exit, CliError> {
        let Some(folder) = &self.folder else {
            return Err(CliError::Usage(
                "--compute runs a model: give --model its folder, and not the name of one that labelled here".into(),
            ));
        };
        let engines = setup.engines(&self.flags(), None)?;
        let options = Options {
            make_current: MakeCurrent::Never,
            ..setup.backlog()
        };
        let exit = labelling::label(context, engines, &self.set, &options).await?;
        self.stored = key_of(&context.store.label_sets().await?, &self.set);
        let row = find_model(&context.store, folder).await?;
        self.model = row.map(|id| (id, model_row(folder)));
        Ok(exit)
    }

    /// Stored labels, where there are any; else those that stored logits make.
    async fn labels(
        &self,
        setup: &Setup,
        store: &Store,
        wanted: &HashSet<String>,
    ) -> Result<Labels, CliError> {
        let model = self.model.as_ref().map(|(id, _)| *id);
        if let Some((model, label_set)) = model.zip(self.stored) {
            return Ok(Labels::Stored(Target { model, label_set }));
        }
        let Some(folder) = &self.folder else {
            return Err(nothing_current());
        };
        let labels = label_vectors(setup, &self.flags(), store, folder, &self.set).await?;
        let question = Question {
            kind: &folder.kind,
            model,
            set: &self.set,
            labels: labels.as_deref(),
            baseline: None,
            limit: None,
            examples: 0,
            wanted: Some(wanted),
        };
        let mut answer = Answer::default();
        let stop = || setup.stop.is_cancelled();
        relabel(store, &question, None, &stop, &|_| {}, &mut answer).await?;
        tracing::info!(
            version = short(&self.set.hash()),
            "no labels of this label set are stored: these are made of stored logits, and are not stored"
        );
        Ok(Labels::Made(answer.predictions))
    }

    fn names(&self) -> show::Names<'_> {
        let model = match (&self.model, &self.folder) {
            (Some((_, row)), _) => (row.name.clone(), row.manifest_hash.clone()),
            (None, Some(folder)) => (folder.name.clone(), folder.manifest_hash.clone()),
            (None, None) => Default::default(),
        };
        show::Names {
            set: &self.set,
            model: model.0,
            model_hash: model.1,
        }
    }
}
