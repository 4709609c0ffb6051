//! The manifest of an embedding folder, as `tools/train.py --keep-zero-shot` writes it: a folder whose files were changed,
//! or whose graph gives other vectors, is refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use topicmill_score::batch::Batch;
use topicmill_score::onnx::load_runtime;
use topicmill_score::text::Encoder;
use topicmill_score::{Engine, EngineOptions, ModelFolder, OnnxEngine};

use crate::support::engine::{repository, runtime_is_here};
use crate::support::program::Program;

const SHIPPED: &str = "models/minilm-reddit-topics";
const TEXTS: [&str; 2] = [
    "politics",
    "Night train to the north, four days along the lake",
];

/// A copy of the shipped folder with a manifest.
fn proved() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut hashes = BTreeMap::new();
    for entry in fs::read_dir(repository(SHIPPED)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with('.') || name == "verified.toml" {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        fs::write(dir.path().join(&name), &bytes).unwrap();
        hashes.insert(name, topicmill_score::hex(&Sha256::digest(&bytes)));
    }
    let folder = ModelFolder::open(dir.path(), None).unwrap();
    let encoder = Encoder::load(&folder).unwrap();
    load_runtime(None).unwrap();
    let mut engine = OnnxEngine::load(&folder, &EngineOptions::default()).unwrap();
    let mut text = String::from(
        "format = 1\nkind = \"embedding\"\nclasses = []\nmax_tokens = 128\nvocab_size = 30522\n[files]\n",
    );
    for (name, hash) in hashes {
        writeln!(text, "\"{name}\" = \"{hash}\"").unwrap();
    }
    text += "[contract]\noutput = \"sentence_embedding\"\npad_id = 0\nmasked = -10000.0\n";
    for device in ["cpu", "cuda"] {
        let table = "file = \"model.onnx\"\nprecision = \"fp32\"\ntolerance = 0.0001\n";
        write!(
            text,
            "[graphs.{device}-fp32]\ndevice = \"{device}\"\n{table}"
        )
        .unwrap();
    }
    for words in TEXTS {
        let sequence = encoder.single(&encoder.encode_whole(words).unwrap());
        let ids = sequence.ids.clone();
        let vector = engine.infer(&Batch::new(&[sequence], 0)).unwrap();
        let vector = vector.row(0);
        write!(
            text,
            "[[vectors]]\npremise = {words:?}\ninput_ids = {ids:?}\nlogits = {vector:?}\n"
        )
        .unwrap();
    }
    fs::write(dir.path().join("manifest.toml"), text).unwrap();
    dir
}

#[test]
fn an_embedding_folder_that_is_not_what_its_manifest_says_is_refused() {
    if !runtime_is_here("the manifest of an embedding folder") {
        return;
    }
    let program = Program::new();
    let change = |dir: &Path, file: &str, from: &str, to: &str| {
        let path = dir.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    for (file, from, to, said) in [
        (
            "manifest.toml",
            "logits = [0.",
            "logits = [0.9",
            "off those that",
        ),
        (
            "manifest.toml",
            "premise = \"politics\"",
            "premise = \"finance\"",
            "the tokenizer",
        ),
        (
            "manifest.toml",
            "logits = [0.",
            "logits = [0.5, 0.",
            "not as many numbers",
        ),
        (
            "manifest.toml",
            "sentence_embedding",
            "another_output",
            "are not those of",
        ),
        (
            "label_vectors.json",
            "vector",
            "vector ",
            "label_vectors.json",
        ),
        ("config.json", "\"output\"", "\"output\" ", "config.json"),
    ] {
        let dir = proved();
        change(dir.path(), file, from, to);
        let texts = program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
        let model = ["--model", dir.path().to_str().unwrap()];
        let ran = program.run(&[&["score", &texts, "-"][..], &model].concat());
        assert_eq!(ran.code, 5, "{file} {to}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{file} {to}: {}", ran.stderr);
    }
}
