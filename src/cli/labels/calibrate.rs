//! `topicmill labels calibrate`: fits the temperature, the threshold and the background weight to gold labels.

mod calibrated_file;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use self::calibrated_file::with_settings;
use super::figures::quality_table;
use super::rescoring::{NeededOutput, Rescoring};
use super::{
    NamedSet, Printout, ResolveFlags, WhichModel, find_stored_model, settings_json, short_hash,
    write_file,
};
use crate::atomic_file::IfExists;
use crate::cli::app::PipelineFlags;
use crate::cli::share::parse_target;
use crate::cli::{App, CliError, Exit, OutputFormat};
use crate::pipeline_file::{SIXTEEN_TOPICS, read_text};
use topicmill_core::{Background, CALIBRATED, Fullname, LabelSet, Mode};
use topicmill_review::calibrate::{
    Calibration, FOLDS, GoldEvidence, MIN_ANSWERED, Setting, TEMPERATURES, calibrate,
};
use topicmill_review::evaluate::{Counted, Frame};
use topicmill_review::join::GoldText;
use topicmill_review::quality::QualitySample;
use topicmill_store::{Access, ModelId, Store, Target};

/// The minimum number of gold posts for a fit.
const MIN_ROWS: usize = 30;
/// The minimum number of gold posts for confidence intervals that are narrow enough to choose a threshold.
const GOOD_ROWS: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels calibrate --gold db
  topicmill labels calibrate --gold gold.csv --target-precision 0.85 --out calibrated.toml")]
pub struct Calibrate {
    /// Fit to gold labels from FILE, the database (db) or post topics (topic)
    ///
    /// FILE is a CSV, TSV, NDJSON, JSON or Parquet file with `id` and `label` (a slug or a label's text; empty means
    /// out of scope). `topic` uses the topic that each post was collected for.
    #[arg(long, value_name = "FILE|db|topic", default_value = "db")]
    gold: String,
    /// Calibrate the label set SET
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", default_value = "current")]
    label_set: String,
    #[command(flatten)]
    resolving: ResolveFlags,
    /// Choose the threshold for a precision of P
    ///
    /// Precision is the share of assigned labels that are right. Posts below the threshold get no label.
    #[arg(long, value_name = "P", default_value_t = 0.9, value_parser = parse_target)]
    target_precision: f64,
    /// Write a copy of the pipeline file with the result to FILE
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the --out file if it exists
    #[arg(long, requires = "out")]
    overwrite: bool,
    #[command(flatten)]
    which: WhichModel,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Calibrate {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if let Some(path) = &self.out {
            if path.exists() && !self.overwrite {
                return Err(CliError::Usage(format!(
                    "`{}` already exists: choose a different name for --out, or add --overwrite",
                    path.display()
                )));
            }
            app.check_not_database(path)?;
        }
        let file = self.pipeline_file();
        let in_file = self.which.label_set(app, file.pipeline.as_deref())?;
        let text = match app.pipeline_path(&file) {
            None => SIXTEEN_TOPICS.to_owned(),
            Some(path) => read_text(path)?,
        };
        let store = app.store(Access::ReadOnly).await?;
        let set = self.label_set(app, &store, &in_file).await?;
        self.check_classifier(app, &set)?;
        let (gold, frame) = self.gold_evidence(app, &store, &set).await?;
        store.close().await?;
        let before = Setting {
            temperature: set.temperature,
            threshold: set.threshold,
            shift: 0.0,
        };
        let Some(fitted) = calibrate(&gold, before, self.target_precision) else {
            return Err(CliError::Usage(format!(
                "all gold labels in `{}` are out of scope: calibration also needs posts with a label of the label set",
                self.gold
            )));
        };
        warn_about(&set, &gold, &fitted);
        printout(&set, &fitted, frame.as_ref()).print(self.format)?;
        let Some(threshold) = fitted.threshold else {
            tracing::warn!(
                "no threshold that labels at least {MIN_ANSWERED} posts reaches a precision of {}: nothing was \
                 written; lower --target-precision, or improve the labels",
                self.target_precision
            );
            return Ok(Exit::Partial);
        };
        let mut new = LabelSet {
            name: format!("{}{CALIBRATED}", set.name.trim_end_matches(CALIBRATED)),
            temperature: fitted.temperature,
            threshold,
            ..set
        };
        if let Some(background) = &mut new.background {
            background.weight = weight_after(background.weight, fitted.shift);
        }
        self.write(&text, app.pipeline_path(&file), &new)?;
        Ok(Exit::Done)
    }

    /// Returns the pipeline file that --label-set names, or else the one from the settings.
    fn pipeline_file(&self) -> PipelineFlags {
        let path = Path::new(&self.label_set);
        PipelineFlags {
            pipeline: path.is_file().then(|| path.to_owned()),
        }
    }

    /// Returns the label set that --label-set names. `in_file` is the label set of the pipeline file that --out copies.
    async fn label_set(
        &self,
        app: &App,
        store: &Store,
        in_file: &LabelSet,
    ) -> Result<LabelSet, CliError> {
        let find = NamedSet::find(app, &self.which, store, &self.label_set);
        let set = match self.pipeline_file().pipeline {
            Some(_) => in_file.clone(),
            None => find.await?.set,
        };
        if set.fitted.is_some() {
            return Err(CliError::Usage(format!(
                "the label set `{}` is fitted to gold labels: choose its threshold with `topicmill labels fit \
                 --target-precision P`, or name a label set without a fit with --label-set",
                set.name
            )));
        }
        if self.out.is_some() && set.labels != in_file.labels {
            return Err(CliError::Usage(format!(
                "--out writes a copy of the pipeline file, but the labels of `{}` differ from the labels of the label \
                 set `{}`: name its pipeline file with --label-set",
                in_file.name, set.name
            )));
        }
        tracing::info!(
            version = short_hash(&set.hash()),
            "calibrating the label set `{}`",
            set.name
        );
        Ok(set)
    }

    /// Rejects a classifier that cannot be calibrated: one with raw logits or, with --out, one whose labels differ from
    /// the labels in the pipeline file.
    fn check_classifier(&self, app: &App, set: &LabelSet) -> Result<(), CliError> {
        let Some((model, head)) = app.classifier(&self.which.flags()) else {
            return Ok(());
        };
        if set.mode == Mode::Raw {
            return Err(CliError::Usage(format!(
                "the scores of `{model}` are logits (mode raw), and only probabilities can be calibrated: use --mode \
                 single or multi if the logits can be converted"
            )));
        }
        let file = app.pipeline(&self.pipeline_file())?.label_set;
        if self.out.is_some() && file.classes_of(&head).is_none() {
            return Err(CliError::Usage(format!(
                "--out writes a copy of the pipeline file, but its labels differ from the labels of the classifier \
                 `{model}` ({}): with --label-set, name a file with a [[topic]] for each of them",
                head.label_list()
            )));
        }
        Ok(())
    }

    /// Returns the gold posts, with the stored output of the model for them. If all were drawn at random, also returns
    /// the posts that they represent, and leaves out the others.
    async fn gold_evidence(
        &self,
        app: &App,
        store: &Store,
        set: &LabelSet,
    ) -> Result<(Vec<GoldEvidence>, Option<Frame>), CliError> {
        let folder = self.which.folder(app)?;
        let rescoring = Rescoring {
            app,
            store,
            flags: &self.which.flags(),
            model: find_stored_model(store, &folder).await?,
            folder: &folder,
            set,
        };
        // Close calls are harder than most posts, so a fit to them alone would underestimate the quality of the labels.
        let labels = self.resolving.read(store, &self.gold, set).await?;
        let labels = labels.keep_random_sample(MIN_ROWS);
        let is_random = labels.is_random();
        let gold = labels.resolve(&[set], self.resolving.others_out_of_scope)?;
        let mut texts = rescoring
            .gold_texts(gold, None, MIN_ROWS, NeededOutput::Any)
            .await?;
        if texts.len() < GOOD_ROWS {
            tracing::warn!(
                rows = texts.len(),
                "few gold posts: check the confidence intervals before you rely on a figure"
            );
        }
        let frame = match rescoring.model {
            Some(model) if is_random => frame(store, model, set, &texts).await?,
            _ => None,
        };
        if let Some(frame) = &frame {
            texts.retain(|text| frame.contains(&text.post));
        }
        let weight = |post: &Fullname| frame.as_ref().map_or(1.0, |frame| frame.weight(post));
        let gold = texts.into_iter().map(|text| GoldEvidence {
            weight: weight(&text.post),
            ..text.gold
        });
        Ok((gold.collect(), frame))
    }

    /// Writes the calibrated pipeline file, or, without --out, only logs the values.
    fn write(&self, text: &str, from: Option<&Path>, new: &LabelSet) -> Result<(), CliError> {
        let hash = new.hash();
        let version = short_hash(&hash);
        let Some(out) = &self.out else {
            tracing::info!(
                temperature = new.temperature, threshold = new.threshold, %version,
                "no file written: --out FILE writes a pipeline file with these values"
            );
            return Ok(());
        };
        let folder = from.map(|path| path.parent().unwrap_or(Path::new("")));
        let text =
            with_settings(text, new, folder).map_err(|error| CliError::Usage(error.to_string()))?;
        write_file(out, text, IfExists::Replace, "")?;
        tracing::info!(
            temperature = new.temperature, threshold = new.threshold, %version,
            "wrote {0}: `topicmill labels diff current {0}` shows which posts change their label, and `topicmill \
             classify --pipeline {0} --make-current` applies it and makes its labels the current ones; neither runs \
             the model",
            out.display()
        );
        Ok(())
    }
}

/// Returns the background weight after a shift of its logit, rounded to four decimals.
fn weight_after(weight: f64, shift: f64) -> f64 {
    (weight * shift.exp() * 1e4).round().max(1.0) / 1e4
}

/// Finds the posts that a random sample represents. A label set that is not stored yet has those of the current one.
async fn frame(
    store: &Store,
    model: ModelId,
    set: &LabelSet,
    texts: &[GoldText],
) -> Result<Option<Frame>, CliError> {
    let rows = store.labels().label_sets().await?;
    let stored = rows.iter().find(|row| row.hash == set.hash());
    let target = match stored.map(|row| row.id) {
        Some(label_set) => Some(Target { model, label_set }),
        None => store.labels().current_target().await?,
    };
    let Some(target) = target else {
        return Ok(None);
    };
    let answers = store.gold().answers().await?;
    let posts = texts.iter().map(|text| &text.post);
    let frame = Frame::find(store, target, &answers, posts, Counted::IfWaves).await?;
    Ok(Some(frame))
}

/// Warns about a temperature at its limit, and about a background without out-of-scope posts, or such posts without one.
fn warn_about(set: &LabelSet, gold: &[GoldEvidence], fitted: &Calibration) {
    if !(TEMPERATURES.0 * 1.01..TEMPERATURES.1 / 1.01).contains(&fitted.temperature) {
        tracing::warn!(
            temperature = fitted.temperature,
            "the best temperature is at the limit of the search range, because the labels are all right or all \
             random: do not use it"
        );
    }
    let has_out_of_scope = gold.iter().any(|post| post.right.is_empty());
    if set.background.is_some() && !has_out_of_scope {
        tracing::warn!(
            "no gold post is out of scope, so the background keeps its weight: to fit it, label some posts that \
             fit none of the labels"
        );
    }
    if set.background.is_none() && has_out_of_scope {
        tracing::info!(
            "some gold posts fit none of the labels: `background = \"reddit\"` in a copy of the pipeline file \
             detects such posts; compare the two files with `labels evaluate`"
        );
    }
}

fn printout(set: &LabelSet, fitted: &Calibration, frame: Option<&Frame>) -> Printout {
    let decimals = |x: f64| json!(format!("{x:.4}"));
    let setting = |name: &str, before: f64, after: Option<f64>| {
        json!([name, decimals(before), after.map(decimals), null])
    };
    let mut head = vec![
        setting("temperature", set.temperature, Some(fitted.temperature)),
        setting("threshold", set.threshold, fitted.threshold),
    ];
    if let Some(Background { weight, .. }) = set.background {
        let after = weight_after(weight, fitted.shift);
        head.push(setting("background_weight", weight, Some(after)));
    }
    let columns = [
        ("before", &fitted.before),
        ("after", &fitted.after),
        ("held-out", &fitted.held_out),
    ];
    let summary = quality_table(&columns, head);
    let mut json = json!(fitted);
    json["label_set"] = settings_json(set);
    json["folds"] = json!(FOLDS);
    json["sample"] = json!(match frame {
        Some(_) => QualitySample::Random,
        None => QualitySample::Selected,
    });
    json["frame"] = json!(frame.and_then(Frame::size));
    let scope = match frame {
        Some(frame) => format!(
            "The posts were drawn at random, so the figures are estimates for {}. ",
            frame.in_words().unwrap_or_else(|| "all posts".to_owned())
        ),
        None => "The posts are not known to be drawn at random, so the figures, coverage included, are no estimates for \
                 all posts. "
            .to_owned(),
    };
    let heading = format!(
        "{scope}Shares with 95 % confidence intervals. Held-out: cross-validation; each post is evaluated by a fit to the \
         other {} of {FOLDS} folds.",
        FOLDS - 1
    );
    Printout::new(json).with(&heading, summary)
}
