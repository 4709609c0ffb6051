//! Tests GLiClass models: in any batch, scores equal those of the `gliclass` package; each logit depends on the whole
//! label set, and is stored for that set only.
//!
//! `tools/golden.py` made the models (tiny, with random weights) and recorded the package's scores.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use topicmill_score::folder::{ModelFolder, check_config};
use topicmill_score::{
    AnyEngine, Device, EngineName, EngineOptions, LabelSet, Labeler, LabelerError, Mode,
};

use crate::support::builders::{self, LABELS, lines, pipeline};
use crate::support::engine::{has_onnx_runtime, has_openvino, labeler, repository};
use crate::support::postgres::databases;
use crate::support::program::Program;

const TOLERANCE: f64 = 1e-4;
const BERT: &str = "tiny-gliclass-bert";
const DEBERTA: &str = "tiny-gliclass-deberta";
const TASK: &str = "tiny-gliclass-task";

#[derive(Debug, Deserialize)]
struct Golden {
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

fn fixture(path: &str) -> PathBuf {
    repository("tests/it/fixtures/gliclass").join(path)
}

fn folder(name: &str) -> PathBuf {
    fixture("models").join(name)
}

fn label_set(labels: &[String], mode: Mode) -> LabelSet {
    LabelSet {
        mode,
        ..builders::label_set(labels)
    }
}

fn off(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let pairs = found.iter().zip(wanted);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Returns the largest score and logit errors over a model's cases, in batches with texts from other cases.
fn largest_errors(labeler: &mut Labeler, golden: &Golden, seed: u64) -> (f64, f64) {
    let mut largest = (0.0f64, 0.0f64);
    for case in &golden.cases {
        let others = golden.cases.iter().map(|case| case.text.clone()).take(5);
        let mut texts: Vec<String> = others.chain([case.text.clone()]).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut texts);
        let prepared = labeler
            .prepare(&label_set(&case.labels, case.mode))
            .unwrap();
        let results = labeler.score_all(&prepared, &texts, &|| false).unwrap();
        let place = texts.iter().position(|text| *text == case.text).unwrap();
        let result = results.unwrap().swap_remove(place).unwrap();
        let raw: Vec<f64> = result.raw.iter().flatten().map(|x| f64::from(*x)).collect();
        let of_logits = off(&raw, &case.logits.concat());
        let of_scores = off(&result.scores.scores, &case.scores);
        assert!(
            of_scores <= TOLERANCE && of_logits <= TOLERANCE,
            "`{}`: scores off by {of_scores:.1e}, logits by {of_logits:.1e}",
            case.name
        );
        largest = (largest.0.max(of_scores), largest.1.max(of_logits));
    }
    largest
}

#[test]
fn scores_equal_the_package_on_any_batch() {
    if !has_onnx_runtime("parity with gliclass") {
        return;
    }
    for name in [BERT, DEBERTA, TASK] {
        let path = fixture("golden").join(format!("{name}.json"));
        let golden: Golden = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        for (seed, budget) in [(0, 1), (1, 300), (2, 50_000)] {
            let mut labeler = labeler(&folder(name), budget);
            let (scores, logits) = largest_errors(&mut labeler, &golden, seed);
            writeln!(
                std::io::stderr(),
                "{name}, {budget} tokens: largest score error {scores:.1e}, largest logit error {logits:.1e}"
            )
            .unwrap();
        }
        if has_openvino("parity of OpenVINO with gliclass") {
            let options = EngineOptions {
                device: Device::Cpu,
                engine: EngineName::OpenVino,
                threads: Some(1),
                ..EngineOptions::default()
            };
            let (folder, engine) = AnyEngine::open(&folder(name), None, &options).unwrap();
            let mut labeler = Labeler::load(folder, Box::new(engine), 300).unwrap();
            largest_errors(&mut labeler, &golden, 3);
        }
    }
}

/// Copies a model folder, with its manifest if `keep_manifest`, and changes its `config.json`.
fn changed(name: &str, change: &dyn Fn(&mut Value), keep_manifest: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder(name)).unwrap().flatten() {
        if keep_manifest || entry.file_name() != "manifest.toml" {
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
    }
    let path = dir.path().join("config.json");
    let before = fs::read(&path).unwrap();
    let mut config: Value = serde_json::from_slice(&before).unwrap();
    change(&mut config);
    let after = serde_json::to_vec(&config).unwrap();
    fs::write(&path, &after).unwrap();
    if keep_manifest {
        let hash =
            |bytes: &[u8]| topicmill_score::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes));
        let manifest = dir.path().join("manifest.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, text.replace(&hash(&before), &hash(&after))).unwrap();
    }
    dir
}

/// Loads a folder and prepares labels; returns the error.
fn error_of(dir: &Path, labels: &[&str]) -> String {
    let folder = match ModelFolder::open(dir, None) {
        Ok(folder) => folder,
        Err(error) => return error.to_string(),
    };
    let options = EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        ..EngineOptions::default()
    };
    let engine = AnyEngine::load_unchecked(&folder, &options).unwrap();
    let mut labeler = match Labeler::load(folder, Box::new(engine), 300) {
        Ok(labeler) => labeler,
        Err(error) => return error.to_string(),
    };
    let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let prepared = labeler.prepare(&label_set(&labels, Mode::Single));
    let error: LabelerError = prepared.unwrap_err();
    error.to_string()
}

#[test]
fn unusable_models_and_labels_are_rejected_with_a_reason() {
    if !has_onnx_runtime("odd GLiClass models") {
        return;
    }
    let same = |_: &mut Value| {};
    let long = "many words about the sea and the mountains ".repeat(10);
    let rejected = |message: &str, labels: &[&str], manifest: bool, change: &dyn Fn(&mut Value)| {
        let dir = changed(BERT, change, manifest);
        let error = error_of(dir.path(), labels);
        assert!(error.contains(message), "{message}: {error}");
    };
    rejected("architecture `bi-encoder`", &["a"], true, &|config| {
        config["architecture_type"] = json!("bi-encoder");
    });
    let message = "7 (`class_token_index` of `config.json`) is not the id";
    rejected(message, &["a"], true, &|config| {
        config["class_token_index"] = json!(7);
    });
    let message = "`text_token_index` is not a token id";
    rejected(message, &["a"], true, &|config| {
        config["text_token_index"] = json!(-1);
    });
    rejected("needs `manifest.toml`", &["a"], false, &same);
    // `model pull` rejects such a model before it downloads the weights.
    let foreign = check_config(changed(BERT, &same, false).path()).unwrap_err();
    assert!(
        foreign.to_string().contains("needs `manifest.toml`"),
        "{foreign}"
    );
    check_config(&folder(BERT)).unwrap();
    let message = "no room for `c`, `d`: its limit is 2 labels";
    rejected(message, &["a", "b", "c", "d"], true, &|config| {
        config["max_labels_alloc"] = json!("fixed");
        config["max_num_classes"] = json!(2);
    });
    let message = "label `b <<LABEL>> c`: it contains `<<LABEL>>`";
    rejected(message, &["a", "b <<LABEL>> c"], true, &same);
    let longer = format!("{long}more");
    let too_long: [&str; 4] = ["a", "b", &long, &longer];
    rejected("its limit is 256 tokens;", &too_long, true, &same);
    let error = error_of(&folder(TASK), &too_long);
    let message = "its limit is 256 tokens, of which the task prompt takes";
    assert!(error.contains(message), "{error}");
}

#[test]
fn an_unusable_task_prompt_is_rejected_with_a_reason() {
    if !has_onnx_runtime("task prompts of GLiClass models") {
        return;
    }
    let rejected = |task_prompt: Value, message: &str| {
        let change = |config: &mut Value| config["task_prompt"] = task_prompt.clone();
        let dir = changed(BERT, &change, true);
        let error = error_of(dir.path(), &["a"]);
        assert!(error.contains(message), "{message}: {error}");
    };
    rejected(json!(3), "`task_prompt` is not a string");
    for token in ["<<LABEL>>", "<<SEP>>"] {
        let message = format!("it contains `{token}`, which separates labels and text; build");
        rejected(json!(format!("Choose{token}")), &message);
    }
    let long = json!("What is this text about? ".repeat(50));
    rejected(
        long,
        "no room for labels and a text in the model's window of 256",
    );
    // The vectors in the manifest were made with the folder's own task prompt.
    rejected(
        json!("Choose:"),
        "its ids differ from those in `manifest.toml`",
    );
}

/// A database with posts, and a program on it.
struct Scene {
    program: Program,
    model: String,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    fn pipeline(&self, settings: &str, labels: &[(&str, &str)]) -> String {
        self.write("labels.toml", pipeline("mine", settings, labels))
    }

    /// Labels all posts; returns the numbers of posts and of computed pairs.
    fn classify(&self, settings: &str, labels: &[(&str, &str)]) -> (i64, i64) {
        let file = self.pipeline(settings, labels);
        let args = ["classify", "--model", &self.model, "--make-current"];
        let counts = self.run_counts(&[&args[..], &["--pipeline", &file]].concat());
        (
            counts["posts"].as_i64().unwrap(),
            counts["pairs"].as_i64().unwrap(),
        )
    }

    fn count(&self, sql: &str) -> i64 {
        self.json(&["sql", sql])[0]["n"].as_i64().unwrap()
    }
}

const POSTS: usize = 30;
const TEXTS: i64 = 20;

#[test]
fn a_logit_is_stored_for_its_whole_label_set() {
    if !has_onnx_runtime("classify with GLiClass") {
        return;
    }
    for database in databases() {
        let scene = Scene {
            program: Program::with_database(&database.url),
            model: folder(BERT).display().to_string(),
        };
        let file = scene.write("posts.ndjson", lines(POSTS, 20));
        scene.ok(&["import", &file]);
        let posts = i64::try_from(POSTS).unwrap();

        let file = scene.pipeline("", &LABELS);
        let args = ["classify", "--model", &scene.model, "--dry-run"];
        let ran = scene.ok(&[&args[..], &["--pipeline", &file, "--format", "json"]].concat());
        let (rows, pass) = (&ran.stdout, "texts to compute");
        let rows: Value = serde_json::from_str(rows).unwrap();
        let row = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["dry run"] == pass);
        assert_eq!(row.unwrap()["value"], TEXTS, "{rows}");
        assert_eq!(scene.classify("", &LABELS), (posts, 3 * TEXTS));
        assert_eq!(scene.classify("", &LABELS), (0, 0));
        // Settings that only turn logits into labels cost no inference.
        for settings in ["threshold = 0.5", "temperature = 2.0"] {
            assert_eq!(scene.classify(settings, &LABELS), (posts, 0), "{settings}");
        }
        // An additional label or a different order makes a different set.
        let more = [&LABELS[..], &[("travel", "travel by train")]].concat();
        let file = scene.pipeline("", &more);
        let found = scene.json(&[
            "labels",
            "diff",
            "current",
            &format!("{file}@{}", scene.model),
        ]);
        assert_eq!(found["cost"]["pairs_missing"], 4 * TEXTS, "{found}");
        let ran = scene.ok(&[
            "labels",
            "diff",
            "current",
            &format!("{file}@{}", scene.model),
        ]);
        assert!(
            ran.stdout.contains("requires computing all again"),
            "{}",
            ran.stdout
        );
        assert_eq!(scene.classify("", &more), (posts, 4 * TEXTS));
        let turned: Vec<_> = LABELS.into_iter().rev().collect();
        assert_eq!(scene.classify("", &turned), (posts, 3 * TEXTS));
        // The topics of a background are scored together with the labels.
        let (of, pairs) = scene.classify("background = \"reddit\"", &LABELS);
        assert_eq!((of, pairs), (posts, 4 * TEXTS));

        // `score` returns the same labels and scores for a file of these texts, in different batches.
        let file = scene.pipeline("", &LABELS);
        assert_eq!(scene.classify("", &LABELS), (0, 0));
        let rows = scene.json(&[
            "sql",
            "SELECT DISTINCT title, label, score FROM labeled_posts",
        ]);
        let rows = rows.as_array().unwrap();
        let text =
            |row: &Value| json!({"id": row["title"], "text": row["title"]}).to_string() + "\n";
        scene.write("texts.ndjson", rows.iter().map(text).collect::<String>());
        let args = [
            "score",
            "texts.ndjson",
            "out.ndjson",
            "--model",
            &scene.model,
        ];
        scene.ok(&[&args[..], &["--pipeline", &file]].concat());
        let scored: Vec<Value> = scene
            .read("out.ndjson")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(scored.len(), rows.len());
        for row in rows {
            let other = scored.iter().find(|one| one["id"] == row["title"]).unwrap();
            assert_eq!(row["label"], other["label"]);
            let off = row["score"].as_f64().unwrap() - other["score"].as_f64().unwrap();
            assert!(off.abs() < 1e-5, "{row} {other}");
        }

        // Gold labels are compared with stored logits, and a fit learns from them, without inference.
        let labels = ["gaming", "food", "music"];
        let gold: String = (0..POSTS)
            .map(|i| format!("k{i:05},{}\n", labels[i % 20 % 3]))
            .collect();
        let gold = scene.write("gold.csv", format!("id,label\n{gold}"));
        let found = scene.json(&["labels", "evaluate", "--gold", &gold]);
        assert_eq!(found["evaluation"]["outcome"]["all"], POSTS, "{found}");
        let calibrate = ["labels", "calibrate", "--gold", &gold, "--label-set", &file];
        let more = ["--target-precision", "0.01", "--model", &scene.model];
        let found = scene.json(&[&calibrate[..], &more].concat());
        assert!(found["temperature"].as_f64().unwrap() > 0.0, "{found}");
        let fit = ["labels", "fit", "--gold", &gold, "--make-current"];
        let found = scene.json(&[&fit[..], &["--model", &scene.model]].concat());
        assert_eq!(found["answers"], POSTS, "{found}");
        assert_eq!(
            scene.classify("", &LABELS),
            (0, 0),
            "the fit labels stored logits"
        );

        // Dropping a label set drops its logits but not other sets' logits. Purging all posts with a text drops all of
        // its logits.
        let pair_logits = || scene.count("SELECT COUNT(*) AS n FROM pair_logits");
        assert_eq!(pair_logits(), (3 + 4 + 3 + 4) * TEXTS);
        let with_travel = "SELECT hash FROM label_sets WHERE id IN \
            (SELECT label_set_id FROM labels GROUP BY label_set_id HAVING COUNT(*) = 4)";
        let hash = scene.json(&["sql", with_travel])[0]["hash"].clone();
        scene.ok(&["labels", "drop", hash.as_str().unwrap(), "--yes"]);
        assert_eq!(pair_logits(), (3 + 3 + 4) * TEXTS);
        let ids = scene.write("ids.txt", "t3_k00000\nt3_k00020\n");
        scene.ok(&["purge", "--ids", &ids]);
        assert_eq!(pair_logits(), (3 + 3 + 4) * (TEXTS - 1));
        let ran = scene.ok(&["model", "info", &scene.model]);
        assert!(ran.stdout.contains("a text together with all labels"));
        let ran = scene.ok(&["model", "info", &folder(TASK).display().to_string()]);
        assert!(ran.stdout.contains("What is this text about"));
        scene.ok(&["model", "verify", &scene.model]);
    }
}
