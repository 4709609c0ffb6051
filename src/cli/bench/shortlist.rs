//! `topicmill bench shortlist`: what a shortlist of each size keeps of the model's labels, and what it saves.
//!
//! Both models score every text against every label, in turns. What a shortlist takes is told from these times:
//! the small model's, and of the large one's the part that its tokens have in all.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::sweep::Span;
use super::{Bed, Subject, csv, least_and_median, rounded, table, write};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::{SMALL_MODEL, Setup};
use crate::cli::{CliError, Exit};
use crate::clock::SharedClock;
use crate::engines::fit_together;
use crate::review::calibrate::Share;
use topicmill_score::cascade::Order;
use topicmill_score::labeler::Prepared;
use topicmill_score::{Labeler, ModelFolder, Shortlist, TextError, TextResult};

/// Flags of `bench shortlist`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill bench shortlist --model models/bart-large-mnli\n\
\x20 topicmill bench shortlist --model models/made --shortlist 2:6:2")]
pub struct Shortlisting {
    #[command(flatten)]
    pub(super) subject: Subject,
    /// Use the small model in this folder
    #[arg(long, value_name = "DIR", default_value = SMALL_MODEL)]
    shortlist_model: PathBuf,
    /// Measure shortlists of these sizes: first, last and step
    #[arg(long, value_name = "A:B:STEP", default_value = "1:8")]
    shortlist: Span,
    /// Measure each model this often, in turns with the other, after one text that warms up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Write to this folder: shortlist.json and shortlist.csv
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the table in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The small model, loaded.
pub struct Small {
    shortlist: Shortlist,
    prepared: Prepared,
    folder: ModelFolder,
    /// Labels of the set.
    labels: usize,
}

impl Shortlisting {
    pub(super) fn small(&self, setup: &Setup, bed: &Bed) -> Result<Small, CliError> {
        let choice = setup.model_choice(&self.subject.model)?;
        let choice = choice.beside(&self.shortlist_model);
        let labeler = choice.open_one(bed.device)?.labeler;
        let folder = labeler.folder().clone();
        fit_together(bed.labeler.folder(), &folder)?;
        let mut shortlist = Shortlist::new(labeler, bed.set.labels.len());
        Ok(Small {
            prepared: shortlist.prepare(&bed.set)?,
            shortlist,
            folder,
            labels: bed.set.labels.len(),
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
        let texts = std::mem::take(&mut bed.texts);
        let mut measured = Measured::default();
        // The first round warms up.
        for round in 0..=self.repeats {
            let texts = if round == 0 { &texts[..1] } else { &texts };
            let began = clock.elapsed();
            let best = best(&mut bed.labeler, &bed.prepared, texts, stop)?;
            let half = clock.elapsed();
            let orders = small.order(texts, stop)?;
            let ended = clock.elapsed();
            let (Some(best), Some(orders)) = (best, orders) else {
                return Ok(Exit::Done);
            };
            if round > 0 {
                let seconds = |from, to: Duration| to.saturating_sub(from).as_secs_f64();
                measured.large.push(seconds(began, half));
                measured.small.push(seconds(half, ended));
                (measured.best, measured.orders) = (best, orders);
            }
        }
        bed.texts = texts;
        measured.tokens = vec![vec![0; bed.set.labels.len()]; bed.texts.len()];
        for row in bed.labeler.rows(&bed.prepared, &bed.encoded) {
            // The background is scored beside any shortlist.
            if let Some(tokens) = measured.tokens[row.text].get_mut(row.label) {
                *tokens = row.len;
            }
        }
        let rows = measured.rows(self.shortlist);
        let all = table(&rows);
        output::print_table(&all, self.format)?;
        if let Some(folder) = &self.out {
            let small = &small.folder;
            let result = json!({
                "facts": bed.facts(), "repeats": self.repeats,
                "shortlist_model": {
                    "model": small.name, "precision": small.precision, "manifest_hash": small.manifest_hash,
                },
                "seconds": {"model": measured.large, "shortlist_model": measured.small},
                "shortlists": rows,
            });
            let files = [
                ("shortlist.json", format!("{result:#}\n")),
                ("shortlist.csv", csv(&all)?),
            ];
            write(folder, &files)?;
        }
        Ok(Exit::Done)
    }
}

fn failed(error: &TextError) -> CliError {
    CliError::Usage(format!("score a text: {error}"))
}

/// The best label of each text; `None` where a stop was heard.
fn best(
    labeler: &mut Labeler,
    prepared: &Prepared,
    texts: &[String],
    stop: &CancellationToken,
) -> Result<Option<Vec<usize>>, CliError> {
    let results = labeler.score_all(prepared, texts, &|| stop.is_cancelled())?;
    let best = |results: Vec<Result<TextResult, TextError>>| {
        let best = results
            .into_iter()
            .map(|result| result.map(|result| result.scores.best));
        best.collect::<Result<Vec<usize>, TextError>>()
    };
    results
        .map(best)
        .transpose()
        .map_err(|error| failed(&error))
}

impl Small {
    /// The order of the labels of each text; `None` where a stop was heard.
    fn order(
        &mut self,
        texts: &[String],
        stop: &CancellationToken,
    ) -> Result<Option<Vec<Order>>, CliError> {
        let stop = || stop.is_cancelled();
        let orders = self.shortlist.order(&self.prepared, texts, &stop)?;
        let labels = self.labels;
        let only_labels =
            |order: Order| order.into_iter().filter(|place| *place < labels).collect();
        let orders = orders.map(|orders| {
            let orders = orders.into_iter().map(|order| order.map(only_labels));
            orders.collect::<Result<Vec<Order>, _>>()
        });
        orders.transpose().map_err(|error| failed(&error))
    }
}

/// What was measured, text by text.
#[derive(Default)]
struct Measured {
    /// Seconds of the large model, each time.
    large: Vec<f64>,
    /// Seconds of the small model, each time.
    small: Vec<f64>,
    /// The best label by the large model.
    best: Vec<usize>,
    /// The order of the labels by the small model.
    orders: Vec<Order>,
    /// Tokens that the large model reads for each label.
    tokens: Vec<Vec<usize>>,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
impl Measured {
    /// A row a size of shortlist that leaves labels out, and one of scoring all of them.
    fn rows(&self, sizes: Span) -> Vec<Value> {
        let labels = self.tokens.first().map_or(0, Vec::len);
        let (large, small) = (
            least_and_median(&self.large).0,
            least_and_median(&self.small).0,
        );
        let all: usize = self.tokens.iter().flatten().sum();
        let sizes = (sizes.first..=sizes.last).step_by(sizes.step);
        let mut rows: Vec<Value> = sizes
            .take_while(|size| *size < labels)
            .map(|size| {
                let picks = || self.orders.iter().map(|order| &order[..size]);
                let kept = picks()
                    .zip(&self.best)
                    .filter(|(of, best)| of.contains(best));
                let tokens = picks().zip(&self.tokens);
                let tokens = tokens.flat_map(|(of, tokens)| of.iter().map(|label| tokens[*label]));
                let part = tokens.sum::<usize>() as f64 / all as f64;
                self.row(size, kept.count(), small + large * part)
            })
            .collect();
        let mut whole = self.row(labels, self.best.len(), large);
        // Sure, and not by this sample.
        (whole["at least %"], whole["at most %"]) = (Value::Null, Value::Null);
        rows.push(whole);
        rows
    }

    fn row(&self, size: usize, kept: usize, seconds: f64) -> Value {
        let posts = self.best.len();
        let kept = Share::new(kept, posts);
        let percent = |share: f64| rounded(100.0 * share, 1);
        let large = least_and_median(&self.large).0;
        json!({
            "labels": size, "kept %": kept.share.map(percent),
            "at least %": percent(kept.low), "at most %": percent(kept.high),
            "pairs/post": size,
            "s/post": rounded(seconds / posts as f64, 4),
            "times": rounded(large / seconds, 2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortlist_keeps_a_label_that_is_among_its_first_and_takes_both_models_time() {
        let measured = Measured {
            large: vec![16.0, 12.0],
            small: vec![1.0, 2.0],
            best: vec![2, 0],
            orders: vec![vec![2, 1, 0], vec![1, 0, 2]],
            tokens: vec![vec![10, 10, 20], vec![10, 20, 10]],
        };
        let sizes: Span = "1:9".parse().unwrap();
        let rows = measured.rows(sizes);
        let kept: Vec<_> = rows
            .iter()
            .map(|row| row["kept %"].as_f64().unwrap())
            .collect();
        assert_eq!(
            kept,
            [50.0, 100.0, 100.0],
            "sizes that leave nothing out are one row"
        );
        // 40 and 60 of 80 tokens.
        let seconds: Vec<_> = rows
            .iter()
            .map(|row| row["s/post"].as_f64().unwrap())
            .collect();
        assert_eq!(seconds, [3.5, 5.0, 6.0]);
        assert_eq!(rows[0]["times"], 1.71);
        assert_eq!(
            (&rows[2]["labels"], &rows[2]["times"]),
            (&json!(3), &json!(1.0))
        );
    }
}
