//! Tests classifiers: unusual models load or are rejected with a reason, and a classifier assigns its own labels. The
//! scores are compared with the reference in `parity`.

use std::fs;
use std::path::Path;

use serde_json::json;
use topicmill_core::table;
use topicmill_core::{LabelSet, Mode};
use topicmill_score::folder::ModelFolder;
use topicmill_score::{Labeler, LabelerError, OnnxEngine};

use crate::support::builders;
use crate::support::engine::{copy_files, labeler, labeler_of, one_thread, repository, score};
use crate::support::program::{Program, find_row};

fn fixture(path: &str) -> std::path::PathBuf {
    repository("tests/it/fixtures/classifiers").join(path)
}

fn own_labels(folder: &ModelFolder) -> LabelSet {
    let head = folder.kind.head().expect("it is a classifier");
    LabelSet::of_classifier(&folder.name, head)
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

/// Loads a folder and scores a text; returns its scores or the error.
fn try_folder(dir: &Path) -> Result<Vec<f64>, String> {
    let folder = ModelFolder::open(dir, None).map_err(|error| error.to_string())?;
    let engine =
        OnnxEngine::load_unchecked(&folder, &one_thread()).map_err(|error| error.to_string())?;
    let set = LabelSet {
        mode: Mode::Raw,
        ..own_labels(&folder)
    };
    let mut labeler = Labeler::load(folder, Box::new(engine), 1_000).unwrap();
    let prepared = labeler.prepare(&set).map_err(|error| error.to_string())?;
    let texts = ["a text".to_owned(), "another text".to_owned()];
    let results = labeler.score_all(&prepared, &texts, &[], &|| false);
    let mut results = results.map_err(|error| error.to_string())?.unwrap();
    let result = results.remove(0).map_err(|error| error.to_string())?;
    Ok(result.scores.scores)
}

const THREE: &str = r#"{"vocab_size":9999,"id2label":{"0":"a","1":"b","2":"c"}}"#;

#[test]
fn unusual_models_load_or_are_rejected_with_a_reason() {
    let scores = |config: &str, graph: &str| try_folder(odd(config, graph).path());
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
    for (config, graph, message) in table! {
        two, "three.onnx", "3 numbers per row, but `config.json` has 2 labels";
        THREE, "int8.onnx", "topicmill reads float32 and float16";
        r#"{"id2label":{"0":"a","2":"c"}}"#, "three.onnx", "has a gap";
        r#"{"id2label":{"0":"a","1":"a","2":"c"}}"#, "three.onnx", "the name `a`";
        r#"{"architectures":["BertModel"]}"#, "three.onnx", "neither `label2id`";
        "{}", "three.onnx", "neither `label2id`";
    } {
        let error = scores(config, graph).unwrap_err();
        assert!(error.contains(message), "{config} {graph}: {error}");
    }
}

#[test]
fn labels_that_the_model_lacks_are_rejected() {
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

const MOODS: &str = "tests/it/fixtures/classifiers/models/tiny-bart-moods";

/// Returns words that the tiny models know, different for each number below 49.
fn title(i: usize) -> String {
    const BEGIN: &str = "the sea|climate change|a new phone|the home team|politics|soup|my doctor";
    const END: &str = "science|is safe|scored twice|and books|is slow|travel|a distant star";
    let words = |list: &'static str, place| list.split('|').nth(place).unwrap();
    format!("{} {}", words(BEGIN, i % 7), words(END, i / 7))
}

/// Returns a program with 21 posts, two of which have the same text, and the path of a classifier.
fn with_posts() -> (Program, String) {
    let program = Program::new();
    let lines = (0..21).map(|i| builders::line(i, &title(i % 20)));
    program.import(&lines.collect::<String>());
    (program, repository(MOODS).display().to_string())
}

#[test]
fn custom_labels_are_rejected_for_a_classifier() {
    let program = Program::new();
    program.write("in.ndjson", "{\"text\": \"soup\"}\n");
    let moods = repository(MOODS).display().to_string();
    for (flags, message) in [
        (format!("--model {moods} --label food"), "`joy`"),
        ("--mode raw --label food".to_owned(), "is not a classifier"),
        (format!("--model {moods} --shortlist 2"), "in one pass"),
    ] {
        let ran = program.run(&format!("score in.ndjson out.ndjson {flags}"));
        ran.expect_exit(2, message);
    }
}

#[test]
fn a_prepared_classifier_is_verified_and_a_changed_configuration_rejected() {
    let program = Program::new();
    let copy = program.path("made");
    fs::create_dir(&copy).unwrap();
    copy_files(&fixture("models/tiny-bert-quality-made"), &copy);
    let facts = program.json("model info made");
    let mut facts = facts.as_array().unwrap().iter();
    for (what, value) in [
        ("kind", json!("classifier")),
        ("labels", json!(["LABEL_0"])),
        ("default mode", json!("raw")),
    ] {
        assert!(
            facts.any(|row| row["what"] == what && row["value"] == value),
            "{what}"
        );
    }
    let table = program.json("model verify made");
    for name in ["cpu-fp32", "cpu-int8"] {
        let row = find_row(&table, "graph", name);
        let off: f64 = row["scores off"].as_str().unwrap().parse().unwrap();
        assert!(off < 0.5 && row["state"] == "ok", "{row}");
    }
    // The changed configuration no longer has the hash in the manifest.
    let config = program
        .read("made/config.json")
        .replace("LABEL_0", "quality");
    program.write("made/config.json", config);
    program.write("in.ndjson", "{\"text\": \"soup\"}\n");
    let ran = program.run("score in.ndjson out.ndjson --model made");
    ran.expect_exit(5, "SHA-256");
}

#[test]
fn a_classifier_assigns_its_own_labels() {
    let (program, moods) = with_posts();
    let shown = "labeled_posts WHERE label IS NOT NULL";
    program.ok("classify --limit 5");
    assert_eq!(program.count(shown), 5);
    program.ok(&format!("classify --model {moods}"));
    assert_eq!(program.count(shown), 5, "the views are unchanged");
    // With --make-current, they become current without any further labelling.
    assert_eq!(program.classify(&format!("--model {moods}"))["posts"], 0);
    assert_eq!(
        program.rows("SELECT label, COUNT(*) AS n FROM post_scores GROUP BY label ORDER BY label"),
        json!([["anger", 21], ["joy", 21], ["sadness", 21]])
    );
    // `score` returns the same labels and scores for a file of these texts.
    let text = |i: usize| json!({"text": title(i)}).to_string() + "\n";
    program.write("texts.ndjson", (0..20).map(text).collect::<String>());
    program.ok(&format!("score texts.ndjson out.ndjson --model {moods}"));
    let stored = "SELECT label, score FROM labeled_posts ORDER BY fullname LIMIT 20";
    let in_file = program.read_lines("out.ndjson");
    assert_eq!(in_file.len(), 20);
    for (stored, scored) in program.query(stored).iter().zip(in_file) {
        assert_eq!(stored["label"], scored["label"]);
        let off = stored["score"].as_f64().unwrap() - scored["score"].as_f64().unwrap();
        assert!(off.abs() < 1e-4, "{stored} {scored}");
    }
}

const MINE: [(&str, &str); 3] = [("happy", "joy"), ("angry", "anger"), ("sad", "sadness")];

#[test]
fn a_pipeline_file_can_rename_classifier_labels_and_set_a_threshold() {
    let (program, moods) = with_posts();
    let write = |name: &str, settings: &str, labels: &[(&str, &str)]| {
        let text = builders::pipeline("mine", settings, labels);
        program.write(name, text.replace("mode = \"single\"\n", ""));
    };
    let model = format!("--model {moods}");
    assert_eq!(program.classify(&model)["pairs"], 60);
    write("mine.toml", "threshold = 0.9\ntemperature = 2.0", &MINE);
    let counts = program.classify(&format!("{model} --pipeline mine.toml"));
    assert_eq!([&counts["posts"], &counts["pairs"]], [21, 0]);
    assert!(counts["unsure"].as_i64() > Some(0), "{counts}");
    let slugs = "SELECT DISTINCT label FROM post_scores ORDER BY label LIMIT 1";
    assert_eq!(program.scalar(slugs), "angry");
    // Stored logits yield the same labels.
    write("surer.toml", "temperature = 0.5", &MINE);
    let found = program.json(&format!("labels diff current surer.toml@{moods}"));
    assert_eq!(found["cost"]["pairs_missing"], 0, "{found}");

    // Labels of a different set are replaced by the model's labels.
    write("others.toml", "", &MINE[..2]);
    let ran = program.ok(&format!("classify {model} --pipeline others.toml"));
    ran.expect_stderr("instead of the labels");
    write("second.toml", "background = \"reddit\"", &MINE);
    let ran = program.run(&format!("classify {model} --pipeline second.toml"));
    ran.expect_exit(2, "omit the background");
}
