//! `topicmill bench ladder`: the same posts, labels and weights, from the usual way up to topicmill's.
//!
//! The lower rungs are Python's, run by one process that `benches/ladder/rungs.py` describes; the last one runs
//! here. The rungs take turns, so that whatever else the machine does hits them alike.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::chart::{Bar, bars};
use super::{Bed, Subject, csv, least_and_median, table, write};
use crate::classify::LabelerError;
use crate::cli::output::{self, Format};
use crate::cli::{CliError, Exit};
use crate::clock::SharedClock;
use crate::domain::Mode;
use crate::model_folder::ModelKind;
use crate::telemetry::tenths;

/// The program of the Python rungs.
const SCRIPT: &str = include_str!("../../../benches/ladder/rungs.py");
/// Pairs in a batch of the rungs that are told so.
const ROWS: usize = 16;
/// Rungs from below, and what each is.
const RUNGS: [(&str, &str); 7] = [
    ("pipeline", "pipeline, row by row"),
    ("pipeline-batches", "pipeline, batches of 16"),
    ("direct-mixed", "torch, 16 posts a label, as they come"),
    ("direct", "torch, 16 rows a post"),
    ("direct-bf16", "torch bf16, 16 rows a post"),
    ("onnxruntime", "ONNX Runtime, 16 rows a post"),
    (OURS, "topicmill"),
];
const OURS: &str = "topicmill";

/// Flags of `bench ladder`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill bench ladder --posts 16\n\
\x20 topicmill bench ladder --model models/bart-large-mnli --repeats 5")]
pub struct Ladder {
    #[command(flatten)]
    pub(super) subject: Subject,
    /// The same weights as a Hugging Face folder, for the rungs in Python
    #[arg(long, value_name = "DIR")]
    hf: Option<PathBuf>,
    /// A plain export of them, for ONNX Runtime in Python
    #[arg(long, value_name = "FILE", requires = "hf")]
    plain: Option<PathBuf>,
    /// A Python with what tools/requirements.txt lists
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Climb only these rungs, with commas between [default: all that can run]
    #[arg(long, value_name = "RUNGS", value_delimiter = ',', value_parser = PossibleValuesParser::new(RUNGS.map(|(name, _)| name)))]
    rungs: Vec<String>,
    /// Climb each rung this often, in turns with the others, after one text that warms up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Folder for ladder.json, ladder.csv and ladder.svg
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the table in this format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What a rung took each time, and what it said.
#[derive(Default)]
struct Climbed {
    seconds: Vec<f64>,
    scores: Vec<Vec<f64>>,
}

impl Ladder {
    pub(super) fn run(
        self,
        mut bed: Bed,
        clock: &SharedClock,
        stop: &CancellationToken,
    ) -> Result<Exit, CliError> {
        let ours_alone = !self.rungs.is_empty() && self.rungs.iter().all(|name| name == OURS);
        let mut python = match &self.hf {
            Some(_) if !ours_alone => Some(self.python(&bed)?),
            _ => None,
        };
        let known = python
            .as_ref()
            .map_or_else(Vec::new, |python| python.rungs.clone());
        let (can_run, cannot): (Vec<_>, Vec<_>) = RUNGS
            .iter()
            .filter(|(name, _)| self.rungs.is_empty() || self.rungs.iter().any(|of| of == name))
            .partition(|(name, _)| *name == OURS || known.iter().any(|of| of == name));
        if can_run.is_empty() {
            return Err(CliError::Usage(
                "no rung of --rungs can be run: give --hf, and for `onnxruntime` --plain too"
                    .to_owned(),
            ));
        }
        let mut climbed: BTreeMap<&str, Climbed> = BTreeMap::new();
        for round in 0..=self.repeats {
            // The first round warms up.
            let texts = if round == 0 { 1 } else { bed.texts.len() };
            for (name, what) in &can_run {
                if stop.is_cancelled() {
                    return Ok(Exit::Done);
                }
                let (seconds, scores) = match &mut python {
                    Some(python) if *name != OURS => python.climb(name, texts)?,
                    _ => ours(&mut bed, texts, clock)?,
                };
                let rung = climbed.entry(name).or_default();
                if round > 0 {
                    tracing::info!(round, seconds = tenths(seconds), "climbed: {what}");
                    rung.seconds.push(seconds);
                }
                rung.scores = scores;
            }
        }
        for (name, what) in &cannot {
            let flag = if *name == "onnxruntime" && self.hf.is_some() {
                "--plain"
            } else {
                "--hf"
            };
            tracing::warn!("not run: {what} (give {flag})");
        }
        let rows = rows(&climbed, bed.texts.len());
        let all = table(&rows);
        output::print_table(&all, self.format)?;
        if let Some(folder) = &self.out {
            let versions = python.map_or(json!({}), |python| python.versions.clone());
            let seconds: BTreeMap<&str, &[f64]> = climbed
                .iter()
                .map(|(name, rung)| (*name, rung.seconds.as_slice()))
                .collect();
            let result = json!({
                "facts": bed.facts(), "versions": versions, "repeats": self.repeats,
                "rungs": rows, "seconds": seconds,
            });
            let files = [
                ("ladder.json", format!("{result:#}\n")),
                ("ladder.csv", csv(&all)?),
                ("ladder.svg", chart(&rows)),
            ];
            write(folder, &files)?;
        }
        Ok(Exit::Done)
    }

    fn python(&self, bed: &Bed) -> Result<Python, CliError> {
        if !matches!(bed.labeler.folder().kind, ModelKind::Nli(_)) {
            return Err(CliError::Usage(
                "the pipeline knows NLI models only: name another with --model, or leave out --hf"
                    .to_owned(),
            ));
        }
        let labels: Vec<&str> = bed.set.labels.iter().map(|of| of.label.as_str()).collect();
        let job = json!({
            "texts": bed.texts, "labels": labels, "template": bed.set.template,
            "multi": bed.set.mode == Mode::Multi, "hf": self.hf, "plain": self.plain, "rows": ROWS,
            "max_tokens": bed.labeler.encoder().max_tokens(), "threads": bed.threads,
            "device": bed.device.to_string(),
        });
        Python::start(&self.python, &job)
    }
}

/// Tokenises, computes and scores, as `classify` does.
fn ours(
    bed: &mut Bed,
    texts: usize,
    clock: &SharedClock,
) -> Result<(f64, Vec<Vec<f64>>), CliError> {
    let texts = &bed.texts[..texts];
    let mut scores = vec![Vec::new(); texts.len()];
    let mut failed = None;
    let began = clock.elapsed();
    let encoded = bed.labeler.encoder().encode(texts);
    let encoded = encoded.map_err(LabelerError::Tokenize)?;
    bed.labeler.score(
        &bed.prepared,
        &encoded,
        &[],
        &|| false,
        &mut |text, result| match result {
            Ok(result) => scores[text] = result.scores.scores,
            Err(error) => failed = Some(error),
        },
    )?;
    let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
    match failed {
        Some(error) => Err(CliError::Usage(format!("score a text: {error}"))),
        None => Ok((seconds, scores)),
    }
}

/// The process of the Python rungs. It ends when its stdin is closed.
struct Python {
    /// Dropped first.
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    child: Child,
    rungs: Vec<String>,
    versions: Value,
}

impl Python {
    fn start(program: &PathBuf, job: &Value) -> Result<Self, CliError> {
        let mut child = Command::new(program)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let program = program.display();
                CliError::Usage(format!(
                    "start `{program}`: {error}; name a Python with --python"
                ))
            })?;
        let to = child.stdin.take().expect("stdin is piped");
        let from = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut python = Self {
            to,
            from,
            child,
            rungs: Vec::new(),
            versions: Value::Null,
        };
        let hello = python.ask(&job.to_string())?;
        let rungs = hello["rungs"].as_array().cloned().unwrap_or_default();
        python.rungs = rungs
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        python.versions = hello["versions"].clone();
        Ok(python)
    }

    fn ask(&mut self, line: &str) -> Result<Value, CliError> {
        let mut answer = String::new();
        let told = writeln!(self.to, "{line}").and_then(|()| self.to.flush());
        let asked = told.and_then(|()| self.from.read_line(&mut answer));
        let said = asked.is_ok().then(|| serde_json::from_str(&answer).ok());
        said.flatten().ok_or_else(|| {
            // It has told its trouble on stderr, which is the same as ours.
            CliError::Usage(
                "run the rungs in Python: the process ended; see its words above, and install tools/requirements.txt for it"
                    .to_owned(),
            )
        })
    }

    fn climb(&mut self, rung: &str, texts: usize) -> Result<(f64, Vec<Vec<f64>>), CliError> {
        let answer = self.ask(&format!("{rung} {texts}"))?;
        let scores = serde_json::from_value(answer["scores"].clone()).unwrap_or_default();
        Ok((answer["seconds"].as_f64().unwrap_or_default(), scores))
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // Without an answer to wait for it computes nothing of use.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A row a rung that was run, from below.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rows(climbed: &BTreeMap<&str, Climbed>, posts: usize) -> Vec<Value> {
    let run = || {
        RUNGS
            .iter()
            .filter_map(|(name, what)| Some((what, climbed.get(name)?)))
    };
    let Some((_, lowest)) = run().next() else {
        return Vec::new();
    };
    let base = least_and_median(&lowest.seconds).0;
    run()
        .map(|(what, rung)| {
            let (least, median) = least_and_median(&rung.seconds);
            let round = |x: f64| (x * 1000.0).round() / 1000.0;
            json!({
                "rung": what, "s/post": round(least / posts as f64), "median": round(median / posts as f64),
                "times": round(base / least),
                "largest difference": format!("{:.1e}", difference(&lowest.scores, &rung.scores)),
            })
        })
        .collect()
}

/// The largest difference of two scores; of other shapes infinite.
fn difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| a.len() != b.len()) {
        return f64::INFINITY;
    }
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn chart(rows: &[Value]) -> String {
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap_or_default();
    let bar = |row: &Value| Bar {
        name: row["rung"].as_str().unwrap_or_default().to_owned(),
        value: number(row, "times"),
        note: format!(
            "{:.2}×, {:.3} s/post",
            number(row, "times"),
            number(row, "s/post")
        ),
    };
    bars(
        "The same posts, labels and weights",
        "times as fast as the lowest rung",
        &rows.iter().map(bar).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_compared_with_the_lowest_that_was_run() {
        let rung = |seconds: &[f64], score: f64| Climbed {
            seconds: seconds.to_vec(),
            scores: vec![vec![score, 0.5]],
        };
        let climbed = BTreeMap::from([
            (OURS, rung(&[2.0, 1.0, 4.0], 0.25)),
            ("direct", rung(&[8.0, 9.0, 10.0], 0.5)),
        ]);
        let rows = rows(&climbed, 2);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["rung"], "torch, 16 rows a post");
        assert_eq!(rows[0]["largest difference"], "0.0e0");
        assert_eq!(
            rows[1],
            json!({"rung": "topicmill", "s/post": 0.5, "median": 1.0, "times": 8.0, "largest difference": "2.5e-1"})
        );
        assert!(chart(&rows).contains("8.00×"));
        assert!(difference(&[vec![1.0]], &[]).is_infinite());
    }
}
