//! Tests GLiClass models: each logit depends on the whole label set, and is stored for that set only. The scores are
//! compared with the reference in `parity`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use topicmill_core::table;
use topicmill_score::folder::{ModelFolder, check_config};
use topicmill_score::{Labeler, OpenedEngine};

use crate::models::change_config;
use crate::support::builders::{self, LABELS, lines};
use crate::support::engine::{copy_files, one_thread, repository};
use crate::support::program::{Program, find_row};

const BERT: &str = "tiny-gliclass-bert";
const TASK: &str = "tiny-gliclass-task";

fn folder(name: &str) -> PathBuf {
    repository("tests/it/fixtures/gliclass/models").join(name)
}

/// Copies a model folder and changes its `config.json`, whose new hash its manifest gets.
fn changed(name: &str, change: impl Fn(&mut Value)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_files(&folder(name), dir.path());
    change_config(dir.path(), change);
    dir
}

/// Loads a folder and prepares labels; returns the error.
fn error_of(dir: &Path, labels: &[&str]) -> String {
    let folder = match ModelFolder::open(dir, None) {
        Ok(folder) => folder,
        Err(error) => return error.to_string(),
    };
    let opened = OpenedEngine::load_unchecked(&folder, &one_thread()).unwrap();
    let mut labeler = match Labeler::load(folder, opened.engine, 300) {
        Ok(labeler) => labeler,
        Err(error) => return error.to_string(),
    };
    let prepared = labeler.prepare(&builders::label_set(labels));
    prepared.unwrap_err().to_string()
}

#[test]
fn an_unusable_configuration_is_rejected_with_a_reason() {
    for (key, value, message) in table! {
        "architecture_type", json!("bi-encoder"), "architecture `bi-encoder`";
        "class_token_index", json!(7), "7 (`class_token_index` of `config.json`) is not the id";
        "text_token_index", json!(-1), "`text_token_index` is not a token id";
    } {
        let dir = changed(BERT, |config| config[key] = value.clone());
        let error = error_of(dir.path(), &["a"]);
        assert!(error.contains(message), "{message}: {error}");
    }
    check_config(&folder(BERT)).unwrap();
    // `model pull` rejects a model without a manifest before it downloads the weights.
    let dir = changed(BERT, |_| {});
    fs::remove_file(dir.path().join("manifest.toml")).unwrap();
    let foreign = check_config(dir.path()).unwrap_err().to_string();
    for error in [error_of(dir.path(), &["a"]), foreign] {
        assert!(error.contains("needs `manifest.toml`"), "{error}");
    }
}

#[test]
fn labels_that_do_not_fit_the_model_are_rejected_with_a_reason() {
    let [two_labels, no_allocation] = [json!("fixed"), json!(null)].map(|allocation| {
        changed(BERT, |config| {
            config["max_labels_alloc"] = allocation.clone();
            config["max_num_classes"] = json!(2);
        })
    });
    let long = "many words about the sea and the mountains ".repeat(10);
    let longer = format!("{long}more");
    let too_long: [&str; 4] = ["a", "b", &long, &longer];
    for (dir, labels, message) in table! {
        two_labels.path(), &["a", "b", "c", "d"][..], "no room for `c`, `d`: its limit is 2 labels";
        no_allocation.path(), &["a", "b", "c", "d"], "no room for `c`, `d`: its limit is 2 labels";
        &folder(BERT), &["a", "b <<LABEL>> c"], "label `b <<LABEL>> c`: it contains `<<LABEL>>`";
        &folder(BERT), &too_long, "its limit is 256 tokens;";
        &folder(TASK), &too_long, "its limit is 256 tokens, of which the task prompt takes";
    } {
        let error = error_of(dir, labels);
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn an_unusable_task_prompt_is_rejected_with_a_reason() {
    let rejected = |task_prompt: Value, message: &str| {
        let dir = changed(BERT, |config| config["task_prompt"] = task_prompt.clone());
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

const POSTS: usize = 30;
const TEXTS: u64 = 20;

/// A program with posts, and a model.
struct Scene {
    program: Program,
    model: String,
}

impl Scene {
    /// Labels all posts; returns the numbers of posts and of computed pairs.
    fn classify(&self, settings: &str, labels: &[(&str, &str)]) -> (u64, u64) {
        self.program.pipeline("mine", settings, labels);
        let flags = format!("--model {} --pipeline mine.toml", self.model);
        let counts = self.program.classify(&flags);
        let [posts, pairs] = ["posts", "pairs"].map(|count| counts[count].as_u64().unwrap());
        (posts, pairs)
    }

    fn new() -> Self {
        let program = Program::new();
        program.import(&lines(POSTS, 20));
        let model = folder(BERT).display().to_string();
        Self { program, model }
    }
}

#[test]
fn a_logit_is_stored_for_its_whole_label_set() {
    let scene = Scene::new();
    let Scene { program, model } = &scene;
    let posts = POSTS as u64;
    program.pipeline("mine", "", &LABELS);
    let dry = program.json(&format!(
        "classify --model {model} --dry-run --pipeline mine.toml"
    ));
    let row = find_row(&dry, "dry run", "texts to compute");
    assert_eq!(row["value"], TEXTS, "{dry}");
    assert_eq!(scene.classify("", &LABELS), (posts, 3 * TEXTS));
    assert_eq!(scene.classify("", &LABELS), (0, 0));
    // Settings that only turn logits into labels cost no inference.
    for settings in ["threshold = 0.5", "temperature = 2.0"] {
        assert_eq!(scene.classify(settings, &LABELS), (posts, 0), "{settings}");
    }
    // An additional label or a different order makes a different set.
    let more = [&LABELS[..], &[("travel", "travel by train")]].concat();
    program.pipeline("mine", "", &more);
    let found = program.json(&format!("labels diff current mine.toml@{model}"));
    assert_eq!(found["cost"]["pairs_missing"], 4 * TEXTS, "{found}");
    assert_eq!(scene.classify("", &more), (posts, 4 * TEXTS));
    let turned: Vec<_> = LABELS.into_iter().rev().collect();
    assert_eq!(scene.classify("", &turned), (posts, 3 * TEXTS));
    // The topics of a background are scored together with the labels.
    let with_background = scene.classify("background = \"reddit\"", &LABELS);
    assert_eq!(with_background, (posts, 4 * TEXTS));

    // Dropping a label set drops its logits but not other sets' logits. Purging all posts with a text drops all of its
    // logits.
    let pair_logits = || program.count("pair_logits");
    assert_eq!(pair_logits(), (3 + 4 + 3 + 4) * TEXTS);
    let with_travel = "SELECT hash FROM label_sets WHERE id IN \
        (SELECT label_set_id FROM labels GROUP BY label_set_id HAVING COUNT(*) = 4)";
    let hash = program.scalar(with_travel);
    program.ok(&format!("labels drop {} --yes", hash.as_str().unwrap()));
    assert_eq!(pair_logits(), (3 + 3 + 4) * TEXTS);
    program.purge("t3_k00000\nt3_k00020\n");
    assert_eq!(pair_logits(), (3 + 3 + 4) * (TEXTS - 1));
}

#[test]
fn files_and_gold_labels_use_the_same_scores() {
    let scene = Scene::new();
    let Scene { program, model } = &scene;
    scene.classify("", &LABELS);
    // `score` returns the same labels and scores for a file of these texts, in different batches.
    let rows = program.query("SELECT DISTINCT title, label, score FROM labeled_posts");
    let text = |row: &Value| json!({"text": row["title"]}).to_string() + "\n";
    program.write("texts.ndjson", rows.iter().map(text).collect::<String>());
    let score = format!("score texts.ndjson out.ndjson --model {model} --pipeline mine.toml");
    program.ok(&score);
    let scored = program.read_lines("out.ndjson");
    assert_eq!(scored.len(), rows.len());
    for (row, other) in rows.iter().zip(scored) {
        assert_eq!(row["label"], other["label"]);
        let off = row["score"].as_f64().unwrap() - other["score"].as_f64().unwrap();
        assert!(off.abs() < 1e-5, "{row} {other}");
    }

    // Gold labels are compared with stored logits, and a fit learns from them, without inference.
    let gold = |i: usize| format!("k{i:05},{}\n", LABELS[i % 20 % 3].0);
    let gold: String = (0..POSTS).map(gold).collect();
    program.write("gold.csv", format!("id,label\n{gold}"));
    let found = program.json("labels evaluate --gold gold.csv");
    assert_eq!(found["evaluation"]["outcome"]["all"], POSTS, "{found}");
    let calibrate =
        "labels calibrate --gold gold.csv --label-set mine.toml --target-precision 0.01";
    let found = program.json(&format!("{calibrate} --model {model}"));
    assert!(found["temperature"].as_f64() > Some(0.0), "{found}");
    let fit = "labels fit --gold gold.csv --make-current";
    let found = program.json(&format!("{fit} --model {model}"));
    assert_eq!(found["answers"], POSTS, "{found}");
    // The fit labels stored logits.
    assert_eq!(scene.classify("", &LABELS), (0, 0));
    program.ok(&format!("model verify {model}"));
}
