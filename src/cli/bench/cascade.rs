//! `topicmill bench cascade`: what a small model before the large one keeps of the large one's labels, and what it saves.
//!
//! Both models score every text against every label, in turns. What follows is computed from these scores and times: who
//! decides each text, which label it gets, and what it takes, which is the small model's time, and of the large one's
//! the part that the tokens that it still reads have in all.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::sweep::Span;
use super::{Bed, Subject, csv, curve, least_and_median, rounded, table, write};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::{SMALL_MODEL, Setup, certainty, keep, temperature};
use crate::cli::{CliError, Exit};
use crate::clock::SharedClock;
use crate::engines::fit_together;
use crate::review::calibrate::Share;
use topicmill_score::cascade::{Glance, certainty as certainty_of, leave_out};
use topicmill_score::labeler::{Pair, Pairs, Prepared};
use topicmill_score::score::{Outcome, Scores};
use topicmill_score::{
    LabelerError, ModelFolder, PairLogits, SmallModel, SmallTask, TextError, TextResult,
};

/// The certainties that are measured where neither they nor shortlists are named.
const CERTAINTIES: [f64; 7] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

/// Flags of `bench cascade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill bench cascade --model models/bart-large-mnli\n\
\x20 topicmill bench cascade --model models/made --cascade 0.7,0.9 --shortlist 2:6:2")]
pub struct Cascading {
    #[command(flatten)]
    pub(super) subject: Subject,
    /// Use the small model in this folder
    #[arg(long, alias = "shortlist-model", value_name = "DIR", default_value = SMALL_MODEL)]
    small_model: PathBuf,
    /// Measure cascades in which the small model must be this sure, such as 0.8,0.9 [default: seven from 0.5 to 0.99;
    /// with --shortlist none]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = certainty)]
    cascade: Vec<f64>,
    /// Measure shortlists of these sizes: first, last and step; with --cascade each with each, too
    #[arg(long, value_name = "A:B:STEP")]
    shortlist: Option<Span>,
    /// Divide the small model's logits by T before its scores are compared with P [default: the pipeline's temperature]
    #[arg(long, value_name = "T", value_parser = temperature)]
    small_temperature: Option<f64>,
    /// Measure each model this often, in turns with the other, after one text that warms up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Write to this folder: cascade.json, cascade.csv and the curve cascade.svg
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the table in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// What `bench cascade` was called.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Former {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

impl Former {
    /// What to do instead.
    pub(super) fn refused() -> CliError {
        CliError::Usage(
            "`bench shortlist` is now part of `bench cascade`: use `topicmill bench cascade --shortlist 1:8`".into(),
        )
    }
}

/// The small model, loaded.
pub struct Small {
    model: SmallModel,
    prepared: Prepared,
    folder: ModelFolder,
}

impl Cascading {
    /// The certainties that are measured.
    fn certainties(&self) -> Vec<f64> {
        match (self.cascade.is_empty(), &self.shortlist) {
            (true, None) => CERTAINTIES.to_vec(),
            _ => self.cascade.clone(),
        }
    }

    /// The sizes of shortlists that are measured, of a set of so many labels; the last is without one.
    fn sizes(&self, labels: usize) -> Vec<usize> {
        let span = self.shortlist.iter();
        let sizes = span.flat_map(|span| (span.first..=span.last).step_by(span.step));
        let sizes = sizes.take_while(|size| *size < labels);
        sizes.chain([labels]).collect()
    }

    pub(super) fn small(&self, setup: &Setup, bed: &Bed) -> Result<Small, CliError> {
        let choice = setup.model_choice(&self.subject.model)?;
        let choice = choice.beside(&self.small_model);
        let labeler = choice.open_one(bed.device)?.labeler;
        let folder = labeler.folder().clone();
        fit_together(bed.labeler.folder(), &folder, self.shortlist.is_some())?;
        let least = self.certainties().first().copied();
        let task = SmallTask {
            shortlist: None,
            keep: keep(least, self.small_temperature, &bed.set)?,
        };
        let mut model = SmallModel::new(labeler, task);
        Ok(Small {
            prepared: model.prepare(&bed.set)?,
            model,
            folder,
        })
    }

    pub(super) fn run(
        self,
        mut bed: Bed,
        mut small: Small,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Exit, CliError> {
        if self.subject.texts.is_none() {
            tracing::warn!("made-up posts tell the speed alone: give posts of yours with --texts");
        }
        let Some(measured) = self.measure(&mut bed, &mut small, clock, stop)? else {
            return Ok(Exit::Done);
        };
        let rows = measured.rows(&self.certainties());
        let all = table(&rows);
        output::print_table(&all, self.format)?;
        if let Some(folder) = &self.out {
            let model = &small.folder;
            let task = small.model.task();
            let result = json!({
                "facts": bed.facts(), "repeats": self.repeats,
                "small_model": {
                    "model": model.name, "precision": model.precision, "manifest_hash": model.manifest_hash,
                    "temperature": task.keep.map(|keep| keep.temperature),
                },
                "seconds": {"model": measured.large, "small_model": measured.small},
                "cascades": rows,
            });
            let title = format!(
                "{} with {} before it",
                bed.labeler.folder().name,
                model.name
            );
            let files = [
                ("cascade.json", format!("{result:#}\n")),
                ("cascade.csv", csv(&all)?),
                ("cascade.svg", curve::draw(&title, &rows)),
            ];
            write(folder, &files)?;
        }
        Ok(Exit::Done)
    }

    /// Has both models score every text, in turns; `None` where a stop was heard.
    fn measure(
        &self,
        bed: &mut Bed,
        small: &mut Small,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Option<Measured>, CliError> {
        let stop = || stop.is_cancelled();
        let texts = std::mem::take(&mut bed.texts);
        let (mut large_secs, mut small_secs) = (Vec::new(), Vec::new());
        let (mut results, mut glances) = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=self.repeats {
            let texts = if round == 0 { &texts[..1] } else { &texts };
            let began = clock.elapsed();
            let by_large = bed.labeler.score_all(&bed.prepared, texts, &stop)?;
            let half = clock.elapsed();
            let by_small = small.model.glance(&small.prepared, texts, &[], &stop)?;
            let ended = clock.elapsed();
            let (Some(by_large), Some(by_small)) = (by_large, by_small) else {
                return Ok(None);
            };
            if round > 0 {
                let seconds = |from, to: Duration| to.saturating_sub(from).as_secs_f64();
                large_secs.push(seconds(began, half));
                small_secs.push(seconds(half, ended));
                (results, glances) = (all_of(by_large)?, all_of(by_small)?);
            }
        }
        bed.texts = texts;
        let labels = bed.set.labels.len();
        let mut by_size = Vec::new();
        for size in self.sizes(labels) {
            by_size.push(of_size(bed, &results, &glances, size)?);
        }
        let mode = bed.set.mode;
        Ok(Some(Measured {
            large: large_secs,
            small: small_secs,
            sure: glances
                .iter()
                .map(|glance| certainty_of(mode, &glance.scores))
                .collect(),
            by_small: glances.iter().map(|of| choice(&of.scores)).collect(),
            by_size,
        }))
    }
}

/// What every text has; a text that a model cannot score ends it.
fn all_of<T>(results: Vec<Result<T, TextError>>) -> Result<Vec<T>, CliError> {
    let all = results.into_iter().collect::<Result<Vec<T>, TextError>>();
    all.map_err(|error| CliError::Usage(format!("score a text: {error}; take it out of --texts")))
}

/// What becomes of a text: a label by its place, or none.
type Choice = (Outcome, Option<usize>);

fn choice(scores: &Scores) -> Choice {
    let outcome = scores.outcome();
    (outcome, (outcome == Outcome::Label).then_some(scores.best))
}

/// What the large model says and reads with a shortlist of one size, text by text.
struct OfSize {
    labels: usize,
    choices: Vec<Choice>,
    tokens: Vec<usize>,
}

/// What the large model would have said with a shortlist of this size: it follows from what it said of all labels.
fn of_size(
    bed: &mut Bed,
    results: &[TextResult],
    glances: &[Glance],
    size: usize,
) -> Result<OfSize, CliError> {
    let labels = bed.set.labels.len();
    let pairs: Vec<Pairs> = results
        .iter()
        .zip(glances)
        .map(|(result, glance)| {
            let known = |logits: &Option<PairLogits>| logits.map_or(Pair::LeftOut, Pair::Known);
            let mut pairs: Pairs = result.logits.iter().map(known).collect();
            if size < labels {
                leave_out(&mut pairs, &glance.order, labels, size);
            }
            pairs
        })
        .collect();
    let mut tokens = vec![0; results.len()];
    for row in bed.labeler.rows(&bed.prepared, &bed.encoded) {
        // The rows behind those of the labels are the background's topics.
        let pair = pairs[row.text].get(row.label.min(labels));
        if pair != Some(&Pair::LeftOut) {
            tokens[row.text] += row.len;
        }
    }
    let mut choices = vec![(Outcome::Unsure, None); results.len()];
    let never = || false;
    let scored = bed.labeler.score(
        &bed.prepared,
        &bed.encoded,
        &pairs,
        &never,
        &mut |text, result| {
            if let Ok(result) = result {
                choices[text] = choice(&result.scores);
            }
        },
    );
    scored.map_err(|error: LabelerError| CliError::from(error))?;
    Ok(OfSize {
        labels: size,
        choices,
        tokens,
    })
}

/// What was measured.
struct Measured {
    /// Seconds of the large model, each time.
    large: Vec<f64>,
    /// Seconds of the small model, each time.
    small: Vec<f64>,
    /// How sure the small model is of each text.
    sure: Vec<Option<f64>>,
    /// What the small model says of each text.
    by_small: Vec<Choice>,
    /// What the large one says, by the size of a shortlist; the last is without one.
    by_size: Vec<OfSize>,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
impl Measured {
    /// A row a shortlist and a certainty, and last the large model alone.
    fn rows(&self, certainties: &[f64]) -> Vec<Value> {
        let whole = self.by_size.last().expect("one is without a shortlist");
        let mut rows = Vec::new();
        for of_size in &self.by_size {
            if of_size.labels < whole.labels {
                rows.push(self.row(of_size, None));
            }
            let some = certainties.iter();
            rows.extend(some.map(|least| self.row(of_size, Some(*least))));
        }
        let mut alone = self.row(whole, None);
        let large = least_and_median(&self.large).0;
        alone["s/post"] = json!(rounded(large / self.by_small.len() as f64, 4));
        alone["times"] = json!(1.0);
        // Sure, and not by this sample.
        (alone["at least %"], alone["at most %"]) = (Value::Null, Value::Null);
        rows.push(alone);
        rows
    }

    fn row(&self, of_size: &OfSize, least: Option<f64>) -> Value {
        let whole = self.by_size.last().expect("one is without a shortlist");
        let posts = self.by_small.len();
        let (mut kept, mut same, mut tokens) = (0, 0, 0);
        for text in 0..posts {
            let sure = self.sure[text].zip(least);
            let is_kept = sure.is_some_and(|(sure, least)| sure >= least);
            let choice = if is_kept {
                self.by_small[text]
            } else {
                tokens += of_size.tokens[text];
                of_size.choices[text]
            };
            kept += usize::from(is_kept);
            same += usize::from(choice == whole.choices[text]);
        }
        let all: usize = whole.tokens.iter().sum();
        let (large, small) = (
            least_and_median(&self.large).0,
            least_and_median(&self.small).0,
        );
        let seconds = small + large * tokens as f64 / all.max(1) as f64;
        let same = Share::new(same, posts);
        let percent = |share: f64| rounded(100.0 * share, 1);
        json!({
            "sure": least, "labels": of_size.labels,
            "by small %": percent(kept as f64 / posts as f64),
            "same %": same.share.map(percent),
            "at least %": percent(same.low), "at most %": percent(same.high),
            "s/post": rounded(seconds / posts as f64, 4),
            "times": rounded(large / seconds, 2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(place: usize) -> Choice {
        (Outcome::Label, Some(place))
    }

    #[test]
    fn what_is_kept_or_left_out_is_not_read_and_both_models_take_their_time() {
        let of_size = |labels, choices: [Choice; 4], tokens: [usize; 4]| OfSize {
            labels,
            choices: choices.to_vec(),
            tokens: tokens.to_vec(),
        };
        let measured = Measured {
            large: vec![16.0, 12.0],
            small: vec![1.0, 2.0],
            sure: vec![Some(0.95), Some(0.7), Some(0.92), None],
            by_small: vec![label(0), label(1), label(2), (Outcome::Other, None)],
            by_size: vec![
                of_size(1, [label(0), label(1), label(2), label(0)], [10, 5, 5, 10]),
                of_size(
                    3,
                    [label(0), label(0), label(1), (Outcome::Other, None)],
                    [40, 20, 20, 40],
                ),
            ],
        };
        let rows = measured.rows(&[0.9, 0.5]);
        let column = |name: &str| -> Vec<f64> {
            let cells = rows.iter().map(|row| row[name].as_f64().unwrap_or(-1.0));
            cells.collect()
        };
        assert_eq!(column("sure"), [-1.0, 0.9, 0.5, 0.9, 0.5, -1.0]);
        assert_eq!(column("labels"), [1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);
        assert_eq!(column("by small %"), [0.0, 50.0, 75.0, 50.0, 75.0, 0.0]);
        // Of four texts; `other` is as good an answer as a label.
        assert_eq!(column("same %"), [25.0, 25.0, 25.0, 75.0, 50.0, 100.0]);
        // 30, 15 and 10 of 120 tokens; 60 and 40.
        assert_eq!(column("s/post"), [1.0, 0.625, 0.5, 1.75, 1.25, 3.0]);
        assert_eq!(column("times")[3..], [1.71, 2.4, 1.0]);
        assert!(rows[5]["at least %"].is_null() && rows[3]["at least %"].is_number());
    }
}
