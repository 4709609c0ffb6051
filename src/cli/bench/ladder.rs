//! `topicmill bench ladder`: how long posts take from text to score, as `classify` scores them.
//!
//! It is the highest rung of a ladder. `benches/ladder/run.py` runs the rungs below, which are Python, in turns with
//! this one; `ladder.json` holds what it needs for that: the texts, the settings and the scores.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Bed, Subject, csv, least_and_median, rounded, table, write};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::Setup;
use crate::cli::{CliError, Exit};
use crate::clock::SharedClock;
use crate::telemetry::tenths;
use topicmill_score::Mode;
use topicmill_score::folder::ModelKind;

/// Flags of `bench ladder`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill bench ladder --posts 16\n\
\x20 topicmill bench ladder --model models/bart-large-mnli --repeats 5")]
pub struct Ladder {
    #[command(flatten)]
    subject: Subject,
    /// Score the posts this often, after one post that warms up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Write ladder.json and ladder.csv to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the table in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Rungs in Python, which this command ran once.
    #[arg(long = "hf", aliases = ["plain", "python", "rungs"], hide = true)]
    moved: Option<String>,
}

impl Ladder {
    pub(super) fn load(&self, setup: &Setup) -> Result<Bed, CliError> {
        if self.moved.is_some() {
            return Err(CliError::Usage(
                "run the rungs in Python: `benches/ladder/run.py` of the repository does that now; \
                 give it --hf, --plain and --rungs"
                    .to_owned(),
            ));
        }
        self.subject.load(setup, 16)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn run(
        self,
        mut bed: Bed,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Exit, CliError> {
        let posts = bed.texts.len();
        // For warmth: a session makes much of what it needs in its first batch.
        score(&mut bed, 1, clock)?;
        let (mut seconds, mut scores) = (Vec::new(), Vec::new());
        for round in 1..=self.repeats {
            if stop.is_cancelled() {
                return Ok(Exit::Done);
            }
            let took;
            (took, scores) = score(&mut bed, posts, clock)?;
            tracing::info!(round, seconds = tenths(took), "posts scored");
            seconds.push(took);
        }
        let (least, median) = least_and_median(&seconds);
        let rows = [json!({
            "rung": "topicmill",
            "s/post": rounded(least / posts as f64, 3), "median": rounded(median / posts as f64, 3),
        })];
        let all = table(&rows);
        output::print_table(&all, self.format)?;
        if let Some(folder) = &self.out {
            let labels: Vec<&str> = bed.set.labels.iter().map(|of| of.label.as_str()).collect();
            let result = json!({
                "facts": bed.facts(), "repeats": self.repeats, "rungs": rows, "seconds": seconds,
                "job": {
                    "nli": matches!(bed.labeler.folder().kind, ModelKind::Nli(_)),
                    "labels": labels, "template": bed.set.template,
                    "multi": bed.set.mode == Mode::Multi,
                    "max_tokens": bed.labeler.encoder().max_tokens(),
                    "threads": bed.threads, "device": bed.device.to_string(),
                    "texts": bed.texts,
                },
                "scores": scores,
            });
            let files = [
                ("ladder.json", format!("{result:#}\n")),
                ("ladder.csv", csv(&all)?),
            ];
            write(folder, &files)?;
        }
        Ok(Exit::Done)
    }
}

/// Tokenises, computes and scores, as `classify` does.
fn score(
    bed: &mut Bed,
    texts: usize,
    clock: &SharedClock,
) -> Result<(f64, Vec<Vec<f64>>), CliError> {
    let texts = &bed.texts[..texts];
    let began = clock.elapsed();
    let results = bed.labeler.score_all(&bed.prepared, texts, &|| false)?;
    let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
    let results = results.expect("nobody asked it to stop").into_iter();
    let scores: Result<_, _> = results
        .map(|result| result.map(|result| result.scores.scores))
        .collect();
    let failed = |error| CliError::Usage(format!("score a text: {error}"));
    Ok((seconds, scores.map_err(failed)?))
}
