//! `topicmill bench`: measures the speed, memory and labels of each precision and batch size on the user's own texts.
//! Suggests the settings to write.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::app::{App, ModelFlags, PipelineFlags, run_blocking};
use super::output::Printout;
use super::{CliError, Exit, OutputFormat, output};
use crate::engines::{ModelChoice, OpenedModel};
use crate::gpu::memory_used_mib;
use crate::telemetry::Progress;
use topicmill_core::LabelSet;
use topicmill_core::clock::SharedClock;
use topicmill_core::reddit::post_text;
use topicmill_score::batch::{self, BatchRow};
use topicmill_score::engine::EngineError;
use topicmill_score::openvino::load_openvino;
use topicmill_score::{Device, EngineName, Labeler, LabelerError, ModelFolder};
use topicmill_store::{Access, ExistingTarget};

/// Precisions that a graph, or OpenVINO with a float32 graph, may have.
const PRECISIONS: [&str; 6] = [FP32, "fp16", "bf16", "int8", "int8-g32", "int8-g128"];
/// The precision that the others are compared with.
const FP32: &str = "fp32";
/// Batch sizes in tokens, padding included.
const BATCH_TOKENS: [usize; 7] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// Texts whose labels are compared.
const COMPARED_TEXTS: u32 = 400;
/// Texts that are scored with each batch size.
const TIMED_TEXTS: usize = 100;
/// Passes over the texts with each batch size; the fastest one counts.
const PASSES: usize = 2;
/// Share of labels equal to float32 that a suggested precision needs.
const MIN_SAME_LABELS: f64 = 0.99;
/// The number of texts that show this share: with 200, a true share of 0.95 is measured as 0.99 or more in fewer than one
/// in a hundred measurements.
const MIN_TEXTS: usize = 200;
/// A smaller batch is suggested if it is at most this much slower, because it needs less memory.
const AS_FAST: f64 = 0.98;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill bench
  topicmill bench --texts texts.ndjson --posts 200 --model models/bart-large-mnli

The last lines are the settings to write: the fastest precision that gives at least 99 % of the texts the same label as \
float32, and its fastest batch size.")]
pub struct Bench {
    /// Measure the texts in FILE [default: a sample of the database's posts]
    ///
    /// FILE contains one JSON object per line, with text, or title and selftext.
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    /// Measure N texts
    #[arg(long, value_name = "N", default_value_t = COMPARED_TEXTS, value_parser = clap::value_parser!(u32).range(1..))]
    posts: u32,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    model: ModelFlags,
}

/// Texts and settings to measure.
struct Workload {
    choice: ModelChoice,
    set: LabelSet,
    texts: Vec<String>,
    clock: SharedClock,
    stop: CancellationToken,
}

/// A precision to measure.
struct Candidate {
    name: String,
    /// The value of the setting `precision` that selects it; `None` if it is the default.
    setting: Option<String>,
}

/// A precision's labels, and the measurements of its batch sizes.
struct Precision {
    name: String,
    /// The value of the setting.
    setting: String,
    /// The label of each text; `None` if the model abstains or the text cannot be scored.
    labels: Vec<Option<usize>>,
    sizes: Vec<BatchSize>,
}

/// A batch size and its measurements.
struct BatchSize {
    tokens: usize,
    /// The fastest pass; `None` if memory runs out.
    seconds: Option<f64>,
    peak_mib: Option<u64>,
}

impl Bench {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let texts = match &self.texts {
            Some(path) => read_texts(path, self.posts as usize)?,
            None => stored_texts(app, self.posts).await?,
        };
        let workload = Workload {
            choice: app.model_choice(&self.model)?,
            set: app.label_set(&self.model, app.pipeline(&self.pipeline)?.label_set)?,
            texts,
            clock: app.clock.clone(),
            stop: app.stop.clone(),
        };
        run_blocking(move || workload.run(self.format)).await
    }
}

impl Workload {
    fn run(mut self, format: OutputFormat) -> Result<Exit, CliError> {
        let mut measured: Vec<Precision> = Vec::new();
        for candidate in self.candidates()? {
            self.choice.precision.clone_from(&candidate.setting);
            match self.measure(candidate) {
                Ok(Some(precision)) => measured.push(precision),
                Ok(None) => {
                    tracing::warn!("stopped before the measurement was complete");
                    return Ok(Exit::Done);
                }
                // Without float32 there is nothing to compare with.
                Err(error) if measured.is_empty() => return Err(error),
                Err(error) => tracing::warn!("left out a precision: {error}"),
            }
        }
        let fp32 = measured.iter().find(|precision| precision.name == FP32);
        let fp32 = fp32.map(|precision| &precision.labels[..]);
        let rows = self.rows(&measured, fp32);
        let columns = "precision, batch tokens, texts/s, peak MiB, labels as in fp32";
        let table = output::table_from_objects(columns, &rows);
        let Some((precision, batch_tokens)) = suggested(&measured, fp32) else {
            output::print_table(&table, format)?;
            tracing::warn!(
                "no settings are suggested: a precision needs {} texts that show labels like those of float32, and \
                 memory for a batch",
                MIN_TEXTS
            );
            return Ok(Exit::Partial);
        };
        let settings = json!({"precision": precision, "batch_tokens": batch_tokens});
        let json = json!({"texts": self.texts.len(), "measured": rows, "settings": settings});
        Printout::new(json).with("", table).print(format)?;
        if format == OutputFormat::Table {
            output::print(&format!(
                "[classify]\nprecision = \"{precision}\"\nbatch_tokens = {batch_tokens}\n"
            ))?;
        }
        Ok(Exit::Done)
    }

    /// Returns the texts that are scored with each batch size.
    fn timed_texts(&self) -> &[String] {
        &self.texts[..self.texts.len().min(TIMED_TEXTS)]
    }

    /// Formats the measurements, one row per batch size.
    fn rows(&self, measured: &[Precision], fp32: Option<&[Option<usize>]>) -> Vec<Value> {
        let texts = self.timed_texts().len() as f64;
        let mut rows = Vec::new();
        for precision in measured {
            let same_labels = precision.same_labels(fp32).map(|share| round_to(share, 4));
            for size in &precision.sizes {
                let per_second = |seconds: f64| round_to(texts / seconds.max(1e-9), 1);
                let speed = size.seconds.map(per_second);
                rows.push(json!({
                    "precision": precision.name, "batch tokens": size.tokens, "texts/s": speed,
                    "peak MiB": size.peak_mib, "labels as in fp32": same_labels,
                }));
            }
        }
        rows
    }

    /// Lists the precisions of the folder on this machine, float32 first. If one was chosen, lists only this one and
    /// float32.
    fn candidates(&mut self) -> Result<Vec<Candidate>, CliError> {
        // A precision that the model lacks is an error, not an empty table.
        self.choice.folder()?;
        let chosen = self.choice.precision.take();
        let opened = self.choice.open_one(self.choice.devices[0])?;
        self.choice.devices = vec![opened.chosen.device];
        drop(opened);
        let mut candidates = vec![Candidate {
            name: self.choice.folder()?.precision,
            setting: None,
        }];
        for name in PRECISIONS {
            let mut choice = self.choice.clone();
            choice.precision = Some(name.to_owned());
            if let Ok(folder) = choice.folder()
                && self.is_supported(&folder)
                && candidates
                    .iter()
                    .all(|known| known.name != folder.precision)
            {
                candidates.push(Candidate {
                    name: folder.precision,
                    setting: choice.precision,
                });
            }
        }
        if let Some(chosen) = chosen {
            candidates.retain(|Candidate { name, setting }| {
                name == FP32 || *name == chosen || setting.as_ref() == Some(&chosen)
            });
        }
        candidates.sort_by_key(|candidate| candidate.name != FP32);
        Ok(candidates)
    }

    fn is_supported(&self, folder: &ModelFolder) -> bool {
        let (rounding, options) = (folder.rounding, &self.choice.options);
        let openvino = || load_openvino(options.openvino.as_deref());
        rounding.is_exact()
            || options.engine != EngineName::OnnxRuntime
                && openvino().is_ok_and(|openvino| !rounding.is_bf16() || openvino.has_bf16())
    }

    /// Measures the precision that `choice` selects; `None` after a signal.
    fn measure(&self, candidate: Candidate) -> Result<Option<Precision>, CliError> {
        let device = self.choice.devices[0];
        let OpenedModel { mut labeler, .. } = self.choice.open_one(device)?;
        let prepared = labeler.prepare(&self.set)?;
        let stopped = || self.stop.is_cancelled();
        let Some(results) = labeler.score_all(&prepared, &self.texts, &[], &stopped)? else {
            return Ok(None);
        };
        let labels = results.into_iter().map(|result| {
            let scores = result.ok()?.scores;
            (!scores.is_abstention()).then_some(scores.best)
        });
        let encoder = labeler.encoder();
        let texts = encoder
            .encode(self.timed_texts())
            .map_err(LabelerError::Tokenize)?;
        let rows = prepared.rows(&encoder, &texts, |_, _| true);
        let (mut sizes, batches): (Vec<BatchSize>, Vec<_>) =
            planned_sizes(&labeler, &rows).into_iter().unzip();
        let bar = Progress::start("bench", "passes", (sizes.len() * PASSES) as u64);
        for pass in 0..PASSES {
            for (size, batches) in sizes.iter_mut().zip(&batches) {
                if pass == 0 {
                    // A new session, so that memory of the previous size is not counted.
                    labeler.restart().map_err(LabelerError::Engine)?;
                    memory::reset_peak();
                } else if size.seconds.is_none() {
                    continue;
                }
                let began = self.clock.elapsed();
                let fits = compute(&mut labeler, batches, &self.stop)?;
                let seconds = self.clock.elapsed().saturating_sub(began).as_secs_f64();
                if self.stop.is_cancelled() {
                    return Ok(None);
                }
                size.seconds = fits.then(|| size.seconds.unwrap_or(f64::INFINITY).min(seconds));
                if pass == 0 {
                    size.peak_mib = match device {
                        Device::Cuda(_) => memory_used_mib(),
                        Device::Cpu | Device::Auto => memory::peak_mib(),
                    };
                }
                bar.add(1);
            }
        }
        Ok(Some(Precision {
            name: candidate.name,
            setting: candidate.setting.unwrap_or_else(|| "auto".to_owned()),
            labels: labels.collect(),
            sizes,
        }))
    }
}

/// Plans the batches of each size; a model whose scores depend on the batch has only one.
fn planned_sizes<'a>(
    labeler: &Labeler,
    rows: &[BatchRow<'a>],
) -> Vec<(BatchSize, Vec<Vec<BatchRow<'a>>>)> {
    let sizes = if labeler.folder().depends_on_batch() {
        vec![labeler.batch_tokens()]
    } else {
        BATCH_TOKENS.to_vec()
    };
    let planned = sizes.into_iter().map(|tokens| {
        let (grouping, shapes) = (labeler.grouping(), labeler.shapes());
        let batches = batch::plan(rows.to_vec(), tokens, grouping, shapes);
        let unmeasured = BatchSize {
            tokens,
            seconds: None,
            peak_mib: None,
        };
        (unmeasured, batches)
    });
    planned.collect()
}

/// Computes batches until a signal. Returns false if memory runs out.
fn compute(
    labeler: &mut Labeler,
    batches: &[Vec<BatchRow<'_>>],
    stop: &CancellationToken,
) -> Result<bool, CliError> {
    for batch in batches {
        match labeler.compute_batch(batch) {
            Ok(()) if stop.is_cancelled() => break,
            Ok(()) => {}
            Err(EngineError::OutOfMemory { .. }) => {
                // A session keeps its memory after running out, so the next size would fail too.
                labeler.restart().map_err(LabelerError::Engine)?;
                return Ok(false);
            }
            Err(error) => return Err(LabelerError::Engine(error).into()),
        }
    }
    Ok(true)
}

impl Precision {
    /// Returns the batch sizes that fit into memory, smallest first, with the seconds of the fastest pass.
    fn timed(&self) -> impl Iterator<Item = (usize, f64)> {
        let sizes = self.sizes.iter();
        sizes.filter_map(|size| Some((size.tokens, size.seconds?)))
    }

    /// Returns the share of texts with the same label as in float32.
    fn same_labels(&self, fp32: Option<&[Option<usize>]>) -> Option<f64> {
        let same = self.labels.iter().zip(fp32?).filter(|(a, b)| a == b);
        Some(same.count() as f64 / self.labels.len() as f64)
    }

    /// Returns true if its labels are close enough to float32 to suggest it.
    fn is_close(&self, fp32: Option<&[Option<usize>]>) -> bool {
        let same = self.same_labels(fp32);
        self.name == FP32
            || self.labels.len() >= MIN_TEXTS && same.is_none_or(|share| share >= MIN_SAME_LABELS)
    }
}

/// Returns the values of the settings `precision` and `batch_tokens` that are fastest, with the labels of float32.
fn suggested<'m>(
    measured: &'m [Precision],
    fp32: Option<&[Option<usize>]>,
) -> Option<(&'m str, usize)> {
    let close = measured.iter().filter(|precision| precision.is_close(fp32));
    let timed = close.flat_map(|precision| {
        let sizes = precision.timed();
        sizes.map(move |(_, seconds)| (precision, seconds))
    });
    let (precision, least) = timed.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let mut sizes = precision.timed();
    let (size, _) = sizes.find(|(_, seconds)| seconds * AS_FAST <= least)?;
    Some((&precision.setting, size))
}

/// Reads up to `most` texts from a file with one JSON object per line.
fn read_texts(path: &Path, most: usize) -> Result<Vec<String>, CliError> {
    let usage = |why: String| CliError::Usage(format!("cannot read `{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    let mut texts = Vec::new();
    for (number, line) in (1..).zip(text.lines()).take(most) {
        let value: Value =
            serde_json::from_str(line).map_err(|error| usage(format!("line {number}: {error}")))?;
        let field = |name: &str| value[name].as_str().unwrap_or_default();
        texts.push(match value["text"].as_str() {
            Some(text) => text.to_owned(),
            None => post_text(field("title"), field("selftext")),
        });
    }
    if texts.is_empty() {
        return Err(usage("the file contains no text".to_owned()));
    }
    Ok(texts)
}

/// Reads up to `most` distinct texts of stored posts, at random.
async fn stored_texts(app: &App, most: u32) -> Result<Vec<String>, CliError> {
    // Without a label set, no text counts as labelled.
    let no_target = ExistingTarget {
        model: None,
        label_set: None,
        hypotheses: Vec::new(),
    };
    let store = app.store(Access::ReadOnly).await?;
    let work = store.labels().estimate_work(&no_target, most).await?;
    let sample = work.sample;
    store.close().await?;
    if sample.is_empty() {
        return Err(CliError::Usage(
            "the database has no posts to measure: collect some, or name a file with --texts"
                .into(),
        ));
    }
    Ok(sample.into_iter().map(|(_, text)| text).collect())
}

fn round_to(number: f64, decimals: i32) -> f64 {
    let power = 10_f64.powi(decimals);
    (number * power).round() / power
}

/// Peak memory of this process, from `/proc` (Linux only).
mod memory {
    /// Resets the peak to the current usage.
    pub fn reset_peak() {
        // If the reset fails, the peak covers the whole run: too high, but never too low.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    pub fn peak_mib() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_precision_with_enough_equal_labels_is_suggested() {
        let precision = |name: &str, changed: usize, seconds: [f64; 2]| Precision {
            name: name.to_owned(),
            setting: name.to_owned(),
            labels: (0..400)
                .map(|text| (text >= changed).then_some(1))
                .collect(),
            sizes: [256, 512]
                .into_iter()
                .zip(seconds)
                .map(|(tokens, seconds)| BatchSize {
                    tokens,
                    seconds: (seconds > 0.0).then_some(seconds),
                    peak_mib: None,
                })
                .collect(),
        };
        let fp32 = vec![Some(1); 400];
        let all = [
            precision(FP32, 0, [9.0, 8.0]),
            precision("bf16", 4, [5.05, 5.0]),
            precision("int8", 5, [1.0, 0.0]),
        ];
        let suggested = |measured| suggested(measured, Some(&fp32));
        // Almost as fast, with half the memory.
        assert_eq!(suggested(&all), Some(("bf16", 256)));
        assert_eq!(suggested(&all[..1]), Some((FP32, 512)));
        assert_eq!(suggested(&all[2..]), None);
        // Too few texts show nothing.
        let mut few = precision("bf16", 0, [5.0, 5.0]);
        few.labels.truncate(199);
        assert_eq!(suggested(&[few]), None);
    }
}
