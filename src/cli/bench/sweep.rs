//! `topicmill bench sweep`: measures posts per second for each batch size.
//!
//! Batches sized in posts are built the usual way: one label at a time, posts in input order, rows padded to the
//! longest. Batches sized in tokens are built topicmill's way: rows of all labels, sorted by length.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{BenchFlags, Workload, min_and_median, round_to};
use crate::cli::{CliError, Exit, OutputFormat, output};
use crate::telemetry::Progress;
use topicmill_core::clock::SharedClock;
use topicmill_score::LabelerError;
use topicmill_score::batch::{BatchRow, Shapes};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill bench sweep --posts 100
  topicmill bench sweep --batch 5:20:5 --tokens 256:4096")]
pub struct Sweep {
    #[command(flatten)]
    pub(super) flags: BenchFlags,
    /// Measure batch sizes in posts: first, last and step
    #[arg(long, value_name = "A:B:STEP", default_value = "5:40:5")]
    batch: SweepRange,
    /// Measure batch sizes in tokens: first and last, doubling each time
    #[arg(long, value_name = "A:B", default_value = "256:16384")]
    tokens: SweepRange,
    /// Measure each size N times, interleaved with the others
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Write sweep.json and sweep.csv to DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// A range given as `FIRST:LAST` or `FIRST:LAST:STEP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepRange {
    pub first: usize,
    pub last: usize,
    pub step: usize,
}

impl FromStr for SweepRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = text.split(':').map(str::parse).collect();
        let (first, last, step) = match numbers.as_deref() {
            Ok([first, last, step]) => (*first, *last, *step),
            Ok([first, last]) => (*first, *last, 1),
            _ => return Err("not numbers with colons between them, such as 5:40:5".to_owned()),
        };
        if first == 0 || step == 0 || last < first || last > 1 << 20 {
            return Err(
                "the numbers must be above 0, the first must not exceed the last, and the last must be at most 1048576"
                    .to_owned(),
            );
        }
        Ok(Self { first, last, step })
    }
}

struct BatchConfig {
    by: &'static str,
    size: usize,
    shapes: Shapes,
    batches: Vec<Vec<BatchRow>>,
    peak_mib: Option<f64>,
    seconds: Vec<f64>,
}

impl Sweep {
    pub(super) fn run(
        self,
        mut workload: Workload,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Exit, CliError> {
        if workload.model.labeler.folder().depends_on_batch() {
            tracing::warn!(
                "with {}, scores depend on the batch, so other commands always use batches of {} tokens, whatever is \
                 fastest here",
                workload.model.labeler.folder().precision,
                workload.model.labeler.batch_tokens(),
            );
        }
        let mut configs = self.configs(&workload);
        let tokens: usize = configs.iter().map(BatchConfig::padded_tokens).sum();
        let bar = Progress::start(
            "sweep",
            "tokens",
            tokens as u64 * u64::from(self.repeats + 1),
        );
        for config in &mut configs {
            if stop.is_cancelled() {
                break;
            }
            // A new engine, so that memory from the previous size is not counted.
            workload
                .model
                .labeler
                .restart()
                .map_err(LabelerError::Engine)?;
            memory::reset_peak();
            config.compute(&mut workload, &bar, stop)?;
            config.peak_mib = memory::peak_mib();
        }
        // Interleaved, so that a temporary slowdown affects all sizes alike.
        for round in 0..self.repeats {
            let mut seconds = Vec::new();
            for config in &configs {
                let began = clock.elapsed();
                config.compute(&mut workload, &bar, stop)?;
                seconds.push(clock.elapsed().saturating_sub(began).as_secs_f64());
            }
            if stop.is_cancelled() {
                if round == 0 {
                    tracing::warn!(
                        "stopped before the first round was complete: there are no figures"
                    );
                } else {
                    tracing::warn!(
                        rounds = round,
                        "stopped: the figures are from complete rounds"
                    );
                }
                break;
            }
            for (config, seconds) in configs.iter_mut().zip(seconds) {
                config.seconds.push(seconds);
            }
        }
        drop(bar);
        if configs.iter().any(|config| config.seconds.is_empty()) {
            return Ok(Exit::Done);
        }
        let rows: Vec<Value> = configs
            .iter()
            .map(|config| config.row(workload.texts.len()))
            .collect();
        let all = output::table_from_objects(&rows);
        output::print_table(&all, self.format)?;
        if let Some(folder) = &self.out {
            let result = json!({
                "facts": workload.facts(), "repeats": self.repeats, "settings": rows,
            });
            std::fs::create_dir_all(folder).map_err(CliError::writing(folder))?;
            let csv = output::render(&all, OutputFormat::Csv)?;
            for (name, text) in [("sweep.json", format!("{result:#}\n")), ("sweep.csv", csv)] {
                let path = folder.join(name);
                std::fs::write(&path, text).map_err(CliError::writing(&path))?;
            }
            tracing::info!("wrote sweep.json and sweep.csv to {}", folder.display());
        }
        Ok(Exit::Done)
    }

    fn configs(&self, workload: &Workload) -> Vec<BatchConfig> {
        let rows = workload
            .model
            .labeler
            .rows(&workload.prepared, &workload.encoded);
        let config = |by, size, batches| BatchConfig {
            by,
            size,
            shapes: workload.model.labeler.shapes(),
            batches,
            peak_mib: None,
            seconds: Vec::new(),
        };
        let mut by_label = rows.clone();
        by_label.sort_by_key(|row| (row.label, row.text));
        let posts = (self.batch.first..=self.batch.last).step_by(self.batch.step);
        let posts = posts.map(|size| {
            let of_label = by_label.chunk_by(|a, b| a.label == b.label);
            let batches = of_label.flat_map(|rows| rows.chunks(size));
            config("posts", size, batches.map(<[BatchRow]>::to_vec).collect())
        });
        let tokens = std::iter::successors(Some(self.tokens.first), |size| Some(size * 2));
        let tokens = tokens
            .take_while(|size| *size <= self.tokens.last)
            .map(|size| {
                config(
                    "tokens",
                    size,
                    workload.model.labeler.plan(rows.clone(), size),
                )
            });
        posts.chain(tokens).collect()
    }
}

/// Returns the number of tokens in a batch, padding included.
fn padded_tokens(batch: &[BatchRow], shapes: Shapes) -> usize {
    let longest = batch.iter().map(|row| row.len).max().unwrap_or(0);
    shapes.tokens(longest, batch.len())
}

#[expect(clippy::cast_precision_loss, reason = "displayed figures")]
impl BatchConfig {
    fn padded_tokens(&self) -> usize {
        let batches = self.batches.iter();
        batches.map(|batch| padded_tokens(batch, self.shapes)).sum()
    }

    /// Computes the batches; a signal stops after the batch in progress.
    fn compute(
        &self,
        workload: &mut Workload,
        bar: &Progress,
        stop: &CancellationToken,
    ) -> Result<(), CliError> {
        for batch in &self.batches {
            if stop.is_cancelled() {
                break;
            }
            workload
                .model
                .labeler
                .compute_batch(&workload.prepared, &workload.encoded, batch)
                .map_err(LabelerError::Engine)?;
            bar.add(padded_tokens(batch, self.shapes) as u64);
        }
        Ok(())
    }

    fn row(&self, posts: usize) -> Value {
        let rows: usize = self.batches.iter().map(Vec::len).sum();
        let real: usize = self.batches.iter().flatten().map(|row| row.len).sum();
        let padded = self.padded_tokens();
        let (fastest, median) = min_and_median(&self.seconds);
        json!({
            "by": self.by, "size": self.size,
            "posts/s": round_to(posts as f64 / fastest, 2), "rows/s": round_to(rows as f64 / fastest, 1),
            "median s": round_to(median, 3),
            "padding %": round_to(100.0 * (1.0 - real as f64 / padded as f64), 1),
            "peak MiB": self.peak_mib.map(f64::round),
        })
    }
}

/// Peak memory of this process, from `/proc` (Linux only).
mod memory {
    /// Resets the peak to the current usage.
    pub fn reset_peak() {
        // If the reset fails, the peak covers the whole run: too high, but never too low.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    pub fn peak_mib() -> Option<f64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_and_invalid_ranges_are_rejected() {
        let span = |text: &str| {
            text.parse()
                .map(|SweepRange { first, last, step }| (first, last, step))
        };
        assert_eq!(span("5:40:5"), Ok((5, 40, 5)));
        assert_eq!(span("256:512"), Ok((256, 512, 1)));
        for text in ["", "5", "0:4:1", "5:4:1", "1:2:0", "a:b:c", "1:2:3:4"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
