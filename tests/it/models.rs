//! Tests model folders: manifests are checked, invalid models are rejected before a text is scored, and downloads
//! from a hub survive interruptions.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use topicmill_core::table;

use crate::attacks::models::field;
use crate::support::engine::{copy_files, repository};
use crate::support::hub::{Fault, Hub};
use crate::support::program::{Program, RunOutput, find_row, finished};

const MADE: &str = "tests/it/fixtures/models/tiny-bart-made";
const EXPORTED: &str = "tests/it/fixtures/models/tiny-bart-mnli";
const NLI: &str = "tests/it/fixtures/models/tiny-bert-nli";
const WRONG: &str = "tests/it/fixtures/wrong/tiny-bart-mnli-stock-fusion.onnx";

/// Copies the prepared model folder, for the test to change.
fn copy() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_files(&repository(MADE), dir.path());
    dir
}

/// Changes a file of a folder; returns its bytes before and after.
fn change(dir: &Path, file: &str, with: impl Fn(&[u8]) -> Vec<u8>) -> [Vec<u8>; 2] {
    let path = dir.join(file);
    let before = fs::read(&path).unwrap();
    let after = with(&before);
    assert_ne!(before, after, "{file} was not changed");
    fs::write(&path, &after).unwrap();
    [before, after]
}

/// Changes a file of a folder, and its hash in the manifest.
fn change_with_hash(dir: &Path, file: &str, with: impl Fn(&[u8]) -> Vec<u8>) {
    let [before, after] = change(dir, file, with)
        .map(|bytes| topicmill_core::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes)));
    replace(dir, "manifest.toml", &before, &after);
}

/// Changes the `config.json` of a folder, and its hash in the manifest.
pub fn change_config(dir: &Path, with: impl Fn(&mut Value)) {
    change_with_hash(dir, "config.json", |text| {
        let mut config: Value = serde_json::from_slice(text).unwrap();
        with(&mut config);
        serde_json::to_vec(&config).unwrap()
    });
}

/// Replaces a string in a text file; the string must occur.
fn replace(dir: &Path, file: &str, old: &str, new: &str) {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{file} does not contain {old}");
    fs::write(&path, text.replace(old, new)).unwrap();
}

/// Scores a text with a model.
fn score(program: &Program, model: &Path, flags: &str) -> RunOutput {
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
    let line = "score texts.ndjson scores.ndjson --overwrite --label food --label sports";
    program.run(&format!("{line} --model {} {flags}", model.display()))
}

#[test]
fn an_optimised_graph_is_selected_by_precision_and_scores_like_the_export() {
    let program = Program::new();
    let food = |(model, flags)| {
        score(&program, &repository(model), flags).expect_code(0);
        let scores = program.read_lines("scores.ndjson")[0]["scores"].take();
        scores["food"].as_f64().unwrap()
    };
    let [exported, made, int8] = [(EXPORTED, ""), (MADE, ""), (MADE, "--precision int8")].map(food);
    assert!((exported - made).abs() < 1e-5);
    assert!(
        (exported - int8).abs() > 1e-5,
        "the int8 graph was not used"
    );
    let none = score(&program, &repository(MADE), "--precision fp16");
    none.expect_exit(5, "cpu-fp32, cpu-int8");
}

#[test]
fn model_errors_are_reported_before_any_text_is_scored() {
    let program = Program::new();
    let refused = |message: &str, spoil: &dyn Fn(&Path)| {
        let dir = copy();
        spoil(dir.path());
        score(&program, dir.path(), "").expect_exit(5, message);
    };
    let fp32 = "cpu-fp32.onnx";
    // The stock optimizer's fusion of BART.
    let wrong = fs::read(repository(WRONG)).unwrap();
    refused("its logits differ", &|dir| {
        change_with_hash(dir, fp32, |_| wrong.clone());
    });
    // Truncated weights, without and with their hash in the manifest.
    let truncated = |bytes: &[u8]| bytes[..200_000].to_vec();
    refused("differs from `manifest.toml`", &|dir| {
        change(dir, fp32, truncated);
    });
    refused("load the graph", &|dir| {
        change_with_hash(dir, fp32, truncated);
    });
    let other = repository("tests/it/fixtures/models/tiny-bert-nli/tokenizer.json");
    let other = fs::read(other).unwrap();
    refused("belongs to another model", &|dir| {
        change_with_hash(dir, "tokenizer.json", |_| other.clone());
    });
    refused("neither `label2id`", &|dir| {
        change_config(dir, |config| {
            let keys = config.as_object_mut().unwrap();
            keys.retain(|key, _| !["id2label", "label2id"].contains(&key.as_str()));
        });
    });
    refused("differ from `config.json`", &|dir| {
        change_config(dir, |config| {
            config["label2id"] = json!({"entailment": 0, "neutral": 1, "contradiction": 2});
        });
    });
    let file = "file = \"cpu-fp32.onnx\"";
    for (old, new, message) in [
        ("logits = [1.", "logits = [2.", "its logits differ"),
        ("format = 1", "format = 2", "its format is 2"),
        (file, "file = \"../cpu-fp32.onnx\"", "in the same folder"),
    ] {
        refused(message, &|dir| replace(dir, "manifest.toml", old, new));
    }
    refused("has several graphs", &|dir| {
        fs::remove_file(dir.join("manifest.toml")).unwrap();
    });
}

/// Scores a text with a copy of an exported NLI model, after a change of the folder.
fn score_changed(program: &Program, change: impl Fn(&Path)) -> RunOutput {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.onnx",
    ] {
        fs::copy(repository(NLI).join(name), dir.path().join(name)).unwrap();
    }
    change(dir.path());
    score(program, dir.path(), "")
}

#[test]
fn a_graph_with_32_bit_inputs_gives_the_same_scores() {
    let program = Program::new();
    let scores = |ran: RunOutput| {
        ran.expect_code(0);
        assert!(!ran.stderr.contains("WARN"), "{}", ran.stderr);
        program.read_lines("scores.ndjson")[0]["scores"].take()
    };
    let expected = scores(score_changed(&program, |_| {}));
    // The inputs are declared as int32: element type 6 instead of 7.
    let narrow = score_changed(&program, |dir| {
        change(dir, "model.onnx", |bytes| {
            let mut bytes = bytes.to_vec();
            for name in ["input_ids", "attention_mask", "token_type_ids"] {
                let declared = memchr::memmem::rfind(&bytes, name.as_bytes()).unwrap();
                let kind = memchr::memmem::find(&bytes[declared..], &[8, 7]).unwrap();
                bytes[declared + kind + 1] = 6;
            }
            bytes
        });
    });
    assert_eq!(scores(narrow), expected);
}

#[test]
fn a_folder_without_its_graph_is_explained() {
    let program = Program::new();
    for file in ["model.onnx", "tokenizer.json"] {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
        let ran = score_changed(&program, |dir| fs::write(dir.join(file), pointer).unwrap());
        ran.expect_exit(5, "git lfs pull");
    }
    let ran = score_changed(&program, |dir| {
        fs::rename(dir.join("model.onnx"), dir.join("model.safetensors")).unwrap();
    });
    ran.expect_exit(5, "tools/model.py");
}

#[test]
fn doubtful_logits_are_reported() {
    let program = Program::new();
    let swapped = r#""label2id": {"contradiction": 0, "neutral": 1, "entailment": 2}, "x": {"#;
    score_changed(&program, |dir| {
        replace(dir, "config.json", r#""label2id": {"#, swapped);
    })
    .expect_exit(0, "contradicts itself");
    score_changed(&program, |dir| {
        change(dir, "model.onnx", |bytes| {
            // The output of the last node gets a new name and goes through a softmax, which is appended.
            let at = memchr::memmem::find(bytes, b"logits").unwrap();
            let names = [
                field(1, b"before"),
                field(2, b"logits"),
                field(4, b"Softmax"),
            ];
            let graph = field(7, &field(1, &names.concat()));
            [&bytes[..at], b"before", &bytes[at + 6..], &graph].concat()
        });
    })
    .expect_exit(0, "probabilities");
    // Some weights are NaN; the texts are not to blame.
    score_changed(&program, |dir| {
        change(dir, "model.onnx", |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[60_000..62_000].fill(0xff);
            bytes
        });
    })
    .expect_exit(5, "not finite");
}

#[test]
fn one_label_or_a_thousand_are_scored() {
    let program = Program::new();
    program.write("texts.ndjson", "{\"text\": \"a\"}\n");
    let model = repository(MADE).display().to_string();
    for n in [1, 1_000] {
        let labels: String = (0..n).map(|n| format!(" --label label-{n}")).collect();
        let score = "score texts.ndjson scores.ndjson --overwrite --model";
        program.ok(&format!("{score} {model}{labels}"));
        let row = program.read_lines("scores.ndjson").remove(0);
        assert_eq!(row["scores"].as_object().unwrap().len(), n);
    }
}

#[test]
fn verify_reports_every_file_and_graph() {
    let program = Program::new();
    let verify = |dir: &Path, code: i32| {
        let ran = program.run(&format!("model verify {} --format json", dir.display()));
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        ran.json()
    };
    let dir = copy();
    let table = verify(dir.path(), 0);
    let states = table.as_array().unwrap().iter().map(|row| &row["state"]);
    assert_eq!(states.collect::<Vec<_>>(), ["ok"; 7]);
    let error = |row: &Value| row["logits off"].as_str().unwrap().parse::<f64>().unwrap();
    let (fp32, int8) = (
        find_row(&table, "graph", "cpu-fp32"),
        find_row(&table, "graph", "cpu-int8"),
    );
    assert!(error(fp32) < 1e-5 && error(int8) > 1e-3, "{table}");
    assert_eq!(fp32["allowed"], "1.0e-4");

    let wrong = fs::read(repository(WRONG)).unwrap();
    change_with_hash(dir.path(), "cpu-fp32.onnx", |_| wrong.clone());
    change(dir.path(), "cpu-int8.onnx", |bytes| bytes[1..].to_vec());
    let table = verify(dir.path(), 5);
    let fp32 = find_row(&table, "graph", "cpu-fp32");
    let state = fp32["state"].as_str().unwrap();
    assert!(error(fp32) > 0.5 && state.starts_with("wrong"), "{fp32}");
    assert_eq!(find_row(&table, "file", "cpu-int8.onnx")["hash"], "other");

    let plain = verify(&repository(EXPORTED), 0);
    assert_eq!(plain[0]["hash"], "not known");
}

#[test]
fn list_shows_available_models_and_the_one_in_use() {
    let program = Program::new();
    let models = program.path("models");
    fs::create_dir(&models).unwrap();
    std::os::unix::fs::symlink(repository(MADE), models.join("made")).unwrap();
    fs::create_dir(models.join("empty")).unwrap();
    let table = program.json("model list");
    let of = |name: &str| find_row(&table, "model", name);
    assert_eq!(of("tiny-bart-made")["graph"], "cpu-fp32");
    assert_eq!(of("tiny-bart-made")["of"], "cpu-fp32, cpu-int8");
    assert_eq!(of("tiny-bart-mnli")["state"], "in use");
    let state = of("empty")["state"].as_str().unwrap();
    assert!(state.contains("config.json"), "{state}");
}

/// Runs `model pull` with a hub and its own home.
async fn pull(program: &Program, hub: &Hub, line: &str, token: Option<&str>) -> RunOutput {
    let mut command = program.command(&format!("model pull {line}"));
    command
        .env("HF_ENDPOINT", &hub.url)
        .env("HF_HOME", program.path("hf"))
        .env_remove("HF_TOKEN");
    if let Some(token) = token {
        command.env("HF_TOKEN", token);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    finished(output.await.unwrap())
}

/// Runs `model pull` and expects success.
async fn pulled(program: &Program, hub: &Hub, line: &str) -> RunOutput {
    let ran = pull(program, hub, line, None).await;
    ran.expect_code(0);
    ran
}

fn same_files(folder: &Path, original: &str, names: &[&str]) {
    for name in names {
        let files = [folder, &repository(original)].map(|dir| fs::read(dir.join(name)).unwrap());
        assert_eq!(files[0], files[1], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_hub_export_is_downloaded_and_used() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/tiny", &repository(EXPORTED));
    let others = ["model.safetensors", "onnx/model_fp16.onnx", "../evil.onnx"];
    hub.add_files(
        "someone/tiny",
        others.map(|name| (name.to_owned(), vec![0; 9])),
    );
    let ran = pulled(&program, &hub, "former/tiny").await;
    assert_eq!(ran.stdout, "models/tiny\n");
    let folder = program.path("models/tiny");
    let tokenizer = ["tokenizer.json", "tokenizer_config.json"];
    same_files(&folder, EXPORTED, &tokenizer);
    same_files(&folder, EXPORTED, &["config.json", "onnx/model.onnx"]);
    // Only the graph that is used is downloaded.
    assert_eq!(hub.requests("onnx").len(), 1);
    assert!(hub.requests("model.safetensors").is_empty());
    score(&program, &folder, "").expect_code(0);

    let again = pull(&program, &hub, "someone/tiny", None).await;
    again.expect_exit(2, "already exists");
    let other = pull(&program, &hub, "someone/tiny --precision q4 --to q4", None).await;
    other.expect_exit(5, "onnx/model_fp16.onnx");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_model_is_downloaded_with_the_requested_graphs() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    pulled(&program, &hub, "someone/made --to one").await;
    same_files(
        &program.path("one"),
        MADE,
        &["manifest.toml", "cpu-fp32.onnx"],
    );
    assert!(!program.path("one/cpu-int8.onnx").exists());
    let table = program.json("model verify one");
    assert_eq!(find_row(&table, "file", "cpu-int8.onnx")["hash"], "absent");
    pulled(&program, &hub, "someone/made --to all --precision all").await;
    same_files(
        &program.path("all"),
        MADE,
        &["cpu-fp32.onnx", "cpu-int8.onnx"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_resumes() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    hub.set_fault("cpu-fp32.onnx", Some(Fault::Break(2)));
    let ran = pulled(&program, &hub, "someone/made").await;
    // Progress counts no byte twice.
    let last = ran.stderr.lines().rfind(|line| line.contains("done="));
    let mut words = last.unwrap().split_whitespace();
    let mut number = |name| words.find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    let (done, total) = (number("done=").unwrap(), number("total=").unwrap());
    assert!(done <= total, "{last:?}");
    same_files(&program.path("models/made"), MADE, &["cpu-fp32.onnx"]);
    let seen = hub.requests("cpu-fp32.onnx");
    let ranges: Vec<bool> = seen.iter().map(|seen| seen.range.is_some()).collect();
    assert_eq!(ranges, [false, true, true], "{seen:?}");

    hub.set_fault("cpu-fp32.onnx", Some(Fault::Damage));
    let ran = pull(&program, &hub, "someone/made --to damaged", None).await;
    ran.expect_exit(75, "does not match the hub's list");
    assert!(!program.path("damaged").exists());
    hub.set_fault("cpu-fp32.onnx", None);
    pulled(&program, &hub, "someone/made --to damaged").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_errors_are_reported_without_the_token() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/gated", &repository(MADE));
    hub.require_token("someone/gated", "hf_secret");
    let files = |names: &[&str]| -> Vec<(String, Vec<u8>)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), b"{}".to_vec()))
            .collect()
    };
    let weights = ["config.json", "tokenizer.json", "model.safetensors"];
    hub.add_files("someone/weights", files(&weights));
    hub.add_files("someone/other", files(&["model.onnx"]));
    hub.add_files("someone/no-labels", files(&weights));
    hub.add_files("someone/no-labels", files(&["model.onnx"]));
    for (repository, token, code, message) in table! {
        "someone/gated", None, 3, "set HF_TOKEN";
        "someone/gated", Some("hf_wrong"), 3, "accept the model's terms";
        "someone/gated", Some("hf_secret"), 0, "downloaded someone/gated";
        "someone/none", None, 2, "no such repository";
        "some:one/x", None, 2, "write it as `owner/name`";
        "someone/weights", None, 5, "tools/model.py";
        "someone/other", None, 5, "has no `config.json`";
        "someone/no-labels", None, 5, "neither `label2id`";
    } {
        let ran = pull(&program, &hub, &format!("{repository} -vv"), token).await;
        ran.expect_exit(code, message);
        assert!(!ran.stderr.contains("hf_"), "{}", ran.stderr);
    }
    // No weights of an invalid model are downloaded.
    assert!(hub.requests("model.onnx").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_stored_by_the_hub_client_is_used() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    hub.require_token("someone/made", "hf_kept");
    fs::create_dir(program.path("hf")).unwrap();
    program.write("hf/token", "hf_kept\n");
    pulled(&program, &hub, "someone/made").await;
}
