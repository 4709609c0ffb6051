//! Tests labelling files with a scripted engine.

use std::cell::Cell;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use topicmill::files::{FileJob, FileReport, FilesError, Reading, Writing, score_files};
use topicmill_score::scripted::{ScriptedEngine, nli_folder, set};
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
            window_rows: 8,
        };
        Self { dir, job }
    }

    fn run(&self) -> Result<FileReport, FilesError> {
        self.run_with(ScriptedEngine::default(), &|| false)
    }

    fn run_with(
        &self,
        engine: ScriptedEngine,
        stop: &dyn Fn() -> bool,
    ) -> Result<FileReport, FilesError> {
        score_files(
            &self.job,
            &mut models(engine),
            &set(&["sports", "food"]),
            stop,
            &mut |_, _| {},
        )
    }

    fn output(&self) -> Vec<Value> {
        let content = fs::read_to_string(&self.job.output).unwrap();
        content
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("out"))
            .collect();
        names.sort();
        names
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
fn a_stopped_run_resumes_and_a_different_one_starts_over() {
    let input = format!("broken\n{}", lines(60));
    let whole = Bench::new(&[&input]);
    whole.run().unwrap();
    let mut bench = Bench::new(&[&input]);
    let partial = bench.dir.path().join("out.ndjson.partial");
    for same_command in [true, false] {
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 30;
        let first = bench.run_with(ScriptedEngine::default(), &stop).unwrap();
        assert!(first.stopped && (1..61).contains(&first.lines), "{first:?}");
        assert_eq!(
            bench.files(),
            ["out.ndjson.partial", "out.ndjson.partial.json"]
        );
        // As if the process had been killed while writing a line.
        let mut content = fs::read_to_string(&partial).unwrap();
        content.push_str("{\"id\":\"p");
        fs::write(&partial, content).unwrap();
        if !same_command {
            bench.job.reading.text = vec!["text".into()];
        }
        let resumed = if same_command { first.lines } else { 0 };
        let report = FileReport {
            lines: 61,
            resumed,
            failed: 1,
            stopped: false,
        };
        assert_eq!(bench.run().unwrap(), report);
        assert_eq!(bench.output(), whole.output());
        assert_eq!(bench.files(), ["out.ndjson"]);
        fs::remove_file(&bench.job.output).unwrap();
    }
}

/// Scores food, music and travel with a shortlist of one label.
fn shortlisted(bench: &Bench, small: ScriptedEngine) -> FileReport {
    let mut both = Models {
        small: Some(Shortlist::new(models(small).large, 1)),
        ..models(ScriptedEngine::default())
    };
    let set = set(&["food", "music", "travel"]);
    score_files(&bench.job, &mut both, &set, &|| false, &mut |_, _| {}).unwrap()
}

#[test]
fn a_shortlist_limits_labels_and_reports_a_text_that_fails() {
    let whole = Bench::new(&[&lines(20)]);
    shortlisted(&whole, ScriptedEngine::default());
    let mut bench = Bench::new(&[&lines(20)]);
    bench.job.window_rows = 60; // All in one window.
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

#[test]
fn a_run_with_a_shortlist_does_not_resume_one_without() {
    let bench = Bench::new(&[&lines(40)]);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 20
    };
    let mut large = models(ScriptedEngine::default());
    let set = set(&["food", "music", "travel"]);
    let report = score_files(&bench.job, &mut large, &set, &stop, &mut |_, _| {}).unwrap();
    assert!(report.stopped && report.lines > 0);
    assert_eq!(shortlisted(&bench, ScriptedEngine::default()).resumed, 0);
}

#[test]
fn an_error_before_the_first_row_leaves_no_file() {
    let bench = Bench::new(&[&lines(3)]);
    let broken = ScriptedEngine {
        batches_left: 0,
        ..ScriptedEngine::default()
    };
    let error = bench.run_with(broken, &|| false).unwrap_err();
    assert!(matches!(error, FilesError::Labeler(_)), "{error}");
    assert!(bench.files().is_empty(), "{:?}", bench.files());
}

#[test]
fn two_runs_cannot_write_one_file() {
    let bench = Bench::new(&[&lines(3)]);
    let first = fs::File::create(bench.dir.path().join("out.ndjson.partial")).unwrap();
    first.lock().unwrap();
    assert!(matches!(bench.run(), Err(FilesError::Busy(_))));
}
