//! `topicmill bench autotune`: searches for the token budget of a batch with the highest throughput, and stores it.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{BenchFlags, Workload};
use crate::cli::{CliError, Exit, OutputFormat, output};
use crate::engines::autotune::{SearchLimit, tune};
use crate::telemetry::tenths;
use topicmill_core::clock::SharedClock;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill bench autotune
  topicmill bench autotune --texts texts.ndjson --seconds 120")]
pub struct Autotune {
    #[command(flatten)]
    pub(super) flags: BenchFlags,
    /// Search for at most SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Autotune {
    pub(super) fn run(self, workload: Workload, clock: &SharedClock) -> Result<Exit, CliError> {
        let (mut labeler, budget) = (workload.model.labeler, workload.model.budget);
        if labeler.folder().depends_on_batch() {
            return Err(CliError::Usage(format!(
                "tune the batch size: with {}, scores depend on the batch, so the batch size is fixed at {} tokens; \
                 use `--precision fp32`",
                labeler.folder().precision,
                labeler.batch_tokens(),
            )));
        }
        let began = clock.elapsed();
        let allowance = SearchLimit::Time(Duration::from_secs(self.seconds));
        let found = tune(
            &mut labeler,
            &workload.prepared,
            &workload.encoded,
            clock,
            allowance,
        )?;
        let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
        let mut best: BTreeMap<usize, Option<f64>> = BTreeMap::new();
        for step in &found.steps {
            let of_budget = best.entry(step.batch_tokens).or_default();
            if let Some(speed) = step.tokens_per_sec {
                *of_budget = Some(of_budget.map_or(speed, |best| speed.max(best)));
            }
        }
        let rows = best.iter().map(|(batch_tokens, speed)| {
            let what = match speed {
                None => "out of memory",
                Some(_) if *batch_tokens == found.batch_tokens => "chosen",
                Some(_) => "",
            };
            json!([batch_tokens, speed.map(f64::round), what])
        });
        let table = output::table(["batch tokens", "tokens/s", ""], rows);
        output::print_table(&table, self.format)?;
        tracing::info!(
            batch_tokens = found.batch_tokens,
            seconds = tenths(seconds),
            measurements = found.steps.len(),
            "batch size search done"
        );
        if found.whole {
            if let Err(why) = budget.remember(found.batch_tokens) {
                tracing::warn!(
                    "could not store the result: {why}; set `classify.batch_tokens` to {}",
                    found.batch_tokens
                );
                return Ok(Exit::Partial);
            }
        } else {
            tracing::warn!(
                "too little time or too few texts for a result: keeping the default; raise --seconds or --posts"
            );
        }
        Ok(Exit::Done)
    }
}
