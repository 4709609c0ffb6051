//! Attacks through model folders: tokenizers, graphs, weights and manifests.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use topicmill_core::table;

use crate::support::engine::{copy_files, repository};
use crate::support::program::{Program, RunOutput, finished, run_limited};

const EXPORTED: &str = "tests/it/fixtures/models/tiny-bart-mnli";
const MADE: &str = "tests/it/fixtures/models/tiny-bart-made";

/// Copies a model with all its files at the top level, for the test to corrupt.
fn copy(model: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["", "onnx"].map(|folder| repository(model).join(folder)) {
        if folder.exists() {
            copy_files(&folder, dir.path());
        }
    }
    dir
}

/// Returns a command that scores a text with a model.
pub fn scoring(program: &Program, model: &Path) -> Command {
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
    let line = "score texts.ndjson scores.ndjson --overwrite --label food --label sports";
    program.command(&format!("{line} --model {}", model.display()))
}

fn score(program: &Program, model: &Path) -> RunOutput {
    finished(scoring(program, model).output().unwrap())
}

/// Runs a command with limited memory.
fn within(kib: u64, command: &Command) -> RunOutput {
    run_limited(command, &format!("ulimit -v {kib}"))
}

/// Changes the tokenizer of a model.
fn with_tokenizer(change: impl Fn(&mut Value)) -> TempDir {
    let dir = copy(EXPORTED);
    let path = dir.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut tokenizer);
    fs::write(&path, serde_json::to_vec(&tokenizer).unwrap()).unwrap();
    dir
}

#[test]
fn a_tokenizer_with_excessive_memory_use_is_rejected() {
    let program = Program::new();
    let replace =
        json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1_000)});
    let mut nested = json!({"type": "NFC"});
    for _ in 0..3 {
        nested = json!({"type": "Sequence", "normalizers": [nested, replace]});
    }
    let one = json!({"id": 9, "content": "x", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true});
    for (what, part, value) in table! {
        "three nested expansions", "normalizer", nested;
        "a long text at every position", "normalizer",
            json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a".repeat(1_000)});
        "repeated byte-level encoding", "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "ByteLevel"}); 60]});
        "a long prefix", "normalizer", json!({"type": "Prepend", "prepend": "a".repeat(1_000_000)});
        "too many steps", "normalizer",
            json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); 20_000]});
        "too many added tokens", "added_tokens", json!(vec![one; 200_000]);
        // Three charsmaps: the size of a 4 GiB table that is missing, half a size field, and a small table followed by
        // 30,000 bytes of text.
        "a truncated charsmap", "normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "////////"});
        "a charsmap of two bytes", "normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "YWI="});
        "a long charsmap", "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": format!("BAAAAAAA{}", "YWFh".repeat(10_000))});
    } {
        let dir = with_tokenizer(|tokenizer| tokenizer[part] = value.clone());
        let ran = within(2_000_000, &scoring(&program, dir.path()));
        let advice = "download the model again from a source that you trust";
        let is_rejected = ran.code == 5 && ran.stderr.contains(advice);
        assert!(is_rejected, "{what}: {} {}", ran.code, ran.stderr);
    }
    // A table whose offsets point outside it makes the library panic.
    let dir = with_tokenizer(|tokenizer| {
        tokenizer["normalizer"] =
            json!({"type": "Precompiled", "precompiled_charsmap": "CAAAAP//////////eA=="});
    });
    score(&program, dir.path()).expect_exit(5, "tables are inconsistent");
}

#[test]
fn oversized_model_files_are_not_read() {
    let program = Program::new();
    for (file, mib) in [
        ("config.json", 16),
        ("tokenizer_config.json", 16),
        ("manifest.toml", 1),
        ("tokenizer.json", 64),
    ] {
        let dir = copy(MADE);
        let path = dir.path().join(file);
        if file == "tokenizer.json" {
            fs::remove_file(dir.path().join("manifest.toml")).unwrap();
            fs::remove_file(dir.path().join("cpu-int8.onnx")).unwrap();
        }
        // A sparse file: it takes no disk space.
        fs::File::create(&path).unwrap().set_len(1 << 33).unwrap();
        if file == "tokenizer.json" {
            // The tokenizer is hashed before it is read, and hashing 8 GiB would take seconds.
            fs::File::create(&path)
                .unwrap()
                .set_len((64 << 20) + 1)
                .unwrap();
        }
        let ran = within(2_000_000, &scoring(&program, dir.path()));
        ran.expect_exit(5, &format!("larger than {mib} MiB"));
    }
}

/// Encodes a protobuf field of bytes.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128 && number < 16);
    [&[number << 3 | 2, length], bytes].concat()
}

/// Encodes a graph with one tensor whose values are in an external file.
fn graph_with_weights_in(location: &str, dims: &[u8]) -> Vec<u8> {
    let entry = [field(1, b"location"), field(2, location.as_bytes())].concat();
    let tensor = [
        dims,
        // A float32 tensor with external data.
        &[0x10, 1, 0x70, 1],
        &field(8, b"w"),
        &field(13, &entry),
    ]
    .concat();
    // IR version 8, and an operator set.
    [
        vec![0x08, 8],
        field(7, &field(5, &tensor)),
        field(8, &[0x10, 14]),
    ]
    .concat()
}

#[test]
fn a_graph_cannot_read_weights_outside_its_folder() {
    let program = Program::new();
    let secret = program.write("secret", [0; 64]);
    for location in ["../secret", "a/../../secret", &secret, "..\\secret", ""] {
        let dir = copy(EXPORTED);
        let graph = graph_with_weights_in(location, &[0x08, 4]);
        fs::write(dir.path().join("model.onnx"), graph).unwrap();
        let ran = score(&program, dir.path());
        ran.expect_exit(5, "outside its folder");
    }
    let dir = copy(EXPORTED);
    let graph = graph_with_weights_in("none", &[0x08, 4]);
    fs::write(dir.path().join("model.onnx"), graph).unwrap();
    score(&program, dir.path()).expect_exit(5, "has no `none`");
}

#[test]
fn overlong_field_numbers_cannot_hide_external_weights() {
    use topicmill_score::ModelFolder;
    let dir = copy(EXPORTED);
    let whole = graph_with_weights_in("numbers", &[0x08, 4]);
    // The field with the file name gets a number with bits above the 32 that ONNX Runtime reads.
    let at = whole.iter().position(|byte| *byte == 0x6a).unwrap();
    let mut hidden = whole.clone();
    hidden.splice(at..=at, [0xea, 0x80, 0x80, 0x80, 0x10]);
    // The lengths of the tensor and of the graph that contain the field grow by the same four bytes.
    let longer = |hidden: &mut Vec<u8>, key: u8| {
        let at = hidden.iter().position(|byte| *byte == key).unwrap();
        hidden[at + 1] += 4;
    };
    longer(&mut hidden, 0x3a);
    longer(&mut hidden, 0x2a);
    fs::write(dir.path().join("numbers"), [0; 16]).unwrap();
    let open = |graph: &[u8]| {
        fs::write(dir.path().join("model.onnx"), graph).unwrap();
        ModelFolder::open(dir.path(), None)
    };
    open(&whole).unwrap();
    let error = open(&hidden).err().unwrap().to_string();
    assert!(error.contains("not an ONNX graph"), "{error}");
    let mut nameless = whole;
    nameless.extend([0x02, 0]);
    assert!(open(&nameless).is_err());
}

#[test]
fn all_weight_files_count_towards_the_model_identity() {
    use topicmill_score::folder::ModelFolder;
    let dir = copy(EXPORTED);
    let graph = graph_with_weights_in("./numbers", &[0x08, 4]);
    fs::write(dir.path().join("model.onnx"), graph).unwrap();
    let identity = |weights: &[u8]| {
        fs::write(dir.path().join("numbers"), weights).unwrap();
        ModelFolder::open(dir.path(), None).unwrap().manifest_hash
    };
    assert_ne!(identity(&[0; 16]), identity(&[1; 16]));
}

#[test]
fn impossible_dimensions_are_rejected() {
    let program = Program::new();
    let dir = copy(EXPORTED);
    // 2^62 values.
    let dims = [&[0x08][..], &[0x80; 8], &[0x40]].concat();
    fs::write(
        dir.path().join("model.onnx"),
        graph_with_weights_in("w", &dims),
    )
    .unwrap();
    fs::write(dir.path().join("w"), [0; 16]).unwrap();
    within(2_000_000, &scoring(&program, dir.path())).expect_exit(5, "load");
}

#[test]
fn a_manifest_can_set_only_graph_optimisation() {
    let program = Program::new();
    for key in [
        "session.model_external_initializers_file_folder_path",
        "ep.context_file_path",
    ] {
        let dir = copy(MADE);
        let path = dir.path().join("manifest.toml");
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replacen(
            "session = {",
            &format!("session = {{ \"{key}\" = \"/tmp\","),
            1,
        );
        assert_ne!(text, changed);
        fs::write(&path, changed).unwrap();
        score(&program, dir.path()).expect_exit(5, key);
    }
}
