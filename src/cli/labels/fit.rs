//! `topicmill labels fit`: learns from gold labels, and labels what is stored anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use clap::Args;
use serde_json::{Value, json};

use super::super::setup::ModelFlags;
use super::super::{CliError, Exit, OutputFormat, Setup, backlog, output};
use super::gold_source::{self, share};
use super::{NamedSet, Printout, WhichModel, find_stored_model, label_vectors, short_hash};
use crate::classify::{MakeCurrent, Options};
use crate::pipeline::Context;
use topicmill_core::{Fullname, TextHash};
use topicmill_review::calibrate::Quality;
use topicmill_review::fit::{FittedSet, GoldText, Wanted, fit_label_set};
use topicmill_review::known::Known;
use topicmill_score::folder::ModelFolder;
use topicmill_score::{LabelSet, Provenance};
use topicmill_store::{Access, Store};

/// With fewer answers drawn at random, figures are of all answers.
const MIN_RANDOM: usize = 30;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels fit
  topicmill labels fit --target-precision 0.9 --make-current")]
pub struct FitLabels {
    /// Learn from these gold labels: `db`, what people answered here; or a CSV, TSV, NDJSON, JSON or Parquet file with `id`
    /// and `label` (a slug or the words of a label; empty means none of these)
    #[arg(long, value_name = "FILE|db", default_value = "db")]
    gold: String,
    /// Fit this label set: `current`, a pipeline file, or the name or first letters of the version of a stored one
    #[arg(long, value_name = "SET", default_value = "current")]
    label_set: String,
    /// Label all stored posts with the fitted labels, and show these in the views
    #[arg(long)]
    make_current: bool,
    /// Choose the threshold so that this share of the labels is right; posts below it get no label
    #[arg(long, value_name = "P", conflicts_with = "target_recall")]
    target_precision: Option<f64>,
    /// Choose the threshold so that this share of the posts that have a label gets it
    #[arg(long, value_name = "R")]
    target_recall: Option<f64>,
    /// Count gold labels that are not in the label set as none of these
    #[arg(long)]
    others_out_of_scope: bool,
    #[command(flatten)]
    model: ModelFlags,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl FitLabels {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let wanted = self.wanted()?;
        if self.gold == "topic" {
            return Err(CliError::Usage(
                "`--gold topic`: the topic that a post was collected for is not an answer; give `db` or a file".into(),
            ));
        }
        let context = setup.context(setup.store(Access::Existing).await?);
        let store = &context.store;
        let base = self.base(setup, store).await?;
        let folder = setup.model_choice(&self.model)?.folder()?;
        let (texts, people) = self.gold_texts(setup, store, &folder, &base).await?;
        let now = setup.clock.now();
        let provenance = Provenance {
            by: people.into_iter().collect(),
            at: now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            ..Provenance::default()
        };
        let fitted = fit_label_set(&base, &folder.manifest_hash, &texts, wanted, provenance);
        let mut fitted = fitted.map_err(|error| {
            CliError::Usage(format!(
                "the gold labels of `{}` cannot be fitted: {error}",
                self.gold
            ))
        })?;
        fitted.set.name = format!("{}-fit{}", base.name, fitted.answers);
        printout(&base, &fitted).print(self.format)?;
        if fitted.gain.0 <= 0.0 {
            tracing::warn!(
                answers = fitted.answers,
                "these answers make labels no better than the words alone: nothing is stored; more answers may help"
            );
            return Ok(Exit::Partial);
        }
        if !fitted.reaches {
            tracing::warn!(
                "no threshold reaches what is gold_labels for on the held-out answers: nothing is stored; ask for less, or collect \
                 more answers"
            );
            return Ok(Exit::Partial);
        }
        if !fitted.is_better() {
            tracing::warn!(
                answers = fitted.answers,
                "the labels are better on these answers, but that may be chance: 25 more answers may tell"
            );
        }
        store.labels().ensure_label_set(&base, now.into()).await?;
        store
            .labels()
            .ensure_label_set(&fitted.set, now.into())
            .await?;
        let version = fitted.set.hash();
        if !self.make_current {
            tracing::info!(
                version = short_hash(&version),
                "stored as `{}`; to label all posts with it, and show these labels, add --make-current",
                fitted.set.name
            );
            return Ok(Exit::Done);
        }
        self.label_all(setup, &context, &fitted.set).await
    }

    fn wanted(&self) -> Result<Wanted, CliError> {
        let wanted = match (self.target_precision, self.target_recall) {
            (Some(share), _) => Wanted::Precision(share),
            (None, Some(share)) => Wanted::Recall(share),
            (None, None) => Wanted::Nothing,
        };
        match wanted {
            Wanted::Precision(share) | Wanted::Recall(share) if !(share > 0.0 && share <= 1.0) => {
                Err(CliError::Usage(format!(
                    "{share} is not a share: give a number above 0 and up to 1"
                )))
            }
            wanted => Ok(wanted),
        }
    }

    /// Returns the label set to fit; of one that is fitted already, the one that it was fitted to.
    async fn base(&self, setup: &Setup, store: &Store) -> Result<LabelSet, CliError> {
        let which = WhichModel::default();
        let NamedSet { set, .. } = NamedSet::find(setup, &which, store, &self.label_set).await?;
        let Some(fitted) = &set.fitted else {
            return Ok(set);
        };
        let rows = store.labels().label_sets().await?;
        let base = rows.iter().find(|row| row.hash == fitted.base).ok_or_else(|| {
            CliError::Usage(format!(
                "the label set `{}` was fitted to version {}, which was dropped: give a pipeline file with --label-set",
                set.name,
                short_hash(&fitted.base)
            ))
        })?;
        Ok(store.labels().label_set(base.id).await?)
    }

    /// Returns the gold posts with what is stored of their texts, and the people who answered.
    async fn gold_texts(
        &self,
        setup: &Setup,
        store: &Store,
        folder: &ModelFolder,
        base: &LabelSet,
    ) -> Result<(Vec<GoldText>, BTreeSet<String>), CliError> {
        let gold_labels = gold_source::read(store, &self.gold).await?;
        let people = gold_labels.annotators();
        let random = gold_labels.random_sample(MIN_RANDOM).cloned();
        let gold =
            gold_source::resolve(store, gold_labels, &[base], self.others_out_of_scope).await?;
        let names: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let hashes = store.posts().text_hashes(&names).await?;
        let hashes: BTreeMap<Fullname, TextHash> = hashes.into_iter().collect();
        let mut known = HashMap::new();
        if let Some(model) = find_stored_model(store, folder).await? {
            let vectors = label_vectors(setup, &self.model, store, folder, base).await?;
            let set = Known::new(store, (&folder.kind, model), base, vectors).await?;
            known = set
                .zero_shot(store, hashes.values().copied().collect())
                .await?;
        }
        let (all, there) = (gold.posts.len(), hashes.len());
        let text = |post: topicmill_review::gold::GoldPost| {
            let text_hash = *hashes.get(&post.id)?;
            Some(GoldText {
                text_hash,
                known: known.get(&text_hash)?.clone(),
                is_random: random
                    .as_ref()
                    .is_none_or(|random| random.contains(&post.id)),
                right: post.right.into_iter().next()?,
            })
        };
        let texts: Vec<GoldText> = gold.posts.into_iter().filter_map(text).collect();
        let (unknown, unscored) = (all - there, there - texts.len());
        if texts.is_empty() {
            return Err(CliError::Usage(format!(
                "none of the {all} gold posts can be used: {unknown} are not in the database, and nothing that the model \
                 `{}` computed is stored for {unscored}; run `topicmill classify` with this model first",
                folder.name
            )));
        }
        if unknown + unscored > 0 {
            tracing::warn!(
                unknown,
                unscored,
                "gold posts are left out that are not in the database, or for which nothing is stored of this model"
            );
        }
        Ok((texts, people))
    }

    /// Labels every stored post with the fitted label set. Nothing is computed for a text with a stored vector.
    async fn label_all(
        &self,
        setup: &Setup,
        context: &Context,
        set: &LabelSet,
    ) -> Result<Exit, CliError> {
        let engines = setup.engines(&self.model)?;
        let options = Options {
            make_current: MakeCurrent::Always,
            ..setup.backlog_options()
        };
        let labelled = backlog::label(context, engines, set, &options).await;
        context.store.close().await?;
        labelled
    }
}

fn printout(base: &LabelSet, fitted: &FittedSet) -> Printout {
    let (before, after) = (&fitted.before, &fitted.held_out);
    let row = |what: &str, of: &dyn Fn(&Quality) -> Value| json!([what, of(before), of(after)]);
    let figures = output::table(
        ["figure", "words alone", "fitted, held out"],
        [
            row("right outcome", &|of| share(&of.accuracy, 3)),
            row("labels that are right (precision)", &|of| {
                share(&of.precision, 3)
            }),
            row("in scope: right label (recall)", &|of| share(&of.found, 3)),
            row("posts with a label (coverage)", &|of| {
                share(&of.coverage, 3)
            }),
            row("calibration error of labels", &|of| {
                json!(format!("{:.3}", of.calibration_error))
            }),
        ],
    );
    let chosen = if fitted.judged < fitted.answers {
        format!(
            "The figures are of the {} that were drawn at random. ",
            fitted.judged
        )
    } else {
        String::new()
    };
    let heading = format!(
        "`{}` fitted to {} answers, {} of them none of these. {chosen}Each held-out answer is judged by a fit to the others. \
         Shares with 95 % intervals.",
        base.name, fitted.answers, fitted.none
    );
    let mut json = json!(fitted);
    json["base"] = json!(base.hash());
    json["hash"] = json!(fitted.set.hash());
    json["name"] = json!(fitted.set.name);
    json["threshold"] = json!(fitted.set.threshold);
    Printout::new(json).with(&heading, figures)
}
