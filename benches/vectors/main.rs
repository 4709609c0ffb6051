//! Measures the effect of rounding text vectors on scores and labels: float16, and scaled 8-bit and 16-bit integers,
//! each compared with float32.
//!
//!     bench-vectors MODEL POSTS.ndjson
//!
//! Input is an embedding model and posts with `title` and `selftext`; output is a Markdown row per kind of rounding.
//! The labels are the sixteen built-in topics.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use topicmill::pipeline_file::Pipeline;
use topicmill_core::reddit::post_text;
use topicmill_core::score::Evidence;
use topicmill_core::{LabelVector, Listing, Mode, ModelKind, PairLogits, Scores, TextVector};
use topicmill_score::batch::Batch;
use topicmill_score::text::Sequence;
use topicmill_score::{Device, Engine, EngineOptions, Labeler, OnnxEngine};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Texts per batch.
const BATCH: usize = 8;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (Some(model), Some(posts)) = (args.next(), args.next()) else {
        return Err("usage: bench-vectors MODEL POSTS.ndjson".into());
    };
    let options = EngineOptions {
        device: Device::Cpu,
        ..EngineOptions::default()
    };
    let (folder, engine) = OnnxEngine::open(Path::new(&model), Some("fp32"), &options)?;
    let kind = folder.kind.clone();
    let set = Pipeline::load(None, Listing::New, 1)?.label_set;
    let mut labeler = Labeler::load(folder.clone(), Box::new(engine), 1_024)?;
    let prepared = labeler.prepare(&set)?;
    let labels = prepared.label_vectors().ok_or("the model has no vectors")?;
    let labels: Vec<Vec<f64>> = labels.iter().map(wide).collect();

    let (_, mut engine) = OnnxEngine::open(Path::new(&model), Some("fp32"), &options)?;
    let encoder = labeler.encoder();
    let texts = texts(&posts)?;
    let mut vectors = Vec::with_capacity(texts.len());
    for texts in encoder.encode(&texts)?.chunks(BATCH) {
        let rows = texts.iter().map(|text| encoder.single(text));
        let width = rows.clone().map(Sequence::tokens).max().unwrap_or(0);
        let rows = rows.map(Sequence::ids);
        let found = engine.infer(&Batch::new(rows, width, encoder.pad_id()))?;
        vectors.extend((0..found.rows).map(|row| found.row(row).to_vec()));
    }
    let exact: Vec<Vec<f64>> = vectors.iter().map(|raw| unit(raw)).collect();
    let dimensions = exact[0].len();
    let mut out = std::io::stdout();
    let names = "| stored as | bytes per text | largest logit error | mean logit error | largest score error, single \
        | multi | labels that differ |";
    writeln!(out, "{names}\n|---|---|---|---|---|---|---|")?;
    let all = |round: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<Vec<f64>> {
        exact.iter().map(|vector| round(vector)).collect()
    };
    let stored = |raw: &Vec<f32>| {
        let numbers = TextVector::quantize(raw).numbers();
        numbers.into_iter().map(f64::from).collect()
    };
    let rounded: [(&str, usize, Vec<Vec<f64>>); 4] = [
        (
            "float32",
            4 * dimensions,
            all(&|vector| vector.iter().map(|x| f64::from(narrow(*x))).collect()),
        ),
        (
            "float16",
            2 * dimensions,
            all(&|vector| vector.iter().map(|x| half(*x)).collect()),
        ),
        (
            "int8 and a scale",
            dimensions + 4,
            all(&|vector| steps(vector, 127.0)),
        ),
        (
            "int16 and a scale",
            2 * dimensions + 4,
            vectors.iter().map(stored).collect(),
        ),
    ];
    for (name, bytes, rounded) in rounded {
        let moved = compare(&kind, &labels, &exact, &rounded);
        writeln!(
            out,
            "| {name} | {bytes} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {} of {} |",
            moved.logit,
            moved.mean,
            moved.single,
            moved.multi,
            moved.labels,
            texts.len()
        )?;
    }
    Ok(())
}

/// Errors of one kind of rounding: of logits, the largest and the mean; of scores, the largest in each mode; and the
/// number of labels that differ.
#[derive(Default)]
struct Moved {
    logit: f64,
    mean: f64,
    single: f64,
    multi: f64,
    labels: usize,
}

fn compare(
    kind: &ModelKind,
    labels: &[Vec<f64>],
    exact: &[Vec<f64>],
    rounded: &[Vec<f64>],
) -> Moved {
    let ModelKind::Embedding(head) = kind else {
        return Moved::default();
    };
    let mut moved = Moved::default();
    let mut count = 0.0;
    for (exact, rounded) in exact.iter().zip(rounded) {
        let (a, b) = (cosines(labels, exact), cosines(labels, rounded));
        for (a, b) in a.iter().zip(&b) {
            let error = head.softmax_scale * (a - b).abs();
            moved.logit = moved.logit.max(error);
            moved.mean += error;
            count += 1.0;
        }
        for mode in [Mode::Single, Mode::Multi] {
            let (a, b) = (scores(kind, mode, &a), scores(kind, mode, &b));
            let errors = a.scores.iter().zip(&b.scores).map(|(a, b)| (a - b).abs());
            let worst = errors.fold(0.0, f64::max);
            if mode == Mode::Single {
                moved.single = moved.single.max(worst);
                moved.labels += usize::from(a.best != b.best);
            } else {
                moved.multi = moved.multi.max(worst);
            }
        }
    }
    moved.mean /= count;
    moved
}

fn scores(kind: &ModelKind, mode: Mode, cosines: &[f64]) -> Scores {
    let pairs: Vec<PairLogits> = cosines
        .iter()
        .map(|x| PairLogits::single(narrow(*x)))
        .collect();
    Evidence::new(kind, mode, &pairs, None).scores(1.0, 0.0)
}

fn cosines(labels: &[Vec<f64>], text: &[f64]) -> Vec<f64> {
    let dot = |label: &Vec<f64>| label.iter().zip(text).map(|(a, b)| a * b).sum();
    labels.iter().map(dot).collect()
}

fn texts(path: &str) -> Outcome<Vec<String>> {
    let text = |line: &str| -> Outcome<String> {
        let post: serde_json::Value = serde_json::from_str(line)?;
        let field = |name: &str| post[name].as_str().unwrap_or_default().to_owned();
        Ok(post_text(&field("title"), &field("selftext")))
    };
    std::fs::read_to_string(path)?.lines().map(text).collect()
}

/// Returns a label's vector as float64, in which cosines are computed.
fn wide(label: &LabelVector) -> Vec<f64> {
    let bytes = label.to_bytes();
    let (numbers, _) = bytes.as_chunks();
    numbers
        .iter()
        .map(|x| f64::from(f32::from_le_bytes(*x)))
        .collect()
}

fn unit(raw: &[f32]) -> Vec<f64> {
    let length = raw
        .iter()
        .map(|x| f64::from(*x).powi(2))
        .sum::<f64>()
        .sqrt();
    raw.iter().map(|x| f64::from(*x) / length).collect()
}

/// Rounds to a scale times integers from `-most` to `most`.
fn steps(vector: &[f64], most: f64) -> Vec<f64> {
    let greatest = vector
        .iter()
        .fold(0.0f64, |greatest, x| greatest.max(x.abs()));
    let scale = f64::from(narrow(greatest / most));
    vector.iter().map(|x| (x / scale).round() * scale).collect()
}

/// Returns the nearest float16: 10 fraction bits, or a multiple of 2^-24.
fn half(x: f64) -> f64 {
    let exponent = x.abs().log2().floor().max(-14.0);
    let step = (exponent - 10.0).exp2();
    (x / step).round() * step
}

#[expect(clippy::cast_possible_truncation, reason = "to the nearest float32")]
fn narrow(x: f64) -> f32 {
    x as f32
}
