//! `topicmill labels fit`: fits a label set to gold labels, from stored vectors and logits, without running the model.

use clap::Args;
use serde_json::json;

use super::figures::{labels_table, quality_table};
use super::rescoring::{NeededOutput, Rescoring};
use super::{NamedSet, Printout, ResolveFlags, find_stored_model, free_name, short_hash};
use crate::classify::check_no_label_is_lost;
use crate::cli::app::{ModelFlags, run_blocking};
use crate::cli::output::counted;
use crate::cli::share::parse_target;
use crate::cli::{App, CliError, Exit, OutputFormat, backlog};
use crate::engines::EnginePool;
use crate::pipeline::Context;
use topicmill_core::{FitTarget, LabelSet, Provenance};
use topicmill_review::fit::{FittedSet, fit_label_set};
use topicmill_review::gold::TOPIC;
use topicmill_store::{Access, LabelSetId, LabelSetRow, ModelId, Store, StoreError, Target};

/// Minimum number of gold labels for randomly sampled posts. With fewer, the figures use all gold labels.
const MIN_RANDOM: usize = 30;

#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  topicmill labels fit
  topicmill labels fit --target-precision 0.9 --make-current")]
pub struct FitLabels {
    /// Learn from gold labels in FILE or the database (db)
    ///
    /// FILE is a CSV, TSV, NDJSON, JSON or Parquet file with `id` and `label` (a slug or a label's text; empty means
    /// out of scope).
    #[arg(long, value_name = "FILE|db", default_value = "db")]
    gold: String,
    /// Fit the label set SET
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", default_value = "current")]
    label_set: String,
    /// Label all stored posts with the fitted label set and make it the current one
    #[arg(long)]
    pub make_current: bool,
    /// With --make-current: also if posts whose text was deleted lose their label
    #[arg(long, requires = "make_current")]
    yes: bool,
    /// Choose the threshold for a precision of P
    ///
    /// Precision is the share of assigned labels that are right. Posts below the threshold get no label. The default is
    /// the target of the current fit or, if the labels have changed since, of the last one.
    #[arg(long, value_name = "P", conflicts_with = "target_recall", value_parser = parse_target)]
    target_precision: Option<f64>,
    /// Choose the threshold for a recall of R
    ///
    /// Recall is the share of in-scope posts that get their right label.
    #[arg(long, value_name = "R", value_parser = parse_target)]
    target_recall: Option<f64>,
    /// Keep the threshold of the label set, whatever the target of an earlier fit
    #[arg(long, conflicts_with_all = ["target_precision", "target_recall"])]
    no_target: bool,
    #[command(flatten)]
    resolving: ResolveFlags,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    model: ModelFlags,
}

/// Outcome of a fit.
pub(in crate::cli) enum FitVerdict {
    /// It does not make the held-out gold labels more likely: nothing was stored.
    NoGain,
    /// No threshold reaches the target: nothing was stored.
    MissesTarget,
    /// A signal arrived: nothing was stored.
    Stopped,
    /// The label set is stored, but not current.
    Stored,
    /// The label set is current. Contains the exit code from labelling all posts with it.
    Current(Exit),
}

/// A fit that is not stored yet.
pub(in crate::cli) struct LabelSetFit {
    /// The label set that was fitted.
    base: LabelSet,
    pub fitted: FittedSet,
    /// Number of gold posts that the fit could not learn from.
    pub left_out: usize,
    /// True if the answers that the figures use are representative of all posts.
    pub is_representative: bool,
    /// The current target before the fit.
    current: Option<Target>,
    model: ModelId,
}

/// A label set to fit.
struct Base {
    set: LabelSet,
    /// The target of the fit that the new one replaces.
    target: Option<FitTarget>,
}

impl FitLabels {
    /// Returns the options of a fit that is started on the review page.
    pub(in crate::cli) fn on_review_page() -> Self {
        Self {
            gold: "db".to_owned(),
            label_set: "current".to_owned(),
            make_current: true,
            ..Self::default()
        }
    }

    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let context = app.context(app.store(Access::Existing).await?);
        let fit = self.fit(app, &context.store).await?;
        printout(&fit.base, &fit.fitted).print(self.format)?;
        let verdict = self.apply(app, &context, &fit).await?;
        context.store.close().await?;
        Ok(match verdict {
            FitVerdict::NoGain | FitVerdict::MissesTarget | FitVerdict::Stopped => Exit::Partial,
            FitVerdict::Stored => Exit::Done,
            FitVerdict::Current(exit) => exit,
        })
    }

    /// Fits the label set; stores nothing.
    pub(in crate::cli) async fn fit(
        &self,
        app: &App,
        store: &Store,
    ) -> Result<LabelSetFit, CliError> {
        if self.gold == TOPIC {
            let usage = "`--gold topic` cannot be used here, because the topic that a post was collected for is not a \
                         gold label: use `db` or a file";
            return Err(CliError::Usage(usage.to_owned()));
        }
        let current = store.labels().current_target().await?;
        let Base { set: base, target } = self.base(app, store).await?;
        let folder = app.model_choice(&self.model)?.folder()?;
        let model = find_stored_model(store, &folder).await?;
        let labels = self.resolving.read(store, &self.gold, &base).await?;
        let is_representative = labels.is_representative(MIN_RANDOM);
        let random = labels.random_sample(MIN_RANDOM).cloned();
        let annotators = labels.annotators.iter().cloned().collect();
        let gold = labels.resolve(&[&base], self.resolving.others_out_of_scope)?;
        let posts = gold.posts.len();
        let rescoring = Rescoring {
            app,
            store,
            flags: &self.model,
            folder: &folder,
            model,
            set: &base,
        };
        let texts = rescoring
            .gold_texts(gold, random.as_ref(), 1, NeededOutput::Vectors)
            .await?;
        let now = app.clock.now();
        let provenance = Provenance {
            by: annotators,
            at: now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            target: self.target().or(target).filter(|_| !self.no_target),
            ..Provenance::default()
        };
        let (set, model_hash) = (base.clone(), folder.manifest_hash);
        // The fit runs on another thread, so that the review page's server remains responsive.
        let fit = run_blocking(move || Ok(fit_label_set(&set, &model_hash, &texts, provenance)));
        let mut fitted = fit.await?.map_err(|error| {
            CliError::Usage(format!(
                "the gold labels in `{}` cannot be fitted: {error}",
                self.gold
            ))
        })?;
        fitted.set.name = fit_name(store, &base, &fitted).await?;
        Ok(LabelSetFit {
            base,
            left_out: posts - fitted.answers,
            fitted,
            is_representative,
            current,
            model: model.expect("the gold texts have stored results from this model"),
        })
    }

    /// Stores the fitted label set if the held-out gold labels become more likely. With --make-current, also makes it
    /// current and labels all posts with it.
    pub(in crate::cli) async fn apply(
        &self,
        app: &App,
        context: &Context,
        fit: &LabelSetFit,
    ) -> Result<FitVerdict, CliError> {
        let (fitted, store) = (&fit.fitted, &context.store);
        if let Some(verdict) = reject(fitted) {
            return Ok(verdict);
        }
        warn_about(fitted);
        // Created before the label set is stored, so that a failed fit leaves no label set without labels.
        let engines = if self.make_current {
            Some(self.engines(app, store, fit).await?)
        } else {
            None
        };
        if app.stop.is_cancelled() {
            tracing::warn!("stopped: the fit was not stored");
            return Ok(FitVerdict::Stopped);
        }
        let (labels, now) = (store.labels(), app.clock.now().into());
        let label_set = labels.save_fit(&fit.base, &fitted.set, &fitted.crossed, now);
        let target = Target {
            model: fit.model,
            label_set: label_set.await?,
        };
        let (name, version) = (&fitted.set.name, fitted.set.hash());
        let version = short_hash(&version);
        let Some(engines) = engines else {
            tracing::info!(
                version,
                "stored as `{name}`; add --make-current to label all posts with it and make it the current label set"
            );
            return Ok(FitVerdict::Stored);
        };
        if !labels.replace_current(fit.current, target).await? {
            return Err(CliError::Message(
                Exit::TryAgain,
                format!(
                    "another label set became current during the fit, so `{name}` is stored but not current: run \
                     `topicmill labels fit` again to learn for the current one, or make this one current with \
                     `topicmill labels use {version}`"
                ),
            ));
        }
        // This is quick, because texts with a stored vector need no inference.
        let options = app.backlog_options();
        let labelled = backlog::label(context, engines, &fitted.set, &options).await?;
        Ok(FitVerdict::Current(labelled))
    }

    /// Creates the engines that label all posts with a fit, after checking that no post loses its label.
    async fn engines(
        &self,
        app: &App,
        store: &Store,
        fit: &LabelSetFit,
    ) -> Result<EnginePool, CliError> {
        if !self.yes {
            let (rows, version) = (store.labels().label_sets().await?, fit.fitted.set.hash());
            let stored = rows.iter().find(|row| row.hash == version);
            let target = Target {
                model: fit.model,
                label_set: stored.map_or(LabelSetId::NONE, |row| row.id),
            };
            check_no_label_is_lost(store, target).await?;
        }
        let (app, flags) = (app.clone(), self.model.clone());
        run_blocking(move || app.engines(&flags)).await
    }

    /// Returns the target that a flag sets.
    fn target(&self) -> Option<FitTarget> {
        let precision = self.target_precision.map(FitTarget::Precision);
        precision.or(self.target_recall.map(FitTarget::Recall))
    }

    /// Returns the label set that --label-set names or, if it is fitted, the one that it was fitted from.
    async fn base(&self, app: &App, store: &Store) -> Result<Base, CliError> {
        let NamedSet { set, .. } = NamedSet::stored(app, store, &self.label_set).await?;
        let Some(fitted) = &set.fitted else {
            let target = match self.label_set.as_str() {
                "current" => earlier_target(store, &set).await?,
                _ => None,
            };
            return Ok(Base { set, target });
        };
        let rows = store.labels().label_sets().await?;
        let base = rows.iter().find(|row| row.hash == fitted.base).ok_or_else(|| {
            CliError::Usage(format!(
                "the label set `{}` was fitted from version {}, which was dropped: use a pipeline file with \
                 --label-set",
                set.name,
                short_hash(&fitted.base)
            ))
        })?;
        Ok(Base {
            set: store.labels().label_set(base.id).await?,
            target: fitted.provenance.target,
        })
    }
}

/// Warns about a fit that is not worth storing, and returns the verdict on it; `None` if it is worth storing.
fn reject(fitted: &FittedSet) -> Option<FitVerdict> {
    if fitted.gain.0 <= 0.0 {
        tracing::warn!(
            answers = fitted.answers,
            "the fit does not make the held-out gold labels more likely (log-likelihood): nothing was stored; more \
             gold labels may help"
        );
        return Some(FitVerdict::NoGain);
    }
    if !fitted.reaches {
        let target = fitted.target().map(|target| target.to_string());
        tracing::warn!(
            "no threshold reaches {} on the held-out gold labels: nothing was stored; lower the target, collect more \
             gold labels, or pass --no-target",
            target.unwrap_or_default()
        );
        return Some(FitVerdict::MissesTarget);
    }
    None
}

/// Warns about a fit without out-of-scope answers, about labels with few answers, about labels that too few posts would
/// get, and about an insignificant gain.
fn warn_about(fitted: &FittedSet) {
    if fitted.set.background.is_some() && fitted.none == 0 {
        tracing::warn!(
            "no gold label is out of scope, so with this fit hardly any post is `other`: if some posts fit none of \
             the labels, label some of them and fit again"
        );
    }
    let few: Vec<String> = fitted
        .with_few_answers()
        .map(|label| {
            let answers = counted(label.answers as u64, "answer");
            format!("{answers} for `{}`", label.slug)
        })
        .collect();
    if !few.is_empty() {
        tracing::warn!(
            "too few answers to learn from: {}; answer more posts of these labels, or merge the labels",
            few.join(", ")
        );
    }
    let rare: Vec<String> = fitted
        .too_rarely_given()
        .map(|label| {
            let (given, gold, slug) = (label.given, label.gold, &label.slug);
            format!("`{slug}` (gold label of {gold}, assigned to {given})")
        })
        .collect();
    if !rare.is_empty() {
        tracing::warn!(
            posts = fitted.judged,
            "with this fit, these labels get less than half of their estimated share of the posts: {}; answer more posts \
             of these labels and fit again",
            rare.join(", ")
        );
    }
    if !fitted.is_better() {
        tracing::warn!(
            answers = fitted.answers,
            "the gain in log-likelihood on the held-out gold labels is not significant: add gold labels \
             and fit again"
        );
    }
}

/// Returns the name of a fit: the base's name and the number of answers, with a number if another fit has this name.
async fn fit_name(store: &Store, base: &LabelSet, fitted: &FittedSet) -> Result<String, CliError> {
    let rows = store.labels().label_sets().await?;
    let hash = fitted.set.hash();
    let name = format!("{}-fit{}", base.name, fitted.answers);
    Ok(free_name(&name, |name| {
        rows.iter().all(|row| row.name != name || row.hash == hash)
    }))
}

/// Returns the target of the latest fit with this label set's name, if it is a fit of a different version: a change to
/// the labels does not change the target.
async fn earlier_target(store: &Store, set: &LabelSet) -> Result<Option<FitTarget>, CliError> {
    let prefix = format!("{}-fit", set.name);
    // The name ends as `fit_name` makes it.
    let is_fit = |row: &&LabelSetRow| {
        let numbers = row.name.strip_prefix(&prefix);
        numbers.is_some_and(|numbers| numbers.split('-').all(|part| part.parse::<u32>().is_ok()))
    };
    let rows = store.labels().label_sets().await?;
    let Some(row) = rows.iter().find(is_fit) else {
        return Ok(None);
    };
    let latest = match store.labels().label_set(row.id).await {
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        latest => latest?,
    };
    let fitted = latest.fitted.filter(|fitted| fitted.base != set.hash());
    Ok(fitted.and_then(|fitted| fitted.provenance.target))
}

fn printout(base: &LabelSet, fitted: &FittedSet) -> Printout {
    let columns = [
        ("before", &fitted.before),
        ("fitted (held-out)", &fitted.held_out),
    ];
    let figures = quality_table(&columns, Vec::new());
    let sample = if fitted.judged < fitted.answers {
        let judged = fitted.judged;
        format!("The figures use the {judged} that were sampled at random. ")
    } else {
        String::new()
    };
    let heading = format!(
        "`{}` fitted to {} gold labels, {} of them out of scope. {sample}Held-out: cross-validation; each gold label \
         is evaluated by a fit to the others and at the threshold that they choose.{} Shares with 95 % confidence intervals.",
        base.name,
        fitted.answers,
        fitted.none,
        fitted.threshold_in_words()
    );
    let mut json = json!(fitted);
    json["base"] = json!(base.hash());
    json["hash"] = json!(fitted.set.hash());
    json["name"] = json!(fitted.set.name);
    json["threshold"] = json!(fitted.set.threshold);
    let qualities = fitted.labels.iter().map(|label| label.quality);
    let labels = labels_table(&fitted.set, &qualities.collect::<Vec<_>>());
    Printout::new(json)
        .with(&heading, figures)
        .with("Each label (held-out)", labels)
}
