//! Tests classifiers: scores equal those of transformers' text-classification pipeline, and unusual models load or
//! are rejected with a reason.
//!
//! `tools/golden.py` made the models (tiny, with random weights, one of each family) and recorded the pipeline's
//! scores for each function.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use topicmill_score::folder::ModelFolder;
use topicmill_score::{
    Device, EngineOptions, LabelSet, Labeler, LabelerError, Mode, OnnxEngine, TextResult,
};

use crate::support::engine::{has_onnx_runtime, labeler, labeler_of, repository};
use crate::support::postgres::{databases, sqlite};
use crate::support::program::Program;

const TOLERANCE: f64 = 1e-4;

#[derive(Debug, Deserialize)]
struct Golden {
    model: String,
    default_mode: Mode,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    text: String,
    labels: Vec<String>,
    mode: Mode,
    scores: Vec<f64>,
    logits: Vec<Vec<f64>>,
}

fn fixture(path: &str) -> std::path::PathBuf {
    repository("tests/it/fixtures/classifiers").join(path)
}

fn own_labels(folder: &ModelFolder) -> LabelSet {
    let head = folder.kind.head().expect("it is a classifier");
    LabelSet::of_classifier(&folder.name, head)
}

fn score(labeler: &mut Labeler, set: &LabelSet, texts: &[String]) -> Vec<TextResult> {
    let prepared = labeler.prepare(set).unwrap();
    let results = labeler.score_all(&prepared, texts, &|| false).unwrap();
    let results = results.expect("scoring is not cancelled").into_iter();
    results.map(Result::unwrap).collect()
}

fn off(found: impl Iterator<Item = f64>, wanted: &[f64]) -> f64 {
    let found: Vec<f64> = found.collect();
    assert_eq!(found.len(), wanted.len());
    let pairs = found.iter().zip(wanted);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn scores_equal_the_text_classification_pipeline_on_any_batch() {
    if !has_onnx_runtime("parity of classifiers") {
        return;
    }
    let mut models = 0;
    for entry in fs::read_dir(fixture("golden")).unwrap() {
        let golden: Golden =
            serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let mut folders = vec![golden.model.clone()];
        if golden.model == "tiny-bert-quality" {
            // The graph that tools/model.py makes from the same weights.
            folders.push("tiny-bert-quality-made".into());
        }
        for name in folders {
            let folder = fixture("models").join(&name);
            let mut largest = (0.0f64, 0.0f64);
            for budget in [1, 150, 50_000] {
                let mut labeler = labeler(&folder, budget);
                let own = own_labels(labeler.folder());
                assert_eq!(own.mode, golden.default_mode, "{name}");
                for mode in Mode::ALL {
                    let set = LabelSet {
                        mode: *mode,
                        ..own.clone()
                    };
                    let cases = || golden.cases.iter().filter(|case| case.mode == *mode);
                    let texts: Vec<String> = cases().map(|case| case.text.clone()).collect();
                    for (case, result) in cases().zip(score(&mut labeler, &set, &texts)) {
                        let labels: Vec<&String> =
                            set.labels.iter().map(|label| &label.label).collect();
                        assert_eq!(labels, case.labels.iter().collect::<Vec<_>>());
                        let scores = off(result.scores.scores.iter().copied(), &case.scores);
                        let raw = result.raw.iter().flatten().map(|x| f64::from(*x));
                        let wanted: Vec<f64> = case.logits.iter().flatten().copied().collect();
                        let logits = off(raw, &wanted);
                        assert!(
                            scores <= TOLERANCE && logits <= TOLERANCE,
                            "{name} `{}` with a budget of {budget}: scores off by {scores:.1e}, logits by {logits:.1e}",
                            case.name
                        );
                        largest = (largest.0.max(scores), largest.1.max(logits));
                    }
                }
            }
            writeln!(
                std::io::stderr(),
                "{name}: {} cases, largest score error {:.1e}, largest logit error {:.1e}",
                golden.cases.len(),
                largest.0,
                largest.1
            )
            .unwrap();
            models += 1;
        }
    }
    assert_eq!(models, 5, "run tools/golden.py");
}

/// Writes a model folder with a configuration and one of the unusual graphs.
fn odd(config: &str, graph: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = fixture("models/tiny-bert-quality");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    fs::copy(fixture("odd").join(graph), dir.path().join("model.onnx")).unwrap();
    fs::write(dir.path().join("config.json"), config).unwrap();
    dir
}

/// Loads a folder and scores a text; returns the result or the error.
fn tried(dir: &Path) -> Result<Vec<f64>, String> {
    let folder = ModelFolder::open(dir, None).map_err(|error| error.to_string())?;
    let options = EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        ..EngineOptions::default()
    };
    let engine =
        OnnxEngine::load_unchecked(&folder, &options).map_err(|error| error.to_string())?;
    let set = LabelSet {
        mode: Mode::Raw,
        ..own_labels(&folder)
    };
    let mut labeler = Labeler::load(folder, Box::new(engine), 1_000).unwrap();
    let prepared = labeler.prepare(&set).map_err(|error| error.to_string())?;
    let texts = ["a text".to_owned(), "another text".to_owned()];
    let results = labeler.score_all(&prepared, &texts, &|| false);
    let mut results = results.map_err(|error| error.to_string())?.unwrap();
    let result = results.remove(0).map_err(|error| error.to_string())?;
    Ok(result.scores.scores)
}

const THREE: &str = r#"{"vocab_size":9999,"id2label":{"0":"a","1":"b","2":"c"}}"#;

#[test]
fn unusual_models_load_or_are_rejected_with_a_reason() {
    if !has_onnx_runtime("odd classifiers") {
        return;
    }
    let scores = |config: &str, graph: &str| tried(odd(config, graph).path());
    let three = scores(THREE, "three.onnx").unwrap();
    assert_eq!(three.len(), 3);
    assert!(three[0] < 0.0 && three[2] > 0.0);
    assert_eq!(scores(THREE, "half.onnx").unwrap(), three);
    // A graph that accepts only one row of 16 tokens.
    let fixed = scores(THREE, "fixed.onnx").unwrap();
    assert!(fixed.iter().zip(&three).all(|(a, b)| (a - b).abs() < 1e-6));
    // A model with unnamed labels: `num_labels` counts them, and the architecture shows that it is a classifier.
    let unnamed = r#"{"num_labels":3,"architectures":["BertForSequenceClassification"]}"#;
    assert_eq!(scores(unnamed, "three.onnx").unwrap(), three);
    let one = r#"{"problem_type":"regression","id2label":{"0":"LABEL_0"}}"#;
    assert_eq!(scores(one, "flat.onnx").unwrap().len(), 1);
    let many: Vec<String> = (0..1_000)
        .map(|n| format!(r#""{n}":"label {n}""#))
        .collect();
    let many = format!(r#"{{"id2label":{{{}}}}}"#, many.join(","));
    assert_eq!(scores(&many, "thousand.onnx").unwrap().len(), 1_000);

    let two = r#"{"id2label":{"0":"a","1":"b"}}"#;
    for (config, graph, message) in [
        (
            two,
            "three.onnx",
            "3 numbers per row, but `config.json` has 2 labels",
        ),
        (THREE, "int8.onnx", "topicmill reads float32 and float16"),
        (
            r#"{"id2label":{"0":"a","2":"c"}}"#,
            "three.onnx",
            "has a gap",
        ),
        (
            r#"{"id2label":{"0":"a","1":"a","2":"c"}}"#,
            "three.onnx",
            "the name `a`",
        ),
        (
            r#"{"architectures":["BertModel"]}"#,
            "three.onnx",
            "neither `label2id`",
        ),
        ("{}", "three.onnx", "neither `label2id`"),
    ] {
        let error = scores(config, graph).unwrap_err();
        assert!(error.contains(message), "{config} {graph}: {error}");
    }
}

#[test]
fn labels_that_the_model_lacks_are_rejected() {
    if !has_onnx_runtime("labels of a classifier") {
        return;
    }
    let mut labeler = labeler(&fixture("models/tiny-bart-moods"), 1_000);
    let own = own_labels(labeler.folder());
    let mut turned = own.clone();
    turned.labels.reverse();
    let texts = ["politics".to_owned()];
    let there = score(&mut labeler, &own, &texts).remove(0);
    let back = score(&mut labeler, &turned, &texts).remove(0);
    let mut scores = back.scores.scores.clone();
    scores.reverse();
    assert_eq!(scores, there.scores.scores, "labels are found by name");
    let mut fewer = own.clone();
    fewer.labels.pop();
    assert!(matches!(
        labeler.prepare(&fewer).unwrap_err(),
        LabelerError::OwnLabels { .. }
    ));
    let nli = repository("tests/it/fixtures/models/tiny-bert-nli");
    let mut nli = labeler_of(ModelFolder::open(&nli, None).unwrap(), 1_000);
    let raw = LabelSet {
        mode: Mode::Raw,
        ..own
    };
    assert!(matches!(
        nli.prepare(&raw).unwrap_err(),
        LabelerError::Raw(_)
    ));
}

/// Parses NDJSON rows by id.
fn rows(path: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| (row["id"].to_string(), row)).collect()
}

const MOODS: &str = "tests/it/fixtures/classifiers/models/tiny-bart-moods";

fn model(path: &str) -> String {
    repository(path).display().to_string()
}

/// Returns words that the tiny models know, different for each number below 49.
fn words(i: usize) -> String {
    const BEGIN: [&str; 7] = [
        "the sea",
        "climate change",
        "a new phone",
        "the home team",
        "politics",
        "soup",
        "my doctor",
    ];
    const END: [&str; 7] = [
        "science",
        "is safe",
        "scored twice",
        "and books",
        "is slow",
        "travel",
        "a distant star",
    ];
    format!("{} {}", BEGIN[i % 7], END[i / 7])
}

/// Returns NDJSON of texts, one of which cannot be scored.
fn texts() -> String {
    let text = |i: usize| format!("{}\n", json!({"id": i, "text": words(i)}));
    let good: String = (0..40).map(text).collect();
    format!("{good}{}\n", json!({"id": 40, "text": null}))
}

#[test]
fn custom_labels_are_rejected_for_a_classifier() {
    let program = Program::new();
    program.write("in.ndjson", texts());
    let moods = model(MOODS);
    let base = ["score", "in.ndjson", "out.ndjson"];
    let ran = program.run(&[&base[..], &["--model", &moods, "--label", "food"]].concat());
    ran.expect_exit(2, "`tiny-bart-moods` is a classifier");
    ran.expect_stderr("`joy`");
    program
        .run(&[&base[..], &["--mode", "raw", "--label", "food"]].concat())
        .expect_exit(2, "is not a classifier");
    program
        .run(&[&base[..], &["--model", &moods, "--shortlist", "2"]].concat())
        .expect_exit(2, "all labels in one pass");
}

#[test]
fn a_prepared_classifier_is_verified_and_a_changed_configuration_rejected() {
    if !has_onnx_runtime("verifying a classifier") {
        return;
    }
    let program = Program::new();
    let made = fixture("models/tiny-bert-quality-made");
    let copy = program.folder.path().join("made");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&made).unwrap().flatten() {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let ran = program.ok(&["model", "info", "made", "--format", "json"]);
    let facts: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let fact = |what: &str| &facts.iter().find(|row| row["what"] == what).unwrap()["value"];
    assert_eq!(
        (fact("kind"), fact("labels"), fact("default mode")),
        (&json!("classifier"), &json!(["LABEL_0"]), &json!("raw"))
    );
    let ran = program.ok(&["model", "verify", "made", "--format", "json"]);
    let table: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let graph = |name: &str| table.iter().find(|row| row["graph"] == name).unwrap();
    for name in ["cpu-fp32", "cpu-int8"] {
        let off: f64 = graph(name)["scores off"].as_str().unwrap().parse().unwrap();
        assert!(off < 0.5 && graph(name)["state"] == "ok", "{table:?}");
    }
    // The changed configuration no longer has the hash in the manifest.
    let config = fs::read_to_string(copy.join("config.json")).unwrap();
    fs::write(
        copy.join("config.json"),
        config.replace("LABEL_0", "quality"),
    )
    .unwrap();
    program.write("in.ndjson", texts());
    program
        .run(&["score", "in.ndjson", "out.ndjson", "--model", "made"])
        .expect_exit(5, "SHA-256");
}

/// Returns posts, two of which have the same text.
fn posts() -> String {
    let post = |i: usize| {
        json!({
            "id": format!("k{i:05}"), "title": words(i % 20), "selftext": "",
            "subreddit": "cooking", "created_utc": 1_700_000_000 + i, "score": i,
        })
    };
    (0..21).map(|i| format!("{}\n", post(i))).collect()
}

/// A database with posts, and the program on it.
struct Scene {
    program: Program,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    fn new(url: &str) -> Self {
        let scene = Self {
            program: Program::with_database(url),
        };
        let file = scene.program.write("posts.ndjson", posts());
        scene.ok(&["import", &file]);
        scene
    }

    fn sql(&self, query: &str) -> Vec<Value> {
        let ran = self.ok(&["sql", query, "--format", "json"]);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Labels with a model and makes its labels current; returns the run's counts.
    fn classify(&self, model: &str, more: &[&str]) -> Value {
        let args = ["classify", "--model", model, "--make-current"];
        self.run_counts(&[&args[..], more].concat())
    }
}

#[test]
fn a_classifier_assigns_its_own_labels() {
    if !has_onnx_runtime("classify with a classifier") {
        return;
    }
    for database in databases() {
        let scene = Scene::new(&database.url);
        let moods = model(MOODS);
        let shown = "SELECT COUNT(*) AS n FROM labeled_posts WHERE label IS NOT NULL";
        scene.ok(&["classify", "--limit", "5"]);
        let current = scene.sql(shown);
        let ran = scene.ok(&["classify", "--model", &moods]);
        ran.expect_stderr("`tiny-bart-moods` is a classifier");
        ran.expect_stderr("stored in addition to the current ones");
        assert_eq!(scene.sql(shown), current, "the views are unchanged");
        // With --make-current, they become current without any further labelling.
        assert_eq!(scene.classify(&moods, &[])["posts"], 0);
        let scores = scene
            .sql("SELECT label, COUNT(*) AS posts FROM post_scores GROUP BY label ORDER BY label");
        let labels: Vec<&Value> = scores.iter().map(|row| &row["label"]).collect();
        assert_eq!(labels, ["anger", "joy", "sadness"]);
        assert!(scores.iter().all(|row| row["posts"] == 21));
        // `score` returns the same labels and scores for a file of these texts.
        let text = |i: usize| json!({"id": words(i), "text": words(i)}).to_string() + "\n";
        let texts: String = (0..20).map(text).collect();
        scene.program.write("texts.ndjson", texts);
        scene.ok(&["score", "texts.ndjson", "out.ndjson", "--model", &moods]);
        let of_file = rows(&scene.program.folder.path().join("out.ndjson"));
        for row in scene.sql("SELECT title, label, score FROM labeled_posts") {
            let other = &of_file[&row["title"].to_string()];
            assert_eq!(row["label"], other["label"]);
            let off = row["score"].as_f64().unwrap() - other["score"].as_f64().unwrap();
            assert!(off.abs() < 1e-4);
        }
    }
}

/// Returns a pipeline file with these settings and labels, each with a slug.
fn pipeline(settings: &str, labels: &[(&str, &str)]) -> String {
    let topic = |(slug, label): &(&str, &str)| {
        format!("[[topic]]\nslug = \"{slug}\"\nlabel = \"{label}\"\n")
    };
    let topics: String = labels.iter().map(topic).collect();
    format!("name = \"mine\"\n{settings}\n{topics}")
}

const MINE: [(&str, &str); 3] = [("happy", "joy"), ("angry", "anger"), ("sad", "sadness")];

#[test]
fn a_pipeline_file_can_rename_classifier_labels_and_set_a_threshold() {
    if !has_onnx_runtime("a pipeline file for a classifier") {
        return;
    }
    let database = sqlite();
    let scene = Scene::new(&database.url);
    let moods = model(MOODS);
    let write = |name: &str, text: String| scene.program.write(name, text);
    assert_eq!(scene.classify(&moods, &[])["pairs"], 60);
    let file = write(
        "mine.toml",
        pipeline("threshold = 0.9\ntemperature = 2.0", &MINE),
    );
    let counts = scene.classify(&moods, &["--pipeline", &file]);
    assert_eq!(
        (&counts["posts"], &counts["pairs"]),
        (&json!(21), &json!(0))
    );
    assert!(counts["unsure"].as_i64().unwrap() > 0, "{counts}");
    let slugs = scene.sql("SELECT DISTINCT label FROM post_scores ORDER BY label");
    assert_eq!(slugs[0]["label"], "angry");
    // Stored logits yield the same labels.
    let surer = write("surer.toml", pipeline("temperature = 0.5", &MINE));
    let found = scene.json(&["labels", "diff", "current", &format!("{surer}@{moods}")]);
    assert!(found.to_string().contains("21"), "{found}");

    // Labels of a different set are replaced by the model's labels.
    let others = write("others.toml", pipeline("", &MINE[..2]));
    scene
        .ok(&["classify", "--model", &moods, "--pipeline", &others])
        .expect_stderr("instead of the labels in the pipeline `mine`");
    let second = write("second.toml", pipeline("background = \"reddit\"", &MINE));
    scene
        .run(&["classify", "--model", &moods, "--pipeline", &second])
        .expect_exit(2, "omit the background");
}
