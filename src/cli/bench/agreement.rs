//! `topicmill bench agreement`: measures the speed of each engine and precision, and its agreement with float32.
//!
//! Later commands read the result to choose the fastest precision that reaches `classify.agreement`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{read_texts, round_to};
use crate::cli::setup::{ModelFlags, PipelineFlags};
use crate::cli::{CliError, Exit, OutputFormat, Setup, output};
use crate::engines::agreement::{
    Agreement as Share, ENOUGH_TEXTS, EngineConfig, Measured, SAME_SCORE,
};
use crate::engines::{ModelChoice, OpenedModel};
use topicmill_core::clock::SharedClock;
use topicmill_score::folder::Rounding;
use topicmill_score::openvino::load_openvino;
use topicmill_score::{
    Device, EngineName, LabelSet, ModelError, ModelFolder, Scores, TextError, TextResult,
};

/// The default number of texts.
const TEXTS: u32 = 400;
/// Repetitions for each engine and precision; the fastest one counts.
const ROUNDS: usize = 2;
/// Texts that are also scored alone, to detect scores that depend on the batch.
const SCORED_ALONE: usize = 16;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill bench agreement --texts texts.ndjson
  topicmill bench agreement --texts texts.ndjson --model models/bart-large-mnli --posts 200

With the setting `classify.agreement = 0.995`, later commands use the fastest engine and precision that assign \
the same label as float32 to 99.5 % of the texts. Measure with texts like the ones that you will label.")]
pub struct AgreementBench {
    /// Score the texts in FILE
    ///
    /// FILE contains one JSON object per line, with text, or title and selftext.
    #[arg(long, value_name = "FILE")]
    texts: PathBuf,
    /// Score N of the texts, 200 or more
    #[arg(long, value_name = "N", default_value_t = TEXTS, value_parser = clap::value_parser!(u32).range(200..))]
    posts: u32,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The model, label set and texts to measure.
pub struct AgreementWorkload {
    choice: ModelChoice,
    set: LabelSet,
    texts: Vec<String>,
}

/// The scores of one engine and precision, and the seconds that scoring took. `None` marks a text that could not be
/// scored.
struct TimedScores {
    runtime: String,
    seconds: f64,
    scores: Vec<Option<Scores>>,
}

impl AgreementBench {
    pub(super) fn load(&self, setup: &Setup) -> Result<AgreementWorkload, CliError> {
        let texts = read_texts(&self.texts, self.posts as usize)?;
        if texts.len() < ENOUGH_TEXTS {
            return Err(CliError::Usage(format!(
                "{} texts are too few for a reliable comparison: use {ENOUGH_TEXTS} or more; `topicmill sql --format \
                 ndjson \"SELECT title, selftext FROM posts LIMIT 400\"` prints some",
                texts.len()
            )));
        }
        if self.model.has_precision() {
            return Err(CliError::Usage(
                "every engine and precision is measured: leave out --precision".to_owned(),
            ));
        }
        let choice = setup.requested_model(&self.model)?;
        if !choice
            .devices
            .iter()
            .all(|device| matches!(device, Device::Cpu | Device::Auto))
        {
            return Err(CliError::Usage(
                "the engines are compared on a CPU: leave out --device".to_owned(),
            ));
        }
        let set = setup.label_set(&self.model, setup.pipeline(&self.pipeline)?.label_set)?;
        Ok(AgreementWorkload { choice, set, texts })
    }

    pub(super) fn run(
        self,
        workload: &AgreementWorkload,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Exit, CliError> {
        let ways = workload.ways();
        let mut timed: BTreeMap<usize, TimedScores> = BTreeMap::new();
        let mut failed: BTreeMap<usize, String> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for (number, way) in ways.iter().enumerate() {
                if failed.contains_key(&number) {
                    continue;
                }
                match workload.score_all(way, clock, stop) {
                    Ok(None) => {
                        tracing::warn!("stopped before the measurement was complete");
                        return Ok(Exit::Done);
                    }
                    Ok(Some(now)) => {
                        let best = timed
                            .get(&number)
                            .map_or(f64::INFINITY, |timed| timed.seconds);
                        let seconds = best.min(now.seconds);
                        timed.insert(number, TimedScores { seconds, ..now });
                    }
                    // Without float32 there is nothing to compare with.
                    Err(error) if number == 0 => return Err(error),
                    Err(error) => {
                        timed.remove(&number);
                        failed.insert(number, error.to_string());
                    }
                }
            }
        }
        let measured: Vec<Measured> = (0..ways.len())
            .filter_map(|number| {
                Some(compare_with_fp32(
                    &ways[number],
                    timed.get(&number)?,
                    &timed[&0],
                ))
            })
            .collect();
        let mut rows: Vec<Value> = measured.iter().map(row).collect();
        rows.extend(failed.iter().map(|(number, why)| {
            json!({"engine": ways[*number].engine, "precision": ways[*number].precision, "agreement": why})
        }));
        output::print_table(&output::table_from_objects(&rows), self.format)?;
        match workload.choice.store_measurements(&measured) {
            Ok(path) => tracing::info!("wrote the result to {}", path.display()),
            Err(why) => {
                tracing::warn!(
                    "could not store the result, so later commands cannot use it: {why}"
                );
                return Ok(Exit::Partial);
            }
        }
        Ok(Exit::Done)
    }
}

impl AgreementWorkload {
    /// Lists the engines and precisions to compare, float32 with ONNX Runtime (the baseline) first.
    fn ways(&self) -> Vec<EngineConfig> {
        let mut ways = vec![EngineConfig::new(EngineName::OnnxRuntime, "fp32")];
        if let Ok(openvino) = load_openvino(self.choice.openvino.as_deref()) {
            ways.push(EngineConfig::new(EngineName::OpenVino, "fp32"));
            let faster = |way: &Rounding| !way.is_bf16() || openvino.has_bf16();
            let rounded = Rounding::reduced_modes()
                .filter(faster)
                .map(|way| way.to_string());
            let rounded = rounded.filter(|precision| self.folder(precision).is_ok());
            ways.extend(
                rounded.map(|precision| EngineConfig::new(EngineName::OpenVino, &precision)),
            );
        }
        let is_own = |folder: ModelFolder| folder.rounding.is_exact();
        if self.folder("int8").is_ok_and(is_own) {
            ways.push(EngineConfig::new(EngineName::OnnxRuntime, "int8"));
        }
        ways
    }

    /// Opens the model folder with its graph in this precision.
    fn folder(&self, precision: &str) -> Result<ModelFolder, ModelError> {
        let choice = ModelChoice {
            devices: vec![Device::Cpu],
            precision: Some(precision.to_owned()),
            ..self.choice.clone()
        };
        choice.folder()
    }

    /// Scores all texts with one engine and precision. Returns `None` if stopped by a signal.
    fn score_all(
        &self,
        way: &EngineConfig,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Option<TimedScores>, CliError> {
        let stopped = || stop.is_cancelled();
        let own = self.choice.folder_in_fp32()?;
        let choice = ModelChoice {
            devices: vec![Device::Cpu],
            engine: way.engine,
            // In a folder without a manifest, the name of the only graph may not state its precision, so a request for
            // that precision could fail.
            precision: (way.precision != own.precision || own.spec.is_some())
                .then(|| way.precision.clone()),
            ..self.choice.clone()
        };
        let OpenedModel {
            mut labeler,
            runtime,
            ..
        } = choice.open_one(Device::Cpu)?;
        let prepared = labeler.prepare(&self.set)?;
        // Warm up: the first batch allocates memory and compiles kernels.
        let some = &self.texts[..self.texts.len().min(16)];
        if labeler.score_all(&prepared, some, &stopped)?.is_none() {
            return Ok(None);
        }
        let began = clock.elapsed();
        let results = labeler.score_all(&prepared, &self.texts, &stopped)?;
        let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
        let Some(scores) = results.map(successful_scores) else {
            return Ok(None);
        };
        for (text, among) in self.texts.iter().zip(&scores).take(SCORED_ALONE) {
            let alone = labeler.score_all(&prepared, std::slice::from_ref(text), &stopped)?;
            let Some(alone) = alone.map(successful_scores) else {
                return Ok(None);
            };
            if max_difference(alone[0].as_ref(), among.as_ref()) > SAME_SCORE {
                return Err(CliError::Usage(
                    "scores depend on the batch with this engine and precision, so they cannot \
                                            be compared"
                        .into(),
                ));
            }
        }
        Ok(Some(TimedScores {
            runtime,
            seconds,
            scores,
        }))
    }
}

fn successful_scores(results: Vec<Result<TextResult, TextError>>) -> Vec<Option<Scores>> {
    let scores = |result: Result<TextResult, _>| result.ok().map(|it| it.scores);
    results.into_iter().map(scores).collect()
}

/// Returns the largest absolute difference between two texts' scores, or 1 if only one could be scored.
fn max_difference(one: Option<&Scores>, other: Option<&Scores>) -> f64 {
    match (one, other) {
        (Some(one), Some(other)) => {
            let apart = one.scores.iter().zip(&other.scores);
            apart.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        }
        (None, None) => 0.0,
        _ => 1.0,
    }
}

fn compare_with_fp32(way: &EngineConfig, timed: &TimedScores, exact: &TimedScores) -> Measured {
    let label = |scores: &Scores| (!scores.abstained).then_some(scores.best);
    let both = || timed.scores.iter().zip(&exact.scores);
    // Texts without a label in float32 are not compared.
    let labelled = || both().filter_map(|(a, b)| Some((a, b.as_ref().and_then(label)?)));
    let off = both().map(|(a, b)| max_difference(a.as_ref(), b.as_ref()));
    let texts = timed.scores.len();
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    let texts_per_sec = texts as f64 / timed.seconds.max(1e-9);
    Measured {
        config: way.clone(),
        runtime: timed.runtime.clone(),
        texts: labelled().count(),
        agreed: labelled()
            .filter(|(a, label_of)| a.as_ref().and_then(label) == Some(*label_of))
            .count(),
        score_off: off.fold(0.0, f64::max),
        texts_per_sec,
    }
}

fn row(one: &Measured) -> Value {
    json!({
        "engine": one.config.engine,
        "precision": one.config.precision,
        "texts/s": round_to(one.texts_per_sec, 1),
        "labelled as fp32": format!("{} of {}", one.agreed, one.texts),
        "scores off": format!("{:.1e}", one.score_off),
        "agreement": one.agreement().map(Share::share),
    })
}
