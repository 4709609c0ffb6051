//! Tests labelling files with a scripted engine.

use std::cell::Cell;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use topicmill::score_files::{FileJob, FileReport, FilesError, Reading, Writing, score_files};
use topicmill_core::test_examples::set;
use topicmill_score::test_engine::{ScriptedEngine, nli_folder};
use topicmill_score::{Labeler, Models, Shortlist};

struct Bench {
    dir: TempDir,
    job: FileJob,
}

fn models(engine: ScriptedEngine) -> Models {
    let labeler = Labeler::load(nli_folder(), Box::new(engine), 200);
    labeler.unwrap().into()
}

impl Bench {
    fn new(inputs: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let inputs = inputs.iter().enumerate().map(|(i, content)| {
            let path = dir.path().join(format!("in{i}.ndjson"));
            fs::write(&path, content).unwrap();
            path
        });
        let job = FileJob {
            inputs: inputs.collect(),
            output: dir.path().join("out.ndjson"),
            reading: Reading::default(),
            writing: Writing::default(),
            overwrite: false,
            window_pairs: 8,
        };
        Self { dir, job }
    }

    fn run_with(
        &self,
        engine: ScriptedEngine,
        stop: &dyn Fn() -> bool,
    ) -> Result<FileReport, FilesError> {
        let set = set(&["sports", "food"]);
        score_files(&self.job, &mut models(engine), &set, stop, &mut |_| {})?.write(&self.job)
    }

    fn output(&self) -> Vec<Value> {
        let content = fs::read_to_string(&self.job.output).unwrap();
        content
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Counts the files in the folder, the input included.
    fn files(&self) -> usize {
        fs::read_dir(self.dir.path()).unwrap().count()
    }
}

fn lines(n: usize) -> String {
    let line = |i| json!({ "id": format!("p{i}"), "text": format!("post {i} {}", "word ".repeat(i * 7 % 40)) });
    (0..n)
        .map(line)
        .map(|line| line.to_string() + "\n")
        .collect()
}

#[test]
fn a_run_that_stops_or_fails_leaves_no_file() {
    let mut bench = Bench::new(&[&lines(60)]);
    for overwrite in [false, true] {
        bench.job.overwrite = overwrite;
        let before = if overwrite { "old" } else { "" };
        if overwrite {
            fs::write(&bench.job.output, before).unwrap();
        }
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 30;
        let report = bench.run_with(ScriptedEngine::default(), &stop).unwrap();
        assert!(
            report.stopped && (1..60).contains(&report.lines),
            "{report:?}"
        );
        let broken = ScriptedEngine {
            batches_left: 3,
            ..ScriptedEngine::default()
        };
        let error = bench.run_with(broken, &|| false).unwrap_err();
        assert!(matches!(error, FilesError::Labeler(_)), "{error}");
        let left = fs::read_to_string(&bench.job.output).unwrap_or_default();
        assert_eq!(
            (&*left, bench.files()),
            (before, 1 + usize::from(overwrite))
        );
    }
    assert_eq!(
        bench
            .run_with(ScriptedEngine::default(), &|| false)
            .unwrap()
            .lines,
        60
    );
    assert_eq!((bench.output().len(), bench.files()), (60, 2));
}

/// Scores food, music and travel with a shortlist of one label.
fn shortlisted(bench: &Bench, small: ScriptedEngine) -> FileReport {
    let mut both = Models {
        small: Some(Shortlist::new(models(small).large, 1)),
        ..models(ScriptedEngine::default())
    };
    let set = set(&["food", "music", "travel"]);
    let scored = score_files(&bench.job, &mut both, &set, &|| false, &mut |_| {});
    scored.unwrap().write(&bench.job).unwrap()
}

#[test]
fn a_shortlist_limits_labels_and_reports_a_text_that_fails() {
    let whole = Bench::new(&[&lines(20)]);
    shortlisted(&whole, ScriptedEngine::default());
    let mut bench = Bench::new(&[&lines(20)]);
    bench.job.window_pairs = 60; // All in one window.
    let short_of_memory = ScriptedEngine {
        max_batch_tokens: 45,
        ..ScriptedEngine::default()
    };
    let report = shortlisted(&bench, short_of_memory);
    assert!(report.lines == 20 && (1..20).contains(&report.failed));
    for (line, expected) in bench.output().iter().zip(whole.output()) {
        assert_eq!(line["id"], expected["id"]);
        if line["error"].is_null() {
            assert_eq!(*line, expected);
            let logits = line["logits"].as_object().unwrap();
            let scores = line["scores"].as_object().unwrap();
            assert_eq!((logits.len(), scores.len()), (1, 3));
            assert!(logits.contains_key(line["label"].as_str().unwrap()));
            let left_out = scores.values().filter(|score| **score == json!(0.0));
            assert_eq!(left_out.count(), 2);
        }
    }
}
