//! Measures the precisions of a model on texts: the label of each text, and the speed and memory of each batch size.

use tokio_util::sync::CancellationToken;

use super::measured::{BatchSize, FP32, Precision};
use super::memory;
use crate::cli::CliError;
use crate::engines::{ModelChoice, OpenedModel};
use crate::gpu::memory_used_mib;
use crate::telemetry::Progress;
use topicmill_core::LabelSet;
use topicmill_core::clock::SharedClock;
use topicmill_score::batch::{self, BatchRow};
use topicmill_score::engine::EngineError;
use topicmill_score::openvino::load_openvino;
use topicmill_score::{Device, EngineName, Labeler, LabelerError, ModelFolder};

/// Precisions that a graph, or OpenVINO with a float32 graph, may have.
const PRECISIONS: [&str; 6] = [FP32, "fp16", "bf16", "int8", "int8-g32", "int8-g128"];
/// Batch sizes in tokens, padding included.
const BATCH_TOKENS: [usize; 7] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// Texts that are scored with each batch size.
const TIMED_TEXTS: usize = 100;
/// Passes over the texts with each batch size; the fastest one counts.
const PASSES: usize = 2;

/// Texts and settings to measure.
pub(super) struct Workload {
    pub choice: ModelChoice,
    pub set: LabelSet,
    pub texts: Vec<String>,
    pub clock: SharedClock,
    pub stop: CancellationToken,
}

/// A precision to measure.
struct Candidate {
    name: String,
    /// The value of the setting `precision` that selects it; `None` if it is the default.
    setting: Option<String>,
}

impl Workload {
    /// Measures each precision, float32 first; `None` after a signal. A later precision that
    /// fails is only logged.
    pub fn measure_all(&mut self) -> Result<Option<Vec<Precision>>, CliError> {
        let mut measured: Vec<Precision> = Vec::new();
        for candidate in self.candidates()? {
            self.choice.precision.clone_from(&candidate.setting);
            match self.measure(candidate) {
                Ok(Some(precision)) => measured.push(precision),
                Ok(None) => return Ok(None),
                // Without float32 there is nothing to compare with.
                Err(error) if measured.is_empty() => return Err(error),
                Err(error) => tracing::warn!("left out a precision: {error}"),
            }
        }
        Ok(Some(measured))
    }

    /// Returns the texts that are scored with each batch size.
    pub fn timed_texts(&self) -> &[String] {
        &self.texts[..self.texts.len().min(TIMED_TEXTS)]
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
        let OpenedModel { mut labeler, .. } = self.choice.open_one(self.choice.devices[0])?;
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
        let Some(sizes) = self.time(&mut labeler, &rows)? else {
            return Ok(None);
        };
        Ok(Some(Precision {
            name: candidate.name,
            setting: candidate.setting.unwrap_or_else(|| "auto".to_owned()),
            labels: labels.collect(),
            sizes,
        }))
    }

    /// Times the batches of each size; `None` after a signal.
    fn time(
        &self,
        labeler: &mut Labeler,
        rows: &[BatchRow<'_>],
    ) -> Result<Option<Vec<BatchSize>>, CliError> {
        let (mut sizes, batches): (Vec<BatchSize>, Vec<_>) =
            planned_sizes(labeler, rows).into_iter().unzip();
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
                let fits = compute(labeler, batches, &self.stop)?;
                let seconds = self.clock.elapsed().saturating_sub(began).as_secs_f64();
                if self.stop.is_cancelled() {
                    return Ok(None);
                }
                size.seconds = fits.then(|| size.seconds.unwrap_or(f64::INFINITY).min(seconds));
                if pass == 0 {
                    size.peak_mib = match self.choice.devices[0] {
                        Device::Cuda(_) => memory_used_mib(),
                        Device::Cpu | Device::Auto => memory::peak_mib(),
                    };
                }
                bar.add(1);
            }
        }
        Ok(Some(sizes))
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
