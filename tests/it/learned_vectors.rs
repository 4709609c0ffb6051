//! Tests learned label vectors: they apply to all labels of a set or to none, are never mixed with label text vectors,
//! and an invalid file is rejected.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use topicmill_core::{Label, LabelSet, LabelVector, table};
use topicmill_score::ModelFolder;

use crate::support::builders;
use crate::support::engine::{labeler, repository};
use crate::support::program::Program;

const SHIPPED: &str = "models/minilm-reddit-topics";
/// Slug, label and description of each topic. The test model has learned vectors for the first three.
const TOPICS: [(&str, &str, &str); 4] = [
    ("gaming", "video games", "Consoles and those who play."),
    ("food", "food and cooking", "Recipes and kitchens."),
    ("music", "music", "Bands, songs and concerts."),
    ("travel", "travel", "Trips, hotels and flights."),
];
const LEARNED: [usize; 3] = [0, 1, 2];
const TITLES: [&str; 5] = [
    "a new boss fight in this game",
    "how long to roast a chicken",
    "my band recorded a song",
    "three days in Lisbon without a plan",
    "a song about a chicken in a game",
];

/// Creates a folder with the default model and only these learned vectors.
fn model(program: &Program, name: &str, learned: Option<&Value>) -> PathBuf {
    let dir = program.path(name);
    fs::create_dir(&dir).unwrap();
    for file in ["model.onnx", "tokenizer.json", "tokenizer_config.json"] {
        symlink(repository(SHIPPED).join(file), dir.join(file)).unwrap();
    }
    if let Some(learned) = learned {
        fs::write(dir.join("label_vectors.json"), learned.to_string()).unwrap();
    }
    configure(&dir, learned.map(|_| "label_vectors.json"));
    dir
}

/// Sets the name of the vectors file in a folder's configuration, or removes it.
fn configure(dir: &Path, file: Option<&str>) {
    let config = fs::read(repository(SHIPPED).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    let block = config["zero_shot"].as_object_mut().unwrap();
    block.remove("label_vectors");
    if let Some(file) = file {
        block.insert("label_vectors".to_owned(), json!(file));
    }
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

/// Returns a vectors file in which each of the first three topics has the text vector of the next one, so that learned
/// vectors change every score.
fn exchanged(program: &Program) -> Value {
    let labels = LEARNED.map(|place| {
        let (slug, label, description) = TOPICS[place];
        Label {
            slug: slug.to_owned(),
            label: label.to_owned(),
            descriptions: vec![description.to_owned()],
        }
    });
    let set = LabelSet {
        labels: labels.to_vec(),
        ..builders::label_set(&[""; 0])
    };
    let by_words = model(program, "by-words", None);
    let prepared = labeler(&by_words, 4096).prepare(&set).unwrap();
    let vectors = prepared.label_vectors().unwrap();
    let written = labels.iter().enumerate().map(|(place, label)| {
        let mut texts = vec![format!("This text is about {}.", label.label)];
        texts.extend(label.descriptions.clone());
        json!({ "texts": texts, "vector": numbers(&vectors[(place + 1) % 3]) })
    });
    json!({ "labels": written.collect::<Vec<_>>() })
}

/// Encodes a vector, preceded by its scale.
fn numbers(vector: &LabelVector) -> Vec<f32> {
    let bytes = vector.to_bytes();
    let (numbers, _) = bytes[4..].as_chunks();
    numbers.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// Returns a pipeline file with some topics.
fn pipeline(program: &Program, places: &[usize], head: &str) -> String {
    let topic = |place: &usize| {
        let (slug, label, description) = TOPICS[*place];
        format!(
            "[[topic]]\nslug = \"{slug}\"\nlabel = \"{label}\"\ndescriptions = [\"{description}\"]\n\
                subreddits = [\"{slug}\"]\n"
        )
    };
    let topics: String = places.iter().map(topic).collect();
    let name = places.iter().map(|place| TOPICS[*place].0);
    let name = name.collect::<Vec<_>>().join("-");
    let text = format!("name = \"{name}\"\nmode = \"single\"\n{head}{topics}");
    program.write(&format!("{name}.toml"), text)
}

/// The printed scores in a row, by label.
type Row = BTreeMap<String, f64>;

/// Scores the titles; returns the rows and stderr.
fn scored(program: &Program, model: &Path, file: &str) -> (Vec<Row>, String) {
    let lines = TITLES.map(|title| format!("{}\n", json!({ "text": title })));
    program.write("titles.ndjson", lines.concat());
    let model = model.display();
    let ran = program.ok(&format!(
        "score titles.ndjson - --model {model} --pipeline {file}"
    ));
    let row = |line: &str| -> Row {
        let mut row: Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(row["scores"].take()).unwrap()
    };
    (ran.stdout.lines().map(row).collect(), ran.stderr)
}

/// Asserts for each pair of names that the found score of the first equals the wanted score of the second.
fn are_close(found: &[Row], wanted: &[Row], names: &[(&str, &str)]) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        for (of, as_of) in names {
            let distance = (found[*of] - wanted[*as_of]).abs();
            assert!(distance < 1e-5, "{of} {found:?} is not {as_of} {wanted:?}");
        }
    }
}

const NOTICE: &str = "the model has learned vectors for these labels";

#[test]
fn learned_vectors_apply_to_all_labels_or_none() {
    let program = Program::new();
    let learned = model(&program, "learned", Some(&exchanged(&program)));
    let by_words = program.path("by-words");
    let score = |model: &Path, places: &[usize], head: &str| {
        let file = pipeline(&program, places, head);
        scored(&program, model, &file)
    };
    let (words, message) = score(&by_words, &LEARNED, "");
    assert!(!message.contains("learned"), "{message}");
    let (found, message) = score(&learned, &LEARNED, "");
    for part in [NOTICE, "labels=3"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let exchanged = [("gaming", "food"), ("food", "music"), ("music", "gaming")];
    are_close(&found, &words, &exchanged);
    assert!((found[0]["gaming"] - words[0]["gaming"]).abs() > 0.01);

    // A subset of the labels, in a different order.
    let (words, _) = score(&by_words, &[1, 2], "");
    let (found, message) = score(&learned, &[1, 0], "");
    assert!(message.contains(NOTICE), "{message}");
    are_close(&found, &words, &[("gaming", "food"), ("food", "music")]);

    // If only some labels have learned vectors, none is used, and the reason is logged. If no label has one, nothing is
    // logged.
    for places in [&[0, 1, 2, 3][..], &[3]] {
        let (words, _) = score(&by_words, places, "");
        let (found, message) = score(&learned, places, "");
        assert_eq!(found, words);
        let why = "learned vectors for 3 of these 4 labels, but not for `travel`, so it uses the texts of all labels";
        for part in [why, "learned vectors"] {
            assert_eq!(message.contains(part), places.len() == 4, "{message}");
        }
    }
    // The background uses its texts, whether or not the labels use learned vectors.
    let background = "background = \"reddit\"\n";
    let (words, _) = score(&by_words, &LEARNED, background);
    let (found, message) = score(&learned, &LEARNED, background);
    assert!(message.contains(NOTICE), "{message}");
    are_close(&found, &words, &exchanged);
    let sum = |row: &Row| row.values().sum::<f64>();
    assert!(found.iter().any(|row| sum(row) < 0.9), "no text is `other`");
}

#[test]
fn an_invalid_vectors_file_is_rejected() {
    let program = Program::new();
    let dir = model(&program, "learned", Some(&json!({})));
    let write = |vectors: &str| program.write("learned/label_vectors.json", vectors);
    program.write("one.ndjson", json!({ "text": "soup" }).to_string());
    let score = "score one.ndjson - --model learned --label 'video games'";
    let refused = |message: &str| program.run(score).expect_exit(5, message);
    let text = "This text is about video games.";
    let one = |vector: Value| json!({ "texts": [text], "vector": vector });
    let another = json!({ "texts": ["b"], "vector": [1.0] });
    let same = [one(json!([1.0])), one(json!([2.0]))];
    for (labels, message) in table! {
        json!([one(json!(["a"]))]), "expected f64";
        json!([one(json!([null]))]), "expected f64";
        json!([]), "it has no labels";
        json!([one(json!([]))]), "label 1 has no direction";
        json!([one(json!([0.0, 0.0]))]), "label 1 has no direction";
        json!([{ "texts": [], "vector": [1.0] }]), "label 1 has no text";
        json!(same), "label 2 has the same texts";
        json!([one(json!([1.0, 2.0])), another]), "label 2 has 1 dimensions";
    } {
        write(&json!({ "labels": labels }).to_string());
        refused(message);
    }
    let infinite = r#"{"labels":[{"texts":["a"],"vector":[1e999]}]}"#;
    for (content, message) in [
        ("{}", "missing field `labels`"),
        ("{oops", "the file is damaged"),
        (infinite, "out of range"),
    ] {
        write(content);
        refused(message);
    }
    let three = json!({ "labels": [one(json!([1.0, 2.0, 3.0]))] });
    write(&three.to_string());
    let identity = || ModelFolder::open(&dir, None).unwrap().manifest_hash;
    let before = identity();
    write(&json!({ "labels": [one(json!([3.0, 2.0, 1.0]))] }).to_string());
    assert_ne!(identity(), before, "the vectors are part of the identity");
    let other = "its learned label vectors have 3";
    refused(other);
    program.run("model verify learned").expect_exit(5, other);

    fs::remove_file(dir.join("label_vectors.json")).unwrap();
    refused("has no `label_vectors.json`");
    program.write("x.json", three.to_string());
    for name in ["../x.json", "/etc/hostname", "model.onnx", ".", ""] {
        configure(&dir, Some(name));
        refused("a `.json` file in this folder");
    }
}
