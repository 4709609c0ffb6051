//! Files through a scripted engine.

use std::cell::Cell;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use topicmill_score::scripted::{Scripted, nli_folder, set};
use topicmill_score::{Labeler, Shortlist};

struct Bench {
    dir: TempDir,
    job: FileJob,
}

fn models(engine: Scripted) -> Models {
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
        self.run_with(Scripted::default(), &|| false)
    }

    fn run_with(
        &self,
        engine: Scripted,
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
fn every_line_gives_one_line_in_its_place() {
    let second =
        "\n{\"id\":7,\"title\":\"T\",\"selftext\":\"B\"}\nbroken\n  \n{\"id\":8,\"text\":\"\"}";
    let bench = Bench::new(&[&lines(30), second]);
    let report = bench.run().unwrap();
    assert_eq!(
        report,
        FileReport {
            lines: 33,
            resumed: 0,
            failed: 1,
            stopped: false
        }
    );
    let output = bench.output();
    for (i, line) in output[..30].iter().enumerate() {
        assert_eq!(line["id"], format!("p{i}"));
        assert_eq!(line["logits"]["food"].as_array().unwrap().len(), 3);
        let (label, score) = (
            line["label"].as_str().unwrap(),
            line["score"].as_f64().unwrap(),
        );
        assert!((line["scores"][label].as_f64().unwrap() - score).abs() < 1e-12);
        assert_eq!(line["abstained"], false);
    }
    assert_eq!(output[30]["id"], 7);
    assert!(output[31]["id"].is_null() && output[31]["line"] == 3);
    assert!(
        output[31]["input"]
            .as_str()
            .unwrap()
            .ends_with("in1.ndjson")
    );
    assert_eq!(output[32]["id"], 8);
    assert_eq!(bench.files(), ["out.ndjson"]);
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let bench = Bench::new(&[&format!("broken\n{}", lines(60))]);
    let whole = Bench::new(&[&format!("broken\n{}", lines(60))]);
    whole.run().unwrap();

    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 30
    };
    let report = bench.run_with(Scripted::default(), &stop).unwrap();
    assert!(
        report.stopped && report.lines > 0 && report.lines < 61,
        "{report:?}"
    );
    assert_eq!(
        bench.files(),
        ["out.ndjson.partial", "out.ndjson.partial.json"]
    );

    // As if the process had died while it wrote a line.
    let partial = bench.dir.path().join("out.ndjson.partial");
    let mut content = fs::read_to_string(&partial).unwrap();
    content.push_str("{\"id\":\"p");
    fs::write(&partial, content).unwrap();

    let again = bench.run().unwrap();
    assert_eq!(
        again,
        FileReport {
            lines: 61,
            resumed: report.lines,
            failed: 1,
            stopped: false
        }
    );
    assert_eq!(bench.output(), whole.output());
    assert_eq!(bench.files(), ["out.ndjson"]);
}

#[test]
fn another_command_starts_over() {
    let mut bench = Bench::new(&[&lines(40)]);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 20
    };
    assert!(bench.run_with(Scripted::default(), &stop).unwrap().lines > 0);
    bench.job.reading.text = vec!["text".into()];
    assert_eq!(
        bench.run().unwrap(),
        FileReport {
            lines: 40,
            resumed: 0,
            failed: 0,
            stopped: false
        }
    );
}

#[test]
fn a_text_that_fails_is_told_in_its_place() {
    let bench = Bench::new(&[&lines(20)]);
    let report = bench
        .run_with(
            Scripted {
                memory: 45,
                ..Scripted::default()
            },
            &|| false,
        )
        .unwrap();
    let failed: Vec<Value> = bench
        .output()
        .into_iter()
        .filter(|line| !line["error"].is_null())
        .collect();
    assert!(!failed.is_empty() && failed.len() as u64 == report.failed && report.lines == 20);
    assert!(
        failed
            .iter()
            .all(|line| line["id"].is_string() && line["line"].is_u64())
    );
}

/// Scores food, music and travel with a shortlist of one label.
fn shortlisted(bench: &Bench, small: Scripted) -> FileReport {
    let mut both = Models {
        small: Some(Shortlist::new(models(small).large, 1)),
        ..models(Scripted::default())
    };
    let set = set(&["food", "music", "travel"]);
    score_files(&bench.job, &mut both, &set, &|| false, &mut |_, _| {}).unwrap()
}

#[test]
fn a_shortlist_leaves_labels_out_and_fails_a_text_in_its_place() {
    let whole = Bench::new(&[&lines(20)]);
    shortlisted(&whole, Scripted::default());
    let mut bench = Bench::new(&[&lines(20)]);
    bench.job.window_rows = 60; // All in one window.
    let short_of_memory = Scripted {
        memory: 45,
        ..Scripted::default()
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
fn a_shortlist_does_not_go_on_with_what_was_scored_without() {
    let bench = Bench::new(&[&lines(40)]);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 20
    };
    let mut large = models(Scripted::default());
    let set = set(&["food", "music", "travel"]);
    let report = score_files(&bench.job, &mut large, &set, &stop, &mut |_, _| {}).unwrap();
    assert!(report.stopped && report.lines > 0);
    assert_eq!(shortlisted(&bench, Scripted::default()).resumed, 0);
}

#[test]
fn progress_counts_every_line() {
    let bench = Bench::new(&[&format!("broken\n{}", lines(20))]);
    let mut last = (0, 0);
    score_files(
        &bench.job,
        &mut models(Scripted::default()),
        &set(&["food"]),
        &|| false,
        &mut |done, failed| {
            assert!(done >= last.0);
            last = (done, failed);
        },
    )
    .unwrap();
    assert_eq!(last, (21, 1));
}

#[test]
fn an_error_before_the_first_row_leaves_nothing() {
    let bench = Bench::new(&[&lines(3)]);
    let broken = Scripted {
        life: 0,
        ..Scripted::default()
    };
    let error = bench.run_with(broken, &|| false).unwrap_err();
    assert!(matches!(error, FilesError::Labeler(_)), "{error}");
    assert!(bench.files().is_empty(), "{:?}", bench.files());
}

#[test]
fn an_output_is_overwritten_only_when_asked() {
    let mut bench = Bench::new(&[&lines(3)]);
    fs::write(&bench.job.output, "precious").unwrap();
    assert!(matches!(bench.run(), Err(FilesError::Exists(_))));
    assert_eq!(fs::read_to_string(&bench.job.output).unwrap(), "precious");
    bench.job.overwrite = true;
    assert_eq!(bench.run().unwrap().lines, 3);
}

#[test]
fn two_runs_do_not_write_one_file() {
    let bench = Bench::new(&[&lines(3)]);
    let _first = Partial::open(&bench.job.output, None).unwrap();
    assert!(matches!(bench.run(), Err(FilesError::Busy(_))));
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let with = |change: &dyn Fn(&mut Bench)| {
        let mut bench = Bench::new(&[&lines(3)]);
        change(&mut bench);
        (bench.run().unwrap_err(), bench)
    };
    let (error, _) = with(&|bench| bench.job.inputs.push("/no/such.ndjson".into()));
    assert!(
        matches!(&error, FilesError::Missing(path) if path.ends_with("such.ndjson")),
        "{error}"
    );
    let (error, _) = with(&|bench| bench.job.inputs.push(bench.dir.path().into()));
    assert!(matches!(error, FilesError::Folder(_)), "{error}");
    let (error, _) = with(&|bench| bench.job.output = "/no/such/out.ndjson".into());
    assert!(
        matches!(&error, FilesError::Write { .. }) && error.to_string().contains("folder exists"),
        "{error}"
    );
    let (error, _) = with(&|bench| bench.job.output = bench.job.inputs[0].clone());
    assert!(matches!(error, FilesError::IsInput(_)), "{error}");
    let (error, _) = with(&|bench| bench.job.output = bench.dir.path().into());
    assert!(matches!(error, FilesError::Write { .. }), "{error}");
    let (error, bench) = with(&|bench| fs::write(&bench.job.inputs[0], "\n \n").unwrap());
    assert!(matches!(error, FilesError::Empty(_)), "{error}");
    assert!(bench.files().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_as_such() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let source = std::io::Write::write(&mut &full, b"x").unwrap_err();
    assert!(matches!(
        write_error(Path::new("out"))(source),
        FilesError::Full(_)
    ));
}
